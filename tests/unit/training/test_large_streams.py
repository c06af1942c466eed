"""What training knows of its text is an index: rows are looked up, tokens stay in the file."""

import tracemalloc

import numpy as np
import pytest
import torch

from babelmill.core.files import UserError
from babelmill.tokens.shard_file import ShardFile
from babelmill.training.batches import TokenStream
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from babelmill.training.plan.schedule import validation_bound, validation_steps
from helpers.training.tiny_trainer import trainer_maker
from helpers.training.training_data import VOCABULARY, section, write_documents

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
DOCUMENTS, DOCUMENT = 2_000_000, 50


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> ShardFile:
    """A shard of 100 million tokens: documents of a hole in the file, of which the offsets alone are there."""
    path = tmp_path_factory.mktemp("large") / "train.safetensors"
    empty = write_documents(path, [])
    offsets = np.memmap(path.with_name("offsets"), "<i8", "w+", shape=DOCUMENTS + 1)
    offsets[:] = np.arange(DOCUMENTS + 1) * DOCUMENT
    with open(path.with_name("tokens"), "wb") as file:
        file.truncate(2 * DOCUMENTS * DOCUMENT)
    tokens = np.memmap(path.with_name("tokens"), "<u2", "r")
    return ShardFile(path.with_name("tokens"), tokens, offsets, empty.metadata, offsets[:-1] + 3)


@pytest.mark.parametrize(("order", "most"), [("rows", 12), ("documents", 64)])
def test_only_an_order_grows_with_the_corpus(large, order, most):
    """8 bytes per row, of which there are 780,000, and 16 per document (twice as many while they are made)."""
    few = {"global_batch_tokens": 64 * 128, "sequence_lengths": [128], "phase_starts": [0]}
    layout = Packed(large.offsets, large.responses)
    assert layout.rows(128) > 700_000
    for trace in (False, True):  # the first time, libraries are imported
        if trace:
            tracemalloc.start()
        plan = Plan(section("train", order=order, **few), 1.0, [layout])
        stream = TokenStream([large], VOCABULARY, 7, CPU, plan.objective)
        stream.micro_batch(plan.step(3).rows, 128, (0.0, 0.0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most * 1e6, "200 MB of tokens"


def test_the_next_step_is_planned_while_one_is_done_and_errors_come_out(tmp_path, monkeypatch):
    trainer, planned = trainer_maker(tmp_path)(max_steps=8), []

    def plan(number: int) -> int:
        planned.append(number)
        if number == 7:
            raise UserError("the disk reports an error")
        return 10 * number

    monkeypatch.setattr(trainer.plan, "step", plan)
    assert [trainer._take(number) for number in (3, 4, 5)] == [30, 40, 50]
    assert trainer._take(2) == 20, "another step than the next one"
    assert trainer._take(6) == 60
    with pytest.raises(UserError, match="disk"):
        trainer._take(7)
    assert planned == [3, 4, 5, 6, 2, 3, 6, 7], "each once, and nothing after the last"


def test_validation_takes_so_many_tokens_of_all_languages(tmp_path):
    """However long the documents are: the same share of each language."""
    from babelmill.training.plan import plan

    shard = write_documents(tmp_path / "a.safetensors", [np.array([1, *[20] * 3198, 2])] * 2)
    other = write_documents(tmp_path / "b.safetensors", [np.array([1, *[20] * 6, 2])] * 200)
    layouts, objective = [Packed(file.offsets) for file in (shard, other)], objective_of(section("train"))
    found = plan.every_row(layouts, 32, objective, 1, tokens=800)
    assert [len(found.row[found.language == i]) for i in range(2)] == [20, 5]
    assert np.diff(found.row[found.language == 0]).tolist() == [10] * 19, "spread evenly"
    every = plan.every_row(layouts, 32, objective, 1, tokens=8000)
    assert len(every) == 250 == len(plan.every_row(layouts, 32, objective, 1, 10**9))


def test_the_bound_of_a_validation_follows_from_the_training_between_two():
    train = section("train", global_batch_tokens=100_000)

    def bound(steps: int, **run) -> int:
        return validation_bound(section("run", **run), train, steps)

    assert bound(10_000, validate_every=500) == 2_500_000 and bound(100, validate_every=500) == 500_000
    assert bound(2, validate_every=500) == 50_000 and bound(10_000, validate_every=0) == 50_000_000
    assert bound(10_000, validation_tokens=9) == 9
    assert validation_steps(section("run", validate_every=4), 10) == [4, 8, 10]
    assert validation_steps(section("run", validate_every=5), 10) == [5, 10]
    assert validation_steps(section("run", validate_every=0), 10) == [10]
