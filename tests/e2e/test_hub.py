"""Exported folders in the versions of transformers that people have. The checks are in `hub_checks.py`."""

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from babelmill.core import manifest
from babelmill.core.files import UMASK, UserError, sha256
from babelmill.release.folder import hub_folder, trying
from babelmill.release.folder.hub_folder import ExportInputs
from babelmill.suites.scoring_model import ScoringModel
from helpers import SCRIPTS
from helpers.environments import TRANSFORMERS_4, TUNING, installed
from helpers.hub.hub_data import FILES, SENTENCES, export, write_manifest
from helpers.hub.hub_server import HubServer
from helpers.programs.prepared import run_python
from helpers.training.training_data import section

pytestmark = pytest.mark.slow


def check(model, version: str, home: Path, *options, architecture: str = "gpt_bert", **environment) -> None:
    """Run the checks in a process of their own, with one version of transformers and nothing cached."""
    folders = [*([TRANSFORMERS_4] if version == "4.57.6" else []), TUNING]
    variables = os.environ | {
        "BABELMILL_EXPORT": str(model),
        "BABELMILL_ARCHITECTURE": architecture,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(str(installed(packages)) for packages in folders),
    }
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", SCRIPTS / "hub_checks.py", *options]
    run_python(*words, cwd=home, environment=variables | environment, check=True)


# Graphs are PyTorch's matter, the same one in both environments, and take most of the time.
GRAPHS = "compiled or compiles or exports"
VERSIONS = [("5.23.0", ""), ("4.57.6", f"not ({GRAPHS})"), pytest.param("4.57.6", GRAPHS, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("architecture", ["gpt_bert", "norbert4"])
@pytest.mark.parametrize(("version", "which"), VERSIONS, ids=["5.23.0", "4.57.6", "4.57.6 graphs"])
def test_exported_folder(exported, exported_norbert4, architecture, version, which, tmp_path):
    folder = exported_norbert4 if architecture == "norbert4" else exported / "export"
    check(folder, version, tmp_path, "-k", which, architecture=architecture)


@pytest.mark.parametrize("version", ["5.23.0", "4.57.6"])
def test_from_a_hub_repository(trained, version, tmp_path):
    """Loaded by name, as most people do: the code comes file by file."""
    folder = trained / "export"
    with HubServer() as hub:
        hub.commit("models/someone/model", {path.name: path.read_bytes() for path in folder.iterdir()})
        few = "every_weight or variants or pipelines or config_and_tokenizer"
        check("someone/model", version, tmp_path, "-k", few, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0")


def test_default_variant(trained):
    """`model.safetensors` is the default one; the other has its name; one alone is fine."""
    assert export(trained, "other", default_variant="ema").returncode == 0
    first, second = (trained / name for name in ("export", "other"))
    assert sha256(first / "model.safetensors") == sha256(second / "model.main.safetensors")
    assert sha256(first / "model.ema.safetensors") == sha256(second / "model.safetensors")
    assert export(trained, "one", variants=["ema"], default_variant="ema").returncode == 0
    assert [path.name for path in (trained / "one").glob("*.safetensors")] == ["model.safetensors"]
    assert [path.name for path in (trained / "one").glob("*.index.*")] == ["model.safetensors.index.ema.json"]
    assert sha256(trained / "one/model.safetensors") == sha256(second / "model.safetensors")


def test_a_folder_for_the_mntp_backend(trained):
    """Its scores are those of the next token; our own evaluation and `show` read them rightly all the same."""
    assert export(trained, "mntp", logits_alignment="mntp").returncode == 0
    folders = [trained / name for name in ("export", "mntp")]
    ids = torch.arange(20, 36)[None]
    logits = [AutoModelForMaskedLM.from_pretrained(path, trust_remote_code=True).eval()(ids).logits for path in folders]
    torch.testing.assert_close(logits[0][:, 1:], logits[1][:, :-1], rtol=0, atol=0)

    scores, texts = [], [["The cat sat.", "A mat."]]
    for path in folders:
        scores.append(ScoringModel(path, {}).score("masked", texts, np.ones(1, bool), trained / path.name))
        filled = trying.fill_mask(path, "The black <mask> sat on the mat near the old door.")
        assert filled.split("'")[1].strip() == "cat"
    assert np.array_equal(*scores)


def test_folder_is_complete_and_safe(trained):
    """All that the design promises; every file in the manifest; no pickle; no second copy of the embedding."""
    folder = trained / "export"
    files = {path.name for path in folder.iterdir()}
    assert files == set(manifest.verify(folder)["files"]) | {"manifest.json"}
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} < files
    assert {"special_tokens_map.json", "model.safetensors", "model.ema.safetensors"} < files
    assert "model.safetensors.index.main.json" in files
    assert sha256(folder / "tokenizer.json") == sha256(trained / "tokenizer/tokenizer.json")
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    before, after = (load_file(path / "model.safetensors") for path in (trained / "model", folder))
    assert {name.removeprefix("model.") for name in after} == set(before)
    assert all((folder / name).stat().st_mode & 0o777 == 0o666 & ~UMASK for name in files)


def change_weights(path: Path, change) -> None:
    """Do something to the weights in a file."""
    weights = load_file(path)
    change(weights)
    save_file(weights, path, {"format": "pt"})


NAME = "transformer.attention_layers.0.out_proj.bias"
DAMAGES = {
    "a changed weight": (lambda weights: weights[f"model.{NAME}"][0].add_(1e-5), "logits differ by up to"),
    "a missing weight": (lambda weights: weights.pop(f"model.{NAME}"), "missing_keys"),
    "a weight too many": (lambda weights: weights.update(more=torch.zeros(1)), "unexpected_keys"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_the_proof_sees(trained, what):
    change, message = DAMAGES[what]
    change_weights(trained / "export/model.ema.safetensors", change)
    asked = section("export", variants=["main", "ema"], default_variant="main")
    inputs = ExportInputs(trained / "model", trained / "tokenizer", [trained / "shards"])
    with pytest.raises(UserError, match=rf"differs from the trained model, .*variant ema.*{message}"):
        hub_folder.prove(trained / "export", inputs, asked, Path("out"))


def test_a_model_that_cannot_be_proven_is_not_kept(trained):
    """A model that has diverged: not a number equals nothing. Nothing is left, and the message says so."""
    change_weights(trained / "model/ema.safetensors", lambda weights: weights[NAME].fill_(math.nan))
    write_manifest(trained, "model", FILES, ["tokenizer", "shards"])
    before = [*(trained / "results/export").iterdir()]
    done = export(trained, "new")
    assert done.returncode == 1
    assert "differs from the trained model, so it is deleted: variant" in done.stderr
    assert "Traceback" not in done.stderr
    assert [*(trained / "results/export").iterdir()] == before


def test_a_hidden_word_of_a_held_out_sentence_is_guessed(exported):
    """A document gives its first sentence of 8 words or more in which words are one token; the word is by a rule."""
    documents = ["Too short. Seven!\n\n" + SENTENCES[0], "Of six words in all only.", SENTENCES[1]]
    lines = [*trying.guess_hidden_words(exported / "export", documents, 5)]
    assert len(lines) == 4, "a document without such a sentence is passed over"
    for sentence, line, guesses in zip(SENTENCES, lines[::2], lines[1::2], strict=False):
        likeliest, right = re.fullmatch(
            r"      '(\w+)' \d\.\d\d, '.+' \d\.\d\d, '.+' \d\.\d\d \(right: (\w+)\)", guesses
        ).groups()
        assert likeliest == right and line == f"    {sentence.replace(right, '____', 1)}"
    assert len([*trying.guess_hidden_words(exported / "export", documents, 1)]) == 2
