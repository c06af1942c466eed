"""Compare our Triton kernels with the formula, in Triton's interpreter, which checks all memory that they use.

    TRITON_INTERPRET=1 python tests/scripts/kernel_checks.py attention|feed_forward|sums|edges|trial|mixed_step|rounded_step|added_step SIZE ...

A size is a number of tokens per row (attention, trial, steps), of hidden states (sums, edges), or a width (feed_forward).
TRITON_INTERPRET is read at the import.

Each tensor's difference is relative to the tensor. In float32, its largest number counts. In bfloat16, its norm does: where
a token's numbers are nearly equal, normalising them makes roundings large, and a narrow model has such tokens.
"""

import math
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from babelmill.model.attention import Visible, position_buckets, visible
from babelmill.model.gpt_bert import GEGLU, Attention, GPTBertShape, Normalization, training_mask
from babelmill.model.mixing import LayerMixing
from babelmill.training.batches import MicroBatch
from babelmill.training.kernels import (
    attention_block_triton,
    attention_triton,
    dropout,
    geglu_triton,
    mixing_triton,
)
from babelmill.training.kernels import (
    install as install_module,
)
from babelmill.training.kernels.attention_block_triton import FusedAttention
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.dropout import KeyedAttention, Keys, NoDropout, RowDropout
from babelmill.training.kernels.geglu_triton import NormalizedGEGLU
from babelmill.training.kernels.install import difference, install, put_kernels
from babelmill.training.kernels.mixing_triton import FusedMixing
from babelmill.training.networks import gpt_bert
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from helpers.kernels.interpreter import guard
from helpers.training.tiny_trainer import trainer_maker

CLOSE = 0.03  # largest relative difference of a kernel from its formula, in bf16
CPU = torch.device("cpu")
KINDS = ((torch.float32, 2e-6), (torch.bfloat16, CLOSE))  # and how far numbers may be from the formula
# Small, so that products, sums that are begun and gradients of tables have parts and a rest.
attention_triton.POSITIONS, mixing_triton.COLUMNS, mixing_triton.BLOCK = 128, 64, 128
guard(attention_triton, "_forward", "_gradient_of_scores", "_gradients_of_states", "_backward_of_tables")
guard(attention_block_triton, "_gate_forward", "_gate_backward")
guard(geglu_triton, "_geglu_forward", "_geglu_backward")
guard(mixing_triton, "_mix_forward", "_mix_backward", "_begin_sums")


def of_attention(shape: GPTBertShape, length: int, dropout: float, kind: torch.dtype) -> float:
    """Return the largest difference between an attention block with the kernels and the formula in float64.

    The result and all gradients are compared. There is a causal row of three documents, a bidirectional one whose
    second half is padding, and one that is a single document.

    Args:
        shape: the model's, of which width, heads, gate and position buckets count.
        length: tokens per row.
        dropout: probability of dropping an attention weight.
        kind: float32, or bfloat16 for autocast.
    """
    generator = torch.Generator().manual_seed(length)
    segments = torch.arange(length).repeat(3, 1) * 3 // length
    segments[1, length // 2 :], segments[2] = -1, 0
    keys = Keys(7, CPU)
    allowed = training_mask(segments, torch.tensor([True, False, False]))
    none = torch.zeros(1, dtype=torch.int64)
    keys.begin_pass(torch.tensor([11, 2**31 + 5, 12]), none, length, allowed)
    seen = visible(allowed, kind)
    buckets = position_buckets(length, length, shape.position_bucket_size, shape.max_position_embeddings)
    block, width = Attention(shape), shape.hidden_size
    with torch.no_grad():
        for parameter in block.parameters():  # numbers that bf16 can store, so that both compute with the same ones
            drawn = torch.randn(parameter.shape, generator=generator) / parameter.size(-1) ** 0.5
            parameter.copy_(drawn.bfloat16())
    sizes = (3, length, width), (2 * shape.position_bucket_size - 1, width)
    given = [torch.randn(size, generator=generator).bfloat16() for size in sizes]
    gradient, found = torch.randn(given[0].shape, generator=generator).bfloat16(), []
    block.attend, block.dropout = KeyedAttention(3, keys), NoDropout(dropout)
    block.relative_dropout = nn.Dropout(0.0)
    for fused, wide in ((False, torch.float64), (True, torch.float32)):
        module = FusedAttention(block) if fused else block
        module.to(wide).zero_grad()
        leaves = [x.to(wide).requires_grad_() for x in given]
        mask = Visible(*(part.to(kind if fused else wide) for part in seen))
        with torch.autocast("cpu", torch.bfloat16, enabled=fused and kind == torch.bfloat16):
            result, _ = module(*leaves, buckets, mask)
        result.backward(gradient.to(result.dtype))
        gradients = (leaf.grad for leaf in (*leaves, *module.parameters()))
        tensors = [tensor for tensor in (result.detach(), *gradients) if tensor is not None]
        # Copies: without them, the next `module.to` would change the gradients in place.
        found.append([tensor.to(torch.float64, copy=True) for tensor in tensors])
    return _largest_difference(found, kind)


def of_geglu(width: int, kind: torch.dtype) -> float:
    """Return the largest difference between `NormalizedGEGLU` and the formula in float64.

    The result and the gradient are compared.

    Args:
        width: numbers of a token in the result; the input has twice as many.
        kind: type of the input.
    """
    generator, eps = torch.Generator().manual_seed(width), 1e-5
    joint, gradient = (torch.randn(2, 3, size, generator=generator).to(kind) for size in (2 * width, width))
    joint[0, 0, width:] *= 20  # gates so large that their gelu is 0 or the gate itself
    formula, found = nn.Sequential(GEGLU(), Normalization(width, eps)), []
    for module, wide in ((formula, torch.float64), (NormalizedGEGLU(eps), kind)):
        given = joint.to(wide, copy=True).requires_grad_()
        result = module(given)
        (of_joint,) = torch.autograd.grad(result, given, gradient.to(wide))
        found.append([result.detach().double(), of_joint.double()])
    return _largest_difference(found, kind)


def _largest_difference(tensors: list[list[torch.Tensor]], kind: torch.dtype) -> float:
    """Return the largest relative difference of the wanted tensors and those found in `kind`; nan if one is."""
    order = 2 if kind == torch.bfloat16 else math.inf
    norms = [torch.stack([a - b, a]).flatten(1).norm(order, dim=1) for a, b in zip(*tensors, strict=True)]
    return torch.stack([difference / size for difference, size in norms]).max().item()


def of_sums(width: int, mixes: bool, kind: torch.dtype = torch.bfloat16, rows: int = 11) -> float:
    """Return the largest difference between the kernels between sub-blocks and the formula in float64.

    All results and all gradients are compared; the gradients of all weights count as one tensor.

    Args:
        width: width of the hidden states.
        mixes: whether layers are mixed.
        kind: type of the outputs of sub-blocks, and of the kernels' results.
        rows: number of hidden states that are summed; the sums of 11 are begun twice.
    """
    generator, eps = torch.Generator().manual_seed(rows), 1e-5
    shape = 2, mixing_triton.COLUMNS // width + 3, width
    mixing, normalize, keys = LayerMixing(rows - 1), Normalization(width, eps), Keys(7, CPU)
    with torch.no_grad():
        for alpha in mixing.alphas:
            alpha.copy_(torch.randn(len(alpha), generator=generator) / len(alpha))
            alpha[-1] += 1.0
    keys.begin_pass(torch.tensor([11, 2**31 + 5]), torch.zeros(1, dtype=torch.int64), 1)
    dropouts = [RowDropout(0.1, place, keys, "rows") for place in range(rows)]
    hidden, gradient = (torch.randn(shape, generator=generator) for _ in range(2))
    share = 1.0 if mixes else 0.25  # without mixing, large changes make the last gradients depend on roundings alone
    gates = [(share * torch.randn(shape, generator=generator)).to(kind) for _ in range(rows - 1)]
    found = []
    for fused, wide, narrow in ((False, torch.float64, torch.float64), (True, torch.float32, kind)):
        mixing.to(wide)
        leaves = [hidden.to(wide), *(gate.to(narrow) for gate in gates)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves] + list(mixing.alphas) * mixes
        if fused:
            module = FusedMixing(dropouts, eps, mixing if mixes else None)
            module.kind = kind
            x, add = module.start(leaves[0])
        else:
            dropped = dropouts[0](leaves[0])
            x, add = mixing.start(dropped) if mixes else (dropped, torch.add)
        results = [x if fused else normalize(x)]
        for gate, drop in zip(leaves[1:rows], dropouts[1:], strict=True):
            change = results[-1] * gate
            x = add(x, change if fused else drop(change))
            results.append(x if fused else normalize(x))
        gradients = torch.autograd.grad(results[-1], leaves, gradient.to(results[-1].dtype))
        weights = [torch.cat(gradients[rows:])] if mixes else []
        found.append([result.detach().double() for result in (*results, *gradients[:rows], *weights)])
    return _largest_difference(found, kind)


def check_attention(length: int) -> None:
    """Compare the result and the gradients of one block, whose width is no power of two."""
    for probability, gate in ((0.0, True), (0.1, True), (0.1, False)):
        shape = GPTBertShape(1, 48, 1, 3, 1, attention_probs_dropout_prob=probability, gate=gate)
        for kind, most in KINDS:
            found = of_attention(shape, length, probability, kind)
            print(f"T {length}, dropout {probability}, {'a' if gate else 'no'} gate, {kind}: {found:.1e}", flush=True)
            assert found < most
        assert found > 1e-4  # bf16 was used


def check_feed_forward(width: int) -> None:
    """Compare the result and the gradient for this many numbers per token."""
    for kind, most in KINDS:
        found = of_geglu(width, kind)
        print(f"{width} in {geglu_triton.sizes(width, 1)['PARTS']} parts, {kind}: {found:.1e}", flush=True)
        assert found < most
    assert found > 1e-4  # bf16 was used


def check_sums(rows: int) -> None:
    """Compare the results and all gradients of so many hidden states, with changes of both types."""
    for mixes in (True, False):
        for kind, most in KINDS:
            found = of_sums(77, mixes, kind, rows)
            print(f"S {rows}, {'mixed' if mixes else 'added'}, {kind}: {found:.1e}", flush=True)
            assert found < most
        assert found > 1e-4  # bf16 was used


def check_trial(length: int) -> None:
    """Run the trial before training, for models with and without layer mixing; wrong kernels do not pass it."""
    found = {}
    for mixes in (True, False):
        shape = GPTBertShape(1, 48, 64, 3, 1, layer_mixing=mixes)
        found[mixes] = difference(CPU, shape, length, attends=True)
        print(f"a trial of {length} tokens, {'mixed' if mixes else 'added'}: {found[mixes]:.1e}", flush=True)
    assert min(found.values()) > 1e-3 and max(found.values()) < install_module.CLOSE / 2
    right = mixing_triton.of_changes
    for last in (0.7, math.nan):  # the weight of the last change, of which a share is lost
        mixing_triton.of_changes = lambda matrix, last=last: right(matrix) * torch.linspace(1, last, len(matrix))
        assert not difference(CPU, GPTBertShape(1, 48, 64, 3, 1), length, attends=True) < install_module.CLOSE
    mixing_triton.of_changes = right


def check_edges(_: int) -> None:
    """Check the kernels of sums where tokens are rounded much, sums cancel, or memory ends."""
    check_a_narrow_model()
    check_the_identity()
    check_the_end()


def check_a_narrow_model() -> None:
    """The trial accepts the kernels, though a token's roundings are far off: by 6 % of the largest number."""
    mixing_triton.COLUMNS, whole = 2**11, mixing_triton.COLUMNS
    assert of_sums(64, True) < CLOSE
    mixing_triton.COLUMNS = whole


def check_the_identity() -> None:
    """Where each x is its h alone, it is the sum of all changes: nothing is rounded before it is added.

    Here the large changes cancel each other, and what is left is too small beside them for bf16.
    """
    mixing, keys = LayerMixing(4), Keys(7, CPU)
    for alpha in mixing.alphas:
        torch.nn.init.zeros_(alpha).data[-1] = 1
    sizes = torch.tensor([2**12, 1])[:, None, None, None, None]
    large, small = (torch.randint(-128, 128, (2, 2, 3, 20)) * sizes).bfloat16()
    changes = [large[0], small[0], large[1], small[1], -(large[0] + large[1]).bfloat16()]
    none = [RowDropout(0.0, 1, keys, "rows")] * 5
    wanted = torch.nn.functional.layer_norm(sum(change.double() for change in changes), (20,))
    for weights in (mixing, None):
        x, add = FusedMixing(none, 1e-5, weights).start(changes[0].float())
        for change in changes[1:]:
            x = add(x, change)
        assert (x - wanted).abs().max() < 0.02


def check_the_end() -> None:
    """Nothing is written behind a hidden state whose width is no power of two."""
    row, change = torch.full((60,), 7.0), torch.zeros(1, 2, 20)
    mixing_triton._forward(change, None, row.view(1, -1)[:0, :40], torch.ones(1), row[:40], None, None, 0.0, 1e-5)
    assert not row[:40].any() and (row[40:] == 7).all()


class AsOnAGPU(GPTBertNetwork):
    """A network with our kernels, and compiled, on a CPU."""

    def forward(self, batch: MicroBatch, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Forbid other graphs after the first pass in training."""
        result = super().forward(batch, groups)
        torch.compiler.set_stance("fail_on_recompile" if self.model.training else "default")
        return result


def compare_steps(length: int, kind: torch.dtype, most: float, **values: bool) -> None:
    """Compare a step of training with dropout, as on a GPU, with a CPU's: its gradients, and its sums in evaluation too.

    Its passes have 3 and 2 rows, of so many tokens; most have several documents.
    """
    dropout.TILE = attention_triton.TILE = attention_triton.OTHERS = 16  # so that short rows have several tiles

    def install_as_on_a_gpu(*given) -> bool:
        install(*given)
        if compiled := given[5]:
            put_kernels(given[0], attends=True)
        return compiled

    gpt_bert.install = install_as_on_a_gpu
    sizes = {"global_batch_tokens": 5 * length, "micro_batch_tokens": 3 * length, "dropout": 0.1, "width": 32}
    sizes |= {"sequence_lengths": [length], "phase_starts": [0.0]}
    FusedMixing.kind = kind
    graphs = Graphs("aot_eager")
    with tempfile.TemporaryDirectory() as folder:
        make = trainer_maker(Path(folder))
        plain = make(**sizes, **values)
        precision = "bf16" if kind == torch.bfloat16 else "fp32"
        fused = make(network=AsOnAGPU, graphs=graphs, precision=precision, **sizes, **values)
    kinds = [type(module) for module in fused.model.modules()]
    assert (kinds.count(FusedAttention), kinds.count(NormalizedGEGLU), kinds.count(FusedMixing)) == (2, 2, 1)
    assert [n for n, _ in fused.model.named_parameters()] == [n for n, _ in plain.model.named_parameters()]
    found = []
    for trainer in (plain, fused):
        step = trainer.plan.step(3)
        trainer.network.begin_step(3)
        batch = trainer.network.micro_batch(trainer.stream, step.rows[:3], length, step.weights)
        with torch.no_grad():
            trainer.model.eval()
            evaluated = trainer.network.forward(batch, trainer.plan.groups)[1]
        trainer.model.train()
        found.append((trainer._learn_share(step), evaluated, trainer._gradients.flat))
    assert not graphs.failed
    seen = fused.network.keys.spans
    assert seen.shape[2] == length // 16 and len(seen.unique()) > 2, "some tiles see a part of the row"
    (wanted_sums, wanted_evaluated, wanted), (sums, evaluated, gradient) = found
    difference = ((gradient - wanted).norm() / wanted.norm()).item()
    print(f"the gradient of a step, {kind}: {difference:.1e}", flush=True)
    assert difference < most
    torch.testing.assert_close((sums, evaluated), (wanted_sums, wanted_evaluated), rtol=most, atol=most)


def check_mixed_step(length: int) -> None:
    """Compare steps of a network that mixes its layers."""
    compare_steps(length, torch.float32, 1e-5)  # nothing is rounded


def check_rounded_step(length: int) -> None:
    """Compare steps of such a network that computes in bf16, and computes layers again."""
    compare_steps(length, torch.bfloat16, 0.05, activation_checkpointing=True)


def check_added_step(length: int) -> None:
    """Compare a step of a network that adds its layers."""
    compare_steps(length, torch.float32, 1e-5, mixes=False, activation_checkpointing=True)


if __name__ == "__main__":
    for size in map(int, sys.argv[2:]):
        globals()[f"check_{sys.argv[1]}"](size)
