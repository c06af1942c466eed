"""Compare two models: settings, bits per byte, and every suite and fine-tuning task that both have scores of.

    babelmill compare eng eng_big
    babelmill compare eng scores/openai-community--gpt2 --suite blimp
    babelmill compare eng tuned/openai-community--gpt2 --suite rte_sound    # a fine-tuning task

A model is a name of this workflow, a converted folder, or a folder of scores (what `babelmill score` or `babelmill
tune` wrote). The settings that differ come first: those that corpora, tokenizer and weights were made with. A value
that is `unset` cannot matter there, or is the usual one.

Every difference has a 95 % interval: of bits per byte, over the documents that both models were measured on; of a
suite, over its items. The test over items is the exact test of McNemar, and the tests of single phenomena have Holm's
correction. Suites of two different commits are refused.

Of tasks, predictions for the same test rows are compared, and only if both models were tuned by the same protocol. The
test is McNemar's if each has one seed and rows are texts, else a bootstrap over rows or sentences, and over seeds.
Holm's correction is for all tasks together.

This compares the weights of two models. To compare how they are made, use an experiment: several seeds of each.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.core import manifest
from babelmill.core.escape import line, some
from babelmill.core.files import UserError
from babelmill.core.words import aligned
from babelmill.evaluation.metrics import BITS, DOCUMENTS, SHARE, metrics_of
from babelmill.evaluation.statistics import holm, mcnemar, of_points, over_documents
from babelmill.evaluation.suite_scores import most_pairs, weighting
from babelmill.graph import changed_values
from babelmill.reporting.results import ModelResults, different_precisions, find
from babelmill.reporting.table import ALL, TUNED, Frame, ScoreRow, of_suite, rows_of, shown, unit_text
from babelmill.stages import LABEL, STAGES
from babelmill.suites.items import ITEMS, NOUNS
from babelmill.suites.kinds import KINDS, OfSentences
from babelmill.suites.results import by, mean_of_groups, paradigm_weights
from babelmill.tasks.metrics import compared, compared_words, counts_of_words

SURE = 0.05


class Tested(NamedTuple):
    """The scores of both models on something, their difference (first minus second), and whether it is chance."""

    what: str
    n: int
    scores: tuple[float, float]
    ends: tuple[float | None, float | None] = (None, None)  # the 95 % interval of the difference
    p: float | None = None  # None if there is no test
    how: str = ""  # the test


def comparison(words: list[str], only: str | None, method: str | None) -> str:
    """Return the comparison of two models on one suite or task (`only`), or all that both have scores of.

    `method`: whose scores are compared; None for that of each model's headline. A UserError says why they cannot be
    compared.
    """
    models = [find(word) for word in words]
    scored = [{*model.scores} for model in models]
    tuned = [{part.rpartition(".")[0] for part in model.tuned} for model in models]
    if only:
        for model, there in zip(models, map(set.union, scored, tuned), strict=True):
            if only not in there:
                raise UserError(f"{model.name} has no scores of {only}; it has some of {some(sorted(there)) or 'none'}")
        scored, tuned = ([each & {only} for each in sets] for sets in (scored, tuned))
    others = sorted((scored[0] | tuned[0]) ^ (scored[1] | tuned[1]))
    blocks = [[f"A is {line(words[0])}\nB is {line(words[1])}"]]
    blocks[0] += [f"note: {note}"] if (note := different_precisions(models)) else []
    blocks += [changed_settings(models), validation_text(models)]
    blocks += [block for name in sorted(scored[0] & scored[1]) for block in on_suite(name, models, method)]
    blocks.append(on_tasks(sorted(tuned[0] & tuned[1]), models))
    if others:
        blocks.append([f"not compared, because only one of them has scores: {some(others)}"])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def changed_settings(models: list[ModelResults]) -> list[str]:
    """Return the settings with which the models, their tokenizers and corpora were made, where they differ."""
    settings = []
    for model in models:
        found: dict[str, Any] = {"languages": model.languages} if model.manifests else {}
        for (stage, code), about in model.manifests.items():
            if stage in ("train", "tokenizer", "corpus"):
                prefix = f"{code}: " if code and len(model.languages) > 1 else ""
                sections = STAGES[stage].sections()
                found |= {f"{prefix}{key}": about["settings"][key] for key in sections if key in about["settings"]}
        settings.append(found)
    if not all(("train", "") in model.manifests for model in models):
        return []
    changed = [f"  {line(each, 200)}" for each in changed_values(*settings)]
    return ["settings:", *changed] if changed else ["both were made with the same settings"]


def table(tests: list[Tested], unit: str, corrected: int = 0) -> list[str]:
    """Return tests as lines, with Holm's correction for those from number `corrected` on; a star marks those sure."""
    values = [test.p for test in tests]
    later = [i for i in range(corrected, len(tests)) if values[i] is not None]
    for i, p in zip(later, holm([p for i in later if (p := values[i]) is not None]), strict=True):
        values[i] = p
    rows = [["", "", "n", "A", "B", "difference", "p", ""]]
    for test, p in zip(tests, values, strict=True):
        first, second = test.scores
        ends = f" ({' to '.join(shown(end, unit, signed=True) for end in test.ends)})" if None not in test.ends else ""
        cells = [line(test.what, 60), f"{test.n:,}", shown(first, unit), shown(second, unit)]
        cells.append(shown(first - second, unit, signed=True) + ends)
        text = "" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"
        rows.append(["*" if p is not None and p < SURE else "", *cells, text, test.how])
    found = [f"  {row}" for row in aligned(rows, [False, False, True, True, True, True, True, False])]
    return found + ([f"  p after Holm's correction for {len(later)} tests"] if len(later) > 1 else [])


def validation_text(models: list[ModelResults]) -> list[str]:
    """Return the scores of evaluation.json side by side, or a line that says why they cannot be compared."""
    found, tests, unit = [model.evaluation or {} for model in models], list[Tested](), BITS
    if not all(found):
        return ["validation text: not compared, because not both models were measured on one"]
    texts = [{s: d for s, d in model.manifest("evaluate")["upstream"].items() if "/corpus/" in s} for model in models]
    if texts[0] != texts[1] or found[0].get("documents") != found[1].get("documents"):
        return ["validation text: not compared, because they were not measured on the same documents"]
    documents = [documents_of(model) for model in models]
    first, second = (each["variants"][model.default] for model, each in zip(models, found, strict=True))
    for name, metric in metrics_of(found[0]).items():
        if name in first and name in second:
            ends, unit = (None, None), metric.unit
            if documents[0] and documents[1]:
                columns = f"{models[0].default}_{name}", f"{models[1].default}_{name}"
                ends = over_documents((documents[0], documents[1]), columns)[1:3]
            what, n = f"{name} (upper bound)" if metric.bound else name, found[0].get("documents", {}).get("scored", 0)
            tests.append(Tested(what, n, (first[name]["value"], second[name]["value"]), ends))
    return [f"validation text, {unit_text(unit)}; intervals are over documents", *table(tests, unit)]


def documents_of(model: ModelResults) -> pa.Table | None:
    """Return the table of the documents' scores; None for a model of labels."""
    if DOCUMENTS not in model.manifest("evaluate")["files"]:
        return None
    return read(model.folders["evaluate", ""], DOCUMENTS)


def read(folder: Path, name: str) -> pa.Table:
    """Return a table of a result; raise a UserError if it is damaged."""
    manifest.verify(folder, name)
    return pq.ParquetFile(folder / name).read()


# Suites.


def on_suite(suite: str, models: list[ModelResults], asked: str | None) -> Iterator[list[str]]:
    """Yield the comparison on a suite: one block of lines per language in which both models were scored."""
    about = [model.scores[suite] for model in models]
    kind = KINDS[about[0].get("kind", "pairs")]
    tables = [read(model.folders["score", suite], ITEMS) for model in models]
    codes = [code for code in about[0]["languages"] if code in about[1]["languages"]]
    if not codes:
        yield [f"{suite}: not compared, because the models were scored in different languages"]
    for code in codes:
        title = f"{suite}, {code}" if len(codes) > 1 else suite
        heads = [head(model, suite, code, asked) for model in models]
        if heads[0].items != heads[1].items:
            both = " and ".join(f"{each.model} on {each.items}" for each in heads)
            raise UserError(f"{title}: not the same items ({both}); score one of them again")
        rows = [each.filter(pa.array([each == code for each in each["language"].to_pylist()])) for each in tables]
        if kind.texts(rows[0]) != kind.texts(rows[1]):
            raise UserError(f"{title}: {models[0].name} and {models[1].name} were not scored on the same items")
        how, unit = " and ".join(dict.fromkeys(each.method for each in heads)), heads[0].unit
        how += f", {heads[0].baseline}" if heads[0].simple is not None else ""
        if isinstance(kind, OfSentences):
            tests = list(on_items(kind, about[0], rows, [each.method for each in heads]))
            yield [f"{title}: % right, {weighting(about[0]['headline']['of'])}, {how}", *table(tests, unit, 1)]
            continue
        ends, over = (None, None), "no test compares such scores"
        if found := kind.difference(rows, [each.method for each in heads]):
            ends, over = (found[2][0], found[2][1]), f"bootstrap over {found[0]}"
        whole = Tested(ALL, heads[0].n, (heads[0].score, heads[1].score), ends, None, over)
        yield [f"{title}: {unit_text(unit)}, {how}", *table([whole], unit)]


def head(model: ModelResults, suite: str, code: str, method: str | None) -> ScoreRow:
    """Return the score of a model on a suite by a method (None: the headline's); raise a UserError without one."""
    rows = (row for row in of_suite(model.name, suite, model.scores[suite]) if row.language == code)
    found = {row.method: row for row in rows if row.phenomenon == row.paradigm == ALL}
    chosen = [row for row in found.values() if (row.method == method if method else row.headline)]
    if not chosen:
        raise UserError(f"{model.name} has no scores of method {method or '(headline)'}; it has {some(found)}")
    return chosen[0]


def on_items(kind: OfSentences, about: dict[str, Any], rows: list[pa.Table], methods: list[str]) -> Iterator[Tested]:
    """Yield the test over all items for which both models have scores, and those of the phenomena, the surest first."""
    points = np.array([kind.points(each, method) for each, method in zip(rows, methods, strict=True)])
    common = ~np.isnan(points).any(0)
    if not common.any():
        item = NOUNS[about.get("kind", "pairs")]
        raise UserError(f"{about['suite']}: no {item} was scored by both; score them with the same max_masked_items")
    every = rows[0]["paradigm"].to_pylist()
    sizes = dict(Counter(every)) if any(most_pairs(about, method) for method in methods) else None
    paradigms, phenomena = (np.array(rows[0][key].to_pylist(), object)[common] for key in ("paradigm", "phenomenon"))
    points = points[:, common]

    def tested(what: str, mine: np.ndarray, of: str) -> Tested:
        """Return the test on some of the items, whose paradigms are weighted as `results.summary` does."""
        both, names = points[:, mine], paradigms[mine]
        groups, strata = np.unique(names, return_inverse=True)
        weights = sizes
        if of != "pairs":
            weights = dict.fromkeys(groups, 1.0) if of == "paradigms" else paradigm_weights(names, phenomena[mine])
        shares = [weights[name] for name in groups] if weights else []
        means = [mean_of_groups(by(names, each).values(), shares)["score"] if weights else each.mean() for each in both]
        found, test = of_points(both, strata if weights else None, shares), mcnemar(both[0], both[1])
        how = f"McNemar, {test.first:,} : {test.second:,}" + (f", {test.half:,} ties" if test.half else "")
        return Tested(what, int(mine.sum()), (means[0], means[1]), found[1:3], test.p, how)

    whole = f"all that both scored, of {len(every):,}" if not common.all() else ALL
    yield tested(whole, np.ones(points.shape[1], bool), about["headline"]["of"])
    if len(kinds := sorted(set(phenomena))) > 1:
        yield from sorted((tested(name, phenomena == name, "pairs") for name in kinds), key=lambda test: test.p or 0.0)


# Fine-tuned tasks.


class Run(NamedTuple):
    """A model that was fine-tuned with one seed: its folder, its manifest, scores and predictions."""

    folder: Path
    about: dict[str, Any]
    scores: dict[str, Any]
    rows: Frame

    def numbers(self, code: str, column: str) -> np.ndarray:
        """Return a column of labels in a language as numbers of classes, [rows]; -1 for a word without a prediction."""
        classes = {name: number for number, name in enumerate(self.scores["languages"][code]["classes"])}
        return self.rows[self.rows["language"] == code][column].map(classes).fillna(-1).to_numpy(int)

    def counts(self, code: str) -> np.ndarray:
        """Return what `counts_of_words` returns of the words that were tagged in a language, [sentences, 3]."""
        begins = np.flatnonzero(np.diff(self.rows[self.rows["language"] == code]["sentence"])) + 1
        labels, told = (np.split(self.numbers(code, column), begins) for column in ("label", "prediction"))
        return counts_of_words(self.scores["metric"], labels, told, self.scores["languages"][code]["classes"])

    def protocol(self) -> dict[str, Any]:
        """Return what two runs must have in common."""
        asked = self.about["settings"]
        joint = {"joint": asked["covered"]} if asked.get("joint") else {}
        return {key: self.scores[key] for key in ("protocol", "metric")} | joint | asked.get("tuning", {})

    def tested(self, code: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return what tells the rows of a language apart: the digest of the result that has them, and their labels."""
        label = f"{self.scores['task']}_{code}"[:LABEL]
        digests = [sum for path, sum in self.about["upstream"].items() if Path(path).name.startswith(f"{label}-")]
        rows = self.rows[self.rows["language"] == code][["row", "label"]]
        return digests, list(rows.itertuples(index=False, name=None))


def on_tasks(tasks: Iterable[str], models: list[ModelResults]) -> list[str]:
    """Return the tests on tasks that both models were tuned for; raise a UserError if they cannot be compared."""
    tests, remarks = list[Tested](), list[str]()
    for task in tasks:
        sides = [[read_run(model, part) for part in model.tuned if part.rpartition(".")[0] == task] for model in models]
        first, *others = (run for side in sides for run in side)
        codes = [code for code in first.scores["languages"] if all(code in run.scores["languages"] for run in others)]
        remarks += [] if codes else [f"  {task}: not compared, because the models were tuned for different languages"]
        for run in others:
            check_runs(task, codes, first, run)
        for code in codes:
            metric, entry = first.scores["metric"], first.scores["languages"][code]
            if "sentence" in first.rows:
                told = [np.array([run.counts(code) for run in side]) for side in sides]
                found, test = compared_words((told[0], told[1])), None
            else:
                told = [np.array([run.numbers(code, "prediction") for run in side]) for side in sides]
                labels = first.numbers(code, "label")
                found, test = compared(metric, labels, (told[0], told[1]), len(entry["classes"]))
            means = [float(np.mean([run.scores["languages"][code]["score"] for run in side])) for side in sides]
            what = ", ".join([task, *([code] if len(codes) > 1 else []), first.scores["protocol"], metric])
            how = f"McNemar, {test.first:,} : {test.second:,}" if test else "bootstrap"
            how += "" if len(others) == 1 else f", {len(sides[0])} : {len(sides[1])} seeds"
            tests.append(Tested(what, entry["n"], (means[0], means[1]), found[1:3], found.p, how))
    for model in models:
        rows = [row for row in rows_of(model) if row.method == TUNED and row.suite in tasks]
        remarks += [f"  {model.name}, {row.suite}: {row.remark}" for row in rows if ";" in row.remark]
    return ["fine-tuned: scores x 100, means over seeds", *table(tests, SHARE), *remarks] if tests else remarks


def read_run(model: ModelResults, part: str) -> Run:
    """Read a folder that the stage `tune`, or the command, wrote."""
    folder = model.folders["tune", part]
    return Run(folder, manifest.read(folder), model.tuned[part], read(folder, "predictions.parquet").to_pandas())


def check_runs(task: str, codes: list[str], first: Run, other: Run) -> None:
    """Raise a UserError unless two runs were tuned by the same protocol, and scored on the same rows."""
    where = f"{task}: {first.folder} and {other.folder}"
    if changed := changed_values(first.protocol(), other.protocol()):
        raise UserError(f"{where} were tuned by different protocols ({changed[0]}); tune one of them again")
    for code in codes:
        if first.tested(code) != other.tested(code):
            cut = first.about["settings"].get("tuning", {}).get("words_cut") == "left_out"
            hint = f"their tokenizers cut different words, which {task}_sound would score" if cut else "tune one again"
            raise UserError(f"{where} were not scored on the same rows of {code}; {hint}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("first", metavar="A", help="a model: eng, converted/eng, scores/gpt2")
    add("second", metavar="B", help="the model to compare with")
    add("--suite", help="compare only on this suite or fine-tuning task (default: all that both have scores of)")
    methods = ["causal", "masked", "fused", "bound"]
    add("--method", choices=methods, help="use the scores of this method (default: each model's headline)")


def run(args: argparse.Namespace) -> None:
    """Print the comparison."""
    print(comparison([args.first, args.second], args.suite, args.method))
