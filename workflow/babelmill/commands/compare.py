"""Compare two models: bits per byte, and every suite of minimal pairs that both were scored on.

    babelmill compare eng eng_big
    babelmill compare eng_seed1,eng_seed2,eng_seed3 big_seed1,big_seed2,big_seed3 --suite blimp

A model is a name of this workflow, a converted folder, or a folder of scores (results/scores/eng, or what `babelmill
score` wrote). To compare recipes, list models that differ only in their seed on each side: scores are then means over
seeds. Every difference has a 95 % interval: of bits per byte, over the documents that both models were measured on, or
over the seeds of two recipes; of a suite, over its pairs, and for recipes also over seeds. The test over pairs is the
exact test of McNemar, and the tests of single phenomena have Holm's correction.
"""

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from babelmill.commands.terminal.key_figures import default_variant
from babelmill.core import escape, manifest
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, read_json
from babelmill.core.words import aligned, plural

if TYPE_CHECKING:
    from babelmill.suites.comparison import Comparison
    from babelmill.suites.statistics import Difference

RESULTS = Path("results")
WIDTH = 100
SURE = 0.05


@dataclass
class Compared:
    """The results of a model that are compared.

    Attributes:
        name: the name in the output.
        scores: {suite: folder}.
        evaluation: the content of evaluation.json; None if there is no such file.
        variant: the variant whose bits per byte are compared.
        texts: the corpora on which bits per byte were measured, as {folder: sha256 of its manifest}.
        documents: the table of the documents' scores; None if the evaluation is of release 0.2 or before.
    """

    name: str
    scores: dict[str, Path] = field(default_factory=dict)
    evaluation: dict[str, Any] | None = None
    variant: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    documents: Path | None = None


def scores_in(folder: Path) -> dict[str, Path]:
    """Return {suite: folder of scores} for the folder of a model."""
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/scores.json"))}


def results_of(word: str) -> Compared:
    """Return the results of a model that is given by its name or by a folder.

    Raises:
        UserError: it has no results, or its scores belong to another model than its evaluation.
    """
    folder = Path(word)
    if (folder / "scores.json").is_file():
        manifest.verify(folder, "scores.json")
        return Compared(str(folder), {read_json(folder / "scores.json")["suite"]: folder})
    if found := scores_in(folder):
        return Compared(str(folder), found)
    if (folder / manifest.NAME).is_file():
        about = manifest.verify(folder)
        if "evaluation" not in about["figures"]:
            raise UserError(
                f"{folder}: expected a converted model or scores; run `babelmill score {folder} --suite ...` first"
            )
        name, exported, results = about["name"], folder, folder.resolve().parents[1] / RESULTS  # of the same workflow
        evaluation = about["figures"]["evaluation"]
    else:
        name, exported, results, folder = word, RESULTS / "exports" / word, RESULTS, RESULTS / "evaluations" / word
        if "/" in word or not ((results / "scores" / name).is_dir() or folder.is_dir()):
            there = {path.parent.name for path in RESULTS.glob("scores/*/*")}
            there |= {path.parent.name for path in RESULTS.glob("evaluations/*/evaluation.json")}
            raise UserError(
                f"{word}: neither a model with scores or an evaluation in {RESULTS}, nor a folder of scores, nor a"
                " converted model; models with scores or an evaluation:"
                f" {escape.some(sorted(there)) or 'none yet, see evaluation.suites'}"
            )
        if not (folder / "evaluation.json").is_file():
            return Compared(name, scores_in(results / "scores" / name))
        about, evaluation = manifest.verify(folder), read_json(folder / "evaluation.json")
    scores, export = scores_in(results / "scores" / name), upstream(about, "exports")
    for path in scores.values():
        if not export.items() <= manifest.read(path)["upstream"].items():
            raise UserError(
                f"{path}: these scores belong to another model than the one in {folder}; run the workflow again"
            )
    documents = documents_of(results / "evaluations" / name, evaluation)
    variant = default_variant(evaluation, exported)
    return Compared(name, scores, evaluation, variant, upstream(about, "corpora"), documents)


def documents_of(folder: Path, evaluation: dict[str, Any]) -> Path | None:
    """Return the table of the documents' scores that belongs to an evaluation; None if the folder has no such table."""
    from babelmill.evaluation.validation_text import DOCUMENTS

    if not (folder / manifest.NAME).is_file() or DOCUMENTS not in manifest.read(folder)["files"]:
        return None
    manifest.verify(folder, "evaluation.json", DOCUMENTS)
    return folder / DOCUMENTS if read_json(folder / "evaluation.json") == evaluation else None


def upstream(about: dict[str, Any], what: str) -> dict[str, str]:
    """Return the inputs of one kind that a manifest lists, such as `corpora`: {folder: sha256 of its manifest}."""
    return {source: digest for source, digest in about["upstream"].items() if f"/{what}/" in source}


# Bits per byte.


def bits_per_byte(sides: list[list[Compared]], names: list[str]) -> list[str]:
    """Return lines with the scores of evaluation.json side by side, or a line that says why they cannot be compared."""
    from babelmill.evaluation.metrics import metrics_of, shown, units, value_of
    from babelmill.suites.statistics import over_seeds

    everyone = [model for side in sides for model in side]
    evaluations = [model.evaluation for model in everyone if model.evaluation is not None]
    if len(evaluations) < len(everyone):
        without = dict.fromkeys(model.name for model in everyone if model.evaluation is None)
        return [f"bits per byte: not compared, because there is no evaluation.json of {some(without)}"]
    texts = [(model.texts, _size(evaluation)) for model, evaluation in zip(everyone, evaluations, strict=True)]
    if any(each != texts[0] for each in texts):
        return ["bits per byte: not compared, because they were not measured on the same documents"]
    metrics, recipes = metrics_of(evaluations[0]), len(everyone) > 2
    scored = [[(model.evaluation or {})["variants"][model.variant] for model in side] for side in sides]
    rows = [["", *names, "difference"]]
    for name, metric in metrics.items():
        found = [[scores[name] for scores in side if name in scores] for side in scored]
        if list(map(len, found)) != list(map(len, sides)):
            continue
        values = [[value_of(score) for score in side] for side in found]
        if recipes:
            cells, difference = [*map(mean_and_ends, values)], over_seeds(*values)
        else:
            cells, difference = [shown(side[0], metric) for side in found], of_two(everyone, name, values)
        rows.append([f"{name} (bound)" if metric.bound else name, *cells, signed(difference)])
    if len(rows) == 1:
        return ["bits per byte: not compared, because the models have no score in common"]
    what = f"{units(evaluations[0])} of {plural(texts[0][1][0], 'document')}"
    if recipes:
        lines = [f"{what}, means over models (smallest to largest);", "  differences with 95 % intervals over seeds"]
    else:
        with_interval = all(model.documents for model in everyone)
        lines = [f"{what}, ± standard errors{'; difference with its 95 % interval over documents' * with_interval}"]
    notes, old = [], [model.name for model in everyone if model.documents is None]
    if recipes and min(map(len, sides)) == 1:
        notes.append("  no interval: one side is a single model")
    elif not recipes and old and not any("labels" in evaluation for evaluation in evaluations):
        notes += [
            f"  no interval: {' and '.join(old)} {'was' if len(old) == 1 else 'were'} evaluated before version 0.3,",
            "  which keeps the score of each document; for an interval, delete",
            f"  {' and '.join(f'{RESULTS}/evaluations/{name}' for name in old)} and run the workflow again",
        ]
    if lossy := [
        m.name for m, found in zip(everyone, evaluations, strict=True) if found.get("documents", {}).get("changed")
    ]:
        notes.append(f"  the tokenizer of {', '.join(lossy)} changes some documents")
    return [*lines, *table(rows), *notes]


def mean_and_ends(values: list[float]) -> str:
    """Return the mean of several models' scores, with the smallest and the largest; one score as it is."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def of_two(models: list[Compared], metric: str, values: list[list[float]]) -> "Difference":
    """Return the difference between two models in a metric, with an interval if both have a table of documents."""
    from pyarrow import parquet

    from babelmill.suites.statistics import Difference, over_documents

    first, second = models
    if first.documents is None or second.documents is None:
        return Difference(values[0][0] - values[1][0], None, None)
    tables = parquet.ParquetFile(first.documents).read(), parquet.ParquetFile(second.documents).read()
    return over_documents(tables, (f"{first.variant}_{metric}", f"{second.variant}_{metric}"))


def signed(difference: "Difference") -> str:
    """Return a difference as text, with its interval if it has one."""
    value, low, high = difference
    return f"{value:+.3f}" + ("" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})")


def _size(evaluation: dict[str, Any]) -> tuple[int, int, int]:
    """Return the number of documents that were scored, the number of all documents, and the bytes that were scored."""
    documents, some = evaluation.get("documents", {}), next(iter(evaluation["variants"].values()))
    size = max(score.get("bytes", 0) for score in some.values())
    return documents.get("scored", 0), documents.get("of", 0), size


# Suites.


def suite_lines(comparison: "Comparison", title: str, names: list[str]) -> list[str]:
    """Return the lines about one suite in one language: scores, the significance test, phenomena, and single pairs."""
    from babelmill.evaluation.suite_scores import weighting

    methods = " and ".join(dict.fromkeys(comparison.methods))
    what = f"{weighting(comparison.of)} that are right"
    lines = [f"{title}: {plural(comparison.compared, 'pair')}; score: {what}, {methods}"]
    if comparison.compared < comparison.pairs:
        lines.append(
            f"  of {comparison.pairs:,}: only these have scores on both sides (evaluation.pairs, masked_pairs)"
        )
    if len(set(comparison.methods)) > 1:
        lines.append("  the two sides are scored by different methods; --method chooses one for both")
    rows = []
    for name, headline, seeds in zip(names, comparison.headlines, comparison.seeds, strict=True):
        low, high = headline["interval"]
        each = ", ".join(f"{100 * score:.1f}" for score in seeds) if len(seeds) > 1 else ""
        rows.append([name, f"{100 * headline['score']:.1f} %", f"({100 * low:.1f} to {100 * high:.1f})", each])
    difference = comparison.headlines[0]["score"] - comparison.headlines[1]["score"]
    low, high = comparison.interval
    rows.append(["difference", f"{100 * difference:+.1f}", f"({100 * low:+.1f} to {100 * high:+.1f})", ""])
    lines += table(rows)

    test, seeds = comparison.test, max(map(len, comparison.seeds)) > 1
    call = "sign test of the means over seeds" if seeds else "exact McNemar test"
    better = "is better" if seeds else "is right and the other is wrong"
    lines.append(f"  {call}: {names[0]} {better} on {plural(test.first, 'pair')},")
    lines.append(f"    {names[1]} on {test.second:,}: p = {number(test.p)}")
    if test.half:
        lines.append(f"    {plural(test.half, 'pair')} with equal scores of both sentences left out")
    if seeds:
        lines.append("    the p value compares these models; the interval compares their recipes")

    rows = [["", "phenomenon", "pairs", *names, "difference", "p (Holm)"]]
    for each in comparison.phenomena:
        shares = [f"{100 * share:.1f} %" for share in each.shares]
        difference = f"{100 * (each.shares[0] - each.shares[1]):+.1f}"
        rows.append(["*" if each.p < SURE else "", each.name, f"{each.pairs:,}", *shares, difference, number(each.p)])
    if comparison.phenomena:
        tests = plural(len(comparison.phenomena), "test")
        lines += ["", *table(rows, numbers=2), f"  * p < {SURE} after Holm's correction for {tests}"]

    if comparison.most:
        lines += ["", "  largest differences: ln p of the good sentence (+) minus ln p of the bad one (-)"]
    for pair in comparison.most:
        margins = ", ".join(f"{name} {margin:+.1f}" for name, margin in zip(names, pair.margins, strict=True))
        lines += [f"  {margins}", f"    + {cut(pair.good, WIDTH - 6)}", f"    - {cut(pair.bad, WIDTH - 6)}"]
    return lines


# Words and columns.


def number(p: float) -> str:
    """Return a p value as text."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def cut(text: str, width: int) -> str:
    """Return a text on one line, shortened to `width` characters."""
    text = line(re.sub(r"\s+", " ", text))
    return text if len(text) <= width else text[: width - 1] + "…"


def table(rows: list[list[str]], numbers: int = 1) -> list[str]:
    """Return rows as lines of at most `WIDTH` characters; the columns from `numbers` on are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widest = max(range(len(widths)), key=lambda i: widths[i] if i < numbers else 0)
    widths[widest] -= max(0, sum(widths) + 2 * len(widths) - WIDTH)
    cells = [[*map(cut, row[:numbers], widths), *row[numbers:]] for row in rows]
    return [f"  {row}" for row in aligned(cells, (i >= numbers for i in range(len(widths))))]


def called(side: list[Compared]) -> str:
    """Return a short name of a side."""
    first = side[0].name
    return cut(first if len(side) == 1 else f"{first}, ... ({len(side)})", 24)


def introduction(sides: list[list[Compared]], names: list[str]) -> str:
    """Return a text that says whether weights or recipes are compared."""
    smaller, larger = sorted(map(len, sides))
    if larger == 1:
        return (
            f"{names[0]} and {names[1]}: this compares the weights of two models.\n"
            "To compare how they are made, name models with different seeds on each side: a1,a2,a3 b1,b2,b3"
        )
    few = "" if smaller > 1 else "\nOne side is a single model, so its variation over seeds is unknown."
    return f"{names[0]} and {names[1]}: this compares recipes, by means over the models of each side.{few}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("first", metavar="A", help="a model, or several with commas: eng, converted/eng, scores/gpt2, a1,a2,a3")
    add("second", metavar="B", help="the model or models to compare with")
    add("--suite", help="compare only on this suite (default: all suites that both were scored on)")
    methods = ["causal", "masked", "fused", "bound"]
    add("--method", choices=methods, help="use the scores of this method (default: each model's headline)")
    add("--pairs", type=int, default=5, metavar="N", help="show the N pairs on which they differ most (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Print the comparison."""
    from babelmill.suites import comparison

    if args.pairs < 0:
        raise UserError(f"--pairs {args.pairs}: 0 or more is expected")
    sides = [[results_of(word) for word in side.split(",") if word] for side in (args.first, args.second)]
    if not all(sides):
        raise UserError("compare: a model is expected on each side, such as `babelmill compare eng eng_big`")
    names = [called(side) for side in sides]
    if names[0] == names[1]:
        names = [cut(args.first, 24), cut(args.second, 24)]
    everyone = [model for side in sides for model in side]
    if twice := [word for word in args.first.split(",") if word and word in args.second.split(",")]:
        raise UserError(f"{twice[0]} is on both sides: name different models")
    suites = [suite for suite in everyone[0].scores if all(suite in model.scores for model in everyone)]
    others = sorted({suite for model in everyone for suite in model.scores} - set(suites))
    if args.suite and args.suite not in suites:
        without = next(model for model in everyone if args.suite not in model.scores)
        there = ", ".join(without.scores) or "no suite"
        raise UserError(f"{without.name} has no scores on {args.suite}; it was scored on {there}")
    blocks = [[introduction(sides, names)], bits_per_byte(sides, names)]
    for suite in [args.suite] if args.suite else suites:
        scored = [[comparison.read(model.scores[suite], model.name) for model in side] for side in sides]
        languages = comparison.languages_of([*scored[0], *scored[1]])
        for code in languages:
            found = comparison.compare((scored[0], scored[1]), suite, code, args.method, args.pairs)
            blocks.append(suite_lines(found, f"{suite}, {code}" if len(languages) > 1 else suite, names))
        if not languages:
            blocks.append([f"{suite}: not compared, because the models were scored in different languages"])
    if others and not args.suite:
        blocks.append([f"not compared, because some models have no scores: {escape.some(others)}"])
    if not suites:
        blocks.append(["there is no suite that both were scored on: see evaluation.suites, or `babelmill score`"])
    print("\n\n".join("\n".join(block) for block in blocks))
