"""Make small models of transformers, as settings and as networks of the training."""

import dataclasses

from babelmill.config import schema
from babelmill.runtime.processes import Processes
from babelmill.tokens.vocabulary import Vocabulary
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, section, train_settings

# By kind: the objective, and `model.config` without `model_type`. Windows are shorter than the rows of the tests.
LLAMA = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = LLAMA
KINDS = {
    "gpt2": ("causal", {"n_embd": 16, "n_layer": 2, "n_head": 2}),
    "bert": ("masked", BERT),
    "modernbert": ("masked", BERT | {"num_hidden_layers": 4, "local_attention": 8}),
    "llama": ("causal", LLAMA | {"num_key_value_heads": 1, "rope_theta": 5000.0}),
    "eurobert": ("masked", BERT | {"num_key_value_heads": 2}),
}


def model_section(kind: str, positions: int = 32, **more) -> schema.Model:
    """Return the section `model` of a small model."""
    config = {"model_type": kind, **KINDS.get(kind, ("", BERT))[1], **more}
    return section("model", architecture="transformers", config=config, max_position_embeddings=positions)


def train_section(kind: str, **values) -> schema.Train:
    """Return the section `train` that fits it."""
    objective = KINDS.get(kind, ("masked",))[0]
    return section("train", **{"objective": objective, "optimizer": "adamw", "learning_rate": 0.01, **values})


# Its padding token is the token that ends a text, as in many published models.
ENDS_AND_PADS = dataclasses.replace(VOCABULARY, pad=VOCABULARY.eos)


def network(
    kind: str,
    processes: Processes = ALONE,
    train: schema.Train | None = None,
    loaded: bool = False,
    vocabulary: Vocabulary = VOCABULARY,
    **more,
):
    """Return a network of a small model. `loaded`: its weights are read later; `more`: keys of its `model.config`."""
    from babelmill.training.networks.transformers import TransformersNetwork
    from babelmill.training.networks.transformers_config import config_to_train

    train = train or train_section(kind)
    config = config_to_train(train_settings(["eng"], model_section(kind, **more), train), None, vocabulary)
    return TransformersNetwork(config, train, vocabulary, processes, loaded)
