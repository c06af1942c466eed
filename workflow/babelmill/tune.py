"""Fine-tune an exported model for a task with one seed, and score its predictions (stage `tune`).

    python -m babelmill.tune results/settings/tune/rte_eng-5be1d6a3f0.json --threads 2

This writes `predictions.parquet` (one row per test row, or per word), `scores.json` and `manifest.json`. A model of
several languages is tuned for each language alone, if the task is not `joint`. `tasks/tuner.py` has the training. The
tuned weights are kept only with `evaluation.keep_tuned`.

An attempt that was killed is continued from `--checkpoints`, with the same result.
"""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.special import softmax
from transformers.utils.logging import disable_progress_bar

from babelmill.config.entries import Tuning
from babelmill.core import escape, manifest, stage_entry
from babelmill.core.files import UserError, atomic_write, canonical_json, write_json
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.release.folder.loading import runs_code, tokenizer_of
from babelmill.runtime import gpu_claims
from babelmill.runtime.run_lock import Lock
from babelmill.runtime.slurm import EXIT_CODE, Stop
from babelmill.stages import TuneStage
from babelmill.tasks import metrics
from babelmill.tasks.classes import classes_of
from babelmill.tasks.classifier import OwnClassifier, PooledClassifier, refusing
from babelmill.tasks.resplit import PREDICTED
from babelmill.tasks.sentences import NONE, EncodedSentences, encode_sentences
from babelmill.tasks.spans import are_spans
from babelmill.tasks.tagger import OwnTagger, PooledTagger
from babelmill.tasks.tuner import EncodedRows, Outcome, Padding, Tuner, encode, held_out, set_seed
from babelmill.tokens.tokenizer_file import use_threads
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

OTHER_METRICS = ("accuracy", "f1", "mcc")
SHARES_SEED = 42  # of the order of rows of several languages, as in the multilingual track

AnyRows = EncodedRows | EncodedSentences

log = logging.getLogger("babelmill.tune")


def classifier_of(folder: Path, how: Tuning, classes: int, pad: int, kind: str = "") -> torch.nn.Module:
    """Return the model of a folder with a new head for texts, or with the kind "tagging" for words.

    Its config is told that `pad` is padding, unless the protocol has the challenge's head.
    """
    if kind == "tagging":
        if how.head == "challenge":
            return PooledTagger(folder, classes, how.dropout)
        return OwnTagger(folder, classes, pad, how.pooling)
    if how.head == "challenge":
        return PooledClassifier(folder, classes, how.pooling, how.dropout)
    return OwnClassifier(folder, classes, pad)


def longest_of(model: Any, export: Path, how: Tuning) -> int:
    """Return how many tokens a row may have: as many as the protocol allows, and the model has positions for."""
    limit = None if runs_code(export) else longest_row(model.encoder)
    return min(how.longest, limit) if limit and limit > 0 else how.longest  # XLNet says -1: it has no limit


def check_tokens(model: Any, export: Path, pad: int, *rows: AnyRows) -> None:
    """Raise a UserError if the tokenizer has a token that the model does not have."""
    known = getattr(model.encoder.config, "vocab_size", None)
    highest = max(pad, *(max(map(max, split.ids)) for split in rows))
    if known is not None and highest >= known:
        raise UserError(
            f"{export}: its tokenizer has a token {highest}, but the model has only {known} (vocab_size); put the"
            " tokenizer there that the model was trained with"
        )


def try_out(model: torch.nn.Module, export: Path, rows: AnyRows, padding: Padding) -> None:
    """Compute one row. Raise a UserError if the model cannot: this takes a second, and the training may take hours."""
    with refusing(export), torch.no_grad():
        model.eval()(*rows.batch([0], padding))


def rows_of(folder: Path, split: str, tokenizer: Any, classes: list[str], longest: int) -> EncodedRows:
    """Return the rows of a split of a task, as the model reads them; see `refuse_empty`."""
    table = pq.ParquetFile(folder / f"{split}.parquet").read()
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.array([numbers[label] for label in table["label"].to_pylist()], np.int64)
    found = encode(tokenizer, table["text"].to_pylist(), table["pair"].to_pylist(), labels, longest)
    refuse_empty(found, folder, split)
    return found


def sentences_of(
    folder: Path, split: str, tokenizer: Any, classes: list[str], longest: int, how: Tuning
) -> EncodedSentences:
    """Return the sentences of a split of a task, as the model reads them; see `refuse_empty`."""
    table = pq.ParquetFile(folder / f"{split}.parquet").read()
    words, labels = (table[name].to_pylist() for name in ("words", "labels"))
    found = encode_sentences(tokenizer, words, labels, classes, longest, how.words_cut == "left_out")
    refuse_empty(found, folder, split)
    return found


def refuse_empty(rows: AnyRows, folder: Path, split: str) -> None:
    """Raise a UserError if the model's tokenizer makes no token of a row, not even a special one."""
    if [] in rows.ids:
        raise UserError(
            f"{folder}: row {rows.ids.index([]) + 1} of the split {split} is empty, or the model's tokenizer makes no"
            " token of it; correct the files of the task"
        )


def equal_shares(parts: list[AnyRows]) -> AnyRows:
    """Return as many rows of each part as the smallest one has, mixed, as the multilingual track does it."""
    least = min(map(len, parts))

    def mixed(rows: int) -> list[int]:
        return np.random.default_rng(SHARES_SEED).permutation(rows).tolist()

    found = one_after_another([p.chosen(mixed(len(p))[:least]) if len(p) > least else p for p in parts])
    return found.chosen(mixed(len(found)))


def one_after_another(parts: list[AnyRows]) -> AnyRows:
    """Return the rows of all parts, in this order."""
    return functools.reduce(lambda before, after: before.and_those_of(after), parts)  # pyright: ignore


class Tuned(NamedTuple):
    """What the fine-tuning for a language gives: rows of predictions.parquet and predicted.parquet, and its scores."""

    predictions: pa.Table
    predicted: pa.Table | None
    scores: dict[str, Any]


def tune_languages(
    export: Path,
    made_of: Any,
    settings: TuneStage,
    tasks: dict[str, Path],
    checkpoints: Path,
    keep_in: Path,
    stop: Stop,
) -> tuple[list[Tuned], float] | None:
    """Tune the model for the rows of one language, or for those of several at once.

    `tasks`: {language: the folder of its rows}. `made_of` says what its weights are, as JSON; `checkpoints` keeps what
    killed attempts did; `keep_in` is the folder for tuned weights, if they are kept. Return what it gives for each
    language, and the seconds that it took; None if there was a reason to leave earlier.
    """
    how = Tuning.model_validate(settings.tuning | {"seeds": [settings.seed]})
    abouts = [manifest.verify(task) for task in tasks.values()]
    classes = classes_of([name for about in abouts for name in about["figures"]["classes"]])
    tokenizer = tokenizer_of(export)
    pad = next((each for each in (tokenizer.pad_token_id, tokenizer.eos_token_id) if each is not None), 0)
    of_words = settings.kind == "tagging"
    log.info("loading the model")
    set_seed(settings.seed)
    with refusing(export):
        eos = tokenizer.eos_token_id if how.config_padding == "eos" else None
        model: Any = classifier_of(export, how, len(classes), pad if eos is None else eos, settings.kind)
    if how.shuffle == "epoch":
        set_seed(settings.seed)  # once more, as the Trainer does when it is made
    longest = longest_of(model, export, how)

    def read(task: Path, split: str) -> AnyRows:
        if of_words:
            return sentences_of(task, split, tokenizer, classes, longest, how)
        rows = rows_of(task, split, tokenizer, classes, longest)
        return rows if model.reads_types else dataclasses.replace(rows, types=None)

    log.info("reading the rows of %s", " ".join(tasks))
    with refusing(export):
        trains, tests = ([read(task, split) for task in tasks.values()] for split in ("train", "test"))
    train = trains[0] if len(tasks) == 1 else equal_shares(trains)
    cuts = [first.cut + second.cut for first, second in zip(trains, tests, strict=True)]
    scored = tests if how.held_out or not how.test_batch else [whole_batches(each, how, settings) for each in tests]
    judge = one_after_another(scored)
    if how.held_out:
        kept, chosen = held_out(len(train), how.held_out, settings.seed)
        train, judge = train.chosen(kept), train.chosen(chosen)
    if sum(cuts):
        log.warning("%s cut at the end: they have more than %d tokens", plural(sum(cuts), "row"), longest)
    check_tokens(model, export, pad, train, *tests)
    padding = Padding(pad, how.padding == "left", longest if how.same_length else None)
    try_out(model, export, train, padding)
    content = canonical_json([settings.raw, made_of, *(about["files"] for about in abouts)])
    of_run = checkpoints / hashlib.sha256(content.encode()).hexdigest()[:16]
    tuner = Tuner(model, how, settings.seed, settings.metric, train, judge, padding, of_run, scoring_device())
    if not tuner.run(stop):
        return None
    found = []
    for (code, task), about, rows, test, cut in zip(tasks.items(), abouts, scored, tests, cuts, strict=True):
        log.info("predicting %s of %s", plural(len(rows), "row"), code)
        outcome = tuner.outcome(rows)
        scores = {
            **scores_of(settings, how, classes, rows, outcome),
            "rows": {"train": len(train), "chosen_by": len(judge), "scored": len(rows), "test": len(test)},
            "cut": cut,
            "test_rows_in_train": about["figures"]["test_rows_in_train"],
        }
        more = None
        if isinstance(rows, EncodedSentences) and f"{PREDICTED}.parquet" in about["files"]:
            others = sentences_of(task, PREDICTED, tokenizer, classes, longest, how)
            more = predictions_of_words(code, others, tuner.outcome(others))
        found.append(Tuned(predictions_of(code, classes, rows, outcome), more, scores))
    if settings.keep:
        keep(tuner.model, tokenizer, keep_in / (next(iter(tasks)) if len(tasks) == 1 else "joint"), classes)
    return found, tuner.seconds


def whole_batches(test: AnyRows, how: Tuning, settings: TuneStage) -> AnyRows:
    """Return the rows without the last incomplete batch; raise a UserError if there is no whole batch."""
    assert how.test_batch
    if whole := len(test) // how.test_batch * how.test_batch:
        return test.chosen(range(whole))
    raise UserError(
        f"tasks.{settings.task}: there are {len(test)} rows to score, fewer than a batch of {how.test_batch}"
        " (`test_batch` of its protocol, which leaves out an incomplete batch)"
    )


def predictions_of(code: str, classes: list[str], rows: AnyRows, outcome: Outcome) -> pa.Table:
    """Return one row per test row or word: its label, the predicted one, and the probability of that one."""
    if isinstance(rows, EncodedSentences):
        return predictions_of_words(code, rows, outcome)
    chances = softmax(outcome.logits.astype(np.float64), axis=1)
    predicted = chances.argmax(1)
    return pa.table(
        {
            "language": pa.array([code] * len(rows), pa.string()),
            "row": np.arange(len(rows)),
            "label": [classes[number] for number in rows.labels],
            "prediction": [classes[number] for number in predicted],
            "probability": chances.max(1),
        }
    )


def predictions_of_words(code: str, rows: EncodedSentences, outcome: Outcome) -> pa.Table:
    """Return one row per word, also with the number of its sentence; a word without a prediction has null."""
    chances = softmax(outcome.logits.astype(np.float64), axis=1)
    names = pa.array([*rows.classes, None], pa.string())
    predicted, labels = np.concatenate(rows.predictions(outcome.logits)), np.concatenate(rows.labels)
    probability = np.concatenate(rows.spread(chances.max(1), np.nan))
    return pa.table(
        {
            "language": pa.array([code] * len(labels), pa.string()),
            "row": np.arange(len(labels)),
            "label": names.take(pa.array(labels)),
            "prediction": names.take(pa.array(np.where(predicted == NONE, len(rows.classes), predicted))),
            "probability": pa.array(probability, mask=np.isnan(probability)),
            "sentence": np.repeat(np.arange(len(rows)), [*map(len, rows.labels)]),
        }
    )


def scores_of(settings: TuneStage, how: Tuning, classes: list[str], rows: AnyRows, outcome: Outcome) -> dict[str, Any]:
    """Return the scores of the predictions for one language, as scores.json holds them."""
    if isinstance(rows, EncodedSentences):
        found, same = scores_of_words(rows, outcome)
    else:
        predicted = outcome.logits.argmax(1)
        found = {metric: metrics.entry(metric, rows.labels, predicted, len(classes)) for metric in OTHER_METRICS}
        same = metrics.majority(predicted, rows.labels, classes)
    if same:
        log.warning(
            "%s: the model answers %r to %.1f %% of the rows, so it has learned nothing (%.1f %% are such rows)",
            *(settings.task, same["class"], 100 * same["predicted"], 100 * same["share"]),
        )
    return {
        **found[settings.metric],
        "metrics": found,
        "classes": classes,
        "majority": same,
        "epoch": outcome.epoch,
        "epochs": outcome.epochs,
        "chosen_by": "held-out rows" if how.held_out else "test rows" if how.select == "best" else "last epoch",
        "scores_of_epochs": outcome.chosen_by,
    }


def scores_of_words(rows: EncodedSentences, outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the scores of predictions for words, and what `metrics.majority` returns.

    Most words are in no name. So a model that finds few is not said to have learned nothing, if what it finds is right.
    """
    told = rows.predictions(outcome.logits)
    asked = ("accuracy", "span_f1") if are_spans(rows.classes) else ("accuracy",)
    found = {
        metric: metrics.entry_of_counts(metrics.counts_of_words(metric, rows.labels, told, rows.classes))
        for metric in asked
    }
    labels, reached = np.concatenate(rows.labels), np.concatenate(rows.reached)
    same = metrics.majority(np.concatenate(told)[reached], labels[reached], rows.classes)
    if same and found["accuracy"]["score"] > same["share"]:
        same = None
    if missing := int((~reached).sum()):
        log.warning("%s without a token, or cut off, count as wrong", plural(missing, "word"))
    found["accuracy"]["without_prediction"] = missing
    return found, same


def keep(model: torch.nn.Module, tokenizer: Any, folder: Path, classes: list[str]) -> None:
    """Write the tuned model as a folder; that of the model's own classifier loads with transformers."""
    encoder: Any = model.encoder
    encoder.config.id2label = dict(enumerate(classes))
    encoder.config.label2id = {name: number for number, name in enumerate(classes)}
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if isinstance(model, PooledClassifier | PooledTagger):
        from safetensors.torch import save_file

        save_file(
            {name: tensor.contiguous() for name, tensor in model.head.state_dict().items()}, folder / "head.safetensors"
        )


def tune(
    export: Path,
    made_of: Any,
    settings: TuneStage,
    tasks: list[Path],
    checkpoints: Path,
    out: Path,
    upstream: list[Path],
    figures: dict[str, Any] | None = None,
) -> int:
    """Tune a model for each language of a task, and write the results to the folder `out`. Return the exit code.

    For `made_of` see `tune_languages`; for `upstream` and `figures` see `manifest.write`.
    """
    if len(tasks) != len(settings.covered):
        raise UserError(f"--tasks: {len(tasks)} folders for the languages {', '.join(settings.covered)}")
    found: dict[str, Tuned] = {}
    seconds, stop, pairs = 0.0, Stop(ask_slurm=True), [*zip(settings.covered, tasks, strict=True)]
    with Lock(checkpoints, "another process that tunes the same"):
        (out / manifest.NAME).unlink(missing_ok=True)  # that of earlier results, beside files that will be new
        shutil.rmtree(out / "model", ignore_errors=True)
        for together in [pairs] if settings.joint else [[pair] for pair in pairs]:
            tuned = tune_languages(export, made_of, settings, dict(together), checkpoints, out / "model", stop)
            if tuned is None:
                return EXIT_CODE
            found |= zip((code for code, _ in together), tuned[0], strict=True)
            seconds += tuned[1]
        languages = {code: each.scores for code, each in found.items()}
        tables = {"predictions.parquet": [each.predictions for each in found.values()]}
        tables[f"{PREDICTED}.parquet"] = [each.predicted for each in found.values() if each.predicted]
        out.mkdir(parents=True, exist_ok=True)
        tables = {name: parts for name, parts in tables.items() if parts}
        for name, parts in tables.items():
            with atomic_write(out / name) as file:
                pq.write_table(pa.concat_tables(parts), file, compression="zstd")
        about = {key: getattr(settings, key) for key in ("task", "protocol", "metric", "seed")}
        write_json(out / "scores.json", about | {"languages": languages})
        kept = sorted(path for path in (out / "model").rglob("*") if path.is_file()) if settings.keep else []
        files = [*tables, "scores.json", *(path.relative_to(out) for path in kept)]
        device = torch.cuda.get_device_name() if scoring_device().type == "cuda" else "cpu"
        about = {"seconds": round(seconds, 1), "device": device, "summary": in_words(settings.metric, languages)}
        manifest.write(out, settings, files, upstream, about | (figures or {}))
    for code, each in languages.items():
        low, high = (100 * end for end in each["interval"])
        log.info(
            "%s, seed %d, %s: %s %.1f (%.1f to %.1f, n = %d)",
            *(settings.task, settings.seed, code, settings.metric, 100 * each["score"], low, high, each["n"]),
        )
    with contextlib.suppress(OSError):
        shutil.rmtree(checkpoints)
    return 0


def in_words(metric: str, languages: dict[str, Any]) -> str:
    """Return the score of each language, and say if the model answers with one class."""
    found = []
    for code, each in languages.items():
        same = f" (always {escape.line(each['majority']['class'])})" if each.get("majority") else ""
        found.append(f"{code} {100 * each['score']:.1f}{same}")
    return f"{metric}: {', '.join(found)}"


def run(job: Job[TuneStage]) -> int:
    """Tune, score and write the results. Return the exit code."""
    settings = job.settings
    export, tasks = settings.folder("export"), settings.folders("tasks")
    gpu_claims.claim(job.gpus)
    use_threads(job.threads)
    disable_progress_bar()
    torch.set_num_threads(job.threads)
    made_of = manifest.verify(export)["files"]
    return tune(export, made_of, settings, tasks, job.unfinished, job.out, [export, *tasks])


if __name__ == "__main__":
    sys.exit(stage_entry.main(TuneStage, run, __doc__))
