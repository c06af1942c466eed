"""Presets of published baselines: their sizes are those that their authors give."""

import pytest

from babelmill.commands.plan import size_of_model
from babelmill.config.resolve import ROOT, Configuration
from babelmill.graph import Graph

# The exact number of parameters, and what the authors say it is, in millions. For GPT-BERT it is the number that a
# reproduction counts on the published configuration; the model's card says 31.
SIZES = {
    "babybabellm_gpt2_17m": (17_067_008, "17.1"),
    "babybabellm_gpt2_111m": (110_615_040, "111"),
    "babylm2026_gpt2": (98_425_344, "98.4"),
    "gptbert_2025_masked": (33_046_084, "33"),
    "gptbert_2025_mixed": (33_046_084, "33"),
    "gptbert_2025_causal": (33_046_084, "33"),
}


def with_preset(preset: str) -> Configuration:
    return Configuration([("test", {"models": {"a": {"languages": ["eng"], "preset": preset}}})])


@pytest.mark.parametrize("preset", SIZES)
def test_the_number_of_parameters_is_the_published_one(preset):
    count = size_of_model(Graph(with_preset(preset)), "a").parameters
    exact, published = SIZES[preset]
    decimals = len(published.partition(".")[2])
    assert (count, f"{count / 1e6:.{decimals}f}") == (exact, published)


def test_the_gpt_berts_differ_in_the_share_of_masked_rows_alone():
    models = {kind: with_preset(f"gptbert_2025_{kind}").model("a") for kind in ("masked", "mixed", "causal")}
    assert {kind: made.train.hybrid_ratio for kind, made in models.items()} == {
        **{"masked": "15/16", "mixed": "1/2", "causal": "1/16"}
    }
    same = [made.train.model_copy(update={"hybrid_ratio": ""}) for made in models.values()]
    assert same[0] == same[1] == same[2] and len({made.model.model_dump_json() for made in models.values()}) == 1


@pytest.mark.parametrize("preset", SIZES)
def test_a_preset_says_where_its_numbers_come_from(preset):
    text = (ROOT / f"config/presets/{preset}.yaml").read_text(encoding="utf-8")
    assert "# Where the numbers come from:" in text and "# What cannot be the same here:" in text
