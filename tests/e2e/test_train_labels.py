"""Training on labels by the real command: any number of processes, kills, and what a frozen encoder leaves."""

import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from helpers.training.training_data import Data, LabelledData, export

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> LabelledData:
    """A run that nothing disturbed, of texts that typos disturb."""
    data = LabelledData(tmp_path_factory.mktemp("labels"))
    data.settings(typos=0.3)
    data.train()
    return data


def difference(one: LabelledData, other: LabelledData) -> float:
    """The largest difference of weights, but for biases of keys: their gradient is rounding, which Adam blows up."""
    ours, theirs = (load_file(data.folder / "model/model.safetensors") for data in (one, other))
    assert ours.keys() == theirs.keys()
    differences = {name: (ours[name] - theirs[name]).abs() for name in ours if not name.endswith("key.bias")}
    for name in [name for name in differences if name.endswith("in_proj_bias")]:
        query, _, value = differences.pop(name).chunk(3)
        differences |= {f"{name} of queries": query, f"{name} of values": value}
    return max(float(difference.max()) for difference in differences.values())


def test_texts_that_are_cut_are_counted(whole, tmp_path):
    data = LabelledData.at(tmp_path / "cut", whole)
    data.settings(sequence_lengths=[6], max_steps=1)
    said = re.search(
        r"(\d+) training texts cut at the end: .* longer than train.sequence_lengths = \[6\]", data.train()
    )
    assert said and 20 < int(said[1]) < 160


def test_any_number_of_processes_gives_the_same_model(whole, tmp_path):
    """Whole micro-batches are dealt to them, and attention drops alike."""
    runs = [LabelledData.at(tmp_path / str(processes), whole) for processes in (1, 2, 3)]
    for processes, data in enumerate(runs, 1):
        data.settings(micro_batch_tokens=32, optimizer="adamw", typos=0.5, max_steps=8)
        data.train("model", processes)
    assert max(difference(runs[0], other) for other in runs[1:]) < 1e-5


def test_a_killed_run_goes_on_to_the_same_weights(whole, tmp_path):
    data = LabelledData.at(tmp_path / "killed", whole)
    data.run_settings(checkpoint_every=2)
    data.interrupt(5, signal.SIGKILL)
    assert "going on after step" in data.train()
    assert data.weights() == whole.weights()


@pytest.fixture(scope="module")
def folder(whole) -> Path:
    """What the stage `export` made of it, which proves it equal."""
    return export(whole)


def test_the_likeliest_codes_are_those_of_all_that_are_known(folder):
    """The beam search, against the chance of every code."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    given = tokenizer(["word16 word60", "word31 word19 word70"], padding=True, return_tensors="pt")
    ids, seen = given["input_ids"], given["attention_mask"]
    found = model.predict(ids, seen, top=6)
    with torch.no_grad():
        for row, each in enumerate(found):
            chances = {}
            for code, spelt in zip(model.codes, model.spelt, strict=True):
                symbols = torch.cat([torch.tensor([2]), spelt[:-1]])[None]
                scores = model(ids[row : row + 1], seen[row : row + 1], symbols).logits[0].log_softmax(-1)
                chances[code] = float(scores.gather(1, spelt[:, None]).sum().exp())
            best = sorted(chances, key=lambda code: -chances[code])
            assert [code for code, _ in each.likeliest] == best
            assert [p for _, p in each.likeliest] == pytest.approx([chances[code] for code in best], rel=1e-4)


@pytest.fixture(scope="module")
def base(tmp_path_factory, whole) -> Path:
    """A GPT-BERT that was trained on other text, with the tokenizer of the labelled one."""
    data = Data(tmp_path_factory.mktemp("base"))
    data.settings(max_steps=4)
    data.train()
    return data.folder / "model"


@pytest.mark.parametrize("freeze", ["none", "encoder"])
def test_it_goes_on_from_a_model_of_this_workflow(whole, base, tmp_path, freeze):
    data = LabelledData.at(tmp_path / "occ", whole)
    shutil.copytree(base, data.folder / "base")
    data.settings({"source": "eng"}, freeze=freeze, max_steps=4, unknown_context=0.5)
    assert "begins with the weights of eng" in data.train()
    before, after = (load_file(folder / "model.safetensors") for folder in (base, data.folder / "model"))
    name = "transformer.attention_layers.0.in_proj_qk.weight"
    if freeze == "none":
        moved = (after[f"encoder.model.{name}"] - before[name]).abs().max()
        assert 0 < moved < 0.1
        assert "encoder.score.weight" in after
    else:
        assert {key for key in after if key.startswith("encoder.")} == {"encoder.score.weight", "encoder.score.bias"}
    folder = export(data)

    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    if freeze == "encoder":
        assert torch.equal(model.state_dict()[f"model.{name}"], before[name])
    found = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    ids = torch.tensor([[1, 16, 60]])
    assert len(found.predict(ids, torch.ones_like(ids))[0].likeliest) == 5
