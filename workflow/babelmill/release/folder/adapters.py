"""Export the adapters of a model: merged into the weights on which they were trained, and in the form that peft loads.

The merged weights are written one tensor at a time, in fp32. The proof of the export compares them with the result of
peft for the same adapters.

The files for peft are in a folder inside the exported one, and users add them to the base model. They must not be in
the exported folder itself: an `adapter_config.json` there would make `from_pretrained` load the base model.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import SavedTensors, write_tensors
from babelmill.training.networks.lora import FACTORS, add_adapters

FOLDER = "adapter"
PREFIX = "base_model.model."  # peft puts it before the names of weights in its files


def write_adapter(folder: Path, adapters: Path, adapter: dict[str, int], base: dict[str, Any]) -> list[str]:
    """Write the folder of adapters; return the names of the files, relative to `folder`.

    `adapter`: their rank and alpha. `base`: what is known about the model that they were trained on: `repository` and
    `commit`, or a name. A UserError says that this project renamed the weights of the base, so that the adapters do not
    fit its repository.
    """
    from peft import LoraConfig  # this also imports PyTorch and transformers

    if base.get("renamed"):
        raise UserError(
            f"export.adapter: the weights of {base['name']} have new names here, those of {base['renamed']}, so no"
            " adapter fits its repository; set export.adapter: none"
        )
    saved = SavedTensors(adapters)
    names = {name: PREFIX + name.replace(".default.weight", ".weight") for name in sorted(saved)}
    layers = sorted({name.partition(".lora_")[0] for name in names})
    config = LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        target_modules=layers,
        base_model_name_or_path=base.get("repository"),
        revision=base.get("commit"),
        inference_mode=True,
    )
    target = folder / FOLDER
    target.mkdir()
    config.save_pretrained(str(target))
    tensors = {peft: saved[ours] for ours, peft in names.items()}
    write_tensors(target / "adapter_model.safetensors", tensors, {"format": "pt"})
    return [f"{FOLDER}/{name}" for name in ("adapter_config.json", "adapter_model.safetensors")]


def frozen_file(model: Path, source: Path) -> Path:
    """Return the file with the frozen weights on which a model's adapters were trained.

    `model`: its folder from the stage `train`, whose manifest says which weights these were. `source`: the folder of
    the model that training continued from. A UserError says that the file has other weights now, or is missing.
    """
    wanted = manifest.read(model)["figures"]["source"]["sha256"]
    found = [name for name, entry in manifest.read(source)["files"].items() if entry["sha256"] == wanted]
    if not found:
        raise UserError(f"{source} does not contain the weights on which {model} was trained; run the workflow again")
    manifest.verify(source, found[0])
    return source / found[0]


def write_merged(path: Path, frozen: Path, adapters: Path, trained: dict[str, Any]) -> None:
    """Write the weights of a model with its adapters merged.

    `frozen`: the file with the weights of the source. `trained`: config.json beside the adapters.
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

    A UserError says that the adapters do not belong to this model.
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
