"""Compare our Triton kernels with the formula, in Triton's interpreter, which checks all memory that they use.

    TRITON_INTERPRET=1 python tests/scripts/kernel_checks.py formula|sums|feed_forward|trial|mixed_step|rounded_step|added_step SIZE ...

A size is a number of tokens per row (formula, trial, steps), of layers (sums), or a width (feed_forward).
TRITON_INTERPRET is read at the import.
"""

import math
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from babelmill.model.gpt_bert import GEGLU, GPTBertShape, Normalization
from babelmill.model.mixing import LayerMixing
from babelmill.training.batches import MicroBatch
from babelmill.training.kernels import attention_triton, dropout, geglu_triton, mixing_triton
from babelmill.training.kernels import install as install_module
from babelmill.training.kernels.attention_triton import FusedAttention
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.dropout import Keys, RowDropout
from babelmill.training.kernels.geglu_triton import NormalizedGEGLU
from babelmill.training.kernels.install import difference, install, put_kernels
from babelmill.training.kernels.mixing_triton import FusedMixing
from babelmill.training.networks import gpt_bert
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from helpers.kernels.interpreter import guard
from helpers.training.tiny_trainer import trainer_maker

CPU = torch.device("cpu")
# Small, so that products, sums that are begun and gradients of tables have parts and a rest.
attention_triton.POSITIONS, mixing_triton.COLUMNS, mixing_triton.BLOCK = 128, 64, 128
guard(attention_triton, "_forward", "_gradient_of_scores", "_gradients_of_states", "_backward_of_tables")
guard(attention_triton, "_gate_forward", "_gate_backward")
guard(geglu_triton, "_geglu_forward", "_geglu_backward")
guard(mixing_triton, "_mix_forward", "_mix_backward", "_begin_sums")


def compare(length: int, layers: int, width: int = 48, heads: int = 3, **values: float) -> None:
    """Compare a model's result and gradients, by kernels in float32 and bfloat16, with the formula in float64.

    Its widths are no powers of two. In bfloat16, numbers differ by rounding.
    """
    shape = GPTBertShape(1, width, 80, heads, 1, **values)
    install_module.LAYERS, attends = layers, width // heads in install_module.WIDTHS
    for kind, least, most in ((torch.float32, 0, 2e-6), (torch.bfloat16, 1e-3, 0.03)):
        FusedMixing.kind = kind
        found = difference(CPU, shape, length, attends, in_bf16=kind == torch.bfloat16)
        print(f"T {length}, {layers} layers of {width}, {values}, {kind}: {found:.1e}", flush=True)
        assert least <= found < most


def check_formula(length: int) -> None:
    """Compare models of a layer with and without dropout, gates and mixed layers; all three are in the steps."""
    compare(length, 1, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, layer_mixing=False)
    compare(length, 1, gate=False)


def check_sums(layers: int) -> None:
    """Compare models of an odd width, whose sums are begun twice, and look at what is not rounded or not written."""
    compare(3, layers, 77, 7)
    compare(3, layers, 77, 7, layer_mixing=False)
    check_the_identity()
    check_the_end()


def check_feed_forward(width: int) -> None:
    """Compare the result and the gradient for this many numbers per token, some of whose gates are very large."""
    generator, eps = torch.Generator().manual_seed(width), 1e-5
    for kind, most in ((torch.float32, 2e-6), (torch.bfloat16, 0.03)):
        joint, gradient = (torch.randn(2, 3, size, generator=generator).to(kind) for size in (2 * width, width))
        joint[0, 0, width:] *= 20  # so large that their gelu is 0 or the gate itself
        found = []
        for module in (nn.Sequential(GEGLU(), Normalization(width, eps)).double(), NormalizedGEGLU(eps)):
            given = joint.to(kind if found else torch.float64, copy=True).requires_grad_()
            result = module(given)
            found.append([result.detach(), *torch.autograd.grad(result, given, gradient.to(given.dtype))])
        off = max(((got - wanted).norm() / wanted.norm()).item() for wanted, got in zip(*found, strict=True))
        print(f"{width} in {geglu_triton.sizes(width, 1)['PARTS']} parts, {kind}: {off:.1e}", flush=True)
        assert off < most
    assert off > 1e-4  # bf16 was used


def check_trial(length: int) -> None:
    """Run the trial before training, for models with and without layer mixing; wrong kernels do not pass it."""
    shapes = [GPTBertShape(1, 48, 64, 3, 1, layer_mixing=mixes) for mixes in (True, False)]
    found = [difference(CPU, shape, length, attends=True) for shape in shapes]
    print(f"trials of {length} tokens: {found}", flush=True)
    assert min(found) > 1e-3 and max(found) < install_module.CLOSE / 2
    right = mixing_triton.of_changes
    for last in (0.7, math.nan):  # the weight of the last change, of which a share is lost
        mixing_triton.of_changes = lambda matrix, last=last: right(matrix) * torch.linspace(1, last, len(matrix))
        assert not difference(CPU, shapes[0], length, attends=True) < install_module.CLOSE
    mixing_triton.of_changes = right


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
        if compiled := given[4]:
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
