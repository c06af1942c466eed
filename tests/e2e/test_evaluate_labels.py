"""From labelled corpora to the converted folder: a tiny model, its evaluation, its card and its picture."""

import argparse
import csv
import re
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers

from babelmill.commands import show
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Predict
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.predict import held, predict
from babelmill.stages import STAGES
from helpers.programs.prepared import run_module
from helpers.stages import any_settings, settings_of, show_as, write_job
from helpers.training.training_data import TRADES, LabelledData, export, labelled

pytestmark = pytest.mark.slow

NAMES = {trade: f"Code of {trade}" for trade in (*TRADES, "cooper")}


def rows_of(count: int, seed: int) -> list[dict]:
    """Rows of a labelled corpus: the descriptions of `training_data` as text, with a column for each of two trades."""
    rows = []
    for text, context, codes in zip(*labelled(count, seed), strict=True):
        words = [f"word{token}" for token in text[1:-1]]
        names = [TRADES[code] for code in codes]
        given = {"text": " ".join(words[context:]), "context": " ".join(words[:context])}
        rows.append(given | {"labels": [*names, None][:2], "origin": f"a.csv: line {len(rows) + 2}"})
    return rows


class Labelled(LabelledData):
    """The stages from the corpora on, run as the workflow runs them."""

    STEPS, RATE = 100, 1e-2
    SMALL: ClassVar = {**LabelledData.MODEL, "max_position_embeddings": 32}

    LABELS: ClassVar = {"code": "general", "block_size": 6, "decoder_layers": 1}

    def __init__(self, folder: Path, languages=("eng", "deu")):
        super().__init__(folder, languages)
        corpus = {"normalization": "NFC", "control_characters": "remove"}
        asked = {"corpus": corpus, "train": {**self.TRAIN}, "labels": self.LABELS}
        self.configuration = Configuration([("test", asked)])
        self.write_manifest("tokenizer", "eng", "tokenizer", ["tokenizer.json"])
        for i, language in enumerate(self.languages):
            self.corpus(language, 10 * i)
            made_from = {"tokenizer": ["tokenizer"], "corpus": [f"corpora/{language}"]}
            self.stage("shards", f"shards/{language}", made_from, languages=[language])

    def write_manifest(self, stage: str, language: str, folder: str, files: list[str], **figures) -> None:
        """Write the manifest of a result that no stage made."""
        about = any_settings(stage)
        about.raw = settings_of(self.configuration, language, stage)
        manifest.write(self.folder / folder, about, files, figures=figures)

    def rows(self, split: str, language: str, seed: int) -> list[dict]:
        """Its rows; in the validation texts of `eng`, one is too long, and two are of a trade that no training text has."""
        rows = rows_of(240 if split == "train" else 60, seed)
        if (split, language) == ("validation", "eng"):
            rows[0]["text"] += " word80" * 40
            for row in rows[1:3]:
                row["labels"] = ["cooper", None]
        return rows

    def corpus(self, language: str, seed: int) -> None:
        """A corpus."""
        folder = self.folder / "corpora" / language
        folder.mkdir(parents=True)
        for split in ("train", "validation"):
            rows = self.rows(split, language, seed + len(split))
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")
        figures = {"documents": {"train": 240}, "bytes": {"train": 9000}, "words": {"train": 1500}, "hub": None}
        files = ["train.parquet", "validation.parquet"]
        self.write_manifest("corpus", language, f"corpora/{language}", files, sources=["a.csv"], **figures)

    def stage(self, stage: str, out: str, made_from: dict[str, list[str]], **settings) -> None:
        """Run a stage, whose result is shown as `out`."""
        result = STAGES[stage].path_of(Path(out).name)
        asked = settings_of(self.configuration, "eng", stage if stage != "shards" else "shards.eng")
        fields = {key: value for key, value in asked.items() if key not in ("stage", "version", "made_from", "keys")}
        fields |= {"languages": self.languages} | settings
        job = write_job(self.folder, stage, result.name, made_from, **fields)
        run_module(f"babelmill.{stage}", job, cwd=self.folder, check=True)
        if result != Path(out):
            show_as(self.folder / out, self.folder / result)

    def all(self) -> None:
        """Train, export, evaluate, convert."""
        each = {kind: [f"{kind}/{language}" for language in self.languages] for kind in ("shards", "corpora")}
        steps = {"max_steps": self.STEPS, "global_batch_tokens": 640}
        self.settings(self.SMALL, labels=self.LABELS, optimizer="adamw", learning_rate=self.RATE, **steps)
        self.run_settings(micro_batch_tokens=640, checkpoint_every=1000, validate_every=50)
        self.train()
        export(self)
        lines = ["code,name", *(f"{code},{name}" for code, name in NAMES.items())]
        (self.folder / "codes.csv").write_text("\n".join(lines))
        # A list for the evaluation alone, so that it names a code that the model does not know.
        labels = self.LABELS | {"codes": str(self.folder / "codes.csv")}
        self.stage("evaluate", "evaluation", {"export": ["export"]} | each, labels=labels)
        made_from = {"export": ["export"], "evaluation": ["evaluation"], "train": [f"results/train/{self.name}"]}
        made_from |= {"tokenizer": ["tokenizer"], "corpora": each["corpora"]}
        names = {"eng": "English", "deu": "German"}
        table = {code: {"name": name, "tag": code, "script": "Latn"} for code, name in names.items()}
        self.stage("convert", "converted/test", made_from, name="test", language_table=table)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Labelled:
    data = Labelled(tmp_path_factory.mktemp("labelled"))
    data.all()
    return data


@pytest.fixture(scope="module")
def evaluation(made) -> dict:
    return read_json(made.folder / "evaluation/evaluation.json")


def test_what_is_measured(evaluation):
    """Far better than the most frequent code, of all texts, and the parts make up the whole."""
    assert evaluation["documents"] == {"scored": 120, "of": 120}
    frequent = evaluation["most_frequent"]
    for own in evaluation["variants"].values():
        assert own["exact"]["value"] > 0.7 > 0.3 > frequent["exact"]["value"]
        assert own["f1"]["value"] > 0.8 > 0.4 > frequent["f1"]["value"]
    found = evaluation["labels"]
    assert found["figures"].keys() == {"main", "ema"}
    for variant, methods in found["figures"].items():
        assert {method: own["texts"] for method, own in methods.items()} == {"blocks": 120, "linear": 120}
        assert evaluation["variants"][variant]["exact"]["value"] == methods["blocks"]["exact"]


def test_unknown_codes_are_wrong_and_long_texts_are_counted(evaluation):
    found = evaluation["labels"]
    assert found["unknown_codes"] == {"codes": 1, "texts": 2}
    assert "cooper" not in [entry["code"] for entry in found["codes"]] and len(found["codes"]) == 6
    assert found["cut"] == 1
    assert found["figures"]["ema"]["blocks"]["exact"] <= 118 / 120


def test_the_numbers_are_those_of_the_folder(made, evaluation):
    """By the loop that a user would write: a text at a time, without padding."""
    folder = made.folder / "export"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    exact = Counter()
    for language in made.languages:
        for row in pq.read_table(made.folder / f"corpora/{language}/validation.parquet").to_pylist():
            given = [part for part in (row["context"], row["text"]) if part]
            ids = torch.tensor([tokenizer(*given, truncation=True, max_length=32)["input_ids"]])
            for method in ("blocks", "linear"):
                (found,) = model.predict(ids, torch.ones_like(ids), top=5, method=method)
                true = {*filter(None, row["labels"])}
                exact[method] += {code for code, _ in found.codes} == true
    for method, own in evaluation["labels"]["figures"]["ema"].items():
        assert own["exact"] == pytest.approx(exact[method] / 120)


def test_the_code_of_the_card_does_what_it_says(made, capsys):
    """As it stands, with the path of the folder in place of the name."""
    folder = made.folder / "converted/test"
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace('"test"', repr(str(folder))), {})
    printed = capsys.readouterr().out
    assert re.search(r"codes: \[\('(\w+)', ([\d.]+)\)", printed) and "'label': " in printed


def asked(made, path: Path, rows: list[list[str]], **wanted) -> tuple[list[dict[str, str]], dict]:
    """Predict a table by the converted folder; its rows, and the figures."""
    with open(path.with_suffix(".in.csv"), "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text", "context"], *rows])
    columns = Predict(text_column="text", context_column="context", method="linear", **wanted)
    with held(path.with_suffix("")):
        folder = made.folder / "converted/test"
        figures = predict(folder, path.with_suffix(".in.csv"), columns, path, path.with_suffix(""))
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file)), figures


def test_further_codes_from_a_threshold_on_and_names_of_codes(made, tmp_path):
    rows = pq.read_table(made.folder / "corpora/eng/validation.parquet").to_pylist()
    found, _ = asked(made, tmp_path / "all.csv", [[row["text"], row["context"]] for row in rows], threshold=0, top=1)
    assert all(row["code_2"] and row["name_2"] and "likeliest_2" not in row for row in found), "top cuts no codes"
    assert {row["code_1"]: row["name_1"] for row in found} == {row["code_1"]: NAMES[row["code_1"]] for row in found}
    assert all(row["likeliest_name_1"] == NAMES[row["likeliest_1"]] for row in found)


def test_text_is_cleaned_as_that_of_the_training(made, tmp_path):
    same = ["word80 w\u00f6rd word81", "word80 wo\u0308rd word8\x021"]
    found, figures = asked(
        made, tmp_path / "out.csv", [[text, context] for text in same for context in ("", "word90", "\x01")]
    )
    copied = [text.replace("\x02", "\\x02") for text in same for _ in range(3)]  # no terminal obeys the file
    assert [row["text"] for row in found] == copied, "the table itself stays"
    assert figures["texts"] == 2 and figures["rows"] == 6, "a text with a context, and without"
    values = [[*row.values()][2:] for row in found]
    assert values[0] == values[2] == values[3] == values[5] and values[1] == values[4]
    assert 'unicodedata.normalize("NFC", text)' in (made.folder / "converted/test/README.md").read_text()


def test_what_show_and_a_run_say(made, evaluation, monkeypatch):
    exact = evaluation["variants"]["ema"]["exact"]
    output = "\n".join(show.scores(made.folder / "converted/test"))
    share = evaluation["languages"]["deu"]["variants"]["ema"]["exact"]["value"]
    assert re.search(rf"validation text +deu +exact +{100 * share:.1f} .* %", output), output
    assert "all 120 validation documents" in output and "always the most frequent code" in output
    summary = manifest.read(made.folder / "converted/test")["figures"]["summary"]
    assert f" parameters, share {exact['value']:.3f} ± " in summary
    asked = argparse.Namespace(folder=made.folder / "converted/test", masked="a <mask>", prompt=None, held_out=None)
    with pytest.raises(UserError, match="a label model cannot fill masks"):
        show.run(asked)
