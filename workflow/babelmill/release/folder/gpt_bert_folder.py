"""Write GPT-BERT's Hugging Face folder: code, weights and configuration. Name the cases that prove it equal."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import nn

from babelmill.config.schema import Export
from babelmill.core.files import atomic_write, read_json, write_json
from babelmill.model import __file__ as model_package
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.transformers import __file__ as transformers_package
from babelmill.release.folder.architecture import Architecture, Case, ExportInputs
from babelmill.release.folder.loading import WEIGHTS, weights_name

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
    """Copy code into the folder. Return the names of the files.

    All files are in one folder, so imports from the parent package become imports from the same folder.
    """
    for path in code:
        with atomic_write(folder / path.name, "w") as file:
            file.write(path.read_text(encoding="utf-8").replace("from ..", "from ."))
    return [path.name for path in code]


def write_weights(source: Path, target: Path) -> None:
    """Write weights under the names that the transformers classes use: all but those of the head begin with `model.`"""
    weights = load_file(source)
    named = {name if name.startswith("classifier.") else f"model.{name}": value for name, value in weights.items()}
    with atomic_write(target) as file:
        file.write(save(named, metadata={"format": "pt"}))


def model_config(shape: dict[str, Any], logits_alignment: str) -> dict[str, Any]:
    """Return config.json, made from that of the trained model."""
    return shape | {
        "architectures": ["GPTBertForMaskedLM"],
        "model_type": "babelmill_gpt_bert",
        "auto_map": {"AutoConfig": "configuration_gpt_bert.GPTBertConfig"}
        | {auto: f"modeling_gpt_bert.{name}" for auto, name in CLASSES.items()},
        "attention_mode": None,
        "logits_alignment": logits_alignment,
        "classifier_dropout": shape["hidden_dropout_prob"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


class GPTBertFolder(Architecture):
    """Writes the folder of a GPT-BERT, which includes its own code."""

    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """See `Architecture.write`."""
        shape = read_json(inputs.model / "config.json")
        files = write_code(folder)
        for variant in export.variants:
            files.append(weights_name(variant, export.default_variant))
            write_weights(inputs.model / WEIGHTS[variant], folder / files[-1])
        write_json(folder / "config.json", model_config(shape, export.logits_alignment))
        return [*files, "config.json"]

    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> GPTBert:
        """See `Architecture.trained`."""
        shape = read_json(model / "config.json")
        trained = GPTBert(GPTBertShape(**{name: shape[name] for name in GPTBertShape.__dataclass_fields__})).eval()
        trained.load_state_dict(load_file(model / WEIGHTS[variant]))
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """See `Architecture.logits`."""
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
