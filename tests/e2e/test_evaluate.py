"""evaluation.json against a computation that shares nothing with it: one document part at a time, no mask, no batch."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.tokens.shard_file import ShardFile

LENGTH, MASKS = 512, 7
BOS, MASK = 1, 4


def parts(row):
    """A row of tokens, cut before each `<s>`."""
    starts = [i for i, token in enumerate(row) if token == BOS]
    return [row[a:b] for a, b in zip(starts, [*starts[1:], len(row)], strict=True)]


def causal_nats(model, tokens) -> float:
    total = 0.0
    for start in range(0, len(tokens), LENGTH):
        for part in parts([BOS, *tokens[start : start + LENGTH]]):
            targets = torch.tensor(part[1:])
            if len(targets):
                logits = model(torch.tensor([part[:-1]])).logits[0].double()
                nats = -logits.log_softmax(-1)[torch.arange(len(targets)), targets]
                total += nats[targets >= 16].sum().item()
    return total


def masked_nats(model, tokens) -> float:
    total = 0.0
    for start in range(0, len(tokens), LENGTH - 1):
        row = [BOS, *tokens[start : start + LENGTH - 1]]
        text = [i for i, token in enumerate(row) if token >= 16]
        for turn in range(MASKS):
            hidden = set(text[turn::MASKS])
            given = [MASK if i in hidden else token for i, token in enumerate(row)]
            done = 0
            for part in parts(given):
                positions = [i for i, token in enumerate(part) if token == MASK]
                if positions:
                    targets = torch.tensor([row[done + i] for i in positions])
                    logits = model(torch.tensor([part])).logits[0].double()
                    total -= logits.log_softmax(-1)[torch.tensor(positions), targets].sum().item()
                done += len(part)
    return total


@pytest.mark.parametrize("language", ["eng", "deu"])
@torch.inference_mode()
def test_scores(built, language):
    evaluation = json.loads((built / f"results/evaluations/{language}/evaluation.json").read_text())
    folder = built / f"results/exports/{language}"
    texts = pq.read_table(built / f"results/corpora/{language}/validation.parquet")["text"].to_pylist()
    size = sum(len(text.encode()) for text in texts)
    shards = built / f"results/shards/{language}/{language}"
    tokens = ShardFile.open(shards / "validation.safetensors").tokens.tolist()
    count = sum(token >= 16 for token in tokens)
    assert len(tokens) > LENGTH, "more than one row"
    for variant, argument in (("ema", None), ("main", "main")):
        for mode, auto, reference in (
            ("causal", AutoModelForCausalLM, causal_nats),
            ("masked", AutoModelForMaskedLM, masked_nats),
        ):
            model = auto.from_pretrained(folder, variant=argument, trust_remote_code=True).eval()
            nats = reference(model, tokens)
            score = evaluation["variants"][variant][mode]
            assert score == pytest.approx(
                {
                    "bits_per_byte": nats / math.log(2) / size,
                    "nats_per_token": nats / count,
                    "tokens": count,
                    "bytes": size,
                },
                rel=1e-5,
            )
            assert evaluation["languages"][language]["variants"][variant][mode] == score
    counts = np.bincount(ShardFile.open(shards / "train.safetensors").tokens, minlength=320)[16:]
    frequency = (counts + 1) / (counts + 1).sum()
    nats = -sum(math.log(frequency[token - 16]) for token in tokens if token >= 16)
    assert evaluation["unigram"]["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
    assert evaluation["vocab_size"] == 320 and evaluation["sequence_length"] == LENGTH
    tokenizer = evaluation["tokenizer"][language]
    assert tokenizer["round_trip_rate"] == 1
    assert tokenizer["bytes_per_token"] == pytest.approx(size / count)
    assert tokenizer["vocabulary_used"] == pytest.approx((counts > 0).sum() / 304)
    assert (built / f"results/evaluations/{language}/manifest.json").is_file()


def test_shards_of_another_tokenizer_are_refused(built, workspace):
    done = workspace.python(
        *("-m", "babelmill.evaluate", "--settings", "results/settings/eng/evaluate.json", "--out", "elsewhere"),
        *("--export", "results/exports/eng", "--corpora", "results/corpora/eng", "--shards", "results/shards/deu/deu"),
    )
    assert done.returncode == 1
    assert "results/shards/deu/deu: was not made from the present results/corpora/eng" in done.stderr
    assert not (workspace.path / "elsewhere").exists()
