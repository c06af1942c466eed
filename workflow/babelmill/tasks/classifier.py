"""Put a new head on an exported model, for a task that gives each text or pair of texts one of some classes."""

import contextlib
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification
from transformers.utils import logging as transformers_logging

from babelmill.core import escape
from babelmill.core.files import UserError, read_json, trouble
from babelmill.core.words import first_line
from babelmill.release.folder.loading import runs_code

EPS = 1e-5  # of both layer norms in the challenge's head

log = logging.getLogger("babelmill.tune")


@contextlib.contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Turn an error of a model that cannot classify texts into one line.

    Many classes of transformers cannot: some have no classifier, others need a decoder's input, too.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or trouble(error):
            raise
        reason = escape.line(first_line(error).rstrip("."), 200)
        raise UserError(f"{folder}: this model cannot be fine-tuned for a task: {reason}; use another model") from error


def load_encoder(auto: Any, folder: Path, **settings: Any) -> Any:
    """Load a model in fp32 by an `Auto...` class.

    Warn of weights that the folder lacks, but for those of heads. A head for another number of classes, which a
    classifier from elsewhere has, is replaced by a new one. A UserError says that it is a model of labels, or weights
    of its body do not have the shapes that config.json says.
    """
    if isinstance(read_json(folder / "config.json").get("labels"), dict):
        raise UserError(
            f"{folder}: a model of labels cannot be fine-tuned for a task; use the model that it was trained from"
        )
    given = {"trust_remote_code": runs_code(folder), "dtype": torch.float32, "ignore_mismatched_sizes": True}
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it would print a report of all weights of the new head
    try:
        encoder, report = auto.from_pretrained(folder, output_loading_info=True, **given, **settings)
    finally:
        transformers_logging.set_verbosity(verbosity)
    prefix = "" if auto is AutoModel else f"{encoder.base_model_prefix}."
    if wrong := sorted(name for name, *_ in report["mismatched_keys"] if name.startswith(prefix)):
        raise UserError(
            f"{folder}: the weights {escape.some(wrong, 3)} do not have the shapes that its config.json says; it is"
            " damaged, or of another model"
        )
    lacking = [name for name in report["missing_keys"] if name.startswith(prefix) and "pooler" not in name]
    if lacking:
        log.warning("%s has no weights %s; they begin with random numbers", folder, escape.some(sorted(lacking), 3))
    return encoder


class ChallengeHead(nn.Sequential):
    """The classifier of the BabyLM challenge: LayerNorm, Linear, GELU, LayerNorm, Dropout, Linear; [B, H] -> [B, C].

    Both layer norms have no weights (babylm-eval, finetune/classifier_model.py).
    """

    def __init__(self, hidden: int, classes: int, dropout: float):
        super().__init__(
            nn.LayerNorm(hidden, EPS, elementwise_affine=False),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.LayerNorm(hidden, EPS, elementwise_affine=False),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )


class PooledClassifier(nn.Module):
    """A model without its head, and the challenge's head on the state of the first or the last position.

    `position`, "first" or "last": which one of the padded row the head reads. So "last" needs padding on the left.
    """

    def __init__(self, folder: Path, classes: int, position: Literal["first", "last"], dropout: float):
        super().__init__()
        self.encoder = load_encoder(AutoModel, folder)
        self._place = 0 if position == "first" else -1
        self.head = ChallengeHead(self.encoder.config.hidden_size, classes, dropout)
        self.reads_types = False  # the challenge's script does not give them

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return logits [B, classes] of rows, [B, T]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return self.head(output.last_hidden_state[:, self._place])


class OwnClassifier(nn.Module):
    """The model's own class for sequence classification; a folder that it saves loads with transformers."""

    def __init__(self, folder: Path, classes: int, pad: int):
        super().__init__()
        self.encoder = load_encoder(AutoModelForSequenceClassification, folder, num_labels=classes)
        self.encoder.config.pad_token_id = pad  # models such as GPT-2 look for the last token before the padding
        types = getattr(self.encoder.config, "type_vocab_size", None) or 0
        self.reads_types = types > 1 and "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return logits [B, classes] of rows, [B, T]; `token_type_ids`: see `EncodedRows.types`."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types).logits
