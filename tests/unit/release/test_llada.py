"""LLaDA under EuroBERT's names is the model that its authors' code computes, and our loss is their objective.

Both against numbers of the published code.
"""

import json

import pytest
import torch
from safetensors import safe_open

from babelmill.core.files import UserError
from babelmill.release.elsewhere import llada
from babelmill.training.batches import MicroBatch
from babelmill.training.networks.loss import loss
from babelmill.training.networks.transformers_models import MASKED, make_model
from helpers import DATA

pytestmark = pytest.mark.slow

GOLDEN = DATA / "llada_tiny.safetensors"


@pytest.fixture(scope="module")
def golden():
    """Configuration, weights under LLaDA's names, and the other tensors: inputs, logits, a batch of the objective."""
    with safe_open(GOLDEN, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        config = json.loads(file.metadata()["config"])
    weights = {n.removeprefix("weight."): tensors[n] for n in tensors if n.startswith("weight.")}
    return config, weights, tensors


@pytest.fixture(scope="module")
def model(golden):
    """The model as EuroBERT, as it is trained, in float64. A token of the text is also the padding token, as published.

    The published code never drops a gradient because of that.
    """
    from transformers import AutoConfig

    config, weights, tensors = golden
    hidden, ids = tensors["diffusion.hidden"], tensors["input_ids"]
    renamed = llada.config_of(config | {"pad_token_id": int(ids[~hidden][0])}, "llada")
    names = llada.names_of(weights, renamed["num_hidden_layers"], "llada")
    model = make_model(AutoConfig.for_model(**renamed), MASKED).double().eval()
    model.load_state_dict({new: weights[old] for new, old in names.items()}, strict=True)
    return model


def test_the_logits_are_those_of_the_published_code(golden, model):
    _, _, tensors = golden
    with torch.no_grad():
        assert (model(tensors["input_ids"]).logits - tensors["logits_float64"]).abs().max() < 1e-6


def test_loss_and_gradient_are_those_of_the_published_objective(golden, model):
    """Its batch hides other numbers of tokens than ours do: each stands for 1 / p targets."""
    config, _, tensors = golden
    hidden, ids = tensors["diffusion.hidden"], tensors["input_ids"]
    positions = hidden.flatten().nonzero()[:, 0]
    importance = 1 / tensors["diffusion.p"].double().flatten()[positions]
    nothing = torch.zeros(len(positions), dtype=torch.int64)
    batch = MicroBatch(
        input_ids=ids.masked_fill(hidden, config["mask_token_id"]),
        segments=torch.zeros_like(ids),
        causal=torch.zeros(len(ids), dtype=torch.bool),
        positions=positions,
        targets=ids.flatten()[positions],
        weights=importance / ids.numel(),
        groups=nothing,
        dropout=nothing,
        importance=importance,
    )
    features = model.model(batch.input_ids).last_hidden_state.flatten(0, 1)[positions]
    matrix = model.lm_head.weight
    found, sums = loss(features, matrix, matrix.new_zeros(len(matrix)), batch, 0.0, 1)
    found.backward()
    expected, gradient = tensors["diffusion.loss"][0], tensors["diffusion.grad_wte"]
    assert abs(found - expected) < 1e-6 and abs(sums[0, 0] / ids.numel() - expected) < 1e-6
    assert gradient.norm() > 0.01
    assert (model.model.embed_tokens.weight.grad - gradient).norm() < 1e-6 * gradient.norm()


def test_every_weight_is_named_and_no_other(golden):
    config, weights, _ = golden
    layers = config["n_layers"]
    assert sorted(llada.names_of(weights, layers, "it").values()) == sorted(weights)
    some = "model.transformer.blocks.1.ff_out.weight"
    other = "model.transformer.blocks.3.ff_out.weight"
    for names, odd in ((weights.keys() - {some}, some), ([*weights, other], other)):
        with pytest.raises(
            UserError, match=f"^it: {odd} is missing, or is not a weight of a LLaDA model with 3 layers"
        ):
            llada.names_of(names, layers, "it")
    with pytest.raises(UserError, match=r"^it: alibi = True"):
        llada.config_of(config | {"alibi": True}, "it")
