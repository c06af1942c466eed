"""Decide which cells of an experiment are trained to the end, if it says `sweep: halving`.

The first seed of each cell is trained up to a third of its steps. The better half (rounded up), by bits per byte of the
validation text, goes on from there to two thirds and is halved again. What is left is trained to the end, and only
these cells get further seeds. (Successive halving: Karnin et al., 2013; Jamieson and Talwalkar, 2016.) The reference
cell always goes on, since the others are compared with it, and does not count for the halves. Cells that are as good as
the last one of the better half go on, too. Each base model has a race of its own.

A trial (rule `trial`) is the beginning of a training; a round is decided from the manifests of its trials (rule
`sweep`). A decision says what it was made from, so it is made again only if that changes:

    results/trials/{model}/{round}/manifest.json      bits per byte at 1/3 or 2/3 of the steps
    results/experiments/{experiment}/round{round}.json      what is asked: the cells of each race
    results/sweeps/{experiment}/round{round}.json      who goes on, who is dropped, and why
"""

import functools
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelmill.config.experiments import TRIALS, Cell
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UserError, read_json, write_json
from babelmill.file_times import FileTimes
from babelmill.stages import STAGES, TRIAL

ROUNDS = len(TRIALS) + 1
SWEEPS = Path("results/sweeps")
FINITE = sys.float_info.max
Race = list[dict[str, Any]]  # the cells of one base; of each `model`, `label` and `reference`


@dataclass
class Standing:
    """How far a sweep is."""

    decided: int = 0  # the number of rounds that are decided
    # The models that go on, first seeds only, in the order of the configuration.
    alive: list[str] = field(default_factory=list)
    # {model: (round, bits per byte)} of the others; the bits per byte are None if a loss was not finite.
    dropped: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)  # the decisions, as their files hold them

    @property
    def is_over(self) -> bool:
        return self.decided == len(TRIALS)

    def says(self, model: str) -> str | None:
        """Return in which round a model was dropped, and why; None if it was not."""
        if model not in self.dropped:
            return None
        number, value = self.dropped[model]
        return f"dropped in round {number} ({in_words(value)})"


def in_words(value: float | None) -> str:
    """Return the bits per byte of a trial as text."""
    return "its loss was not finite" if value is None else f"{value:.3f} bits per byte"


def settings_path(name: str, number: str) -> Path:
    """Return the file that says what a round is about."""
    return Path("results/experiments", name, f"round{number}.json")


def decision_path(name: str, number: str) -> Path:
    """Return the file of a decision."""
    return SWEEPS / name / f"round{number}.json"


def races_of(configuration: Configuration, name: str) -> list[Race]:
    """Return the races of a sweep, one for each base model; raise a UserError if its cells cannot be compared."""
    races: dict[str, list[Cell]] = {}
    for cell in configuration.cells[name]:
        if cell.seed == 1:
            races.setdefault(cell.base, []).append(cell)
    for cells in races.values():
        refuse(configuration, name, cells)
    return [
        [{"model": cell.name, "label": cell.label, "reference": cell.reference} for cell in cells]
        for cells in races.values()
    ]


def refuse(configuration: Configuration, name: str, cells: list[Cell]) -> None:
    """Raise a UserError if the bits per byte of the cells of a race cannot be compared, or there will be none."""
    where = f"{configuration.origin(f'experiments.{name}')}: experiments.{name}"
    first, kinds = cells[0], ("",)
    for cell in cells:
        train = configuration.model(cell.name).train
        if train.objective == "labels":
            raise UserError(
                f"{where}: sweep: halving compares bits per byte, and {cell.name} is a label model, which has none;"
                " set sweep: all"
            )
        scores = OBJECTIVES[train.objective].scores
        if cell is first:
            kinds = scores
        elif scores != kinds:
            raise UserError(
                f"{where}: sweep: halving: {first.label} ({' and '.join(kinds)}) and {cell.label}"
                f" ({' and '.join(scores)}) learn from different kinds of rows (train.objective), so their bits per"
                " byte cannot be compared; make them two experiments, or set sweep: all"
            )
        if train.max_steps is not None and train.max_steps < ROUNDS:
            raise UserError(
                f"{where}: sweep: halving stops after a third of the steps, and {cell.label} has only"
                f" {train.max_steps} (train.max_steps); train longer, or set sweep: all"
            )


def asked_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return what the decisions of a sweep are about, for their settings files."""
    return {"experiment": name, "races": races_of(configuration, name)}


def entrants(asked: dict[str, Any], earlier: dict[str, Any] | None) -> list[Race]:
    """Return the races of a round: all cells, or those that go on after the `earlier` decision."""
    if earlier is None:
        return asked["races"]
    on = {cell["model"] for race in earlier["races"] for cell in race if cell["goes_on"]}
    return [[cell for cell in race if cell["model"] in on] for race in asked["races"]]


def models_in(races: Iterable[Race]) -> list[str]:
    """Return the models of all races."""
    return [cell["model"] for race in races for cell in race]


def trial_of(model: str, number: str) -> dict[str, Any] | None:
    """Return what a decision needs to know of a trial; None if there is none."""
    folder = TRIAL.path(model, number)
    if not (folder / manifest.NAME).is_file():
        return None
    figures = manifest.read(folder)["figures"]
    return {key: figures[key] for key in ("fingerprint", "step", "steps", "bits_per_byte", "kinds")}


def made_with(asked: dict[str, Any], races: list[Race], number: str) -> dict[str, Any]:
    """Return what a decision is made from: what is asked, and the results of the trials."""
    return {"asked": asked, "trials": {model: trial_of(model, number) for model in models_in(races)}}


def going_on(race: Race, trials: dict[str, dict[str, Any]]) -> set[str]:
    """Return the models of a race that go on: the reference, the better half of the others, and ties with its last one.

    A cell whose loss was not finite does not go on, unless it is the reference.
    """
    values = {}
    for cell in race:
        found = trials[cell["model"]]["bits_per_byte"]
        values[cell["model"]] = math.inf if found is None else found
    others = sorted(values[cell["model"]] for cell in race if not cell["reference"])
    last = others[half(len(others)) - 1] if others else math.inf
    return {cell["model"] for cell in race if cell["reference"] or values[cell["model"]] <= min(last, FINITE)}


def half(count: int) -> int:
    """Return how many of so many cells are the better half."""
    return math.ceil(count / 2)


def expected(race: Race, count: int) -> int:
    """Return how many cells of a race go on when a round of `count` cells is decided, if no two are equally good."""
    references = sum(cell["reference"] for cell in race)
    return half(count - references) + references


def decide(asked: dict[str, Any], number: str, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Return the decision of a round; raise a UserError if a trial is missing, or nothing is left of a race."""
    races = entrants(asked, earlier)
    made = made_with(asked, races, number)
    if missing := [model for model, found in made["trials"].items() if found is None]:
        raise UserError(f"{TRIAL.path(missing[0], number)}: there is no such trial; run the workflow again")
    on = {model for race in races for model in going_on(race, made["trials"])}
    for race in races:
        if not on.intersection(cell["model"] for cell in race):
            raise UserError(
                f"experiments.{asked['experiment']}: the loss of no cell is finite"
                f" ({some([cell['label'] for cell in race])}); lower train.learning_rate, for example"
            )
    return {
        "experiment": asked["experiment"],
        "round": int(number),
        "rounds": ROUNDS,
        "races": [
            [cell | made["trials"][cell["model"]] | {"goes_on": cell["model"] in on} for cell in race] for race in races
        ],
        "made_with": made,
    }


def decision_of(name: str, number: str) -> dict[str, Any] | None:
    """Return the decision of a round as its file holds it; None if there is none."""
    path = decision_path(name, number)
    return manifest.read_sealed(path) if path.is_file() else None


def standing(configuration: Configuration, name: str) -> Standing:
    """Return how far a sweep is, by the decisions that fit the present configuration and trials."""
    asked = asked_of(configuration, name)
    found, earlier = Standing(alive=models_in(asked["races"])), None
    for number in TRIALS:
        decision = decision_of(name, number)
        if decision is None or decision["made_with"] != made_with(asked, entrants(asked, earlier), number):
            break
        for cell in (cell for race in decision["races"] for cell in race if not cell["goes_on"]):
            found.dropped[cell["model"]] = int(number), cell["bits_per_byte"]
        found.alive = [model for model in found.alive if model not in found.dropped]
        found.decided += 1
        found.rounds.append(decision)
        earlier = decision
    return found


def why_not_trained(configuration: Configuration, model: str) -> str | None:
    """Return in which round of its sweep a model was dropped; None for other models, and those that are trained anyway.

    A further seed is dropped with the first one.
    """
    if STAGES["train"].record(model, "").is_file():
        return None
    name = configuration.experiment_of(model)
    if name not in configuration.sweeps:
        return None
    cells = configuration.cells[name]
    cell = next(each for each in cells if each.name == model)
    first = next(each for each in cells if (each.base, each.label, each.seed) == (cell.base, cell.label, 1))
    return standing_now(configuration, name).says(first.name)


@functools.cache
def standing_now(configuration: Configuration, name: str) -> Standing:
    """Return `standing`, read once: for commands that show many models of a sweep at a moment."""
    return standing(configuration, name)


def survivors(configuration: Configuration, name: str, first: Iterable[str]) -> list[str]:
    """Return the models of a sweep, with all seeds, of the cells whose `first` seeds are trained to the end."""
    cells, names = configuration.cells[name], set(first)
    alive = {(cell.base, cell.label) for cell in cells if cell.name in names}
    return [cell.name for cell in cells if (cell.base, cell.label) in alive]


def write_settings(configuration: Configuration, name: str, number: str, models: list[str], times: FileTimes) -> Path:
    """Write the settings of all rounds of a sweep that differ from what is on disk; return the path of one.

    `models`: those that are tried in this round. `times` also sets the times of the files, so that Snakemake decides
    the round again if and only if its settings or trials differ from those that it was decided from.
    """
    asked, path = asked_of(configuration, name), settings_path(name, number)
    for each in TRIALS:  # all at once: Snakemake lists a folder only once
        if not (file := settings_path(name, each)).is_file() or read_json(file) != asked:
            write_json(file, asked)
    tried = set(models)
    races = [[cell for cell in race if cell["model"] in tried] for race in asked["races"]]
    decision = decision_of(name, number)
    outdated = decision is not None and decision["made_with"] != made_with(asked, races, number)
    times.obey_decision(path, models, number, decision_path(name, number), outdated)
    return path


def refuse_unknown(configuration: Configuration, name: str, number: str) -> None:
    """Raise a UserError if there is no such sweep or round."""
    if name not in configuration.sweeps or number not in TRIALS:
        raise UserError(
            f"there is no round {number} of a sweep {name!r}; the experiments with `sweep: halving` are"
            f" {some(configuration.sweeps) if configuration.sweeps else 'none'}"
        )
