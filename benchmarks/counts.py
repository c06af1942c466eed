"""Count the work of a training step on a GPU, without a GPU: kernels, bytes and products of our and the published code.

    python benchmarks/counts.py [--published FOLDER] [--length 128] [--tokens 16384] [--preset base]

Nothing is computed: tensors have shapes and no values. A kernel is an operation of PyTorch or ours that is not a view.
Its bytes are those of its inputs and outputs. In compiled code, kernels are counted after Inductor has fused them.
`--published` is a clone of the published implementation (ltgoslo/gpt-bert, 9fc1507), which compiles nothing.

Times are CALCULATED, for an H200: bytes at 80 % of 4.8 TB/s, and products at 550 TFLOP/s, or 4 us per kernel if this is
more. Matrix products read and write while they compute, so for those of a part, the larger of the two times counts
(roofline model). They do not include atomics, products of bad shapes, and whatever else only a GPU shows.
"""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
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
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.model.attention import visible  # noqa: E402
from babelmill.model.gpt_bert import Classifier, GPTBert, GPTBertShape, training_mask  # noqa: E402
from babelmill.runtime.cost import PEAK, flops  # noqa: E402
from babelmill.tokens.vocabulary import Vocabulary  # noqa: E402
from babelmill.training import amounts, attention_triton, dropout, mixing_triton  # noqa: E402
from babelmill.training import loss as loss_module  # noqa: E402
from babelmill.training.batches import COLUMNS, TokenStream  # noqa: E402
from babelmill.training.dropout import KeyedAttention, Keys  # noqa: E402
from babelmill.training.loss import loss  # noqa: E402
from babelmill.training.objectives import objective_of  # noqa: E402
from babelmill.training.one_hot_attention import OneHotAttention  # noqa: E402
from babelmill.training.optim import Lamb, MovingAverage, parameter_groups  # noqa: E402

BYTES, PRODUCTS, KERNEL = 0.8 * 4.8e12, 550e12, 4e-6  # bytes and FLOP per second; seconds per launch
MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "set_", "_local_scalar_dense")
END = "clipping, LAMB, average"  # the part that a step does once, however many passes it has
PREDICTED = 0.58  # share of positions with a target: 15 % in half of the rows, all in the other half


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


class Compiled(torch.autograd.Function):
    """Stands for a compiled part of a model, which is counted elsewhere."""

    @staticmethod
    def forward(ctx, hidden):
        ctx.kind = hidden.dtype
        return torch.empty_like(hidden, dtype=torch.bfloat16)

    @staticmethod
    def backward(ctx, gradient):
        return torch.empty_like(gradient, dtype=ctx.kind)


class Features(nn.Module):
    """Computes the features of a classifier."""

    def __init__(self, classifier: Classifier):
        super().__init__()
        self.classifier = classifier

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.classifier.features(hidden)


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


def of_preset(preset: str) -> tuple[GPTBertShape, int]:
    """Return the shape of a preset, and the tokens of its steps."""
    configured = Configuration([("benchmark", {"preset": preset})]).model("eng")
    shape = GPTBertShape(vocab_size=configured.tokenizer.vocab_size, **configured.model.shape())
    return shape, configured.train.global_batch_tokens


KINDS = {
    OneHotAttention: "attention blocks, one-hot products, not used",
    KeyedAttention: "attention blocks, copies and atomics, not used",
    attention_triton.TritonAttention: "attention blocks",
}


class Attending(nn.Module):
    """An attention block that computes attention with a class of training, whose dropout keys are an input."""

    def __init__(self, block: nn.Module, kind: type[KeyedAttention]):
        super().__init__()
        self.block, self.kind = block, kind

    def forward(self, rows: torch.Tensor, *inputs):
        keys = Keys(0, rows.device)
        keys.rows = rows
        self.block.attend = self.kind(1, keys)
        return self.block(*inputs)


def ours(shape: GPTBertShape, length: int, tokens: int) -> dict[str, Part]:
    """Count the parts of one of our steps, with one forward pass of so many tokens."""
    rows, width, layers = tokens // length, shape.hidden_size, shape.num_hidden_layers
    model, keys = GPTBert(shape), Keys(0, torch.device("cpu"))
    keys.rows = torch.zeros(rows, dtype=torch.int32)
    dropout.install(model, keys, KeyedAttention)
    mixing_triton.install(model)
    for layer in model.transformer.attention_layers:  # keyed dropout would have constants in the graph
        layer.relative_dropout = nn.Dropout(shape.attention_probs_dropout_prob)
    model.classifier.nonlinearity[-2] = nn.Dropout(shape.hidden_dropout_prob)
    hidden = torch.zeros(rows, length, width, requires_grad=True)
    normalized = torch.zeros(rows, length, width, dtype=torch.bfloat16, requires_grad=True)
    relative = torch.zeros(2 * shape.position_bucket_size - 1, width, requires_grad=True)
    buckets = torch.zeros(length, length, dtype=torch.int64)
    allowed = training_mask(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, dtype=torch.bool))
    parts = {}
    with torch.autocast("cpu", torch.bfloat16):
        seen = visible(allowed, torch.bfloat16)
        layer, inputs = model.transformer.attention_layers[0], (normalized, relative, buckets, seen)
        for kind, name in KINDS.items():
            parts[name] = compiled(Attending(layer, kind), keys.rows, *inputs) * layers
        parts["feed-forward blocks"] = compiled(model.transformer.mlp_layers[0], normalized) * layers
        parts["dropout, layer mixing, normalisation"] = Part.of(lambda: mix(model, hidden))
        parts["embedding, head, loss"] = head(model, hidden, tokens)
    parts |= making(shape.vocab_size, rows, length)
    return parts | {END: update(model)}


def mix(model: GPTBert, hidden: torch.Tensor) -> None:
    """Mix the layers of a forward and a backward pass."""
    mixed, add = model.transformer.dwa_modules.start(hidden)
    for _ in range(2 * model.config.num_hidden_layers):
        mixed = add(mixed, Compiled.apply(mixed))
    mixed.backward(torch.empty_like(mixed))


def head(model: GPTBert, hidden: torch.Tensor, tokens: int) -> Part:
    """Count the embedding, the classifier and the loss; what is compiled is counted after fusion."""
    chunks, chosen = [], torch.zeros(int(tokens * PREDICTED), hidden.size(2), requires_grad=True)

    def seen(scores, targets, weights, z_loss_weight, learning):
        chunks.append((scores, targets, weights))
        return scores.new_empty((), dtype=torch.float32), scores.new_empty(len(scores), 3), torch.empty_like(scores)

    part = Part.of(lambda: around(model, hidden, tokens, seen))
    part = part + compiled(Features(model.classifier), chosen)
    for chunk in chunks:
        part = part + compiled_function(lambda *tensors: loss_module.from_scores(*tensors, 1e-4, True), *chunk)
    return part


def around(model: GPTBert, hidden: torch.Tensor, tokens: int, function) -> None:
    """Compute the embedding, the classifier and the loss, forwards and backwards."""
    ids, targets = torch.zeros(hidden.shape[:2], dtype=torch.int64), int(tokens * PREDICTED)
    words, _ = model.embedding(ids)
    features = Compiled.apply(words.flatten(0, 1)[torch.zeros(targets, dtype=torch.int64)])
    positions = torch.zeros(targets, dtype=torch.int64)
    batch = SimpleNamespace(targets=positions, weights=positions.float(), groups=positions, importance=None)
    layer = model.embedding.word_embedding.weight, model.classifier.bias
    loss(features, *layer, batch, 1e-4, 2, function)[0].backward()


def making(vocabulary: int, rows: int, length: int) -> dict[str, Part]:
    """Count the making of a micro-batch, compiled and not."""
    shard = SimpleNamespace(tokens=np.zeros(1, "<u2"), responses=None)
    objective = objective_of(Configuration([("benchmark", {})]).model("eng").train)
    words = Vocabulary(vocabulary, 1, 2, 3, 4, tuple(range(16)))
    stream = TokenStream([shard], words, 0, torch.device("cpu"), objective)  # pyright: ignore[reportArgumentType]
    sent, tokens = torch.zeros(rows, COLUMNS, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.int16)
    targets = int(rows * length * PREDICTED)
    plain = stream._show

    def count() -> Part:
        return Part.of(lambda: stream._build(sent, tokens, None, targets, False))

    whole, shown = count(), plain(sent, tokens, None, position := torch.arange(length))
    stream._show = lambda *_: shown
    fused = compiled_function(lambda *tensors: plain(*tensors[:2], None, tensors[2]), sent, tokens, position)
    return {"micro-batch, not compiled": whole, "micro-batch": count() + fused}


def update(model: nn.Module) -> Part:
    """Count the end of a step. (For clipping, only the passes over the gradient count; the rest is a dozen numbers.)"""
    named = dict(model.named_parameters())
    gradient = torch.zeros(sum(parameter.numel() for parameter in named.values()))
    for parameter in named.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer, average = Lamb(parameter_groups(named.items(), 0.1), 0.01), MovingAverage(named, 0.999)
    optimizer.update(0.01, torch.ones(()))  # this creates its state

    def end() -> None:
        gradient.zero_()
        torch.linalg.vector_norm(gradient)
        gradient.mul_(torch.ones(())).nan_to_num_(0.0, 0.0, 0.0)
        optimizer.update(0.01, torch.ones(()))
        average.update(3)

    return Part.of(end)


def published(folder: Path, shape: GPTBertShape, length: int, tokens: int) -> dict[str, Part]:
    """Count the parts of a step of the published code, as in its training loop."""
    sys.path.insert(0, str(folder / "pretraining"))
    import lamb
    import model_extra

    rows = tokens // length
    model = model_extra.Bert(shape)
    ids = torch.zeros(length, rows, dtype=torch.int64)
    masks = torch.zeros(rows, length, length, dtype=torch.bool)
    targets, hidden = int(tokens * PREDICTED), torch.zeros(length, rows, shape.hidden_size, requires_grad=True)
    parts = {}

    def blocks() -> None:
        relative = torch.zeros(2 * shape.position_bucket_size - 1, shape.hidden_size, requires_grad=True)
        result = model.transformer(hidden, masks.unsqueeze(1), relative)
        result.backward(torch.ones_like(result))

    def around() -> None:
        words, _ = model.embedding(ids)
        chosen = torch.index_select(words.flatten(0, 1), 0, torch.zeros(targets, dtype=torch.int64))
        scores, labels = model.classifier.nonlinearity(chosen), torch.zeros(targets, dtype=torch.int64)
        loss = F.cross_entropy(scores, labels, reduction="none").mean()
        z_loss = torch.logsumexp(scores, dim=-1).pow(2).mean()
        (scores.argmax(-1) == labels).float().mean()
        (loss + 1e-4 * z_loss).backward()

    with torch.autocast("cpu", torch.bfloat16):
        parts["blocks and layer mixing"] = Part.of(blocks)
        parts["embedding, head, loss"] = Part.of(around)
    with unset_fake_temporarily():  # its optimizer looks at values
        named = dict(model_extra.Bert(shape).named_parameters())
        for parameter in named.values():
            parameter.data.fill_(0.01)
            parameter.grad = torch.full_like(parameter, 0.01)
        averages = [parameter.detach().clone() for parameter in named.values()]
        optimizer = lamb.Lamb(parameter_groups(named.items(), 0.1), 0.01)
        optimizer.step()

        @torch.no_grad()
        def end() -> None:
            nn.utils.clip_grad_norm_(named.values(), 2.0)
            optimizer.step()
            for parameter, mean in zip(named.values(), averages, strict=True):
                mean.mul_(0.999).add_(0.001 * parameter)

        return parts | {END: Part.of(end)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16384)
    args = parser.parse_args()
    shape, batch = of_preset(args.preset)
    nn.init.trunc_normal_ = lambda tensor, **_: tensor  # the original would look at values, but there are none
    amounts.CHUNK = loss_module.CHUNK = (amounts.CHUNK[0],) * 2  # the size of a chunk on GPUs
    codes = {"ours": lambda: ours(shape, args.length, args.tokens)}
    if args.published:
        codes["published"] = lambda: published(args.published, shape, args.length, args.tokens)
    print("| code | part | kernels | GB | TFLOP | calculated ms |\n|---|---|---|---|---|---|")
    for code, count in codes.items():
        on_gpu = patch.object(torch.compiler, "is_compiling", lambda: True)  # which chooses what a GPU would compute
        with FakeTensorMode() as mode, V.set_fake_mode(mode), on_gpu:
            parts = count()
        used = [part for name, part in parts.items() if not name.endswith(("not compiled", "not used"))]
        for name, part in parts.items():
            print(f"| {code} | {name} | {part} | {part.milliseconds:.1f} |")
        step, end, passes = sum(part.milliseconds for part in used), parts[END].milliseconds, batch // args.tokens
        print(f"| {code} | all | {sum(used, Part())} | {step:.1f} |")
        least = 1e3 * flops(shape, shape.vocab_size, args.length, args.tokens, args.tokens * PREDICTED) / PEAK["H200"]
        of_preset_step = least * passes / (passes * (step - end) + end)
        print(f"{code}: MFU {least / step:.1%}; with the preset's {passes} passes per step {of_preset_step:.1%}")


if __name__ == "__main__":
    main()
