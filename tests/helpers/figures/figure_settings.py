"""Define the settings and the words of the tiny run of `stored_figures.py`."""

import copy
import functools
import hashlib

import numpy as np
import yaml

from helpers import ROOT

# All keys, as config/defaults.yaml has them, so that a new default changes no figure.
SETTINGS = yaml.safe_load("""
corpus: {files: [], builtin: null, hub: null, revision: "", validation_files: [], text_column: text, document: line,
  validation_share: 0.3, on_error: skip, normalization: NFC, control_characters: remove, min_characters: 8,
  deduplicate: true, categories: [], budget: null}
tokenizer: {source: null, revision: "", vocab_size: 400, min_frequency: 2}
mixture: {weights: 0.5}
model: {hidden_size: 24, intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 2,
  max_position_embeddings: 64, position_bucket_size: 8, hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1,
  layer_norm_eps: 1.0e-5, gate: true, layer_mixing: true}
train: {seed: 42, epochs: 3, max_steps: 40, global_batch_tokens: 256, batch_reduction: 2, micro_batch_tokens: null,
  sequence_lengths: [16, 32, 64], phase_starts: [0.0, 0.5, 0.8], objective: hybrid, hybrid_ratio: 1/2,
  token_weighted: false, mask_rate_start: 0.3, mask_rate_end: 0.15, optimizer: lamb, learning_rate: 0.007,
  learning_rate_floor: 0.1, warmup: 0.1, cooldown: 0.1, betas: [0.9, 0.98], eps: 1.0e-8, weight_decay: 0.1,
  clip_norm: 0.5, z_loss_weight: 1.0e-4, ema_decay: 0.999, precision: fp32, activation_checkpointing: false,
  non_finite: stop}
""")
LANGUAGES = ["eng", "deu"]
WORDS = {
    "eng": "the quick brown fox's over-ripe 12345 jumps, lazy dogs while seven wizards boil «warm» water (slowly) again",
    "deu": "der schnelle Fuchs springt über 1984 faule Hunde, während Straßenbahnhaltestellenhäuschen sich «drehen» 水 и",
}
LONG_WORD = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"


@functools.cache
def defaults() -> dict[str, dict]:
    """Return the default settings, which take a tenth of a second to read."""
    return yaml.safe_load((ROOT / "config/defaults.yaml").read_text(encoding="utf-8"))


def section(name: str, **values):
    """Return a section of the settings: these values over the ones above. (Keys added later have their default.)"""
    from babelmill.config.schema import SECTIONS

    return SECTIONS[name].model_validate(copy.deepcopy(defaults()[name]) | SETTINGS.get(name, {}) | values)


def digest(array) -> str:
    """Return the beginning of the SHA-256 of an array's integers."""
    return hashlib.sha256(np.ascontiguousarray(np.asarray(array), "<i8").tobytes()).hexdigest()[:16]


# Documents and tokens.
