"""Make exported models whose weights are random, but the same on every machine and with every version of PyTorch.

Numbers that other programs computed with them are stored in `tests/data/official`.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedConfig

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.release.folder.hub_folder import ExportInputs, build
from babelmill.release.folder.loading import WEIGHTS
from babelmill.stages import ExportStage
from helpers import DATA
from helpers.stages import settings_of

TOKENIZER = DATA / "official/tokenizer.json"
ENTRIES, POSITIONS = 420, 256
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}


def fill(network: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Return random weights of a network: matrices around 0, all other parameters around the values they begin with.

    NumPy promises that `RandomState` never changes.
    """
    random = np.random.RandomState(seed)
    weights = {}
    for name, parameter in sorted(network.named_parameters()):
        noise = torch.from_numpy(random.standard_normal(tuple(parameter.shape))).float()
        weights[name] = 0.2 * noise if parameter.ndim > 1 else parameter.detach() + 0.2 * noise
    return weights


def gpt_bert(folder: Path, seed: int = 0) -> Path:
    """Write a hybrid GPT-BERT as the stage `export` does, without its proof. Return its folder."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2}
    shape = GPTBertShape(ENTRIES, **sizes, max_position_embeddings=POSITIONS)
    config = vars(shape) | SPECIAL | {"mask_token_id": 4}
    return _export(folder, config, fill(GPTBert(shape), seed))


def gpt2(folder: Path, seed: int = 0) -> Path:
    """Write a causal model of transformers in the same way."""
    sizes = {"n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": POSITIONS}
    return of_transformers(folder, GPT2Config(vocab_size=ENTRIES, **sizes, **SPECIAL), AutoModelForCausalLM, seed)


def with_snapshots(folder: Path, make: Callable[[Path, int], Path], points: Iterable[int]) -> Path:
    """Write a model by one of these functions, with snapshots whose weights differ; return its folder.

    The true number of words of a snapshot is not that in its name.
    """
    make(folder, 0)
    for point in points:
        place = make(folder / f"snapshots/chck_{point}M", point)
        figures = dict.fromkeys(("million_words", "step", "tokens"), point) | {"words": 1_010_000 * point}
        write_json(place / manifest.NAME, manifest.read(place) | {"figures": figures})
    return folder


def of_transformers(folder: Path, config: PreTrainedConfig, auto: Any, seed: int = 0, **more: str) -> Path:
    """Write a model of transformers as the stage `export` does, without its proof. Return its folder.

    Args:
        folder: the folder to write.
        config: the configuration of the model, with the vocabulary of `TOKENIZER`.
        auto: AutoModelForCausalLM or AutoModelForMaskedLM.
        seed: the seed of the weights.
        more: more keys of the trained model's config.json, such as its objective.
    """
    network = auto.from_config(config)
    shape = {
        "architecture": "transformers",
        "auto_class": auto.__name__,
        "class": type(network).__name__,
        "config": {**config.to_dict(), "architectures": None},
        "max_position_embeddings": POSITIONS,
        "vocab_size": ENTRIES,
    }
    return _export(folder, shape | SPECIAL | {"mask_token_id": 4} | more, fill(network, seed))


def _export(folder: Path, config: dict, weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        model, tokenizer = Path(place) / "model", Path(place) / "tokenizer"
        model.mkdir()
        tokenizer.mkdir()
        write_json(model / "config.json", config)
        for name in WEIGHTS.values():
            save_file(weights, model / name)
        shutil.copy(TOKENIZER, tokenizer / "tokenizer.json")
        settings = ExportStage.from_content(settings_of(Configuration([("test", {})]), "eng", "export"), "test")
        manifest.write(tokenizer, settings, ["tokenizer.json"])
        manifest.write(model, settings, ["config.json", *WEIGHTS.values()])
        files = build(folder, ExportInputs(model, tokenizer, []), settings.export)
        manifest.write(folder, settings, files)
    return folder
