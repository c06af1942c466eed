"""Fine-tune an exported model for a task with one seed, and score its predictions (stage `tune`).

    python -m babelmill.tune results/settings/tune/rte_eng-5be1d6a3f0.json --threads 2

This writes `predictions.parquet` (one row per test row, or per word), `scores.json` and `manifest.json`. A model of
several languages is tuned for each language alone, if the task is not `joint`. `tasks/tuner.py` has the training. The
tuned weights are kept only with `evaluation.keep_tuned`.

An attempt that was killed is continued from the last epoch that was over, with the same result.
"""

import hashlib
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.special import softmax
from transformers import set_seed

from babelmill.config.entries import Tuning
from babelmill.core import escape, manifest, stage_entry
from babelmill.core.files import UserError, atomic_write, canonical_json, write_json
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.release.folder.loading import begin, runs_code, tokenizer_of
from babelmill.runtime.run_lock import locked
from babelmill.stages import TuneStage
from babelmill.tasks import heads, metrics
from babelmill.tasks.encoding import NONE, Encoder, Padding, Row, pad, spread, targets
from babelmill.tasks.rows import PREDICTED, classes_of
from babelmill.tasks.tuner import Tuner, held_out
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

SHARES_SEED = 42  # of the order of rows of several languages, as in the multilingual track

log = logging.getLogger("babelmill.tune")


def longest_of(model: Any, export: Path, how: Tuning) -> int:
    """Return how many tokens a row may have: as many as the protocol allows, and the model has positions for."""
    limit = None if runs_code(export) else longest_row(model.encoder)
    return min(how.longest, limit) if limit and limit > 0 else how.longest  # XLNet says -1: it has no limit


def try_out(model: Any, export: Path, rows: list[Row], padding: Padding) -> None:
    """Compute one row. Raise a UserError if the model cannot, or lacks a token that the tokenizer has.

    This takes a second, and the training may take hours.
    """
    known = getattr(model.encoder.config, "vocab_size", None)
    highest = max(padding.token, *(max(row.tokens["input_ids"]) for row in rows))
    if known is not None and highest >= known:
        raise UserError(
            f"{export}: its tokenizer has a token {highest}, but the model has only {known} (vocab_size); put the"
            " tokenizer there that the model was trained with"
        )
    with heads.refusing(export), torch.no_grad():
        model.eval()(**pad(rows[:1], padding))


def equal_shares(parts: list[list[Row]]) -> list[Row]:
    """Return as many rows of each part as the smallest one has, mixed, as the multilingual track does it."""
    least = min(map(len, parts))

    def mixed(rows: list[Row]) -> list[Row]:
        return [rows[number] for number in np.random.default_rng(SHARES_SEED).permutation(len(rows))]

    return mixed([row for part in parts for row in (mixed(part)[:least] if len(part) > least else part)])


def tune_languages(
    settings: TuneStage, made_of: dict[str, Any], tasks: dict[str, Path], checkpoints: Path, keep_in: Path
) -> dict[str, tuple[dict[str, Any], dict[str, pa.Table]]]:
    """Tune the model for one language, or for several at once: {language: (its scores, its tables by their files)}.

    `made_of`: what the model is. `tasks`: {language: the folder of its rows}. `checkpoints` keeps what killed attempts
    did; `keep_in` is the folder for tuned weights, if they are kept.
    """
    export = settings.folder("export")
    how = Tuning.model_validate(settings.tuning | {"seeds": [settings.seed]})
    abouts = [manifest.verify(task) for task in tasks.values()]
    classes = classes_of([name for about in abouts for name in about["figures"]["classes"]])
    tokenizer = tokenizer_of(export)
    filler = next((each for each in (tokenizer.pad_token_id, tokenizer.eos_token_id) if each is not None), 0)
    tagging = settings.kind == "tagging"
    log.info("loading the model; %s scores each epoch", settings.metric)
    set_seed(settings.seed)
    with heads.refusing(export):
        eos = tokenizer.eos_token_id if how.config_padding == "eos" else None
        model = heads.model_of(export, how, len(classes), filler if eos is None else eos, tagging)
    if how.shuffle == "epoch":
        set_seed(settings.seed)  # once more, as the Trainer does when it is made
    longest = longest_of(model, export, how)
    numbers = {name: number for number, name in enumerate(classes)}
    encoder = Encoder(tokenizer, numbers, longest, how, model.reads_types)
    log.info("reading the rows of %s", " ".join(tasks))
    with heads.refusing(export):
        trains, tests = ([encoder.rows(task, split) for task in tasks.values()] for split in ("train", "test"))
    train = trains[0] if len(tasks) == 1 else equal_shares(trains)
    cuts = [sum(row.cut for row in first + second) for first, second in zip(trains, tests, strict=True)]
    batch = 1 if how.held_out else how.test_batch or 1
    scored = [test[: len(test) // batch * batch] for test in tests]  # without an incomplete batch
    if not all(scored):
        raise UserError(f"tasks.{settings.task}: tuning.test_batch = {batch}: as many test rows are expected, at least")
    most = int(np.bincount(targets(train)).argmax())
    chosen = [row for rows in scored for row in rows]
    if how.held_out:
        kept, judging = held_out(len(train), how.held_out, settings.seed)
        train, chosen = [train[number] for number in kept], [train[number] for number in judging]
    if sum(cuts):
        log.warning("%s cut at the end: they have more than %d tokens", plural(sum(cuts), "row"), longest)
    padding = Padding(filler, how.padding == "left", longest if how.same_length else None)
    try_out(model, export, [*train, *(row for test in tests for row in test)], padding)

    def judge(logits_of: Callable[[Sequence[Row]], np.ndarray]) -> float:
        return metrics.value(settings.metric, *labels_and_answers(chosen, logits_of(chosen)), classes, tagging)

    content = canonical_json([settings.raw, made_of, *(about["files"] for about in abouts)])
    of_run = checkpoints / hashlib.sha256(content.encode()).hexdigest()[:16]
    tuner = Tuner(model, how, settings.seed, train, judge, padding, of_run, scoring_device())
    tuner.run()
    found = {}
    for (code, task), about, rows, test, cut in zip(tasks.items(), abouts, scored, tests, cuts, strict=True):
        log.info("predicting %s of %s", plural(len(rows), "row"), code)
        logits = tuner.predict(rows)
        tables = {"predictions.parquet": predictions_of(code, classes, rows, logits, tagging)}
        if (name := f"{PREDICTED}.parquet") in about["files"]:
            others = encoder.rows(task, PREDICTED)
            tables[name] = predictions_of(code, classes, others, tuner.predict(others), tagging)
        scores = {
            **scores_of(settings, classes, most, rows, logits),
            "epoch": tuner.epoch,
            "epochs": len(tuner.scores),
            "steps": tuner.step,
            "chosen_by": "held-out rows" if how.held_out else "test rows" if how.select == "best" else "last epoch",
            "scores_of_epochs": tuner.scores,
            "rows": {"train": len(train), "chosen_by": len(chosen), "scored": len(rows), "test": len(test)},
            "cut": cut,
            **{key: about["figures"][key] for key in ("test_rows_in_train", "test_rows_without_text")},
        }
        found[code] = scores, tables
    if settings.keep:
        heads.save(model, tokenizer, keep_in / (next(iter(tasks)) if len(tasks) == 1 else "joint"), classes)
    return found


def labels_and_answers(rows: list[Row], logits: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the classes of each text, or of the words of each sentence, and the predicted ones."""
    return [row.labels for row in rows], spread(rows, logits.argmax(1), NONE)


def predictions_of(code: str, classes: list[str], rows: list[Row], logits: np.ndarray, tagging: bool) -> pa.Table:
    """Return one row per test row or word: its label, the predicted one, and the probability of that one.

    Words also have the number of their sentence; a word without a prediction has null.
    """
    chances = softmax(logits.astype(np.float64), axis=1).max(1)
    names, labels = pa.array([*classes, None], pa.string()), np.concatenate([row.labels for row in rows])
    told = np.concatenate(spread(rows, logits.argmax(1), len(classes)))
    probability = np.concatenate(spread(rows, chances, np.nan))
    columns = {
        "language": pa.array([code] * len(labels), pa.string()),
        "row": np.arange(len(labels)),
        "label": names.take(pa.array(labels)),
        "prediction": names.take(pa.array(told)),
        "probability": pa.array(probability, mask=np.isnan(probability)),
    }
    if tagging:
        columns["sentence"] = np.repeat(np.arange(len(rows)), [len(row.labels) for row in rows])
    return pa.table(columns)


def scores_of(
    settings: TuneStage, classes: list[str], most: int, rows: list[Row], logits: np.ndarray
) -> dict[str, Any]:
    """Return the scores of the predictions for one language, as scores.json holds them.

    Beside each score is that of the class `most`, the most frequent one of the training rows. Most words are in no
    name: a tagger that finds few names is not said to have learned nothing, if what it finds is right.
    """
    tagging = settings.kind == "tagging"
    labels, told = labels_and_answers(rows, logits)
    simple = [np.full_like(each, most) for each in labels]
    of_words = ["accuracy", *(["span_f1"] if metrics.are_spans(classes) else [])]
    found = {
        metric: metrics.entry(metric, labels, told, classes, tagging)
        | {"most_frequent": metrics.value(metric, labels, simple, classes, tagging)}
        for metric in (of_words if tagging else ("accuracy", "f1", "mcc"))
    }
    reached = np.concatenate([row.reached for row in rows])
    same = metrics.majority(logits.argmax(1), np.concatenate(labels)[reached], classes)
    if tagging:
        if same and found["accuracy"]["score"] > same["share"]:
            same = None
        if missing := int((~reached).sum()):
            log.warning("%s without a token, or cut off, count as wrong", plural(missing, "word"))
        found["accuracy"]["without_prediction"] = missing
    return {**found[settings.metric], "metrics": found, "classes": classes, "majority": same}


def tune(settings: TuneStage, checkpoints: Path, out: Path) -> None:
    """Tune a model for each language of a task, and write the results to the folder `out`."""
    found: dict[str, tuple[dict[str, Any], dict[str, pa.Table]]] = {}
    began, pairs = time.monotonic(), [*zip(settings.covered, settings.folders("tasks"), strict=True)]
    made_of = settings.origin or manifest.verify(settings.folder("export"))["files"]
    with locked(checkpoints, "another process that tunes the same"):
        (out / manifest.NAME).unlink(missing_ok=True)  # that of earlier results, beside files that will be new
        shutil.rmtree(out / "model", ignore_errors=True)
        for together in [pairs] if settings.joint else [[pair] for pair in pairs]:
            found |= tune_languages(settings, made_of, dict(together), checkpoints, out / "model")
        languages = {code: scores for code, (scores, _) in found.items()}
        steps = sum(scores["steps"] for scores in languages.values()) // (len(languages) if settings.joint else 1)
        out.mkdir(parents=True, exist_ok=True)
        names = list(dict.fromkeys(name for _, tables in found.values() for name in tables))
        for name in names:
            parts = [tables[name] for _, tables in found.values() if name in tables]
            with atomic_write(out / name) as file:
                pq.write_table(pa.concat_tables(parts), file, compression="zstd")
        about = {key: getattr(settings, key) for key in ("task", "protocol", "metric", "seed")}
        write_json(out / "scores.json", about | {"languages": languages})
        kept = sorted(path.relative_to(out) for path in (out / "model").rglob("*") if path.is_file())
        device = torch.cuda.get_device_name() if scoring_device().type == "cuda" else "cpu"
        shown = ", ".join(in_words(code, each) for code, each in languages.items())
        summary = f"{settings.metric}: {shown}; {plural(steps, 'step')}"
        about = {"seconds": round(time.monotonic() - began, 1), "steps": steps, "device": device, "summary": summary}
        upstream = [*([] if settings.origin else settings.folders("export")), *settings.folders("tasks")]
        manifest.write(out, settings, [*names, "scores.json", *kept], upstream, about)
    log.info("%s, seed %d, %s", settings.task, settings.seed, summary)
    shutil.rmtree(checkpoints, ignore_errors=True)


def in_words(code: str, scores: dict[str, Any]) -> str:
    """Return the score of a language beside that of the most frequent class, and whether it is the only answer."""
    same = f", always {escape.line(scores['majority']['class'])}" if scores["majority"] else ""
    return f"{code} {100 * scores['score']:.1f} (most frequent class {100 * scores['most_frequent']:.1f}{same})"


def run(job: Job[TuneStage]) -> None:
    """Tune, score and write the results."""
    begin(job)
    tune(job.settings, job.unfinished, job.out)


if __name__ == "__main__":
    sys.exit(stage_entry.main(TuneStage, run, __doc__))
