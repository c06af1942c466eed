"""Fetch a trained model from elsewhere, so that training can continue from its tensors (stage `base_model`).

    python -m babelmill.base_model results/settings/base_model/gpt2-6f0c2ab913.json --threads 2

The model comes from a repository on the Hugging Face Hub, at one commit, as a dataset does (see `download`), or from a
local folder. None of its code is run: the weights are read only as tensors (`foreign_model.py`) and written to one
`model.safetensors`, next to `config.json` and the tokenizer's files.

This stage needs a network, which compute nodes often lack.
"""

import logging
import sys
from pathlib import Path
from typing import Any

import torch

from babelmill.config.inputs import model_files
from babelmill.config.models import OBJECTIVES, check_layers, check_shape
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder, copy_file, read_object, write_json
from babelmill.core.local_sources import hashes
from babelmill.core.stage_entry import Job
from babelmill.core.words import short
from babelmill.evaluation.rows import require_offsets
from babelmill.hub import revisions
from babelmill.hub.files import Files, in_a_folder, licence_of, of_source
from babelmill.hub.sources import MODEL
from babelmill.labels import occcanine
from babelmill.labels.codes import CODES_OF_SOURCE
from babelmill.release.elsewhere import foreign_model
from babelmill.release.folder.loading import tokenizer_of
from babelmill.runtime.checkpoint import write_tensors
from babelmill.stages import BaseModelStage
from babelmill.tokens import characters
from babelmill.tokens.tokenizer_file import FILES, has_our_tokens, load_tokenizer, roles_of

log = logging.getLogger("babelmill.base_model")


def check_architecture(settings: BaseModelStage, kind: str, config: dict[str, Any], where: str) -> None:
    """Raise a UserError, before the weights are fetched, if the configuration asks for another architecture."""
    wanted = kind if kind in ("gpt_bert", "norbert4") else "transformers"
    if wanted != ("transformers" if settings.auto_class else settings.architecture):
        what = config["model_type"] if wanted == "transformers" else kind
        raise UserError(f"{where} is a {what} model: set model.architecture: {wanted} next to model.source")
    if kind == "transformers":
        from babelmill.training.networks.transformers_models import read_config  # takes seconds

        read_config(config, settings.auto_class or "", where)


def write_tokenizer(folder: Path, paths: dict[str, Path], adapt: bool, rows: int, where: str) -> list[str]:
    """Write the tokenizer's files and return their names. `adapt`: see `adapted_tokenizer`; `rows`: `check_entries`."""
    for name, path in paths.items():
        copy_file(path, folder / name)
    drop_code(folder / "tokenizer_config.json")
    if own := paths.get("tokenizer.json"):
        tokenizer = load_tokenizer(own)
        foreign_model.check_entries(tokenizer, rows, where)
        if adapt and has_our_tokens(tokenizer):
            foreign_model.adapted_tokenizer(own).save(str(folder / own.name))
    return list(paths)


def drop_code(path: Path) -> None:
    """Replace a tokenizer's class by transformers' general class for tokenizer.json if its author's code defines it."""
    if path.is_file() and (config := read_object(path)).pop("auto_map", None):
        write_json(path, config | {"tokenizer_class": "PreTrainedTokenizerFast"})


def run(job: Job[BaseModelStage]) -> None:
    """Fetch the model and write it, unchanged or in the form in which a training reads it."""
    local = next(iter(job.settings.sources), None)
    files = in_a_folder(Path(local)) if local else of_source(MODEL, job.settings.source or {})
    log.info("%s", files.where)
    config = read_object(foreign_model.require_config(files), f"{files.where}: config.json")
    (keep_unchanged if job.settings.unchanged else write_to_continue)(job, files, config)
    if not local:
        revisions.record(MODEL.repo_type, **files.figures)


def write_to_continue(job: Job[BaseModelStage], files: Files, config: dict[str, Any]) -> None:
    """Write the tensors of a model, its configuration and its tokenizer, so that training can continue it."""
    settings, where = job.settings, files.where
    kind = foreign_model.kind_of(config, where)
    check_architecture(settings, kind, config, where)
    weights, key = foreign_model.open_weights(files.get(foreign_model.weight_files(files)), where)
    heads, codes = {}, None
    if settings.auto_class == OBJECTIVES["labels"].auto_class and occcanine.is_of(weights):
        heads, codes = occcanine.heads_of(weights, key, where)
        weights = occcanine.encoder_of(weights)
    model = foreign_model.read_model(kind, config, weights, settings.auto_class, where)
    check_shape(settings.shape, model.shape, where)
    tensors = dict(sorted(model.weights.items())) | heads
    for name, tensor in tensors.items():
        if not all_numbers(tensor):
            raise UserError(f"{where}: {name} holds values that are not numbers (NaN or infinite); use other weights")
    content = [hashes(model_files(local)) for local in settings.sources]
    figures = files.figures | {
        "architecture": model.architecture,
        "license": licence_of(files.path("README.md")),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "sources": [{"path": path, "sha256": digest} for found in content for path, digest in found.items()],
    }
    origin = f"{figures['repository']} at {figures['commit'][:8]}" if "commit" in figures else figures["folder"]
    figures["summary"] = f"{origin}, {short(figures['parameters'])} parameters"
    log.info("%s, %s", figures["summary"], model.architecture)
    with atomic_folder(job.out) as folder:
        write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
        write_json(folder / "config.json", model.config)
        rows = model.config.get("vocab_size", sys.maxsize)
        adapt = not settings.auto_class and config.get("model_type") not in foreign_model.OURS
        names = write_tokenizer(folder, files.some(*FILES), adapt, rows, where)
        if "tokenizer.json" not in names and model.config.get("model_type") == characters.KIND:
            characters.write_file(folder / "tokenizer.json")
            names.append("tokenizer.json")
        if codes:
            write_json(folder / CODES_OF_SOURCE, codes)
            names.append(CODES_OF_SOURCE)
        manifest.write(folder, settings, ["model.safetensors", "config.json", *names], figures=figures)


def all_numbers(tensor: torch.Tensor) -> bool:
    """Return whether all values of a tensor are finite. (A part at a time: the library needs memory for a copy.)"""
    parts = tensor.reshape(-1).split(1 << 20)
    # The library cannot tell of numbers of 8 bits.
    return all(bool((part.float() if part.element_size() == 1 else part).isfinite().all()) for part in parts)


def keep_unchanged(job: Job[BaseModelStage], files: Files, config: dict[str, Any]) -> None:
    """Write the files of a model that is measured as it is: weights, configuration, tokenizer.

    A UserError says that it needs code of its author, or has no tokenizer that tells which characters a token covers.
    """
    where = files.where
    if "auto_map" in config:
        raise UserError(f"{where} needs code of its author, which is never run here; `babelmill score` can be told to")
    check_layers(config, where)
    found = files.get(foreign_model.files_to_load(files))
    with atomic_folder(job.out) as folder:
        for name, path in found.items():
            copy_file(path, folder / name)
        drop_code(folder / "tokenizer_config.json")
        if "tokenizer.json" not in found:
            tokenizer = tokenizer_of(folder)
            require_offsets(tokenizer)
            tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
        roles = roles_of(folder, load_tokenizer(folder / "tokenizer.json"), where)
        figures = files.figures | {"roles": roles, "license": licence_of(files.path("README.md"))}
        manifest.write(folder, job.settings, sorted({*found, "tokenizer.json"}), figures=figures)


if __name__ == "__main__":
    sys.exit(stage_entry.main(BaseModelStage, run, __doc__))
