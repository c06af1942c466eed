"""A NorBERT4 scores tokens by the numbers of its forward pass, but computes its head only where there is a target."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from babelmill.model.transformers.configuration_norbert4 import NorBERT4Config
from babelmill.model.transformers.modeling_norbert4 import NorBERT4ForCausalLM, NorBERT4ForMaskedLM
from babelmill.suites.sentences import Scorer
from helpers.models.published import norbert4

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", [NorBERT4ForMaskedLM, NorBERT4ForCausalLM])
def test_the_head_is_computed_only_at_targets(kind: Any):
    torch.manual_seed(0)
    model = kind(NorBERT4Config(**norbert4()[0], logits_alignment="mntp")).eval()
    rows, asked = [[1, 20, 21, 22, 23], [1, 30, 31]], np.array([[0, 2, 21], [0, 2, 40], [0, 4, 23], [1, 1, 30]])
    ids = torch.tensor([rows[0], [*rows[1], 0, 0]])
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
    with torch.no_grad():
        scores = model(ids, mask).logits.log_softmax(-1)
    wanted = [scores[row, place - 1, token] for row, place, token in asked.tolist()]
    computed: list[int] = []
    model.classifier.register_forward_hook(lambda _module, given, _output: computed.append(len(given[0])))
    tokenizer = SimpleNamespace(pad_token_id=0)
    found = Scorer(model, tokenizer, causal=kind is NorBERT4ForCausalLM).at(rows, asked)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert computed == [3], "two targets share a place"
