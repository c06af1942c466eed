"""The figures of a tiny run are the stored ones: "same results" is true, and so is a new pin's."""

import numpy as np
import pytest

from scripts import stored_figures
from scripts.stored_figures import FLOAT64, compare

ADVICE = """
Results changed. If they should not have, the last edit or the changed pin is at fault. If they should:
raise the version of the stage in `stages.py`, then `python tests/scripts/stored_figures.py --write`."""


def test_the_figures_are_the_stored_ones():
    lines = compare(stored_figures.read_stored(), stored_figures.in_a_process(list(stored_figures.SECTIONS)))
    if lines:
        pytest.fail("\n".join([*lines[:40], ADVICE]), pytrace=False)


def test_float64_figures_are_made_in_float64():
    """A buffer that stayed float32 would hide differences, and leave numbers of 24 bits."""
    stored = stored_figures.read_stored()
    assert stored["training"]["types"] == ["torch.float64"]
    numbers = [value for name in FLOAT64 for _, value in stored_figures.leaves(stored[name]) if isinstance(value, list)]
    numbers = [value for values in numbers for value in values if isinstance(value, float) and value % 0.125]
    assert len(numbers) > 100
    assert np.mean([float(np.float32(value)) == value for value in numbers]) < 0.01
