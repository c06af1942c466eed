"""`babelmill show` on folders whose tokenizers are published ones."""

from pathlib import Path

import pytest

from babelmill.commands import show
from babelmill.core.files import UserError, read_json, write_json
from published_models import publish


def without(path: Path, name: str) -> None:
    """Remove a key from a file."""
    write_json(path, {key: value for key, value in read_json(path).items() if key != name})


def test_a_published_tokenizer_may_have_no_mask_token(tmp_path):
    """As LLaDA's: config.json says which token hides another. Words cannot be hidden in a text then."""
    folder = publish("eurobert", tmp_path / "eurobert")
    wanted = show.unmask(folder, "the quick", 2)
    without(folder / "tokenizer_config.json", "mask_token")
    assert show.unmask(folder, "the quick", 2) == wanted and wanted.startswith("the quick")
    with pytest.raises(UserError, match=r"--masked 'the <mask>': the tokenizer in .* has no token for a hidden word"):
        show.fill_mask(folder, "the <mask>")
    folder = publish("bert", tmp_path / "bert")
    without(folder / "tokenizer_config.json", "mask_token")
    without(folder / "config.json", "mask_token_id")
    with pytest.raises(UserError, match=r"neither tokenizer nor config\.json says which token hides another"):
        show.unmask(folder, "the quick", 2)
