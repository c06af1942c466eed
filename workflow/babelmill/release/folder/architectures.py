"""Say for each architecture what its Hugging Face folder holds, and which cases prove it equal to the trained network.

`Architecture` is the interface. `ARCHITECTURES` in `hub_folder.py` has an entry for each architecture; config.json
beside the trained weights names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import nn

from babelmill.config.models import NORBERT4_NAMES
from babelmill.config.schema import Export
from babelmill.core.files import UserError, atomic_write, copy_file, read_json, write_json, write_text
from babelmill.model import __file__ as model_package
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.model.transformers import __file__ as transformers_package
from babelmill.release.folder.loading import WEIGHTS, weights_name
from babelmill.runtime.checkpoint import SavedTensors, write_tensors


@dataclass(frozen=True)
class ExportInputs:
    """Holds the folders from which an export is made."""

    model: Path  # the folder with weights and config.json from the stage `train`
    tokenizer: Path  # the folder with tokenizer.json
    shards: list[Path]  # folders with validation text for the proof. If there are none, the proof uses random tokens
    frozen: Path | None = None  # the weights on which adapters were trained, if the model has adapters


class Case(NamedTuple):
    """Describes one comparison of a proof."""

    auto_class: str  # the class of transformers that loads the folder
    mode: str  # the mode in which the networks compute, such as the attention "causal" or "bidirectional"
    settings: Mapping[str, Any] = {}  # settings that override config.json
    # trained, exported: the positions that score the same tokens in the trained and in the exported model.
    trained: slice = slice(None)
    exported: slice = slice(None)

    def __str__(self) -> str:
        return ", ".join([self.mode, *(f"{name} {value}" for name, value in self.settings.items())])


class Architecture(ABC):
    """Defines what the export needs from an architecture."""

    @abstractmethod
    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """Write the code, the weights of all variants and config.json. Return the names of the files."""

    @abstractmethod
    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        """Return the network as the stage `train` left it, in evaluation mode; for `frozen`, see `ExportInputs`."""

    @abstractmethod
    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of a trained network for a document [1, T]."""

    def exported_logits(self, exported: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of an exported model for a document [1, T]."""
        return exported(row, attention_mask=torch.ones_like(row)).logits

    @abstractmethod
    def cases(self, model: Path) -> list[Case]:
        """Return the comparisons that a proof has to make."""


# GPT-BERT: the folder has code, weights and configuration.

CODE = [
    *(Path(model_package).parent / name for name in ("attention.py", "gpt_bert.py", "mixing.py")),
    *(Path(transformers_package).parent / name for name in ("configuration_gpt_bert.py", "modeling_gpt_bert.py")),
]
CLASSES = {
    "AutoModel": "GPTBertModel",
    "AutoModelForMaskedLM": "GPTBertForMaskedLM",
    "AutoModelForCausalLM": "GPTBertForCausalLM",
    "AutoModelForSequenceClassification": "GPTBertForSequenceClassification",
    "AutoModelForTokenClassification": "GPTBertForTokenClassification",
}


def write_code(folder: Path, code: list[Path] = CODE) -> list[str]:
    """Copy code into one folder, from which it then imports; return the names of the files."""
    for path in code:
        write_text(folder / path.name, path.read_text(encoding="utf-8").replace("from ..", "from ."))
    return [path.name for path in code]


class GPTBertFolder(Architecture):
    """Writes the folder of a GPT-BERT, which includes its own code."""

    network: Any = GPTBert
    shape: Any = GPTBertShape
    name, module, code, classes = "GPTBert", "gpt_bert", CODE, CLASSES

    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        files = write_code(folder, self.code)
        for variant in export.variants:
            files.append(weights_name(variant, export.default_variant))
            self.write_weights(inputs.model / WEIGHTS[variant], folder / files[-1])
        config = self.config(read_json(inputs.model / "config.json")) | {
            "architectures": [self.classes["AutoModelForMaskedLM"]],
            "model_type": f"babelmill_{self.module}",
            "auto_map": {"AutoConfig": f"configuration_{self.module}.{self.name}Config"}
            | {auto: f"modeling_{self.module}.{name}" for auto, name in self.classes.items()},
            "attention_mode": None,
            "logits_alignment": export.logits_alignment,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }
        write_json(folder / "config.json", config)
        return [*files, "config.json"]

    def write_weights(self, source: Path, target: Path) -> None:
        """Write weights by the names of the transformers classes: all but those of the head begin with `model.`"""
        weights = load_file(source)
        named = {name if name.startswith("classifier.") else f"model.{name}": value for name, value in weights.items()}
        with atomic_write(target) as file:
            file.write(save(named, metadata={"format": "pt"}))

    def config(self, trained: dict[str, Any]) -> dict[str, Any]:
        """Return the shape of the model, and the dropout of its classifiers, from config.json of the training."""
        return trained | {"classifier_dropout": trained["hidden_dropout_prob"]}

    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        shape = read_json(model / "config.json")
        trained = self.network(self.shape(**{name: shape[name] for name in self.shape.__dataclass_fields__})).eval()
        trained.load_state_dict(load_file(model / WEIGHTS[variant]))
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        allowed = torch.ones(1, 1, row.size(1), row.size(1), dtype=torch.bool)
        return trained(row, allowed.tril() if mode == "causal" else allowed)

    def cases(self, model: Path) -> list[Case]:
        """Return both attention modes, and both alignments of masked scores."""
        early, late = slice(None, -1), slice(1, None)
        same = read_json(model / "config.json").get("masked_target") == "same"
        raw, moved = ("mlm", "mntp") if same else ("mntp", "mlm")
        trained, exported = (late, early) if same else (early, late)
        masked = "AutoModelForMaskedLM", "bidirectional"
        return [
            Case("AutoModelForCausalLM", "causal"),
            Case(*masked, {"logits_alignment": raw}),
            Case(*masked, {"logits_alignment": moved}, trained, exported),
        ]


# NorBERT4: its folder also has the files of GPT-BERT, on which its own build.

CODE_OF_NORBERT4 = [
    *CODE,
    Path(model_package).parent / "norbert4.py",
    *(Path(transformers_package).parent / name for name in ("configuration_norbert4.py", "modeling_norbert4.py")),
]
CLASSES_OF_NORBERT4 = {auto: name.replace("GPTBert", "NorBERT4") for auto, name in CLASSES.items()}


class NorBERT4Folder(GPTBertFolder):
    """Writes the folder of a NorBERT4, with the published names of weights and keys."""

    network, shape = NorBERT4, NorBERT4Shape
    name, module, code, classes = "NorBERT4", "norbert4", CODE_OF_NORBERT4, CLASSES_OF_NORBERT4

    def write_weights(self, source: Path, target: Path) -> None:
        copy_file(source, target)

    def config(self, trained: dict[str, Any]) -> dict[str, Any]:
        shape = {key: value for key, value in trained.items() if key not in ("architecture", *NORBERT4_NAMES)}
        return shape | {"classifier_dropout": trained["hidden_dropout"]}


# Transformers models, whose folder needs no code.


def merge(model: nn.Module, adapters: dict[str, torch.Tensor], adapter: dict[str, int]) -> None:
    """Merge adapters of this rank and alpha into a model. A UserError says that they do not belong to it."""
    from peft.tuners.lora import LoraLayer  # takes seconds

    from babelmill.training.networks.lora import add_adapters

    add_adapters(model, adapter["rank"], adapter["alpha"])
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if odd := sorted(trained.keys() ^ adapters.keys()):
        raise UserError(f"the adapters do not belong to the model: {odd[0]}")
    for name, parameter in trained.items():
        parameter.data.copy_(adapters[name])
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.merge()


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
        files = []
        for variant in export.variants:
            files.append(weights_name(variant, export.default_variant))
            if inputs.frozen:
                weights = self.trained(inputs.model, variant, inputs.frozen).state_dict()
                merged = {name.replace(".base_layer.", "."): value for name, value in weights.items()}
                kept = {name: merged[name] for name in SavedTensors(inputs.frozen)}
                write_tensors(folder / files[-1], kept, {"format": "pt"})
            else:
                copy_file(inputs.model / WEIGHTS[variant], folder / files[-1])
        write_json(folder / "config.json", hub_config(read_json(inputs.model / "config.json")))
        return [*files, "config.json"]

    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        """See `Architecture.trained`: the class is that of the training, which keeps documents apart.

        peft merges adapters into the frozen weights.
        """
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
            merge(trained, load_file(trained_file), values["adapter"])
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        from babelmill.training.networks.transformers_models import documents

        with documents(torch.zeros_like(row)):
            return trained(input_ids=row).logits

    def cases(self, model: Path) -> list[Case]:
        """Return the one case: the class of the model, in its own mode."""
        auto_class = read_json(model / "config.json")["auto_class"]
        return [Case(auto_class, "bidirectional" if auto_class == "AutoModelForMaskedLM" else "causal")]
