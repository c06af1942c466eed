"""Rows of the evaluation: every token of the text is scored once, and sees its own document only."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoConfig

from babelmill.core.files import UserError
from babelmill.evaluate import check_length
from babelmill.evaluation.metrics import described, entry, in_words, pooled
from babelmill.evaluation.scoring import (
    ScoringStream,
    arrays,
    batches,
    causal_rows,
    diffusion_rows,
    masked_rows,
    nats,
    parts,
)
from babelmill.evaluation.validation_text import changed, choose, in_prompts, unigram_nats
from babelmill.tokens.documents import Documents
from babelmill.tokens.vocabulary import Vocabulary
from helpers.models.published_models import bytes_bpe, word_piece

BOS, EOS, PAD, MASK = 1, 2, 3, 4
VOCABULARY = Vocabulary(size=40, bos=BOS, eos=EOS, pad=PAD, mask=MASK, special=tuple(range(16)))
DOCUMENTS = [[16, 17, 18], [], [19], list(range(20, 40)), [16] * 9]
STREAM = ScoringStream(np.array([token for document in DOCUMENTS for token in (BOS, *document, EOS)], np.uint16))
TEXT = [token for document in DOCUMENTS for token in document]


NUMBERS = [number for number, document in enumerate(DOCUMENTS) for _ in document]


def items(rows):
    """(row, position, target, document) of all that is scored, as the model gets it, one part at a time."""
    found = []
    for part in parts(rows, VOCABULARY):
        inputs, targets, scored, documents, weights = (array[0] for array in arrays(rows, [part], VOCABULARY))
        assert (weights == 1).all()
        assert inputs[0] == BOS and BOS not in inputs[1:] and PAD not in inputs
        if rows.hides:
            assert (inputs[scored] == MASK).all(), "what is scored is hidden"
            assert (inputs == targets)[~scored].all(), "and nothing else"
        found += [(part.row, part.start + i, targets[i], documents[i]) for i in np.flatnonzero(scored)]
    return sorted(found)


@pytest.mark.parametrize("length", [2, 5, 7, 16, 100])
@pytest.mark.parametrize("masks", [0, 2, 7])
def test_rows_score_every_token_once(length, masks):
    rows = masked_rows(STREAM, length, masks, VOCABULARY) if masks else causal_rows(STREAM, length, VOCABULARY)
    assert rows.inputs.shape == rows.targets.shape and rows.inputs.shape[1] == length
    found = items(rows)
    assert [target for *_, target, _ in found] == TEXT and [number for *_, number in found] == NUMBERS
    if not masks:
        assert (rows.inputs[:, 0] == BOS).all() and (rows.inputs[:, 1:] == rows.targets[:, :-1]).all()
    elif length == 100:  # one row: each pass hides its share of the text
        counts = np.bincount(rows.turns[rows.turns >= 0], minlength=masks)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_batches_are_of_bounded_size_and_parts_of_equal_length_stand_together(size):
    found = parts(masked_rows(STREAM, 12, 3, VOCABULARY), VOCABULARY)
    assert [part.length for part in found] == sorted(part.length for part in found)
    made = list(batches(found, size))
    assert [part for batch in made for part in batch] == found
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(part.length for part in batch) <= size
    if size == 1000:
        assert {part.turn for part in made[0]} == {0, 1, 2}, "several masks of a row in a batch"


PROMPTS = np.array([2, 0, 0, 13, 8])  # tokens of each document's
LENGTHS = np.array([len(document) + 2 for document in DOCUMENTS])
WITH_PROMPTS = ScoringStream(STREAM.tokens, in_prompts(PROMPTS, LENGTHS))


@pytest.mark.parametrize("length", [5, 7, 23, 24, 100])
@pytest.mark.parametrize("passes", [1, 3])
def test_responses_are_scored_once_each_given_the_prompt(length, passes):
    """A document that fits into a row is in one; of what is longer, each row has the next part."""
    pairs = zip(DOCUMENTS, PROMPTS, strict=True)
    expected = [(n, token) for n, (document, size) in enumerate(pairs) for token in document[size:]]
    rows = causal_rows(WITH_PROMPTS, length, VOCABULARY)
    if passes > 1:
        rows = masked_rows(WITH_PROMPTS, length, passes, VOCABULARY)
    found = items(rows)
    assert [(number, target) for *_, target, number in found] == expected
    inputs = {(part.row, part.start): rows.inputs[part.row, part.start : part.end] for part in parts(rows, VOCABULARY)}
    for row, position, _, number in found:
        start = max(start for r, start in inputs if r == row and start <= position)
        if LENGTHS[number] < length:
            given = inputs[row, start].tolist()
            assert given[1 : 1 + PROMPTS[number]] == DOCUMENTS[number][: PROMPTS[number]]


def test_no_sample_of_diffusion_hides_a_prompt():
    rows = diffusion_rows(WITH_PROMPTS, 24, 4, VOCABULARY)
    inputs, targets, scored, documents, weights = arrays(rows, parts(rows, VOCABULARY), VOCABULARY)
    assert ((inputs == MASK) == scored).all() and (inputs == targets)[~scored].all()
    for number, (document, size) in enumerate(zip(DOCUMENTS, PROMPTS, strict=True)):
        here = scored & (documents == number)
        assert (weights * here).sum() == pytest.approx(len(document) - size), "each counts once in the mean"
        assert set(targets[here]) <= set(document[size:])
    assert not (scored & (inputs == BOS)).any()


class Uniform(torch.nn.Module):
    """Gives every entry of the vocabulary the same probability."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, VOCABULARY.size))


def test_nats_are_summed_by_document():
    every = causal_rows(STREAM, 12, VOCABULARY), masked_rows(STREAM, 12, 3, VOCABULARY)
    for rows in (*every, diffusion_rows(STREAM, 12, 5, VOCABULARY)):
        assert nats(Uniform(), rows, VOCABULARY, lambda _: None) == pytest.approx(
            (LENGTHS - 2) * np.log(VOCABULARY.size)
        )


def test_samples_of_diffusion_hide_every_share_once():
    """With as many samples as there are tokens of text, each number from one to all is hidden once."""
    stream = ScoringStream(np.array([BOS, *range(16, 31), EOS], np.uint16))
    rows = diffusion_rows(stream, 20, 15, VOCABULARY)
    found = parts(rows, VOCABULARY)
    inputs, targets, scored, _, weights = arrays(rows, found, VOCABULARY)
    assert sorted(scored.sum(1)) == list(range(1, 16))
    assert ((inputs == MASK) == scored).all() and (inputs == targets)[~scored].all()
    assert weights[:, 0] == pytest.approx(1 / scored.sum(1)), "15 tokens / 15 samples / those hidden"
    assert len({tuple(row) for row in scored}) == 15 and scored[:, 1:16].any(0).all() and not scored[:, [0, 16]].any()


class Neighbours(torch.nn.Module):
    """Gives a token a probability that depends on how many tokens beside it are hidden, and on where it stands."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_ids, attention_mask):
        hidden = (input_ids == MASK).double()
        beside = torch.nn.functional.conv1d(hidden[:, None], torch.ones(1, 1, 3).double(), padding=1)[:, 0]
        logits = torch.zeros(*input_ids.shape, VOCABULARY.size, dtype=torch.float64)
        logits[..., 16:20] = (5 - beside * (1 + torch.arange(input_ids.size(1)) % 2))[..., None]
        return SimpleNamespace(logits=logits)


def test_the_bound_of_diffusion_is_its_expectation():
    """Over all subsets of a text of four tokens: the mean over k of 4 / k times the mean cross-entropy sum of subsets of k."""
    text, copies = [16, 17, 18, 19], 2000
    exact = 0.0
    for count in range(1, 5):
        for subset in itertools.combinations(range(1, 5), count):
            shown = torch.tensor([[BOS, *text, EOS]])
            shown[0, list(subset)] = MASK
            losses = -torch.log_softmax(Neighbours()(shown, None).logits[0], -1)[
                list(subset), [text[i - 1] for i in subset]
            ]
            exact += losses.sum().item() / count / math.comb(4, count)
    stream = ScoringStream(np.array(copies * [BOS, *text, EOS], np.uint16))
    estimates = nats(Neighbours(), diffusion_rows(stream, 7, 2, VOCABULARY), VOCABULARY, lambda _: None)
    spread = estimates.std() / math.sqrt(copies)
    assert 0 < spread < 0.02 * exact
    assert abs(estimates.mean() - exact) < 4 * spread


def test_unigram_by_hand():
    """Three entries seen 3, 1 and 0 times: 4/7, 2/7 and 1/7."""
    small = Vocabulary(size=5, bos=0, eos=1, pad=0, mask=1, special=(0, 1))
    found = unigram_nats(np.array([0, 0, 3, 1, 0]), small)
    assert found[2:] == pytest.approx(-np.log([4 / 7, 2 / 7, 1 / 7]))


def test_the_standard_error_is_that_of_many_samples():
    """Of documents drawn at random, from a population whose bits per byte are known."""
    draw = np.random.default_rng(0)
    estimates, errors = [], []
    for _ in range(2000):
        size = draw.integers(10, 200, 50)
        score = entry(size * draw.normal(2.0, 0.4, 50) + draw.normal(0, 5, 50), size, tokens=1)
        estimates.append(score["value"])
        errors.append(score["standard_error"])
    assert np.mean(estimates) == pytest.approx(2 / np.log(2), rel=0.01)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(estimates), rel=0.1)


def test_scores_are_pooled_by_bytes():
    one = entry(np.log(2) * np.array([10, 20]), np.array([4, 6]), tokens=5)
    two = entry(np.log(2) * np.array([4, 6]), np.array([15, 15]), tokens=15)
    assert one["value"] == pytest.approx(3)
    errors = np.hypot(one["standard_error"] * 10, two["standard_error"] * 30) / 40
    assert pooled([one, two], [10, 30]) == pytest.approx(
        {"value": 1, "standard_error": errors, "nats_per_token": np.log(2) * 2, "tokens": 20, "bytes": 40}
    )
    alone = entry(np.array([1.0]), np.array([3]), tokens=1)
    assert alone["standard_error"] is None and pooled([one, alone], [10, 3])["standard_error"] is None
    assert pooled([one], [10]) is one


def test_a_sample_of_a_language_stands_for_all_of_it():
    """The pooled score is an estimate of the one over all documents, whatever was drawn of each language."""
    random = np.random.default_rng(0)
    sizes = [random.integers(50, 150, count) for count in (1000, 100)]
    nats = [rate * size for rate, size in zip((0.7, 2.1), sizes, strict=True)]
    whole = [int(size.sum()) for size in sizes]
    tokens = [int(size.sum()) // 4 for size in sizes]
    every = pooled([entry(n, s, t) for n, s, t in zip(nats, sizes, tokens, strict=True)], whole)
    drawn = [entry(n[:100], s[:100], int(s[:100].sum()) // 4) for n, s in zip(nats, sizes, strict=True)]
    some = pooled(drawn, whole)
    assert some["value"] == pytest.approx(every["value"], rel=1e-3)
    assert some["nats_per_token"] == pytest.approx(every["nats_per_token"], rel=1e-2)


def test_a_sample_is_chosen_by_the_text_alone(tmp_path):
    texts = [f"Document number {i}." for i in range(50)]

    def chosen(texts, count):
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        numbers, size, whole = choose(Documents(tmp_path / "a.parquet"), count)
        assert (
            whole == sum(map(len, texts))
            and (np.diff(numbers) > 0).all()
            and size.tolist() == [len(texts[i]) for i in numbers]
        )
        return {texts[i] for i in numbers}

    assert chosen(texts, None) == chosen(texts, 50) == chosen(texts, 99) == {*texts}
    ten = chosen(texts, 10)
    assert len(ten) == 10 and ten == chosen(texts[::-1], 10) and ten < chosen(texts, 20)
    assert ten not in ({*texts[:10]}, {*texts[-10:]})
    kept = [text for text in texts if text in ten or texts.index(text) % 2]
    assert chosen(kept, 10) == ten, "documents that were not chosen change nothing"


def test_documents_that_a_tokenizer_changes_are_counted(tmp_path):
    """Those that are scored; a tokenizer of bytes changes none."""
    texts = ["the fox", "The fox", "the \u2603", "the fox", "A dog", "the dog"]
    pq.write_table(pa.table({"prompt": ["", "", "", "A", "", ""], "text": texts}), tmp_path / "texts.parquet", 2)
    documents = Documents(tmp_path / "texts.parquet")
    for chosen, lossy in ((range(6), 3), ([0, 3, 5], 0), ([1, 2, 3], 2)):
        assert changed(word_piece(), documents, np.array(chosen)) == lossy
        assert changed(bytes_bpe("<s>"), documents, np.array(chosen)) == 0


@pytest.mark.parametrize(("kind", "more"), [("roberta", {"pad_token_id": 3}), ("bert", {})])
def test_rows_that_a_model_cannot_read_are_refused(kind, more, tmp_path):
    """RoBERTa has positions that no token has: those up to the id of <pad>."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    positions = 32 + (4 if more else 0)
    AutoConfig.for_model(kind, **sizes, **more, max_position_embeddings=positions).save_pretrained(tmp_path)
    check_length(tmp_path, 32)
    with pytest.raises(UserError, match="sequence_length = 33 is more than the 32 positions of"):
        check_length(tmp_path, 33)


def test_a_score_comes_with_its_error_and_its_sample():
    variants = {"ema": {"causal": {"value": 2.5, "standard_error": 0.0123}}}
    evaluation = {"metrics": described(["causal"]), "variants": variants, "documents": {"scored": 100, "of": 1234}}
    assert in_words(evaluation, "ema") == "bits per byte 2.500 ± 0.012 causal (100 of 1,234 documents)"
    evaluation["documents"] = {"scored": 9, "of": 9, "changed": 2}
    assert in_words(evaluation, "ema") == "bits per byte 2.500 ± 0.012 causal (the tokenizer changes 2 of 9)"
