"""Find the shape of the model whose training is planned: in its settings, or in the model that it continues.

For a model on the Hub, only config.json is fetched, no weights.
"""

from pathlib import Path
from typing import Any

from babelmill.config import schema, transformers_keys
from babelmill.config.inputs import hub_model, require_model
from babelmill.config.model_size import Counted
from babelmill.config.model_source import SHAPE, with_our_names
from babelmill.config.resolve import Configuration
from babelmill.core import outside
from babelmill.core.files import UserError
from babelmill.release.elsewhere import llada


def network_of(configuration: Configuration, model: str) -> tuple[schema.Model, int]:
    """Return the settings of a model with the shape that it will have, and the number of entries of its vocabulary.

    If it continues another model, the shape is in the config.json of that one, which may have to be fetched. A
    UserError says that this file lacks a key.
    """
    root = [model, *configuration.ancestors(model)][-1]
    resolved, of_root = configuration.model(model), configuration.model(root)
    if of_root.source is None:
        known = resolved.model if resolved.model.architecture in schema.OURS else of_root.model
        return known, of_root.tokenizer.vocab_size
    config = config_of_source(configuration, root)
    if resolved.model.architecture == "transformers":
        return published(resolved.model, config), config["vocab_size"]
    of_others = ("position_bucket_size", "gate", "layer_mixing")
    if resolved.model.architecture == "norbert4":
        config = with_our_names(config)
    else:
        of_others = ("gate", "layer_mixing", *schema.OF_NORBERT4)
    if missing := [key for key in (*SHAPE, "vocab_size") if key not in config and key not in of_others]:
        raise UserError(
            f"{root} continues {of_root.source.name}, whose config.json has no {missing[0]}; to find its shape, fetch"
            f" the model first: `snakemake {of_root.source.weights}`"
        )
    return with_shape(resolved.model, config), config["vocab_size"]


def with_shape(model: schema.Model, config: dict[str, Any]) -> schema.Model:
    """Return the settings of a model with the shape in `config`, the config.json of the model that it starts from."""
    return model.model_copy(update={key: config[key] for key in SHAPE if key in config})


def published(model: schema.Model, config: dict[str, Any]) -> schema.Model:
    """Return the settings of a new model with the configuration of a published transformers model."""
    own = transformers_keys.keys(str(config.get("model_type"))) - schema.OF_THE_WORKFLOW
    kept = {key: value for key, value in config.items() if key in own and not key.endswith("_token_id")}
    positions = config.get("max_position_embeddings") or config.get("n_positions") or model.max_position_embeddings
    values = {"config": {"model_type": config.get("model_type"), **kept}, "max_position_embeddings": positions}
    return model.model_copy(update=values | {"source": None})


def config_of_source(configuration: Configuration, model: str) -> dict[str, Any]:
    """Return the config.json of the folder or the repository that a model continues."""
    source = configuration.model(model).source
    assert source is not None
    where = f"{configuration.model(model).origins['model.source']}: model.source = {source.name!r}"
    path = source.weights / "config.json"
    if not path.is_file() and source.kind == "folder":
        require_model(source.name, where)
        path = Path(source.name) / "config.json"
    elif not path.is_file():
        path = fetched(configuration, model)
    config = outside.read_object(path, f"{where}: config.json")
    transformers_keys.check_layers(config, where)
    return llada.config_of(config, where) if config.get("model_type") == "llada" else config


def fetched(configuration: Configuration, model: str) -> Path:
    """Fetch the config.json of the repository that a model continues; return its path in the cache."""
    from babelmill.hub.client import QUICK, impatiently  # imports the Hub's client, which other plans do not need
    from babelmill.hub.files import of_source
    from babelmill.hub.sources import MODEL

    asked = hub_model(configuration, model) or {}
    with impatiently(QUICK):
        return of_source(MODEL, asked).get(["config.json"])["config.json"]


def sized(model: schema.Model, train: schema.Train, vocab_size: int) -> schema.Model | Counted:
    """Return what costs are computed from: our settings, or the counted sizes of a transformers model."""
    if model.architecture in schema.OURS:
        return model
    from babelmill.training.networks.transformers_config import planned  # imports transformers, which takes seconds

    return planned(model, train, vocab_size)
