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
from babelmill.core.files import read_json, sha256, write_json
from babelmill.evaluation.metrics import described, entry
from babelmill.evaluation.suite_scores import headline
from babelmill.suites.kinds import Pairs
from babelmill.suites.results import summary
from babelmill.tasks import metrics

pytestmark = pytest.mark.usefixtures("folder")

KINDS = [kind for kind in ("one", "two", "three") for _ in range(100)]
GOOD = [f"Good sentence {i}, " + "which is long and goes on and on and on, " * 3 for i in range(300)]


def scored(name, shares, seed=0, of="pairs", digest="a" * 64, sampled=None, good=GOOD, code="eng", kinds=KINDS) -> None:
    """Scores of a model that is right on such shares of the phenomena, of 100 pairs each.

    `sampled`: the pairs without a score; the others are then a sample of each paradigm.
    """
    folder, random = Path(f"results/scores/{name}/mine"), np.random.default_rng(seed)
    folder.mkdir(parents=True)
    share_of_pair = np.repeat(shares, 100)
    margins = np.where(random.random(300) < share_of_pair, 1, -1) * random.exponential(2, 300)
    margins[sampled or []] = np.nan
    columns = {"language": [code] * 300, "good": good, "bad": [text.replace("Good", "Bad") for text in good]}
    columns |= {"phenomenon": kinds, "paradigm": kinds, "causal_good": margins - 50, "causal_bad": margins * 0 - 50}
    rows = {k: pa.array(v, from_pandas=True) if k.startswith("causal") else v for k, v in columns.items()}
    pq.write_table(pa.table(rows), folder / "pairs.parquet")
    figures = {"pairs": 300, "hub": None, "sources": [{"path": "pairs.tsv", "sha256": digest}]}
    methods = {"causal": summary(pa.table(rows), Pairs().points(pa.table(rows), "causal"), bool(sampled))}
    languages = {code: {"pairs": figures, "methods": methods}}
    about = {"suite": "mine", "headline": {"method": "causal", "of": of}, "languages": languages}
    write_json(folder / "scores.json", about | {"masked_pairs": "all", "pairs": 50 if sampled else "all"})
    manifest.write(folder, manifest.StageRequest("score", name, {}), ["pairs.parquet", "scores.json"])


def evaluated(name, value, corpus="c" * 64, documents=10) -> None:
    """An evaluation; the models differ by as much on each document, nearly."""
    folder = Path(f"results/evaluations/{name}")
    random = np.random.default_rng(0)
    size = random.integers(50, 150, documents)
    hard = random.normal(1, 0.3, documents)  # for each model
    nats = size * (value * hard + np.random.default_rng(len(name)).normal(0, 0.01, documents)) * math.log(2)
    nats *= value * math.log(2) * size.sum() / nats.sum()
    score = entry(nats, size, 9)
    evaluation = {"variants": {"ema": {"causal": score}}, "documents": {"scored": documents, "of": documents}}
    evaluation |= {"unigram": score, "metrics": described(["causal"])}
    write_json(folder / "evaluation.json", evaluation)
    columns = {"language": ["eng"] * documents, "document": np.arange(documents), "bytes": size}
    columns |= {"whole_bytes": [int(size.sum())] * documents, "ema_causal": nats}
    pq.write_table(pa.table(columns), folder / "documents.parquet")
    manifest.write(folder, manifest.StageRequest("evaluate", name, {}), ["evaluation.json", "documents.parquet"])
    about = manifest.read(folder)
    write_json(folder / "manifest.json", about | {"upstream": {"results/corpora/eng": corpus}})


def compare(capsys, *words) -> str:
    assert main(["compare", *words]) == 0
    found = capsys.readouterr().out
    assert max(map(len, found.splitlines())) <= 100
    return found


def test_scores_that_were_changed_are_not_compared(capsys):
    scored("a", [0.5, 0.5, 0.5])
    path = Path("results/scores/a/mine/scores.json")
    path.write_text(path.read_text().replace('"suite": "mine"', '"suit": "mine"'))
    assert main(["compare", str(path.parent), str(path.parent)]) == 1
    assert f"error: {path}: " in capsys.readouterr().err


def test_two_models(capsys):
    scored("a", (0.9, 0.6, 0.7), seed=1)
    scored("b", (0.5, 0.6, 0.7), seed=2)
    evaluated("a", 1.5)
    evaluated("b", 1.75)
    found = compare(capsys, "a", "b", "--pairs", "2")
    assert "the weights of two models" in found
    lines = found.splitlines()
    (bits,) = [line.split() for line in lines if line.startswith("  causal")]
    assert bits[1] == "1.500" and bits[4] == "1.750" and bits[7] == "-0.250"
    low, high = float(bits[8].strip("(")), float(bits[10].strip(")"))
    assert -0.35 < low < -0.25 < high < -0.15, "what is hard for both cancels out:"
    assert high - low < 3 * float(bits[3]), "the interval is narrower than that of two separate models"
    shares = [float(line.split()[1]) for line in lines if line.startswith(("  a  ", "  b  "))]
    (difference,) = [line for line in lines if line.startswith("  difference")]
    assert float(difference.split()[1]) == pytest.approx(shares[0] - shares[1], abs=0.11)
    low, _, high = difference.split("(")[1].strip(")").partition(" to ")
    assert 0 < float(low) < shares[0] - shares[1] < float(high)
    assert "exact McNemar test: a is right and the other is wrong on" in found
    marked = [line.split()[1] for line in lines if line.startswith("  *  ")]
    assert marked == ["one"], "where they differ"
    assert lines[next(i for i, line in enumerate(lines) if "p (Holm)" in line) + 1].split()[:2] == ["*", "one"]
    assert sum(line.startswith("    + Good") for line in lines) == 2


def trained(name, precision) -> None:
    """The training of an evaluated model."""
    folder = Path(f"results/models/{name}")
    folder.mkdir(parents=True)
    manifest.write(folder, manifest.StageRequest("train", name, {}), [], figures={"precision": precision})
    record = Path(f"results/evaluations/{name}/manifest.json")
    made_from = {folder.as_posix(): sha256(folder / "manifest.json")}
    write_json(record, read_json(record) | {"made_from": made_from})


def test_the_settings_that_differ_come_first(capsys):
    """Of mixtures, the corpora of languages stand by their names."""
    corpora = {"eng": {"min_words": 5}, "deu": {}}
    for code, section in corpora.items():
        manifest.write(made("corpora", code), manifest.StageRequest("corpus", code, {"corpus": section}), [])
    models = {"a": (["eng"], {"seed": 1}), "b": (["deu"], {"seed": 1}), "c": (["deu", "eng"], {"seed": 2})}
    for name, (languages, train) in models.items():
        evaluated(name, 1.5)
        asked = {"languages": languages, "train": train | {"max_steps": 8}}
        manifest.write(made("models", name), manifest.StageRequest("train", name, asked), [])
        tokenizer = manifest.StageRequest("tokenizer", name, {"tokenizer": {"vocab_size": 320 + (name == "b")}})
        manifest.write(made("tokenizers", name), tokenizer, [])
    changed = ["corpus.min_words 5 -> unset", "languages ['eng'] -> ['deu']", "tokenizer.vocab_size 320 -> 321"]
    assert compare(capsys, "a", "b").split("\n\n")[1] == "\n  ".join(["settings, a -> b:", *changed])
    assert "eng: corpus.min_words unset -> 5\n" in compare(capsys, "b", "c")
    for name in ("d", "e"):
        evaluated(name, 1.5)
        manifest.write(made("models", name), manifest.StageRequest("train", name, {"languages": ["eng"]}), [])
    assert "\n\nd and e were made with the same settings\n\n" in compare(capsys, "d", "e")


def made(kind, name) -> Path:
    folder = Path("results", kind, name)
    folder.mkdir(parents=True)
    return folder


def test_different_precisions_are_said(capsys):
    for name in "abcd":
        evaluated(name, 1.5)
    for name, precision in {"a": "bf16", "b": "fp32", "c": "bf16"}.items():
        trained(name, precision)
    assert "\nnote: a ran in bf16, b in fp32\n" in compare(capsys, "a", "b")
    assert "\nnote: a, c ran in bf16, b in fp32\n" in compare(capsys, "a,c", "b,d")
    for known_alike in (("a", "c"), ("a", "d")):
        assert "note:" not in compare(capsys, *known_alike)
    manifest.write(Path("results/models/b"), manifest.StageRequest("train", "b", {}), [], figures={"precision": "bf32"})
    assert "note:" not in compare(capsys, "a", "b"), "b was trained again, and not evaluated"


def test_recipes_are_compared_over_their_seeds(capsys):
    for i in range(3):
        scored(f"a{i}", (0.8, 0.8, 0.8), seed=i)
        scored(f"b{i}", (0.7, 0.7, 0.7), seed=10 + i)
        evaluated(f"a{i}", 1.5 + i / 10)
        evaluated(f"b{i}", 1.6 + i / 10)
    found = compare(capsys, "a0,a1,a2", "b0,b1,b2")
    assert "recipes, by means over the models" in found and "the weights" not in found
    assert "1.600 (1.500 to 1.700)" in found and "-0.100 (-0.327 to +0.127)" in found and "standard error" not in found
    assert "means over models (smallest to largest)" in found and "sign test of the means over seeds" in found
    one_by_one = compare(capsys, "a0", "b0")
    assert "recipes" not in one_by_one
    against_one = compare(capsys, "a0,a1,a2", "b0")
    assert "no interval: one side is a single model" in against_one
    assert ["causal", "1.600", "(1.500", "to", "1.700)", "1.600", "+0.000"] in map(str.split, against_one.splitlines())


def test_two_seeds_that_differ_are_no_ties(capsys):
    for name, share in (("a0", 1.0), ("a1", 1.0), ("b0", 1.0), ("b1", 0.0)):
        scored(name, (share, share, share))
    found = compare(capsys, "a0,a1", "b0,b1")
    assert "a0, ... (2) is better on 300 pairs" in found and "equal scores" not in found
    assert sum(line.startswith("  *  ") for line in found.splitlines()) == 3, "in each phenomenon, too"


def test_the_mean_of_paradigms_is_that_of_the_scores(capsys):
    scored("a", (0.9, 0.6, 0.7), of="paradigms")
    scored("b", (0.5, 0.6, 0.7), of="paradigms", seed=1)
    assert "300 pairs; score: the unweighted mean of paradigms that are right, causal" in compare(capsys, "a", "b")


def test_models_of_labels_have_no_scores_of_documents(capsys):
    for name, value in (("a", 0.5), ("b", 0.75)):
        scored(name, (0.5, 0.5, 0.5))
        folder = Path(f"results/evaluations/{name}")
        exact = {"value": value, "standard_error": 0.02}
        evaluation = {"variants": {"ema": {"exact": exact}}, "documents": {"scored": 9, "of": 9}, "labels": {}}
        write_json(folder / "evaluation.json", evaluation | {"metrics": described(["exact"])})
        manifest.write(folder, manifest.StageRequest("evaluate", name, {}), ["evaluation.json"])
    found = compare(capsys, "a", "b")
    assert "share of 9 documents, ± standard errors\n" in found and "-0.250\n" in found


@pytest.mark.parametrize("of", ["pairs", "paradigms"])
def test_one_weighting_of_paradigms_in_scores_report_and_comparison(capsys, of):
    """200 pairs of one paradigm and 100 of another, of which 50 each were scored: the numbers of scores.json."""
    kinds = ["large"] * 200 + ["small"] * 100
    left_out = [i for i in range(300) if i not in (*range(50), *range(200, 250))]
    scored("a", (0.9, 0.9, 0.4), of=of, sampled=left_out, kinds=kinds)
    scored("b", (0.9, 0.9, 0.5), of=of, sampled=left_out, kinds=kinds, seed=1)
    found = compare(capsys, "a", "b")
    for name in "ab":
        about = read_json(f"results/scores/{name}/mine/scores.json")
        (line,) = [line for line in found.splitlines() if line.startswith(f"  {name}  ")]
        shares = about["languages"]["eng"]["methods"]["causal"]
        assert shares["pairs"]["score"] != pytest.approx(shares["paradigms"]["score"], abs=0.03)
        assert headline(about, "eng") == shares[of]
        low, high = shares[of]["interval"]
        expected = f"{100 * shares[of]['score']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        assert " ".join(line.split()[1:]) == expected
    difference = next(line for line in found.splitlines() if line.startswith("  difference")).split()
    shares = [float(line.split()[1]) for line in found.splitlines() if line.startswith(("  a  ", "  b  "))]
    assert float(difference[1]) == pytest.approx(shares[0] - shares[1], abs=0.11)
    assert float(difference[2].strip("(")) < float(difference[1]) < float(difference[4].strip(")"))


def test_only_pairs_that_both_were_scored_on_count(capsys):
    scored("a", (0.9, 0.6, 0.7), sampled=list(range(0, 50)))
    scored("b", (0.5, 0.6, 0.7), seed=1, sampled=list(range(40, 60)))
    found = compare(capsys, "a", "results/scores/b")
    assert "mine: 240 pairs" in found and "of 300: only these have scores on both sides" in found


def test_bits_per_byte_of_other_documents_are_not_compared(capsys):
    for name, corpus, documents in (("a", "c" * 64, 10), ("b", "d" * 64, 10), ("c", "c" * 64, 9)):
        scored(name, (0.5, 0.5, 0.5))
        evaluated(name, 1.5, corpus, documents)
    for other in "bc":
        found = compare(capsys, "a", other)
        assert "they were not measured on the same documents" in found and "1.500" not in found


@pytest.mark.parametrize(
    "words, expected",
    [
        (("a", "edited"), "a was scored on pairs.tsv (aaaaaaaaaaaa), edited on pairs.tsv (bbbbbbbbbbbb)"),
        (("a", "shuffled"), "a and shuffled were not scored on the same pairs"),
        (("a", "nix"), "nix: neither a model with scores or an evaluation in results, nor"),
        (("a", "edited", "--suite", "blimp"), "a has no scores on blimp; it was scored on mine"),
        (("a", "edited,a"), "a is on both sides"),
        (("a", ","), "a model is expected on each side"),
        (("a", "b", "--method", "masked"), "a has no scores of method masked; it has causal"),
    ],
)
def test_what_does_not_compare_is_refused_in_a_line(capsys, words, expected):
    scored("a", (0.5, 0.5, 0.5))
    scored("b", (0.5, 0.5, 0.5))
    scored("edited", (0.5, 0.5, 0.5), digest="b" * 64)
    scored("shuffled", (0.5, 0.5, 0.5), good=GOOD[::-1])
    assert main(["compare", *words]) == 1
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


def test_other_languages_are_said(capsys):
    scored("a", (0.5, 0.5, 0.5))
    scored("b", (0.5, 0.5, 0.5), code="deu")
    assert "in different languages" in compare(capsys, "a", "b")


def test_stale_scores_are_refused(capsys):
    for name in "ab":
        scored(name, (0.5, 0.5, 0.5))
        evaluated(name, 1.5)
    folder = Path("results/evaluations/b")
    write_json(folder / "manifest.json", manifest.read(folder) | {"upstream": {"results/exports/b": "e" * 64}})
    assert main(["compare", "a", "b"]) == 1
    assert "these scores belong to another model than the one in results/evaluations/b" in capsys.readouterr().err


def test_cells_of_an_experiment_are_told_apart(capsys):
    """Though their names begin alike, and are too long for the heads of tables."""
    first, second = (f"masking_of_words_ratio1o4_adamw_{seed}" for seed in ("s1", "s2"))
    for seed, name in enumerate((first, second)):
        scored(name, [0.9, 0.5, 0.5], seed)
        evaluated(name, 1.0 + seed)
    found = compare(capsys, first, second)
    assert f"  …s1 is {first}\n  …s2 is {second}\n" in found
    assert [line.split()[:2] for line in found.splitlines() if line.split()[-1:] == ["difference"]] == [["…s1", "…s2"]]
    assert re.search(r"\n  …s1 +\d+\.\d % .*\n  …s2 +\d+\.\d % ", found)
    scored("eng", [0.5, 0.5, 0.5])
    assert f"  masking_of_words_ratio1… is {first}\n" in compare(capsys, first, "eng")


# Fine-tuned tasks.


def tuned(name, seed, share, task="rte", rows=100, root="results/tuned", classes=("no", "yes"), **settings) -> Path:
    """A model tuned with a seed, right on a share of the rows; `settings`: what differs in the protocol."""
    folder, of_rows = Path(root, name, task, str(seed)), Path(f"results/tasks/{task}/eng")
    if not of_rows.is_dir():
        of_rows.mkdir(parents=True)
        manifest.write(of_rows, manifest.StageRequest("task", "eng", {}), [])
    labels = np.random.default_rng(0).integers(2, size=rows)
    right = np.random.default_rng([seed, len(name), *name.encode()]).random(rows) < share
    named = np.array(classes)
    predicted = np.where(right, labels, 1 - labels)
    columns = {"language": ["eng"] * rows, "row": range(rows), "label": named[labels], "prediction": named[predicted]}
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns | {"probability": [1.0] * rows}), folder / "predictions.parquet")
    score = accuracy(labels, predicted)
    entry = score | {"classes": list(classes), "majority": None, "metrics": {"accuracy": score}}
    entry |= {"test_rows_in_train": 0, "rows": {"test": rows}}
    about = {"task": task, "protocol": settings.pop("protocol", "sound"), "metric": "accuracy", "seed": seed}
    write_json(folder / "scores.json", about | {"languages": {"eng": entry}})
    others = {key: settings.pop(key) for key in ("joint", "covered") if key in settings}
    asked = manifest.StageRequest("tune", name, {"tuning": {"epochs": 5} | settings} | others)
    manifest.write(folder, asked, ["predictions.parquet", "scores.json"], [of_rows])
    return folder


def accuracy(labels, predicted) -> dict:
    return metrics.entry("accuracy", labels, predicted, 2)


def cells(found: str, *first: str) -> list[str]:
    """The words of the only line that begins with these."""
    (line,) = [line.split() for line in found.splitlines() if line.split()[: len(first)] == [*first]]
    return line


def test_tasks_of_one_seed_have_mcnemars_test_and_one_correction(capsys):
    for task, share in (("rte", 0.5), ("sst", 0.85)):
        tuned("a", 1, 0.9, task)
        tuned("b", 1, share, task)
    found = compare(capsys, "a", "b")
    score = read_json("results/tuned/a/rte/1/scores.json")["languages"]["eng"]["score"]
    assert cells(found, "rte", "sound", "accuracy", "100")[4] == f"{100 * score:.1f}"
    assert cells(found, "task", "protocol")[3:] == ["n", "a", "b"]
    right = {}
    for name in "ab":
        rows = pq.read_table(f"results/tuned/{name}/rte/1/predictions.parquet").to_pydict()
        right[name] = np.array(rows["label"]) == np.array(rows["prediction"])
    counts = [int((right["a"] & ~right["b"]).sum()), int((right["b"] & ~right["a"]).sum())]
    line = cells(found, "*", "rte")
    p = binomtest(counts[0], sum(counts)).pvalue
    assert float(line[-6]) == pytest.approx(2 * p, rel=0.05), "Holm: the smaller of two p values, times two"
    assert line[-5:] == ["McNemar:", str(counts[0]), "and", str(counts[1]), "rows"]
    assert "Holm's correction for 2 tests" in found and "bootstrap" not in found
    assert "sst" not in compare(capsys, "a", "b", "--task", "rte")


def test_tasks_of_several_seeds_and_of_folders_by_hand(capsys):
    for seed in (1, 2, 3):
        tuned("a", seed, 0.9)
        tuned("gpt2", seed, 0.6, root="tuned")
    for folder in ("tuned/gpt2", "tuned/gpt2/rte"):
        found = compare(capsys, "a", folder)
        assert cells(found, "rte", "sound")[5:7] == ["(3", "seeds)"] and cells(found, "*", "rte")[-1] == "bootstrap"
        assert "bootstrap: over rows or sentences, and over seeds (of one model) or models (of several)" in found
    shutil.copytree("results/tuned/a/rte/1", "same")
    found = compare(capsys, "results/tuned/a/rte/1", "same")
    assert "McNemar: 0 and 0 rows" in found and "+0.0 (+0.0 to +0.0)" in found and "1.000" in found
    tuned("a2", 1, 0.9)
    tuned("b", 1, 0.5)
    tuned("b2", 1, 0.5)
    assert "(2 models, 1 to 3 seeds)" in compare(capsys, "a,a2", "b,b2")


@pytest.mark.parametrize(
    "other, expected",
    [
        ({"protocol": "babylm"}, "was tuned with protocol = sound, results/tuned/b/rte/1 with protocol = babylm"),
        ({"epochs": 9}, "was tuned with epochs = 5, results/tuned/b/rte/1 with epochs = 9"),
        ({"joint": True, "covered": ["eng"]}, "was tuned with joint = False, results/tuned/b/rte/1 with joint = True"),
        ({"rows": 99}, "were not scored on the same rows of eng"),
        ({"classes": ("yes", "no")}, "have different classes of eng"),
    ],
)
def test_other_protocols_rows_and_labels_are_refused_in_a_line(capsys, other, expected):
    tuned("a", 1, 0.9)
    tuned("b", 1, 0.9, **other)
    assert main(["compare", "a", "b"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: rte: ") and expected in error and error.count("\n") == 1
    assert main(["compare", "a", "b", "--task", "sst"]) == 1
    assert "a was not fine-tuned for sst; it was for rte" in capsys.readouterr().err


def test_what_else_cannot_be_compared(capsys):
    """Seeds of earlier settings, words that only one tokenizer cuts off, and languages that only one model has."""
    tuned("a", 1, 0.9)
    tuned("b", 1, 0.9)
    tuned("b", 2, 0.9, epochs=3)
    assert main(["compare", "a", "b"]) == 1
    assert "delete the folder that is no longer wanted" in capsys.readouterr().err
    for name, rows in (("a", 100), ("b", 99)):
        tuned(name, 1, 0.9, "pos", rows=rows, words_cut="left_out")
    assert main(["compare", "a", "b", "--task", "pos"]) == 1
    assert "cut sentences at different words" in (error := capsys.readouterr().err) and "for pos_sound" in error
    shutil.rmtree("results/tuned/b/rte/2")
    for name in "ab":
        shutil.rmtree(f"results/tuned/{name}/pos")
    tuned("a", 1, 0.9, "xnli")
    folder = tuned("b", 1, 0.9, "xnli")
    scores = read_json(folder / "scores.json")
    write_json(folder / "scores.json", scores | {"languages": {"deu": scores["languages"]["eng"]}})
    asked = manifest.StageRequest("tune", "b", {"tuning": {"epochs": 5}})
    manifest.write(folder, asked, ["predictions.parquet", "scores.json"], [Path("results/tasks/xnli/eng")])
    found = compare(capsys, "a", "b")
    assert (
        "fine-tuning for xnli: not compared, because the models were tuned for different" in found and "sound" in found
    )


def test_other_texts_with_the_same_labels_are_refused(capsys):
    tuned("a", 1, 0.9)
    manifest.write(Path("results/tasks/rte/eng"), manifest.StageRequest("task", "eng", {"columns": {"text": "x"}}), [])
    tuned("b", 1, 0.9)
    assert main(["compare", "a", "b"]) == 1
    assert "were not tuned for the same rows" in capsys.readouterr().err
