"""The validation text: every token is scored once, after its own document alone; and the scores of documents."""

import numpy as np
import pytest
from transformers import AutoConfig

from babelmill.core.files import UserError
from babelmill.evaluate import check_length
from babelmill.evaluation.metrics import entry, pooled
from babelmill.evaluation.validation_text import choose, windows

TOKENS = np.array([1, *range(16, 36), 2])


@pytest.mark.parametrize("length", [2, 5, 8, 21, 22, 100])
@pytest.mark.parametrize("prompt", [0, 9])
def test_every_token_to_score_is_in_one_window(length, prompt):
    """A document that fits is whole; each window of a longer one begins with `<s>`."""
    scored = (TOKENS >= 16) & (np.arange(22) > prompt)
    found = windows(TOKENS, scored, length)
    assert [each.ids[place] for each in found for place in each.scored] == [*range(16 + prompt, 36)]
    assert all(each.ids[0] == 1 and 1 not in each.ids[1:] and len(each.ids) <= length for each in found)
    assert (len(found) == 1) == (length >= 22 or (length == 21 and found[0].ids[-1] == 35)), "</s> alone is no window"
    if length >= 22:
        assert found[0].ids == TOKENS.tolist()


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


def test_a_sample_is_chosen_by_the_text_alone():
    texts = [f"Document number {i}." for i in range(50)]

    def chosen(texts, count):
        numbers = choose([(text,) for text in texts], count)
        assert (np.diff(numbers) > 0).all()
        return {texts[i] for i in numbers}

    assert chosen(texts, None) == chosen(texts, 50) == chosen(texts, 99) == {*texts}
    ten = chosen(texts, 10)
    assert len(ten) == 10 and ten == chosen(texts[::-1], 10) and ten < chosen(texts, 20)
    assert ten not in ({*texts[:10]}, {*texts[-10:]})
    kept = [text for text in texts if text in ten or texts.index(text) % 2]
    assert chosen(kept, 10) == ten, "documents that were not chosen change nothing"


@pytest.mark.parametrize(("kind", "more"), [("roberta", {"pad_token_id": 3}), ("bert", {})])
def test_rows_that_a_model_cannot_read_are_refused(kind, more, tmp_path):
    """RoBERTa has positions that no token has: those up to the id of <pad>."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    positions = 32 + (4 if more else 0)
    AutoConfig.for_model(kind, **sizes, **more, max_position_embeddings=positions).save_pretrained(tmp_path)
    check_length(tmp_path, 32)
    with pytest.raises(UserError, match="sequence_length = 33 is more than the 32 positions of"):
        check_length(tmp_path, 33)
