"""Check what the configuration says about a transformers model, its type and its keys, without importing transformers.

Importing transformers takes seconds, and a configuration is read at each start of Snakemake. So the names are read from
its source files: a typing mistake in `model.config` is refused before any job runs. If the source files do not tell,
nothing is refused here; training imports transformers and checks again.
"""

import ast
import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from babelmill.config.layers import nearest
from babelmill.core.files import UserError

# Names from earlier versions for the content of `rope_parameters`, which transformers still accepts.
ROPE = ("rope_theta", "rope_scaling", "global_rope_theta", "local_rope_theta")
BASE = {"PreTrainedConfig", "PretrainedConfig"}
# The annotations that allow each type of value. A key with an annotation that is not in `KNOWN` is not checked.
KINDS = {str: {"str", "Literal"}, bool: {"bool"}, int: {"int", "float"}, float: {"float"}, list: {"list", "tuple"}}
KNOWN = {*set().union(*KINDS.values()), "dict", "None"}


# Keys that say how many layers a model has. (Others with `layer` in their names are about some of these layers.)
LAYERS = re.compile(r"(n|num)_(hidden_|encoder_|decoder_)?layers?|(en|de)coder_layers")
MOST_LAYERS = 1000


@functools.cache
def _models() -> Path | None:
    """Return the folder with the models in the transformers package."""
    spec = importlib.util.find_spec("transformers")
    return Path(spec.origin).parent / "models" if spec and spec.origin else None


def _tree(*names: str) -> ast.Module | None:
    folder = _models()
    path = folder.joinpath(*names) if folder else None
    return ast.parse(path.read_bytes()) if path and path.is_file() else None


@functools.cache
def _table(name: str) -> dict[str, str]:
    """Return a table of `models/auto/auto_mappings.py`; an empty one if it is not found."""
    tree = _tree("auto", "auto_mappings.py")
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Call):
            return dict(ast.literal_eval(node.value.args[0]))
    return {}


@functools.cache
def _fields(model_type: str) -> tuple[dict[str, ast.AnnAssign], dict[str, str]]:
    """Return the declared keys of a model type's configuration, and aliases of keys; both are empty if not found."""
    module = _table("SPECIAL_MODEL_TYPE_TO_MODULE_NAME").get(model_type, model_type.replace("-", "_"))
    tree, wanted = _tree(module, f"configuration_{module}.py"), _table("CONFIG_MAPPING_NAMES").get(model_type)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == wanted and {ast.unparse(b) for b in node.bases} <= BASE:
            aliases: dict[str, str] = {}
            for part in node.body:
                if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "attribute_map":
                    aliases = ast.literal_eval(part.value)
            parts = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            return {ast.unparse(part.target): part for part in parts}, aliases
    return {}, {}


def check_layers(config: Mapping[str, Any], where: str, tensors: int | None = None) -> None:
    """Raise a UserError if a config.json describes more layers than any model has: to make them would take hours.

    If it is known how many tensors the model's files hold, there cannot be more layers, either.
    """
    for key, value in config.items():
        if LAYERS.fullmatch(key) and isinstance(value, int | float) and value > max(MOST_LAYERS, tensors or 0):
            held = f", but its files hold {tensors:,} tensors" if tensors is not None else ""
            raise UserError(f"{where}: config.json says {key} = {value:,}{held}: it is damaged, or of another model")


@functools.cache
def keys(model_type: str) -> frozenset[str]:
    """Return the keys that the configuration class of a model type declares; an empty set if they are not found."""
    fields, aliases = _fields(model_type)
    found = fields.keys() | aliases.keys()
    return frozenset(found | (set(ROPE) if "rope_parameters" in found else set()))


def roughly(config: dict[str, Any], vocab_size: int) -> int | None:
    """Return about how many parameters a model with these keys has; None if the keys do not tell.

    The estimate is rather too high, except for mixtures of experts, where only one expert is counted.
    """
    fields, aliases = _fields(str(config.get("model_type")))

    def value(key: str) -> int | None:
        name = aliases.get(key, key)
        default = fields[name].value if name in fields else None
        known = default.value if isinstance(default, ast.Constant) else None
        found = config.get(key, config.get(name, known))
        return found if isinstance(found, int) else None

    width, layers = value("hidden_size"), value("num_hidden_layers")
    if not width or not layers:
        return None
    inner = value("intermediate_size") or 4 * width
    return 2 * vocab_size * width + layers * (4 * width**2 + 3 * width * inner + 16 * width)


def wrong(config: dict[str, Any]) -> str | None:
    """Return what transformers does not accept in a `model.config`, and what it knows; None if it accepts all."""
    model_type, types = config["model_type"], _table("CONFIG_MAPPING_NAMES")
    if types and model_type not in types:
        return f"model.config.model_type = {model_type!r}: transformers has no such model{nearest(model_type, types)}"
    known = keys(model_type)
    for key in sorted(config.keys() - known - {"model_type"}) if known else ():
        return f"model.config has {key!r}, which {types[model_type]} of transformers does not have{nearest(key, known)}"
    fields, aliases = _fields(model_type)
    for key, value in config.items():
        declared = fields.get(aliases.get(key, key))
        kinds = ast.unparse(declared.annotation) if declared else ""
        names = {kind.split("[")[0].strip() for kind in kinds.split("|")}
        if names <= KNOWN and type(value) in KINDS and not names & KINDS[type(value)]:
            return f"model.config.{key} = {value!r}: {types[model_type]} of transformers expects {kinds}"
    return None
