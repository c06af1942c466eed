"""Compare two sides, each of one or more models: which is better, where, and by how much (`babelmill compare`).

Each side is given as words: names or folders of models, joined by commas. The comparison is a text: a block for the
settings that differ, one for bits per byte, one for each suite and language, and one for all tasks that the models were
fine-tuned for.
"""

import textwrap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.commands.terminal.columns import SURE, WIDTH, cut, p_value, table, told_apart
from babelmill.commands.terminal.key_figures import default_variant
from babelmill.commands.terminal.tuned_comparison import on_tasks, tuned_in
from babelmill.core import manifest
from babelmill.core.escape import line, some
from babelmill.core.files import UserError, read_json, sha256
from babelmill.core.words import plural
from babelmill.evaluation.metrics import DOCUMENTS, metrics_of, shown, units
from babelmill.evaluation.suite_scores import METHODS, headline, headline_method, most_pairs, weighting
from babelmill.graph import changed_values
from babelmill.reporting.results import different_precisions
from babelmill.stages import STAGES
from babelmill.suites.kinds import KINDS, OfSentences, OfWords, Scored
from babelmill.suites.results import by, mean_of_groups, mean_of_phenomena, paradigm_weights, share_of
from babelmill.suites.statistics import Difference, bootstrap, holm, mcnemar, over_documents, over_seeds

RESULTS = Path("results")


def comparison(words: list[str], suite: str | None, task: str | None, method: str | None, pairs: int) -> str:
    """Return the comparison of two sides on one suite, one task, or all that all models have.

    `method`: whose scores are compared; None for that of each side's headline. `pairs`: how many of the pairs on which
    the sides differ most are shown. A UserError says why they cannot be compared.
    """
    sides = [[results_of(word) for word in side.split(",") if word] for side in words]
    if not all(sides):
        raise UserError("compare: a model is expected on each side, such as `babelmill compare eng eng_big`")
    whole = [side[0].name if len(side) == 1 else f"{side[0].name}, ... ({len(side)})" for side in sides]
    whole = words if whole[0] == whole[1] else whole
    names = told_apart(whole)
    if twice := [word for word in words[0].split(",") if word and word in words[1].split(",")]:
        raise UserError(f"{twice[0]} is on both sides: name different models")
    everyone = [model for side in sides for model in side]
    suites = [name for name in everyone[0].scores if all(name in model.scores for model in everyone)]
    tasks = [name for name in everyone[0].tuned if all(name in model.tuned for model in everyone)]
    others = sorted({name for model in everyone for name in (*model.scores, *model.tuned)} - {*suites, *tasks})
    if suite and suite not in suites:
        without = next(model for model in everyone if suite not in model.scores)
        raise UserError(
            f"{without.name} has no scores on {suite}; it was scored on {', '.join(without.scores) or 'no suite'}"
        )
    if task and task not in tasks:
        without = next(model for model in everyone if task not in model.tuned)
        raise UserError(
            f"{without.name} was not fine-tuned for {task}; it was for {', '.join(without.tuned) or 'no task'}"
        )
    chosen = bool(suite or task)
    blocks = [introduction(sides, names, whole), changed_settings(sides), bits_per_byte(sides, names)]
    if precisions := different_precisions((model.name, model.precision) for model in everyone):
        blocks[0] += textwrap.wrap(f"note: {precisions}", WIDTH)
    for name in ([suite] if suite else []) if chosen else suites:
        blocks += on_suite(name, sides, names, method, pairs)
    if of_tasks := ([task] if task else []) if chosen else tasks:
        blocks.append(on_tasks(of_tasks, [[(model.name, model.tuned) for model in side] for side in sides], names))
    if others and not chosen:
        blocks.append([f"not compared, because some models have no scores: {some(others)}"])
    if not (suites or tasks):
        blocks.append(
            ["there is no suite and no task that both have scores of: see `babelmill score` and `babelmill tune`"]
        )
    return "\n\n".join("\n".join(block) for block in blocks if block)


# The results of a model.


@dataclass
class ComparedModel:
    """The results of a model that are compared."""

    name: str  # the name in the output
    scores: dict[str, Path]  # {suite: folder}
    tuned: dict[str, list[Path]]  # {task: its folders, one per seed}
    # The content of evaluation.json; {} if there is no such file.
    evaluation: dict[str, Any] = field(default_factory=dict)
    variant: str = ""  # the variant whose bits per byte are compared
    # The corpora on which bits per byte were measured, as {folder: sha256 of its manifest}.
    texts: dict[str, str] = field(default_factory=dict)
    # The table of the documents' scores; None for a model of labels.
    documents: Path | None = None
    precision: str | None = None  # the precision in which it was trained; None if this is not known
    # The settings of its training, tokenizer and corpora by section; {} of a model from elsewhere.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def measured_on(self) -> tuple[Any, ...]:
        """Return what bits per byte were measured on: the texts, the documents scored, all documents, the bytes."""
        documents, scores = self.evaluation.get("documents", {}), next(iter(self.evaluation["variants"].values()))
        size = max(score.get("bytes", 0) for score in scores.values())
        return self.texts, documents.get("scored", 0), documents.get("of", 0), size


def results_of(word: str) -> ComparedModel:
    """Return the results of a model, given by name or folder; raise a UserError if it has none, or they are mixed."""
    folder = Path(word)
    if tuned := tuned_in(folder):
        return ComparedModel(str(folder), scores_in(folder), tuned)
    if (folder / "scores.json").is_file():
        manifest.verify(folder, "scores.json")
        return ComparedModel(str(folder), {read_json(folder / "scores.json")["suite"]: folder}, {})
    if found := scores_in(folder):
        return ComparedModel(str(folder), found, {})
    if (folder / manifest.NAME).is_file():
        about = manifest.verify(folder)
        if "evaluation" not in about["figures"]:
            raise UserError(
                f"{folder}: expected a converted model or scores; run `babelmill score {folder} --suite ...` first"
            )
        name, exported, results = about["name"], folder, folder.resolve().parents[1] / RESULTS  # of the same workflow
        evaluation, precision = about["figures"]["evaluation"], about["figures"].get("precision")
    else:
        name, exported, results, folder = word, RESULTS / "exports" / word, RESULTS, RESULTS / "evaluations" / word
        made = results / "scores" / name, results / "tuned" / name, folder
        if "/" in word or not any(each.is_dir() for each in made):
            there = {path.parent.name for kind in ("scores", "tuned") for path in RESULTS.glob(f"{kind}/*/*")}
            there |= {path.parent.name for path in RESULTS.glob("evaluations/*/evaluation.json")}
            raise UserError(
                f"{word}: neither a model with scores or an evaluation in {RESULTS}, nor a folder of scores, nor a"
                " converted model; models with scores or an evaluation:"
                f" {some(sorted(there)) or 'none yet, see evaluation.suites'}"
            )
        if not (folder / "evaluation.json").is_file():
            found = scores_in(results / "scores" / name), tuned_in(results / "tuned" / name)
            return ComparedModel(name, *found, settings=settings_of(results, name))
        about, evaluation = manifest.verify(folder), read_json(folder / "evaluation.json")
        trained = STAGES["train"].record(name, "")
        theirs = trained.is_file() and sha256(trained) == about["made_from"].get(trained.parent.as_posix())
        precision = manifest.read(trained.parent)["figures"].get("precision") if theirs else None
    scores, tuned = scores_in(results / "scores" / name), tuned_in(results / "tuned" / name)
    export = upstream(about, "exports")
    for path in [*scores.values(), *(folder for folders in tuned.values() for folder in folders)]:
        if not export.items() <= manifest.read(path)["upstream"].items():
            raise UserError(
                f"{path}: these scores belong to another model than the one in {folder}; run the workflow again"
            )
    documents = documents_of(results / "evaluations" / name, evaluation)
    variant = default_variant(evaluation, exported)
    settings, texts = settings_of(results, name), upstream(about, "corpora")
    return ComparedModel(name, scores, tuned, evaluation, variant, texts, documents, precision, settings)


def settings_of(results: Path, name: str) -> dict[str, Any]:
    """Return the settings with which the results of a model were made, by section; {} if it was not trained there."""
    record = results.parent / STAGES["train"].record(name, "")
    languages = manifest.read(record.parent)["settings"].get("languages", []) if record.is_file() else []
    found: dict[str, Any] = {"languages": languages} if languages else {}
    for stage, code in [("train", ""), ("tokenizer", ""), *(("corpus", code) for code in languages)]:
        record = results.parent / STAGES[stage].record(code or name, code)
        if languages and record.is_file():
            written = manifest.read(record.parent)["settings"]
            prefix = f"{code}: " if code and len(languages) > 1 else ""
            found |= {f"{prefix}{key}": written[key] for key in STAGES[stage].settings.sections() if key in written}
    return found


def scores_in(folder: Path) -> dict[str, Path]:
    """Return {suite: folder of scores} for the folder of a model."""
    found = [path for path in sorted(folder.glob("*/scores.json")) if "suite" in read_json(path)]
    return {path.parent.name: path.parent for path in found}


def documents_of(folder: Path, evaluation: dict[str, Any]) -> Path | None:
    """Return the table of the documents' scores that belongs to an evaluation; None if the folder has no such table."""
    if not (folder / manifest.NAME).is_file() or DOCUMENTS not in manifest.read(folder)["files"]:
        return None
    manifest.verify(folder, "evaluation.json", DOCUMENTS)
    return folder / DOCUMENTS if read_json(folder / "evaluation.json") == evaluation else None


def upstream(about: dict[str, Any], what: str) -> dict[str, str]:
    """Return the inputs of one kind that a manifest lists, such as `corpora`: {folder: sha256 of its manifest}."""
    return {source: digest for source, digest in about["upstream"].items() if f"/{what}/" in source}


def introduction(sides: list[list[ComparedModel]], names: list[str], whole: list[str]) -> list[str]:
    """Return lines that say whether weights or recipes are compared; `whole`: the names before they were shortened."""
    smaller, larger = sorted(map(len, sides))
    long = [f"  {short} is {line(name)}" for short, name in zip(names, whole, strict=True) if short != name]
    if larger == 1:
        return [
            f"{names[0]} and {names[1]}: this compares the weights of two models.",
            *long,
            "To compare how they are made, name models with different seeds on each side: a1,a2,a3 b1,b2,b3",
        ]
    few = [] if smaller > 1 else ["One side is a single model, so its variation over seeds is unknown."]
    return [f"{names[0]} and {names[1]}: this compares recipes, by means over the models of each side.", *long, *few]


def changed_settings(sides: list[list[ComparedModel]]) -> list[str]:
    """Return the settings in which the sides' first models differ, as the results were made; [] if one is unknown."""
    first, second = (side[0] for side in sides)
    if not (first.settings and second.settings):
        return []
    changed = changed_values(first.settings, second.settings)
    if not changed:
        return [f"{first.name} and {second.name} were made with the same settings"]
    return [f"settings, {first.name} -> {second.name}:", *(f"  {cut(each, WIDTH - 2)}" for each in changed)]


# Bits per byte.


def bits_per_byte(sides: list[list[ComparedModel]], names: list[str]) -> list[str]:
    """Return lines with the scores of evaluation.json side by side, or a line that says why they cannot be compared."""
    everyone = [*sides[0], *sides[1]]
    first, second = everyone[0], sides[1][0]
    if without := dict.fromkeys(model.name for model in everyone if not model.evaluation):
        return [f"bits per byte: not compared, because there is no evaluation.json of {some(without)}"]
    if any(model.measured_on != first.measured_on for model in everyone):
        return ["bits per byte: not compared, because they were not measured on the same documents"]
    what = f"{units(first.evaluation)} of {plural(first.measured_on[1], 'document')}"
    notes, tables = [], None
    recipes = len(everyone) > 2
    if recipes:
        lines = [f"{what}, means over models (smallest to largest);", "  differences with 95 % intervals over seeds"]
        if min(map(len, sides)) == 1:
            notes = ["  no interval: one side is a single model"]
    elif first.documents and second.documents:
        tables = pq.ParquetFile(first.documents).read(), pq.ParquetFile(second.documents).read()
        lines = [f"{what}, ± standard errors; difference with its 95 % interval over documents"]
    else:
        lines = [f"{what}, ± standard errors"]
    rows = [["", *names, "difference"]]
    for name, metric in metrics_of(first.evaluation).items():
        scores = [[model.evaluation["variants"][model.variant].get(name) for model in side] for side in sides]
        if not all(map(all, scores)):
            continue
        values = [[score["value"] for score in side] for side in scores]
        cells = [shown(side[0], metric) for side in scores]
        if recipes:
            cells, difference = [mean_and_ends(side) for side in values], over_seeds(*values)
        elif tables:
            difference = over_documents(tables, (f"{first.variant}_{name}", f"{second.variant}_{name}"))
        else:
            difference = Difference(values[0][0] - values[1][0], None, None)
        value, low, high = difference
        interval = "" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})"
        rows.append([f"{name} (bound)" if metric.bound else name, *cells, f"{value:+.3f}{interval}"])
    if len(rows) == 1:
        return ["bits per byte: not compared, because the models have no score in common"]
    if lossy := [model.name for model in everyone if model.evaluation.get("documents", {}).get("changed")]:
        notes.append(f"  the tokenizer of {', '.join(lossy)} changes some documents")
    return [*lines, *table(rows), *notes]


def mean_and_ends(values: list[float]) -> str:
    """Return the mean of several models' scores, with the smallest and the largest; one score as it is."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})"


# Suites.


class ScoredModel(NamedTuple):
    """The scores of a model on a suite: the model's name, the suite's kind, `scores.json`, and a row per item."""

    name: str
    kind: OfSentences | OfWords
    about: dict[str, Any]
    rows: pa.Table


def read(folder: Path, name: str) -> ScoredModel:
    """Read the folder of scores that the stage `score`, or the command, wrote."""
    manifest.verify(folder)
    about = read_json(folder / "scores.json")
    kind = KINDS[about.get("kind", "pairs")]
    assert isinstance(kind, OfSentences | OfWords)
    return ScoredModel(name, kind, about, pq.ParquetFile(folder / kind.table).read())


def on_suite(
    suite: str, sides: list[list[ComparedModel]], names: list[str], method: str | None, pairs: int
) -> list[list[str]]:
    """Return the comparison on a suite, one block of lines per language that all models were scored in."""
    scored = [[read(model.scores[suite], model.name) for model in side] for side in sides]
    everyone = [*scored[0], *scored[1]]
    languages = [code for code in everyone[0].about["languages"] if all(code in m.about["languages"] for m in everyone)]
    if not languages:
        return [[f"{suite}: not compared, because the models were scored in different languages"]]
    blocks = []
    for code in languages:
        of_language = [[model._replace(rows=in_language(model.rows, code)) for model in side] for side in scored]
        title = f"{suite}, {code}" if len(languages) > 1 else suite
        check_same([*of_language[0], *of_language[1]], title, code)
        if isinstance(everyone[0].kind, OfWords) or everyone[0].about.get("measure"):
            blocks.append(side_by_side(of_language, title, code, names, method))
        else:
            blocks.append(in_one_language(of_language, title, names, method, pairs))
    return blocks


def side_by_side(
    sides: list[list[ScoredModel]], title: str, code: str, names: list[str], asked: str | None
) -> list[str]:
    """Return scores that are no shares of right answers, without a test; of words, the difference of two models."""
    kind, rows, scored = sides[0][0].kind, [], list[Scored]()
    for name, side in zip(names, sides, strict=True):
        for model in side:
            label, score = name if len(side) == 1 else model.name, headline(model.about, code)
            if isinstance(kind, OfWords):
                methods = model.about["languages"][code]["methods"]
                if (method := asked or headline_method(model.about)) not in methods:
                    raise UserError(f"{model.name} has no scores of method {method}; it has {', '.join(methods)}")
                scored.append(Scored(model.rows, method, methods[method]))
                label, score = f"{label} ({method})", methods[method]["pairs"]
            if score:
                low, high = (100 * end for end in score["interval"])
                rows.append([label, f"{100 * score['score']:.1f}", f"({low:.1f} to {high:.1f})"])
    heading = f"{title}: {sides[0][0].about['measure']} x 100, with 95 % intervals"
    if not isinstance(kind, OfWords):
        return [f"{heading}; no test compares such scores", *table(rows)]
    if len(scored) > 2:
        return [f"{heading}; no test compares several models", *table(rows)]
    if (found := kind.difference(scored)) is None:
        return [f"{heading}; both know too few words for a difference", *table(rows)]
    over, value, ends = found
    rows.append(["difference", f"{100 * value:+.1f}", "({:+.1f} to {:+.1f})".format(*(100 * end for end in ends))])
    return [f"{heading}; difference: bootstrap over {over}", *table(rows)]


def in_language(rows: pa.Table, code: str) -> pa.Table:
    """Return the rows of a language."""
    return rows.filter(pa.array([language == code for language in rows["language"].to_pylist()]))


def check_same(models: list[ScoredModel], title: str, code: str) -> None:
    """Raise a UserError unless all models were scored on the same pairs of a language."""
    first = models[0]
    for other in models[1:]:
        origins = [origin(model.about["languages"][code]["pairs"]) for model in (first, other)]
        if origins[0] != origins[1]:
            raise UserError(
                f"{title}: {first.name} was scored on {origins[0]}, {other.name} on {origins[1]}: these are"
                " not the same pairs; score one of them again"
            )
        if first.kind != other.kind or first.kind.texts(first.rows) != other.kind.texts(other.rows):
            raise UserError(
                f"{title}: {first.name} and {other.name} were not scored on the same pairs: score one again"
            )


def origin(figures: dict[str, Any]) -> str:
    """Return where the pairs of a suite come from: a commit, or files with their sha256."""
    if hub := figures["hub"]:
        return f"{hub['repository']} at {hub['commit'][:12]}"
    return ", ".join(f"{Path(source['path']).name} ({source['sha256'][:12]})" for source in figures["sources"])


def method_of(side: list[ScoredModel], asked: str | None) -> str:
    """Return the method of a side: the one asked for, or that of its models' headlines, if all have it.

    A UserError says that not all models have it.
    """
    methods = {asked or headline_method(each.about) for each in side}
    if len(methods) > 1:
        raise UserError(
            f"{', '.join(each.name for each in side)}: their headlines are of different methods"
            f" ({', '.join(sorted(methods))}); choose one with --method"
        )
    (method,) = methods
    for each in side:
        there = [name for name in METHODS if cast(OfSentences, each.kind).has_scores(each.rows, name)]
        if method not in there:
            raise UserError(f"{each.name} has no scores of method {method}; it has {', '.join(there)}")
    return method


def in_one_language(
    sides: list[list[ScoredModel]], title: str, names: list[str], asked: str | None, count: int
) -> list[str]:
    """Compare two sides on those pairs of a language for which both have scores.

    The points of a side with several models are means over them, and its interval also accounts for their choice.
    """
    methods = [method_of(side, asked) for side in sides]
    both = list(zip(sides, methods, strict=True))
    kind = sides[0][0].kind
    assert isinstance(kind, OfSentences)
    points = [  # [models, pairs] of each side
        np.array([kind.points(model.rows, method) for model in side]) for side, method in both
    ]
    common = ~np.isnan(np.concatenate(points)).any(0)
    if not common.any():
        raise UserError(f"{title}: no {kind.item} was scored for both sides; score them with the same masked_pairs")
    points = [each[:, common] for each in points]
    means, seeds = [each.mean(0) for each in points], max(map(len, points)) > 1
    every, of = sides[0][0].rows, sides[0][0].about["headline"]["of"]
    pairs = every.filter(pa.array(common))
    paradigms, phenomena = (np.array(pairs[key].to_pylist(), object) for key in ("paradigm", "phenomenon"))
    sampled = any(most_pairs(model.about, method) for side, method in both for model in side)
    sizes = dict(Counter(every["paradigm"].to_pylist())) if sampled else None

    def score(points: np.ndarray) -> dict[str, Any]:
        """Return the headline score from the points of one model, as `results.summary` does."""
        if of == "paradigms":
            return mean_of_groups(by(paradigms, points).values())
        if of == "phenomena":
            return mean_of_phenomena(points, paradigms, phenomena)
        return share_of(points, paradigms, sizes)

    def interval(first: np.ndarray, second: np.ndarray) -> list[float]:
        """Return the interval of the difference of two headline scores, from [models, pairs] of each side."""
        groups, strata = np.unique(paradigms, return_inverse=True)
        if of == "paradigms":
            return bootstrap(first, second, strata)
        if of == "phenomena":
            weights = paradigm_weights(paradigms, phenomena)
            return bootstrap(first, second, strata, [weights[name] for name in groups])
        return bootstrap(first, second, strata, [sizes[name] for name in groups]) if sizes else bootstrap(first, second)

    # The scores.
    how = f"{weighting(of)} that are right, {' and '.join(dict.fromkeys(methods))}"
    lines = [f"{title}: {plural(len(pairs), kind.item)}; score: {how}"]
    if len(pairs) < len(every):
        lines.append(f"  of {len(every):,}: only these have scores on both sides (evaluation.pairs, masked_pairs)")
    if methods[0] != methods[1]:
        lines.append("  the two sides are scored by different methods; --method chooses one for both")
    rows, headlines = [], [score(each) for each in means]
    for name, whole, side in zip(names, headlines, points, strict=True):
        low, high = whole["interval"] if len(side) == 1 else np.clip(interval(side, np.zeros((1, len(pairs)))), 0, 1)
        of_seeds = ", ".join(f"{100 * score(one)['score']:.1f}" for one in side) if len(side) > 1 else ""
        rows.append([name, f"{100 * whole['score']:.1f} %", f"({100 * low:.1f} to {100 * high:.1f})", of_seeds])
    difference, (low, high) = headlines[0]["score"] - headlines[1]["score"], interval(*points)
    rows.append(["difference", f"{100 * difference:+.1f}", f"({100 * low:+.1f} to {100 * high:+.1f})", ""])
    lines += table(rows)

    # The test over all pairs.
    test = mcnemar(means[0], means[1], seeds)
    call = "sign test of the means over seeds" if seeds else "exact McNemar test"
    better = "is better" if seeds else "is right and the other is wrong"
    lines.append(f"  {call}: {names[0]} {better} on {plural(test.first, kind.item)},")
    lines.append(f"    {names[1]} on {test.second:,}: p = {p_value(test.p)}")
    if test.half:
        lines.append(f"    {plural(test.half, kind.item)} with equal scores of {kind.equal} left out")
    if seeds:
        lines.append("    the p value compares these models; the interval compares their recipes")

    # The phenomena, the smallest p first.
    groups = {name: phenomena == name for name in sorted(set(phenomena))}
    if len(groups) > 1:
        corrected = holm([mcnemar(means[0][mine], means[1][mine], seeds).p for mine in groups.values()])
        found = []
        for (name, mine), p in zip(groups.items(), corrected, strict=True):
            shares = [float(share_of(each[mine], paradigms[mine], sizes)["score"]) for each in means]
            found.append((p, shares[0] - shares[1], shares, name, int(mine.sum())))
        rows = [["", "phenomenon", kind.items, *names, "difference", "p (Holm)"]]
        for p, difference, shares, name, size in sorted(found, key=lambda each: (each[0], -abs(each[1]))):
            cells = [f"{size:,}", *(f"{100 * share:.1f} %" for share in shares), f"{100 * difference:+.1f}", p_value(p)]
            rows.append(["*" if p < SURE else "", name, *cells])
        lines += ["", *table(rows, numbers=2), f"  * p < {SURE} after Holm's correction for {len(groups)} tests"]

    # The pairs on which the sides differ most.
    margins = [
        np.array([kind.margins(model.rows, method) for model in side])[:, common].mean(0) for side, method in both
    ]
    differences = np.abs(margins[0] - margins[1])
    most = [i for i in np.argsort(-differences, kind="stable")[:count] if differences[i]]
    if most:
        lines += ["", f"  largest differences: {kind.margin}"]
    for i in most:
        lines.append(f"  {', '.join(f'{name} {margin[i]:+.1f}' for name, margin in zip(names, margins, strict=True))}")
        lines += [f"    {sign} {cut(text, WIDTH - 6)}" for sign, text in kind.shown(pairs.slice(i, 1).to_pylist()[0])]
    return lines
