"""Models that are spread over processes: what is computed does not depend on the number of processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import Checkpoints
from babelmill.runtime.processes import Processes, in_words
from babelmill.train import make_network
from babelmill.training.batches import TokenStream
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from babelmill.training.trainer import Trainer
from helpers.models.transformers_models import model_section, network, train_section
from helpers.training.tiny_trainer import train_together
from helpers.training.training_data import VOCABULARY, documents, train_settings, write_documents

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("forks")]  # what the processes found is found once

# By kind (GPT-2 and BERT have tied embeddings): tokens of a micro-batch, of which 2 and 3 processes have unequal numbers
# or none, and the optimizer. Several processes make activations of BERT, and of EuroBERT with adapters, again.
CASES = {
    "llama": (48, "adamw"),
    "eurobert": (64, "lamb"),
    "gpt2": (32, "lamb"),
    "bert": (48, "adamw"),
    "modernbert": (64, "adamw"),
    "llama, adapters": (48, "adamw"),
    "llama, adapters in bf16": (48, "adamw"),
    "eurobert, adapters": (64, "adamw"),
}


def make_trainer(kind: str, folder: Path, processes: Processes) -> Trainer:
    """A trainer of a small model, with dropout where it has some, on documents with prompts."""
    size, optimizer = CASES[kind]
    again = kind in ("bert", "eurobert, adapters") and processes.size > 1
    kind, _, adapters = kind.partition(", ")
    more = {"sequence_lengths": [16], "phase_starts": [0.0], "global_batch_tokens": 112, "ema_decay": 0.5}
    more |= {"lora_rank": 3 if adapters else 0, "precision": "bf16" if "bf16" in adapters else "fp32"}
    train = train_section(kind, micro_batch_tokens=size, optimizer=optimizer, activation_checkpointing=again, **more)
    streams = []
    for count in (60, 15):  # to train and to validate
        texts = documents(count)
        prompts = [i % max(1, len(text) - 2) for i, text in enumerate(texts)]
        shard = write_documents(folder / f"{kind}-{processes.rank}-{count}.safetensors", texts, prompts=prompts)
        tokens = TokenStream([shard], VOCABULARY, 7, processes.device, objective_of(train), train.objective == "masked")
        streams.append(([Packed(shard.offsets, shard.responses)], tokens))
    (layouts, tokens), validation = streams
    plan, settings = Plan(train, 1.0, layouts), train_settings(["eng"], model_section(kind), train)
    return Trainer(settings, network(kind, processes, train), plan, tokens, validation, processes)


def error_without_memory(trainer: Trainer, mine: bool) -> str:
    """The error of a step for which a process, this one if `mine`, has no memory."""

    def refuse(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines follow.")

    if mine:
        torch.nn.functional.embedding = refuse
    with pytest.raises(UserError) as error, in_words():
        trainer.run_step(2)
    return str(error.value)


def error_of_a_wrong_model(processes: Processes) -> str:
    """The error of a configuration that is refused, or which exit it is."""
    settings = train_settings(["eng"], model_section("gpt2", n_embd=15), train_section("gpt2"))
    with pytest.raises((UserError, SystemExit)) as error:
        make_network(settings, VOCABULARY, None, processes)
    return str(error.value)


def learn(processes: Processes, folder: Path) -> dict[str, Any]:
    """Return gradients, weights, validation and so on of each kind, as numbers."""
    found, own = {}, folder / str(processes.size)
    processes.on_main(own.mkdir)
    for kind in CASES:
        trainer = make_trainer(kind, own, processes)
        trainer.state.copy_from_main()
        sums = trainer._learn_share(trainer.plan.step(0))
        trainer._gradients.reduce()
        sharding = trainer.network.sharding
        parts = {name: part.grad for name, part in trainer.network.trained().items()}
        gradient = {name: sharding.gather(part, sharding.shapes[name]).numpy().copy() for name, part in parts.items()}
        norm, _ = trainer._gradients.clip(0.1)
        outcomes = [trainer.run_step(step) for step in range(2)]
        checkpoints = Checkpoints(own / kind, 1)
        trainer.state.with_whole(lambda t, load, c=checkpoints: c.save(2, t, {}, load))
        other = make_trainer(kind, own, processes)
        other.state.restore(checkpoints.load(2, other.state.rows)[0])
        restored = other.state.tensors()
        found[kind] = {
            "gradient": gradient,
            "sums": processes.sum_(sums).numpy(),
            "norms": [norm.item(), *(outcome.norm.item() for outcome in outcomes)],
            "validation": {name: value for name, value in trainer.validation.measure().items() if "loss" in name},
            "bytes": sum(tensor.nbytes for name, tensor in trainer.state.tensors().items() if "step" not in name),
            "same": all(torch.equal(value, restored[name]) for name, value in trainer.state.tensors().items()),
        }
    if processes.size < 3:
        found["refused"] = error_of_a_wrong_model(processes)
        processes.stop()
    else:
        found["memory"] = error_without_memory(trainer, processes.rank == 2)
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> tuple[Path, dict[int, list[dict]]]:
    """By number of processes, what each of them found; and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("sharding")
    return folder, {size: train_together(size, learn, folder) for size in (1, 2, 3)}


@pytest.mark.parametrize("kind", CASES)
def test_the_gradient_of_one_two_and_three_processes(answers, kind):
    """In bf16, too: each micro-batch is the same one on any number of processes, and gradients are summed in fp32."""
    (alone,), *others = ([found[kind] for found in each] for each in answers[1].values())
    whole = np.concatenate([value.ravel() for value in alone["gradient"].values()])
    assert np.linalg.norm(whole) > 0.01
    for each in others:
        theirs = np.concatenate([value.ravel() for value in each[0]["gradient"].values()])
        assert np.linalg.norm(theirs - whole) <= 1e-6 * np.linalg.norm(whole)
        for found in each:
            np.testing.assert_allclose(found["sums"], alone["sums"], rtol=1e-6)
            assert found["norms"][:2] == pytest.approx(alone["norms"][:2], rel=1e-6)
            assert found["validation"] == pytest.approx(alone["validation"], rel=1e-5)


@pytest.mark.parametrize("kind", CASES)
def test_a_checkpoint_is_the_same_file_on_any_number_of_processes(answers, kind):
    """Whole tensors; each process takes up its own rows, to the last bit."""
    folder, found = answers
    files = [load_file(folder / str(size) / kind / "step-00000002.safetensors") for size in (1, 2, 3)]
    for size, file in zip((2, 3), files[1:], strict=True):
        assert list(file) == list(files[0]), size
        for name in file:
            torch.testing.assert_close(file[name], files[0][name], atol=1e-5, rtol=1e-5, msg=name)
    assert all(each[kind]["same"] for size in (1, 2, 3) for each in found[size])
    bytes_of = {size: [each[kind]["bytes"] for each in found[size]] for size in (1, 2, 3)}
    assert sum(bytes_of[2]) == sum(bytes_of[3]) == bytes_of[1][0] and max(bytes_of[3]) < 0.4 * bytes_of[1][0]


def test_a_process_without_memory_ends_all(answers):
    """Each with one line; the others' passes wait for it, and notice that it is gone."""
    *others, own = (found["memory"] for found in answers[1][3])
    assert "does not fit into memory" in own and "lower train.micro_batch_tokens" in own and "\n" not in own
    assert all(message.startswith("lost contact with another process of this run") for message in others), others


def test_a_model_that_is_too_large_is_one_line():
    """Where smaller forward passes do not help: weights, gradients, optimizer."""
    words = r"does not fit .* more GPUs, .* adapters \(train\.lora_rank\): CUDA .* memory\.$"
    with pytest.raises(UserError, match=words), in_words():
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore lines follow.")


def test_what_cannot_be_trained_is_said_once(answers):
    """By the main process; the other one leaves without a word."""
    first, second = (found["refused"] for found in answers[1][2])
    assert first.startswith("model.config.model_type = 'gpt2' cannot be trained here") and second == "1"
