"""`train.gradient_reduction: bf16`: processes send half as much, and the sum is nearly the same."""

import contextlib
import os
import socket
import traceback
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from helpers.programs.prepared import CONTEXT

pytestmark = pytest.mark.xdist_group("forks")  # whose server is prepared once
KINDS = ("gpt_bert", "gpt2")  # each process has all weights, or some rows of each


def make_trainer(kind: str, folder: Path, processes, reduction: str):
    """A trainer of a small model, without dropout."""
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.training.networks.gpt_bert import GPTBertNetwork
    from babelmill.training.plan.plan import Plan
    from babelmill.training.trainer import Trainer
    from helpers.models.transformers_models import model_section, network, train_section
    from helpers.training.training_data import VOCABULARY, documents, section, stream, train_settings, write_documents

    values = {"global_batch_tokens": 320, "max_steps": 40, "gradient_reduction": reduction}
    if kind == "gpt_bert":
        model, train = section("model"), section("train", **values)
        made = GPTBertNetwork(GPTBertShape(VOCABULARY.size, **model.shape()), train, processes)
    else:
        train = train_section(kind, micro_batch_tokens=32, sequence_lengths=[16], phase_starts=[0.0], **values)
        model, made = model_section(kind), network(kind, processes, train)
    shard = write_documents(folder / f"{kind}-{processes.rank}.safetensors", documents(60))
    tokens, layouts = stream([shard])
    settings = train_settings(["eng"], model, train)
    return Trainer(settings, made, Plan(train, 1.0, layouts), tokens, (layouts, tokens), processes)


@contextlib.contextmanager
def copies_sent():
    """Yield the list of bytes of all sums in bf16, to which each is added as it begins."""
    all_reduce, copied = torch.distributed.all_reduce, []

    def watched(tensor, *args, **more):
        copied.extend([tensor.nbytes] if tensor.dtype == torch.bfloat16 else [])
        return all_reduce(tensor, *args, **more)

    with patch.object(torch.distributed, "all_reduce", watched):
        yield copied


def gradient(rank: int, size: int, port: int, folder: str, results) -> None:
    """Send the gradient of a step, by kind of model and reduction."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    from babelmill.runtime.processes import Processes

    try:
        processes, found = Processes.start(1), {}
        for kind in KINDS:
            for reduction in ("fp32", "bf16"):
                trainer = make_trainer(kind, Path(folder), processes, reduction)
                trainer.begin_alike()
                trainer._learn_share(trainer.plan.step(20), [])
                with copies_sent() as copied:
                    trainer._gradients.reduce()
                assert trainer._gradients.copies == sum(copied), "which memory must have room for"
                gradients = [parameter.grad.flatten() for parameter in trainer.network.trained().values()]
                found[kind, reduction] = torch.cat(gradients).numpy().copy()
                trainer.run_step(20)
                trainer.state.compare_replicas()
        processes.stop()
        results.put((rank, found))
    except BaseException:
        results.put((rank, traceback.format_exc()))


def gradients(size: int, folder: Path) -> list[dict]:
    """What each of so many processes finds."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    results = CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=gradient, args=(rank, size, port, str(folder), results)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    said = dict(results.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    assert not [text for text in said.values() if isinstance(text, str)], said
    return [{key: torch.from_numpy(value) for key, value in said[rank].items()} for rank in range(size)]


def test_two_processes_sum_in_bf16(tmp_path):
    first, second = gradients(2, tmp_path)
    for kind in KINDS:
        for found in (first, second):
            exact, rounded = found[kind, "fp32"], found[kind, "bf16"]
            assert 2e-4 < (rounded - exact).norm() / exact.norm() < 5e-3
            assert torch.equal(rounded, rounded.bfloat16().float()) == (kind == "gpt_bert")
    assert torch.equal(first["gpt_bert", "bf16"], second["gpt_bert", "bf16"]), "replicas are equal to the last bit"


def test_a_process_alone_rounds_nothing(tmp_path):
    (alone,) = gradients(1, tmp_path)
    for kind in KINDS:
        assert torch.equal(alone[kind, "fp32"], alone[kind, "bf16"])
