"""Compare the Triton kernels of attention blocks with the formula. Run with TRITON_INTERPRET=1, which Triton reads when it is imported.

The type is float32, since products of bfloat16 are wrong in the interpreter.
"""

import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.training import compilation, dropout, fused_attention
from babelmill.training.compilation import Compiler, Graphs
from babelmill.training.kernel_differences import of_attention

CPU = torch.device("cpu")
compilation.STRICT = True  # a shape that needs another graph is an error


def compare_alone(length: int) -> None:
    """Compare the result and the gradients of one block."""
    for probability, gate in ((0.0, True), (0.1, True), (0.1, False)):
        found = of_attention(CPU, 16, length, probability, torch.float32, gate)
        print(f"T {length}, dropout {probability}, {'a' if gate else 'no'} gate: {found:.1e}", flush=True)
        assert found < 2e-6


def gradient(length: int, rows: int, graphs: Graphs | None) -> torch.Tensor:
    """Return the gradient of a whole model's weights in training.

    Args:
        length: tokens per row.
        rows: number of rows.
        graphs: with them, the kernels are used, and the second of two blocks is compiled for any number of rows.
    """
    shape = GPTBertShape(60, 32, 48, 2, 2)
    tokens = torch.randint(60, (rows, length), generator=torch.Generator().manual_seed(1))
    seen = training_mask(torch.zeros_like(tokens), torch.arange(rows) > 0)
    torch.manual_seed(0)
    model, keys = GPTBert(shape).train(), dropout.Keys(5, CPU)
    dropout.install(model, keys, dropout.KeyedAttention)
    names = [name for name, _ in model.named_parameters()]
    keys.begin_step(3)
    keys.begin_pass(4 + torch.arange(rows), torch.arange(tokens.numel()), length)
    if graphs:
        fused_attention.install(model)
        assert [name for name, _ in model.named_parameters()] == names
        block = model.transformer.attention_layers[1]
        block.forward = graphs.of(block.forward, lambda hidden, *more: [hidden, keys.rows, *more[2]])
    hidden = model.encode(tokens, seen)
    model.classifier.features(hidden.flatten(0, 1)).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def compare_in_a_model(length: int) -> None:
    """Compare the gradient of a whole model's weights, with as many rows as were compiled, and with others."""
    graphs = Graphs(Compiler("aot_eager"))
    for rows in (2, 3):
        wanted, found = gradient(length, rows, None), gradient(length, rows, graphs)
        torch.compiler.set_stance("fail_on_recompile")
        difference = ((found - wanted).norm() / wanted.norm()).item()
        print(f"a model, T {length}, {rows} rows: {difference:.1e}", flush=True)
        assert difference < 1e-5


if __name__ == "__main__":
    for length in map(int, sys.argv[1:]):
        compare_alone(length)
    compare_in_a_model(40)
