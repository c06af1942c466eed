"""Scores of several languages together, and rows that a model cannot read (the scores: tests/e2e/test_evaluate.py)."""

import numpy as np
import pytest
from transformers import AutoConfig

from babelmill.core.files import UserError
from babelmill.evaluate import check_length
from babelmill.evaluation.metrics import entry, pooled


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


@pytest.mark.parametrize(("kind", "more"), [("roberta", {"pad_token_id": 3}), ("bert", {})])
def test_rows_that_a_model_cannot_read_are_refused(kind, more, tmp_path):
    """RoBERTa has positions that no token has: those up to the id of <pad>."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    positions = 32 + (4 if more else 0)
    AutoConfig.for_model(kind, **sizes, **more, max_position_embeddings=positions).save_pretrained(tmp_path)
    check_length(tmp_path, 32)
    with pytest.raises(UserError, match="sequence_length = 33 is more than the 32 positions of"):
        check_length(tmp_path, 33)
