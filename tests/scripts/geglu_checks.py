"""Compare the Triton kernels of feed-forward blocks with the formula. Run with TRITON_INTERPRET=1, read at the import."""

import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.training.kernels import compilation, geglu_triton
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.kernel_trial import CLOSE, of_geglu
from helpers.kernels import mended_interpreter  # noqa: F401  (it mends the interpreter)
from helpers.kernels.guarded import guard

CPU = torch.device("cpu")
compilation.STRICT = True  # a shape that needs another graph is an error
guard(geglu_triton, "_geglu_forward", "_geglu_backward")


def compare_alone(width: int) -> None:
    """Compare the result and the gradient for this many numbers per token."""
    for kind, most in ((torch.float32, 2e-6), (torch.bfloat16, CLOSE)):
        found = of_geglu(CPU, width, kind)
        parts = geglu_triton.sizes(width, 1)["PARTS"]
        print(f"{width} in {parts} parts, {kind}: {found:.1e}", flush=True)
        assert found < most
    assert found > 1e-4  # bf16 was used


def compare_in_a_model() -> None:
    """Compare the gradient of a whole model's weights; its blocks are compiled for any number of rows."""
    torch.manual_seed(0)
    model = GPTBert(GPTBertShape(60, 32, 48, 2, 2)).eval()
    names, weights = zip(*model.named_parameters(), strict=True)
    tokens = torch.randint(60, (3, 9), generator=torch.Generator().manual_seed(1))

    def gradients(rows: int) -> torch.Tensor:
        seen = training_mask(torch.zeros_like(tokens[:rows]), torch.arange(rows) > 0)
        found = torch.autograd.grad(model(tokens[:rows], seen).square().sum(), weights)
        return torch.cat([gradient.flatten() for gradient in found])

    wanted, graphs = [gradients(rows) for rows in (2, 3)], Graphs("aot_eager")
    geglu_triton.install(model)
    assert tuple(name for name, _ in model.named_parameters()) == names
    for block in model.transformer.mlp_layers:
        block.forward = graphs.of(block.forward, lambda hidden: [hidden])
    for rows, right in zip((2, 3), wanted, strict=True):
        difference = ((gradients(rows) - right).norm() / right.norm()).item()
        torch.compiler.set_stance("fail_on_recompile")
        print(f"a model, {rows} rows: {difference:.1e}")
        assert difference < 1e-5


if __name__ == "__main__":
    for width in map(int, sys.argv[1:]):
        compare_alone(width)
    compare_in_a_model()
