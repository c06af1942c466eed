"""`babelmill compare`: what it says of two models with scores on the same pairs, and what it refuses."""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest

from babelmill.cli import main
from babelmill.core import manifest
from babelmill.core.files import read_json, write_json
from babelmill.evaluation.metrics import described, entry
from babelmill.stages import ScoreStage
from babelmill.suites.kinds import OfSentences
from babelmill.suites.results import summary
from babelmill.tasks import metrics
from helpers.stages import any_settings
from helpers.suite_files import pairs_of

pytestmark = pytest.mark.usefixtures("folder")

PAIRS = OfSentences()
KINDS = [kind for kind in ("one", "two", "three") for _ in range(100)]
GOOD = [f"Good sentence {i}, " + "which is long and goes on and on and on, " * 3 for i in range(300)]


def scored(name, shares, seed=0, of="pairs", digest="a" * 64, sampled=None, good=GOOD, code="eng", kinds=KINDS) -> None:
    """Scores of a model that is right on such shares of the phenomena, of 100 pairs each.

    `sampled`: the pairs without a score; the others are then a sample of each paradigm.
    """
    folder, random = Path(f"results/score/{name}-mine"), np.random.default_rng(seed)
    folder.mkdir(parents=True)
    share_of_pair = np.repeat(shares, 100)
    margins = np.where(random.random(300) < share_of_pair, 1, -1) * random.exponential(2, 300)
    margins[sampled or []] = np.nan
    rows = pairs_of(good, [text.replace("Good", "Bad") for text in good], kinds, language=[code] * 300)
    scores = np.stack([margins - 50, margins * 0 - 50], 1)
    rows = PAIRS.with_scores(rows, "causal", scores, ScoreStage(methods=["causal"]))
    pq.write_table(rows, folder / "items.parquet")
    figures = {"pairs": 300, "hub": None, "sources": [{"path": "pairs.tsv", "sha256": digest}]}
    methods = {"causal": summary(rows, PAIRS.points(rows, "causal"), bool(sampled))}
    about = {"suite": "mine", "languages": {code: {"pairs": figures, "methods": methods}}}
    about |= {"headline": {"method": "causal", "of": of}, "max_masked_items": "all"}
    write_json(folder / "scores.json", about | {"max_items": 50 if sampled else "all"})
    of_model(folder, ["items.parquet", "scores.json"], suite="mine")


def of_model(folder, files=(), upstream=(), figures=None, languages=("eng",), **settings) -> None:
    """Write the manifest of a result."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = any_settings(folder.parent.name, languages=[*languages], **settings)
    manifest.write(folder, asked, files, upstream, figures)


def convert(name) -> None:
    """Write the manifest of a converted model, made from all results that there are of it."""
    results = [path for path in Path("results").glob(f"*/{name}-*") if path.parent.name != "train"]
    train = Path(f"results/train/{name}-0")
    if train.is_dir():
        results += [Path(f"results/corpus/{code}-0") for code in manifest.read(train)["settings"]["languages"]]
    made_from = {"train": [train.as_posix()], "others": [path.as_posix() for path in results]}
    of_model(Path("converted", name), made_from=made_from)


def evaluation_of(folder, metric, documents, score) -> None:
    """Write evaluation.json."""
    evaluation = {"variants": {"ema": {metric: score}}, "documents": {"scored": documents, "of": documents}}
    write_json(folder / "evaluation.json", evaluation | {"unigram": score, "metrics": described([metric])})


def evaluated(name, value, corpus="c", documents=10) -> None:
    """An evaluation; the models differ by as much on each document, nearly."""
    folder = Path(f"results/evaluate/{name}-0")
    random = np.random.default_rng(0)
    size = random.integers(50, 150, documents)
    hard = random.normal(1, 0.3, documents)  # for each model
    nats = size * (value * hard + np.random.default_rng(len(name)).normal(0, 0.01, documents)) * math.log(2)
    nats *= value * math.log(2) * size.sum() / nats.sum()
    evaluation_of(folder, "causal", documents, entry(nats, size, 9))
    columns = {"language": ["eng"] * documents, "document": np.arange(documents), "bytes": size}
    columns |= {"whole_bytes": [int(size.sum())] * documents, "ema_causal": nats}
    pq.write_table(pa.table(columns), folder / "documents.parquet")
    of_corpus = Path(f"results/corpus/eng-{corpus}")
    of_model(of_corpus)
    of_model(folder, ["evaluation.json", "documents.parquet"], [of_corpus])


def compared(*words) -> int:
    """Run the command for models that are converted now."""
    for path in Path("results").glob("*/*-*"):
        convert(path.name.partition("-")[0])
    return main(["compare", *words])


def compare(capsys, *words) -> str:
    assert compared(*words) == 0
    found = capsys.readouterr().out
    assert max(map(len, found.splitlines())) <= 110
    return found


def numbers_of(found: str, what: str) -> dict[str, float]:
    """The numbers of the only line of a table that begins with these words: scores, difference, its ends, p."""
    (line,) = [line for line in found.splitlines() if re.match(rf" +\*? *{re.escape(what)}  ", line)]
    text = line.partition(what)[2].partition("McNemar")[0].replace(",", "")
    numbers = map(float, re.findall(r"[-+]?\d[\d.e-]*", text))
    names = ("n", "first", "second", "difference", "low", "high", "p")
    return dict(zip(names, numbers, strict=False)) | {"sure": line.strip().startswith("*")}


def test_two_models(capsys):
    scored("a", (0.9, 0.6, 0.7), seed=1)
    scored("b", (0.5, 0.6, 0.7), seed=2)
    evaluated("a", 1.5)
    evaluated("b", 1.75)
    found = compare(capsys, "a", "b")
    bits = numbers_of(found, "causal")
    assert (bits["n"], bits["first"], bits["second"], bits["difference"]) == (10, 1.5, 1.75, -0.25)
    assert -0.35 < bits["low"] < -0.25 < bits["high"] < -0.15, "what is hard for both cancels out"
    whole = numbers_of(found, "all")
    assert 0 < whole["low"] < whole["difference"] < whole["high"]
    assert [name for name in ("one", "two", "three") if numbers_of(found, name)["sure"]] == ["one"], "where they differ"
    points = [pq.read_table(f"results/score/{name}-mine/items.parquet") for name in "ab"]
    right = [PAIRS.points(each.slice(0, 100), "causal") for each in points]
    first, second = int((right[0] > right[1]).sum()), int((right[0] < right[1]).sum())
    assert f"McNemar, {first} : {second}\n" in found
    assert numbers_of(found, "one")["p"] == pytest.approx(3 * binomtest(first, first + second).pvalue, rel=0.1), "Holm"


def trained(name, precision="fp32", languages=("eng",), **train) -> None:
    """The training of a model, and its tokenizer."""
    folder = Path(f"results/train/{name}-0")
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("")
    made_from = {"shards": []}
    of_model(folder, ["metrics.jsonl"], (), {"precision": precision}, languages, train=train, made_from=made_from)
    tokenizer = {"vocab_size": 320 + (name == "b")}
    of_model(Path(f"results/tokenizer/{name}-0"), languages=languages, tokenizer=tokenizer)


def test_the_settings_that_differ_come_first(capsys):
    """Of mixtures, the corpora of languages stand by their names."""
    for code, section in {"eng": {"min_words": 5}, "deu": {}}.items():
        of_model(Path(f"results/corpus/{code}-0"), languages=[code], corpus=section)
    trained("a", "bf16", seed=1)
    trained("b", languages=["deu"], seed=1)
    trained("c", languages=["deu", "eng"], seed=2)
    trained("d", languages=["deu", "eng"], seed=2)
    changed = ["corpus.min_words 5 -> unset", "languages ['eng'] -> ['deu']", "tokenizer.vocab_size 320 -> 321"]
    blocks = compare(capsys, "a", "b").split("\n\n")
    assert blocks[:2] == ["A is a\nB is b\nnote: a ran in bf16, b in fp32", "\n  ".join(["settings:", *changed])]
    assert "eng: corpus.min_words unset -> 5\n" in compare(capsys, "b", "c")
    assert "\n\nboth were made with the same settings\n\n" in (same := compare(capsys, "c", "d")) and "note" not in same


@pytest.mark.parametrize("of", ["pairs", "paradigms"])
def test_one_weighting_of_paradigms_in_scores_and_comparison(capsys, of):
    """200 pairs of one paradigm and 100 of another, of which 50 each were scored: the numbers of scores.json."""
    kinds = ["large"] * 200 + ["small"] * 100
    left_out = [i for i in range(300) if i not in (*range(50), *range(200, 250))]
    scored("a", (0.9, 0.9, 0.4), of=of, sampled=left_out, kinds=kinds)
    scored("b", (0.9, 0.9, 0.5), of=of, sampled=left_out, kinds=kinds, seed=1)
    found = compare(capsys, "a", "b")
    whole = numbers_of(found, "all that both scored, of 300")
    for name, score in (("a", whole["first"]), ("b", whole["second"])):
        about = read_json(f"results/score/{name}-mine/scores.json")
        shares = about["languages"]["eng"]["methods"]["causal"]
        assert shares["pairs"]["score"] != pytest.approx(shares["paradigms"]["score"], abs=0.03)
        assert score == pytest.approx(100 * shares[of]["score"], abs=0.05)
    assert whole["n"] == 100 and whole["low"] < whole["difference"] < whole["high"]


def test_only_pairs_that_both_were_scored_on_count(capsys):
    scored("a", (0.9, 0.6, 0.7), sampled=list(range(0, 50)))
    scored("b", (0.5, 0.6, 0.7), seed=1, sampled=list(range(40, 60)))
    assert numbers_of(compare(capsys, "a", "results/score/b-mine"), "all that both scored, of 300")["n"] == 240


def test_models_of_labels_have_no_scores_of_documents(capsys):
    for name, value in (("a", 0.5), ("b", 0.75)):
        folder = Path(f"results/evaluate/{name}-0")
        evaluation_of(folder, "exact", 9, {"value": value, "standard_error": 0.02})
        of_model(folder, ["evaluation.json"])
    assert re.search(r"\n +exact +9 +50\.0 +75\.0 +-25\.0\n", compare(capsys, "a", "b"))


def test_what_cannot_be_compared_is_said(capsys):
    """Bits per byte of other documents, and suites in other languages."""
    for name, corpus, documents, code in (("a", "c", 10, "eng"), ("b", "d", 10, "deu"), ("c", "c", 9, "deu")):
        evaluated(name, 1.5, corpus, documents)
        scored(name, (0.5, 0.5, 0.5), code=code)
    for other in "bc":
        found = compare(capsys, "a", other)
        assert "they were not measured on the same documents" in found and "1.500" not in found
        assert "mine: not compared, because the models were scored in different languages" in found


@pytest.mark.parametrize(
    "words, expected",
    [
        (("a", "edited"), "not the same items (a on pairs.tsv (aaaaaaaaaaaa) and edited on pairs.tsv (bbbbbbbbbbbb))"),
        (("a", "shuffled"), "a and shuffled were not scored on the same items"),
        (("a", "nix"), "nix: no converted model of this name, nor a folder of scores"),
        (("a", "results/score"), "hold the same scores; name one of them"),
        (("a", "edited", "--suite", "blimp"), "a has no scores of blimp; it has some of mine"),
        (("a", "b", "--method", "masked"), "a has no scores of method masked; it has causal"),
    ],
)
def test_what_does_not_compare_is_refused_in_a_line(capsys, words, expected):
    scored("a", (0.5, 0.5, 0.5))
    scored("b", (0.5, 0.5, 0.5))
    scored("edited", (0.5, 0.5, 0.5), digest="b" * 64)
    scored("shuffled", (0.5, 0.5, 0.5), good=GOOD[::-1])
    assert compared(*words) == 1
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


# Fine-tuned tasks.


def tuned(name, seed, share, task="rte", rows=100, texts="0", folder=None, **settings) -> None:
    """A model tuned with a seed, right on a share of the rows; `settings`: what differs in the protocol."""
    folder = folder or Path(f"results/tune/{name}-{task}.{seed}")
    of_rows = Path(f"results/task/{task}_eng-{texts}")
    of_model(of_rows, columns={"text": texts})
    labels = np.random.default_rng(0).integers(2, size=rows)
    right = np.random.default_rng([seed, len(name), *name.encode()]).random(rows) < share
    named = np.array(["no", "yes"])
    predicted = np.where(right, labels, 1 - labels)
    columns = {"language": ["eng"] * rows, "row": range(rows), "label": named[labels], "prediction": named[predicted]}
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns | {"probability": [1.0] * rows}), folder / "predictions.parquet")
    score = metrics.entry("accuracy", [labels], [predicted], ["no", "yes"], tagging=False)
    entry = score | {"classes": ["no", "yes"], "majority": None, "metrics": {"accuracy": score}, "steps": 9}
    entry |= {"test_rows_in_train": 0, "test_rows_without_text": 0, "rows": {"test": rows}, "most_frequent": 0.0}
    about = {"task": task, "protocol": settings.pop("protocol", "sound"), "metric": "accuracy", "seed": seed}
    write_json(folder / "scores.json", about | {"languages": {"eng": entry}})
    others = {key: settings.pop(key) for key in ("joint", "covered") if key in settings}
    others |= {"task": task, "seed": seed, "tuning": {"epochs": 5} | settings}
    of_model(folder, ["predictions.parquet", "scores.json"], [of_rows], **others)


def test_tasks_of_one_seed_have_mcnemars_test_and_one_correction(capsys):
    """A task may have the name of a suite."""
    for task, share in (("rte", 0.5), ("mine", 0.85)):
        tuned("a", 1, 0.9, task)
        tuned("b", 1, share, task)
    for name in "ab":
        scored(name, (0.5, 0.6, 0.7))
    both = compare(capsys, "a", "b", "--suite", "mine")
    assert "mine: % right" in both and numbers_of(both, "mine, sound, accuracy")["n"] == 100 and "rte" not in both
    found = compare(capsys, "a", "b")
    score = read_json("results/tune/a-rte.1/scores.json")["languages"]["eng"]["score"]
    line = numbers_of(found, "rte, sound, accuracy")
    assert (line["n"], line["first"]) == (100, round(100 * score, 1)) and line["sure"]
    rows = [pq.read_table(f"results/tune/{name}-rte.1/predictions.parquet").to_pandas() for name in "ab"]
    a, b = (each["label"] == each["prediction"] for each in rows)
    first, second = int((a & ~b).sum()), int((b & ~a).sum())
    p = binomtest(first, first + second).pvalue
    assert line["p"] == pytest.approx(2 * p, rel=0.05), "Holm: the smaller of two p values, times two"
    assert f"McNemar, {first} : {second}\n" in found and "Holm's correction for 2 tests" in found


def test_tasks_of_several_seeds_and_of_folders_by_hand(capsys):
    for seed in (1, 2, 3):
        tuned("a", seed, 0.9)
        tuned("gpt2", seed, 0.6, folder=Path(f"tuned/gpt2/rte/{seed}"))
    for folder in ("tuned/gpt2", "tuned/gpt2/rte"):
        found = compare(capsys, "a", folder)
        assert numbers_of(found, "rte, sound, accuracy")["sure"] and "bootstrap, 3 : 3 seeds" in found
    shutil.copytree("results/tune/a-rte.1", "same")
    found = compare(capsys, "results/tune/a-rte.1", "same")
    assert "McNemar, 0 : 0" in found and "+0.0 (+0.0 to +0.0)" in found and "1.000" in found


@pytest.mark.parametrize(
    "other, expected",
    [
        ({"protocol": "babylm"}, "were tuned by different protocols (protocol sound -> babylm)"),
        ({"epochs": 9}, "were tuned by different protocols (epochs 5 -> 9)"),
        ({"joint": True, "covered": ["eng"]}, "were tuned by different protocols (joint unset -> ['eng'])"),
        ({"rows": 99}, "were not scored on the same rows of eng"),
        ({"rows": 99, "words_cut": "left_out"}, "their tokenizers cut different words, which rte_sound would score"),
        ({"texts": "1"}, "were not scored on the same rows"),
    ],
)
def test_other_protocols_and_rows_are_refused_in_a_line(capsys, other, expected):
    tuned("a", 1, 0.9, **({"words_cut": "left_out"} if "words_cut" in other else {}))
    tuned("b", 1, 0.9, **other)
    assert compared("a", "b") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: rte: ") and expected in error and error.count("\n") == 1
