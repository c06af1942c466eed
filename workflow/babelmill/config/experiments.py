"""Turn the entries of `experiments:` into models: the cells of each experiment, once per seed.

A cell is a combination of the values that vary. Each cell and seed is an entry of `models:`, which inherits everything
else from the base (`like:`). So cells are trained, listed and explained like all models.
"""

import functools
import hashlib
import itertools
import math
import re
from typing import Any, NamedTuple

from babelmill.config.entries import Experiment
from babelmill.config.layers import merge
from babelmill.core.escape import some
from babelmill.core.files import UserError, canonical_json

LONGEST = 24  # characters of a value in a name
VARYING = ("preset", "tokenizer", "mixture", "model", "train", "labels", "export", "evaluation")  # what results need
MOST = 1000  # models of an experiment: more are a mistake
Values = dict[str, Any]  # by dotted key


class Cell(NamedTuple):
    """One model of an experiment."""

    name: str  # the name of the model
    base: str  # the model that it inherits from
    label: str  # the name of its cell, the same for all seeds and bases
    values: Values  # the values that vary, by dotted key
    seed: int  # the number of its seed: 1, 2, ...
    reference: bool  # whether the other cells are compared with its cell

    def entry(self) -> dict[str, Any]:
        """Return the cell as an entry of `models:`, without its seed."""
        entry: dict[str, Any] = {"like": self.base}
        for key, value in self.values.items():
            entry = merge(entry, functools.reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value))
        return entry


def cells(name: str, experiment: Experiment, bases: list[str], where: str) -> list[Cell]:
    """Return all models of an experiment, by base (with groups expanded), cell and seed; `where` begins errors."""
    found = experiment.vary
    count = math.prod(map(len, found.values())) if isinstance(found, dict) else len(found)
    if count * experiment.seeds * len(bases) > MOST:
        raise UserError(f"{where}.vary: more than {MOST:,} models: vary fewer values")
    if isinstance(found, dict):  # all combinations of a grid
        found = [dict(zip(found, values, strict=True)) for values in itertools.product(*found.values())]
    for key in {key: None for values in found for key in values}:
        if key.partition(".")[0] not in VARYING or key == "train.seed":
            raise UserError(f"{where}.vary: {key}: keys of {', '.join(VARYING)} can vary (and `seeds` counts seeds)")
    labels = labels_of(found)
    if repeated := [label for values, label in zip(found, labels, strict=True) if found.count(values) > 1]:
        raise UserError(f"{where}.vary: the cell {repeated[0]} appears more than once")
    if len(set(bases)) < len(bases):
        raise UserError(f"{where}.base: a model appears more than once")
    wanted = experiment.compare_with
    if wanted is not None and wanted not in found:
        raise UserError(f"{where}.compare_with = {wanted}: the values of a cell are expected; cells are {some(labels)}")
    named_after_base = bases != [experiment.base]  # a list or a group, even of one
    made, seeds = list[Cell](), range(1, experiment.seeds + 1)
    for base, (values, label), seed in itertools.product(bases, zip(found, labels, strict=True), seeds):
        of_base = f"{base}_" if named_after_base else ""
        made.append(Cell(f"{name}_{of_base}{label}_s{seed}", base, label, values, seed, values == wanted))
    return made


def labels_of(found: list[Values]) -> list[str]:
    """Return the names of cells, made of their values, and of their digest if an earlier cell has the same name."""
    labels: list[str] = []
    for values in found:
        label = "_".join(part_of_name(*item) for item in values.items()) or "base"
        digest = hashlib.sha256(canonical_json(values).encode()).hexdigest()
        labels.append(f"{label}_{digest[:8]}" if label in labels else label)
    return labels


def part_of_name(key: str, value: Any) -> str:
    """Return a key and its value as a part of a name: `ratio1o4` for train.hybrid_ratio: 1/4, `adamw` for an optimizer.

    A value that is a word stands for itself; before others stands the last word of the key.
    """
    word = key.rpartition(".")[2].rpartition("_")[2]
    text = text_of(value)
    if isinstance(value, bool) or value is None:
        text = word + {True: "On", False: "Off", None: "None"}[value]
    elif not text[:1].isalpha():
        text = word + text
    for sign, letter in (("/", "o"), (".", "p"), ("-", "m")):
        text = re.sub(rf"(?<=\d){re.escape(sign)}(?=\d)|(?<=e){re.escape(sign)}(?=\d)", letter, text)
    return re.sub(r"[^A-Za-z0-9]", "", text)[:LONGEST] or word


def text_of(value: Any) -> str:
    """Return a value as a user would write it in a name or a table."""
    if isinstance(value, list):
        return "x".join(map(text_of, value))
    if isinstance(value, dict):
        return "".join(f"{key}{text_of(each)}" for key, each in value.items())
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
