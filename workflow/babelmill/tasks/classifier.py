"""Put a new head on an exported model, for a task that gives each text or pair of texts one of some classes."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification

from babelmill.core.files import UserError
from babelmill.release.folder.loading import runs_code

EPS = 1e-5  # of both layer norms in the challenge's head


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

    Args:
        folder: an exported folder, or one of another project.
        classes: the number of classes.
        position: "first" or "last": which position of the padded row the head reads. So "last" needs padding on the
            left.
        dropout: that of the head.
    """

    def __init__(self, folder: Path, classes: int, position: Literal["first", "last"], dropout: float):
        super().__init__()
        self.encoder: Any = AutoModel.from_pretrained(folder, trust_remote_code=runs_code(folder), dtype=torch.float32)
        self._place = 0 if position == "first" else -1
        self.head = ChallengeHead(self.encoder.config.hidden_size, classes, dropout)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return logits [B, classes] of rows, [B, T]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return self.head(output.last_hidden_state[:, self._place])


class OwnClassifier(nn.Module):
    """The model's own class for sequence classification; a folder that it saves loads with transformers."""

    def __init__(self, folder: Path, classes: int, pad: int):
        super().__init__()
        settings: dict[str, Any] = {"num_labels": classes, "trust_remote_code": runs_code(folder)}
        try:
            self.encoder: Any = AutoModelForSequenceClassification.from_pretrained(
                folder, dtype=torch.float32, **settings
            )
        except ValueError as error:
            raise UserError(f"{folder}: transformers has no classifier for this model: {error}") from None
        if self.encoder.config.pad_token_id is None:  # models such as GPT-2 then look for the last token of each row
            self.encoder.config.pad_token_id = pad

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return logits [B, classes] of rows, [B, T]."""
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).logits
