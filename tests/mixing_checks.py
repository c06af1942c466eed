"""Compare the Triton kernel of layer mixing with its formula. Run with TRITON_INTERPRET=1, read when it is imported."""

import math
import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.model.mixing import LayerMixing
from babelmill.training import mixing_kernel, mixing_triton

CPU = torch.device("cpu")
mixing_triton.COLUMNS = 256  # so that products have parts and a rest


class Exact(mixing_triton.TritonSums):
    row_type = torch.float32


def compare_alone(rows: int) -> None:
    """Values and all gradients, with rows of both types."""
    for kind, most in ((Exact, 1e-6), (mixing_triton.TritonSums, 0.03)):  # the interpreter rounds towards 0
        found = mixing_triton.difference(CPU, kind, rows, 1301)
        print(f"S {rows}, {kind.row_type}: {found:.1e}", flush=True)
        assert found < most
    assert found > 1e-4  # bf16 was used


class Wrong(Exact):
    """Its gradients of the weights alone are no numbers."""

    def products(self, others: torch.Tensor) -> torch.Tensor:
        return super().products(others) * torch.nan


def a_part_that_is_no_number() -> None:
    """It is the worst difference, whichever part it is in: kernels that pass a trial have none."""
    assert math.isnan(mixing_triton.difference(CPU, Wrong, 3))
    print("not a number: found", flush=True)


def compare_the_identity() -> None:
    """Rounded rows have no effect where each x is its h alone."""
    mixing = LayerMixing(24)
    for alpha in mixing.alphas:
        torch.nn.init.zeros_(alpha).data[-1] = 1
    wanted = hidden = torch.randn(1301)
    x, add = mixing_kernel.LayerMixingByHand(mixing, mixing_triton.TritonSums).start(hidden)
    for _ in mixing.alphas:
        change = torch.randn(1301)
        x, wanted = add(x, change), wanted + change
    assert torch.equal(x, wanted)
    print("identity: equal", flush=True)


def compare_the_end() -> None:
    """Nothing is written behind a row that is no multiple of a program's numbers."""
    row = torch.full((2048,), 7.0)
    mixing_triton._next(torch.zeros(1301), None, None, row.view(1, -1)[:0, :1301], torch.ones(1), row[:1301], None)
    assert not row[:1301].any() and (row[1301:] == 7).all()
    print("the end: kept", flush=True)


def compare_in_a_model(checkpointing: bool) -> None:
    """Loss and gradient of a whole model in training, one of whose blocks is compiled, against the shipped operations."""
    shape = GPTBertShape(60, 32, 48, 2, 4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    rows = torch.randint(60, (3, 20), generator=torch.Generator().manual_seed(1))
    seen = training_mask(torch.zeros_like(rows), torch.tensor([True, False, True]))
    gradients = []
    for sums in (None, Exact, mixing_triton.TritonSums):
        torch.manual_seed(0)
        model = GPTBert(shape, checkpointing and sums is not None).train()
        for alpha in model.transformer.dwa_modules.alphas:
            torch.nn.init.normal_(alpha, std=0.3)
        if sums:
            mixing_kernel.install(model, sums)
        if sums and not checkpointing:
            block = model.transformer.attention_layers[1]
            block.forward = torch.compile(block.forward, backend="aot_eager", fullgraph=True)
        features = model.classifier.features(model.encode(rows, seen).flatten(0, 1))
        (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    exact, rounded = (((each - gradients[0]).norm() / gradients[0].norm()).item() for each in gradients[1:])
    print(f"a model, again {checkpointing}: {exact:.1e}, bf16 {rounded:.1e}", flush=True)
    assert exact < 1e-5 and rounded < 0.01


if __name__ == "__main__":
    for rows in map(int, sys.argv[1:]):
        compare_alone(rows)
    a_part_that_is_no_number()
    compare_the_identity()
    compare_the_end()
    for checkpointing in (False, True):
        compare_in_a_model(checkpointing)
