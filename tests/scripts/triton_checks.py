"""Compare the Triton kernels of attention blocks with the formula. Run with TRITON_INTERPRET=1, read at the import."""

import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.training.kernels import attention_block_triton, attention_triton, compilation, dropout
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.kernels.kernel_trial import CLOSE, of_attention
from helpers.kernels import mended_interpreter  # noqa: F401  (it mends the interpreter)
from helpers.kernels.guarded import guard

CPU = torch.device("cpu")
compilation.STRICT = True  # a shape that needs another graph is an error
attention_triton.POSITIONS = 128  # so that the gradients of tables have parts, of several tiles, and a rest
guard(attention_triton, "_forward", "_gradient_of_scores", "_gradients_of_states", "_backward_of_tables")
guard(attention_block_triton, "_gate_forward", "_gate_backward")


def compare_alone(length: int) -> None:
    """Compare the result and the gradients of one block, whose width is no power of two."""
    for probability, gate in ((0.0, True), (0.1, True), (0.1, False)):
        shape = GPTBertShape(1, 48, 1, 3, 1, attention_probs_dropout_prob=probability, gate=gate)
        for kind, most in ((torch.float32, 2e-6), (torch.bfloat16, CLOSE)):
            found = of_attention(CPU, shape, length, probability, kind)
            print(f"T {length}, dropout {probability}, {'a' if gate else 'no'} gate, {kind}: {found:.1e}", flush=True)
            assert found < most
    assert found > 1e-4  # bf16 was used


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
    keys.begin_pass(4 + torch.arange(rows), torch.arange(tokens.numel()), length, seen)
    scores = [model.eval()(tokens, seen)]
    if graphs:
        attention_block_triton.install(model)
        assert [name for name, _ in model.named_parameters()] == names
        scores.append(model(tokens, seen))
        block = model.train().transformer.attention_layers[1]
        block.forward = graphs.of(block.forward, lambda hidden, *more: [hidden, keys.rows, keys.spans, *more[2]])
    torch.testing.assert_close(scores[-1], scores[0], rtol=0, atol=1e-5)  # in evaluation, nothing is dropped
    hidden = model.train().encode(tokens, seen)
    model.classifier.features(hidden.flatten(0, 1)).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def compare_in_a_model(length: int) -> None:
    """Compare the gradient of a whole model's weights, with as many rows as were compiled, and with others."""
    graphs = Graphs("aot_eager")
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
