"""Load an exported folder as its users do, and check that every weight was found."""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from babelmill.config.models import OBJECTIVES
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json, read_object
from babelmill.core.stage_entry import Job
from babelmill.runtime import gpu_claims
from babelmill.tokens.tokenizer_file import use_threads

log = logging.getLogger("babelmill")

if TYPE_CHECKING:  # importing transformers takes seconds
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

WEIGHTS = {"main": "model.safetensors", "ema": "ema.safetensors"}  # the names that the stage `train` gives


def weights_name(variant: str, default: str) -> str:
    """Return the name of a variant's file in an exported folder."""
    return "model.safetensors" if variant == default else f"model.{variant}.safetensors"


def runs_code(folder: Path) -> bool:
    """Return whether a folder contains code, which its users have to trust."""
    return "auto_map" in read_json(folder / "config.json")


def tokenizer_of(folder: Path) -> Any:
    """Load the tokenizer of a folder; raise a UserError if there is none.

    For some models, transformers itself would make one that knows only special tokens.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=runs_code(folder))
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = escape.line(str(error).split("\n")[0].rstrip(": "), 200)
        raise UserError(f"{folder}: its tokenizer cannot be loaded: {reason}") from None
    if len(tokenizer) <= len({*tokenizer.all_special_ids}) + 1:
        raise UserError(
            f"{folder}: it has no tokenizer, or one that knows no text; put tokenizer.json, or the files of its"
            " tokenizer, beside config.json"
        )
    return tokenizer


def load(
    cls: "type[_BaseAutoModelClass]", folder: Path, variant: str | None, extra: bool = False, **settings: Any
) -> torch.nn.Module:
    """Load a model in evaluation mode and fp32, by one of the `AutoModelFor...` classes.

    transformers itself would fill a missing weight with random numbers, and only mention it in a report. So here a
    weight that is missing, does not fit, or does not belong to the class is a UserError. `extra` allows weights that
    the class does not have: a model from elsewhere may have other heads. `variant`: "main" or "ema"; None for the
    default one. `settings`: arguments by which `from_pretrained` overrides config.json.
    """
    log.info("loading %s, %s", folder, variant or "default variant")
    given = {"variant": variant, "trust_remote_code": runs_code(folder), "dtype": torch.float32, **settings}
    model, report = cls.from_pretrained(folder, output_loading_info=True, **given)
    if extra:
        report.pop("unexpected_keys", None)
    wrong = {key: sorted(map(str, names)) for key, names in report.items() if names}
    if wrong:
        raise UserError(f"{folder}, variant {variant or 'default'}: the weights do not fit the classes: {wrong}")
    return model.eval()


def aligned(folder: Path) -> dict[str, Any]:
    """Return settings for `load`: with them, a masked model's scores at a position are for the token there."""
    return {"logits_alignment": "mlm"} if "logits_alignment" in read_json(folder / "config.json") else {}


def methods_of(folder: Path) -> list[str]:
    """Return the methods by which a folder's model can score sentences; the last is the headline."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config = read_object(folder / "config.json")
    if "objective" in config:
        return list(OBJECTIVES["diffusion"].sentences)
    evaluation = manifest.read(folder)["figures"].get("evaluation", {}) if (folder / manifest.NAME).is_file() else {}
    model_type = str(config.get("model_type"))
    if "variants" in evaluation:  # a converted folder: its metrics say what the model learnt
        scores = next(iter(evaluation["variants"].values()))
        causal, masked = "causal" in scores, "masked" in scores
    else:
        declared = [config.get(key) for key in ("auto_map", "architectures")]
        names = [name for each in declared if isinstance(each, dict | list) for name in each if isinstance(name, str)]
        masked = any(name.endswith("ForMaskedLM") for name in names)
        causal = any(re.search(r"(ForCausalLM|(?<!With)LMHeadModel)$", name) for name in names)
    if not (causal or masked):
        masked = model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        causal = not masked and model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if not (causal or masked):
        raise UserError(f"{folder}: config.json names neither a causal nor a masked language model")
    return ["causal"] * causal + ["masked"] * masked + ["fused"] * (causal and masked)


def begin(job: Job[Any]) -> None:
    """Prepare the process of a stage that loads models: its GPUs, its threads, and no bars of transformers."""
    from transformers.utils.logging import disable_progress_bar

    gpu_claims.claim(job.gpus)
    use_threads(job.threads)
    disable_progress_bar()
    torch.set_num_threads(job.threads)
