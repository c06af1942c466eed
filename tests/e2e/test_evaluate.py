"""evaluation.json against a computation that shares nothing with it: one document at a time, no mask, no batch."""

import hashlib
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.tokens.shard_file import ShardFile
from helpers.plain_scores import TEXT, causal, masked
from helpers.stages import job_like

LENGTH = 512
WAYS = [("causal", AutoModelForCausalLM, causal), ("masked", AutoModelForMaskedLM, masked)]


def sample(corpus, shards, count):
    """UTF-8 bytes and tokens of the documents whose texts have the smallest hashes, in order."""
    texts = pq.read_table(corpus / "validation.parquet")["text"].to_pylist()
    shard = ShardFile.open(shards / "validation.safetensors")
    hashes = [hashlib.blake2b(text.encode(), digest_size=8, person=b"evaluation").hexdigest() for text in texts]
    chosen = sorted(sorted(range(len(texts)), key=hashes.__getitem__)[:count])
    tokens = [shard.tokens[shard.offsets[i] + 1 : shard.offsets[i + 1]].tolist() for i in chosen]
    documents = [[(token, token >= TEXT) for token in each] for each in tokens]
    return np.array([len(texts[i].encode()) for i in chosen]), documents, len(texts)


def standard_error(nats, size) -> float:
    """By the jackknife, in bits per byte."""
    left_out = (nats.sum() - nats) / (size.sum() - size) / math.log(2)
    return math.sqrt((len(size) - 1) / len(size) * ((left_out - left_out.mean()) ** 2).sum())


@pytest.mark.parametrize("language", ["eng", "deu"])
@torch.inference_mode()
def test_scores(built, language):
    evaluation = json.loads((built / f"results/of/{language}/evaluate/evaluation.json").read_text())
    folder = built / f"results/of/{language}/export"
    shards = built / f"results/of/{language}/shards"
    size, texts, of = sample(built / f"results/of/{language}/corpus", shards, 10)
    counts = {"scored": min(of, 10), "of": of}
    assert evaluation["documents"] == counts == evaluation["languages"][language]["documents"]
    assert (of > 10) == (language == "eng"), "a sample, and all"
    documents = pq.read_table(built / f"results/of/{language}/evaluate/documents.parquet")
    assert documents["bytes"].to_pylist() == size.tolist() and set(documents["language"].to_pylist()) == {language}
    tokens = [token for each in texts for token, scored in each if scored]
    count = len(tokens)
    for variant, argument in (("ema", None), ("main", "main")):
        for mode, auto, reference in WAYS:
            model = auto.from_pretrained(folder, variant=argument, trust_remote_code=True).eval()
            nats = np.array(reference(model, texts, LENGTH))
            score = evaluation["variants"][variant][mode]
            assert score["value"] == pytest.approx(nats.sum() / math.log(2) / size.sum(), rel=1e-5)
            assert score["nats_per_token"] == pytest.approx(nats.sum() / count, rel=1e-5)
            assert (score["tokens"], score["bytes"]) == (count, size.sum())
            assert score["standard_error"] == pytest.approx(standard_error(nats, size), rel=0.1)
            assert evaluation["languages"][language]["variants"][variant][mode] == score
            assert documents[f"{variant}_{mode}"].to_numpy() == pytest.approx(nats, rel=1e-4), "each document's own"
    occurs = np.bincount(ShardFile.open(shards / "train.safetensors").tokens, minlength=320)[16:]
    frequency = (occurs + 1) / (occurs + 1).sum()
    nats = -sum(math.log(frequency[token - 16]) for token in tokens)
    assert evaluation["unigram"]["value"] == pytest.approx(nats / math.log(2) / size.sum())
    assert evaluation["vocab_size"] == 320 and evaluation["sequence_length"] == LENGTH
    tokenizer = evaluation["tokenizer"][language]
    assert tokenizer["round_trip_rate"] == 1
    text = pq.read_table(built / f"results/of/{language}/corpus/validation.parquet")["text"].to_pylist()
    everything = ShardFile.open(shards / "validation.safetensors").tokens
    bytes_per_token = sum(len(document.encode()) for document in text) / (everything >= 16).sum()
    assert tokenizer["bytes_per_token"] == pytest.approx(bytes_per_token), "of all of the text"
    assert tokenizer["vocabulary_used"] == pytest.approx((occurs > 0).sum() / 304)
    assert (built / f"results/of/{language}/evaluate/manifest.json").is_file()


def test_shards_of_another_tokenizer_are_refused(workspace):
    other = "results/shards/" + (workspace.path / "results/of/deu/shards").resolve().name
    done = workspace.python(*job_like(workspace.path, "results/of/eng/evaluate", shards=[other]))
    assert done.returncode == 1
    assert f"{other}: was not made from the present results/corpus/eng-" in done.stderr
    assert not (workspace.path / "results/evaluate/again").exists()
