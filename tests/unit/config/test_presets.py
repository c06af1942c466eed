"""Presets: what each holds, which ones a model has, and presets of one's own."""

import re
from pathlib import Path

import pytest
from test_config import configuration

from babelmill import cli
from babelmill.commands.plan import size_of_model
from babelmill.config.resolve import ROOT
from babelmill.graph import Graph

PRESETS = sorted(path.stem for path in (ROOT / "config/presets").glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_and_says_what_it_is_for(preset):
    text = (ROOT / f"config/presets/{preset}.yaml").read_text()
    assert re.match(r"# .{20,}\n", text)
    configuration({"preset": preset}).model("eng")


def test_of_several_presets_the_later_one_wins_and_the_user_beats_both():
    made = configuration({"preset": ["tiny", "tuned"], "train": {"learning_rate": 0.003}})
    model = made.model("eng")
    assert (model.train.optimizer, model.train.weight_decay, model.train.learning_rate) == ("muon", 0.5, 0.003)
    assert model.train.global_batch_tokens == 4096 and model.preset == "tiny+tuned"
    assert model.origins["train.optimizer"] == "config/presets/tuned.yaml"
    assert model.origins["train.learning_rate"] == "layer0.yaml"


def test_a_model_may_have_presets_of_its_own():
    """Also those that it inherits, and as what an experiment varies."""
    models = {"eng": {"preset": ["tiny", "tuned"]}, "more": {"like": "eng"}, "old": {"like": "more", "preset": "tiny"}}
    grid = {"base": "deu", "vary": {"preset": ["tiny", ["tiny", "tuned"]]}, "compare_with": {"preset": "tiny"}}
    made = configuration({"models": models, "experiments": {"both": grid}})
    optimizers = [made.model(name).train.optimizer for name in ("eng", "more", "old", *made.groups["both"])]
    assert optimizers == ["muon", "muon", "lamb", "lamb", "muon"]


def test_presets_are_listed_with_the_first_sentence_of_their_comment(folder, capsys):
    Path("config/presets").mkdir(parents=True)
    Path("config/presets/mine.yaml").write_text("#For my\n#  laptop. It is old.\n#\n# More.\ntrain: {epochs: 3}\n")
    assert cli.main(["config", "--presets"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines.keys() == {*PRESETS, "mine"} and max(map(len, lines.values())) <= 100
    assert lines["mine"].split(None, 1)[1] == "For my laptop"


def test_auto_follows_the_tier():
    made = configuration({"models": {"nordic": {"languages": ["dan", "swe"]}}})
    models = [made.model(name) for name in ("eng", "jpn", "zul", "nordic")]
    assert [each.preset for each in models] == ["base", "small", "small", "multilingual"]
    sizes = [(each.model.hidden_size, each.model.intermediate_size, each.model.num_hidden_layers) for each in models]
    assert sizes == [(768, 2560, 12), *[(384, 1280, 12)] * 2, (768, 3072, 12)], "the published ones"


def test_a_model_of_another_type_has_none_of_a_presets_keys():
    llama, gpt2 = {"model_type": "llama", "hidden_size": 64}, {"model_type": "gpt2", "n_layer": 8, "n_head": 8}
    for config, whole in ((llama, llama), ({"n_embd": 64}, gpt2 | {"n_embd": 64})):
        made = configuration({"preset": "gpt2_30m", "models": {"eng": {"model": {"config": config}}}})
        assert made.model("eng").model.config == whole


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


@pytest.mark.parametrize("preset", SIZES)
def test_the_number_of_parameters_is_the_published_one(preset):
    count = size_of_model(Graph(configuration({"preset": preset})), "eng").parameters
    exact, published = SIZES[preset]
    decimals = len(published.partition(".")[2])
    assert (count, f"{count / 1e6:.{decimals}f}") == (exact, published)
