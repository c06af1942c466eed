"""The guide's lines about datasets of the Hub, as they stand there, against a Hub on this machine."""

import gzip
import io
import itertools
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from babelmill.config.resolve import ROOT
from babelmill.corpus.builtin import python_docs
from conftest import SMALL, Workspace

pytestmark = pytest.mark.slow

WIKITEXT = """---
license: cc-by-sa-3.0
configs:
- config_name: wikitext-103-raw-v1
  data_files: [{split: test, path: wikitext-103-raw-v1/test-*}, {split: train, path: wikitext-103-raw-v1/train-*},
    {split: validation, path: wikitext-103-raw-v1/validation-*}]
- config_name: wikitext-2-raw-v1
  data_files: [{split: train, path: wikitext-2-raw-v1/train-*}]
---
"""
C4 = "---\nconfigs:\n- config_name: en\n  data_files: [{split: train, path: en/c4-train.*.json.gz}]\n---\n"


def parquet(texts: list[str]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file)
    return file.getvalue()


def lines(texts: list[str]) -> bytes:
    return gzip.compress("".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in texts).encode(), mtime=0)


def test_a_model_of_wikitext_and_a_corpus_of_c4(hub, tmp_path):
    """The configuration that is named is trained on, and no file of c4 is fetched beyond the budget."""
    pages = (text for batch in python_docs() for text in batch["text"].to_pylist())
    texts = [page[:300] for page in itertools.islice(pages, 1000)]
    folder = "wikitext-103-raw-v1"
    files = {f"{folder}/train-0000{i}-of-00002.parquet": parquet(texts[i:400:2]) for i in range(2)}
    files |= {f"{folder}/{split}-00000-of-00001.parquet": parquet(texts[400:410]) for split in ("test", "validation")}
    files |= {"wikitext-2-raw-v1/train-00000-of-00001.parquet": parquet(["another configuration"])}
    hub.commit("datasets/Salesforce/wikitext", files | {"README.md": WIKITEXT.encode()})
    c4 = {f"en/c4-train.{i:05}-of-00040.json.gz": lines(texts[i::40]) for i in range(40)}
    hub.commit("datasets/allenai/c4", c4 | {"realnewslike/x.json.gz": lines(["no"]), "README.md": C4.encode()})

    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL)
    settings = yaml.safe_load(next(block for block in blocks if "wikitext-103" in block))
    settings["languages"]["c4"]["corpus"]["budget"] = "150 documents"  # of a smaller c4
    workspace = Workspace(tmp_path)
    workspace.configure(SMALL | settings | {"targets": ["wikitext"]})
    workspace.snakemake("converted/wikitext")
    workspace.snakemake("converted/c4", "--until", "corpus")

    figures = json.loads((tmp_path / "results/of/wikitext/corpus/manifest.json").read_text())["figures"]
    assert figures["documents"] == {"train": len(set(texts[:400]) - set(texts[400:410])), "validation": 10}
    card = (tmp_path / "converted/wikitext/README.md").read_text()
    assert "- Salesforce/wikitext" in card.split("---")[1] and "`Salesforce/wikitext` at `" in card
    assert "| cc-by-sa-3.0 (the dataset's card) |" in card, "no document names another"
    figures = json.loads((tmp_path / "results/of/c4/corpus/manifest.json").read_text())["figures"]
    assert figures["budget"] == {"unit": "documents", "asked": 150, "realised": 150}
    assert len(list((tmp_path / "results/of/c4/download/allenai/c4/en").iterdir())) < 10
