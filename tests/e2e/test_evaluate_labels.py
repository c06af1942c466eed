"""From labelled corpora to the converted folder: a tiny model, its evaluation, its card and its picture."""

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import read_json, write_json
from babelmill.settings import read_settings, settings_of
from babelmill.stages import CorpusSettings, TokenizerSettings
from prepared import run_module
from training_data import TRADES, LabelledData, labelled

LABELS = {"code": "general", "block_size": 7, "decoder_layers": 1}
NAMES = {trade: f"Code of {trade}" for trade in (*TRADES, "cooper")}
CONTEXTS = ("", "word90", "word91", "word92")


def rows_of(count: int, seed: int) -> list[dict]:
    """Rows of a labelled corpus: the descriptions of `training_data` as text, with a column for each of two trades."""
    rows = []
    for text, context, codes in zip(*labelled(count, seed), strict=True):
        words = [f"word{token}" for token in text[1:-1]]
        names = [TRADES[code] for code in codes]
        rows.append(
            {
                "text": " ".join(words[context:]),
                "context": " ".join(words[:context]),
                "labels": [*names, None][:2],
                "origin": f"a.csv: line {len(rows) + 2}",
            }
        )
    return rows


class Labelled(LabelledData):
    """The stages from the corpora on, run as the workflow runs them."""

    SMALL: ClassVar = {**LabelledData.MODEL, "max_position_embeddings": 32}

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.configuration = Configuration([("test", {"train": {**self.TRAIN}, "labels": LABELS})])
        self._settings("tokenizer")
        manifest.write(
            folder / "tokenizer", read_settings(folder / "tokenizer.json", TokenizerSettings), ["tokenizer.json"]
        )
        for i, language in enumerate(self.languages):
            self.corpus(language, 10 * i)
        shards = {"tokenizer": "tokenizer"}
        for language in self.languages:
            self.stage(
                "shards", f"shards/{language}", shards | {"corpus": f"corpora/{language}"}, "--language", language
            )

    def _settings(self, stage: str, **more) -> None:
        settings = settings_of(self.configuration, "eng", stage)
        write_json(self.folder / f"{stage}.json", settings | {"name": "test", "languages": self.languages} | more)

    def corpus(self, language: str, seed: int) -> None:
        """A corpus; in the validation texts of `eng`, one that is too long, and two of a trade that no training text has."""
        folder = self.folder / "corpora" / language
        folder.mkdir(parents=True)
        for split, count in (("train", 240), ("validation", 60)):
            rows = rows_of(count, seed + len(split))
            if (split, language) == ("validation", "eng"):
                rows[0]["text"] += " word80" * 40
                for row in rows[1:3]:
                    row["labels"] = ["cooper", None]
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")
        self._settings("corpus", languages=[language])
        settings = read_settings(self.folder / "corpus.json", CorpusSettings)
        figures = {"documents": {"train": 240}, "bytes": {"train": 9000}, "sources": ["a.csv"], "hub": None}
        manifest.write(folder, settings, ["train.parquet", "validation.parquet"], figures=figures)

    def stage(self, stage: str, out: str, folders: dict, *more: str, **settings) -> Path:
        """Run a stage."""
        self._settings(stage, **settings)
        pairs = ["--settings", str(self.folder / f"{stage}.json"), "--out", str(self.folder / out)]
        for name, values in folders.items():
            pairs += [f"--{name}", *(str(self.folder / value) for value in np.atleast_1d(values))]
        done = run_module(f"babelmill.{stage}", *pairs, *more)
        assert done.returncode == 0, done.stderr + done.stdout
        return self.folder / out

    def all(self) -> None:
        """Train, export, evaluate, convert."""
        each = {kind: [f"{kind}/{language}" for language in self.languages] for kind in ("shards", "corpora")}
        self.settings(self.SMALL, max_steps=150, optimizer="adamw", learning_rate=5e-3, global_batch_tokens=640)
        self.run_settings(micro_batch_tokens=640, checkpoint_every=1000, validate_every=75)
        self.train()
        made = {"model": "model", "tokenizer": "tokenizer"}
        self.stage("export", "export", made | {"shards": each["shards"]}, "--checkpoints", str(self.folder))
        (self.folder / "codes.csv").write_text("".join(f"{code},{name}\n" for code, name in NAMES.items()))
        # A list for the evaluation alone, so that it names a code that the model does not know.
        labels = LABELS | {"codes": str(self.folder / "codes.csv")}
        self.stage("evaluate", "evaluation", {"export": "export"} | each, labels=labels)
        given = {"export": "export", "evaluation": "evaluation", "corpora": each["corpora"]}
        table = {
            code: {"name": name, "tag": code, "script": "Latn"}
            for code, name in (("eng", "English"), ("deu", "German"))
        }
        self.stage("convert", "converted", given | made, language_table=table)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Labelled:
    data = Labelled(tmp_path_factory.mktemp("labelled"))
    data.all()
    return data


@pytest.fixture(scope="module")
def evaluation(made) -> dict:
    return read_json(made.folder / "evaluation/evaluation.json")


def test_what_is_measured(made, evaluation):
    """Far better than the most frequent code, of all texts, and the parts make up the whole."""
    print(json.dumps(evaluation, indent=1)[:20000])
