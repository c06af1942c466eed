"""CANINE, which reads characters, from a repository as it is on the Hub to its codes of a table."""

import csv
import json
import os

import pytest

from babelmill.core.files import read_json
from conftest import ROOT, Workspace
from helpers.labelled_texts import write_occupations
from helpers.models.published_models import publish_canine
from helpers.programs.prepared import run_python

pytestmark = pytest.mark.slow

LONGEST = 256  # `model_max_length` of the published tokenizer
TEXTS = ["smith", "ab", "x", "Küfer 🧔", "a long text " * 40]
MODEL = {
    "languages": ["occ"],
    "model": {"architecture": "transformers", "source": "google/canine-tiny"},
    "labels": {"code": "hisco", "decoder_layers": 1},
    "train": {
        **{"objective": "labels", "sequence_lengths": [40], "phase_starts": [0.0], "max_steps": 3},
        **{"global_batch_tokens": 640, "optimizer": "adamw", "precision": "fp32", "typos": 0.5},
    },
    "predict": {"tables": {"table": "table.csv"}, "method": "linear", "top": 3},
}
CORPUS = {
    **{"files": ["occ.csv"], "text_column": "occ1", "validation_share": 0.1},
    **{"label_columns": ["code1", "code2"], "context_column": "lang"},
}
SETTINGS = {
    **{"targets": ["occ"], "preset": "tiny", "models": {"occ": MODEL}, "predict": {"text_column": "occ1"}},
    "languages": {"occ": {"name": "Occupations", "corpus": CORPUS}},
}
# Without code of ours.
USE = """
import json, sys, transformers
classify = transformers.pipeline("text-classification", "converted/occ", top_k=3)
fours = {"padding": True, "pad_to_multiple_of": 4}
texts = [{"text": "eng", "text_pair": text} if i % 2 else text for i, text in enumerate(json.loads(sys.argv[1]))]
print(json.dumps({
    "fours": [classify([text], **fours, truncation=True)[0] for text in texts],
    "as_it_is": classify(["ab"])[0],
    "ids": transformers.AutoTokenizer.from_pretrained("converted/occ")("中🧔")["input_ids"],
}))
"""


def test_a_published_model_gives_codes_with_our_code_and_without(tmp_path, hub):
    work = Workspace(tmp_path / "work")
    work.configure(SETTINGS)
    write_occupations(work.path / "occ.csv", 200)
    with open(work.path / "table.csv", "w", newline="", encoding="utf-8") as file:
        rows = [(text, "eng" if i % 2 else "") for i, text in enumerate(TEXTS)]
        csv.writer(file).writerows([("occ1", "lang"), *rows])
    published = publish_canine(tmp_path / "canine")
    hub.commit("models/google/canine-tiny", {file.name: file.read_bytes() for file in published.iterdir()})
    work.snakemake("converted/occ", "predictions/occ/table.json", "--profile", ROOT / "profiles/local")
    converted = work.path / "converted/occ"
    assert not (converted / "tokenizer.json").exists()
    assert read_json(converted / "tokenizer_config.json") == read_json(published / "tokenizer_config.json")
    card = " ".join((converted / "README.md").read_text(encoding="utf-8").split())
    assert "padding=True, pad_to_multiple_of=4))" in card and "a `canine` encoder with a classifier" in card

    with open(work.path / "predictions/occ/table.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted"] for row in rows] == ["yes", "yes", "yes", "yes", "cut"]
    environment = os.environ | {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    done = run_python("-c", USE, json.dumps(TEXTS), cwd=work.path, environment=environment, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ids"] == [0xE000, ord("中"), ord("🧔"), 0xE001] and len(found["as_it_is"]) == 3
    for row, likeliest in zip(rows, found["fours"], strict=True):
        assert [row[f"likeliest_{i}"] for i in (1, 2, 3)] == [each["label"] for each in likeliest], row
        chances = [float(row[f"likeliest_probability_{i}"]) for i in (1, 2, 3)]
        assert chances == pytest.approx([each["score"] for each in likeliest], rel=2e-3)
    evaluation = read_json(work.path / "results/of/occ/evaluate/evaluation.json")
    assert evaluation["documents"]["scored"] > 10
