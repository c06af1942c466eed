"""Make what a challenge takes of a model: its files, checked by the challenge's rules (stage `submission`).

    python -m babelmill.submission results/settings/submission/eng.json --threads 2

This writes the files that the challenge takes into `submissions/eng/`, and `submissions/eng.json`, whose `figures` are
the numbers of the leaderboard, each with an interval, what is missing and why. Nothing is scored here: the predictions
and scores are those of the stage `score`. What the challenge would refuse is an error; what is missing counts 0 there,
and is listed here.
"""

import itertools
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.config.snapshots import FOLDER, about, names
from babelmill.config.submissions import METHODS, Rules
from babelmill.core import escape, manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder
from babelmill.core.stage_entry import Job
from babelmill.core.words import aligned, plural
from babelmill.evaluation.overlaps import lines_of_suite
from babelmill.reporting.published import beside
from babelmill.stages import SubmissionStage
from babelmill.suites.challenge import checks, files, leaderboard
from babelmill.suites.challenge.scored import Scored
from babelmill.suites.challenge.tuned import Tuned

log = logging.getLogger("babelmill.submission")


def rules_of(settings: SubmissionStage) -> Rules:
    """Return the rules in a settings file, in their order."""
    parts = {key: {name: settings.rules[key][name] for name in order} for key, order in settings.order.items()}
    return Rules.model_validate(settings.rules | parts)


class Submission:
    """A model's submission to a challenge, from the folders of its scores, before and after fine-tuning."""

    def __init__(self, settings: SubmissionStage, scores: list[Path], tuned: list[Path], converted: Path):
        self.settings, self.rules = settings, rules_of(settings)
        self._folders = {manifest.read(folder)["settings"]["suite"]: folder for folder in scores}
        method = METHODS[settings.backend]
        tasks = {name: self.rules.tasks[name] for name in self.rules.tasks if name in settings.codes}
        self.scored = {
            name: Scored(self._folders[task.suite], task, settings.codes[name], method)
            for name, task in tasks.items()
            if task.suite
        }
        self.fast = {
            name: Scored(self._folders[task.fast], task, settings.codes[name], method)
            for name, task in tasks.items()
            if task.fast and name not in settings.missing_at_checkpoints
        }
        about = {folder: manifest.read(folder)["settings"] for folder in tuned}
        of_parts = {f"{each['task']}.{each['seed']}": folder for folder, each in about.items()}
        self.tuned = {
            name: Tuned({task: of_parts[part] for task, part in parts.items()}, settings.codes[name])
            for name, parts in settings.tuned.items()
        }
        self.there = [name for name in names(converted) if name in settings.checkpoints]
        self.right: dict[str, dict[str, np.ndarray]] = {}

    def write(self, folder: Path) -> list[str]:
        """Write the files that the challenge takes into a folder; return what the challenge would refuse in them."""
        checkpoints, there, name = self.settings.checkpoints, set(self.there), self.settings.name
        if self.rules.form == "multilingual":
            scores, predictions = files.multilingual(self.rules, self.scored, self.fast, checkpoints, there, self.tuned)
            files.write_indented(folder / f"{name}_submission.json", scores)
            files.write_indented(folder / f"{name}_predictions.json", predictions)
            return checks.wrong_in_multilingual(scores, predictions, checkpoints)
        content, self.right = files.strict(self.rules, self.scored, self.fast, checkpoints, there, name, self.tuned)
        files.write_compact(folder / f"all_full_preds_and_fast_scores_{self.settings.backend}.json", content)
        return checks.wrong_in_strict(content, self.rules, checkpoints) + [
            line
            for task, scored in self.fast.items()
            for checkpoint, entry in scored.at_checkpoints().items()
            if checkpoint in checkpoints
            for line in checks.wrong_sizes_of_scores(task, scored.task, checkpoint, entry)
        ]

    def figures(self) -> dict[str, Any]:
        """Return the numbers of the leaderboard, and what is missing of the submission."""
        missing, counted = dict(self.settings.missing), dict(self.scored)
        for name, scored in self.scored.items():
            if scored.task.kind == "acquisition" and files.lacking_checkpoints(scored, self.settings.checkpoints):
                missing[name] = "the challenge takes it only with all checkpoints"
                del counted[name]
        found = leaderboard.numbers(self.rules, counted, self.right, missing, self.tuned)
        absent = [name for name in self.settings.checkpoints if name not in self.there]
        return {
            "challenge": self.settings.challenge,
            "track": self.settings.track,
            "backend": self.settings.backend,
            "state": self.rules.state,
            "leaderboard": leaderboard.overall(self.rules, found).as_json(),
            "numbers": {name: score.as_json() for name, score in found.items()},
            "titles": {name: each.title for name, each in self.rules.numbers.items()},
            "order": [*self.rules.numbers],
            "checkpoints": {"there": self.there, "missing": absent, "without": self.settings.missing_at_checkpoints},
            "published": beside(self.rules),
        }


def in_words(figures: dict[str, Any]) -> list[str]:
    """Return the numbers of a submission as lines of a table, and what is missing."""
    rows = [("", "score", "95 % interval")]
    for name in [*figures["order"], ""]:
        score = figures["numbers"][name] if name else figures["leaderboard"]
        title = figures["titles"][name] if name else "mean of all"
        if score["missing"] and score["score"] == 0:
            rows.append((title, "0", "missing"))
        else:
            low, high = score["interval"]
            rows.append((title, f"{score['score']:.2f}", f"{low:.2f} to {high:.2f}"))
    lines = aligned(rows, (False, True, False))
    lines += [f"missing, so it counts 0: {reason}" for reason in figures["leaderboard"]["missing"]]
    checkpoints = figures["checkpoints"]
    count = len(checkpoints["there"]) + len(checkpoints["missing"])
    lines.append(f"{len(checkpoints['there'])} of {plural(count, 'checkpoint')}")
    if checkpoints["missing"]:
        lines[-1] += f"; missing: {escape.some(checkpoints['missing'])}"
    return lines + [f"missing at the checkpoints: {name}: {why}" for name, why in checkpoints["without"].items()]


def run(job: Job[SubmissionStage]) -> None:
    """Make the files, check them, and write the summary."""
    settings, out = job.settings, job.out
    converted, train = settings.folder("converted"), settings.folder("train")
    scores, tuned = settings.folders("scores"), settings.folders("tuned")
    manifest.verify(converted)
    manifest.verify_upstream(converted, *scores, *tuned, train)
    submission = Submission(settings, scores, tuned, converted)
    with atomic_folder(out.with_suffix("")) as folder:
        refused = checks.wrong_in_card(converted) + submission.write(folder)
        if refused:
            shown = [*map(escape.line, refused[:3])]
            more = [f"and {len(refused) - 3:,} more"] if len(refused) > 3 else []
            raise UserError(f"the challenge would refuse this submission: {'; '.join(shown + more)}")
        written = [path.name for path in folder.iterdir()]
    figures = submission.figures() | {"read": words_of(train, converted, submission.there)}
    for line in in_words(figures):
        log.info("%s", line)
    for line in itertools.chain.from_iterable(map(lines_of_suite, scores)):
        log.warning("%s", line)
    if settings.own:
        log.warning(
            "not the challenge's own data: your settings define %s (suites: or tasks:), and the submission has the"
            " scores on these; give yours other names",
            escape.some(settings.own),
        )
    paths = [Path(out.stem, name) for name in sorted(written)]
    upstream = [converted, train, *scores, *tuned]
    figures["summary"] = f"{figures['leaderboard']['score']:.2f} on the leaderboard: {out.as_posix()}"
    manifest.write(out.parent, settings, paths, upstream, figures, name=out.name)


def words_of(model: Path, converted: Path, checkpoints: list[str]) -> dict[str, Any]:
    """Return how much text the model has read, and each checkpoint, as far as it is known."""
    figures = manifest.read(model)["figures"]
    return {
        "model": {unit: figures[unit] for unit in ("words", "tokens") if unit in figures},
        "checkpoints": {name: about(converted / FOLDER / name) for name in checkpoints},
    }


if __name__ == "__main__":
    sys.exit(stage_entry.main(SubmissionStage, run, __doc__))
