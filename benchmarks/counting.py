"""Count kernels, bytes and products of code that is not computed, and calculate its time on a GPU; see `counts.py`."""

import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._inductor import compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import ExternKernelOut, FallbackKernel, MultiOutput
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import babelmill.training.attention_triton  # noqa: F401  (it registers its operations)

BYTES, PRODUCTS, KERNEL = 0.8 * 4.8e12, 550e12, 4e-6  # bytes and FLOP per second; seconds per launch
MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "set_", "_local_scalar_dense")


def attention_flops(query, *_, out_val=None, **__) -> int:
    """Return the operations of our attention, forwards: the scores, and the weighted values."""
    rows, heads, length, width = query
    return 2 * 2 * rows * heads * length**2 * width


def attention_backward_flops(_do, _out, _lse, query, *_, out_val=None, **__) -> int:
    """Return the operations of both backward kernels: 7 products, and 2 with one-hot matrices, which are twice as wide.

    The one-hot matrices have R = 64 columns, and tiles of scores have twice as many distances as keys.
    """
    rows, heads, length, width = query
    return 2 * rows * heads * length**2 * (7 * width + 2 * 2 * 64)


PRODUCTS_OF_OURS = {
    torch.ops.babelmill.attention: attention_flops,
    torch.ops.babelmill.attention_backward: attention_backward_flops,
}


BACKWARD = torch.ops.babelmill.attention_backward.default


class Count(TorchDispatchMode):
    """Counts kernels and the bytes that they read and write."""

    def __init__(self):
        super().__init__()
        self.kernels = self.bytes = self.of_products = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if function.namespace in ("aten", "babelmill") and not function.is_view and name not in NOTHING:
            written_to = name == "copy_" or function._overloadname == "out"  # given, but not read
            tensors = tree_leaves((args, kwargs, None if written_to else result))
            moved = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
            self.kernels += 1
            self.bytes += moved
            self.of_products += moved if name in MATRIX_PRODUCTS else 0
        return result


class Part:
    """Holds the counts of a part of a step: kernels, bytes, those of matrix products, floating-point operations."""

    def __init__(self, kernels: float = 0, bytes: float = 0, of_products: float = 0, flops: float = 0):
        self.kernels, self.bytes, self.of_products, self.flops = kernels, bytes, of_products, flops

    @classmethod
    def of(cls, function) -> "Part":
        """Count the work of a function."""
        with FlopCounterMode(display=False, custom_mapping=PRODUCTS_OF_OURS) as products, Count() as count:
            function()
        return cls(count.kernels, count.bytes, count.of_products, products.get_total_flops())

    def __mul__(self, times: float) -> "Part":
        return Part(*(times * number for number in vars(self).values()))

    def __add__(self, other: "Part") -> "Part":
        return Part(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __str__(self) -> str:
        return f"{self.kernels:,.0f} | {self.bytes / 1e9:.1f} | {self.flops / 1e12:.2f}"

    @property
    def milliseconds(self) -> float:
        """Return the calculated time."""
        products = max(self.of_products / BYTES, self.flops / PRODUCTS)
        return 1e3 * max((self.bytes - self.of_products) / BYTES + products, self.kernels * KERNEL)


def size(node) -> int:
    """Return the bytes of a tensor of Inductor's."""
    return node.get_numel() * node.get_dtype().itemsize


def moved_by(node) -> int:
    """Return the bytes that a kernel of Inductor's moves. Both kernels of our backward pass read its inputs."""
    if isinstance(node.node, FallbackKernel):
        return (1 + (node.node.op_overload is BACKWARD)) * sum(map(size, node.node.inputs))
    return size(node.node) if isinstance(node.node, MultiOutput) else node.get_read_write_buffers_sizes()


def fused_part(found: list[Part]):
    """Return a compiler that enters into `found` what Inductor makes of a graph after it has fused what it can."""

    def count(graph, examples):
        mode = torch._guards.detect_fake_mode(examples)
        lowering = GraphLowering(graph, example_inputs=examples, shape_env=mode.shape_env)
        with DebugContext(), V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_real_inputs(examples):
            compile_fx._recursive_post_grad_passes(graph)
            lowering.run(*examples)
            lowering.init_wrapper_code()
            lowering._update_scheduler()
            nodes = lowering.scheduler.nodes
            moved = {node: moved_by(node) for node in nodes}
        products = sum(moved[node] for node in nodes if isinstance(node.node, ExternKernelOut))
        found.append(Part(len(nodes), sum(moved.values()), products))
        return make_boxed_func(graph.forward)

    return count


def compiled(module: nn.Module, *inputs) -> Part:
    """Count what Inductor makes of a module, forwards and backwards."""
    found = []
    count = fused_part(found)
    named = dict(module.named_parameters())
    run = aot_function(
        lambda parameters, *given: torch.func.functional_call(module, parameters, given),
        fw_compiler=count,
        bw_compiler=count,
        partition_fn=lambda graph, given, **more: min_cut_rematerialization_partition(
            joint_graph_passes(graph), given, **more
        ),
        decompositions=select_decomp_table(),
    )

    def both(function) -> None:
        result = function()
        result = result[0] if isinstance(result, tuple | list) else result
        result.backward(torch.ones_like(result))

    both(lambda: run(named, *inputs))
    return sum(found, Part(flops=Part.of(lambda: both(lambda: module(*inputs))).flops))


@torch.no_grad()
def compiled_function(function, *inputs) -> Part:
    """Count what Inductor makes of a function without gradients and products."""
    found = []
    aot_function(function, fw_compiler=fused_part(found), decompositions=select_decomp_table())(*inputs)
    return sum(found, Part())
