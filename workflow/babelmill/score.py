"""Find which sentence of each pair of a suite an exported model considers more likely (stage `score`).

    python -m babelmill.score --settings results/settings/eng/score.blimp.json --export results/exports/eng \\
        --suites results/suites/blimp/eng --partial results/scoring/eng/blimp --out results/scores/eng/blimp

This writes `pairs.parquet` (one row per pair, with the scores of both sentences by each method), `scores.json` (the
share of pairs that are right, with intervals) and `manifest.json`. `suites/sentences.py` has the methods; `fused` is
the sum of the causal and the masked score. Pairs that are too long for the model are counted and left out. It is an
error if none of a language's pairs can be scored, or if a score is not a number.

Scores are saved in `--partial` as they are computed. So if an attempt is killed, the next one does not repeat its work,
also if settings have changed that the scores do not depend on (`suites/partial.py`).
"""

import argparse
import hashlib
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils.logging import disable_progress_bar

from babelmill.config.snapshots import FOLDER
from babelmill.config.stage_settings import ScoreSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, atomic_write, canonical_json, read_json, sha256, write_json
from babelmill.core.words import plural
from babelmill.evaluation.suite_scores import headline, headline_method, in_words, most_pairs
from babelmill.release.folder.loading import aligned, load, runs_code, tokenizer_of
from babelmill.runtime import gpu_claims, store
from babelmill.runtime.checkpoint import about, names
from babelmill.runtime.run_lock import Lock
from babelmill.settings import read_settings
from babelmill.suites.partial import Kept, delete
from babelmill.suites.results import sample, summary
from babelmill.suites.sentences import Method, Pair, Scorer, encode, in_order, scores
from babelmill.tokens.tokenizer_file import use_threads
from babelmill.training.arithmetic import scoring_device
from babelmill.training.networks.transformers_models import longest_row

log = logging.getLogger("babelmill.score")

LOADED = (".safetensors", ".bin", ".json", ".txt", ".model", ".py")  # ends of files that decide a model's scores


class ScoringModel:
    """An exported model that scores sentences by some methods.

    Args:
        folder: the folder of the model.
        made_of: what all its scores depend on, see `made_of`.
        extra: see `loading.load`.
    """

    def __init__(self, folder: Path, made_of: dict[str, Any], extra: bool = False):
        self.folder, self._made_of, self._extra = folder, made_of, extra
        self.tokenizer: Any = tokenizer_of(folder)
        self.too_long = 0

    def method(self, name: str) -> Method:
        """Return the method with this name; raise a UserError if it hides tokens and the model has no mask token."""
        mask = self.tokenizer.mask_token_id
        mask = read_json(self.folder / "config.json").get("mask_token_id") if mask is None else mask
        if mask is None and name != "causal":
            raise UserError(f"{self.folder}: method {name} hides tokens, but the tokenizer has no mask token")
        return Method(name, mask)

    def scorer(self, how: Method) -> tuple[Scorer, int | None]:
        """Load the model for a method; return a scorer of rows, and the most tokens that it reads (None: no limit)."""
        auto = AutoModelForCausalLM if how.causal else AutoModelForMaskedLM
        model: Any = load(auto, self.folder, None, self._extra, **aligned(self.folder))
        model.to(scoring_device()).config.use_cache = False
        longest = None if runs_code(self.folder) else longest_row(model)
        return Scorer(model, self.tokenizer, how.causal), longest

    def score(self, name: str, table: pa.Table, chosen: np.ndarray, partial: Path) -> np.ndarray:
        """Return the scores of the chosen pairs of a table by a method, [pairs, 3]: see `sentences.scores`.

        Pairs that are not chosen or cannot be scored are nan. Scores are kept in the folder `partial`.
        """
        how = self.method(name)
        texts = [table[key].to_pylist() for key in ("good", "bad")]
        good, bad = (encode(self.tokenizer, each, how.causal) for each in texts)
        pairs: list[Pair] = list(zip(good, bad, strict=True))
        scorer, longest = self.scorer(how)
        able = in_order(pairs, longest, scorer.shares)
        self.too_long = len(pairs) - len(able)
        digest = hashlib.sha256(canonical_json(texts).encode()).hexdigest()
        kept = Kept(partial / f"{name}.rows", self._made_of | {"method": name, "pairs": digest})
        found = np.full((len(pairs), 3), np.nan)
        found[kept.pairs] = kept.scores
        found[~chosen] = np.nan
        total, left = sum(chosen[i] for i in able), [i for i in able if chosen[i] and np.isnan(found[i, 0])]
        count = total - len(left)
        bar = Bar(total, count)
        for rows in scores(scorer, pairs, left, how):
            numbers, left = left[: len(rows)], left[len(rows) :]
            kept.add(numbers, rows)
            found[numbers] = rows
            count += len(rows)
            bar.show(count, f"{name}: {count:,} of {plural(total, 'pair')}")
        bar.close()
        return found


def score_pairs(model: ScoringModel, pairs: pa.Table, settings: ScoreSettings, partial: Path) -> pa.Table:
    """Return the table with the columns {method}_good and {method}_bad for each method; `bound` also has an error."""
    found: dict[str, np.ndarray] = {}
    for name in sorted(settings.methods, key="fused".__eq__):  # "fused" comes last: it is the sum of the other two
        if name == "fused":
            found[name] = found["causal"] + found["masked"]
        else:
            found[name] = model.score(name, pairs, sample(pairs, most_pairs(settings.asked, name)), partial)
        for column, values in zip(("good", "bad", "error"), found[name].T, strict=True):
            if column != "error" or name == "bound":
                pairs = pairs.append_column(f"{name}_{column}", pa.array(values, from_pandas=True))
    return pairs


def report(scored: pa.Table, settings: ScoreSettings) -> dict[str, Any]:
    """Return the entries `headline` and `languages` of scores.json.

    Raises:
        UserError: no pair of a language has a score.
    """
    found: dict[str, Any] = {"headline": {"method": settings.methods[-1], "of": settings.headline}, "languages": {}}
    for code in settings.covered:
        mine = scored.filter(pa.array([language == code for language in scored["language"].to_pylist()]))
        methods = {}
        for name in settings.methods:
            good, bad = (mine[f"{name}_{key}"].to_numpy().astype(float) for key in ("good", "bad"))
            methods[name] = summary(mine, good, bad, sampled=most_pairs(settings.asked, name) is not None)
        found["languages"][code] = {"methods": methods}
    found["headline"]["method"] = headline_method(found)
    for code, each in found["languages"].items():
        each["headline"] = headline(found, code)
        if each["headline"] is None:
            raise UserError(
                f"{settings.suite}: no pair of {code} can be scored: all are longer than the model reads; leave the"
                " suite out of evaluation.suites"
            )
    return found


def score_suites(
    model: ScoringModel, suites: list[Path], settings: ScoreSettings, partial: Path
) -> tuple[pa.Table, dict[str, Any]]:
    """Score the pairs in the folders of the stage `suite`, one folder per language of the settings.

    Returns:
        The rows of pairs.parquet, and the content of scores.json.
    """
    tables, figures = [], {}
    for code, folder in zip(settings.covered, suites, strict=True):
        figures[code] = manifest.verify(folder, "pairs.parquet")["figures"]
        table = pq.ParquetFile(folder / "pairs.parquet").read()
        tables.append(table.add_column(0, "language", pa.array([code] * len(table), pa.string())))
    scored = score_pairs(model, pa.concat_tables(tables), settings, partial)
    if model.too_long:
        left_out = "%d of %d pairs are left out: they have no tokens, or more than the model reads"
        log.warning(left_out, model.too_long, len(scored))
    tokenizer = model.folder / "tokenizer.json"
    found = report(scored, settings)
    return scored, {
        "suite": settings.suite,
        "headline": found["headline"],
        **settings.asked,
        "within_word_l2r": False,  # a removed setting, which scores.json of earlier releases has
        "too_long": model.too_long,
        "tokenizer": sha256(tokenizer) if tokenizer.is_file() else None,
        "languages": {code: each | {"pairs": figures[code]} for code, each in found["languages"].items()},
    }


def score_snapshots(export: Path, suites: list[Path], settings: ScoreSettings, partial: Path) -> list[dict[str, Any]]:
    """Return the entry of scores.json for each snapshot of the run: when it was kept, and its scores by language."""
    kept = names(export)
    if not kept:
        log.warning(
            "evaluation.snapshots: the training of this model kept no snapshots; set run.snapshots before the training"
        )
    found = []
    for name in kept:
        folder = export / FOLDER / name
        manifest.verify(folder, within=export)
        model = ScoringModel(folder, made_of(folder, settings))
        _, scores = score_suites(model, suites, settings, partial / name)
        found.append({"name": name, "languages": scores["languages"]} | about(folder))
        log.info("%s: %s", name, in_words(scores))
    return found


def score(
    model: ScoringModel,
    suites: list[Path],
    settings: ScoreSettings,
    partial: Path,
    out: Path,
    upstream: list[Path],
    figures: dict[str, Any] | None = None,
) -> None:
    """Score a model on a suite, and write the results to the folder `out`. For the others, see `manifest.write`."""
    with Lock(partial, "another process that scores the same"):
        scored, found = score_suites(model, suites, settings, partial)
        if settings.snapshots:
            found["snapshots"] = score_snapshots(model.folder, suites, settings, partial)
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(out / "pairs.parquet") as file:
            pq.write_table(scored, file, compression="zstd")
        write_json(out / "scores.json", found)
        log.info("%s", in_words(found))
        manifest.write(out, settings, ["pairs.parquet", "scores.json"], upstream, figures)
        delete(partial)


def made_of(folder: Path, settings: ScoreSettings) -> dict[str, Any]:
    """Return what all scores of an exported folder depend on: the code, and the files that are loaded from the folder.

    The folder's other files (other variants of the weights, notes) and all other settings change no score.
    """
    files = {name: entry["sha256"] for name, entry in manifest.read(folder)["files"].items()}
    return {"code": settings.raw.get("code"), "files": {name: files[name] for name in sorted(files) if is_loaded(name)}}


def is_loaded(name: str) -> bool:
    """Return whether a file of a model's folder decides its scores: weights, configuration, tokenizer, code."""
    other_variant = name.startswith("model.") and name not in ("model.safetensors", "model.safetensors.index.json")
    return "/" not in name and name.endswith(LOADED) and not other_variant and name != manifest.NAME


def run(args: argparse.Namespace) -> None:
    """Score a model on a suite."""
    settings, upstream = read_settings(args.settings, ScoreSettings), [args.export, *args.suites]
    with store.made_once(args.out, settings, upstream) as made:
        if made:
            return
        gpu_claims.claim(args.gpus)
        use_threads(args.threads)
        disable_progress_bar()
        torch.set_num_threads(args.threads)
        manifest.verify(args.export)
        model = ScoringModel(args.export, made_of(args.export, settings))
        score(model, args.suites, settings, args.partial, args.out, upstream)


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage_entry.folder, help="results/exports/{model}")
    parser.add_argument(
        "--suites",
        required=True,
        nargs="+",
        type=stage_entry.folder,
        help="folders of pairs, in the order of languages",
    )
    parser.add_argument("--partial", required=True, type=Path, help="folder that keeps the scores of killed attempts")
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/scores/{model}/{suite}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="1 for a GPU, 0 for the CPU")
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
