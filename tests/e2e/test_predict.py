"""Predictions of whole tables: by hand, interrupted, and as a stage of the workflow."""

import csv
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from babelmill.config.resolve import Configuration
from babelmill.config.schema import Predict
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.graph import Graph
from babelmill.labels import prediction
from babelmill.labels.prediction import Predictor, held
from conftest import Workspace
from helpers.programs.prepared import run_killed, run_module

pytestmark = pytest.mark.slow

TRADES = {"farmer", "fisher", "smith", "baker", "weaver", "miller"}
COLUMNS = ["id", "occ1", "lang"]


def table(path: Path, count: int, seed: int = 1) -> list[list[str]]:
    """A table of so many rows with a few words each, the first of them none; returns the rows."""
    values = random.Random(seed)
    texts = ["", *(f"word{i % 60 + 16} word{i // 60 % 60 + 16} word{i // 3600 + 16}" for i in range(count))]
    rows = [[f"{i:05}", values.choice(texts), values.choice(["word90", "word91", ""])] for i in range(count)]
    rows[0][1] = " "
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return rows


def command(model: Path, source: Path, out: Path, *more: str) -> list[str]:
    """`babelmill predict`."""
    columns = ["--text", "occ1", "--context", "lang"]
    config = ["--config", *more] * bool(more)
    return ["babelmill", "predict", *map(str, (model, source, "--out", out)), *columns, *config]


def predict(*arguments) -> str:
    """Run it to its end; what it said."""
    done = run_module(*command(*arguments), check=True)
    return done.stderr


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def predicted(labeller, tmp_path_factory) -> tuple[list[list[str]], Path, str]:
    """The rows of a table, the folder with its predictions, and what was said."""
    folder = tmp_path_factory.mktemp("predict")
    rows = table(folder / "in.csv", 300)
    rows.append(["long", "word20 " * 600, ""])
    with open(folder / "in.csv", "a", newline="") as file:
        csv.writer(file).writerow(rows[-1])
    output = predict(labeller, folder / "in.csv", folder / "out.csv", "review=5", "top=3")
    return rows, folder, output


def test_all_columns_and_rows_stay_in_their_order(predicted):
    rows, folder, output = predicted
    found = read(folder / "out.csv")
    assert [[row[name] for name in COLUMNS] for row in found] == rows
    pairs = {(row["lang"], row["occ1"]) for row in found if row["occ1"].strip()}
    without = sum(not row["occ1"].strip() for row in found)
    assert f"301 rows, {len(pairs)} different texts, {without} without text, 1 cut at 512 tokens\n" in output
    assert len({tuple(row.values())[1:] for row in found}) <= len(pairs) + 6, "equal texts have equal predictions"
    assert not list(folder.glob(".*")), "nothing is left of what was kept for an interruption"
    for row in found:
        assert row["predicted"] == ("no text" if not row["occ1"].strip() else "cut" if row["id"] == "long" else "yes")
        codes = [row[name] for name in ("code_1", "code_2", "likeliest_1", "likeliest_2", "likeliest_3")]
        assert set(codes) - {""} <= TRADES and (row["predicted"] == "no text") == (not any(codes))


def test_the_values_are_what_the_model_predicts(predicted, labeller):
    rows = [row for row in read(predicted[1] / "out.csv") if row["predicted"] == "yes"][:20]
    assert {bool(row["lang"]) for row in rows} == {True, False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(labeller)
    model = transformers.AutoModel.from_pretrained(labeller, trust_remote_code=True)
    for row in rows:
        given = tokenizer(*filter(None, (row["lang"], row["occ1"])), return_tensors="pt")
        (found,) = model.predict(given["input_ids"], given["attention_mask"], top=3)
        assert [row[f"likeliest_{i}"] for i in (1, 2, 3)] == [code for code, _ in found.likeliest]
        chances = [float(row[f"likeliest_probability_{i}"]) for i in (1, 2, 3)]
        assert chances == pytest.approx([chance for _, chance in found.likeliest], rel=2e-3)
        assert [row[f"code_{i}"] for i in (1, 2) if row[f"code_{i}"]] == [code for code, _ in found.codes]


def test_rows_to_look_at_are_the_least_certain_ones(predicted):
    rows, folder, _ = predicted
    found, review = read(folder / "out.csv"), read(folder / "out.review.csv")
    numbers = [number for number, row in enumerate(found, 1) if row["predicted"] != "no text"]
    numbers.sort(key=lambda n: min(float(found[n - 1][f"probability_{i}"] or 1) for i in (1, 2)))
    assert [int(row["row"]) for row in review] == numbers[:5]
    assert [row["id"] for row in review] == [rows[int(row["row"]) - 1][0] for row in review]


def test_a_killed_run_goes_on_to_the_same_bytes(labeller, tmp_path):
    """A part that is there is not predicted again."""
    table(tmp_path / "in.csv", 9000)
    undisturbed = predict(labeller, tmp_path / "in.csv", tmp_path / "whole.csv", "method=linear")
    words = command(labeller, tmp_path / "in.csv", tmp_path / "out.csv", "method=linear")
    assert run_killed(*words, name="-000002.npz").returncode == -9
    (first,) = (tmp_path / ".out.csv.partial").glob("*.npz")
    assert not (tmp_path / "out.csv").exists()
    for name in ("b", "c"):
        shutil.copytree(first.parent, tmp_path / f".{name}.csv.partial")
    with np.load(first) as found:
        scores = found["scores"]
    scores[0, -6:] = 0.125
    np.savez(first, scores=scores)
    output = predict(labeller, tmp_path / "in.csv", tmp_path / "out.csv", "method=linear")
    whole, found = (read(tmp_path / name) for name in ("whole.csv", "out.csv"))
    differ = [row for row, before in zip(found, whole, strict=True) if row != before]
    assert {(row["occ1"], row["lang"]) for row in differ} == {(found[1]["occ1"], found[1]["lang"])}
    assert {row["likeliest_probability_1"] for row in differ} == {"0.125"} and "continuing after 4,096 of " in output
    asked = [re.search(r"[\d,]+ different texts", each) for each in (undisturbed, output)]
    assert asked[0] and asked[1] and asked[0][0] == asked[1][0]
    table(tmp_path / "other.csv", 9000, seed=2)
    for source, *out in (("other", "b.csv"), ("in", "c.csv", "top=3")):
        words = [labeller, tmp_path / f"{source}.csv", tmp_path / out[0], *out[1:], "method=linear"]
        assert "continuing" not in predict(*words), "what is kept is of another table, or of other settings"


def test_what_is_asked_wrongly_is_one_line(labeller, tmp_path):
    table(tmp_path / "in.csv", 2)
    (tmp_path / "there.csv").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "taken.csv").write_text("occ1,lang,code_1\nx,,1\n")
    (tmp_path / "none.csv").write_text("occ1,lang\n ,x\n")
    for model, source, out, *more, message in (
        (tmp_path / "model", "in.csv", "out.csv", "not a converted label model"),
        (tmp_path, "in.csv", "out.csv", "not a converted label model"),
        (labeller, "in.csv", "out.csv", "text_column=occ2", "there are 'id', 'occ1', 'lang'; set predict.text_column"),
        (labeller, "taken.csv", "out.csv", "has a column 'code_1', which the predictions need: rename it"),
        (labeller, "in.csv", "there.csv", "exists already; delete it"),
        (labeller, "in.csv", "out.xlsx", "are written only as .csv or .tsv"),
        (labeller, "none.csv", "out.csv", "no row has a text in the column 'occ1'"),
        (labeller, "in.csv", "out.csv", "tap=3", "unknown key predict.tap; did you mean top?"),
    ):
        done = run_module(*command(model, tmp_path / source, tmp_path / out, *more))
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: "), done.stderr
        assert message in done.stderr and "Traceback" not in done.stderr


def test_no_batch_has_more_beams_than_tokens(labeller, monkeypatch):
    """Else a thousand likeliest codes would take as many times the memory."""
    monkeypatch.setattr(prediction, "CPU_TOKENS", 12)
    made, rows = Predictor(labeller, torch.device("cpu")), []
    made._model.encoder.register_forward_pre_hook(
        lambda _, __, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )
    pairs = [("", f"word{i}") for i in range(20, 25)]
    assert len(made.predict(pairs, Predict(top=6))) == 5
    assert rows == [1, 2, 2], "6 beams of each"


def test_probabilities_that_are_not_numbers_are_an_error(labeller):
    made = Predictor(labeller, torch.device("cpu"))
    for parameter in made._model.parameters():
        parameter.data.fill_(torch.nan)
    wrong = "linear: the probability of a code is not a number: the weights of this model are dam"
    with pytest.raises(UserError, match=wrong):
        made.predict([("", "word20")], Predict(method="linear"))


def test_the_workflow_predicts_each_table_once(labeller, tmp_path, monkeypatch):
    workspace = Workspace(tmp_path)
    table(tmp_path / "one.csv", 30)
    table(tmp_path / "two.csv", 30, seed=2)
    shutil.copytree(labeller, tmp_path / "converted/occ", ignore_dangling_symlinks=True)

    def configure(**predict) -> Configuration:
        tables = {"tables": {"one": "one.csv", "two": "two.csv"}, "context_column": "lang"}
        train = {"objective": "labels", "sequence_lengths": [128], "phase_starts": [0.0]}
        occ = {"languages": ["eng"], "train": train, "predict": tables | predict}
        values = {"preset": "tiny", "corpus": {"label_columns": ["code"]}, "predict": {"text_column": "occ1"}}
        workspace.configure(values | {"models": {"occ": occ}})
        return Configuration([("test", values | {"models": {"occ": occ}})])

    def would_run() -> list[str]:
        output = workspace.snakemake("--dry-run", *targets).stdout
        return [line.split("input=")[1] for line in output.splitlines() if "wildcards: model=occ, input=" in line]

    monkeypatch.chdir(tmp_path)
    asked = Graph(configure()).result("convert", "occ").asked
    manifest.write_sealed(Path("converted/occ/manifest.json"), manifest.read("converted/occ") | {"settings": asked})
    targets = ["predictions/occ/one.csv", "predictions/occ/two.csv", "--allowed-rules", "predict"]
    workspace.snakemake(*targets)
    about = read_json(tmp_path / "predictions/occ/two.json")
    assert about["figures"]["rows"] == len(read(tmp_path / "predictions/occ/two.csv")) == 30
    review = read(tmp_path / "predictions/occ/two.review.csv")
    assert 0 < len(review) < 30 and "1" not in [row["row"] for row in review], "rows with a text, all of which fit"
    assert {*about["files"]} == {"two.csv", "two.review.csv"}
    assert not list((tmp_path / "results/unfinished/predict").glob("*/"))
    os.utime(tmp_path / "one.csv")
    assert would_run() == []
    table(tmp_path / "two.csv", 31, seed=2)
    assert would_run() == ["two"]
    configure(top=3)
    assert sorted(would_run()) == ["one", "two"]
    output = workspace.python("-m", "babelmill", "why", "occ").stdout.splitlines()
    assert output[-2:] == [f"  predict {name}      not there, or outdated" for name in ("one", "two")]
    done = workspace.snakemake("predictions/occ/on.csv", "--dry-run", check=False)
    assert "error: model occ: predict.tables has no table 'on'; did you mean one?" in done.stderr


def test_two_at_once_do_not_mix(labeller, tmp_path):
    table(tmp_path / "in.csv", 10)
    kept = tmp_path / ".out.csv.partial"
    asked = command(labeller, tmp_path / "in.csv", tmp_path / "out.csv")
    with held(kept):
        (kept / "a-000001.npz").touch()
        second = run_module(*asked)
        assert (kept / "a-000001.npz").exists(), "the first one goes on"
    assert second.returncode == 1 and not (tmp_path / "out.csv").exists()
    assert f"error: {kept}: another prediction is writing here: process {os.getpid()} on " in second.stderr
    assert not kept.exists() and run_module(*asked).returncode == 0 and not kept.exists()
