"""A model whose tokenizer puts a space before each text (`tokenizer.prefix_space`), from its tokenizer to its users."""

import json
import os

import pyarrow.parquet as pq
import pytest

from babelmill.core.files import read_json, sha256
from babelmill.tokens.shard_file import ShardFile
from conftest import SMALL
from helpers.environments import TRANSFORMERS_4, installed
from helpers.programs.prepared import run_python

pytestmark = pytest.mark.slow

MODELS = {
    "spaced": {"languages": ["eng"], "tokenizer": {"prefix_space": True}},
    "more": {"model": {"source": "spaced"}},
}
PROMPT = "seven wizards"
# As users do it; only what is in the folder.
USE = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

folder, texts, prompt = "converted/spaced", json.loads(sys.argv[1]), sys.argv[2]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
given = tokenizer(prompt, return_tensors="pt")
new = model.generate(**given, max_new_tokens=5, do_sample=False)[0]
filled = pipeline("fill-mask", model=folder, trust_remote_code=True)(f"{prompt} <mask> warm")[0]
write = pipeline("text-generation", model=folder, trust_remote_code=True)
tokenizer.save_pretrained("saved")
again = AutoTokenizer.from_pretrained("saved")
print(json.dumps({
    "space": [tokenizer.add_prefix_space, again.add_prefix_space],
    "ids": [tokenizer(text)["input_ids"] for text in texts],
    "again": [again(text)["input_ids"] for text in texts],
    "decoded": tokenizer.batch_decode(tokenizer(texts)["input_ids"], skip_special_tokens=True),
    "masked": tokenizer.convert_ids_to_tokens(tokenizer(f"{prompt} <mask> warm")["input_ids"]),
    "offsets": tokenizer("the fox", return_offsets_mapping=True)["offset_mapping"],
    "whole": tokenizer.decode(new, skip_special_tokens=True),
    "generated": write(prompt, max_new_tokens=5, do_sample=False)[0]["generated_text"],
    "filled": filled["sequence"],
    "word": filled["token_str"],
}))
"""


def test_from_the_tokenizer_to_its_users(workspace):
    path = workspace.path
    workspace.configure(SMALL | {"models": MODELS})
    stages = ("tokenizer", "shards", "train", "export", "evaluate")
    expected = {(stage, "eng") for stage in stages} | {("convert", "spaced")}
    assert workspace.would_run(targets=["converted/spaced", "converted/eng"]) == expected
    workspace.snakemake("converted/spaced")
    workspace.snakemake("converted/more", "--until", "shards")

    # One word alone has the token of this word in a text.
    texts = pq.read_table(path / "results/of/eng/corpus/train.parquet")["text"].to_pylist()
    given = [*texts, "the", " the", "", "fox the"]
    found = {}
    for version, folders in (("5", []), ("4", [installed(TRANSFORMERS_4)])):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "HF_HUB_OFFLINE": "1"}
        environment |= {"HF_HOME": str(path / f"cache-{version}")}
        done = run_python("-c", USE, json.dumps(given), PROMPT, cwd=path, environment=environment, check=True)
        found[version] = json.loads(done.stdout.splitlines()[-1])
    # The pipeline of transformers 5 decodes what is new alone, so a space at its beginning is lost.
    generated = [found[version].pop("generated") for version in ("4", "5")]
    assert found["4"] == found["5"]
    use = found["5"]
    assert generated[0] == use["whole"] and generated[1].replace(" ", "") == use["whole"].replace(" ", "")
    assert use["space"] == [True, True] and use["decoded"] == given and use["ids"] == use["again"]
    alone, _, empty, last = use["ids"][len(texts) :]
    assert len(alone) > 1 == len(empty) and last[1 - len(alone) :] == alone[1:]
    assert use["offsets"][0] == [0, 0] and use["offsets"][1][0] == 0 and use["offsets"][-1][1] == len("the fox")
    mask = use["masked"].index("<mask>")
    assert use["masked"][mask - 1] != "Ġ" and use["masked"][mask + 1].startswith("Ġ")
    assert use["whole"].startswith(PROMPT)
    assert use["filled"].startswith(PROMPT) and use["filled"].endswith(" warm")

    # The documents of the shards are what the exported tokenizer gives.
    shard = ShardFile.open(path / "results/of/spaced/shards/train.safetensors")
    documents = [shard.tokens[begin:end].tolist() for begin, end in zip(shard.offsets, shard.offsets[1:], strict=False)]
    assert documents == [[*ids, 2] for ids in use["ids"][: len(texts)]]
    assert sha256(path / "results/of/more/tokenizer/tokenizer.json") == sha256(path / "converted/spaced/tokenizer.json")
    more, spaced = (path / f"results/of/{name}/shards/train.safetensors" for name in MODELS)
    assert sha256(more) == sha256(spaced)

    # Bits per byte are per byte of the text.
    names = "spaced", "eng"
    evaluations = [read_json(path / f"results/of/{name}/evaluate/evaluation.json") for name in names]
    for metric in ("causal", "masked"):
        scores = [each["variants"]["ema"][metric] for each in evaluations]
        assert scores[0]["bytes"] == scores[1]["bytes"] > 0 and scores[0]["tokens"] != scores[1]["tokens"]
    cards = [(path / f"converted/{name}/README.md").read_text() for name in names]
    assert ["It puts a space before each text" in card for card in cards] == [True, False]
