"""Build the Hugging Face folder of a trained model, and prove it equal to the training model.

The folder holds the weights (`model.safetensors` is the default variant, `model.ema.safetensors` or
`model.main.safetensors` the other one), the tokenizer, the configuration, and the code: the training model's own files
and the transformers classes around them. An index lets the default variant load under its name, too.
"""

import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save

from babelmill.config.schema import Export
from babelmill.core.files import UserError, atomic_write, copy_file, read_json, write_json
from babelmill.model import __file__ as model_package
from babelmill.model.transformers import __file__ as transformers_package
from babelmill.release.loading import WEIGHTS
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD, UNK

log = logging.getLogger(__name__)

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
SPECIAL = {
    "bos_token": BOS,
    "eos_token": EOS,
    "unk_token": UNK,
    "pad_token": PAD,
    "mask_token": MASK,
    "cls_token": BOS,  # what scorers of masked models ask for
}


@dataclass(frozen=True)
class ExportInputs:
    """The folders that an export is made from.

    Attributes:
        model: weights and config.json, as the stage `train` leaves them.
        tokenizer: holds tokenizer.json.
        shards: folders with validation text for the proof; random tokens are used where there is none.
    """

    model: Path
    tokenizer: Path
    shards: list[Path]


def write_code(folder: Path) -> list[str]:
    """Ship the code as flat files, in which imports from the package become imports from beside; their names."""
    for path in CODE:
        with atomic_write(folder / path.name, "w") as file:
            file.write(path.read_text(encoding="utf-8").replace("from ..", "from ."))
    return [path.name for path in CODE]


def write_weights(source: Path, target: Path) -> None:
    """Weights under the names that the transformers classes give them: `model.` before all but the head."""
    weights = load_file(source)
    named = {name if name.startswith("classifier.") else f"model.{name}": value for name, value in weights.items()}
    with atomic_write(target) as file:
        file.write(save(named, metadata={"format": "pt"}))


def write_index(weights: Path, variant: str) -> str:
    """Let `variant=` load a file without a variant in its name, by an index of its weights; return the index's name."""
    with safe_open(weights, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(tensors, weights.name)}
    name = f"{weights.name}.index.{variant}.json"
    write_json(weights.with_name(name), index)
    return name


def model_config(shape: dict[str, Any], logits_alignment: str) -> dict[str, Any]:
    """Make config.json from the training model's."""
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


def special_tokens(tokenizer: Path) -> dict[str, str]:
    """The special tokens that a tokenizer has: transformers would add the others, beyond the embedding."""
    vocabulary = load_tokenizer(tokenizer / "tokenizer.json").get_vocab(with_added_tokens=True)
    return {name: token for name, token in SPECIAL.items() if token in vocabulary}


def tokenizer_config(tokens: dict[str, str], positions: int) -> dict[str, Any]:
    """Make tokenizer_config.json. `PreTrainedTokenizerFast` is the one class name that transformers 4 and 5 share."""
    return tokens | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": positions,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }


def build(folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
    """Write all files but the manifest, and return their names."""
    shape = read_json(inputs.model / "config.json")
    files = write_code(folder)
    for variant in export.variants:
        name = "model.safetensors" if variant == export.default_variant else f"model.{variant}.safetensors"
        write_weights(inputs.model / WEIGHTS[variant], folder / name)
        files.append(name)
    files.append(write_index(folder / "model.safetensors", export.default_variant))
    copy_file(inputs.tokenizer / "tokenizer.json", folder / "tokenizer.json")
    tokens = special_tokens(inputs.tokenizer)
    written = {
        "config.json": model_config(shape, export.logits_alignment),
        "tokenizer_config.json": tokenizer_config(tokens, shape["max_position_embeddings"]),
        "special_tokens_map.json": tokens,
        "generation_config.json": {key: shape[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }
    for name, values in written.items():
        write_json(folder / name, values)
    return [*files, "tokenizer.json", *written]


def prove(folder: Path, inputs: ExportInputs, export: Export, out: Path) -> None:
    """Let a fresh process load the folder and compare it with the training model; a UserError has its last line.

    `out` is where the folder is meant to go, for the message.
    """
    command = [sys.executable, "-m", "babelmill.release.prove", "--folder", folder, "--model", inputs.model]
    command += ["--variants", *export.variants, "--default-variant", export.default_variant]
    command += ["--shards", *inputs.shards]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
        log.error("%s", "\n".join(lines[-30:]))
        raise UserError(f"{out}: the exported folder is not the trained model, so it is not kept: {lines[-1]}")
    log.info("%s", done.stdout.strip())
