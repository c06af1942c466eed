/* A stand-in for NVIDIA's libnvidia-ml.so.1: two GPUs that answer what the test sets. */
#include <string.h>

int result = 0;                /* of the questions: 0, or an error of NVML's, such as 3 (not supported) */
unsigned long long energy[2]; /* mJ since the driver was loaded */
static int gpus[2] = {0, 1};
static const char *uuids[2] = {"GPU-aaaaaaaa-0000-0000-0000-000000000000", "MIG-bbbbbbbb-0000-0000-0000-000000000000"};

int nvmlInitWithFlags(unsigned flags) { return 0; }
const char *nvmlErrorString(int code) { return "an error"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, int **gpu) {
    for (int i = 0; i < 2; i++)
        if (strcmp(uuid, uuids[i]) == 0) { *gpu = &gpus[i]; return 0; }
    return 6; /* not found */
}
int nvmlDeviceGetUtilizationRates(int *gpu, unsigned *rates) {
    rates[0] = 90 + 5 * *gpu; rates[1] = 40;
    return result;
}
int nvmlDeviceGetMemoryInfo(int *gpu, unsigned long long *memory) {
    memory[0] = 80ull << 30; memory[1] = 10ull << 30; memory[2] = (70ull + *gpu) << 30;
    return result;
}
int nvmlDeviceGetPowerUsage(int *gpu, unsigned *milliwatts) { *milliwatts = 650000 + *gpu; return 0; }
int nvmlDeviceGetTemperature(int *gpu, int sensor, unsigned *degrees) { *degrees = 60 + *gpu; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(int *gpu, unsigned long long *taken) { *taken = energy[*gpu]; return result; }
