"""ln p of tokens: rows that begin alike are read once, the head is computed only at targets, and what is kept is kept."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from babelmill.core.files import UserError
from babelmill.evaluation import likelihood
from babelmill.evaluation.kept import Kept
from babelmill.evaluation.likelihood import Model
from babelmill.evaluation.rows import Row, Text, bound, encode
from babelmill.model.transformers.configuration_norbert4 import NorBERT4Config
from babelmill.model.transformers.modeling_norbert4 import NorBERT4ForCausalLM, NorBERT4ForMaskedLM
from helpers.models import seeded
from helpers.models.published import norbert4

TOKENIZER = SimpleNamespace(pad_token_id=0)


class Neighbours(torch.nn.Module):
    """Gives a token a probability that depends on how many tokens beside it are hidden, and on where it stands."""

    config = SimpleNamespace(model_type="none", vocab_size=40)

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def get_output_embeddings(self):
        return None

    def forward(self, input_ids, attention_mask):
        hidden = (input_ids == 4).double()
        beside = torch.nn.functional.conv1d(hidden[:, None], torch.ones(1, 1, 3).double(), padding=1)[:, 0]
        logits = torch.zeros(*input_ids.shape, 40)
        logits[..., 16:20] = (5 - beside * (1 + torch.arange(input_ids.size(1)) % 2))[..., None].float()
        return SimpleNamespace(logits=logits)


def test_the_bound_of_diffusion_is_its_expectation():
    """That is the mean over k of 4 / k times the mean cross-entropy of all subsets of k of four tokens."""
    text, model = Text([1, 16, 17, 18, 19, 2], [1, 2, 3, 4]), Model(Neighbours(), TOKENIZER, causal=False)
    exact = 0.0
    for subset in range(1, 16):
        places = [at for at in text.scored if subset >> (at - 1) & 1]
        ids = [4 if at in places else token for at, token in enumerate(text.ids)]
        subsets = {1: 4, 2: 6, 3: 4, 4: 1}[len(places)]
        exact += model.log_probs([Row(ids, places, [text.ids[at] for at in places])]).sum() / len(places) / subsets
    made = [bound(text, 4, 2, number) for number in range(2000)]
    estimates = model.sums([row for rows in made for row in rows]).reshape(-1, 2).sum(1)
    spread = estimates.std() / len(estimates) ** 0.5
    assert 0 < spread < -0.02 * exact and abs(estimates.mean() - exact) < 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NorBERT4ForMaskedLM, NorBERT4ForCausalLM])
def test_the_head_is_computed_only_at_targets(kind: Any):
    """Of a NorBERT4, whose scores are those of its forward pass."""
    torch.manual_seed(0)
    model = kind(NorBERT4Config(**norbert4()[0], logits_alignment="mntp")).eval()
    rows = [Row([1, 20, 21, 22, 23], [2, 2, 4], [21, 40, 23]), Row([1, 30, 31], [1], [30])]
    ids = torch.tensor([rows[0].ids, [*rows[1].ids, 0, 0]])
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
    with torch.no_grad():
        scores = model(ids, mask).logits.log_softmax(-1)
    wanted = [scores[i, at - 1, token] for i, row in enumerate(rows) for at, token in zip(*row[1:3], strict=True)]
    computed: list[int] = []
    model.classifier.register_forward_hook(lambda _module, given, _output: computed.append(len(given[0])))
    found = Model(model, TOKENIZER, causal=kind is NorBERT4ForCausalLM).log_probs(rows)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert computed == [3], "two targets share a place"


PROMPT = [1, *range(20, 40)]
ALIKE = [  # beginnings, ends, a text twice, others that have all but one token, several or one in common
    [*PROMPT, 50, 51, 52],
    [*PROMPT, 50, 51],
    [*PROMPT, 50, 51],
    [*PROMPT, 60],
    [*PROMPT, 60, 61],
    [*PROMPT[:15], 70, 71],
    PROMPT[:3],
    [1, 80, 81, 82],
    [1, 80],
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt_bert", "gpt2"])
@pytest.mark.parametrize("positions", [1, 60, 1000])
@torch.inference_mode()
def test_what_rows_begin_with_alike_is_read_once_and_changes_no_score(kind, positions, tmp_path, monkeypatch):
    """The scores are those of each row alone, by the model as it is shipped; no batch changes them."""
    monkeypatch.setattr(likelihood, "POSITIONS", {"cpu": positions})
    folder = getattr(seeded, kind)(tmp_path / "model")
    shipped = [
        AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
        for _ in range(2)
    ]
    rows = [Row(ids[:-1], [*range(1, len(ids))], ids[1:]) for ids in ALIKE]
    rows += [Row(ids, [len(ids)], [90]) for ids in ALIKE]  # a word after a context
    expected = []
    for row in rows:
        logits = shipped[0](torch.tensor([row.ids])).logits[0].log_softmax(-1)
        expected += [logits[at - 1, token].item() for at, token in zip(row.places, row.targets, strict=True)]
    model = Model(shipped[1], TOKENIZER, causal=True)
    assert model.log_probs(rows) == pytest.approx(expected, abs=1e-4)
    read = sum(len(ids) for row in model._join(rows)[0] for _, ids in row)
    branches = 8 + 9 if kind == "gpt_bert" else 23 + 24  # 15 tokens of the first text are those of two others
    assert read == 17 + branches + 4


def kept_in(folder, made_of, *added: tuple[int, float]) -> list:
    """What is kept, after more was added."""
    kept = Kept(folder, made_of)
    for item, score in added:
        kept.add([item], np.array([[score]]))
    return [part.tolist() for part in kept.found]


@pytest.mark.parametrize("place", [0, 100, -9])
def test_scores_are_kept_until_what_they_depend_on_changes_and_no_flipped_bit_becomes_one(tmp_path, place):
    folder = tmp_path / "causal"
    assert kept_in(folder, {"a": 1}, (7, 0.5)) == [[[7, 0.5]]]
    assert kept_in(folder, {"a": 1}, (8, 1.5)) == [[[7, 0.5]], [[8, 1.5]]]
    first = min(folder.iterdir())
    content = bytearray(first.read_bytes())
    content[place if place <= 0 else content.index(np.float64(0.5).tobytes()) + 6] ^= 1
    first.write_bytes(content)
    assert kept_in(folder, {"a": 1}, (9, 2.5)) == [[[8, 1.5]], [[9, 2.5]]] == kept_in(folder, {"a": 1})
    assert kept_in(tmp_path / "masked", {"a": 1}) == [] == kept_in(folder, {"a": 2})
    assert not [*folder.iterdir()], "what nobody asks for is gone"


def test_a_tokenizer_without_a_token_to_begin_with_is_one_line():
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    with pytest.raises(UserError, match="no token that a sentence can begin with"):
        encode(tokenizer, ["a b"], causal=True)
    assert len(encode(tokenizer, ["a b"], causal=False)) == 1
