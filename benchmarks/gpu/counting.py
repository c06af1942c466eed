"""Count kernels, bytes and products of code that is not computed, and calculate its time on a GPU; see `counts.py`."""

import instructions
import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._inductor import compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import ConcatKernel, ExternKernelOut, FallbackKernel, MultiOutput
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from babelmill.training.kernels import (
    attention_block_triton,
    attention_triton,
    geglu_triton,
    mixing_triton,
)

BYTES, PRODUCTS, KERNEL = 0.8 * 4.8e12, 550e12, 4e-6  # bytes and FLOP per second; seconds per launch
BETWEEN_BLOCKS = {
    "mix_forward": mixing_triton._mix_forward,
    "mix_backward": mixing_triton._mix_backward,
    "begin_sums": mixing_triton._begin_sums,
}  # our operators that are not compiled, and their kernels
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "set_", "_local_scalar_dense")


class Part:
    """Holds the counts of a part of a step: kernels, bytes, floating-point operations, seconds without launches."""

    def __init__(self, kernels: float = 0, bytes: float = 0, flops: float = 0, seconds: float = 0):
        self.kernels, self.bytes, self.flops, self.seconds = kernels, bytes, flops, seconds

    @classmethod
    def kernel(cls, bytes: float, flops: float = 0) -> "Part":
        """Count one kernel. If it is a matrix product, it reads and writes while it computes (roofline model)."""
        return cls(1, bytes, flops, max(bytes / BYTES, flops / PRODUCTS))

    @classmethod
    def of(cls, function) -> "Part":
        """Count the work of a function."""
        with Count() as count:
            function()
        return count.part

    def __mul__(self, times: float) -> "Part":
        return Part(*(times * number for number in vars(self).values()))

    def __add__(self, other: "Part") -> "Part":
        return Part(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __str__(self) -> str:
        return f"{self.kernels:,.0f} | {self.bytes / 1e9:.1f} | {self.flops / 1e12:.2f}"

    @property
    def milliseconds(self) -> float:
        """Return the calculated time."""
        return 1e3 * max(self.seconds, self.kernels * KERNEL)


class Count(TorchDispatchMode):
    """Counts operations that are no views: each is one kernel, which moves its inputs and outputs."""

    def __init__(self):
        super().__init__()
        self.part = Part()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        if function.namespace in ("aten", "babelmill") and not function.is_view and name not in NOTHING:
            written_to = name == "copy_" or function._overloadname == "out"  # given, but not read
            named = zip(function._schema.arguments, args, strict=False)
            again = [tensor for argument, tensor in named if argument.name == "stream"]  # ours, changed in place
            tensors = tree_leaves((args, kwargs, again, None if written_to else result))
            moved = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
            of_products = flop_registry.get(function.overloadpacket)
            if kernel := BETWEEN_BLOCKS.get(name):
                self.part += of_tokens(kernel, moved, args[0].numel())
            else:
                self.part += Part.kernel(moved, of_products(*args, **kwargs, out_val=result) if of_products else 0)
        return result


def size(node) -> int:
    """Return the bytes of a tensor of Inductor's."""
    return node.get_numel() * node.get_dtype().itemsize


def of_attention(inputs: list) -> Part:
    """Count what our attention does forwards: a product with a table, a kernel with 3 products, and the gate."""
    joint, tables, *_ = inputs
    (rows, length, _), (_, heads, buckets, d) = joint.get_size(), tables.get_size()
    numbers, scores = rows * length * heads * d, rows * heads * length**2 * share(length)
    states, products = 2 * numbers, 2 * rows * length * heads * buckets  # bytes, in bf16
    gates = size(joint) - 3 * states
    of_table = Part.kernel(states, states * buckets)  # and its result, which is counted as such
    needed = instructions.per_score(attention_triton._forward, length) * scores
    moved = sum(map(size, inputs)) - gates  # besides, `products` is read
    attention = of_kernels(1, moved + products, scores * 4 * d + states * buckets, needed)
    gate = of_tokens(attention_block_triton._gate_forward, states + gates, numbers)
    return of_table + attention + gate


def of_attention_backward(inputs: list) -> Part:
    """Count what our attention does backwards.

    There is a kernel for the gate, one for the gradients of scores and values (3 products), one for those of queries
    and keys (2 products, and 2 with one-hot matrices), and one for those of the tables. Besides, partial sums are added
    for the biases and the tables. A tile of the third kernel reads its scores twice; the second time, they are in the
    cache.
    """
    gradient, values, content, _, lse, joint, tables, *_ = inputs
    (rows, length, _), (_, heads, buckets, d) = joint.get_size(), tables.get_size()
    numbers, scores = rows * length * heads * d, rows * heads * length**2 * share(length)
    states, products, tile = size(gradient), size(content), attention_triton.TILE
    gates = size(joint) - 3 * states
    of_bias = 2 * 2 * states * (3 / tile + 1 / attention_block_triton.TOKENS)  # written and read, in fp32
    moved = size(gradient) + size(values) + gates + states + size(lse)
    gate = of_tokens(attention_block_triton._gate_backward, moved, numbers)
    needed = instructions.per_score(attention_triton._gradient_of_scores, length) * scores
    moved = 4 * states + 2 * products + 2 * size(lse) + sum(map(size, inputs[7:])) + 2 * 2 * scores
    of_scores = of_kernels(1, moved, scores * 3 * 2 * d, needed)
    needed = instructions.per_score(attention_triton._gradients_of_states, length * share(length)) * scores
    flops = scores * (2 * 2 * d + 2 * 2 * buckets * (1 + tile / (length * share(length)))) + 2 * numbers * 2 * buckets
    of_states = of_kernels(1, 2 * 2 * scores + 2 * states + 2 * products, flops, needed)
    parts = 2 * 2 * size(tables) * rows * length / attention_triton.POSITIONS
    of_tables = Part.kernel(2 * (products + states), 2 * states * buckets)
    sums = of_kernels(4, of_bias + parts, 0)
    return gate + of_scores + of_states + of_tables + sums


def of_geglu(inputs: list) -> Part:
    """Count what stands forwards between the products of a feed-forward block. (Its result is counted as such.)"""
    (joint,) = inputs
    return of_tokens(geglu_triton._geglu_forward, size(joint), joint.get_numel() / 2)


def of_geglu_backward(inputs: list) -> Part:
    """Count what stands backwards between the products of a feed-forward block. (Its result is counted as such.)"""
    gradient, joint = inputs
    return of_tokens(geglu_triton._geglu_backward, size(gradient) + size(joint), gradient.get_numel())


def of_tokens(kernel, moved: float, numbers: float) -> Part:
    """Count a kernel for the numbers of all tokens: it moves bytes while it computes, as others without products."""
    return Part(1, moved, 0, max(moved / BYTES, instructions.per_number(kernel) * numbers / instructions.PER_SECOND))


def share(length: int) -> float:
    """Return the share of scores that are computed, if half of the rows are causal, and each is one document."""
    causal = (length + attention_triton.TILE) / (2 * length)
    return min(1.0, (1 + causal) / 2)


def of_kernels(number: int, moved: float, flops: float, needed: float = 0.0) -> Part:
    """Count kernels of attention, which are not expected to move bytes while they compute.

    They compute products and all else at once: the longer of both times counts.
    """
    computing = max(flops / PRODUCTS, needed / instructions.PER_SECOND)
    return Part(number, moved, flops, moved / BYTES + computing)


OURS = {
    torch.ops.babelmill.attention.default: of_attention,
    torch.ops.babelmill.attention_backward.default: of_attention_backward,
    torch.ops.babelmill.geglu.default: of_geglu,
    torch.ops.babelmill.geglu_backward.default: of_geglu_backward,
}


def of_node(node) -> Part:
    """Count the work of a node of Inductor's schedule."""
    made = node.node
    if isinstance(made, FallbackKernel):
        known = OURS.get(made.op_overload)
        return known(made.inputs) if known else Part.kernel(sum(map(size, made.inputs)))
    if isinstance(made, MultiOutput):  # a result of an operation before it
        return Part(0, size(made), 0, size(made) / BYTES)
    if isinstance(made, ExternKernelOut) and len(made.inputs) > 1:  # not the seeds of random numbers
        left = made.inputs[-2].get_size()  # the last two inputs are multiplied
        return Part.kernel(size(made) + sum(map(size, made.inputs)), 2 * made.get_numel() * left[-1])
    return Part.kernel(node.get_read_write_buffers_sizes()) if not isinstance(made, ConcatKernel) else Part()


def fused_part(found: list[Part]):
    """Return a compiler that enters into `found` what Inductor makes of a graph after it has fused what it can."""

    def count(graph, examples):
        mode = torch._guards.detect_fake_mode(examples)
        with DebugContext(), V.set_fake_mode(mode), V.set_real_inputs(examples):
            compile_fx._recursive_post_grad_passes(graph)
        lowering = GraphLowering(graph, example_inputs=examples, shape_env=mode.shape_env)
        with DebugContext(), V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_real_inputs(examples):
            lowering.run(*examples)
            lowering.init_wrapper_code()
            lowering._update_scheduler()
            found.append(sum(map(of_node, lowering.scheduler.nodes), Part()))
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
    return sum(found, Part())


@torch.no_grad()
def compiled_function(function, *inputs) -> Part:
    """Count what Inductor makes of a function without gradients and products."""
    found = []
    aot_function(function, fw_compiler=fused_part(found), decompositions=select_decomp_table())(*inputs)
    return sum(found, Part())
