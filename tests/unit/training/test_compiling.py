"""Compiled blocks: a graph for each length, made when it is first used; and what happens where none can be made."""

import functools
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config as inductor

from babelmill.training.batches import TokenStream
from babelmill.training.kernels import compilation, dropout
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import every_row
from babelmill.training.plan.rows import Packed
from babelmill.training.trainer import Trainer
from helpers.training.tiny_trainer import make_trainer
from helpers.training.training_data import VOCABULARY, documents, section, write_documents

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SHORT, LONG = 3, 35  # steps with rows of 16 and of 32 tokens


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Each test compiles anew, quickly."""
    monkeypatch.setattr(torch._dynamo.config, "fake_tensor_cache_enabled", False)  # it costs more than it spares
    with inductor.patch({"cpp.simdlen": 1}):  # vectors take most of the time of a compilation
        yield
    torch._dynamo.reset()


@pytest.fixture
def make(tmp_path):
    """A function that makes a trainer of 2 layers, compiled or not."""
    shard, few = (write_documents(tmp_path / f"{count}.safetensors", documents(count)) for count in (60, 12))
    return functools.partial(make_trainer, [shard], dropout=0.1, micro_batch_tokens=320, validation=[few])


def counted(backend: str):
    """Return graphs of a backend, and what counts them."""
    from torch._dynamo.testing import CompileCounterWithBackend  # a second, which only these tests need

    counting = CompileCounterWithBackend(backend)
    return Graphs(counting), counting


def gradient(trainer: Trainer, step: int) -> torch.Tensor:
    trainer.run_step(step)
    return trainer._gradients.flat.clone()


def close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((got - wanted).norm() / wanted.norm() < 5e-6)


def test_graphs_are_made_when_they_are_first_used(make):
    """One for each kind of block, length and use, whatever the number of layers and of rows; one for micro-batches of
    each length; and one each for the classifier and the loss of each use. The numbers are the same.
    """
    graphs, counting = counted("aot_eager")
    trainer, plain = make(graphs=graphs), make()
    assert counting.frame_count == 0
    for step, tokens, number in ((SHORT, 320, 5), (LONG, 320, 8), (LONG, 96, 8), (LONG, 32, 8)):  # at last single rows
        trainer.micro_batch_tokens = plain.micro_batch_tokens = tokens
        plain.model.load_state_dict(trainer.model.state_dict())
        assert close(gradient(trainer, step), gradient(plain, step))
        assert counting.frame_count == number
    plain.model.load_state_dict(trainer.model.state_dict())
    assert trainer.validation.measure()["loss"] == pytest.approx(plain.validation.measure()["loss"], rel=1e-5)
    assert counting.frame_count == 12, "two kinds of blocks, the classifier and the loss, without gradients"


def test_a_norbert4_computes_the_same_in_graphs(make):
    values, (graphs, counting), found = {"architecture": "norbert4", "layers": 3}, counted("aot_eager"), []
    trainer, plain = make(graphs=graphs, **values), make(**values)
    for step in (SHORT, LONG, LONG + 1):
        plain.model.load_state_dict(trainer.model.state_dict())
        assert close(gradient(trainer, step), gradient(plain, step))
        found.append(counting.frame_count)
    assert 0 < found[0] < found[1] == found[2] and not graphs.failed


@pytest.mark.parametrize("in_backward", [False, True])
def test_where_a_compilation_fails(make, caplog, in_backward):
    """The run goes on without graphs, with the same numbers, and says why."""
    seen = []

    def refuse(*_):
        raise OSError("no space left for kernels\nmore")

    def broken(graph, inputs):
        seen.append(graph)
        return aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=refuse)(graph, inputs)

    backend = broken if in_backward else refuse
    trainer, plain = make(graphs=Graphs(backend)), make()
    assert close(gradient(trainer, LONG), gradient(plain, LONG)) and bool(seen) == in_backward
    (message,) = (r.message for r in caplog.records if r.name == compilation.__name__)
    assert message.startswith("training without compiled kernels, which is slower: ") and "no space left for" in message
    assert trainer.validation.measure()["loss"] == pytest.approx(plain.validation.measure()["loss"], rel=1e-6)


SIGNALLED = """
import os, signal, sys, time
from pathlib import Path
from babelmill.runtime.slurm import Stop
from babelmill.training.kernels import compilation
compilation.prepare(int(sys.argv[1]), Path(sys.argv[2]))
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
stop = Stop(ask_slurm=False)
pool = AsyncCompile.process_pool()
pool.submit(os.getpid).result(60)
made = pool.submit(time.sleep, 1)
os.killpg(0, signal.SIGTERM)
print(made.result(30), stop.reason(0), config.compile_threads, os.environ[compilation.CACHE], os.environ["TRITON_CACHE_DIR"])
for number in (signal.SIGINT, signal.SIGUSR1):
    os.killpg(0, number)
    print(pool.submit(os.getpid).result(30) != os.getpid(), stop.reason(0))
"""


def test_signals_do_not_end_what_compiles(tmp_path):
    """Of the whole process group, as SLURM, Grid Engine, torchrun and Ctrl-C send them; a training would wait for ever."""
    environment = {name: value for name, value in os.environ.items() if "INDUCTOR" not in name and "TRITON" not in name}
    command = [sys.executable, "-c", SIGNALLED, "2", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, start_new_session=True)
    assert done.stdout.splitlines() == [
        f"None received {signal.SIGTERM.name} 2 {tmp_path} {tmp_path}/triton",
        f"True received {signal.SIGINT.name}",
        f"True received {signal.SIGUSR1.name}",
    ], done.stderr


# Micro-batches, the loss and dropout by themselves: the same integers, and the same sums but for rounding.


@pytest.mark.parametrize(
    "backend, objective, in_place, prompts, lengths",
    [
        ("aot_eager", "hybrid", False, True, [16, 32]),
        ("aot_eager", "diffusion", True, False, [16, 32]),
        pytest.param("inductor", "hybrid", False, False, [32], marks=pytest.mark.nightly),
    ],
)
def test_compiled_micro_batches_are_the_plain_ones(backend, objective, in_place, prompts, lengths, tmp_path):
    """One graph per length, for any number of rows, all kinds of rows, and streams of training and of validation."""
    texts, about = documents(40), objective_of(section("train", objective=objective))
    shard = write_documents(tmp_path / "shard", texts, prompts=[len(text) // 3 for text in texts] if prompts else None)
    graphs, counting = counted(backend)
    given, seen = ([shard], VOCABULARY, 7, CPU, about, in_place), 0
    plain, training, validation = (TokenStream(*given, graphs=each) for each in (None, graphs, graphs))
    for length in lengths:
        for kind in about.occurring:
            rows = every_row([Packed(shard.offsets, shard.responses)], length, about, kind)
            for part, stream in ((rows, training), (rows[:3], validation), (rows[4:5], validation)):
                asked = part, length, (0.5,) * len(about.kinds)
                wanted = plain.micro_batch(*asked, pad_rows_to=2)
                found = stream.micro_batch(*asked, pad_rows_to=2)
                torch.testing.assert_close(vars(found), vars(wanted), rtol=0, atol=0)
                seen += len(wanted.targets)
    assert counting.frame_count == len(lengths) and seen > 100


@pytest.mark.parametrize("size", [16, 1001])
def test_compiled_dropout_keeps_the_same_elements(size):
    """In C++, too, where a product of int32 that overflows may be any number."""
    keys = torch.tensor([5, -7, 2**31 - 3], dtype=torch.int32)
    kept = torch.compile(dropout.keep, dynamic=False, fullgraph=True)(keys, size, 0.3)
    assert torch.equal(kept, dropout.keep(keys, size, 0.3))
