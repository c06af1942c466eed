"""Put a new head on an exported model, for a task that gives each word of a sentence one of some classes.

`words`, [B, T], says to which word of its row each piece belongs: 0, 1, ... in order; -1 for pieces of no word, such as
`<s>` and padding. Each of these words has a piece. Logits are [words of all rows, classes], row by row.
"""

from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import AutoModel, AutoModelForTokenClassification

from babelmill.tasks.classifier import load_encoder


class OwnTagger(nn.Module):
    """The model's own class for token classification; a folder that it saves loads with transformers.

    The first or the last piece of each word (`position`) says its class.
    """

    def __init__(self, folder: Path, classes: int, pad: int, position: Literal["first", "last"]):
        super().__init__()
        self.encoder = load_encoder(AutoModelForTokenClassification, folder, num_labels=classes)
        self.encoder.config.pad_token_id = pad
        self._last = position == "last"

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the logits of the words in rows, [B, T]."""
        logits = self.encoder(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits[ends_of_words(words) if self._last else starts_of_words(words)]


def starts_of_words(words: torch.Tensor) -> torch.Tensor:
    """Return where the first piece of a word stands, [B, T]: the number of its word is higher than all before it."""
    before = torch.cat([torch.full_like(words[:, :1], -1), words.cummax(1).values[:, :-1]], 1)
    return words > before


def ends_of_words(words: torch.Tensor) -> torch.Tensor:
    """Return where the last piece of a word stands, [B, T]."""
    backwards = torch.where(words < 0, words, words.max() - words).flip(1)
    return starts_of_words(backwards).flip(1)


class PooledTagger(nn.Module):
    """A model without its head, and the head of the multilingual track of the BabyLM challenge.

    The head is dropout and a linear layer on the mean of the states of a word's pieces (babylm-eval,
    multilingual/finetune/finetune_token_classification.py).
    """

    def __init__(self, folder: Path, classes: int, dropout: float):
        super().__init__()
        self.encoder = load_encoder(AutoModel, folder)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(self.encoder.config.hidden_size, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the logits of the words in rows, [B, T]."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True).last_hidden_state
        numbers = torch.arange(int(words.max()) + 1, device=words.device)
        pieces = (words[:, None] == numbers[:, None]).to(states.dtype)  # [B, words, T]
        count = pieces.sum(2)
        means = torch.bmm(pieces, states) / count.clamp(min=1)[..., None]
        return self.head(self.dropout(means))[count > 0]
