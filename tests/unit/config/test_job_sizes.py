"""What is known of jobs before anything runs: bytes of text and the size of a model, which memory and time follow."""

from pathlib import Path

import pytest

from babelmill.config.job_sizes import input_bytes, parameters_of, text_bytes
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.settings import settings_of

pytestmark = pytest.mark.usefixtures("folder")


def size(**corpus) -> float:
    """The bytes of the text of Ukrainian, whose settings file is written."""
    configuration = Configuration([("test", {"languages": {"ukr": {"corpus": corpus}}})])
    write_json("results/settings/ukr/corpus.json", settings_of(configuration, "ukr", "corpus"))
    assert text_bytes(configuration, "ukr") == input_bytes(configuration, "ukr")
    return input_bytes(configuration, "ukr")


def test_bytes_follow_the_files_or_what_is_asked_for():
    assert size() == pytest.approx(543e6 * 1.751)  # a tier-1 language
    assert size(budget=7.0) == pytest.approx(7e6 * 1.751)
    assert size(budget="5k words") == pytest.approx(5000 * 5.43 * 1.751)
    assert size(budget="500M documents") > 1e12
    Path("results/downloads/ukr/data").mkdir(parents=True)
    Path("results/downloads/ukr/data/1.parquet").write_bytes(bytes(1000))
    assert size() == 4000
    for name in ("a.txt", "b.jsonl.gz"):
        Path(name).write_bytes(bytes(100))
    assert size(files=["a.txt", "b.*"]) == 100 + 100
    assert size(files=["a.txt", "*.gz"]) == 100 + 400
    assert size(validation_files=["a.txt"]) == 100 + 4000, "beside a download"


def test_shards_follow_the_corpus():
    Path("results/corpora/ukr").mkdir(parents=True)
    Path("results/corpora/ukr/train.parquet").write_bytes(bytes(1000))
    assert text_bytes(Configuration([("test", {})]), "ukr") == 4000


def count(**model) -> int | None:
    """The number of parameters of a model with these settings."""
    return parameters_of(Configuration([("test", {"models": {"a": {"languages": ["eng"], **model}}})]), "a")


def test_a_source_counts_as_what_is_there_of_it():
    """Its manifest, once it was fetched; else the files of a folder. Of a repository nothing is known before."""
    theirs = Path("theirs")
    theirs.mkdir()
    write_json(theirs / "config.json", {"model_type": "llama", "torch_dtype": "bfloat16"})
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.ema.safetensors"):
        (theirs / name).write_bytes(bytes(1000))
    train = {"objective": "causal", "optimizer": "adamw"}
    model = {"architecture": "transformers", "source": "./theirs"}
    assert count(model=model, train=train) == 1000
    write_json(theirs / "config.json", {"model_type": "llama", "dtype": "float32"})
    assert count(model=model, train=train) == 500
    hub = model | {"source": "owner/name"}
    assert count(model=hub, train=train) is None
    fetched = manifest.StageRequest("base_model", "a", {})
    manifest.write("results/base_models/a", fetched, [], figures={"parameters": 321})
    assert count(model=hub, train=train) == 321


def test_a_gpt_bert_is_counted():
    assert count(preset="small") == pytest.approx(30e6, rel=0.1)
