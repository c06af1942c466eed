"""Compare two models: which is better, where, by how much, and whether it is chance (`babelmill compare`)."""

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
from babelmill.evaluation.metrics import DOCUMENTS, metrics_of
from babelmill.evaluation.suite_scores import headline_method, most_pairs, weighting
from babelmill.evaluation.tuned_scores import summarize
from babelmill.graph import changed_values
from babelmill.reporting.results import ModelResults, different_precisions, find
from babelmill.reporting.table import origin, shown, unit_text
from babelmill.stages import STAGES
from babelmill.suites.kinds import KINDS, OfSentences, OfWords, Scored
from babelmill.suites.results import by, mean_of_groups, mean_of_phenomena, paradigm_weights, share_of
from babelmill.suites.statistics import bootstrap, holm, mcnemar, over_documents
from babelmill.tasks import comparing
from babelmill.tasks.metrics import counts_of_words

SURE = 0.05
NAME = 16  # characters of a name in the head of a table


class Tested(NamedTuple):
    """The scores of both models on something, their difference (first minus second), and whether it is chance."""

    what: str
    n: int
    scores: tuple[float, float]
    ends: tuple[float, float] | None = None  # the 95 % interval of the difference; None if it is not known
    p: float | None = None  # None if there is no test
    how: str = ""  # the test


def comparison(words: list[str], suite: str | None, task: str | None, method: str | None) -> str:
    """Return the comparison of two models on one suite, one task, or all that both have scores of.

    `method`: whose scores are compared; None for that of each model's headline. A UserError says why they cannot be
    compared.
    """
    models = [find(word) for word in words]
    tasks = [{part.rpartition(".")[0] for part in model.tuned} for model in models]
    for kind, asked, known in (("suite", suite, [model.scores for model in models]), ("task", task, tasks)):
        for model, there in zip(models, known, strict=True):
            if asked and asked not in there:
                raise UserError(
                    f"{model.name} has no scores of the {kind} {asked}; it has some of {some(there) or 'none'}"
                )
    suites = [suite] if suite else [] if task else sorted(models[0].scores.keys() & models[1].scores)
    both = [task] if task else [] if suite else sorted(tasks[0] & tasks[1])
    others = sorted({*models[0].scores, *tasks[0]} ^ {*models[1].scores, *tasks[1]})
    short = all(len(model.name) <= NAME for model in models) and models[0].name != models[1].name
    names = [line(model.name) for model in models] if short else ["A", "B"]
    blocks = [[" and ".join(map(line, words)) if short else f"A is {line(words[0])}\nB is {line(words[1])}"]]
    if note := different_precisions(models):
        blocks[0].append(f"note: {note}")
    blocks += [changed_settings(models), validation_text(models, names)]
    blocks += [block for name in suites for block in on_suite(name, models, names, method)]
    blocks.append(on_tasks(both, models, names))
    if others and not (suite or task):
        blocks.append([f"not compared, because only one of them has scores: {some(others)}"])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def changed_settings(models: list[ModelResults]) -> list[str]:
    """Return the settings with which the models, their tokenizers and corpora were made, where they differ."""
    settings = []
    for model in models:
        found: dict[str, Any] = {}
        for (stage, code), about in model.manifests.items():
            if stage in ("train", "tokenizer", "corpus"):
                prefix = f"{code}: " if code and len(model.languages) > 1 else ""
                sections = STAGES[stage].settings.sections()
                found |= {f"{prefix}{key}": about["settings"][key] for key in sections if key in about["settings"]}
        settings.append(found | ({"languages": model.languages} if found else {}))
    if not all(settings):
        return []
    if not (changed := changed_values(*settings)):
        return ["both were made with the same settings"]
    return ["settings:", *(f"  {line(each, 200)}" for each in changed)]


def table(tests: list[Tested], unit: str, names: list[str], corrected: int = 0) -> list[str]:
    """Return tests as lines, with Holm's correction for those from number `corrected` on; a star marks those sure."""
    later = [i for i in range(corrected, len(tests)) if tests[i].p is not None]
    values = {i: test.p for i, test in enumerate(tests)}
    values |= dict(zip(later, holm([p for i in later if (p := tests[i].p) is not None]), strict=True))
    rows = [["", "", "n", *names, "difference", "p", ""]]
    for i, test in enumerate(tests):
        difference = shown(test.scores[0] - test.scores[1], unit, signed=True)
        if test.ends:
            difference += f" ({' to '.join(shown(end, unit, signed=True) for end in test.ends)})"
        p = values[i]
        text = "" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"
        scores = [shown(score, unit) for score in test.scores]
        rows.append(
            [
                "*" if p is not None and p < SURE else "",
                line(test.what, 60),
                f"{test.n:,}",
                *scores,
                difference,
                text,
                test.how,
            ]
        )
    found = [f"  {row}" for row in aligned(rows, [False, False, True, True, True, True, True, False])]
    return [*found, *([f"  p after Holm's correction for {len(later)} tests"] if len(later) > 1 else [])]


# The validation text.


def validation_text(models: list[ModelResults], names: list[str]) -> list[str]:
    """Return the scores of evaluation.json side by side, or a line that says why they cannot be compared."""
    found = [model.evaluation for model in models if model.evaluation]
    if len(found) < 2:
        return ["validation text: not compared, because not both models were measured on one"]
    if measured_on(models[0]) != measured_on(models[1]):
        return ["validation text: not compared, because they were not measured on the same documents"]
    scores = [each["variants"][model.default] for model, each in zip(models, found, strict=True)]
    tables = [documents_of(model) for model in models]
    blocks: dict[str, list[Tested]] = {}
    for name, metric in metrics_of(found[0]).items():
        if name in scores[0] and name in scores[1]:
            ends = None
            if tables[0] and tables[1]:
                columns = f"{models[0].default}_{name}", f"{models[1].default}_{name}"
                _, low, high = over_documents((tables[0], tables[1]), columns)
                ends = None if low is None or high is None else (low, high)
            pair = scores[0][name]["value"], scores[1][name]["value"]
            what = f"{name} (upper bound)" if metric.bound else name
            blocks.setdefault(metric.unit, []).append(
                Tested(what, found[0].get("documents", {}).get("scored", 0), pair, ends)
            )
    heading = "validation text, {}, with 95 % intervals of differences over documents"
    return [
        row for unit, tests in blocks.items() for row in [heading.format(unit_text(unit)), *table(tests, unit, names)]
    ]


def measured_on(model: ModelResults) -> tuple[Any, ...]:
    """Return what a model was measured on: the texts, the documents scored, all documents."""
    upstream = model.manifest("evaluate")["upstream"]
    texts = {
        source: digest
        for source, digest in upstream.items()
        if f"/{STAGES['corpus'].path('x', '').parts[1]}/" in source
    }
    return texts, (model.evaluation or {}).get("documents")


def documents_of(model: ModelResults) -> pa.Table | None:
    """Return the table of the documents' scores; None for a model of labels."""
    folder = model.folders["evaluate", ""]
    if DOCUMENTS not in manifest.read(folder)["files"]:
        return None
    manifest.verify(folder, DOCUMENTS)
    return pq.ParquetFile(folder / DOCUMENTS).read()


# Suites.


def on_suite(suite: str, models: list[ModelResults], names: list[str], asked: str | None) -> Iterator[list[str]]:
    """Yield the comparison on a suite: one block of lines per language in which both models were scored."""
    about = [model.scores[suite] for model in models]
    kind = KINDS[about[0].get("kind", "pairs")]
    assert isinstance(kind, OfSentences | OfWords)
    for model in models:
        manifest.verify(model.folders["score", suite], kind.table)
    tables = [pq.ParquetFile(model.folders["score", suite] / kind.table).read() for model in models]
    codes = [code for code in about[0]["languages"] if code in about[1]["languages"]]
    if not codes:
        yield [f"{suite}: not compared, because the models were scored in different languages"]
    for code in codes:
        title = f"{suite}, {code}" if len(codes) > 1 else suite
        rows = [
            each.filter(pa.array([language == code for language in each["language"].to_pylist()])) for each in tables
        ]
        check_items(
            title, models, [each["languages"][code]["pairs"] for each in about], [kind.texts(each) for each in rows]
        )
        methods = [asked or headline_method(each) for each in about]
        for model, each, method in zip(models, about, methods, strict=True):
            if method not in (there := each["languages"][code]["methods"]):
                raise UserError(f"{model.name} has no scores of method {method}; it has {some(there)}")
        entries = [each["languages"][code]["methods"][method] for each, method in zip(about, methods, strict=True)]
        unit, how = about[0].get("measure", "share"), " and ".join(dict.fromkeys(methods))
        if isinstance(kind, OfSentences) and not about[0].get("measure"):
            tests = list(on_items(kind, about[0], rows, methods))
            heading = f"{title}: % of {kind.items} that are right ({weighting(about[0]['headline']['of'])}), {how}"
            if tests[0].n < len(rows[0]):
                heading += f"\n  of {len(rows[0]):,}, only {tests[0].n:,} have scores of both models"
            yield [heading, *table(tests, "share", names, corrected=1)]
            continue
        found = None
        if isinstance(kind, OfWords):
            found = kind.difference([Scored(*each) for each in zip(rows, methods, entries, strict=True)])
        scores = tuple(each["pairs"]["score"] for each in entries)
        ends, over = (
            ((found[2][0], found[2][1]), f"over {found[0]}") if found else (None, "no test compares such scores")
        )
        yield [
            f"{title}: {unit_text(unit)}, {how}",
            *table([Tested("all", entries[0]["pairs"]["n"], scores, ends, None, over)], unit, names),
        ]


def check_items(title: str, models: list[ModelResults], figures: list[dict[str, Any]], texts: list[Any]) -> None:
    """Raise a UserError unless both models were scored on the same items, of the same commit."""
    origins = [origin(each) for each in figures]
    if origins[0] != origins[1]:
        both = f"{models[0].name} was scored on {origins[0]}, {models[1].name} on {origins[1]}"
        raise UserError(f"{title}: {both}: these are not the same items; score one of them again")
    if texts[0] != texts[1]:
        raise UserError(
            f"{title}: {models[0].name} and {models[1].name} were not scored on the same items: score one again"
        )


def on_items(kind: OfSentences, about: dict[str, Any], rows: list[pa.Table], methods: list[str]) -> Iterator[Tested]:
    """Yield the test over all items for which both models have scores, and those of the phenomena, the surest first."""
    points = np.array([kind.points(each, method) for each, method in zip(rows, methods, strict=True)])
    common = ~np.isnan(points).any(0)
    if not common.any():
        raise UserError(f"{about['suite']}: no {kind.item} was scored by both; score them with the same masked_pairs")
    paradigms, phenomena = (np.array(rows[0][key].to_pylist(), object)[common] for key in ("paradigm", "phenomenon"))
    first, second = points[:, common]
    of = about["headline"]["of"]
    sampled = any(most_pairs(about, method) for method in methods)
    sizes = dict(Counter(rows[0]["paradigm"].to_pylist())) if sampled else None

    def tested(what: str, mine: np.ndarray, of: str) -> Tested:
        """Return the test on some of the items, whose paradigms are weighted as `results.summary` does."""
        groups, strata = np.unique(paradigms[mine], return_inverse=True)
        pair, weights = (first[mine], second[mine]), list[float]()
        if of == "paradigms":
            scores = [mean_of_groups(by(paradigms[mine], each).values()) for each in pair]
        elif of == "phenomena":
            scores = [mean_of_phenomena(each, paradigms[mine], phenomena[mine]) for each in pair]
            of_paradigm = paradigm_weights(paradigms[mine], phenomena[mine])
            weights = [of_paradigm[name] for name in groups]
        else:
            scores = [share_of(each, paradigms[mine], sizes) for each in pair]
            strata, weights = (strata, [sizes[name] for name in groups]) if sizes else (None, [])
        low, high = bootstrap(pair[0][None], pair[1][None], strata, weights)
        test = mcnemar(*pair)
        how = f"McNemar, {test.first:,} : {test.second:,}" + (f", {test.half:,} ties" if test.half else "")
        return Tested(what, int(mine.sum()), (scores[0]["score"], scores[1]["score"]), (low, high), test.p, how)

    yield tested("all", np.ones(len(first), bool), of)
    if len(names := sorted(set(phenomena))) > 1:
        yield from sorted((tested(name, phenomena == name, "pairs") for name in names), key=lambda test: test.p or 0.0)


# Fine-tuned tasks.


class Run(NamedTuple):
    """A model that was fine-tuned with one seed: its folder, its manifest, scores and predictions."""

    folder: Path
    about: dict[str, Any]
    scores: dict[str, Any]
    rows: dict[str, list[Any]]


def on_tasks(tasks: Iterable[str], models: list[ModelResults], names: list[str]) -> list[str]:
    """Return the tests on tasks that both models were tuned for; raise a UserError if they cannot be compared."""
    tests, remarks, apart = list[Tested](), list[str](), list[str]()
    for task in tasks:
        sides = [[read_run(model, part) for part in model.tuned if part.rpartition(".")[0] == task] for model in models]
        runs = [run for side in sides for run in side]
        codes = [code for code in runs[0].scores["languages"] if all(code in run.scores["languages"] for run in runs)]
        apart += [] if codes else [task]
        for run in runs[1:]:
            check_runs(task, codes, runs[0], run)
        for code in codes:
            metric, protocol = (runs[0].scores[key] for key in ("metric", "protocol"))
            classes = runs[0].scores["languages"][code]["classes"]
            if "sentence" in runs[0].rows:
                found = comparing.difference_of_words(
                    [[np.array([counts(run, code) for run in side])] for side in sides]
                )
            else:
                told = [[np.array([numbers(run, code, "prediction") for run in side])] for side in sides]
                found = comparing.difference(metric, numbers(runs[0], code, "label"), told, len(classes))
            what = ", ".join([task, *([code] if len(codes) > 1 else []), protocol, metric])
            how = f"McNemar, {found.test.first:,} : {found.test.second:,}" if found.test else "bootstrap"
            how += "" if len(runs) == 2 else f", {len(sides[0])} : {len(sides[1])} seeds"
            tests.append(
                Tested(
                    what, runs[0].scores["languages"][code]["n"], found.scores, (found.low, found.high), found.p, how
                )
            )
            for model, side in zip(models, sides, strict=True):
                warned = [
                    each.warning
                    for each in summarize(run.scores for run in side)
                    if each.language == code and each.warning
                ]
                remarks += [f"  {model.name} has learnt nothing of {task}, {code}: {warning}" for warning in warned]
    remarks += [f"fine-tuning for {some(apart)}: not compared, because the languages differ"] if apart else []
    return ["fine-tuned: scores x 100, means over seeds", *table(tests, "share", names), *remarks] if tests else remarks


def read_run(model: ModelResults, part: str) -> Run:
    """Read a folder that the stage `tune`, or the command, wrote."""
    folder = model.folders["tune", part]
    about = manifest.verify(folder, "predictions.parquet")
    return Run(folder, about, model.tuned[part], pq.ParquetFile(folder / "predictions.parquet").read().to_pydict())


def numbers(run: Run, code: str, column: str) -> np.ndarray:
    """Return a column of labels in a language as numbers of classes, [rows]; -1 for a word without a prediction."""
    number = {name: number for number, name in enumerate(run.scores["languages"][code]["classes"])} | {None: -1}
    pairs = zip(run.rows["language"], run.rows[column], strict=True)
    return np.array([number[label] for language, label in pairs if language == code])


def counts(run: Run, code: str) -> np.ndarray:
    """Return what `counts_of_words` returns of the words that a run tagged in a language, [sentences, 3]."""
    sentences = [s for s, language in zip(run.rows["sentence"], run.rows["language"], strict=True) if language == code]
    begins = np.flatnonzero(np.diff(sentences)) + 1
    labels, told = (np.split(numbers(run, code, column), begins) for column in ("label", "prediction"))
    return counts_of_words(run.scores["metric"], labels, told, run.scores["languages"][code]["classes"])


def check_runs(task: str, codes: list[str], first: Run, other: Run) -> None:
    """Raise a UserError unless two runs were tuned by the same protocol, and scored on the same rows."""
    where = f"{task}: {first.folder} and {other.folder}"
    if changed := changed_values(protocol_of(first), protocol_of(other)):
        raise UserError(f"{where} were tuned by different protocols ({changed[0]}); tune one of them again")
    for code in codes:
        if rows_of(first, code) != rows_of(other, code):
            cut = first.about["settings"].get("tuning", {}).get("words_cut") == "left_out"
            hint = f"their tokenizers cut different words, which {task}_sound would score" if cut else "tune one again"
            raise UserError(f"{where} were not scored on the same rows of {code}; {hint}")


def protocol_of(run: Run) -> dict[str, Any]:
    """Return what two runs must have in common."""
    asked = run.about["settings"]
    joint = {"joint": asked["covered"]} if asked.get("joint") else {}
    return {key: run.scores[key] for key in ("protocol", "metric")} | joint | asked.get("tuning", {})


def rows_of(run: Run, code: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return what tells the rows of a language apart: the digest of the result that has them, and their labels."""
    digests = [digest for source, digest in run.about["upstream"].items() if Path(source).name == code]
    labels = zip(*(run.rows[key] for key in ("language", "row", "label")), strict=True)
    return digests, [row for row in labels if row[0] == code]
