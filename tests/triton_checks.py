"""Compare the Triton kernels of attention blocks with the formula. Run with TRITON_INTERPRET=1, which Triton reads when it is imported.

The type is float32, since products of bfloat16 are wrong in the interpreter.
"""

import sys

import torch

from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.training import dropout, fused_attention
from babelmill.training.kernel_differences import of_attention

CPU = torch.device("cpu")


def compare_alone(length: int) -> None:
    """Compare the result and the gradients of one block."""
    for probability, gate in ((0.0, True), (0.1, True), (0.1, False)):
        found = of_attention(CPU, 16, length, probability, torch.float32, gate)
        print(f"T {length}, dropout {probability}, {'a' if gate else 'no'} gate: {found:.1e}", flush=True)
        assert found < 2e-6


def compare_in_a_model(length: int) -> None:
    """Compare the gradient of a whole model's weights in training.

    The second of its two blocks is compiled, without a break in the graph.
    """
    shape = GPTBertShape(60, 32, 48, 2, 2)
    rows = torch.randint(60, (2, length), generator=torch.Generator().manual_seed(1))
    seen = training_mask(torch.zeros_like(rows), torch.tensor([True, False]))
    gradients = []
    for fused in (False, True):
        torch.manual_seed(0)
        model, keys = GPTBert(shape).train(), dropout.Keys(5, CPU)
        dropout.install(model, keys, dropout.KeyedAttention)
        names = [name for name, _ in model.named_parameters()]
        keys.begin_step(3)
        keys.begin_pass(torch.tensor([4, 5]), torch.arange(rows.numel()), length)
        if fused:
            fused_attention.install(model)
            assert [name for name, _ in model.named_parameters()] == names
            block = model.transformer.attention_layers[1]
            block.forward = torch.compile(block.forward, backend="aot_eager", fullgraph=True)
        hidden = model.encode(rows, seen)
        model.classifier.features(hidden.flatten(0, 1)).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    found = ((gradients[1] - gradients[0]).norm() / gradients[0].norm()).item()
    print(f"a model, T {length}: {found:.1e}", flush=True)
    assert found < 1e-5


if __name__ == "__main__":
    for length in map(int, sys.argv[1:]):
        compare_alone(length)
    compare_in_a_model(40)
