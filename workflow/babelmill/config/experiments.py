"""Turn the entries of `experiments:` into models: the cells of each experiment, once per seed.

A cell is a combination of the values that vary. Each cell and seed is a model of its own, which inherits everything
else from the base (`like:`). So cells are trained, listed and explained like all models.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

from babelmill.config.layers import nearest_key, sure_keys
from babelmill.config.schema import MODEL_SECTIONS, SECTIONS, Experiment
from babelmill.config.values import typed
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, canonical_json

LONGEST = 24  # characters of a value in a name
Values = dict[str, Any]  # by dotted key


@dataclasses.dataclass(frozen=True)
class Cell:
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
            *sections, last = key.split(".")
            section = entry
            for each in sections:
                section = section.setdefault(each, {})
            section[last] = value
        return entry


def combinations(vary: dict[str, list[Any]] | list[Values]) -> list[Values]:
    """Return the values of each cell: all combinations of a grid, or the mappings of a list as they stand."""
    if isinstance(vary, list):
        return vary
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def cells(name: str, experiment: Experiment, bases: list[str], where: str) -> list[Cell]:
    """Return all models of an experiment, by base (with batches expanded), cell and seed; `where` begins errors.

    A UserError says that it has too many models, that a key cannot vary, or that `compare_with` is no cell.
    """
    vary = experiment.vary
    if len(set(bases)) < len(bases):
        raise UserError(f"{where}.base: {next(base for base in bases if bases.count(base) > 1)} stands there twice")
    count = len(vary) if isinstance(vary, list) else 1
    for values in vary.values() if isinstance(vary, dict) else ():
        count *= len(values)
    if (total := count * experiment.seeds * len(bases)) > experiment.limit:
        raise UserError(
            f"{where}: {count:,} cells x {experiment.seeds} seeds x {len(bases)} base models are {total:,} models; if"
            f" you want so many, set experiments.{name}.limit: {total}"
        )
    found = combinations(vary)
    for values in found:
        for key in values:
            check_key(key, where)
    labels = labels_of(found)
    for i, values in enumerate(found):
        if values in found[:i]:
            raise UserError(f"{where}: vary: the cell {labels[found.index(values)]} stands there twice")
    reference = compared_with(found, labels, experiment.compare_with, where)
    several = bases != [experiment.base]  # a list or a batch, even of one
    return [
        Cell(
            name="_".join([name, *([base] if several else []), label, f"s{seed}"]),
            base=base,
            label=label,
            values=values,
            seed=seed,
            reference=label == reference,
        )
        for base in bases
        for values, label in zip(found, labels, strict=True)
        for seed in range(1, experiment.seeds + 1)
    ]


def check_key(key: str, where: str) -> None:
    """Raise a UserError if a key cannot vary within an experiment."""
    section, _, inner = key.partition(".")
    known = {
        "preset",
        "recipe",
        *(f"{name}.{inner}" for name in MODEL_SECTIONS for inner in SECTIONS[name].model_fields),
    }
    if section in ("run", "resources", "card", "predict", "publish"):
        raise UserError(f"{where}: vary: {key}: this key changes no result, so the cells would all be the same")
    if section == "corpus":
        raise UserError(
            f"{where}: vary: {key}: a corpus belongs to its language, so it is the same for all models; define two"
            " languages with different corpora, and give both as `base`"
        )
    if key == "train.seed":
        raise UserError(f"{where}: vary: {key}: seeds are no cells; set `seeds`")
    if key not in known and not key.startswith("model.config."):
        there = SECTIONS[section].model_fields if section in MODEL_SECTIONS else {}
        meant = [f"{section}.{each}" for each in sure_keys(inner, there)]
        raise UserError(f"{where}: vary: unknown key {key}{nearest_key(key, meant or known)}")


def labels_of(found: list[Values]) -> list[str]:
    """Return the names of cells, made of their values, and of their digest if an earlier cell has the same name."""
    labels: list[str] = []
    for values in found:
        label, digits = "_".join(part_of_name(*item) for item in values.items()) or "base", 4
        digest = hashlib.sha256(canonical_json(values).encode()).hexdigest()
        name = label
        while name in labels and digits <= len(digest):
            name, digits = f"{label}_{digest[:digits]}", digits + 4
        labels.append(name)
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


def compared_with(found: list[Values], labels: list[str], wanted: Values | None, where: str) -> str | None:
    """Return the label of the cell that the others are compared with; None if the experiment names none.

    It is the cell with exactly the values that `wanted` has, or else the only one that has them.
    """
    if wanted is None:
        return None

    def meant(value: Any) -> str:
        with contextlib.suppress(ValueError):  # of words such as `no`, which are no booleans here
            return text_of(typed(value))  # 1e-3 is 0.001
        return text_of(value)

    texts = [{key: meant(value) for key, value in values.items()} for values in [*found, wanted]]
    fitting = [label for label, values in zip(labels, texts, strict=False) if values == texts[-1]]
    fitting = fitting or [
        label for label, values in zip(labels, texts, strict=False) if texts[-1].items() <= values.items()
    ]
    if len(fitting) != 1:
        given = line(", ".join(f"{key}: {text_of(value)}" for key, value in wanted.items()), 200)
        problem = f"fits {len(fitting)} cells ({some(fitting)}); name all keys" if fitting else "is no cell"
        raise UserError(f"{where}: compare_with: {{{given}}} {problem}; the cells are {some(labels)}")
    return fitting[0]


def refuse_equal(cells: Iterable[Cell], settings: Callable[[str], Any], where: str) -> None:
    """Raise a UserError if two cells come to the same settings; `settings` returns those of a model."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if cell.seed == 1:
            key = (cell.base, canonical_json(settings(cell.name)))
            if key in seen:
                raise UserError(
                    f"{where}: the cells {seen[key].label} and {cell.label} have the same settings; leave one out"
                )
            seen[key] = cell
