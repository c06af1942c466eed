"""Define a label model for transformers: an encoder, its classifier, and a decoder that writes codes.

`AutoModelForSequenceClassification` loads only the encoder and the classifier, and does not need this file. `AutoModel`
(with `trust_remote_code=True`) loads this class, whose `predict` returns the codes of a text.

This file is shipped inside exported models: it imports nothing but torch, transformers, safetensors, the standard
library and the files beside it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.hub import cached_file

from ..code_decoder import CodeDecoder, padded

# Ids of symbols: an empty block, the begin of a sequence, the end of a code that is shorter than its block, and the
# first id of an ordinary symbol.
PAD, BEGIN, END, FIRST = 1, 2, 3, 5
BEAMS = 5  # at least as many beams per text, even if the user asks for fewer codes


class Found(NamedTuple):
    """Holds the prediction for one text.

    Attributes:
        codes: the codes that the text has, each with its probability. Empty if it has none.
        likeliest: the most probable codes, each with its probability, the most probable one first.
    """

    codes: list[tuple[str, float]]
    likeliest: list[tuple[str, float]]


class CodesModel(PreTrainedModel):
    """Predicts the codes of texts, as classes or symbol by symbol.

    Args:
        config: configuration of the encoder. `config.labels` holds the codes, their symbols, and the decoder's sizes.
        encoder: encoder with the classifier; by default a new one is created from `config`.
    """

    config_class = PreTrainedConfig
    base_model_prefix = "encoder"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # the encoder says whether it does

    def __init__(self, config: PreTrainedConfig, encoder: PreTrainedModel | None = None, **_: Any):
        super().__init__(config)
        labels: dict[str, Any] = config.labels
        self.encoder = encoder or AutoModelForSequenceClassification.from_config(config, trust_remote_code=True)
        self.codes, self.blocks, self.exclusive = list(labels["codes"]), labels["blocks"], labels["exclusive"]
        self.decoder = None
        if labels["decoder_layers"]:
            longest, self.spelt = labels["blocks"] * labels["block_size"], torch.tensor(labels["spelt"])
            self.decoder = CodeDecoder(labels["entries"], config.hidden_size, labels["decoder_layers"], longest)
        self._hidden: torch.Tensor | None = None
        self.encoder.base_model.register_forward_hook(self._keep)

    @classmethod
    def from_pretrained(cls, path: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Load the encoder as its class does, and the decoder from its own file."""
        kwargs.pop("config", None)
        kwargs["trust_remote_code"] = True  # the user already trusts this class, which comes from the same folder
        variant = kwargs.get("variant")
        shared = {name: kwargs[name] for name in ("revision", "token", "cache_dir", "subfolder") if name in kwargs}
        loaded = AutoModelForSequenceClassification.from_pretrained(path, *args, **kwargs)
        encoder, *report = loaded if kwargs.get("output_loading_info") else (loaded,)
        model = cls(encoder.config, encoder)
        if model.decoder is not None:
            name = f"decoder.{variant}.safetensors" if variant else "decoder.safetensors"
            model.decoder.load_state_dict(load_file(cached_file(path, name, **shared)))  # pyright: ignore
            model.decoder.to(encoder.dtype)
        return (model.eval(), *report) if report else model.eval()

    def _keep(self, _module: Any, _args: Any, output: Any) -> None:
        self._hidden = output[0]

    def _encode(self, tokens: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the scores of the classes, the encoder's hidden states, and which of them are no padding."""
        tokens, seen = padded(tokens, seen, self.config)
        scores = self.encoder(input_ids=tokens, attention_mask=seen).logits
        hidden, self._hidden = self._hidden, None
        assert hidden is not None
        return scores, hidden, seen.bool()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, symbols: torch.Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return the scores of the classes, [B, K]; given `symbols` [B, n], the scores of the next ones, [B, n, V]."""
        scores, hidden, seen = self._encode(input_ids, attention_mask)
        if symbols is not None:
            if self.decoder is None:
                raise ValueError("this model does not spell its codes")
            scores = self.decoder(hidden, seen, symbols)
        return SequenceClassifierOutput(logits=scores)

    @torch.no_grad()
    def predict(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        top: int = 5,
        method: str = "blocks",
        threshold: float = 0.5,
    ) -> list[Found]:
        """Return the codes of texts, [B].

        Args:
            input_ids, attention_mask: [B, T], from the tokenizer.
            top: how many of the most probable codes to return.
            method: "blocks" (the decoder writes the codes symbol by symbol) or "linear" (the classifier).
            threshold: if a text may have several codes, the classifier gives a second or later code only from this
                probability on.
        """
        scores, hidden, seen = self._encode(input_ids, attention_mask)
        if method == "linear" or self.decoder is None:
            return self._by_classes(scores.float(), top, threshold)
        return _Search(self, hidden, seen, top).run()

    def _by_classes(self, scores: torch.Tensor, top: int, threshold: float) -> list[Found]:
        """Return the classifier's most probable code. If a text may have several, add those from the threshold on."""
        chances = scores.softmax(1) if self.exclusive else scores.sigmoid()
        best, index = chances.topk(min(max(top, self.blocks), chances.size(1)), 1)
        found = []
        for values, codes in zip(best.tolist(), index.tolist(), strict=True):
            pairs = [(self.codes[code], value) for code, value in zip(codes, values, strict=True)]
            several = [] if self.exclusive else [pair for pair in pairs[1 : self.blocks] if pair[1] >= threshold]
            found.append(Found(pairs[:1] + several, pairs[:top]))
        return found


class _Search:
    """Writes the codes of texts, block by block. A beam search in each block finds the most probable known codes.

    Args:
        model: a model with a decoder.
        hidden, seen: [B, T, H], the encoder's hidden states, and [B, T] bool, false at padding.
        top: how many of the most probable codes to return. The beam has this width, but at least `BEAMS`.
    """

    def __init__(self, model: CodesModel, hidden: torch.Tensor, seen: torch.Tensor, top: int):
        assert model.decoder is not None
        self._model, self._decoder = model, model.decoder
        self._text, self._seen, device = self._decoder.read(hidden), seen, hidden.device
        self._last = torch.full((len(hidden), 1), BEGIN, device=device)  # the last symbol so far
        self._before = model.decoder.nothing(hidden)
        spelt = model.spelt.to(device)
        self._table = torch.cat([spelt, torch.full_like(spelt[:1], PAD)])  # the last row is the empty block
        self._top, self._width = top, min(max(top, BEAMS), len(spelt))
        self._open = torch.ones(len(hidden), len(self._table), dtype=torch.bool, device=device)
        self._open[:, -1] = False  # the first block is never empty

    def run(self) -> list[Found]:
        """Return the predictions, one per text."""
        rows, known = len(self._seen), self._model.codes
        found: list[Found] = []
        for block in range(self._model.blocks):
            codes, chances = self._block()
            if not block:
                pairs = zip(codes.tolist(), chances.tolist(), strict=True)
                likeliest = ([(known[c], p) for c, p in zip(*each, strict=True) if p] for each in pairs)
                found = [Found([], codes_of[: self._top]) for codes_of in likeliest]
            best = codes[:, 0]
            for row, (code, chance) in enumerate(zip(best.tolist(), chances[:, 0].tolist(), strict=True)):
                if code < len(known) and chance:
                    found[row].codes.append((known[code], chance))
            self._open[:, -1] = True
            # No code is given twice, and after an empty block all blocks are empty.
            self._open[torch.arange(rows), best] = best == len(known)
            self._open[best == len(known), :-1] = False
            if bool((best == len(known)).all()):
                break
        return found

    def _block(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the most probable codes of the next block and their probabilities, both [B, W], in falling order."""
        rows, width, size, device = len(self._seen), self._width, self._table.size(1), self._seen.device
        codes, row = torch.arange(len(self._table), device=device), torch.arange(rows, device=device)[:, None]
        last, before, chances = self._last, self._before, torch.zeros(rows, 1, device=device)
        open_ = self._open[:, None]  # [B, beams, codes]: codes that begin with the beam's symbols
        for place in range(size):
            logits, before = self._decoder.advance(self._text, self._seen, last, before)
            beams, entries = logits.shape[1:]
            follows = torch.zeros(len(codes), entries, device=device)
            follows[codes, self._table[:, place]] = 1
            allowed = (open_.float() @ follows) > 0
            scores = (chances[..., None] + logits.float().log_softmax(-1)).masked_fill(~allowed, -torch.inf)
            chances, chosen = scores.flatten(1).topk(min(width, beams * entries), 1)
            beam, last = chosen // entries, chosen % entries
            before = [each[row, beam] for each in before]
            open_ = open_[row, beam] & (self._table[:, place] == last[..., None])
        self._last, self._before = last[:, :1], [each[:, :1] for each in before]
        return open_.int().argmax(2), chances.exp()
