"""Prompts and responses from a table to the converted folder, in one run of the workflow."""

import json
import math
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.commands import show
from babelmill.commands.plan import text_of
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import read_json
from babelmill.graph import Graph
from babelmill.tokens.shard_file import ShardFile
from conftest import ROOT, SMALL, WORDS, Workspace
from helpers.plain_scores import TEXT, Document, causal, masked

pytestmark = pytest.mark.slow

LENGTH = 64
CORPUS = {"files": ["table/*.jsonl"], "validation_share": 0.25, "text_column": "answer", "prompt_column": "question"}
SETTINGS = {name: SMALL[name] for name in ("preset", "tokenizer", "model", "train", "run")} | {
    "targets": ["eng"],
    "evaluation": {"sequence_length": LENGTH, "max_documents": None},
    "languages": {"eng": {"corpus": CORPUS}},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Workspace:
    """The workflow's folder, after it has run on 160 pairs, of which every eighth has no prompt."""
    workspace, words = Workspace(tmp_path_factory.mktemp("prompts")), WORDS["eng"].split()
    workspace.configure(SETTINGS)
    rows = []
    for i in range(160):
        order = [words[(i * step + step * step) % len(words)] for step in range(1, 4 + i % 40)]
        prompt = "" if i % 8 == 0 else f"{i}. {' '.join(order)}?\n"
        rows.append({"question": prompt, "answer": f"{i}: {' '.join(reversed(order))}."})
    (workspace.path / "table").mkdir()
    lines = [json.dumps(row) + "\n" for row in [*rows, {"question": "why?", "answer": None}]]
    (workspace.path / "table/a.jsonl").write_text("".join(lines))
    workspace.snakemake("converted/eng", "--profile", ROOT / "profiles/local")
    return workspace


def documents_of(shard: ShardFile) -> list[Document]:
    """The tokens of the documents, of which those of responses are scored."""
    places = [
        (int(response), range(int(begin) + 1, int(end)))
        for begin, end, response in zip(shard.offsets[:-1], shard.offsets[1:], shard.responses, strict=True)
    ]
    return [[(int(shard.tokens[p]), p >= start and shard.tokens[p] >= TEXT) for p in each] for start, each in places]


@torch.inference_mode()
def test_scores_are_of_responses_given_their_prompts(made):
    """Against a computation of one document at a time, with transformers."""
    evaluation = read_json(made.path / "results/of/eng/evaluate/evaluation.json")
    shard = ShardFile.open(made.path / "results/of/eng/shards/validation.safetensors")
    lengths, prompts = shard.offsets[1:] - shard.offsets[:-1], shard.responses - shard.offsets[:-1] - 1
    assert lengths.max() > LENGTH > lengths.min() and 0 < (prompts > 0).sum() < len(prompts)
    rows = pairs(made, "validation")
    size = sum(len(answer.encode()) for _, answer in rows)
    texts = documents_of(shard)
    count = sum(scored for each in texts for _, scored in each)
    documents = {"scored": len(rows), "of": len(rows), "with_prompt": sum(bool(prompt) for prompt, _ in rows)}
    assert evaluation["documents"] == evaluation["languages"]["eng"]["documents"] == documents
    for metric, auto, reference in (("causal", AutoModelForCausalLM, causal), ("masked", AutoModelForMaskedLM, masked)):
        model = auto.from_pretrained(made.path / "converted/eng", trust_remote_code=True).eval()
        score = evaluation["variants"]["ema"][metric]
        nats = reference(model, texts, LENGTH)
        assert score["value"] == pytest.approx(sum(nats) / math.log(2) / size, rel=1e-5)
        assert (score["tokens"], score["bytes"]) == (count, size)
    card = " ".join((made.path / "converted/eng/README.md").read_text().split())
    assert f"only the response of the {documents['with_prompt']} with a prompt" in card
    assert "give it a prompt that ends like those of the training data." in card


def pairs(made: Workspace, split: str) -> list[tuple[str, str]]:
    table = pq.read_table(made.path / f"results/of/eng/corpus/{split}.parquet")
    return list(zip(table["prompt"].to_pylist(), table["text"].to_pylist(), strict=True))


def test_show_and_plan_know_of_prompts(made, monkeypatch):
    monkeypatch.chdir(made.path)
    shown = "\n".join(show.scores(Path("converted/eng")))
    assert re.search(r"\(only the response of the \d+ with a prompt\)", shown)
    figures = manifest.read("results/of/eng/shards")["figures"]
    tokens, prompts = (figures[name]["train"] for name in ("tokens", "prompt_tokens"))
    assert 0 < prompts < tokens
    found = text_of(Graph(Configuration([("test", SETTINGS)])), "eng")
    assert (found.tokens, found.source) == (tokens, "shards")
