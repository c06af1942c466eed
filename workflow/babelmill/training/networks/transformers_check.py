"""Test before training whether a transformers model computes what training assumes. If it does not, refuse it.

The test uses a small model of the same class, with random weights (`smaller` says why this is enough):

* A row of one document has the same scores as without our mask, also if it is longer than the model's window.
* If a row has two documents, neither changes the scores of the other, and each has the same scores as if it were alone.
* A model that predicts hidden tokens reads both sides; a model that predicts the next token reads only the left side.
* The features times the output matrix are the scores. A model that caps scores afterwards has another loss. (A model
  that scales scores passes, since the scale is then applied to the features.)
"""

import contextlib
import copy
import logging

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from babelmill.core.files import UserError
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.networks.transformers_models import (
    MASKED,
    NAME,
    documents,
    first_position,
    make_model,
    on_meta,
    output_layer,
    positions,
    refused,
)

log = logging.getLogger(__name__)

TOLERANCE = 1e-5  # how much another order of sums may change a score, relative to the largest score
SHORTEST = 32  # tokens of a row, unless rows in training are shorter
LAYERS = 2  # the fewest layers of the smaller model: else no layer would read what another has written
TOKENS = 1024  # tokens of its vocabulary
WINDOWS = ("sliding_window", "local_attention", "attention_window")


def pass_through(features: torch.Tensor) -> torch.Tensor:
    """Stand in for the output layer."""
    return features


def prove(config: PreTrainedConfig, auto: str, vocabulary: Vocabulary, length: int) -> int | None:
    """Test a kind of model. Return its first position id, or None if it takes no position ids.

    If the smaller model cannot be made or fails to compute, the whole model is tested, with rows up to `length`. A
    UserError says that it does not compute what training assumes.
    """
    problem: Exception | None = None
    for candidate in (smaller, lambda config, _: config):
        if problem is not None:
            log.warning(
                "the test of a smaller model failed (%r): the whole model is made on the CPU and tested", problem
            )
        try:
            return Proof(make_model(candidate(config, auto), auto), auto == MASKED, vocabulary, length).run()
        except _Failed as failure:
            raise refused(config.model_type, failure) from None
        except Exception as error:  # whatever a model's code raises
            problem = error
    raise problem if isinstance(problem, UserError) else refused(config.model_type, problem) from problem


def smaller(config: PreTrainedConfig, auto: str) -> PreTrainedConfig:
    """Return the configuration of a smaller model of the same class, `auto`, for a host whose memory is too small.

    It has only the first tokens of the vocabulary, and two layers, or the first layers up to the point where each kind
    of `layer_types` has occurred. Widths stay as they are: the test looks at rounding and at the size of scores, which
    depend on them. `config` itself does not change.
    """
    found, count = copy.deepcopy(config), getattr(config, "num_hidden_layers", 0)
    kinds = getattr(config, "layer_types", None) or []
    layers = max([LAYERS, *(kinds.index(kind) + 1 for kind in kinds)])
    if layers < count:
        found.num_hidden_layers = layers
        for key, value in vars(config).items():
            if isinstance(value, list) and len(value) == count:
                setattr(found, key, value[:layers])
    from_a_token = first_position(on_meta(config, auto))  # positions are counted from the id of a token
    if not from_a_token and config.vocab_size > TOKENS:
        found.vocab_size = TOKENS
        for key, value in vars(config).items():
            if key.endswith("_token_id") and isinstance(value, int) and value >= TOKENS:
                setattr(found, key, 0)
    return found


class Proof:
    """Runs a model on random rows up to a length, in evaluation mode, and checks the scores.

    The model keeps documents apart and is on the CPU; rows are made of ordinary tokens of the vocabulary.
    """

    def __init__(self, model: PreTrainedModel, hides: bool, vocabulary: Vocabulary, length: int):
        self._model, self._hides = model, hides
        entries = min(vocabulary.size, model.config.vocab_size)
        self._ordinary = torch.tensor([i for i in range(entries) if i not in vocabulary.special])
        self._generator = torch.Generator().manual_seed(0)
        windows = [getattr(model.config, name, None) for name in WINDOWS]
        window = max([value for value in windows if isinstance(value, int)], default=0)
        self._length = max(2, min(length, max(SHORTEST, 2 * window + 2)))
        self._first: int | None = None

    @torch.no_grad()
    def run(self) -> int | None:
        """Return the first position id, or None if the model takes none. Raise `_Failed` if a check fails."""
        self._model.eval()
        self._one_document()
        self._two_documents()
        self._sides()
        self._features()
        return self._first

    def _ids(self) -> torch.Tensor:
        drawn = torch.randint(len(self._ordinary), (1, self._length), generator=self._generator)
        return self._ordinary[drawn]

    def _scores(self, ids: torch.Tensor, segments: torch.Tensor | None = None) -> torch.Tensor:
        """Return the scores [T, V] of a row."""
        given = {}
        if segments is not None and self._first is not None:
            given["position_ids"] = positions(segments) + self._first
        with documents(segments):
            return self._model(input_ids=ids, **given).logits[0]

    def _one_document(self) -> None:
        """Compare with transformers' own masks, and find out how positions are counted."""
        ids = self._ids()
        self._model.set_attn_implementation("sdpa")
        wanted = self._scores(ids)
        self._model.set_attn_implementation(NAME)
        one = torch.zeros_like(ids)
        _require(_same(self._scores(ids, one), wanted), "a row of one document has other scores with document masks")
        self._first = first_position(self._model)
        with contextlib.suppress(TypeError, IndexError):  # it takes no position ids, or has too few
            if _same(self._scores(ids, one), wanted):
                return
        self._first = None

    def _two_documents(self) -> None:
        ids, middle = self._ids(), self._length // 2
        segments = torch.zeros_like(ids)
        segments[:, middle:] = 1
        before = self._scores(ids, segments)
        for part, other in ((slice(0, middle), slice(middle, None)), (slice(middle, None), slice(0, middle))):
            changed = ids.clone()
            changed[:, part] = self._ids()[:, part]
            after = self._scores(changed, segments)
            _require(_same(before[other], after[other]), "documents in the same row see each other")
        alone = self._scores(ids[:, middle:], torch.zeros_like(ids[:, middle:]))
        _require(_same(before[middle:], alone), "a document's scores depend on its place in the row")

    def _sides(self) -> None:
        ids, middle = self._ids(), self._length // 2
        changed = ids.clone()
        changed[0, middle] = self._ordinary[(self._ordinary == ids[0, middle]).int().argmin()]
        one = torch.zeros_like(ids)
        before, after = self._scores(ids, one), self._scores(changed, one)
        # A mixture of experts may send other tokens to an expert, which changes the order of sums: 4e-7 were measured.
        # A token that is read changed them by 2e-4 and more (seven kinds of models, rows of up to 2,048 tokens).
        differs = (after - before).abs().amax(1) > TOLERANCE * before.abs().max()
        _require(bool(differs[middle + 1 :].any()), "its scores do not depend on earlier tokens")
        left = bool(differs[:middle].any())
        _require(left or not self._hides, "it reads no later tokens, which train.objective: masked or diffusion needs")
        _require(not left or self._hides, "it reads later tokens, which train.objective: causal must not")

    def _features(self) -> None:
        """Check that nothing after the output layer changes the scores."""
        ids, layer = self._ids(), output_layer(self._model)
        wanted = self._scores(ids)
        layer.forward = pass_through
        found = self._scores(ids)
        matrix, bias = layer.weight, getattr(layer, "bias", None)
        fits = found.size(-1) == matrix.size(-1)  # pyright: ignore[reportCallIssue]
        text = "its scores are not the product of its features and its output matrix (it caps them)"
        _require(fits and _same(torch.nn.functional.linear(found, matrix, bias), wanted), text)  # pyright: ignore


class _Failed(Exception):
    """Says which check failed."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Failed(otherwise)


def _same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found - wanted).abs().max() <= TOLERANCE * wanted.abs().max())
