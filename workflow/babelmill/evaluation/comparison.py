"""Compute the difference between the bits per byte of two sides, with a 95 % interval.

Two models are compared on the same documents: what makes a document hard for both then cancels out, and the interval is
that of the ratio estimate over the differences of documents (`validation_text.entry`). Two recipes are compared by the
means over their models (Welch, 1947): the interval says what other seeds would give on the same documents.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from scipy.stats import t as student

from babelmill.core.files import UserError
from babelmill.evaluation.validation_text import entry, pooled


class Difference(NamedTuple):
    """A difference, first minus second, and the ends of its 95 % interval, None if it is not known."""

    value: float
    low: float | None
    high: float | None


def over_documents(tables: tuple[pa.Table, pa.Table], columns: tuple[str, str]) -> Difference:
    """Return the difference between two models on the same documents.

    Args:
        tables: the documents of each model (`validation_text.of_documents`).
        columns: the column of each model's nats.

    Raises:
        UserError: the tables are not about the same documents.
    """
    same = ("language", "document", "bytes")
    if any(tables[0][key].to_pylist() != tables[1][key].to_pylist() for key in same):
        raise UserError("the two models were not measured on the same documents; run the workflow again for both")
    nats = tables[0][columns[0]].to_numpy() - tables[1][columns[1]].to_numpy()
    languages, size, whole = (tables[0][key].to_numpy() for key in ("language", "bytes", "whole_bytes"))
    each = [languages == code for code in dict.fromkeys(languages)]
    found = pooled([entry(nats[mine], size[mine], 1) for mine in each], [int(whole[mine][0]) for mine in each])
    freedom = len(nats) - len(each)
    error = found["standard_error"]
    if error is None or freedom < 1:
        return Difference(found["value"], None, None)
    half = float(student.ppf(0.975, freedom)) * error
    return Difference(found["value"], found["value"] - half, found["value"] + half)


def over_seeds(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference between the means of two sides' models; without an interval if a side has one model."""
    value = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return Difference(value, None, None)
    parts = [statistics.variance(side) / len(side) for side in (first, second)]
    if not sum(parts):
        return Difference(value, value, value)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True)
    )
    half = float(student.ppf(0.975, freedom)) * math.sqrt(sum(parts))
    return Difference(value, value - half, value + half)
