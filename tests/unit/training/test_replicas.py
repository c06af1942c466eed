"""Processes that train together have the same weights, and notice when one of them has others."""

import os
import traceback
from pathlib import Path

import pytest
import torch

from helpers.programs.prepared import CONTEXT

pytestmark = pytest.mark.xdist_group("forks")  # whose server is prepared once
PARAMETER = "transformer.attention_layers.1.out_proj.bias"


def replica(rank: int, size: int, port: int, damage: str, folder: str, results) -> None:
    """Begin with weights of one's own, train two steps, damage the last process's, and compare."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    from babelmill.core.files import UserError
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.training.networks.gpt_bert import GPTBertNetwork
    from babelmill.training.plan.plan import Plan
    from babelmill.training.trainer import Trainer
    from helpers.training.training_data import VOCABULARY, documents, section, stream, train_settings, write_documents

    try:
        tokens, counts = stream([write_documents(Path(folder) / f"{rank}.safetensors", documents(60))])
        model, train = section("model"), section("train", max_steps=40, global_batch_tokens=320)
        settings, shape = train_settings(["eng"], model, train), GPTBertShape(VOCABULARY.size, **model.shape())
        processes = Processes.start(1)
        network = GPTBertNetwork(shape, train, processes)
        trainer = Trainer(settings, network, Plan(train, 1.0, counts), tokens, (counts, tokens), processes)
        for value in trainer.state.tensors().values():
            value += rank  # as if each had begun by itself
        trainer.begin_alike()
        for step in (3, 4):
            trainer.run_step(step)
        trainer.state.compare_replicas()
        if rank == size - 1 and damage:
            tensor = trainer.state.tensors()[damage].view(-1)
            tensor[1] = torch.nextafter(tensor[1], tensor.new_tensor(9.0))
        trainer.state.compare_replicas()
        results.put("alike")
    except UserError as error:
        results.put(str(error))
    except SystemExit as end:
        results.put(f"ended with {end.code}")
    except BaseException:
        results.put(traceback.format_exc())


@pytest.mark.parametrize(
    ("size", "damage"), [(2, ""), (2, f"model.{PARAMETER}"), (3, f"average.{PARAMETER}"), (3, "optimizer.0.5.exp_avg")]
)
def test_replicas(size, damage, tmp_path, free_port):
    """With three processes, the one that differs is named; with two, either may be at fault."""
    results = CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=replica, args=(rank, size, free_port, damage, str(tmp_path), results))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    answers = sorted(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    if not damage:
        assert answers == ["alike"] * size
    else:
        assert answers[:-1] == ["ended with 1"] * (size - 1)
        faulty = "process 2 (number 2 on machine 0)" if size == 3 else "process 0 (number 0 on machine 0) or process 1"
        assert answers[-1].startswith(f"the weights of {faulty}")
