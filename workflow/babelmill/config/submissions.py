"""Define what a challenge takes, which numbers its leaderboard makes of it, and what a model has to submit.

`config/submissions/*.yaml` says what a challenge takes; a model names such a file (`submission:`, in a preset). The
sizes in it are those of the challenge's full data, so a test can have a file of its own, with small ones.
"""

import functools
from typing import Annotated, Any, Literal

from pydantic import Field

from babelmill.config.layers import (
    SUBMISSIONS,
    SUITES,
    TASKS,
    Layer,
    config_file,
    config_names,
    merge,
    nearest,
    validated,
)
from babelmill.config.models import OBJECTIVES
from babelmill.config.resolve import Configuration, ResolvedModel
from babelmill.config.schema import Names, Positive, Section, Snapshots, Text, Words, given
from babelmill.config.snapshots import points
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.yaml_file import read_yaml

METHODS = {"causal": "causal", "mlm": "masked"}  # the challenge's backends: the method whose scores each one has

Sizes = Positive | dict[str, Positive]


class Task(Section):
    """An entry of the file that the challenge takes. The first lines of `babylm_2026_strict.yaml` explain the keys."""

    kind: Literal["choices", "examples", "reading", "acquisition", "labels", "tags", "accuracy", "hidden"] = "choices"
    suite: Text | None = None
    tuned: Names = []
    language: Text = "eng"
    fast: Text | None = None
    prediction: Literal["option", "whole"] = "option"
    paradigms: dict[str, str] = {}
    sizes: Sizes = {}
    fast_sizes: Sizes = {}
    normalized: bool = False
    missing: str = ""

    def rules(self) -> dict[str, Any]:
        one = sum(map(bool, (self.suite, self.tuned, self.missing))) == 1
        return {"suite tuned missing: one of these says where the scores are from, or why there are none": one}

    def subtasks(self, fast: bool = False) -> dict[str, int]:
        """Return the subtasks and their sizes; {} if the task has no subtasks. `fast`: of the checkpoints."""
        full = self.sizes if isinstance(self.sizes, dict) else {}
        if not fast:
            return full
        return self.fast_sizes if isinstance(self.fast_sizes, dict) else dict.fromkeys(full, self.fast_sizes)


class LeaderboardNumber(Section):
    """A column of the leaderboard."""

    title: Text  # its name
    tasks: Annotated[list[str], Field(min_length=1)]  # the tasks whose mean it is
    published: Text | None = None  # the name of the task in `published.yaml`
    group: str = ""  # a language, or "": the leaderboard's number is the mean of the languages' means

    @property
    def language(self) -> str:
        """Return the language of its published scores."""
        return self.group or "eng"


class Rules(Section):
    """What a challenge takes."""

    title: Text  # its name for readers
    track: Text  # the name of the track in the challenge's own files
    # The most words that a model may read while it learns; a text that is read ten times counts ten times.
    words: Words
    state: Text  # the state of the challenge's programs that this follows
    form: Literal["strict", "multilingual"]  # which files the challenge takes
    checkpoints: Snapshots  # the checkpoints that it asks for, in millions of words
    protocols: list[str] = []  # the protocols in `published.yaml` whose scores stand beside the numbers
    tasks: dict[str, Task]  # the entries of its file
    numbers: Annotated[dict[str, LeaderboardNumber], Field(min_length=1)]  # the columns of its leaderboard

    def rules(self) -> dict[str, Any]:
        named = {task for each in self.numbers.values() for task in each.tasks}
        return {"numbers tasks: each number is of tasks in this file": named <= self.tasks.keys()}

    def points(self) -> list[float]:
        """Return the checkpoints up to the words that the challenge allows, in millions of words."""
        return [point for point in points(self.checkpoints) if 1e6 * point <= self.words]


@functools.cache
def read_rules(name: str) -> Rules:
    """Return the rules of a file of `config/submissions/`; raise a UserError for a mistake.

    A file may name another one which it is `like`.
    """
    path = config_file(f"{SUBMISSIONS}{name}.yaml")
    if not path.is_file():
        raise UserError(f"submission = {name!r}: there is no file {path}{nearest(name, config_names(SUBMISSIONS))}")
    values = read_yaml(path)
    if "like" in values:
        values = merge(read_yaml(config_file(f"{SUBMISSIONS}{values.pop('like')}.yaml")), values)
    return validated(Rules, values, [Layer(values, str(path))])


def rules_of_model(resolved: ResolvedModel) -> Rules | None:
    """Return what the challenge that a model is for takes; None if it is for none (`submission`)."""
    try:
        return read_rules(resolved.submission) if resolved.submission else None
    except UserError as error:
        raise UserError(f"{resolved.origins['submission']}: model {resolved.name}: {error}") from None


def numbers_of(resolved: ResolvedModel, name: str) -> list[str]:
    """Return the titles of the numbers of a model's leaderboard that a suite or a task of fine-tuning counts for."""
    found = list[str]()
    if not (rules := rules_of_model(resolved)):
        return found
    languages = {row.language_code for row in resolved.rows.values()}
    for number in rules.numbers.values():
        for task in (rules.tasks[each] for each in number.tasks):
            if task.language not in languages:
                continue
            if name in (task.suite, *task.tuned):
                found.append(number.title)
            elif name == task.fast:
                found.append(f"{number.title}, checkpoints")
    return found


def backend_of(resolved: ResolvedModel) -> str:
    """Return the backend whose scores a model submits: `evaluation.backend`, or the first one that it has; "" for none.

    The multilingual track takes causal scores alone.
    """
    rules = rules_of_model(resolved)
    if rules is None:
        return ""
    methods, asked = OBJECTIVES[resolved.train.objective].sentences, resolved.evaluation.backend
    taken = METHODS if rules.form == "strict" else ("causal",)
    return next((each for each in taken if METHODS[each] in methods and asked in (None, each)), "")


def refuse_submission(resolved: ResolvedModel) -> None:
    """Raise a UserError if a model is for no challenge, has read too much for it, or has no scores that it takes."""
    rules = rules_of_model(resolved)
    if rules is None:
        raise UserError(f"model {resolved.name} has no `submission`, as presets such as babylm_strict_small have it")
    if not backend_of(resolved):
        key = "evaluation.backend" if resolved.evaluation.backend else "train.objective"
        takes = "causal" if rules.form == "multilingual" else "causal or mlm"
        raise resolved.refused(key, f"{rules.title} takes scores that are {takes}")
    refuse_more_words(resolved)


def refuse_more_words(resolved: ResolvedModel) -> None:
    """Raise a UserError if a model, with those that it continues, may read more words than its challenge allows."""
    if not (rules := rules_of_model(resolved)):
        return
    chain = resolved.chain()
    if chain[-1].model.source:
        raise chain[-1].refused("model.source", f"{rules.title} allows a model of this workflow, or none")
    words = [each.train.max_words for each in chain]
    if None in words or sum(each or 0 for each in words) > rules.words:
        before = "".join(f", with {each.train.max_words} of model {each.name}" for each in chain[1:])
        raise resolved.refused("train.max_words", f"{rules.title} allows {rules.words:,} at most, in all{before}")


def submission_of(configuration: Configuration, model: str) -> dict[str, Any]:
    """Return the settings of the stage `submission`: the challenge's rules, and where the scores of each task are."""
    resolved = configuration.model(model)
    rules = rules_of_model(resolved)
    assert rules is not None
    codes, missing, tuned, without = dict[str, str](), dict[str, str](), dict[str, dict[str, str]](), dict[str, str]()
    own, named = {**configuration.top.suites, **configuration.top.tasks}, list[str | None]()
    for name, task in rules.tasks.items():
        code = next((code for code, row in resolved.rows.items() if row.language_code == task.language), "")
        first = {each: configuration.tuning(each).seeds[0] for each in task.tuned if each in resolved.tuned}
        jobs = {each: f"{each}.{seed}" for each, seed in first.items() if seed in resolved.seeds[each]}
        reasons = {
            f"the model does not learn {task.language}": not code,
            f"the model is not fine-tuned for {some(task.tuned)} as the challenge does it (evaluation.tasks)": (
                task.tuned and not jobs
            ),
            f"the model is not scored on {task.suite} (evaluation.suites)": (
                task.suite and task.suite not in resolved.scored
            ),
        }
        if why := task.missing or next((reason for reason, holds in reasons.items() if holds), ""):
            missing[name] = why
            continue
        codes[name] = code
        named += [task.suite, task.fast, *task.tuned]
        tuned |= {name: jobs} if jobs else {}
        if task.fast and task.fast not in resolved.evaluation.snapshot_suites:
            without[name] = f"its snapshots are not scored on {task.fast} (evaluation.snapshot_suites)"
    shipped = {*config_names(SUITES), *config_names(TASKS)}
    return {
        "backend": backend_of(resolved),
        "rules": rules.model_dump_json(exclude_defaults=True),
        "codes": codes,
        **given(tuned=tuned, own=[each for each in dict.fromkeys(named) if each in own and each in shipped]),
        "missing": missing,
        "missing_at_checkpoints": without,
    }
