"""Compare the Triton kernels between sub-blocks with the formula. Run with TRITON_INTERPRET=1, read at the import."""

import math
import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.model.mixing import LayerMixing
from babelmill.training.kernels import dropout, mixing_triton, residual_triton
from babelmill.training.kernels.install import put_sums
from babelmill.training.kernels.kernel_trial import CLOSE
from babelmill.training.kernels.kernel_trial import of_sums as differences
from babelmill.training.kernels.mixing_triton import FusedMixing
from babelmill.training.kernels.residual_triton import FusedResidual
from helpers.kernels import mended_interpreter  # noqa: F401  (it mends the interpreter)
from helpers.kernels.guarded import guard

CPU = torch.device("cpu")
mixing_triton.COLUMNS, mixing_triton.BLOCK = 64, 128  # so that products, and sums that are begun, have parts and a rest
guard(mixing_triton, "_mix_forward", "_mix_backward", "_begin_sums")
guard(residual_triton, "_add_forward", "_add_backward")


def compare_alone(rows: int) -> None:
    """Results and all gradients, with changes of both types."""
    for mixes in (True, False):
        for kind, most in ((torch.float32, 2e-6), (torch.bfloat16, CLOSE)):
            found = differences(CPU, 77, mixes, kind, rows)
            print(f"S {rows}, {'mixed' if mixes else 'added'}, {kind}: {found:.1e}", flush=True)
            assert found < most
        assert found > 1e-4  # bf16 was used


def compare_a_narrow_model() -> None:
    """The trial accepts the kernels, though a token's roundings are far off: by 6 % of the largest number."""
    mixing_triton.COLUMNS, whole = 2**11, mixing_triton.COLUMNS
    found = differences(CPU, 64, True)
    mixing_triton.COLUMNS = whole
    print(f"a narrow model: {found:.1e}", flush=True)
    assert found < CLOSE


def a_part_that_is_no_number(products=mixing_triton._products) -> None:
    """It is the worst difference, whichever part it is in: kernels that pass a trial have none."""
    mixing_triton._products = lambda *rows: products(*rows) * torch.nan  # the gradients of the weights alone
    assert math.isnan(differences(CPU, 77, True, torch.float32, 3))
    mixing_triton._products = products
    print("not a number: found", flush=True)


def compare_the_identity() -> None:
    """Where each x is its h alone, it is the sum of all changes: nothing is rounded before it is added.

    Here the large changes cancel each other, and what is left is too small beside them for bf16.
    """
    mixing, keys = LayerMixing(4), dropout.Keys(7, CPU)
    for alpha in mixing.alphas:
        torch.nn.init.zeros_(alpha).data[-1] = 1
    large, small = (
        torch.randint(-128, 128, (2, 2, 3, 20)) * torch.tensor([2**12, 1])[:, None, None, None, None]
    ).bfloat16()
    changes = [large[0], small[0], large[1], small[1], -(large[0] + large[1]).bfloat16()]
    none = [dropout.RowDropout(0.0, 1, keys, "rows")] * 5
    wanted = torch.nn.functional.layer_norm(sum(change.double() for change in changes), (20,))
    for module in (FusedMixing(none, 1e-5, mixing), FusedResidual(none, 1e-5)):
        x, add = module.start(changes[0].float())
        for change in changes[1:]:
            x = add(x, change)
        assert (x - wanted).abs().max() < 0.02
    print("identity: near", flush=True)


def compare_the_end() -> None:
    """Nothing is written behind a hidden state whose width is no power of two."""
    row, change = torch.full((60,), 7.0), torch.zeros(1, 2, 20)
    mixing_triton._forward(change, None, row.view(1, -1)[:0, :40], torch.ones(1), row[:40], None, None, 0.0, 1e-5)
    assert not row[:40].any() and (row[40:] == 7).all()
    print("the end: kept", flush=True)


def gradient(
    kind: torch.dtype | None, bf16: bool = False, checkpointing: bool = False, mixes: bool = True
) -> torch.Tensor:
    """The gradient of a whole model in training, one of whose blocks is compiled; its results in evaluation are right.

    Args:
        kind: type of the kernels' results; None: the shipped operations.
        bf16: whether the rest is in bf16.
        checkpointing: whether the blocks are computed again, and none is compiled.
        mixes: whether the model mixes layers.
    """
    shape = GPTBertShape(
        60, 32, 48, 2, 3, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2, layer_mixing=mixes
    )
    rows = torch.randint(60, (2, 4), generator=torch.Generator().manual_seed(1))
    seen = training_mask(torch.zeros_like(rows), torch.tensor([True, False]))
    torch.manual_seed(0)
    model, keys = GPTBert(shape, checkpointing).train(), dropout.Keys(5, CPU)
    for alpha in model.transformer.dwa_modules.alphas if mixes else ():
        torch.nn.init.normal_(alpha, std=0.3)
    names, wanted = list(model.state_dict()), model.eval()(rows, seen)
    dropout.install(model.train(), keys, dropout.KeyedAttention)
    keys.begin_step(3)
    keys.begin_pass(torch.tensor([4, 5]), torch.arange(rows.numel()), rows.size(1))
    if kind:
        put_sums(model, FusedMixing if mixes else FusedResidual)
        model.transformer.dwa_modules.kind = kind
    assert list(model.state_dict()) == names
    if kind is torch.float32 and not checkpointing:
        assert torch.allclose(model.eval()(rows, seen), wanted, rtol=0, atol=1e-5 * wanted.abs().max().item())
        block = model.train().transformer.attention_layers[1]
        block.forward = torch.compile(block.forward, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        features = model.classifier.features(model.encode(rows, seen).flatten(0, 1))
    (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def compare_in_a_model() -> None:
    """Exactly; and in bf16, where PyTorch's operations differ, too."""
    cases = (torch.float32,), (torch.float32, False, True), (torch.bfloat16, True), (None, True)
    for mixes in (True, False):
        wanted = gradient(None, mixes=mixes)
        others = (gradient(*case, mixes=mixes) for case in cases)
        exact, again, ours, plain = (((other - wanted).norm() / wanted.norm()).item() for other in others)
        print(f"a model: {exact:.1e}, again {again:.1e}, bf16 {ours:.1e}, of PyTorch {plain:.1e}", flush=True)
        assert exact < 1e-5 and again < 1e-5 and ours < 2 * plain


if __name__ == "__main__":
    for rows in map(int, sys.argv[1:]):
        compare_alone(rows)
    compare_a_narrow_model()
    a_part_that_is_no_number()
    compare_the_identity()
    compare_the_end()
    compare_in_a_model()
