"""Write the Hugging Face folder of a transformers model, which needs no code. Name the case that proves it equal."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from babelmill.config.schema import Export
from babelmill.core import manifest
from babelmill.core.files import UserError, copy_file, read_json, write_json
from babelmill.release.folder.adapter_folder import write_adapter
from babelmill.release.folder.architecture import Architecture, Case, ExportInputs
from babelmill.release.folder.loading import WEIGHTS, weights_name
from babelmill.release.folder.merged_adapters import merge_by_peft, write_merged
from babelmill.tokens.vocabulary import pads_with_text


def hub_config(trained: dict[str, Any]) -> dict[str, Any]:
    """Return config.json, made from that of the trained model.

    transformers 4 and 5 have different names for the base of RoPE; the file contains both.
    """
    config = trained["config"] | {"architectures": [trained["class"]], "dtype": "float32", "torch_dtype": "float32"}
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        config["rope_theta"] = rope["rope_theta"]
    names = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
    layers = {name: rope[layer]["rope_theta"] for layer, name in names.items() if layer in rope}
    unmasks = {"objective": trained["objective"]} if "objective" in trained else {}
    return config | layers | unmasks


class TransformersFolder(Architecture):
    """Writes the folder of a transformers model."""

    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """See `Architecture.write`."""
        files, trained = [], read_json(inputs.model / "config.json")
        for variant in export.variants:
            files.append(weights_name(variant, export.default_variant))
            weights = inputs.model / WEIGHTS[variant]
            if inputs.frozen:
                write_merged(folder / files[-1], inputs.frozen, weights, trained)
            else:
                copy_file(weights, folder / files[-1])
        config = hub_config(trained)
        if pads_with_text(inputs.tokenizer):
            from babelmill.training.networks.transformers_models import with_learning_padding  # takes seconds

            config = with_learning_padding(config, trained["auto_class"])
        write_json(folder / "config.json", config)
        if export.adapter != "none":
            base = manifest.read(inputs.model)["figures"]["source"]
            adapters = inputs.model / WEIGHTS[export.default_variant]
            files += write_adapter(folder, adapters, trained["adapter"], base)
        return [*files, "config.json"]

    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        """See `Architecture.trained`: the model is of the class used in training, which keeps documents apart."""
        from babelmill.training.networks.transformers_models import (
            from_json,  # takes seconds
            make_model,
            without_values,
        )

        values, trained_file = read_json(model / "config.json"), model / WEIGHTS[variant]
        with without_values():
            trained = make_model(from_json(values["config"]), values["auto_class"]).eval()
        # Tensors are read from the file when they are used; those in bf16 become fp32, as in training.
        weights = {n: t.float() if t.is_floating_point() else t for n, t in load_file(frozen or trained_file).items()}
        found = trained.load_state_dict(weights, strict=False, assign=True)
        trained.tie_weights()
        if found.unexpected_keys or any(parameter.is_meta for parameter in trained.parameters()):
            raise UserError(f"{frozen or trained_file} does not fit {model / 'config.json'}: {found}")
        if frozen:
            merge_by_peft(trained, load_file(trained_file), values["adapter"])
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """See `Architecture.logits`."""
        from babelmill.training.networks.document_masks import documents

        with documents(torch.zeros_like(row)):
            return trained(input_ids=row).logits

    def cases(self, model: Path) -> list[Case]:
        """Return the one case: the class of the model, in its own mode."""
        auto_class = read_json(model / "config.json")["auto_class"]
        return [Case(auto_class, "bidirectional" if auto_class == "AutoModelForMaskedLM" else "causal")]
