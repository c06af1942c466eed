"""Fine-tune models of all architectures: each learns what can be learnt, with the challenge's head and with its own."""

import json
import random

import pyarrow.parquet as pq
import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from babelmill.cli import main
from babelmill.core.files import read_json
from helpers.models import seeded

pytestmark = pytest.mark.slow

BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
GROUPED = BERT | {"num_key_value_heads": 1}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}
MASKED, CAUSAL = AutoModelForMaskedLM, AutoModelForCausalLM
# By kind: the class that was trained, the sizes, and what else config.json says. The folder of a GPT-BERT is the same for
# every objective; that of a model that was trained with adapters is the same as without.
KINDS = {
    "bert": (MASKED, BERT, {}),
    "roberta": (MASKED, BERT, {}),
    "distilbert": (MASKED, DISTILBERT, {}),
    "modernbert": (MASKED, BERT, {"objective": "diffusion"}),
    "eurobert": (MASKED, GROUPED, {}),
    "llama": (CAUSAL, GROUPED, {}),
}
TUNING = {"select": "last", "epochs": 8, "batch": 8, "learning_rate": 0.003, "longest": 32, "seeds": [1]}
HEADS = {
    "own": {"head": "model"},
    "first": {"head": "challenge"},
    "last": {"head": "challenge", "pooling": "last", "padding": "left"},
}


def write_task(folder) -> None:
    """Say of a cat or a dog; the class says of which. All words are whole tokens or few."""
    draw = random.Random(1)
    for split, count in (("train", 96), ("test", 32)):
        lines = ["sentence\tclass"]
        for _ in range(count):
            which = draw.randrange(2)
            words = draw.choices(["sleeps", "sings", "is", "in", "the"], k=4)
            lines.append(f"{('The cat', 'A dog')[which]} {' '.join(words)}\t{which}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    own = {"train": ["train.tsv"], "test": ["test.tsv"], "language": "eng", "text": "{sentence}", "label": "class"}
    tasks = {name: own | {"tuning": TUNING | head} for name, head in HEADS.items()}
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(json.dumps({"tasks": tasks}))


@pytest.mark.parametrize("kind", ["gpt_bert", "gpt2", *KINDS])
def test_a_toy_task_is_learnt(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    if kind in KINDS:
        auto, sizes, more = KINDS[kind]
        config = AutoConfig.for_model(kind, vocab_size=seeded.ENTRIES, **sizes, **seeded.SPECIAL)
        model = seeded.of_transformers(tmp_path / kind, config, auto, **more)
    else:
        model = getattr(seeded, kind)(tmp_path / kind)
    causal = kind == "gpt2" or KINDS.get(kind, (None,))[0] is CAUSAL
    for head in HEADS:
        assert main(["tune", str(model), "--task", head]) == 0
        scores = read_json(tmp_path / f"tuned/{kind}/{head}/1/scores.json")["languages"]["eng"]
        predictions = pq.read_table(tmp_path / f"tuned/{kind}/{head}/1/predictions.parquet")
        if head == "first" and causal:  # the first token has seen no other
            assert scores["majority"], "and the score says so"
        else:
            assert scores["score"] == 1.0 and scores["majority"] is None, (head, scores["scores_of_epochs"])
            assert predictions["prediction"] == predictions["label"]
