"""Runs with `train.order: documents`, which are stopped and continue."""

import pytest

from helpers.training.training_data import UNDISTURBED, Data, assert_near, assert_same

pytestmark = pytest.mark.slow

SETTINGS = UNDISTURBED | {"order": "documents"}


def prepared(folder, like: Data) -> Data:
    data = Data.at(folder, like)
    data.settings(**SETTINGS)
    return data


def test_a_run_that_was_stopped_reads_on_in_the_same_order(finished, tmp_path):
    """To the bit on one process, and but for rounding if it began on two."""
    whole = prepared(tmp_path / "whole", finished)
    whole.train()
    assert whole.weights() != finished.weights(), "the key has an effect"
    for processes, check in ((1, assert_same), (2, assert_near)):
        data = prepared(tmp_path / f"{processes}", finished)
        data.interrupt(22, processes=processes)  # within an epoch
        assert "going on after step 2" in data.train()
        check(data, whole)
