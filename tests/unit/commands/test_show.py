"""`babelmill show` on folders whose tokenizers are published ones."""

import argparse
import io
import re
import sys
from pathlib import Path

import pytest

from babelmill import cli
from babelmill.commands import show
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.evaluation.metrics import described
from babelmill.release.folder import trying
from helpers.models.published_models import publish
from helpers.stages import any_settings


def without(path: Path, name: str) -> None:
    """Remove a key from a file."""
    write_json(path, {key: value for key, value in read_json(path).items() if key != name})


def test_a_published_tokenizer_may_have_no_mask_token(tmp_path):
    """As LLaDA's: config.json says which token hides another. Words cannot be hidden in a text then."""
    folder = publish("eurobert", tmp_path / "eurobert")
    wanted = trying.unmask(folder, "the quick")
    without(folder / "tokenizer_config.json", "mask_token")
    assert trying.unmask(folder, "the quick") == wanted and wanted.startswith("the quick")
    with pytest.raises(UserError, match=r"--masked 'the <mask>': the tokenizer in .* has no token for a hidden word"):
        trying.fill_mask(folder, "the <mask>")
    folder = publish("bert", tmp_path / "bert")
    without(folder / "tokenizer_config.json", "mask_token")
    without(folder / "config.json", "mask_token_id")
    with pytest.raises(UserError, match=r"neither tokenizer nor config\.json says which token hides another"):
        trying.unmask(folder, "the quick")


def test_each_mask_is_filled(tmp_path):
    folder = publish("bert", tmp_path / "bert")
    text, first, second = trying.fill_mask(folder, "the [MASK] brown [MASK]").split("\n")
    assert text == "  the [MASK] brown [MASK]" and first != second
    assert all(len(re.findall(r"'[^']*' 0\.\d\d", line)) == 5 for line in (first, second))
    assert trying.fill_mask(folder, "the [MASK] brown").count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "option", "mask", "more"),
    [
        ("bert", "masked", "[MASK]", ""),
        ("gpt2", "prompt", "", " with those that follow"),
        ("eurobert", "prompt", "", " with those that follow"),
    ],
)
def test_a_text_longer_than_the_model_reads_is_refused_in_a_line(tmp_path, kind, option, mask, more):
    """64 tokens, with those that follow: a prompt of 60 gets 4 more."""
    folder, long = publish(kind, tmp_path / kind), " 0" * 70
    of = {"bert": trying.fill_mask, "gpt2": trying.complete, "eurobert": trying.unmask}[kind]
    with pytest.raises(UserError, match=rf"^--{option} has \d+ tokens, but the model reads only 64{more}: shorten it$"):
        of(folder, mask + long)
    assert kind == "bert" or "0 0 0" in of(folder, long[:60])


def test_the_beginning_of_a_text_may_be_empty(tmp_path):
    folder = publish("gpt2", tmp_path / "gpt2")
    assert trying.complete(folder, "").startswith("   ...\n    ")
    without(folder / "tokenizer_config.json", "bos_token")
    with pytest.raises(UserError, match="has no token for the beginning of a text"):
        trying.complete(folder, "")
    assert trying.unmask(publish("eurobert", tmp_path / "eurobert"), "")


def test_scores_and_what_is_asked_for_are_shown(tmp_path, capsys, monkeypatch):
    """The scores on suites, too. A text is tried even if it is empty. A terminal obeys nothing in a name."""
    folder = publish("gpt2", tmp_path / "gpt")
    score = {"value": 1.5, "standard_error": 0.01, "nats_per_token": 2.0}
    evaluation = {"metrics": described(["causal", "unigram"]), "variants": {"main": {"causal": score}}}
    evaluation |= {"unigram": score, "documents": {"scored": 2, "of": 2}}
    share = {"score": 0.73, "n": 2000, "interval": [0.68, 0.78]}
    methods = {"causal": {"pairs": share, "paradigms": share, "by_phenomenon": {"all": share}}}
    found = {"headline": {"of": "pairs", "method": "causal"}, "languages": {"eng": {"methods": methods}}}
    figures = {"evaluation": evaluation, "scores": {"blimp": found}}
    manifest.write(folder, any_settings("convert", languages=["eng"]), ["config.json"], figures=figures)
    folder = folder.rename(tmp_path / "gpt\x1b[2J")
    monkeypatch.setattr(sys, "stdout", screen := io.StringIO())
    screen.isatty = lambda: True
    assert cli.run(["show", str(folder)]) == 0
    assert "gpt\\x1b[2J\n" in screen.getvalue()
    monkeypatch.undo()
    show.run(argparse.Namespace(folder=folder, masked=None, prompt="", held_out=None))
    shown = capsys.readouterr().out
    line = (
        r"\n  validation text +eng +causal +1\.500 +1\.480 to 1\.520 +1\.500 +bits per byte +not better than simple\n"
    )
    assert re.search(line, shown)
    assert re.search(r"\n  blimp +eng +causal +73\.0 +68\.0 to 78\.0 +50\.0 +%\n", shown)
    assert shown.count("...\n") == 1
