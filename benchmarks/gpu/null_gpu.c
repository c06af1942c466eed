// A GPU that computes nothing: preloaded into a process, this library makes PyTorch see an H200 whose kernels do nothing,
// or several, of which each process uses one.
//
// It takes the place of NVIDIA's driver, of the parts of the CUDA runtime that PyTorch calls, and of cuBLAS. Everything
// before a launch is real: PyTorch's dispatcher and allocator, compiled code, Triton's launchers. So the host's time,
// the number of kernels, what waits for the device, the memory, and recordings (CUDA graphs) can be examined without a
// GPU. Device memory is memory of the host that takes no room until it is written: small copies are done, kernels are
// not. So numbers have no meaning, and what depends on them (the number of elements that are not 0) may be anything.
//
// `null_gpu.py` builds and loads it. NULL_GPU is the path of this library, NULL_GPU_GB the size of the memory, NULL_GPUS
// the number of GPUs.

#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuMemGetAddressRange
#undef cuStreamWriteValue32

#define PAGE (2ull << 20)
#define ADDRESSES (4096ull << 30)
#define SMALL (1 << 20)  // bytes; larger copies to the device, and larger fills, are left out: they take room

static int gpus(void) { char* n = getenv("NULL_GPUS"); return n ? atoi(n) : 1; }
static __thread int current;  // number of the GPU that this thread uses

// What is counted, in the order of COUNTED in host_time.py.
static struct {
  long kernels, triton, products, waits, to_host, from_host, recorded, repeated, refused;
} count;
long null_gpu_count(int which) { return ((long*)&count)[which]; }

// A recording: everything must go to its stream, and nothing may wait or copy from or to the host meanwhile.
static cudaStream_t recording;
static int records;
static enum cudaStreamCaptureMode begun;          // in this mode; only "global" forbids other threads to wait or to ask
static __thread int here;                         // whether this thread records
static __thread enum cudaStreamCaptureMode mode;  // "relaxed" allows a thread everything
static void refuse(const char* what) {
  if (records && mode != cudaStreamCaptureModeRelaxed && !count.refused++) fprintf(stderr, "null GPU: %s during a recording\n", what);
}
static void asks(const char* what, cudaStream_t of) {
  if (here || begun == cudaStreamCaptureModeGlobal || of == recording) refuse(what);
}
static void launched(long* of, cudaStream_t stream) {
  ++*of;
  count.recorded += records;
  if (stream != recording) refuse("a kernel of another stream");
}
static void waits(const char* what, cudaStream_t of) { count.waits++; asks(what, of); }

// Memory: addresses are never used again; a block that is freed gives its room back.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char* region;
static size_t next, used, capacity = 139ull << 30;
static struct block {
  char* begin;
  size_t size;
  struct block* rest;
}* blocks;

__attribute__((constructor)) static void begin(void) {
  if (getenv("NULL_GPU_GB")) capacity = atol(getenv("NULL_GPU_GB")) << 30;
}
static size_t whole(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static char* addresses(size_t size) {
  if (!region) region = mmap(0, ADDRESSES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* begin = region + next;
  next += size;
  return begin;
}
static int take(size_t size) { return used + size <= capacity ? (used += size, 1) : 0; }
static int on_device(const void* p) { return region && (char*)p >= region && (char*)p < region + next; }

cudaError_t cudaMalloc(void** p, size_t size) {
  pthread_mutex_lock(&lock);
  size = whole(size);
  char* begin = addresses(size);
  int fits = take(size);
  if (fits) {
    struct block* block = malloc(sizeof *block);
    *block = (struct block){begin, size, blocks};
    blocks = block;
    *p = begin;
  }
  pthread_mutex_unlock(&lock);
  return fits ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) {
  pthread_mutex_lock(&lock);
  for (struct block** link = &blocks; *link; link = &(*link)->rest)
    if ((*link)->begin == (char*)p) {
      struct block* found = *link;
      madvise(p, found->size, MADV_DONTNEED);
      used -= found->size;
      *link = found->rest;
      free(found);
      break;
    }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) { *left = capacity - used; *all = capacity; return cudaSuccess; }
cudaError_t cudaHostAlloc(void** p, size_t size, unsigned flags) {
  return posix_memalign(p, 4096, size) ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) { free(p); return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  a->type = on_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  a->device = current;
  a->devicePointer = a->hostPointer = (void*)p;
  return cudaSuccess;
}
// Segments that grow (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).
CUresult cuMemAddressReserve(CUdeviceptr* p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  *p = (CUdeviceptr)addresses(whole(size));
  pthread_mutex_unlock(&lock);
  return 0;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* h, size_t size, const CUmemAllocationProp* p,
                     unsigned long long flags) {
  pthread_mutex_lock(&lock);
  int fits = take(size);
  pthread_mutex_unlock(&lock);
  *h = size;
  return fits ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
  pthread_mutex_lock(&lock);
  used -= h;
  pthread_mutex_unlock(&lock);
  return 0;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t size) { madvise((void*)p, size, MADV_DONTNEED); return 0; }

// Copies.
static void copy(void* to, const void* from, size_t size) {
  int within = on_device(to) && on_device(from);
  if (!within) {
    ++*(on_device(from) ? &count.to_host : &count.from_host);
    refuse("a copy from or to the host");
  }
  if (!on_device(to) || size <= SMALL) memmove(to, from, size);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, enum cudaMemcpyKind k) {
  waits("a copy that waits", NULL);
  copy(to, from, n);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
  copy(to, from, n);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int value, size_t n) { if (n <= SMALL) memset(p, value, n); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) { return cudaMemset(p, value, n); }
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) { return cudaMalloc(p, PAGE); }

// The device.
static int attribute(int which) {
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 3201000;
    case cudaDevAttrGlobalMemoryBusWidth: return 6144;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentKernels: return 1;
    default: return 0;
  }
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int device) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "H200 that computes nothing");
  p->totalGlobalMem = capacity;
  p->major = 9;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472;
  p->l2CacheSize = 50 << 20;
  p->unifiedAddressing = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* v, enum cudaDeviceAttr a, int device) { *v = attribute(a); return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { *n = gpus(); return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = current; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { current = device; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int device) { snprintf(s, n, "0000:00:00.0"); return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = 0; *greatest = -5; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { waits("a wait for the device", NULL); return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) { *can = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }

// Streams and events.
static cudaStream_t new_stream(void) { static long n = 0x1000; return (cudaStream_t)(n += 16); }
cudaError_t cudaStreamCreate(cudaStream_t* s) { *s = new_stream(); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { *s = new_stream(); return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int priority) { *s = new_stream(); return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) { *priority = 0; return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) { asks("a question to a stream", s); return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { waits("a wait for a stream", s); return cudaSuccess; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec; }
struct event { double ms; cudaStream_t stream; };
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { *e = calloc(1, sizeof(struct event)); return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { free(e); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  *(struct event*)e = (struct event){now(), s};
  if (s != recording) refuse("an event of another stream");
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
  if (s != recording || ((struct event*)e)->stream != recording) refuse("a wait for another stream");
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { asks("a question to an event", ((struct event*)e)->stream); return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { waits("a wait for an event", ((struct event*)e)->stream); return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = ((struct event*)b)->ms - ((struct event*)a)->ms;
  return cudaSuccess;
}

// Recordings.
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  if (records) return cudaErrorStreamCaptureUnsupported;
  records = here = 1;
  begun = m;
  recording = s;
  count.recorded = count.refused = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  records = here = 0;
  *g = (cudaGraph_t)1;
  return count.refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus* status) {
  *status = records && s == recording;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* g, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* n) {
  *status = records && s == recording;
  if (id) *id = 1;
  if (g) *g = (cudaGraph_t)1;
  if (n) *n = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* m) {
  enum cudaStreamCaptureMode before = mode;
  mode = *m;
  *m = before;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t g, unsigned long long f) {
  *made = (cudaGraphExec_t)g;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t g, unsigned long long f) {
  return cudaGraphInstantiateWithFlags(made, g, f);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) { *n = count.recorded; return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) { count.repeated++; return cudaSuccess; }

// Kernels.
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int threads, size_t shared,
                                                                   unsigned flags) {
  *n = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int threads, size_t shared) {
  *n = 2;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* f) { *k = (cudaKernel_t)f; return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** a) {
  launched(&count.kernels, c->stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** a, size_t shared, cudaStream_t s) {
  launched(&count.kernels, s);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void** a, size_t shared, cudaStream_t s) {
  launched(&count.kernels, s);
  return cudaSuccess;
}

// The driver, for Triton and PyTorch's allocator.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** p, unsigned v, unsigned long long f,
                                             enum cudaDriverEntryPointQueryResult* r) {
  static void* self;
  if (!self) self = dlopen(getenv("NULL_GPU"), RTLD_NOW);
  *p = dlsym(self, name);
  if (r) *r = *p ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *p ? cudaSuccess : cudaErrorSymbolNotFound;
}
CUresult cuDriverGetVersion(int* v) { *v = 13000; return 0; }
CUresult cuDeviceGetCount(int* n) { *n = gpus(); return 0; }
CUresult cuDeviceGet(CUdevice* device, int i) { *device = i; return 0; }
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice device) { *v = attribute((int)a); return 0; }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) { *flags = 0; *active = 1; return 0; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice device) { *c = (CUcontext)64; return 0; }
CUresult cuCtxGetCurrent(CUcontext* c) { *c = (CUcontext)64; return 0; }
CUresult cuCtxGetDevice(CUdevice* device) { *device = current; return 0; }
CUresult cuCtxGetLimit(size_t* v, CUlimit l) { *v = SMALL; return 0; }
CUresult cuGetErrorString(CUresult e, const char** s) { *s = "an error"; return 0; }
CUresult cuModuleLoadData(CUmodule* m, const void* code) { *m = (CUmodule)64; return 0; }
CUresult cuModuleLoad(CUmodule* m, const char* path) { return cuModuleLoadData(m, path); }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) { *f = (CUfunction)m; return 0; }
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction f) {
  *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return 0;
}
CUresult cuPointerGetAttribute(void* v, CUpointer_attribute a, CUdeviceptr p) {
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
    *(CUdeviceptr*)v = p;
  else
    *(int*)v = 0;
  return 0;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void** a, void** x) {
  launched(&count.triton, s);
  return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** a, void** x) {
  launched(&count.triton, c->hStream);
  return 0;
}

// cuBLAS.
static cudaStream_t of_products;
int cublasSetStream_v2(void* handle, cudaStream_t s) { of_products = s; return 0; }
static int made(void** p) { *p = calloc(1, 64); return 0; }
int cublasCreate_v2(void** handle) { return made(handle); }
int cublasLtMatmulDescCreate(void** d, int compute, int scale) { return made(d); }
int cublasLtMatmulPreferenceCreate(void** p) { return made(p); }
int cublasLtMatrixLayoutCreate(void** l, int type, unsigned long rows, unsigned long columns, long lead) { return made(l); }
int cublasLtMatmulDescDestroy(void* p) { free(p); return 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { free(p); return 0; }
int cublasLtMatrixLayoutDestroy(void* p) { free(p); return 0; }
int cublasGetMathMode(void* handle, int* mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void* handle, int* mode) { *mode = 0; return 0; }
int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a, void* b, void* c, void* e, void* p, int n, void* results,
                                   int* found) {
  memset(results, 0, 64);
  *found = 1;
  return 0;
}
int cublasLtMatmul(void* h, void* d, void* alpha, void* a, void* da, void* b, void* db, void* beta, void* c, void* dc,
                   void* e, void* de, void* algo, void* work, size_t n, cudaStream_t s) {
  launched(&count.products, s);
  return 0;
}

// Functions whose arguments do not matter. They get their names behind the compiler's back, which knows other
// arguments.
#define DOES(name, what)            \
  int name##_(void) __asm__(#name); \
  int name##_(void) { what; }
#define SUCCEEDS(name) DOES(name, return 0)
#define MULTIPLIES(name) DOES(name, launched(&count.products, of_products); return 0)

MULTIPLIES(cublasGemmEx)
MULTIPLIES(cublasGemmStridedBatchedEx) MULTIPLIES(cublasDotEx) MULTIPLIES(cublasSgemm_v2) MULTIPLIES(cublasSgemmEx)
    MULTIPLIES(cublasSgemmStridedBatched) MULTIPLIES(cublasSgemv_v2) MULTIPLIES(cublasDgemm_v2)
        MULTIPLIES(cublasDgemmStridedBatched) MULTIPLIES(cublasDgemv_v2) MULTIPLIES(cublasSdot_v2)
            MULTIPLIES(cublasDdot_v2) MULTIPLIES(cublasStrsm_v2) MULTIPLIES(cublasStrsmBatched)
                MULTIPLIES(cublasDtrsm_v2) MULTIPLIES(cublasDtrsmBatched)

                    SUCCEEDS(cublasDestroy_v2) SUCCEEDS(cublasSetMathMode) SUCCEEDS(cublasSetPointerMode_v2)
                        SUCCEEDS(cublasSetWorkspace_v2) SUCCEEDS(cublasLtMatmulDescSetAttribute)
                            SUCCEEDS(cublasLtMatmulPreferenceSetAttribute) SUCCEEDS(cublasLtMatrixLayoutSetAttribute)
                                SUCCEEDS(cudaFuncSetAttribute) SUCCEEDS(cudaKernelSetAttributeForDevice)
                                    SUCCEEDS(cudaHostRegister) SUCCEEDS(cudaHostUnregister) SUCCEEDS(cudaStreamDestroy)
                                        SUCCEEDS(cudaGraphDestroy) SUCCEEDS(cudaGraphExecDestroy)
                                            SUCCEEDS(cudaMemcpyToSymbol) SUCCEEDS(cudaMemPoolSetAttribute) SUCCEEDS(
                                                cudaMemPoolTrimTo) SUCCEEDS(cudaDeviceGetDefaultMemPool)
                                                SUCCEEDS(cudaLibraryLoadData) SUCCEEDS(cudaLibraryGetKernel)
                                                    SUCCEEDS(cuInit) SUCCEEDS(cuCtxSetCurrent) SUCCEEDS(cuCtxSetLimit)
                                                        SUCCEEDS(cuCtxPushCurrent) SUCCEEDS(cuCtxPopCurrent)
                                                            SUCCEEDS(cuModuleUnload) SUCCEEDS(cuFuncSetAttribute)
                                                                SUCCEEDS(cuFuncSetCacheConfig) SUCCEEDS(cuMemMap)
                                                                    SUCCEEDS(cuMemSetAccess) SUCCEEDS(cuMemAddressFree)
                                                                        SUCCEEDS(cuMemGetAllocationGranularity)

    // NCCL: sums and copies over one process change nothing, and those over several are left out.
int ncclCommInitRankConfig(void** comm, int size, long id[16], int rank, void* config) {
  made(comm);
  *(int*)*comm = size;
  return 0;
}
int ncclCommGetAsyncError(void* comm, int* error) { *error = 0; return 0; }
int ncclCommCount(void* comm, int* count) { *count = *(int*)comm; return 0; }
SUCCEEDS(ncclAllReduce) SUCCEEDS(ncclAllGather) SUCCEEDS(ncclReduceScatter) SUCCEEDS(ncclBroadcast) SUCCEEDS(ncclReduce)
SUCCEEDS(ncclSend) SUCCEEDS(ncclRecv) SUCCEEDS(ncclGroupStart) SUCCEEDS(ncclGroupEnd) SUCCEEDS(ncclCommDestroy) SUCCEEDS(ncclCommAbort)
SUCCEEDS(ncclCommFinalize) SUCCEEDS(ncclCommRegister) SUCCEEDS(ncclCommDeregister)

// PyTorch and Triton look these up, and do not call them here.
    SUCCEEDS(cuOccupancyMaxActiveClusters) SUCCEEDS(cuTensorMapEncodeTiled) SUCCEEDS(cuMulticastCreate)
        SUCCEEDS(cuMulticastAddDevice) SUCCEEDS(cuMulticastBindMem) SUCCEEDS(cuMulticastUnbind)
            SUCCEEDS(cuStreamWriteValue32) SUCCEEDS(cuMemExportToShareableHandle)
                SUCCEEDS(cuMemImportFromShareableHandle) SUCCEEDS(cuMemRetainAllocationHandle)
                    SUCCEEDS(cuMemGetAllocationPropertiesFromHandle) SUCCEEDS(cuMemGetAddressRange)
SUCCEEDS(cuLogsRegisterCallback) SUCCEEDS(cuLogsUnregisterCallback) SUCCEEDS(cuMemsetD32Async)
                        SUCCEEDS(cuCtxFromGreenCtx) SUCCEEDS(cuGreenCtxCreate) SUCCEEDS(cuGreenCtxDestroy)
                            SUCCEEDS(cuGreenCtxStreamCreate) SUCCEEDS(cuLinkCreate_v2)
                                SUCCEEDS(cuDevResourceGenerateDesc) SUCCEEDS(cuDevSmResourceSplitByCount)
                                    SUCCEEDS(cuDeviceGetDevResource) SUCCEEDS(cuLinkAddData_v2) SUCCEEDS(cuLinkComplete)
                                        SUCCEEDS(cuLaunchCooperativeKernel) SUCCEEDS(cuModuleLoadDataEx)
                                            SUCCEEDS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
