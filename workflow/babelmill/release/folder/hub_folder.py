"""Build the Hugging Face folder of a trained model, and prove it equal to the training model.

The folder holds the weights (`model.safetensors` is the default variant, `model.ema.safetensors` or
`model.main.safetensors` the other one), the tokenizer, the configuration, and the code, if the architecture has any. A
model trained by masked diffusion also gets its sampler. Because of an index, `variant=` can also name the default.
"""

import json
import logging
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill.config.schema import Export
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, copy_file, read_json, write_json
from babelmill.model.transformers import diffusion_generation
from babelmill.release.folder.architectures import (
    Architecture,
    ExportInputs,
    GPTBertFolder,
    NorBERT4Folder,
    TransformersFolder,
)
from babelmill.runtime.checkpoint import SavedTensors
from babelmill.tokens import characters, prefix_space
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD, UNK, published_roles

log = logging.getLogger(__name__)

DIFFERS = 3  # the exit code of `prove` if the exported folder differs
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


def write_index(weights: Path, variant: str) -> str:
    """Write an index so that `variant=` loads a weights file without a variant in its name. Return the index's name."""
    saved = SavedTensors(weights)
    size = sum(saved[name].nbytes for name in saved)
    index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(sorted(saved), weights.name)}
    name = f"{weights.name}.index.{variant}.json"
    write_json(weights.with_name(name), index)
    return name


def special_tokens(tokenizer: Path) -> dict[str, str]:
    """Return the special tokens that a tokenizer has.

    The files must not name other ones: transformers would add them, with ids that the embedding does not have.
    """
    vocabulary = load_tokenizer(tokenizer / "tokenizer.json").get_vocab(with_added_tokens=True)
    tokens = {
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": UNK,
        "pad_token": PAD,
        "mask_token": MASK,
        "cls_token": BOS,  # scorers of masked models use it
    }
    return {name: token for name, token in tokens.items() if token in vocabulary}


def tokenizer_config(tokens: dict[str, str], positions: int, space: bool) -> dict[str, Any]:
    """Return tokenizer_config.json. transformers 4 and 5 share one class name, `PreTrainedTokenizerFast`.

    `space`: whether the tokenizer puts a space before each text. The key for it changes nothing, since tokenizer.json
    says so itself, but code may ask for it.
    """
    config = tokens | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": positions,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    return config | ({"add_prefix_space": True} if space else {})


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
    shape = read_json(inputs.model / "config.json")
    files = architecture_of(inputs.model).write(folder, inputs, export)
    if "objective" in shape:  # the model needs the sampler to generate
        copy_file(Path(diffusion_generation.__file__), folder / "diffusion_generation.py")
        files.append("diffusion_generation.py")
    files.append(write_index(folder / "model.safetensors", export.default_variant))
    if published_roles(inputs.tokenizer):
        return [*files, *copy_published(inputs.tokenizer, folder)]
    copy_file(inputs.tokenizer / "tokenizer.json", folder / "tokenizer.json")
    tokens, space = special_tokens(inputs.tokenizer), prefix_space.is_put_in(folder / "tokenizer.json")
    written = {
        "tokenizer_config.json": tokenizer_config(tokens, shape["max_position_embeddings"], space),
        "special_tokens_map.json": tokens,
        "generation_config.json": {key: shape[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }
    for name, values in written.items():
        write_json(folder / name, values)
    return [*files, "tokenizer.json", *written]


def prove(
    folder: Path, inputs: ExportInputs, export: Export, out: Path, snapshots: Iterable[tuple[Path, Path]] = ()
) -> None:
    """Let a new process load the folder and compare it with the training model (`prove.py`).

    `out` is the folder's final place, for the message. `snapshots`: for each its folder and its model. A UserError says
    that they differ, or cannot be compared; it ends with the last line of the process.
    """
    asked = {"folder": folder, "model": inputs.model, "tokenizer": inputs.tokenizer, "shards": inputs.shards}
    asked |= {"frozen": inputs.frozen, "variants": export.variants, "default_variant": export.default_variant}
    asked |= {"snapshots": [*snapshots]}
    log.info("comparing the exported folder with the trained model")
    command = [sys.executable, "-m", "babelmill.release.folder.prove", json.dumps(asked, default=str)]
    bar, lines = Bar(1.0), ["error: its process was killed, perhaps because memory ran out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
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
