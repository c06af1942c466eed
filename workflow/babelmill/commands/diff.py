"""Name the settings in which two models differ.

    babelmill diff eng eng_big

The settings of a model are those that its results were made with, stage by stage; for a stage without results, they are
those of the present configuration. The first lines say which. Settings that change no result (the sections run,
resources, card, publish) are left out. `babelmill compare` compares the scores.
"""

import argparse
from typing import Any

from babelmill.commands.progress.recorded_settings import Values, differences, shown, values_in
from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.config.suites import suites_of_model
from babelmill.core import manifest
from babelmill.core.escape import line, some
from babelmill.core.words import aligned
from babelmill.settings import settings_of
from babelmill.stages import STAGES

LONGEST = 60  # characters of a value
# The first stage that has a section decides on it: others leave out what they do not read.
OF_MODEL = ("train", "tokenizer", "export", "evaluate")
OF_SCORE = {"pairs": "all", "masked_pairs": "all", "snapshots": False}  # keys of `evaluation`, and their neutral values


class Settings:
    """The settings of a model, and those of the corpus of each of its languages."""

    def __init__(self, configuration: Configuration, name: str) -> None:
        """Read the settings of a model; raise a UserError if neither results nor the configuration have it."""
        self.name = name
        self.made: list[str] = []  # the stages whose settings are those of their results
        self.planned: list[str] = []  # the stages whose settings are those of the configuration
        self._configuration = configuration
        trained = STAGES["train"].record(name, "")
        if trained.is_file():
            self.languages: list[str] = manifest.read(trained)["settings"]["languages"]
        else:
            self.languages = list(configuration.languages_of(name))
        self.values: Values = {"languages": self.languages}
        for stage in OF_MODEL:
            self.values = self._of_stage(stage, name, "") | self.values
        self.corpora = {code: self._of_stage("corpus", code, code) for code in self.languages}
        self._add_scores()

    def _of_stage(self, stage: str, name: str, part: str) -> Values:
        """Return the values of a stage; {} if it has no results, and the configuration has no such model."""
        if (record := STAGES[stage].record(name, part)).is_file():
            written, kind = manifest.read(record)["settings"], self.made
        elif self._configuration.is_model(name):
            settings_name = STAGES[stage].settings_name(part)
            written, kind = settings_of(self._configuration, name, settings_name), self.planned
        else:
            return {}
        kind.append(f"{stage} of {name}" if name != self.name else stage)
        return values_in(stage, written) | {f"version of {stage}": written["version"]}

    def _add_scores(self) -> None:
        """Add the suites, and how many pairs of them are scored."""
        folder = STAGES["score"].path(self.name, "x").parent
        scored = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{manifest.NAME}"))}
        if scored:
            self.made.append("score")
            written: dict[str, Any] = {}
            for path in scored.values():
                written = manifest.read(path)["settings"]
            found: Values = {"suites": sorted(scored)} | {
                key: written.get(key, usual) for key, usual in OF_SCORE.items()
            }
        elif self._configuration.is_model(self.name):
            evaluation = self._configuration.model(self.name).evaluation
            found = {"suites": sorted(suites_of_model(self._configuration, self.name))}
            found |= {key: getattr(evaluation, key) for key in OF_SCORE}
        else:
            found = {}
        self.values |= {f"evaluation.{key}": value for key, value in found.items()}

    def origin(self) -> str:
        if not self.made:
            return f"{self.name}: from the configuration (no results)"
        planned = f", and from the configuration ({some(self.planned)})" if self.planned else ""
        return f"{self.name}: from the results ({some(self.made)}){planned}"


def all_differences(first: Settings, second: Settings) -> dict[str, tuple[Any, Any]]:
    """Return {key: (value of the first, value of the second)} of all settings that differ.

    The corpora of languages that only one of the models has are not compared, unless each model has one language.
    """
    found = differences(first.values, second.values)
    if len(first.corpora) == 1 == len(second.corpora):
        return found | differences(*(next(iter(each.corpora.values())) for each in (first, second)))
    for code in [code for code in first.corpora if code in second.corpora]:
        changed = differences(first.corpora[code], second.corpora[code])
        found |= {f"{code}: {key}": pair for key, pair in changed.items()}
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("first", metavar="MODEL", help="a model of this folder")
    parser.add_argument("second", metavar="OTHER", help="another one")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print where the settings of two models are from, and the keys in which they differ."""
    configuration = loading.from_arguments(args)
    first, second = (Settings(configuration, name) for name in (args.first, args.second))
    print(first.origin(), second.origin(), sep="\n")
    found = all_differences(first, second)
    if not found:
        print("no setting differs")
        return
    rows = [("", first.name, second.name)]
    rows += [(key, *(line(shown(value), LONGEST) for value in pair)) for key, pair in found.items()]
    print(*aligned(rows, [False, False, False]), sep="\n")
