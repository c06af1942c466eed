"""Rename the weights and configuration of LLaDA (Nie et al. 2025, arXiv:2502.09992) to those of EuroBERT.

`EuroBertForMaskedLM` of transformers computes the same as the code in LLaDA's repositories, so this code is not needed.
This module raises an error for a missing weight, whereas `key_mapping` of transformers would fill it with random
numbers.
"""

from collections.abc import Iterable
from typing import Any

from babelmill.core.files import UserError

OUTSIDE = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
IN_A_BLOCK = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}

# EuroBERT's configuration has no such keys. Other values mean another architecture, and are refused.
OFF = ("include_bias", "include_qkv_bias", "alibi", "attention_layer_norm", "scale_logits", "input_emb_norm")
FIXED = dict.fromkeys([*OFF, "weight_tying"], False) | {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "rope": True,
    "block_group_size": 1,
}
RENAMED = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "mlp_hidden_size": "intermediate_size",
    "embedding_size": "vocab_size",
    "max_sequence_length": "max_position_embeddings",
    "rms_norm_eps": "rms_norm_eps",
}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")


def config_of(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the config.json of EuroBERT that means the same as LLaDA's. Error messages begin with `where`.

    A UserError says that a key is missing, or EuroBERT does not support its value.
    """
    for key, allowed in FIXED.items():
        if (config.get(key, allowed) or False) != allowed:  # a bias that is null is off, too
            raise UserError(f"{where}: {key} = {config[key]!r}: only LLaDA models with {allowed!r} are supported")
    for key in RENAMED:
        if not isinstance(config.get(key), int | float):
            raise UserError(f"{where}: {key} = {config.get(key)!r}: LLaDA's configuration must have a number here")
    return {
        "architectures": ["EuroBertForMaskedLM"],
        "model_type": "eurobert",
        **{theirs: config[ours] for ours, theirs in RENAMED.items()},
        "num_key_value_heads": config.get("n_kv_heads") or config["n_heads"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.get("attention_dropout", 0.0),
        "rope_parameters": {"rope_type": "default", "rope_theta": config.get("rope_theta", 500000.0)},
        "tie_word_embeddings": False,
        **{key: config.get(key) for key in TOKENS},  # EuroBERT's own defaults belong to another vocabulary
    }


def names_of(names: Iterable[str], layers: int, where: str) -> dict[str, str]:
    """Return {EuroBERT's name: LLaDA's name}; raise a UserError if weights are missing, or there are others."""
    found = {f"{ours}.weight": f"model.transformer.{theirs}.weight" for theirs, ours in OUTSIDE.items()}
    for layer in range(layers):
        for theirs, ours in IN_A_BLOCK.items():
            found[f"model.layers.{layer}.{ours}.weight"] = f"model.transformer.blocks.{layer}.{theirs}.weight"
    if odd := {*names} ^ {*found.values()}:
        raise UserError(f"{where}: {min(odd)} is missing, or is not a weight of a LLaDA model with {layers} layers")
    return found
