"""Presets: what each holds, which one a model has, and presets of one's own."""

import re
import shutil

import pytest
from test_config import configuration, refused

from babelmill import cli
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "multilingual"])
def test_presets_are_valid_and_carry_the_published_sizes(preset):
    model = configuration({"preset": preset}).model("eng").model
    sizes = {"tiny": (128, 384, 4, 4), "small": (384, 1280, 6, 12), "base": (768, 2560, 12, 12)}
    sizes["multilingual"] = (768, 3072, 12, 12)
    found = (model.hidden_size, model.intermediate_size, model.num_attention_heads, model.num_hidden_layers)
    assert found == sizes[preset]


PRESETS = sorted(path.stem for path in (ROOT / "config/presets").glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_and_says_what_it_is_for(preset):
    text = (ROOT / f"config/presets/{preset}.yaml").read_text()
    assert re.match(r"# .{20,}\n", text)
    configuration({"preset": preset}).corpus("eng")
    configuration({"preset": preset}).model("eng")


def test_a_preset_may_have_a_budget_for_the_text_of_its_language():
    made = configuration({"models": {"eng": {"preset": "1gpu_standard"}}})
    assert made.corpus("eng").corpus.budget == "250000 documents"
    assert made.corpus("eng").origins["corpus.budget"] == "config/presets/1gpu_standard.yaml"
    assert made.corpus("deu").corpus.budget is None
    made = configuration({"preset": "2gpu_standard", "languages": {"eng": {"corpus": {"budget": "1M words"}}}})
    assert [made.corpus(code).corpus.budget for code in ("eng", "deu")] == ["1000000 words", "500000 documents"]
    mixture = {"models": {"two": {"languages": ["eng", "deu"], "preset": "2gpu_standard"}}}
    assert "and eng has another preset: set languages.eng.corpus.budget" in refused(mixture, name="two")
    configuration(mixture, {"corpus": {"budget": "1M words"}}).model("two")
    other = {"preset": "1gpu_standard", "models": {"big": {"languages": ["eng"], "preset": "h200_8gpu_quality"}}}
    assert "preset h200_8gpu_quality of model big sets corpus.budget = 2M documents" in refused(other, name="big")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Mine.\ntran: {epochs: 3}\n", "config/presets/mine.yaml: unknown section tran; did you mean train"),
        (
            "# Mine.\ncorpus: {files: [a.txt]}\n",
            "mine.yaml: a preset may set only one key of the section corpus, corpus.budget",
        ),
        ("# Mine.\ntrain: {epoch: 3}\n", "config/presets/mine.yaml: unknown key train.epoch; did you mean epochs"),
        ("# Mine.\ncorpus:\n", "mine.yaml: corpus = None: keys are expected; leave out a section that has none"),
    ],
)
def test_a_preset_of_ones_own_is_checked(tmp_path, text, message):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config/presets/mine.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        Configuration([("config.yaml", {"preset": "mine"})], tmp_path).model("eng")
    assert message in str(error.value)


def test_preset_follows_the_tier():
    made = configuration({"models": {"nordic": {"languages": ["dan", "swe"]}}})
    assert [made.model(name).preset for name in ("eng", "jpn", "zul", "nordic")] == [
        "base",
        "small",
        "small",
        "multilingual",
    ]


def test_a_model_of_another_type_has_none_of_a_presets_keys():
    llama = {"model_type": "llama", "hidden_size": 64}
    made = configuration({"preset": "gpt2_30m", "models": {"eng": {"model": {"config": llama}}}}).model("eng")
    assert made.model.config == llama
    made = configuration({"preset": "gpt2_30m", "models": {"eng": {"model": {"config": {"n_embd": 64}}}}}).model("eng")
    assert made.model.config == {"model_type": "gpt2", "n_embd": 64, "n_layer": 8, "n_head": 8}


def test_presets_are_listed_with_the_first_sentence_of_their_files(tmp_path, monkeypatch, capsys):
    """Also those of one's own; without a configuration and without network."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/presets").mkdir(parents=True)
    comment = "# yaml-language-server: $schema=x\n#For my\n#  laptop\x1b[2J. It is slow.\n#\n# More.\n"
    (tmp_path / "config/presets/mine.yaml").write_text(f"{comment}train: {{epochs: 3}}\n")
    assert cli.main(["config", "--presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    about = dict(line.split(maxsplit=1) for line in lines)
    assert about["mine"].startswith("For my laptop") and "\x1b" not in about["mine"] and "slow" not in about["mine"]
    assert about.keys() >= {"mine", *PRESETS} and max(map(len, lines)) <= 100
