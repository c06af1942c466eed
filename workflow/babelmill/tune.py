"""Fine-tune an exported model for a task with one seed, and score its predictions (stage `tune`).

    python -m babelmill.tune --settings results/settings/eng/tune.rte.42.json --export results/exports/eng \\
        --tasks results/tasks/rte/eng --checkpoints results/tuning/eng/rte/42 --out results/tuned/eng/rte/42

This writes `predictions.parquet` (one row per test row), `scores.json` and `manifest.json`. A model of several
languages is tuned for each language alone. `tasks/tuner.py` has the training. The tuned weights are kept only with
`evaluation.keep_tuned`.

An attempt that was killed is continued from `--checkpoints`, with the same result.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.special import softmax
from transformers.utils.logging import disable_progress_bar

from babelmill.config.schema import Tuning
from babelmill.config.stage_settings import TuneSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_write, canonical_json, write_json
from babelmill.core.words import plural
from babelmill.release.folder.loading import runs_code, tokenizer_of
from babelmill.runtime import gpu_claims, store
from babelmill.runtime.run_lock import Lock
from babelmill.runtime.slurm import EXIT_CODE, Stop
from babelmill.settings import read_settings
from babelmill.tasks import metrics
from babelmill.tasks.classifier import OwnClassifier, PooledClassifier, refusing
from babelmill.tasks.tuner import EncodedRows, Outcome, Padding, Tuner, encode, held_out, set_seed
from babelmill.tokens.tokenizer_file import use_threads
from babelmill.training.arithmetic import scoring_device
from babelmill.training.networks.transformers_models import longest_row

OTHER_METRICS = ("accuracy", "f1", "mcc")

log = logging.getLogger("babelmill.tune")


def classifier_of(folder: Path, how: Tuning, classes: int, pad: int) -> torch.nn.Module:
    """Return the model of a folder with a new head.

    Args:
        folder: an exported folder, or one of another project.
        how: the protocol.
        classes: the number of classes.
        pad: what the config of the model is told to be padding, unless the protocol has the challenge's head.
    """
    if how.head == "challenge":
        return PooledClassifier(folder, classes, how.pooling, how.dropout)
    return OwnClassifier(folder, classes, pad)


def longest_of(model: Any, export: Path, how: Tuning) -> int:
    """Return how many tokens a row may have: as many as the protocol allows, and the model has positions for."""
    limit = None if runs_code(export) else longest_row(model.encoder)
    return min(how.longest, limit) if limit and limit > 0 else how.longest  # XLNet says -1: it has no limit


def check_tokens(model: Any, export: Path, pad: int, *rows: EncodedRows) -> None:
    """Raise a UserError if the tokenizer has a token that the model does not have."""
    known = getattr(model.encoder.config, "vocab_size", None)
    highest = max(pad, *(max(map(max, split.ids)) for split in rows))
    if known is not None and highest >= known:
        raise UserError(
            f"{export}: its tokenizer has a token {highest}, but the model has only {known} (vocab_size); put the"
            " tokenizer there that the model was trained with"
        )


def try_out(model: torch.nn.Module, export: Path, rows: EncodedRows, padding: Padding) -> None:
    """Compute one row. Raise a UserError if the model cannot: this takes a second, and the training may take hours."""
    with refusing(export), torch.no_grad():
        model.eval()(*rows.batch([0], padding))


def rows_of(folder: Path, split: str, tokenizer: Any, classes: list[str], longest: int) -> EncodedRows:
    """Return the rows of a split of a task, as the model reads them.

    Raises:
        UserError: the tokenizer makes no token of a row.
    """
    table = pq.ParquetFile(folder / f"{split}.parquet").read()
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.array([numbers[label] for label in table["label"].to_pylist()], np.int64)
    found = encode(tokenizer, table["text"].to_pylist(), table["pair"].to_pylist(), labels, longest)
    if [] in found.ids:
        raise UserError(
            f"{folder}: row {found.ids.index([]) + 1} of the split {split} is empty, and the model's tokenizer makes no"
            " token of it; correct the files of the task"
        )
    return found


def tune_language(
    export: Path, made_of: Any, settings: TuneSettings, task: Path, checkpoints: Path, keep_in: Path, stop: Stop
) -> tuple[pa.Table, dict[str, Any]] | None:
    """Tune the model for the rows of one language.

    Args:
        export: the folder of the model.
        made_of: what the weights in it are, as JSON.
        settings: the settings of the stage.
        task: the folder of the rows.
        checkpoints: keeps what killed attempts did.
        keep_in: the folder for the tuned weights, if they are kept.
        stop: knows whether there is a reason to leave.

    Returns:
        The rows of predictions.parquet and the entry of the language in scores.json; None if there was a reason to
        leave before the end.
    """
    how = Tuning.model_validate(settings.tuning | {"seeds": [settings.seed]})
    about = manifest.verify(task)
    classes = about["figures"]["classes"]
    tokenizer = tokenizer_of(export)
    pad = next((each for each in (tokenizer.pad_token_id, tokenizer.eos_token_id) if each is not None), 0)
    set_seed(settings.seed)
    with refusing(export):
        eos = tokenizer.eos_token_id if how.config_padding == "eos" else None
        model: Any = classifier_of(export, how, len(classes), pad if eos is None else eos)
    if how.shuffle == "epoch":
        set_seed(settings.seed)  # once more, as the Trainer does when it is made
    longest = longest_of(model, export, how)
    with refusing(export):
        train, test = (rows_of(task, split, tokenizer, classes, longest) for split in ("train", "test"))
    if not model.reads_types:
        train, test = (dataclasses.replace(rows, types=None) for rows in (train, test))
    judge, cut = test, train.cut + test.cut
    if how.held_out:
        kept, chosen = held_out(len(train), how.held_out, settings.seed)
        train, judge = train.chosen(kept), train.chosen(chosen)
    elif how.test_batch:
        judge = test.chosen(range(len(test) // how.test_batch * how.test_batch))
        if not len(judge):
            raise UserError(
                f"tasks.{settings.task}: the test rows ({len(test)}) are fewer than a batch of {how.test_batch}"
                " (`test_batch` of its protocol, which leaves out an incomplete batch)"
            )
    if cut:
        log.warning("%s cut at the end: they have more than %d tokens", plural(cut, "row"), longest)
    check_tokens(model, export, pad, train, test)
    padding = Padding(pad, how.padding == "left", longest if how.same_length else None)
    try_out(model, export, train, padding)
    content = canonical_json([settings.raw, made_of, about["files"]])
    of_run = checkpoints / hashlib.sha256(content.encode()).hexdigest()[:16]
    tuner = Tuner(model, how, settings.seed, settings.metric, train, judge, padding, of_run, scoring_device())
    if not tuner.run(stop):
        return None
    scored = test if how.held_out or not how.test_batch else judge
    outcome = tuner.outcome(scored)
    if settings.keep:
        keep(tuner.model, tokenizer, keep_in / about["name"], classes)
    labels = [about["name"]] * len(scored)
    return predictions_of(labels, classes, scored.labels, outcome), {
        **scores_of(settings, how, classes, scored.labels, outcome),
        "rows": {"train": len(train), "chosen_by": len(judge), "scored": len(scored), "test": len(test)},
        "cut": cut,
        "test_rows_in_train": about["figures"]["test_rows_in_train"],
    }


def predictions_of(languages: list[str], classes: list[str], labels: np.ndarray, outcome: Outcome) -> pa.Table:
    """Return one row per test row: its label, the predicted one, and the probability of that one."""
    chances = softmax(outcome.logits.astype(np.float64), axis=1)
    predicted = chances.argmax(1)
    return pa.table(
        {
            "language": pa.array(languages, pa.string()),
            "row": np.arange(len(labels)),
            "label": [classes[number] for number in labels],
            "prediction": [classes[number] for number in predicted],
            "probability": chances.max(1),
        }
    )


def scores_of(
    settings: TuneSettings, how: Tuning, classes: list[str], labels: np.ndarray, outcome: Outcome
) -> dict[str, Any]:
    """Return the scores of the predictions for one language, as scores.json holds them."""
    predicted = outcome.logits.argmax(1)
    found = {metric: metrics.entry(metric, labels, predicted, len(classes)) for metric in OTHER_METRICS}
    same = metrics.majority(predicted, labels, classes)
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


def keep(model: torch.nn.Module, tokenizer: Any, folder: Path, classes: list[str]) -> None:
    """Write the tuned model as a folder; that of the model's own classifier loads with transformers."""
    encoder: Any = model.encoder
    encoder.config.id2label = dict(enumerate(classes))
    encoder.config.label2id = {name: number for number, name in enumerate(classes)}
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if isinstance(model, PooledClassifier):
        from safetensors.torch import save_file

        save_file(
            {name: tensor.contiguous() for name, tensor in model.head.state_dict().items()}, folder / "head.safetensors"
        )


def tune(
    export: Path,
    made_of: Any,
    settings: TuneSettings,
    tasks: list[Path],
    checkpoints: Path,
    out: Path,
    upstream: list[Path],
    figures: dict[str, Any] | None = None,
) -> int:
    """Tune a model for each language of a task, and write the results to the folder `out`. Return the exit code.

    For `made_of` see `tune_language`; for `upstream` and `figures` see `manifest.write`.
    """
    if len(tasks) != len(settings.covered):
        raise UserError(f"--tasks: {len(tasks)} folders for the languages {', '.join(settings.covered)}")
    tables, languages, stop = [], {}, Stop(ask_slurm=True)
    with Lock(checkpoints, "another process that tunes the same"):
        for code, task in zip(settings.covered, tasks, strict=True):
            found = tune_language(export, made_of, settings, task, checkpoints, out / "model", stop)
            if found is None:
                return EXIT_CODE
            tables.append(found[0])
            languages[code] = found[1]
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(out / "predictions.parquet") as file:
            pq.write_table(pa.concat_tables(tables), file, compression="zstd")
        about = {key: getattr(settings, key) for key in ("task", "protocol", "metric", "seed")}
        write_json(out / "scores.json", about | {"languages": languages})
        kept = sorted(path for path in (out / "model").rglob("*") if path.is_file()) if settings.keep else []
        files = ["predictions.parquet", "scores.json", *(path.relative_to(out) for path in kept)]
        manifest.write(out, settings, files, upstream, figures)
    for code, each in languages.items():
        low, high = (100 * end for end in each["interval"])
        log.info(
            "%s, seed %d, %s: %s %.1f (%.1f to %.1f, n = %d)",
            *(settings.task, settings.seed, code, settings.metric, 100 * each["score"], low, high, each["n"]),
        )
    with contextlib.suppress(OSError):
        shutil.rmtree(checkpoints)
    return 0


def run(args: argparse.Namespace) -> int:
    """Tune, score and write the results. Return the exit code."""
    settings = read_settings(args.settings, TuneSettings)
    upstream = [args.export, *args.tasks]
    with store.made_once(args.out, settings, upstream) as made:
        if made:
            return 0
        gpu_claims.claim(args.gpus)
        use_threads(args.threads)
        disable_progress_bar()
        torch.set_num_threads(args.threads)
        made_of = manifest.verify(args.export)["files"]
        return tune(args.export, made_of, settings, args.tasks, args.checkpoints, args.out, upstream)


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage_entry.folder, help="results/exports/{model}")
    parser.add_argument(
        "--tasks", required=True, nargs="+", type=stage_entry.folder, help="folders of rows, in the order of languages"
    )
    parser.add_argument("--checkpoints", required=True, type=Path, help="folder that keeps what killed attempts did")
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/tuned/{model}/{task}/{seed}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="1 for a GPU, 0 for the CPU")
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
