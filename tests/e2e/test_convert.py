"""The deliverable, `converted/{model}`: the exported folder unchanged, and a card that says what was measured."""

import re
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard

from babelmill.core import manifest
from babelmill.core.files import read_json, sha256
from helpers.environments import TUNING, installed
from helpers.programs.prepared import run_python
from helpers.stages import job_like


@pytest.fixture(scope="module")
def card(built):
    return ModelCard.load(built / "converted/eng/README.md", ignore_metadata_errors=False)


def test_front_matter(built, card):
    """What the Hub reads: every language's results, of the default weights, are the measured ones."""
    evaluation = read_json(built / "results/of/eng/evaluate/evaluation.json")
    assert card.data.language == ["en"]  # ISO 639-1, as the Hub wants it
    assert card.data.library_name == "transformers" and "gpt-bert" in card.data.tags
    found = {(result.task_type, result.metric_type): result.metric_value for result in card.data.eval_results}
    scores = evaluation["languages"]["eng"]["variants"]["ema"]
    assert found == {
        ("text-generation", "bits_per_byte"): round(scores["causal"]["value"], 4),
        ("fill-mask", "bits_per_byte"): round(scores["masked"]["value"], 4),
    }


def test_facts(built, card):
    """The export unchanged; sizes, every setting of the model and its training, the text, the sha256 of its code."""
    exported = manifest.verify(built / "results/of/eng/export")["files"]
    converted = manifest.verify(built / "converted/eng")["files"]
    assert exported.items() <= converted.items()
    assert set(converted) - set(exported) == {"README.md", "metrics.jsonl", "training_history.png"}
    model = manifest.read(built / "results/of/eng/train")
    rows = {tuple(cell.strip() for cell in line.strip("|").split("|")[:2]) for line in card.text.splitlines()}
    shown = yaml.safe_load(re.search(r"```yaml\n(.*?)```", card.text, re.DOTALL)[1])
    settings = model["settings"]
    assert shown == {"model": settings["model"], "train": settings["train"] | {"precision": "fp32"}}
    assert shown["train"]["max_steps"] == 8 and "epochs" not in shown["train"]
    for path in (built / "converted/eng").glob("*.py"):
        assert (f"`{path.name}`", f"`{sha256(path)}`") in rows
    documents = manifest.read(built / "results/of/eng/corpus")["figures"]["documents"]["train"]
    assert f"| {documents} |" in card.text
    assert f"{model['figures']['parameters']:,} parameters, trained on masked and causal" in card.text
    assert "| English | 60 local files |" in card.text and "Byte-level BPE with 320 entries" in card.text
    assert re.search(r"The steps took [\d.]+(e-\d+)? minutes", card.text)
    assert str(built) not in card.text


def test_the_code_in_the_card_runs(built, tmp_path):
    """Each piece as it stands there, from the folder in which `eng` is."""
    shutil.copytree(built / "converted/eng", tmp_path / "eng")
    pieces = re.findall(r"```python\n(.*?)```", (tmp_path / "eng/README.md").read_text(), re.DOTALL)
    assert len(pieces) == 4
    script = "\n".join(f"exec({piece!r}, {{}})" for piece in pieces)  # nothing that one has imported serves another
    environment = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    environment["PYTHONPATH"] = str(installed(TUNING))  # which the card says to install
    done = run_python("-c", script, cwd=tmp_path, environment=environment, check=True)
    for words in ("token_str", "The beginning of a text", "train_loss", "tensor([[", "trainable params: "):
        assert words in done.stdout


def test_an_evaluation_of_another_export_is_refused(workspace):
    """Results of two runs never meet in one card."""
    other = "results/evaluate/" + (workspace.path / "results/of/deu/evaluate").resolve().name
    done = workspace.python(*job_like(workspace.path, "converted/eng", "new", evaluation=[other]))
    assert done.returncode == 1
    assert f"{other}: was not made from the present results/export/eng-" in done.stderr
    assert not (workspace.path / "converted/new").exists()
