"""Work with nested mappings, the parts of a configuration: merge two, look up a key, find a similar name."""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from babelmill.core import escape

DEFAULTS = "config/defaults.yaml"  # the first layer
SUITES = "config/suites/"
TASKS = "config/tasks/"
PROTOCOLS = "config/protocols/"
PRESETS = "config/presets/"  # a file in this folder is the second layer
RECIPES = "config/recipes/"  # a file in this folder is the third layer
CHALLENGES = "config/challenges/"  # a file in this folder is a layer of the models that name it


# Keys here, and what other frameworks (transformers, nanoGPT, fairseq, ...) call them.
OTHER_NAMES = {
    "global_batch_tokens": "batch batch_size global_batch_size train_batch_size per_device_train_batch_size gbt",
    "batch": "batch_size train_batch_size per_device_train_batch_size",
    "sequence_lengths": "seq_len seq_length max_seq_len max_seq_length max_length block_size context_length",
    "max_position_embeddings": "seq_len max_seq_len max_seq_length block_size context_length n_positions",
    "longest": "max_length max_seq_length",
    "epochs": "num_epochs max_epochs num_train_epochs",
    "max_steps": "num_steps total_steps max_iters",
    "learning_rate": "lr max_lr peak_lr",
    "learning_rate_floor": "min_lr",
    "warmup": "warmup_steps warmup_ratio num_warmup_steps",
    "clip_norm": "grad_clip max_grad_norm gradient_clipping",
    "eps": "epsilon adam_epsilon",
    "weight_decay": "wd",
    "mask_rate_start": "mlm_probability mask_prob",
    "mask_rate_end": "mlm_probability mask_prob",
    "precision": "dtype bf16 fp16 mixed_precision",
    "activation_checkpointing": "gradient_checkpointing",
    "num_hidden_layers": "n_layer n_layers num_layers layers depth",
    "num_attention_heads": "n_head n_heads num_heads",
    "hidden_size": "n_embd d_model hidden_dim dim width",
    "intermediate_size": "d_ff ffn_dim",
    "vocab_size": "n_vocab",
    "checkpoint_every": "save_every save_steps",
    "log_every": "logging_steps",
    "validate_every": "eval_every eval_steps",
    "tracking": "wandb",
}


@dataclasses.dataclass(frozen=True)
class Layer:
    """Some of the values of a configuration."""

    values: dict[str, Any]  # nested, by section
    label: str  # the file (and the entry in it) that the values come from


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean eng?`, or the known names if none is similar. Case is ignored."""
    known = sorted(known)
    by_small_letters = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_small_letters, n=3, cutoff=0.5)
    near = [by_small_letters[match] for match in matches]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known are {escape.some(known)}"


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Return what `nearest` returns for an unknown key of a section: first, the keys that have it as a part."""
    meant = sure_keys(key, known)
    return f"; did you mean {' or '.join(meant)}?" if meant else nearest(key, known)


def sure_keys(key: str, known: Iterable[str]) -> list[str]:
    """Return the known keys that a user surely means.

    These are the ones with another name elsewhere, those nearly of these letters, or those with these words. So `lr`
    means learning_rate, `max_step` means max_steps, and so does `steps`.
    """
    known = sorted(known)
    if named := [each for each in known if key.lower() in OTHER_NAMES.get(each, "").split()]:
        return named
    if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.85):
        return near
    words = _words(key)
    return sorted((each for each in known if words and words <= _words(each)), key=len)[:3]


def _words(key: str) -> set[str]:
    """Return the words of a key, without the s of the plural."""
    return {word.removesuffix("s") for word in re.split("[._]", key.lower()) if word}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new mapping: `base` updated by `over`, with nested mappings merged and everything else replaced.

    A mapping with another `model_type` is replaced as a whole, since its keys are those of another class.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            same = below.get("model_type") == value.get("model_type", below.get("model_type"))
            merged[key] = merge(below, value) if same or "model_type" not in below else value
        else:
            merged[key] = value
    return merged


ABSENT = object()  # not None, which is a value that users may set


def lookup(values: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the value under nested keys, or ABSENT."""
    found: Any = values
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return ABSENT
        found = found[key]
    return found


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as a single mapping of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def dotted_keys(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return every dotted key of nested mappings: those of `flatten`, and those whose value is a mapping."""
    keys = []
    for key, value in values.items():
        keys.append(f"{prefix}{key}")
        keys += dotted_keys(value, f"{prefix}{key}.") if isinstance(value, dict) else []
    return keys


def flatten_keys(values: object) -> set[Any]:
    """Return every key of nested mappings, undotted, to tell keys from tags of unions in pydantic's locations."""
    if isinstance(values, list):
        return set().union(*map(flatten_keys, values))
    if not isinstance(values, dict):
        return set()
    return set(values).union(*(flatten_keys(value) for value in values.values()))
