"""Count the work of a training step on a GPU, without a GPU: kernels, bytes and products of our and the published code.

    python benchmarks/gpu/counts.py [--published FOLDER] [--length 128] [--preset base] [--tokens 131072] [--no-mixing]

Nothing is computed: tensors have shapes and no values. A kernel is an operation of PyTorch or ours that is not a view.
Its bytes are those of its inputs and outputs. In compiled code, kernels are counted after Inductor has fused them.
`--published` is a clone of the published implementation (ltgoslo/gpt-bert, 9fc1507), which compiles nothing.

Times are CALCULATED, for an H200: bytes at 80 % of 4.8 TB/s, and products at 550 TFLOP/s, or 4 us per kernel if this is
more. A matrix product reads and writes while it computes, so the larger of its two times counts (roofline model). For
our kernels, all other instructions count, too (`instructions.py`), beside the products. In attention, the bytes are
added; elsewhere the larger of both times counts. The times do not include atomics, products of bad shapes,
instructions of what Inductor makes, and whatever else only a GPU shows.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.nn import functional as F

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from counting import Part, compiled, compiled_function  # noqa: E402

from babelmill.config.models import gpt_bert  # noqa: E402
from babelmill.config.resolve import Configuration  # noqa: E402
from babelmill.model.attention import visible  # noqa: E402
from babelmill.model.gpt_bert import Classifier, GPTBert, GPTBertShape, training_mask  # noqa: E402
from babelmill.runtime.cost import PEAK, flops  # noqa: E402
from babelmill.runtime.processes import Processes  # noqa: E402
from babelmill.tokens.vocabulary import Vocabulary  # noqa: E402
from babelmill.training.batches import COLUMNS, Sent, TokenStream  # noqa: E402
from babelmill.training.kernels import dropout, geglu_triton  # noqa: E402
from babelmill.training.kernels.attention_block_triton import FusedAttention  # noqa: E402
from babelmill.training.kernels.dropout import KeyedAttention, Keys  # noqa: E402
from babelmill.training.kernels.install import put_sums  # noqa: E402
from babelmill.training.kernels.pytorch_kernels import OneHotAttention  # noqa: E402
from babelmill.training.networks import loss as loss_module  # noqa: E402
from babelmill.training.networks.loss import loss  # noqa: E402
from babelmill.training.optimization.gradients import FlatGradients  # noqa: E402
from babelmill.training.optimization.optim import Lamb, MovingAverage, parameter_groups  # noqa: E402
from babelmill.training.plan import schedule  # noqa: E402
from babelmill.training.plan.objectives import objective_of  # noqa: E402

END = "clipping, LAMB, average"  # the part that a step does once, however many passes it has
PREDICTED = 0.58  # share of positions with a target: 15 % in half of the rows, all in the other half


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


def of_preset(preset: str) -> tuple[GPTBertShape, int]:
    """Return the shape of a preset, and the tokens of its steps."""
    configured = Configuration([("benchmark", {"preset": preset})]).model("eng")
    shape = GPTBertShape(vocab_size=configured.tokenizer.vocab_size, **configured.model.shape())
    return shape, configured.train.global_batch_tokens


KINDS = {
    "attention blocks, one-hot products, not used": OneHotAttention,
    "attention blocks, copies and atomics, not used": KeyedAttention,
    "attention blocks": FusedAttention,
}


class Attending(nn.Module):
    """An attention block that computes attention with a class of training, whose dropout keys are an input."""

    def __init__(self, block: nn.Module, kind: type):
        super().__init__()
        self.block, self.kind = block, kind

    def forward(self, rows: torch.Tensor, *inputs):
        keys, fused = Keys(0, rows.device), self.kind is FusedAttention
        keys.rows, keys.spans = rows, dropout.whole_spans(len(rows), inputs[0].size(1), rows.device)
        self.block.attend = KeyedAttention(1, keys) if fused else self.kind(1, keys)
        return (FusedAttention(self.block) if fused else self.block)(*inputs)


def ours(shape: GPTBertShape, length: int, tokens: int) -> dict[str, Part]:
    """Count the parts of one of our steps, with one forward pass of so many tokens."""
    rows, width, layers = tokens // length, shape.hidden_size, shape.num_hidden_layers
    model, keys = GPTBert(shape), Keys(0, torch.device("cpu"))
    keys.rows = torch.zeros(rows, dtype=torch.int32)
    dropout.install(model, keys, KeyedAttention)
    put_sums(model)
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
        for name, kind in KINDS.items():
            parts[name] = compiled(Attending(layer, kind), keys.rows, *inputs) * layers
        feed_forward = model.transformer.mlp_layers[0]
        parts["feed-forward blocks, compiled alone, not used"] = compiled(feed_forward, normalized) * layers
        geglu_triton.install(model)
        parts["feed-forward blocks"] = compiled(feed_forward, normalized) * layers
        parts["dropout, sums, normalisation"] = Part.of(lambda: mix(model, hidden))
        parts["embedding, head, loss"] = head(model, normalized, tokens)
    parts["adding the gradients of a pass"] = adding(model)
    parts |= making(shape.vocab_size, rows, length)
    parts["micro-batch"] += Part.of(lambda: dropout.spans_of_mask(allowed))
    return parts | {END: update(model)}


def adding(model: GPTBert) -> Part:
    """Count how new gradients are added to those of earlier passes: with one kernel."""
    return Part.kernel(12 * FlatGradients(model, Processes(0, 1, 1, torch.device("cpu"))).flat.numel())


def mix(model: GPTBert, hidden: torch.Tensor) -> None:
    """Compute what stands between the sub-blocks of a forward and a backward pass."""
    mixed, add = model.transformer.dwa_modules.start(hidden)
    for _ in range(2 * model.config.num_hidden_layers):
        mixed = add(mixed, Compiled.apply(mixed))
    mixed.backward(torch.empty_like(mixed))


def head(model: GPTBert, normalized: torch.Tensor, tokens: int) -> Part:
    """Count the embedding, the classifier and the loss; what is compiled is counted after fusion."""
    chunks, chosen = [], torch.zeros(int(tokens * PREDICTED), normalized.size(2), dtype=torch.bfloat16)

    def seen(scores, targets, weights, z_loss_weight, learning):
        chunks.append((scores, targets, weights))
        return scores.new_empty((), dtype=torch.float32), scores.new_empty(len(scores), 3), torch.empty_like(scores)

    part = Part.of(lambda: around(model, normalized, tokens, seen))
    part = part + compiled(Features(model.classifier), chosen.requires_grad_())
    for chunk in chunks:
        part = part + compiled_function(lambda *tensors: loss_module.from_scores(*tensors, 1e-4, True), *chunk)
    return part


def around(model: GPTBert, normalized: torch.Tensor, tokens: int, function) -> None:
    """Compute the embedding, the classifier and the loss, forwards and backwards."""
    ids, targets = torch.zeros(normalized.shape[:2], dtype=torch.int64), int(tokens * PREDICTED)
    words, _ = model.embedding(ids)
    words.backward(torch.empty_like(words))
    features = Compiled.apply(normalized.flatten(0, 1).index_select(0, torch.zeros(targets, dtype=torch.int64)))
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
        return Part.of(lambda: stream.build(Sent(sent, tokens, None), targets, False))

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
    parser.add_argument(
        "--tokens", type=int, help="tokens of a forward pass (default: all tokens of a step, which fit into an H200)"
    )
    parser.add_argument("--no-mixing", action="store_true", help="a model without layer mixing")
    args = parser.parse_args()
    shape, batch = of_preset(args.preset)
    shape = replace(shape, layer_mixing=not args.no_mixing)
    args.tokens = args.tokens or batch
    nn.init.trunc_normal_ = lambda tensor, **_: tensor  # the original would look at values, but there are none
    schedule.CHUNK = loss_module.CHUNK = (schedule.CHUNK[0],) * 2  # the size of a chunk on GPUs
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
        step, end = sum(part.milliseconds for part in used), parts[END].milliseconds
        passes = max(1, batch // args.tokens)
        print(f"| {code} | all | {sum(used, Part())} | {step:.1f} |")
        size = gpt_bert(shape, shape.vocab_size)
        least = 1e3 * flops(size, args.length, args.tokens, args.tokens * PREDICTED) / PEAK["H200"]
        print(f"{code}: MFU {least * passes / (passes * (step - end) + end):.1%}, with {passes} passes per step")


if __name__ == "__main__":
    main()
