"""Merge trained adapters into the weights of the model on which they were trained.

The merged weights are written one tensor at a time, in fp32. The proof of the export compares them with the result of
peft for the same adapters.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import SavedTensors, write_tensors
from babelmill.training.networks.lora import FACTORS, add_adapters


def frozen_file(model: Path, source: Path) -> Path:
    """Return the file with the frozen weights on which a model's adapters were trained.

    Args:
        model: the model's folder from the stage `train`. Its manifest says which weights these were.
        source: the folder of the model that training continued from.

    Raises:
        UserError: the file has other weights now, or is missing.
    """
    wanted = manifest.read(model)["figures"]["source"]["sha256"]
    found = [name for name, entry in manifest.read(source)["files"].items() if entry["sha256"] == wanted]
    if not found:
        raise UserError(f"{source} does not contain the weights on which {model} was trained; run the workflow again")
    manifest.verify(source, found[0])
    return source / found[0]


def write_merged(path: Path, frozen: Path, adapters: Path, trained: dict[str, Any]) -> None:
    """Write the weights of a model with its adapters merged.

    Args:
        path: the file to write.
        frozen: the file with the weights of the source.
        adapters: the file with the adapters from the stage `train`.
        trained: config.json beside the adapters.
    """
    base, factors = SavedTensors(frozen), SavedTensors(adapters)
    scale = trained["adapter"]["alpha"] / trained["adapter"]["rank"]
    transposed, changed = _transposed(trained), set(factors)

    def load(name: str) -> torch.Tensor:
        module, value = name.removesuffix(".weight"), base[name]
        value = value.float() if value.is_floating_point() else value
        if module + FACTORS[0] not in changed:
            return value
        first, second = (factors[module + factor] for factor in FACTORS)
        change = (second @ first) * scale
        return value + (change.T if module in transposed else change)

    shapes = {name: torch.empty(base.shape(name), device="meta", dtype=_dtype(base, name)) for name in base}
    write_tensors(path, shapes, {"format": "pt"}, load)


def _dtype(base: SavedTensors, name: str) -> torch.dtype:
    found = base.dtype(name)
    return torch.float32 if found.is_floating_point else found


def _transposed(trained: dict[str, Any]) -> set[str]:
    """Return the names of layers whose matrix is the transpose of a linear layer's, as in GPT-2."""
    from transformers.pytorch_utils import Conv1D

    from babelmill.training.networks.transformers_models import from_json, on_meta

    model = on_meta(from_json(trained["config"]), trained["auto_class"])
    return {name for name, module in model.named_modules() if isinstance(module, Conv1D)}


def merge_by_peft(model: nn.Module, adapters: dict[str, torch.Tensor], adapter: dict[str, int]) -> None:
    """Put adapters into a model and let peft merge them. `adapter` is their rank and alpha.

    Raises:
        UserError: the adapters do not belong to this model.
    """
    from peft.tuners.lora import LoraLayer

    add_adapters(model, adapter["rank"], adapter["alpha"])
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if odd := sorted(trained.keys() ^ adapters.keys()):
        raise UserError(f"the adapters do not belong to the model: {odd[0]}")
    for name, parameter in trained.items():
        parameter.data.copy_(adapters[name])
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.merge()
