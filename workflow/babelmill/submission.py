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

from babelmill.config.snapshots import FOLDER, about, names
from babelmill.config.submissions import METHODS, Rules
from babelmill.core import escape, manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder
from babelmill.core.stage_entry import Job
from babelmill.core.words import aligned, plural
from babelmill.reporting.published import beside
from babelmill.stages import SubmissionStage
from babelmill.suites import challenge
from babelmill.suites.challenge import Results, Scored, Tuned

log = logging.getLogger("babelmill.submission")


def results_of(settings: SubmissionStage, scores: list[Path], tuned: list[Path], converted: Path) -> Results:
    """Return what a model has for its challenge, from the folders of its scores, before and after fine-tuning."""
    rules = Rules.model_validate_json(settings.rules)
    folders = {manifest.read(folder)["settings"]["suite"]: folder for folder in scores}
    jobs = {"{task}.{seed}".format_map(manifest.read(folder)["settings"]): folder for folder in tuned}
    scored, fast = dict[str, Scored](), dict[str, Scored]()
    for name, code in settings.codes.items():
        task, how = rules.tasks[name], (rules.tasks[name], code, METHODS[settings.backend])
        if task.suite:
            scored[name] = Scored(folders[task.suite], *how)
        if task.fast and name not in settings.missing_at_checkpoints:
            fast[name] = Scored(folders[task.fast], *how)
    of_tuned = {
        name: Tuned({task: jobs[job] for task, job in parts.items()}, settings.codes[name])
        for name, parts in settings.tuned.items()
    }
    return Results(rules, scored, fast, of_tuned, frozenset(names(converted)))


def write(settings: SubmissionStage, of: Results, folder: Path) -> list[str]:
    """Write the files that the challenge takes into a folder; return what it would refuse in them."""
    if of.rules.form == "multilingual":
        scores, predictions = challenge.multilingual(of)
        challenge.write_file(folder / f"{settings.name}_submission.json", scores, indent=2)
        challenge.write_file(folder / f"{settings.name}_predictions.json", predictions, indent=2)
        there_are = any(predictions[part] for part in ("zeroshot", "finetune", "hidden"))
        return [] if there_are else ["no predictions: the model is scored on no suite or task of the challenge"]
    content = challenge.strict(of, settings.name)
    challenge.write_file(folder / f"all_full_preds_and_fast_scores_{settings.backend}.json", content)
    at_checkpoints = (challenge.wrong_at_checkpoints(of, name) for name in of.fast)
    return [*challenge.wrong_in_strict(content, of.rules), *itertools.chain.from_iterable(at_checkpoints)]


def figures_of(settings: SubmissionStage, of: Results) -> dict[str, Any]:
    """Return the numbers of the leaderboard, and what is missing of the submission."""
    found = challenge.numbers(of, settings.missing)
    return {
        "challenge": of.rules.title,
        "track": of.rules.track,
        "backend": settings.backend,
        "state": of.rules.state,
        "leaderboard": challenge.overall(of.rules, found).as_json(),
        "numbers": {name: {"title": each.title} | found[name].as_json() for name, each in of.rules.numbers.items()},
        "checkpoints": {
            "there": [name for name in of.checkpoints if name in of.there],
            "missing": [name for name in of.checkpoints if name not in of.there],
            "without": settings.missing_at_checkpoints,
        },
        "published": beside(of.rules),
    }


def in_words(figures: dict[str, Any]) -> list[str]:
    """Return the numbers of a submission as lines of a table, and what is missing."""
    rows = [("", "score", "95 % interval")]
    for score in (*figures["numbers"].values(), {"title": "mean of all"} | figures["leaderboard"]):
        if score["missing"] and score["score"] == 0:
            rows.append((score["title"], "0", "missing"))
        else:
            low, high = score["interval"]
            rows.append((score["title"], f"{score['score']:.2f}", f"{low:.2f} to {high:.2f}"))
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
    of = results_of(settings, scores, tuned, converted)
    with atomic_folder(out.with_suffix("")) as folder:
        if refused := [*challenge.wrong_in_card(converted), *write(settings, of, folder)]:
            more = f"; and {len(refused) - 3:,} more" if len(refused) > 3 else ""
            raise UserError(f"the challenge would refuse this submission: {escape.line('; '.join(refused[:3]))}{more}")
        written = sorted(path.name for path in folder.iterdir())
    figures = figures_of(settings, of)
    read, there = manifest.read(train)["figures"], figures["checkpoints"]["there"]
    figures["read"] = {
        "model": {unit: read[unit] for unit in ("words", "tokens") if unit in read},
        "checkpoints": {name: about(converted / FOLDER / name) for name in there},
    }
    for line in in_words(figures):
        log.info("%s", line)
    if settings.own:
        log.warning(
            "not the challenge's own data: your settings define %s (suites: or tasks:), and the submission has the"
            " scores on these; give yours other names",
            escape.some(settings.own),
        )
    upstream = [converted, train, *scores, *tuned]
    incomplete = sum(bool(each["missing"]) for each in figures["numbers"].values())
    lacking = f", {incomplete} of {len(figures['numbers'])} numbers incomplete" if incomplete else ""
    figures["summary"] = f"{figures['leaderboard']['score']:.2f} on the leaderboard{lacking}: {out.as_posix()}"
    manifest.write(out.parent, settings, [Path(out.stem, name) for name in written], upstream, figures, name=out.name)


if __name__ == "__main__":
    sys.exit(stage_entry.main(SubmissionStage, run, __doc__))
