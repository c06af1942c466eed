"""Build the Hugging Face folder of a trained model, and prove it equal to the training model.

The folder holds the weights (`model.safetensors` is the default variant, `model.ema.safetensors` or
`model.main.safetensors` the other one), the tokenizer, the configuration, and the code, if the architecture has any. A
model trained by masked diffusion also gets its sampler. Because of an index, `variant=` can also name the default.
`Architecture` says for each architecture what its folder holds, and which cases prove it equal to the trained network;
config.json beside the trained weights names the architecture.
"""

import json
import logging
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save
from torch import nn

from babelmill.config.models import NORBERT4_NAMES
from babelmill.config.schema import Export
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, atomic_write, copy_file, read_json, write_json, write_text
from babelmill.core.places import PACKAGE
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.release.folder.loading import WEIGHTS, weights_name
from babelmill.runtime.checkpoint import write_tensors
from babelmill.tokens import characters, prefix_space
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD, UNK, published_roles

log = logging.getLogger(__name__)

# The roles of special tokens. Scorers of masked models use `cls`.
ROLES = {"bos": BOS, "eos": EOS, "unk": UNK, "pad": PAD, "mask": MASK, "cls": BOS}
DIFFERS = 3  # the exit code of `prove` if the exported folder differs


OURS, OF_TRANSFORMERS = PACKAGE / "model", PACKAGE / "model/transformers"
SAMPLER = OF_TRANSFORMERS / "diffusion_generation.py"  # what a model of masked diffusion generates with

# The architectures.


@dataclass(frozen=True)
class ExportInputs:
    """Holds the folders from which an export is made."""

    model: Path  # the folder with weights and config.json from the stage `train`
    tokenizer: Path  # the folder with tokenizer.json
    shards: list[Path]  # folders with validation text for the proof. If there are none, the proof uses random tokens
    frozen: Path | None = None  # the weights on which adapters were trained, if the model has adapters
    snapshot: Path | None = None  # the weights of a moment of the training, which take the place of those in `model`

    def weights(self, variant: str) -> Path:
        """Return the file with the trained weights of a variant."""
        return self.snapshot or self.model / WEIGHTS[variant]


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

    code: Sequence[Path] = ()  # the files of code that the folder gets

    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """Write the code, the weights of all variants and config.json. Return the names of the files."""
        trained = read_json(inputs.model / "config.json")
        code = [*self.code, *([SAMPLER] if "objective" in trained else [])]
        for path in code:  # into one folder, from which it then imports
            write_text(folder / path.name, path.read_text(encoding="utf-8").replace("from ..", "from ."))
        files = [path.name for path in code]
        for variant in export.variants:
            files += self.write_weights(inputs, variant, folder / weights_name(variant, export.default_variant))
        write_json(folder / "config.json", self.config(trained, export))
        return [*files, "config.json"]

    @abstractmethod
    def write_weights(self, inputs: ExportInputs, variant: str, path: Path) -> list[str]:
        """Write the weights of a variant to a file, and others beside it. Return the names of the files."""

    @abstractmethod
    def config(self, trained: dict[str, Any], export: Export) -> dict[str, Any]:
        """Return config.json of the folder, from that of the trained model."""

    @abstractmethod
    def trained(self, inputs: ExportInputs, variant: str) -> nn.Module:
        """Return the network as the stage `train` left it, in evaluation mode."""

    @abstractmethod
    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of a trained network for a document [1, T]."""

    def exported_logits(self, exported: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of an exported model for a document [1, T]."""
        return exported(row, attention_mask=torch.ones_like(row)).logits

    @abstractmethod
    def cases(self, model: Path) -> list[Case]:
        """Return the comparisons that a proof has to make."""


def write_part(path: Path, weights: dict[str, torch.Tensor], prefix: str = "") -> list[str]:
    """Write the weights whose names begin with a prefix, without the prefix. Return the file's name in a list."""
    part = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    with atomic_write(path) as file:
        file.write(save(part, metadata={"format": "pt"}))
    return [path.name]


# GPT-BERT: the folder has code, weights and configuration.

CODE = [
    *(OURS / name for name in ("attention.py", "gpt_bert.py", "mixing.py")),
    *(OF_TRANSFORMERS / name for name in ("configuration_gpt_bert.py", "modeling_gpt_bert.py")),
]
HEADS = ("MaskedLM", "CausalLM", "SequenceClassification", "TokenClassification")  # as in `AutoModelForMaskedLM`


class GPTBertFolder(Architecture):
    """Writes the folder of a GPT-BERT, which includes its own code."""

    network: Any = GPTBert
    shape: Any = GPTBertShape
    dropout = "hidden_dropout_prob"  # the key of the training's config.json with the dropout of classifiers
    name, module, code = "GPTBert", "gpt_bert", CODE  # the name of its classes begins with `name`

    def write_weights(self, inputs: ExportInputs, variant: str, path: Path) -> list[str]:
        """See `Architecture.write_weights`. In the transformers classes, names begin with `model.`, but in the head."""
        weights = load_file(inputs.weights(variant))
        named = {name if name.startswith("classifier.") else f"model.{name}": value for name, value in weights.items()}
        return write_part(path, named)

    def config(self, trained: dict[str, Any], export: Export) -> dict[str, Any]:
        modeling = f"modeling_{self.module}.{self.name}"
        auto = {"AutoConfig": f"configuration_{self.module}.{self.name}Config", "AutoModel": f"{modeling}Model"}
        return trained | {
            "classifier_dropout": trained[self.dropout],
            "architectures": [f"{self.name}ForMaskedLM"],
            "model_type": f"babelmill_{self.module}",
            "auto_map": auto | {f"AutoModelFor{head}": f"{modeling}For{head}" for head in HEADS},
            "attention_mode": None,
            "logits_alignment": export.logits_alignment,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }

    def trained(self, inputs: ExportInputs, variant: str) -> nn.Module:
        shape = read_json(inputs.model / "config.json")
        trained = self.network(self.shape(**{name: shape[name] for name in self.shape.__dataclass_fields__})).eval()
        trained.load_state_dict(load_file(inputs.weights(variant)))
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
    OURS / "norbert4.py",
    *(OF_TRANSFORMERS / name for name in ("configuration_norbert4.py", "modeling_norbert4.py")),
]


class NorBERT4Folder(GPTBertFolder):
    """Writes the folder of a NorBERT4, with the published names of weights and keys."""

    network, shape, dropout = NorBERT4, NorBERT4Shape, "hidden_dropout"
    name, module, code = "NorBERT4", "norbert4", CODE_OF_NORBERT4

    def write_weights(self, inputs: ExportInputs, variant: str, path: Path) -> list[str]:
        copy_file(inputs.weights(variant), path)
        return [path.name]

    def config(self, trained: dict[str, Any], export: Export) -> dict[str, Any]:
        ours = ("architecture", *NORBERT4_NAMES)
        return {key: value for key, value in super().config(trained, export).items() if key not in ours}


# Transformers models, whose folder needs no code.


def merge(model: nn.Module, adapters: dict[str, torch.Tensor], adapter: dict[str, int]) -> None:
    """Merge adapters of this rank and alpha into a model. A UserError says that they do not belong to it."""
    from peft.tuners.lora import LoraLayer  # takes seconds

    from babelmill.training.networks.transformers_models import add_adapters

    add_adapters(model, adapter["rank"], adapter["alpha"])
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if odd := sorted(trained.keys() ^ adapters.keys()):
        raise UserError(f"the adapters do not belong to the model: {odd[0]}")
    model.load_state_dict(adapters, strict=False)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.merge()


class TransformersFolder(Architecture):
    """Writes the folder of a transformers model."""

    def write_weights(self, inputs: ExportInputs, variant: str, path: Path) -> list[str]:
        if inputs.frozen:
            weights = self.trained(inputs, variant).state_dict()
            merged = {name.replace(".base_layer.", "."): value for name, value in weights.items()}
            kept = {name: merged[name] for name in sorted(load_file(inputs.frozen))}
            write_tensors(path, kept, {"format": "pt"})
        else:
            copy_file(inputs.weights(variant), path)
        return [path.name]

    def config(self, trained: dict[str, Any], export: Export) -> dict[str, Any]:
        """See `Architecture.config`. transformers 4 and 5 name the base of RoPE differently: both names are written."""
        config = trained["config"] | {"architectures": [trained["class"]], "dtype": "float32", "torch_dtype": "float32"}
        rope = config.get("rope_parameters") or {}
        bases = {"rope_theta": rope, "global_rope_theta": rope.get("full_attention")}
        bases["local_rope_theta"] = rope.get("sliding_attention")
        config |= {name: base["rope_theta"] for name, base in bases.items() if base and "rope_theta" in base}
        return config | ({"objective": trained["objective"]} if "objective" in trained else {})

    def trained(self, inputs: ExportInputs, variant: str) -> nn.Module:
        """See `Architecture.trained`: the class is that of the training, which keeps documents apart.

        peft merges adapters into the frozen weights.
        """
        from accelerate import init_empty_weights  # takes seconds

        from babelmill.training.networks.transformers_models import from_json, make_model

        values, file = read_json(inputs.model / "config.json"), inputs.frozen or inputs.weights(variant)
        with init_empty_weights(include_buffers=False):
            trained = make_model(from_json(values["config"]), values["auto_class"]).eval()
        # Tensors are read from the file when they are used; those in bf16 become fp32, as in training.
        weights = {n: t.float() if t.is_floating_point() else t for n, t in load_file(file).items()}
        found = trained.load_state_dict(weights, strict=False, assign=True)
        trained.tie_weights()
        if found.unexpected_keys or any(parameter.is_meta for parameter in trained.parameters()):
            raise UserError(f"{file} does not fit {inputs.model / 'config.json'}: {found}")
        if inputs.frozen:
            merge(trained, load_file(inputs.weights(variant)), values["adapter"])
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        from babelmill.training.networks.transformers_models import documents

        with documents(torch.zeros_like(row)):
            return trained(input_ids=row).logits

    def cases(self, model: Path) -> list[Case]:
        """Return the one case: the class of the model, in its own mode."""
        auto_class = read_json(model / "config.json")["auto_class"]
        return [Case(auto_class, "bidirectional" if auto_class == "AutoModelForMaskedLM" else "causal")]


# Label models are above this module, so the table names their class, and it is imported when it is needed.
ARCHITECTURES: dict[str, type[Architecture] | str] = {
    "gpt_bert": GPTBertFolder,
    "norbert4": NorBERT4Folder,
    "transformers": TransformersFolder,
    "labels": "babelmill.labels.folder:LabelsFolder",
}


def architecture_of(model: Path) -> Architecture:
    """Return the architecture of a model from the stage `train`."""
    kind = ARCHITECTURES[read_json(model / "config.json").get("architecture", "gpt_bert")]
    return (pkgutil.resolve_name(kind) if isinstance(kind, str) else kind)()


# The whole folder.


def write_index(weights: Path, variant: str) -> str:
    """Write an index so that `variant=` loads a weights file without a variant in its name. Return the index's name."""
    saved = load_file(weights)
    size = sum(each.nbytes for each in saved.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(sorted(saved), weights.name)}
    name = f"{weights.name}.index.{variant}.json"
    write_json(weights.with_name(name), index)
    return name


def special_tokens(tokenizer: Path) -> dict[str, str]:
    """Return the special tokens that a tokenizer has.

    The files must not name other ones: transformers would add them, with ids that the embedding does not have.
    """
    vocabulary = load_tokenizer(tokenizer / "tokenizer.json").get_vocab(with_added_tokens=True)
    return {f"{role}_token": token for role, token in ROLES.items() if token in vocabulary}


def write_tokenizer(tokenizer: Path, folder: Path, shape: dict[str, Any]) -> list[str]:
    """Write the files of our own tokenizer, and return their names.

    transformers 4 and 5 share one class name, `PreTrainedTokenizerFast`. The key `add_prefix_space` changes nothing,
    since tokenizer.json itself says that a space is put before each text, but code may ask for it.
    """
    copy_file(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    tokens = special_tokens(tokenizer)
    config = tokens | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": shape["max_position_embeddings"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    config |= {"add_prefix_space": True} if prefix_space.is_put_in(folder / "tokenizer.json") else {}
    ids = {key: shape[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    written = {"tokenizer_config.json": config, "special_tokens_map.json": tokens, "generation_config.json": ids}
    for name, values in written.items():
        write_json(folder / name, values)
    return ["tokenizer.json", *written]


def copy_published(tokenizer: Path, folder: Path) -> list[str]:
    """Copy the tokenizer of a published model as it is, and return the names of its files."""
    files = list(manifest.read(tokenizer)["files"])
    if characters.is_file(tokenizer / "tokenizer.json"):
        files.remove("tokenizer.json")  # only this project can read this one
    for name in files:
        copy_file(tokenizer / name, folder / name)
    return files


def build(folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
    """Write all files except the manifest. Return their names."""
    files = architecture_of(inputs.model).write(folder, inputs, export)
    files.append(write_index(folder / "model.safetensors", export.default_variant))
    if published_roles(inputs.tokenizer):
        return files + copy_published(inputs.tokenizer, folder)
    return files + write_tokenizer(inputs.tokenizer, folder, read_json(inputs.model / "config.json"))


def prove(
    folder: Path, inputs: ExportInputs, export: Export, out: Path, snapshots: Iterable[tuple[Path, Path]] = ()
) -> None:
    """Let a new process load the folder and compare it with the training model (`prove.py`).

    `out` is the folder's final place, for the message. `snapshots`: for each its folder and its weights. A UserError
    says that they differ, or cannot be compared; it ends with the last line of the process.
    """
    asked = {"folder": folder, "variants": export.variants, "default_variant": export.default_variant}
    asked |= asdict(inputs) | {"snapshots": [*snapshots]}
    log.info("comparing the exported folder with the trained model")
    command = [sys.executable, "-m", "babelmill.release.folder.prove", json.dumps(asked, default=str)]
    bar, lines = Bar(1.0), ["error: its process was killed, perhaps because memory ran out"]
    with tempfile.TemporaryDirectory(prefix="babelmill-modules-") as code:  # transformers copies code there
        env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": code}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for line in map(str.strip, process.stdout or ()):
                if share := re.fullmatch(r"(\d+) of (\d+) comparisons.*", line):
                    bar.show(int(share[1]) / int(share[2]), line)
                elif line:
                    lines.append(line)
    bar.close()
    if process.returncode:
        log.error("%s", "\n".join(lines[-30:]))
        done_what = "differs from" if process.returncode == DIFFERS else "could not be compared with"
        why = lines[-1].removeprefix("error: ")
        raise UserError(f"{out}: the exported folder {done_what} the trained model, so it is deleted: {why}")
    log.info("%s", lines[-1])
