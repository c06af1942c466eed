"""Find which sentence of each item of a suite an exported model considers most likely (stage `score`).

    python -m babelmill.score results/settings/score/blimp_eng-671c1226c2.json --threads 2

This writes `items.parquet` (one row per item, with the scores of its sentences by each method), `scores.json` (the
share of items that are right, with intervals) and `manifest.json`. `suites/kinds.py` says what a kind of suite scores,
and `evaluation/rows.py` has the methods; `fused` is the sum of the causal and the masked score. Items that are too
long for the model are counted and left out. It is an error if none of a language's items can be scored, or if a score
is not a number. The stage then looks for the items in the model's training text, and writes `overlap.json`
(`suites/overlap.py`).

Scores are kept as they are computed. So if an attempt is killed, the next one does not repeat its work.
"""

import gc
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_write, sha256, write_json
from babelmill.core.stage_entry import Job
from babelmill.evaluation.overlaps import OVERLAP, in_training_text
from babelmill.evaluation.suite_scores import headline, headline_method, in_words
from babelmill.release.folder.loading import begin, methods_of
from babelmill.runtime.run_lock import locked
from babelmill.stages import ScoreStage
from babelmill.suites.items import ITEMS, NOUNS
from babelmill.suites.kinds import KINDS
from babelmill.suites.overlap import overlap
from babelmill.suites.scoring_model import ScoringModel

log = logging.getLogger("babelmill.score")


def report(scored: pa.Table, settings: ScoreStage) -> dict[str, Any]:
    """Return what scores.json says of scored items; raise a UserError if a language has no score."""
    kind = KINDS[settings.kind]
    names, languages = kind.methods(settings), np.array(scored["language"].to_pylist(), object)
    found: dict[str, Any] = {"suite": settings.suite, "headline": {"method": names[-1], "of": settings.headline}}
    found |= {} if settings.kind == "pairs" else {"kind": settings.kind}
    found |= {"measure": kind.measure} if kind.measure else settings.how_many  # words are all scored
    found["languages"] = {}
    for code in settings.covered:
        mine = scored.filter(pa.array(languages == code))
        found["languages"][code] = {"methods": {name: kind.summary(mine, name, settings) for name in names}}
    found["headline"]["method"] = headline_method(found)
    for code, each in found["languages"].items():
        each["headline"] = headline(found, code)
        if each["headline"] is None:
            raise UserError(
                f"{settings.suite}: no {NOUNS[settings.kind]} of {code} can be scored: all are longer than the model"
                " reads; leave the suite out of evaluation.suites"
            )
    return found


def score_suites(model: ScoringModel, settings: ScoreStage, partial: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Score the items of all languages; return the rows of the table, and the content of scores.json."""
    kind, tables, figures = KINDS[settings.kind], [], {}
    for code, folder in zip(settings.covered, settings.folders("suites"), strict=True):
        figures[code] = manifest.verify(folder, ITEMS)["figures"]
        figures[code].pop("summary", None)  # what the run showed
        table = pq.ParquetFile(folder / ITEMS).read()
        tables.append(table.add_column(0, "language", pa.array([code] * len(table), pa.string())))
    scored = kind.score(model, pa.concat_tables(tables), settings, partial)
    if model.too_long:
        left_out = "%d of %d items are left out: they have no tokens, or more than the model reads"
        log.warning(left_out, model.too_long, len(scored))
    tokenizer = model.folder / "tokenizer.json"
    about = {"too_long": model.too_long, "tokenizer": sha256(tokenizer) if tokenizer.is_file() else None}
    found = report(scored, settings) | about
    for code, each in found["languages"].items():
        each["pairs"] = figures[code]
    return scored, found


def score_snapshots(model: ScoringModel, settings: ScoreStage, partial: Path) -> list[dict[str, Any]]:
    """Return the entry of scores.json for each snapshot of the run: when it was kept, and its scores by language."""
    found = []
    for name, place, snapshot in model.snapshots():
        _, scores = score_suites(snapshot, settings, partial / name)
        found.append({"name": name, "languages": scores["languages"]} | place)
        log.info("%s: %s", name, in_words(scores))
    if not found:
        log.warning("evaluation.snapshot_suites: the training kept no snapshots; set run.snapshots before the training")
    return found


def score(settings: ScoreStage, partial: Path, out: Path, threads: int = 1) -> None:
    """Score a model on a suite, and write the results to the folder `out`; for `threads`, see `overlap`."""
    export = settings.folder("export")
    corpora = dict(zip(settings.languages, settings.folders("corpora"), strict=False))  # of a baseline, none is here
    upstream = [*([] if settings.origin else [export]), *settings.folders("suites"), *corpora.values()]
    if not settings.methods:
        settings = settings.model_copy(update={"methods": methods_of(export)})
    with locked(partial, "another process that scores the same"):
        model = ScoringModel(export, settings.origin or None)
        scored, found = score_suites(model, settings, partial)
        if settings.snapshots and not KINDS[settings.kind].of_run:
            found["snapshots"] = score_snapshots(model, settings, partial)
        with atomic_write(out / ITEMS) as file:
            pq.write_table(scored, file, compression="zstd")
        write_json(out / "scores.json", found)
        summary = in_words(found)
        log.info("%s", summary)
        files = [ITEMS, "scores.json"]
        gc.collect()  # the models, so that their memory is free for others while the text is read
        torch.cuda.empty_cache()
        if corpora and (about := overlap(scored, found, settings, corpora, threads)):
            write_json(out / OVERLAP, about)
            files.append(OVERLAP)
            for code in settings.covered:
                log.info("%s, %s: %s", settings.suite, code, in_training_text(about, code))
        manifest.write(out, settings, files, upstream, {"summary": summary})
        shutil.rmtree(partial, ignore_errors=True)


def run(job: Job[ScoreStage]) -> None:
    """Score a model on a suite."""
    begin(job)
    manifest.verify(job.settings.folder("export"))
    score(job.settings, job.unfinished, job.out, job.threads)


if __name__ == "__main__":
    sys.exit(stage_entry.main(ScoreStage, run, __doc__))
