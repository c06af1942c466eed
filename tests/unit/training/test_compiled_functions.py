"""Micro-batches and the loss, compiled, against the plain functions: the same integers, and the same sums but rounding."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch._inductor import config as inductor

from babelmill.training.batches.token_batches import MicroBatch, TokenStream
from babelmill.training.kernels import compilation, dropout
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.networks import loss as loss_module
from babelmill.training.plan import plan
from babelmill.training.plan.layouts import Packed
from babelmill.training.plan.objectives import objective_of
from helpers.training.training_data import VOCABULARY, documents, section, write_documents

CPU = torch.device("cpu")
TARGETS, WIDTH, WORDS, CHUNK = 45, 8, 40, 22  # the last of three chunks holds one target


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Each test compiles anew, quickly; a shape without a graph is an error."""
    monkeypatch.setattr(compilation, "STRICT", True)
    with inductor.patch({"cpp.simdlen": 1}):  # vectors take most of the time of a compilation
        yield
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


def compiled(backend: str):
    """Return graphs of a backend, and what counts them."""
    from torch._dynamo.testing import CompileCounterWithBackend  # a second, which only these tests need

    counting = CompileCounterWithBackend(backend)
    return Graphs(counting), counting


def same(a: MicroBatch, b: MicroBatch) -> bool:
    """Whether two micro-batches have the same types and bits."""
    pairs = [(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)]
    return all(x is y if x is None or y is None else x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize(
    "backend, objective, in_place, prompts, lengths",
    [
        ("aot_eager", "hybrid", False, True, [16, 32]),
        ("aot_eager", "diffusion", True, False, [16, 32]),
        pytest.param("inductor", "hybrid", False, False, [32], marks=pytest.mark.slow),
    ],
)
def test_compiled_micro_batches_are_the_plain_ones(backend, objective, in_place, prompts, lengths, tmp_path):
    """One graph per length, for any number of rows, all kinds of rows, and streams of training and of validation."""
    texts, about = documents(40), objective_of(section("train", objective=objective))
    shard = write_documents(tmp_path / "shard", texts, prompts=[len(text) // 3 for text in texts] if prompts else None)
    graphs, counting = compiled(backend)
    plain, training, validation = (
        TokenStream([shard], VOCABULARY, 7, CPU, about, in_place, graphs=each) for each in (None, graphs, graphs)
    )
    seen = 0
    for length in lengths:
        for kind in about.occurring:
            rows = plan.every_row([Packed(shard.offsets, shard.responses)], length, about, kind)
            for part, stream in ((rows, training), (rows[:3], validation), (rows[4:5], validation)):
                ours, wanted = (
                    each.micro_batch(part, length, (0.5,) * len(about.kinds), pad_rows_to=2) for each in (stream, plain)
                )
                assert same(ours, wanted)
                seen += len(wanted.targets)
    assert counting.frame_count == len(lengths) and seen > 100


def test_what_is_no_data_of_rows_is_compared(tmp_path):
    """The check above can fail: another seed masks otherwise."""
    shard, about = write_documents(tmp_path / "shard", documents(40)), objective_of(section("train"))
    rows = plan.every_row([Packed(shard.offsets)], 16, about, about.occurring[-1])
    first, second = (
        TokenStream([shard], VOCABULARY, seed, CPU, about).micro_batch(rows, 16, (1.0, 1.0)) for seed in (7, 8)
    )
    assert not same(first, second)


def learnt(function, precision: str, learning: tuple[bool, bool], z_loss: float) -> list[torch.Tensor | None]:
    """The loss, its sums and its gradients; `learning`: of features and of the output layer."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((TARGETS, WIDTH), (WORDS, WIDTH), (WORDS,))
    features, matrix, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    features.requires_grad_(learning[0])
    matrix.requires_grad_(learning[1])
    bias.requires_grad_(learning[1])
    batch = SimpleNamespace(
        targets=torch.randint(0, WORDS, (TARGETS,), generator=generator),
        weights=torch.rand(TARGETS, generator=generator),
        groups=torch.randint(0, 3, (TARGETS,), generator=generator),
        importance=None,
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"), torch.set_grad_enabled(learning[0]):
        loss, sums = loss_module.loss(features, matrix, bias, batch, z_loss, 3, function)
    if learning[0]:
        loss.backward()
    return [loss.detach(), sums, features.grad, matrix.grad, bias.grad]


@pytest.mark.parametrize("backend, precision", [("aot_eager", "fp32"), ("inductor", "fp32"), ("inductor", "bf16")])
def test_the_compiled_loss_is_the_plain_one(backend, precision, monkeypatch):
    """A graph to learn and one to validate, whatever the size of a chunk; a chunk of one target has none."""
    monkeypatch.setattr(loss_module, "CHUNK", (CHUNK * WORDS,) * 2)
    graphs, counting = compiled(backend)
    function = graphs.of(loss_module.from_scores, loss_module.by_target)
    for learning in ((True, True), (True, False), (False, False)):
        ours, wanted = (learnt(each, precision, learning, 0.05) for each in (function, loss_module.from_scores))
        for a, b in zip(ours, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, rtol=1e-6 if precision == "fp32" else 1e-2, atol=1e-6)
    assert counting.frame_count == 2
    assert not torch.equal(learnt(function, precision, (False, False), 0.0)[0], wanted[0])


@pytest.mark.parametrize("size", [16, 1001])
def test_compiled_dropout_keeps_the_same_elements(size):
    """In C++, too, where a product of int32 that overflows may be any number."""
    keys = torch.tensor([5, -7, 2**31 - 3], dtype=torch.int32)
    kept = torch.compile(dropout.keep, dynamic=False, fullgraph=True)(keys, size, 0.3)
    assert torch.equal(kept, dropout.keep(keys, size, 0.3))
