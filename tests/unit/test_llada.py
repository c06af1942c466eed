"""LLaDA under EuroBERT's names is the model that its authors' code computes (numbers of the published code)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from babelmill.core.files import UserError
from babelmill.release import llada

GOLDEN = Path(__file__).parents[1] / "data/llada_tiny.safetensors"


@pytest.fixture(scope="module")
def golden():
    """Configuration, weights under LLaDA's names, inputs and logits."""
    with safe_open(GOLDEN, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        config = json.loads(file.metadata()["config"])
    weights = {n.removeprefix("weight."): tensors[n] for n in tensors if n.startswith("weight.")}
    return config, weights, tensors["input_ids"], tensors["logits_float64"]


def test_the_logits_are_those_of_the_published_code(golden):
    from transformers import AutoConfig, EuroBertForMaskedLM

    config, weights, input_ids, expected = golden
    renamed = llada.config_of(config, "llada")
    names = llada.names_of(weights, renamed["num_hidden_layers"], "llada")
    model = EuroBertForMaskedLM(AutoConfig.for_model(**renamed)).double().eval()
    model.load_state_dict({new: weights[old] for new, old in names.items()}, strict=True)
    with torch.no_grad():
        assert (model(input_ids).logits - expected).abs().max() < 1e-6


def test_every_weight_is_named_and_no_other(golden):
    config, weights, _, _ = golden
    layers = config["n_layers"]
    assert sorted(llada.names_of(weights, layers, "it").values()) == sorted(weights)
    some = "model.transformer.blocks.1.ff_out.weight"
    for names, message in (
        (weights.keys() - {some}, r"1 of 30 weights are missing, such as model\.layers\.1\.mlp\.down_proj"),
        ([*weights, "model.transformer.blocks.0.ff_out.bias"], r"blocks\.0\.ff_out\.bias is no weight of a LLaDA"),
        ([*weights, "model.transformer.blocks.3.ff_out.weight"], r"blocks\.3\.ff_out\.weight is no weight"),
        ([*weights, "model.layers.1.mlp.down_proj.weight"], r"is no weight"),
    ):
        with pytest.raises(UserError, match=f"^it: .*{message}"):
            llada.names_of(names, layers, "it")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("alibi", True, "alibi = True"), ("block_type", "sequential", "block_type"), ("d_model", None, "d_model = None")],
)
def test_another_architecture_is_refused(golden, key, value, message):
    with pytest.raises(UserError, match=f"^it: {message}"):
        llada.config_of(golden[0] | {key: value}, "it")
