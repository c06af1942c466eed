"""Processes that train together have the same weights, and notice when one of them has others."""

from pathlib import Path

import numpy as np
import pytest
import torch

from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes
from babelmill.tokens.shard_file import ShardFile
from helpers.training.tiny_trainer import ALONE, make_trainer, train_together
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


CASES = {
    "hybrid": {},
    "diffusion": {"objective": "diffusion"},
    "documents": {"order": "documents"},
    "norbert4": {"architecture": "norbert4", "layers": 3},
}


def gradients(shards: list[ShardFile], processes: Processes = ALONE) -> dict[str, list[np.ndarray]]:
    """The gradients of some steps and their sums, over all processes; the languages' epochs end in between."""
    found = {}
    for name, values in CASES.items():
        trainer, found[name] = make_trainer(shards, processes, dropout=0.1, **values), []
        for step in (0, 17, 38):
            sums = trainer._learn_share(trainer._take(step))
            trainer._gradients.reduce()
            found[name] += [trainer._gradients.flat.numpy().copy(), processes.sum_(sums).numpy().copy()]
    return found


def one_of_several(processes: Processes, folder: Path) -> dict[str, list[np.ndarray]]:
    """What `gradients` finds in one of the processes."""
    found = gradients([ShardFile.open(path) for path in sorted(folder.glob("*.safetensors"))], processes)
    processes.stop()
    return found


def test_the_gradient_does_not_depend_on_the_number_of_processes(tmp_path):
    """Documents with prompts, and without."""
    texts = documents(60)
    prompts = [i % max(1, len(text) - 2) for i, text in enumerate(texts)]
    shards = [
        write_documents(tmp_path / "a.safetensors", documents(20, 9)),
        write_documents(tmp_path / "b.safetensors", texts, prompts=prompts),
    ]
    alone = gradients(shards)
    for answer in train_together(3, one_of_several, tmp_path):
        for name, wanted in alone.items():
            for found, expected in zip(answer[name], wanted, strict=True):
                assert np.linalg.norm(expected) > 0.01, name
                assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected), name
