"""Models that are trained alike, in one run of Snakemake: one is trained, and the others wait for it without a GPU."""

import copy
import re

import pytest

from babelmill.config import loading
from babelmill.stages import leading_to
from conftest import SMALL, Workspace, write_texts
from helpers.results.finished import finish

pytestmark = pytest.mark.slow

CELLS = {"base": "eng", "vary": {"train.optimizer": ["lamb", "adamw"]}, "seeds": 2}
VALUES = copy.deepcopy(SMALL) | {"languages": {"eng": SMALL["languages"]["eng"]}, "experiments": {"cells": CELLS}}
TARGETS = "converted/eng", "experiments/cells"


@pytest.fixture
def work(folder) -> Workspace:
    """A workspace whose experiment has a cell that is the same as its base. Nothing has run."""
    write_texts(folder / "texts/eng", "eng", documents=3)
    (workspace := Workspace(folder)).configure(VALUES)
    return workspace


def waits_for(work: Workspace, *targets: str) -> dict[str, set[str]]:
    """Return {model: the trained models that its training waits for} of a dry run."""
    output = work.snakemake(*targets, "--dry-run").stdout
    trainings = re.findall(r"^rule train:\n    input: (.*)\n    output: results/models/(\w+)/", output, re.MULTILINE)
    return {model: {*re.findall(r"results/models/(\w+)/manifest", inputs)} for inputs, model in trainings}


def test_the_same_training_comes_after_the_first_one(work):
    """Which of them is the first does not matter."""
    others = {cell: set() for cell in ("cells_lamb_s2", "cells_adamw_s1", "cells_adamw_s2")}
    one, other = ({"eng": set(), "cells_lamb_s1": {"eng"}}, {"eng": {"cells_lamb_s1"}, "cells_lamb_s1": set()})
    assert waits_for(work, *TARGETS) in (one | others, other | others)
    assert waits_for(work, "experiments/cells") == {"cells_lamb_s1": set()} | others, "the base is not asked for"


def test_a_finished_model_stays_when_a_new_name_for_it_comes(work):
    """Whichever of them Snakemake looks at first."""
    work.configure(VALUES | {"models": {"aa": {"like": "eng"}, "zz": {"like": "eng"}}})
    finish(loading.load(), "eng")
    found = work.would_run(targets=("converted/aa", "converted/eng", "converted/zz"))
    assert {name for rule, name in found if rule == "train"} == {"aa", "zz"}
    assert "eng" not in {name for _, name in found}
    finish(loading.load(), "cells_lamb_s1", "cells_adamw_s1", stages=leading_to("train"))
    work.configure(VALUES | {"experiments": {"alpha": CELLS | {"seeds": 1}, "cells": CELLS}})
    trained = {
        name for rule, name in work.would_run(targets=("experiments/alpha", "experiments/cells")) if rule == "train"
    }
    assert trained == {"alpha_lamb_s1", "alpha_adamw_s1", "cells_lamb_s2", "cells_adamw_s2"}


def test_a_dry_run_names_the_trainings_that_are_only_linked(work, monkeypatch):
    """Those that are the same as one of this run, and those of models that are trained already."""
    monkeypatch.setenv("COLUMNS", "200")

    def said() -> list[str]:
        output = work.snakemake(*TARGETS, "--dry-run", "--logger", "babelmill").stdout
        return re.findall(r"^\d trainings? of these .*", output, re.MULTILINE)

    one = "1 training of these is not made again, but linked:"
    assert said() in ([f"{one} cells_lamb_s1 (as eng)"], [f"{one} eng (as cells_lamb_s1)"])
    work.configure(VALUES | {"experiments": {"earlier": CELLS}})
    finish(loading.load(), "earlier_adamw_s1", "eng", stages=leading_to("train"))
    work.configure(VALUES)
    same = "cells_adamw_s1 (as earlier_adamw_s1), cells_lamb_s1 (as eng)"
    assert said() == [f"2 trainings of these are not made again, but linked: {same}"]
