"""From documents to tensors: rows, their segments and targets, which the plan knows; prompts are context alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from babelmill.tokens.shard_file import ShardFile, write_shard
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import TokenStream
from babelmill.training.plan import plan
from babelmill.training.plan.objectives import hides_alone, objective_of
from babelmill.training.plan.rows import Packed, Rows
from helpers.training.training_data import VOCABULARY, documents, every_row, section, stream, write_documents

CPU = torch.device("cpu")
WEIGHTS = (0.5, 0.25)


def write(path: Path, seed: int = 0, count: int = 60) -> ShardFile:
    """A shard of documents with prompts of any length: none, all but the last token, and one longer than four rows."""
    random, texts = np.random.default_rng(seed), documents(count, seed)
    texts[3] = np.array([VOCABULARY.bos, *random.integers(16, 96, 300), VOCABULARY.eos])
    prompts = [int(random.integers(0, len(text) - 2)) for text in texts]
    prompts[3] = 290
    assert 0 in prompts and len(set(prompts)) > 10
    return write_documents(path, texts, prompts=prompts)


def in_responses(shard: ShardFile) -> np.ndarray:
    """Which tokens may be targets, from the documents one by one: [tokens] bool."""
    if shard.responses is None:
        return shard.tokens != VOCABULARY.bos
    learnt = np.zeros(len(shard.tokens), bool)
    for begin, end, response in zip(shard.offsets, shard.offsets[1:], shard.responses, strict=False):
        assert shard.tokens[begin] == VOCABULARY.bos and begin < response < end
        learnt[response:end] = True
    return learnt


@pytest.fixture
def shards(tmp_path) -> list[ShardFile]:
    """With prompts, and without."""
    plain = write_documents(tmp_path / "plain.safetensors", documents(20, 9))
    assert plain.responses is None
    return [write(tmp_path / "prompts.safetensors"), plain]


def layouts_of(shards: list[ShardFile]) -> list[Packed]:
    return [Packed(shard.offsets, shard.responses) for shard in shards]


@pytest.mark.parametrize("length", [5, 16, 64, 4096])
@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal", "diffusion"])
def test_batches_hold_the_documents_and_learn_what_the_plan_counts(shards, objective, length):
    """Rows are strides over the documents, and each token of a response is a target of causal rows once.

    Nothing of prompts is learnt, and nothing is hidden but targets.
    """
    objective = objective_of(section("train", objective=objective))
    in_place, kinds = hides_alone(objective), len(objective.kinds)
    tokens = TokenStream(shards, VOCABULARY, 7, CPU, objective, in_place)
    learnt = [in_responses(shard) for shard in shards]
    for kind in objective.occurring:
        rows = plan.every_row(layouts_of(shards), length, objective, kind)
        batch = tokens.micro_batch(rows, length, (0.5, 0.25)[:kinds])
        row_of, flat = batch.positions.numpy() // length, batch.positions.numpy()
        assert np.bincount(row_of, minlength=len(rows)).tolist() == rows.targets.tolist()
        assert length > 64 or (rows.targets == 0).any()
        assert batch.groups.tolist() == (kinds * rows.language + kind)[row_of].tolist()
        importance = torch.ones(len(flat)) if batch.importance is None else batch.importance
        torch.testing.assert_close(batch.weights, (0.5, 0.25)[kind] * importance.float())

        stream, may = places(rows, length, shards, learnt)
        assert may.flat[flat].all() and (batch.targets.numpy() == stream.flat[flat]).all()
        first = np.full((len(rows), 1), VOCABULARY.bos)
        wanted = stream if in_place else np.concatenate([first, stream[:, :-1]], 1)
        segments = (wanted == VOCABULARY.bos).cumsum(1) - (not in_place)
        assert (batch.segments.numpy() == np.where(wanted == VOCABULARY.pad, -1, segments)).all()
        targets = np.zeros(len(rows) * length, bool)
        targets[flat] = True
        targets = targets.reshape(len(rows), length)
        hidden = targets if in_place else np.concatenate([first != first, targets[:, :-1]], 1)
        changed = batch.input_ids.numpy() != wanted
        assert not (changed & ~hidden).any(), "nothing else is hidden"
        if not objective.kinds[kind].hides:
            assert (
                not batch.causal.logical_not().any() and not changed.any() and targets.sum() == sum(map(np.sum, learnt))
            )
        else:
            assert not batch.causal.any() and changed.sum() > 0.75 * hidden.sum()
            assert objective.hiding.ends == (batch.targets == VOCABULARY.eos).any()


def places(rows: Rows, length: int, shards: list[ShardFile], learnt: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of rows, and which may be targets, both [rows, length]; `<pad>` where there are none."""
    stream, may = np.full((len(rows), length), VOCABULARY.pad), np.zeros((len(rows), length), bool)
    for i, (language, begin, end) in enumerate(zip(rows.language, rows.begin, rows.end, strict=True)):
        stream[i, : end - begin] = shards[language].tokens[begin:end]
        may[i, : end - begin] = learnt[language][begin:end]
    return stream, may


def test_rows_and_targets_that_are_added_count_as_nothing(tmp_path):
    """Up to a multiple of a number of rows; for recordings, also to a number of targets."""
    tokens, counts = stream([write_documents(tmp_path / "train.safetensors", documents(40))])
    rows = every_row(counts, 16, None)[:5]
    plain, more = tokens.micro_batch(rows, 16, WEIGHTS), tokens.micro_batch(rows, 16, WEIGHTS, 0, pad_rows_to=4)
    added = tokens.build(tokens.send(rows, 16, WEIGHTS, 8), len(plain.targets) + 21, important=True)
    for batch in (more, added):
        real = len(plain.targets)
        for name in ("positions", "targets", "weights", "groups"):
            assert torch.equal(getattr(batch, name)[:real], getattr(plain, name))
        assert batch.input_ids.shape == (8, 16) and (batch.segments[5:] == -1).all()
        assert torch.equal(batch.input_ids[:5], plain.input_ids) and not batch.weights[real:].any()
    assert len(more.targets) == real and (added.importance[:real] == 1).all() and not added.importance[real:].any()


def test_large_vocabularies_are_32_bit(tmp_path):
    path = tmp_path / "train.safetensors"
    write_shard(path, 100_000, "none", [(np.array([1, 70_000, 99_999, 2]), np.array([4]), None)])
    shard = ShardFile.open(path)
    assert shard.tokens.dtype == np.uint32
    big = Vocabulary(100_000, 1, 2, 3, 4, tuple(range(16)))
    tokens = TokenStream([shard], big, 0, CPU, objective_of(section("train")))
    batch = tokens.micro_batch(every_row([Packed(shard.offsets)], 8, None), 8, WEIGHTS)
    assert batch.targets.tolist() == [70_000, 99_999, 2]
