"""Stage `score`: which sentence of each pair of a suite an exported model finds likelier.

    python -m babelmill.score --settings results/settings/eng/score.blimp.json --export results/exports/eng \\
        --suites results/suites/blimp/eng --partial results/scoring/eng/blimp --out results/scores/eng/blimp

writes `pairs.parquet` (a row a pair, with the scores of both sentences by each method), `scores.json` (shares of pairs
that are right, with intervals) and `manifest.json`. `suites/sentences.py` has the methods; `fused` is the sum of the
causal and the masked score. Pairs that a model cannot read (longer than its positions) are counted and left out.

Scores are kept in `--partial` as they come: what an attempt that was killed has scored is not scored again.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import atomic_write, sha256, write_json
from babelmill.core.words import plural
from babelmill.release.loading import aligned, load, runs_code
from babelmill.runtime import gpu_claims
from babelmill.settings import read_settings
from babelmill.stages import ScoreSettings
from babelmill.suites.partial import Partial
from babelmill.suites.results import sample, summary
from babelmill.suites.sentences import Pair, Scorer, encode, in_order, method, scores
from babelmill.tokens.tokenizer_file import use_threads
from babelmill.training.transformers_models import longest_row

log = logging.getLogger("babelmill.score")


def read_pairs(folders: dict[str, Path]) -> pa.Table:
    """Return the pairs of all languages, with the column `language` before those of `pairs.SCHEMA`."""
    tables = []
    for code, folder in folders.items():
        manifest.verify(folder, "pairs.parquet")
        table = pq.read_table(folder / "pairs.parquet")
        tables.append(table.add_column(0, "language", pa.array([code] * len(table), pa.string())))
    return pa.concat_tables(tables)


class Model:
    """An exported model that scores sentences by some methods.

    Args:
        folder: of the model.
        within_word_l2r: of masked scores: the later tokens of a word are hidden, too.
    """

    def __init__(self, folder: Path, within_word_l2r: bool):
        self._folder, self._l2r = folder, within_word_l2r
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=runs_code(folder))
        self.too_long = 0

    def score(self, name: str, table: pa.Table, chosen: np.ndarray, partial: Partial) -> np.ndarray:
        """Return the scores of the chosen pairs of a table by a method, [pairs, 3]: see `sentences.scores`.

        What is not chosen, or cannot be scored, is nan.
        """
        how = method(name, self.tokenizer.mask_token_id, self._l2r)
        good, bad = (encode(self.tokenizer, table[key].to_pylist(), how.causal) for key in ("good", "bad"))
        pairs: list[Pair] = list(zip(good, bad, strict=True))
        auto = AutoModelForCausalLM if how.causal else AutoModelForMaskedLM
        model: Any = load(auto, self._folder, None, **aligned(self._folder))
        model.to("cuda" if torch.cuda.is_available() else "cpu").config.use_cache = False
        able = in_order(pairs, None if runs_code(self._folder) else longest_row(model))
        self.too_long = len(pairs) - len(able)
        order = [i for i in able if chosen[i]]
        done = partial.read(name)
        bar, count = Bar(len(order), len(done)), len(done)
        for rows in scores(Scorer(model, self.tokenizer.pad_token_id or 0, how.causal), pairs, order[count:], how):
            partial.add(name, rows)
            done, count = np.concatenate((done, rows)), count + len(rows)
            bar.show(count, f"{name}: {count:,} of {plural(len(order), 'pair')}")
        bar.close()
        found = np.full((len(pairs), 3), np.nan)
        found[order] = done
        return found


def score_all(model: Model, table: pa.Table, settings: ScoreSettings, partial: Partial) -> pa.Table:
    """Return the table with two columns for each method, {method}_good and {method}_bad; of `bound` also its error."""
    found: dict[str, np.ndarray] = {}
    everything = np.ones(len(table), bool)
    for name in settings.methods:
        if name == "fused":
            found[name] = found["causal"] + found["masked"]
            continue
        some = name != "causal" and settings.masked_pairs != "all"
        chosen = sampled(table, int(settings.masked_pairs)) if some else everything
        found[name] = model.score(name, table, chosen, partial)
    for name, rows in found.items():
        for i, column in enumerate(("good", "bad", "error")):
            if column != "error" or name == "bound":
                table = table.append_column(f"{name}_{column}", pa.array(rows[:, i], from_pandas=True))
    return table


def sampled(table: pa.Table, most: int) -> np.ndarray:
    """Return which pairs are in the samples of each language: bool [pairs]."""
    languages = np.array(table["language"].to_pylist(), dtype=object)
    chosen = np.zeros(len(table), bool)
    for code in dict.fromkeys(languages):
        mine = languages == code
        chosen[mine] = sample(table.filter(pa.array(mine)), most)
    return chosen


def report(table: pa.Table, settings: ScoreSettings) -> dict[str, Any]:
    """Return what scores.json says of each language: {language: {"headline", "methods"}}."""
    languages = {}
    for code in settings.covered:
        mine = table.filter(pa.array([language == code for language in table["language"].to_pylist()]))
        columns = {name: (mine[f"{name}_good"], mine[f"{name}_bad"]) for name in settings.methods}
        arrays = {n: [c.to_numpy().astype(float) for c in both] for n, both in columns.items()}
        methods = {name: summary(mine, *both) for name, both in arrays.items()}
        languages[code] = {"headline": methods[settings.methods[-1]][settings.headline], "methods": methods}
    return languages


def run(args: argparse.Namespace) -> None:
    """Score a model on a suite."""
    settings = read_settings(args.settings, ScoreSettings)
    gpu_claims.claim(args.gpus)
    use_threads(args.threads)
    disable_progress_bar()
    torch.set_num_threads(args.threads)
    export = manifest.verify(args.export)
    folders = dict(zip(settings.covered, args.suites, strict=True))
    table = read_pairs(folders)
    upstream = [args.export, *args.suites]
    made_of = {"settings": settings.raw, "upstream": [sha256(folder / manifest.NAME) for folder in upstream]}
    partial, model = Partial(args.partial, made_of), Model(args.export, settings.within_word_l2r)
    scored = score_all(model, table, settings, partial)
    if model.too_long:
        log.warning("%d of %d pairs have no tokens, or more than the model reads: left out", model.too_long, len(table))
    languages = report(scored, settings)
    args.out.mkdir(parents=True, exist_ok=True)
    with atomic_write(args.out / "pairs.parquet") as file:
        pq.write_table(scored, file, compression="zstd")
    suites = {code: manifest.read(folder)["figures"] for code, folder in folders.items()}
    found = {
        "suite": settings.suite,
        "headline": {"method": settings.methods[-1], "of": settings.headline},
        "masked_pairs": settings.masked_pairs,
        "within_word_l2r": settings.within_word_l2r,
        "too_long": model.too_long,
        "tokenizer": export["files"].get("tokenizer.json", {}).get("sha256"),
        "languages": {code: languages[code] | {"pairs": suites[code]} for code in languages},
    }
    write_json(args.out / "scores.json", found)
    manifest.write(args.out, settings, ["pairs.parquet", "scores.json"], upstream)
    partial.delete()
    for code, each in languages.items():
        low, high = (100 * end for end in each["headline"]["interval"])
        said = settings.suite, code, settings.methods[-1], 100 * each["headline"]["score"], low, high
        log.info("%s, %s, %s: %.1f %% right (%.1f to %.1f)", *said)


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage_entry.folder, help="results/exports/{model}")
    parser.add_argument("--suites", required=True, nargs="+", type=stage_entry.folder, help="in the order of languages")
    parser.add_argument("--partial", required=True, type=Path, help="folder for scores of attempts that were killed")
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/scores/{model}/{suite}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="1, or 0: the CPU")
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
