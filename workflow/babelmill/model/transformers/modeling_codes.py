"""A model of labels for transformers: an encoder with its classifier, and a decoder that spells codes.

`AutoModelForSequenceClassification` loads the encoder and the classifier alone, without this file. `AutoModel` (with
`trust_remote_code=True`) loads this class, whose `predict` says which codes a text has.

This file is shipped inside exported models: it imports nothing but torch, transformers, safetensors, the standard
library and what stands beside it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.hub import cached_file

from ..code_decoder import CodeDecoder, padded

PAD, BEGIN, END, FIRST = 1, 2, 3, 5  # ids of an empty block's symbol, of what begins, of what fills a block, of symbols
BEAMS = 5  # of a text that is spelt, at least: who asks for one code gets the first of five


class Found(NamedTuple):
    """What is predicted of a text.

    Attributes:
        codes: that it has, each with its probability; none if it has none.
        likeliest: the most probable codes, each with its probability, the first one first.
    """

    codes: list[tuple[str, float]]
    likeliest: list[tuple[str, float]]


class CodesModel(PreTrainedModel):
    """Predicts the codes of texts, as classes and symbol by symbol.

    Args:
        config: of the encoder; `config.labels` says which codes there are, how they are spelt, and what the decoder is.
        encoder: with the classifier; made from `config` if it is not there.
    """

    config_class = PreTrainedConfig
    base_model_prefix = "encoder"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # the encoder says whether it does

    def __init__(self, config: PreTrainedConfig, encoder: PreTrainedModel | None = None, **_: Any):
        super().__init__(config)
        labels: dict[str, Any] = config.labels
        made = encoder or AutoModelForSequenceClassification.from_config(config, trust_remote_code=True)
        self.encoder = made
        self.codes, self.blocks, self.exclusive = list(labels["codes"]), labels["blocks"], labels["exclusive"]
        self.threshold: float = labels.get("threshold", 0.5)
        self.decoder = None
        spelt = torch.tensor(labels["spelt"]) if labels["decoder_layers"] else torch.zeros(len(self.codes), 0)
        self.spelt = spelt.long()
        if labels["decoder_layers"]:
            longest = labels["blocks"] * labels["block_size"]
            self.decoder = CodeDecoder(labels["entries"], config.hidden_size, labels["decoder_layers"], longest)
        self._hidden: torch.Tensor | None = None
        self.encoder.base_model.register_forward_hook(self._keep)

    @classmethod
    def from_pretrained(cls, path: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Load the encoder as its class does, and the decoder from its own file."""
        kwargs.pop("config", None)
        kwargs["trust_remote_code"] = True  # as for this class, of the same folder
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

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, symbols: torch.Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Return the scores of the classes, [B, K]; with `symbols` [B, n], of those after them, [B, n, V]."""
        input_ids, attention_mask = padded(input_ids, attention_mask, self.config)
        scores = self.encoder(input_ids=input_ids, attention_mask=attention_mask).logits
        hidden, self._hidden = self._hidden, None
        if symbols is not None:
            if self.decoder is None or hidden is None:
                raise ValueError("this model does not spell its codes")
            scores = self.decoder(hidden, attention_mask.bool(), symbols)
        return SequenceClassifierOutput(logits=scores)

    @torch.no_grad()
    def predict(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        top: int = 5,
        method: str = "blocks",
        threshold: float | None = None,
    ) -> list[Found]:
        """Return the codes of texts, [B].

        Args:
            input_ids, attention_mask: [B, T], of the tokenizer.
            top: how many of the likeliest codes to return.
            method: "blocks", as the decoder spells them, or "linear", by the classifier.
            threshold: of a text that may have several codes, from which probability on the classifier gives a further
                one; None: `config.labels["threshold"]`, or 0.5 where it holds none.
        """
        input_ids, attention_mask = padded(input_ids, attention_mask, self.config)
        scores = self.encoder(input_ids=input_ids, attention_mask=attention_mask).logits.float()
        hidden, self._hidden = self._hidden, None
        if method == "linear" or self.decoder is None:
            return self._by_classes(scores, top, self.threshold if threshold is None else threshold)
        assert hidden is not None
        return _Search(self, hidden, attention_mask.bool(), top).run()

    def _by_classes(self, scores: torch.Tensor, top: int, threshold: float) -> list[Found]:
        """Return what the classifier says: the likeliest code, and where a text may have several, all that are as
        probable as the threshold."""
        chances = scores.softmax(1) if self.exclusive else scores.sigmoid()
        best, index = chances.topk(min(max(top, self.blocks), chances.size(1)), 1)
        found = []
        for values, codes in zip(best.tolist(), index.tolist(), strict=True):
            pairs = [(self.codes[code], value) for code, value in zip(codes, values, strict=True)]
            several = [] if self.exclusive else [pair for pair in pairs[1 : self.blocks] if pair[1] >= threshold]
            found.append(Found(pairs[:1] + several, pairs[:top]))
        return found


class _Search:
    """Spells the codes of texts, block by block, each by a beam search among those that are known.

    Args:
        model: with a decoder.
        hidden, seen: [B, T, H] and [B, T], of the encoder.
        top: how many of the likeliest codes to return; the beam is as wide, or `BEAMS`.
    """

    def __init__(self, model: CodesModel, hidden: torch.Tensor, seen: torch.Tensor, top: int):
        assert model.decoder is not None
        self._model, self._decoder = model, model.decoder
        self._text, self._seen, device = self._decoder.read(hidden), seen, hidden.device
        self._last = torch.full((len(hidden), 1), BEGIN, device=device)  # symbol of what is spelt so far
        self._before = model.decoder.nothing(hidden)
        spelt = model.spelt.to(device)
        self._table = torch.cat([spelt, torch.full_like(spelt[:1], PAD)])  # the last one is the empty block
        self._top, self._width = top, min(max(top, BEAMS), len(spelt))
        self._open = torch.ones(len(hidden), len(self._table), dtype=torch.bool, device=device)
        self._open[:, -1] = False  # the first block is never empty

    def run(self) -> list[Found]:
        """Return what is found."""
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
            self._open[torch.arange(rows), best] = best == len(known)  # no code twice; after an empty block, only such
            self._open[best == len(known), :-1] = False
            if bool((best == len(known)).all()):
                break
        return found

    def _block(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the likeliest codes of the next block, [B, W] with their probabilities, the likeliest first."""
        rows, width, size, device = len(self._seen), self._width, self._table.size(1), self._seen.device
        codes, row = torch.arange(len(self._table), device=device), torch.arange(rows, device=device)[:, None]
        last, before, chances = self._last, self._before, torch.zeros(rows, 1, device=device)
        open_ = self._open[:, None]  # [B, beams, codes]: which codes begin as a beam does
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
