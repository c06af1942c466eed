"""Codes of labelled text: how they are written and spelt, and the loss that does not depend on their order."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from babelmill.model.code_decoder import CodeDecoder
from babelmill.tokens.codes import BEGIN, END, FIRST, PAD, Codes, written
from babelmill.training.block_loss import block_losses

GOLDEN = Path(__file__).parents[1] / "data/block_loss.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    """Losses and gradients of the published code; see `tests/data/README.md`."""
    return load_file(GOLDEN)


def losses_of(logits: torch.Tensor, sequence: torch.Tensor, count: int, push: int) -> torch.Tensor:
    """The loss of each row as published: the mean over its codes, and what pushes the rest to be empty."""
    blocks = sequence[:, 1:-1].view(len(sequence), count, -1)
    of_codes, of_empty = block_losses(logits[:, :-1], blocks, PAD)
    return of_codes.sum(1) / (of_codes > 0).sum(1) + push * of_empty


@pytest.mark.parametrize("push", [0, 1])
@pytest.mark.parametrize(("count", "size"), [(2, 3), (5, 5), (5, 8)])
def test_the_loss_is_that_of_the_published_code(golden, count, size, push):
    name = f"{count}x{size}"
    logits = golden[f"{name}.logits"].requires_grad_()
    found = losses_of(logits, golden[f"{name}.sequence"], count, push)
    torch.testing.assert_close(found, golden[f"{name}.push{push}.row_losses"], atol=1e-9, rtol=0)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(gradient, golden[f"{name}.push{push}.grad_of_sum"], atol=1e-9, rtol=0)


def test_the_order_of_codes_changes_nothing(golden):
    logits, sequence = golden["5x5.logits"], golden["5x5.sequence"]
    swapped = sequence.clone()
    several = (sequence[:, 6:11] != PAD).all(1)
    assert several.sum() > 1
    swapped[several, 1:6], swapped[several, 6:11] = sequence[several, 6:11], sequence[several, 1:6]
    assert not torch.equal(swapped, sequence)
    torch.testing.assert_close(losses_of(logits, swapped, 5, 1), losses_of(logits, sequence, 5, 1), atol=1e-12, rtol=0)


def test_codes_are_written_as_their_system_has_them():
    assert written("1234", "hisco", 0) == "01234" and written("-1", "hisco", 0) == "-1"
    assert written("7", "occ1950", 0) == "007"
    assert written("1234", "general", 8) == "1234", "here, a zero may mean something"
    assert written("Farm worker", "classes", 0) == "Farm worker"
    assert written("?", "general", 1) == "?"
    for text, system, message in [
        ("123456", "hisco", "'123456' is longer than 5 symbols (labels.block_size)"),
        ("6-110", "hisco", "'6-110' is no code of hisco: it holds -"),
        ("12a", "occ1950", "'12a' is no code of occ1950: it holds a"),
        ("?", "hisco", "'?' is no code of hisco: it holds ?"),
        ("ABCD", "general", "'ABCD' is longer than 3 symbols (labels.block_size)"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            written(text, system, 3)


def test_codes_are_spelt_with_the_published_ids():
    codes = Codes(["-1", "01234", "61110"], "hisco", 0)
    assert codes.entries == 18 and codes.index["61110"] == 2
    assert codes.blocks.tolist() == [[7] * 5, [8, 9, 10, 11, 12], [14, 9, 9, 9, 8]]
    general = Codes(["A1", "B"], "general", 3)
    assert general.symbols == ("1", "A", "B")
    assert general.blocks.tolist() == [[FIRST + 1, FIRST, END], [FIRST + 2, END, END]]
    assert Codes(["mill", "farm"], "classes", 0).blocks.shape == (2, 0)


def test_the_decoder_sees_no_later_symbol_and_no_padding():
    torch.manual_seed(0)
    decoder = CodeDecoder(18, 24, layers=2, longest=26).double().eval()
    hidden, symbols = torch.randn(2, 7, 24).double(), torch.randint(FIRST, 18, (2, 6))
    symbols[:, 0] = BEGIN
    seen = torch.arange(7) < torch.tensor([[7], [4]])
    before = decoder(hidden, seen, symbols)
    changed = symbols.clone()
    changed[:, 4] = FIRST
    assert torch.equal(decoder(hidden, seen, changed)[:, :4], before[:, :4])
    assert not torch.equal(decoder(hidden, seen, changed)[:, 4:], before[:, 4:])
    longer = torch.cat([hidden, torch.randn(2, 5, 24)], 1)
    more = torch.cat([seen, torch.zeros(2, 5, dtype=torch.bool)], 1)
    torch.testing.assert_close(decoder(longer, more, symbols), before, atol=1e-12, rtol=0)
    assert np.isfinite(before.detach().numpy()).all()
