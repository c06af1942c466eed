"""Loading an exported folder as its users do, but with nothing left to chance."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from babelmill.core.files import UserError, read_json

if TYPE_CHECKING:  # importing transformers takes seconds
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

WEIGHTS = {"main": "model.safetensors", "ema": "ema.safetensors"}  # as the train stage names them


def weights_name(variant: str, default: str) -> str:
    """Return the name of a variant's file in an exported folder."""
    return "model.safetensors" if variant == default else f"model.{variant}.safetensors"


def runs_code(folder: Path) -> bool:
    """Return whether a folder brings code of ours, which its users have to trust."""
    return "auto_map" in read_json(folder / "config.json")


def load(
    cls: "type[_BaseAutoModelClass]", folder: Path, variant: str | None, extra: bool = False, **settings: Any
) -> torch.nn.Module:
    """Load a model in evaluation mode, fp32; a UserError unless every weight was found and no other.

    transformers fills in a weight that is missing with random numbers, and says so in a report that few read.

    Args:
        cls: one of the `AutoModelFor...` classes.
        variant: "main" or "ema", None for the default one.
        extra: the folder may hold other weights, too: a model from elsewhere may have other heads.
        settings: what `from_pretrained` lays over config.json.
    """
    given = {"variant": variant, "trust_remote_code": runs_code(folder), "dtype": torch.float32, **settings}
    model, report = cls.from_pretrained(folder, output_loading_info=True, **given)
    if extra:
        report.pop("unexpected_keys", None)
    wrong = {key: sorted(map(str, names)) for key, names in report.items() if names}
    if wrong:
        raise UserError(f"{folder}, variant {variant or 'default'}: the weights do not fit the classes: {wrong}")
    return model.eval()


def aligned(folder: Path) -> dict[str, Any]:
    """Return what `load` lays over config.json so that the scores of a masked model stand where their tokens do."""
    return {"logits_alignment": "mlm"} if "logits_alignment" in read_json(folder / "config.json") else {}
