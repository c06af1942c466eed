"""Processes that train together have the same weights, and notice when one of them has others."""

from pathlib import Path

import pytest
import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes
from helpers.training.tiny_trainer import make_trainer, train_together
from helpers.training.training_data import documents, write_documents

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("forks")]  # whose server is prepared once
PARAMETER = "transformer.attention_layers.1.out_proj.bias"


def replica(processes: Processes, damage: str, folder: Path) -> str:
    """Begin with weights of one's own, train two steps, damage the last process's, and compare."""
    shard = write_documents(folder / f"{processes.rank}.safetensors", documents(60))
    trainer = make_trainer([shard], processes, dropout=0.1)
    for value in trainer.state.tensors().values():
        value += processes.rank  # as if each had begun by itself
    trainer.state.copy_from_main()
    for step in (3, 4):
        trainer.run_step(step)
    trainer.state.compare_replicas()
    if processes.rank == processes.size - 1 and damage:
        tensor = trainer.state.tensors()[damage].view(-1)
        tensor[1] = torch.nextafter(tensor[1], tensor.new_tensor(9.0))
    try:
        trainer.state.compare_replicas()
    except UserError as error:
        return str(error)
    except SystemExit as end:
        return f"ended with {end.code}"
    return "alike"


@pytest.mark.parametrize(
    ("size", "damage"),
    [(2, ""), (2, f"model.{PARAMETER}"), (3, f"average.{PARAMETER}"), (3, f"optimizer.exp_avg.{PARAMETER}")],
)
def test_replicas(size, damage, tmp_path):
    """With three processes, the one that differs is named; with two, either may be at fault."""
    answers = sorted(train_together(size, replica, damage, tmp_path))
    if not damage:
        assert answers == ["alike"] * size
    else:
        assert answers[:-1] == ["ended with 1"] * (size - 1)
        faulty = "process 2 (number 2 on machine 0)" if size == 3 else "process 0 (number 0 on machine 0) or process 1"
        assert answers[-1].startswith(f"the weights of {faulty}")
