"""Find out which token a GPT-BERT learnt to predict at a masked position, by a test of the model itself.

Its files do not say it. The published code predicts the next token everywhere. BabyBabelLM's code predicts the next
token in causal rows, but the hidden token itself in masked rows. For the test, the model generates texts causally, and
pairs of neighbouring tokens are hidden in them. The model's scores at the first position of a pair fit either the first
or the second token far better. The token that fits better is the one that the model learnt to predict.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.tokens.tokenizer_file import special_ids, token_id
from babelmill.tokens.vocabulary import BOS, MASK

log = logging.getLogger(__name__)

ROWS, LENGTH, APART = 32, 16, 5  # number of texts, tokens of each, distance of the hidden pairs
SURE = 1.0  # by how many nats per token one of the two must be better


@torch.no_grad()
def learnt_target(shape: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> str | None:
    """Return "next" or "same", or None if the model has learnt too little to tell.

    Args:
        shape, weights: the model's shape and weights.
        tokenizer: the model's tokenizer, with `<s>`, `<mask>` and other special tokens.
    """
    model = GPTBert(GPTBertShape(**{name: shape[name] for name in GPTBertShape.__dataclass_fields__})).eval()
    model.load_state_dict(dict(weights))
    both = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    texts = torch.full((ROWS, 1), token_id(tokenizer, BOS))
    special = torch.tensor(special_ids(tokenizer))
    while texts.size(1) < LENGTH:
        size = texts.size(1)
        scores = model(texts, both[..., :size, :size].tril())[:, -1].index_fill(1, special, -math.inf)
        texts = torch.cat([texts, torch.multinomial(scores.softmax(-1), 1, generator=generator)], 1)
    first = torch.arange(APART - 2, LENGTH - 1, APART)
    given = texts.index_fill(1, torch.cat([first, first + 1]), token_id(tokenizer, MASK))
    scores = model(given, both).log_softmax(-1)[:, first]
    same, next = (scores.gather(-1, texts[:, first + ahead, None]).mean().item() for ahead in (0, 1))
    log.info("at a mask, the hidden token has a loss of %.2f nats, and the next one %.2f", same, next)
    if abs(same - next) < SURE:
        return None
    return "same" if same > next else "next"
