"""What is proven of a model of transformers before it trains, with a smaller one; which models are refused."""

import copy
import dataclasses

import pytest
import torch
import transformers

from babelmill.core.files import UserError
from babelmill.training.networks.transformers import prove, prove_model, smaller
from babelmill.training.networks.transformers_models import (
    MASKED,
    auto_class,
    blocks_of,
    config_to_train,
    make_model,
    read_config,
)
from helpers.models.transformers_models import model_section, network, train_section
from helpers.training.training_data import VOCABULARY, train_settings

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "kind, train, more, words",
    [
        ("deberta-v2", {}, {}, "documents in the same row see each other"),
        ("bert", {"objective": "causal"}, {}, "reads later tokens"),
        ("gpt2", {"objective": "masked"}, {}, "transformers has no AutoModelForMaskedLM for it"),
        (
            "gemma3_text",
            {"objective": "causal"},
            {"head_dim": 8, "num_key_value_heads": 2, "final_logit_softcapping": 0.1},
            "caps them",
        ),
        ("gemma2", {"objective": "causal"}, {}, "does not support an attention implementation"),
        ("gpt2", {}, {"n_embd": 15}, "'gpt2' cannot be trained here"),
    ],
)
def test_a_model_that_computes_something_else_is_refused(kind, train, more, words):
    with pytest.raises(UserError) as error:
        network(kind, train=train_section(kind, **train), **more)
    assert words in str(error.value) and kind in str(error.value).lower() and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "kind, more, layers",
    [
        ("llama", {"num_hidden_layers": 12}, 2),
        ("gpt2", {"n_layer": 9}, 2),
        ("modernbert", {"num_hidden_layers": 12}, 2),  # every third sees the whole row
        ("gemma3_text", {"num_hidden_layers": 14, "head_dim": 8, "num_key_value_heads": 2}, 6),
        ("albert", {"num_hidden_layers": 7}, 2),  # one layer, again and again
        ("roberta", {"num_hidden_layers": 7}, 2),
        ("eurobert", {"num_hidden_layers": 7}, 2),  # LLaDA is one; the id of its mask must be a number
    ],
)
def test_what_is_proven_has_each_kind_of_layer(kind, more, layers):
    """A vocabulary of a few entries, too, but for RoBERTa, whose positions are counted from one of them."""
    train = train_section(kind, **({"objective": "causal"} if "gemma" in kind else {}))
    settings = train_settings(["eng"], model_section(kind, **more), train)
    late = {"llama": {"pad": 4999}, "eurobert": {"mask": 4999}}.get(kind, {})
    vocabulary = dataclasses.replace(VOCABULARY, size=5000, **late)
    config = config_to_train(settings, None, vocabulary)
    before, auto = copy.deepcopy(config), auto_class(train)
    found = smaller(config, auto)
    assert config.to_dict() == before.to_dict() and found.num_hidden_layers == layers
    assert found.vocab_size == (5000 if kind == "roberta" else 1024)
    assert len(blocks_of(make_model(found, auto))) == (1 if kind == "albert" else layers)
    whole = prove_model(make_model(config, auto), auto == MASKED, vocabulary, 32)
    assert prove(config, auto, vocabulary, 32) == {"gpt2": 0, "roberta": 4}.get(kind, whole) == whole


@pytest.mark.parametrize("seed", range(6))
def test_experts_do_not_make_a_causal_model_read_later_tokens(seed):
    """A token that is sent to another expert changes the order of sums of other tokens, and so their last bits."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.AutoConfig.for_model("mixtral", vocab_size=1024, num_key_value_heads=2, **sizes)
    torch.manual_seed(seed)
    vocabulary = dataclasses.replace(VOCABULARY, size=1024)
    prove_model(make_model(config, "AutoModelForCausalLM"), False, vocabulary, 32)


def test_a_model_that_also_reads_pictures_is_refused():
    with pytest.raises(UserError, match="'gemma3' cannot be trained here: it reads more than text"):
        read_config({"model_type": "gemma3"}, "AutoModelForCausalLM", "theirs")
