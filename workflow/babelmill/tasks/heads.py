"""Put a new head on an exported model, for a task that gives texts, or the words of sentences, one of some classes."""

import contextlib
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.utils import logging as transformers_logging

from babelmill.config.entries import Tuning
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
        if trouble(error):
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
    transformers_logging.set_verbosity_error()  # it would print a report of all weights of the new head
    encoder, report = auto.from_pretrained(folder, output_loading_info=True, **given, **settings)
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


class OwnHead(nn.Module):
    """The model's own class for sequence or token classification; a folder that it saves loads with transformers.

    The first or the last piece of each word (`pooling` of the protocol) says its class.
    """

    def __init__(self, folder: Path, how: Tuning, classes: int, pad: int, tagging: bool):
        super().__init__()
        auto = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
        self.encoder = load_encoder(auto, folder, num_labels=classes)
        self.encoder.config.pad_token_id = pad  # models such as GPT-2 look for the last token before the padding
        types = getattr(self.encoder.config, "type_vocab_size", None) or 0
        reads = inspect.signature(self.encoder.forward).parameters
        self.reads_types = types > 1 and "token_type_ids" in reads and not tagging
        self._places = ends_of_words if how.pooling == "last" else starts_of_words

    def forward(self, words: torch.Tensor | None = None, **tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [targets, classes] of rows as `encoding.pad` gives them, row by row."""
        logits = self.encoder(**tokens).logits
        return logits if words is None else logits[self._places(words)]


class ChallengeHead(nn.Module):
    """A model without its head, and one of the heads of the BabyLM challenge (babylm-eval).

    For texts (finetune/classifier_model.py), two layers on the state of the first or the last position of the padded
    row (`pooling`; so "last" needs padding on the left). For words
    (multilingual/finetune/finetune_token_classification.py), one layer on the mean of the states of their pieces.
    """

    reads_types = False  # the challenge's scripts do not give them

    def __init__(self, folder: Path, how: Tuning, classes: int, _pad: int, tagging: bool):
        super().__init__()
        self.encoder = load_encoder(AutoModel, folder)
        size = self.encoder.config.hidden_size
        layers = [nn.LayerNorm(size, EPS, elementwise_affine=False), nn.Linear(size, size), nn.GELU()]
        layers.append(nn.LayerNorm(size, EPS, elementwise_affine=False))
        self.head = nn.Sequential(*([] if tagging else layers), nn.Dropout(how.dropout), nn.Linear(size, classes))
        self._place = 0 if how.pooling == "first" else -1

    def forward(self, words: torch.Tensor | None = None, **tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [targets, classes] of rows as `encoding.pad` gives them, row by row."""
        states = self.encoder(**tokens, return_dict=True).last_hidden_state
        return self.head(states[:, self._place] if words is None else means_of_words(states, words))


def means_of_words(states: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Return the mean of the states of the pieces of each word, [words of all rows, H], row by row.

    `words`, [B, T], says to which word of its row each piece belongs: 0, 1, ... in order; -1 for pieces of no word,
    such as `<s>` and padding.
    """
    numbers = torch.arange(int(words.max()) + 1, device=words.device)
    pieces = (words[:, None] == numbers[:, None]).to(states.dtype)  # [B, words, T]
    count = pieces.sum(2)
    return (torch.bmm(pieces, states) / count.clamp(min=1)[..., None])[count > 0]


def starts_of_words(words: torch.Tensor) -> torch.Tensor:
    """Return where the first piece of a word stands, [B, T]: the number of its word is higher than all before it."""
    before = torch.cat([torch.full_like(words[:, :1], -1), words.cummax(1).values[:, :-1]], 1)
    return words > before


def ends_of_words(words: torch.Tensor) -> torch.Tensor:
    """Return where the last piece of a word stands, [B, T]."""
    backwards = torch.where(words < 0, words, words.max() - words).flip(1)
    return starts_of_words(backwards).flip(1)


def model_of(folder: Path, how: Tuning, classes: int, pad: int, tagging: bool) -> OwnHead | ChallengeHead:
    """Return the model of a folder with a new head, for texts or for the words of sentences.

    Its config is told that `pad` is padding, unless the protocol has the challenge's head.
    """
    return (ChallengeHead if how.head == "challenge" else OwnHead)(folder, how, classes, pad, tagging)


def save(model: OwnHead | ChallengeHead, tokenizer: Any, folder: Path, classes: list[str]) -> None:
    """Write a tuned model as a folder; that of the model's own class loads with transformers."""
    model.encoder.config.id2label = dict(enumerate(classes))
    model.encoder.config.label2id = {name: number for number, name in enumerate(classes)}
    model.encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if isinstance(model, ChallengeHead):
        tensors = {name: tensor.contiguous() for name, tensor in model.head.state_dict().items()}
        save_file(tensors, folder / "head.safetensors")
