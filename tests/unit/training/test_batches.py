"""From documents to tensors: every token a target once, segments, targets known beforehand."""

import numpy as np
import pytest
import torch

from babelmill.core.files import UserError, write_json
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.plan.layouts import Packed
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.rows import Rows
from helpers.training import training_data
from helpers.training.training_data import VOCABULARY, documents, every_row, section, stream, write_documents

WEIGHTS = (0.5, 0.25)


@pytest.fixture
def shard(tmp_path):
    return write_documents(tmp_path / "train.safetensors", documents(40))


def causal(counts, length: int) -> Rows:
    return every_row(counts, length, None)


@pytest.mark.parametrize("length", [16, 32, 7, 4096])
def test_every_token_but_bos_is_a_causal_target_once(shard, length):
    tokens, counts = stream([shard])
    rows = causal(counts, length)
    batch = tokens.micro_batch(rows, length, WEIGHTS)
    everything = shard.tokens.astype(np.int64)
    assert batch.targets.tolist() == everything[everything != VOCABULARY.bos].tolist()
    assert (batch.weights == 0.25).all() and len(batch.targets) == rows.targets.sum()
    # position t predicts the token at t + 1
    flat = batch.input_ids.flatten()
    follows = batch.positions[batch.positions % length < length - 1]
    assert torch.equal(flat[follows + 1], batch.targets[batch.positions % length < length - 1])


def test_rows_and_targets_that_are_added_count_as_nothing(shard):
    tokens, counts = stream([shard])
    rows = causal(counts, 16)
    plain, count = tokens.micro_batch(rows, 16, WEIGHTS), len(rows)
    added = tokens.build(tokens.send(rows, 16, WEIGHTS, count + 3), 16 * (count + 3) + 5, important=True)
    real = len(plain.targets)
    for name in ("positions", "targets", "weights", "groups"):
        assert torch.equal(getattr(added, name)[:real], getattr(plain, name))
    assert (added.importance[:real] == 1).all()
    assert not added.importance[real:].any() and not added.weights[real:].any()
    assert torch.equal(added.input_ids[:count], plain.input_ids) and (added.segments[count:] == -1).all()


def test_rows_are_strides_over_one_stream_with_bos_in_front(shard):
    tokens, counts = stream([shard])
    batch = tokens.micro_batch(causal(counts, 16), 16, WEIGHTS)
    padded = np.full(16 * len(batch.input_ids), VOCABULARY.pad)
    padded[: len(shard.tokens)] = shard.tokens
    expected = padded.reshape(-1, 16)
    assert (batch.input_ids[:, 0] == VOCABULARY.bos).all()
    assert torch.equal(batch.input_ids[:, 1:], torch.from_numpy(expected[:, :-1]).long())


def test_segments_begin_at_bos_and_padding_is_outside(shard):
    tokens, counts = stream([shard])
    batch = tokens.micro_batch(causal(counts, 32), 32, WEIGHTS)
    for ids, segments in zip(batch.input_ids.tolist(), batch.segments.tolist(), strict=True):
        expected, segment = [], -1
        for token in ids:
            segment += token == VOCABULARY.bos
            expected.append(-1 if token == VOCABULARY.pad else segment)
        assert segments == expected
    assert (batch.segments[-1] == -1).any() or len(shard.tokens) % 32 == 0


@pytest.mark.parametrize("length", [16, 5])
def test_targets_are_counted_from_document_starts_alone(shard, length):
    _, counts = stream([shard])
    padded = np.full(counts[0].rows(length) * length, VOCABULARY.pad)
    padded[: len(shard.tokens)] = shard.tokens
    rows = padded.reshape(-1, length)
    maskable, targets = counts[0].targets(np.arange(len(rows)), length)
    assert targets.tolist() == (~np.isin(rows, [VOCABULARY.bos, VOCABULARY.pad])).sum(1).tolist()
    assert maskable.tolist() == (rows >= 16).sum(1).tolist()


def test_masked_rows_predict_what_is_hidden_and_nothing_else(shard):
    tokens, counts = stream([shard])
    rows = every_row(counts, 32, 0.3)
    batch, plain = tokens.micro_batch(rows, 32, WEIGHTS), tokens.micro_batch(causal(counts, 32), 32, WEIGHTS)
    assert len(batch.targets) == rows.targets.sum() and (batch.weights == 0.5).all()
    assert (batch.targets >= 16).all() and not batch.causal.any()
    assert torch.equal(batch.segments, plain.segments)
    changed = (batch.input_ids != plain.input_ids).flatten().nonzero()[:, 0] - 1
    assert set(changed.tolist()) <= set(batch.positions.tolist())
    assert len(changed) > 0.8 * len(batch.positions)
    where = dict(zip(plain.positions.tolist(), plain.targets.tolist(), strict=True))
    assert [where[p] for p in batch.positions.tolist()] == batch.targets.tolist()


def test_a_row_is_the_same_whatever_is_beside_it(shard):
    tokens, counts = stream([shard])
    rows = every_row(counts, 16, 0.3)
    whole = tokens.micro_batch(rows, 16, WEIGHTS)
    part = tokens.micro_batch(rows[3:5], 16, WEIGHTS)
    assert torch.equal(whole.input_ids[3:5], part.input_ids)
    again = tokens.micro_batch(rows[3:5], 16, WEIGHTS, stream=9)
    assert not torch.equal(again.input_ids, part.input_ids)


def test_masks_differ_between_rows_and_numbers(shard):
    tokens, _ = stream([shard])
    rows = Rows(*(np.array(v) for v in ([0, 0], [3, 3], [96, 96], [128, 128], [0, 0], [8, 8], [100, 101])))
    first, second = tokens.micro_batch(rows, 32, WEIGHTS).input_ids
    assert not torch.equal(first, second)


def test_languages_share_one_stream(tmp_path):
    shards = [write_documents(tmp_path / f"{i}.safetensors", documents(20 + i, seed=i)) for i in range(3)]
    tokens, counts = stream(shards)
    batch = tokens.micro_batch(causal(counts, 16), 16, WEIGHTS)
    for i, shard in enumerate(shards):
        mine = batch.targets[batch.groups == 2 * i + 1].numpy()
        assert mine.tolist() == shard.tokens[shard.tokens != VOCABULARY.bos].tolist()


def test_large_vocabularies_are_32_bit(tmp_path):
    path = tmp_path / "train.safetensors"
    with training_data.write_shard(path, 1, 100_000, "none") as writer:
        writer.append(np.array([1, 70_000, 99_999, 2]), np.array([4]))
    shard = training_data.ShardFile.open(path)
    big = Vocabulary(100_000, 1, 2, 3, 4, tuple(range(16)))
    tokens = training_data.TokenStream([shard], big, 0, torch.device("cpu"), objective_of(section("train")))
    batch = tokens.micro_batch(causal([Packed(shard.offsets)], 8), 8, WEIGHTS)
    assert batch.targets.tolist() == [70_000, 99_999, 2]


def test_empty_rows_fill_a_batch_up_to_a_shape(shard):
    tokens, counts = stream([shard])
    rows = every_row(counts, 16, 0.3)[:5]
    plain, padded = (tokens.micro_batch(rows, 16, WEIGHTS, 0, multiple) for multiple in (1, 4))
    assert padded.input_ids.shape == (8, 16) and (padded.segments[5:] == -1).all()
    assert torch.equal(padded.input_ids[:5], plain.input_ids)
    assert torch.equal(padded.positions, plain.positions) and torch.equal(padded.targets, plain.targets)


def test_a_tokenizer_without_mask_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    write_json(path, {"added_tokens": [{"content": "<s>", "id": 0, "special": True}]})
    with pytest.raises(UserError, match=r"tokenizer.json: <s>, </s>, <pad> and <mask> must be special tokens"):
        Vocabulary.read(path, 100)
