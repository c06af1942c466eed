"""Fine-tune models of all architectures: each learns what can be learnt, with the challenge's head and with its own."""

import json
import random
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from babelmill.cli import main
from babelmill.core import manifest
from babelmill.core.files import read_json
from conftest import Workspace
from helpers import DATA
from helpers.models import seeded
from helpers.programs.prepared import run_module

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
            lines.append(
                f"{('The cat', 'A dog')[which]} {' '.join(draw.choices(['sleeps', 'sings', 'is', 'in', 'the'], k=4))}\t{which}"
            )
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


def publish(hub, repository: str, model) -> None:
    """Put a model of transformers on the Hub of the tests, with a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        PreTrainedTokenizerFast(tokenizer_file=str(seeded.TOKENIZER), **tokens).save_pretrained(folder)
        hub.commit(f"models/{repository}", {path.name: path.read_bytes() for path in Path(folder).iterdir()})


def test_a_model_of_the_hub(hub, tmp_path):
    """A classifier of three classes gets a new head for two; a model that needs a decoder's input is refused."""
    workspace = Workspace(tmp_path)
    workspace.configure({"evaluation_data": str(DATA / "official/evaluation_data")})
    config = BertConfig(vocab_size=seeded.ENTRIES, **BERT, num_labels=3, max_position_embeddings=32)
    publish(hub, "org/three", BertForSequenceClassification(config))
    done = run_module("babelmill", "tune", "org/three", "--task", "rte_sound", "--seed", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "tuned/org--three/rte_sound/1"
    eng = read_json(folder / "scores.json")["languages"]["eng"]
    assert eng["rows"] == {"train": 40, "chosen_by": 4, "scored": 20, "test": 20} and eng["classes"] == ["0", "1"]
    assert eng["cut"] > 0 and f"{eng['cut']} rows cut at the end: they have more than 32 tokens" in done.stderr
    assert len(manifest.read(folder)["settings"]["origin"]["commit"]) == 40
    sizes = {"d_model": 32, "d_ff": 48, "num_layers": 1, "num_heads": 2, "d_kv": 16}
    publish(hub, "org/t5", T5ForConditionalGeneration(T5Config(vocab_size=seeded.ENTRIES, **sizes)))
    done = run_module("babelmill", "tune", "org/t5", "--task", "rte", cwd=tmp_path)
    assert done.returncode == 1 and "this model cannot be fine-tuned for a task" in done.stderr.splitlines()[-1]
    assert "epoch" not in done.stderr and not [*tmp_path.glob("tuned/org--t5/**/scores.json")]
