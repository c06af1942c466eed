"""The configuration: layers, coercion, and errors that name file, key, value and what is allowed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml

from babelmill.config import schema
from babelmill.config.inputs import hub_datasets
from babelmill.config.resolve import ROOT, Configuration
from babelmill.config.schema import SECTIONS, User
from babelmill.core.files import UserError, write_json
from babelmill.settings import read_settings, recorded, settings_of, write_settings
from babelmill.stages import STAGES, RunSettings, TrainSettings

TEXT = {"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}


def configuration(*layers):
    return Configuration([(f"layer{number}.yaml", layer) for number, layer in enumerate(layers)])


def refused(*layers, name="eng"):
    """The one line of error for these layers."""
    with pytest.raises(UserError) as error:
        made = configuration(*layers)
        settings_of(made, name, "train")
        settings_of(made, name, "corpus")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_defaults_hold_every_key_and_document_it():
    text = (ROOT / "config/defaults.yaml").read_text()
    values = yaml.safe_load(text)
    assert set(values) == {*User.model_fields, *SECTIONS}
    for section, section_type in SECTIONS.items():
        assert list(values[section]) == list(section_type.model_fields), f"{section}: other keys, or in another order"
    for line in text.splitlines():
        continued = line.startswith(" " * 8)
        if line.strip() and not line.strip().startswith("#") and not line.strip().endswith(":") and not continued:
            assert "#" in line or "[eng, zho" in line, f"no comment: {line}"


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
    assert "which belongs to its languages: set languages.eng.corpus.budget" in refused(mixture, name="two")
    configuration(mixture, {"corpus": {"budget": "1M words"}}).model("two")
    other = {"preset": "1gpu_standard", "models": {"big": {"languages": ["eng"], "preset": "h200_8gpu_quality"}}}
    assert "preset h200_8gpu_quality of model big has corpus.budget = 2M documents" in refused(other, name="big")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Mine.\ntran: {epochs: 3}\n", "config/presets/mine.yaml: unknown section tran; did you mean train"),
        ("# Mine.\ncorpus: {files: [a.txt]}\n", "mine.yaml: of the section corpus, a preset may say the budget alone"),
        ("# Mine.\ntrain: {epoch: 3}\n", "config/presets/mine.yaml: train.epoch = 3"),
        ("# Mine.\ncorpus:\n", "mine.yaml: corpus = None: keys are expected; leave out a section without any"),
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


def test_language_table_has_the_tiers_of_babybabellm():
    batches = configuration().batches
    assert [len(batches[f"tier{tier}"]) for tier in (1, 2, 3)] == [9, 15, 21]
    small, all_of_them = (configuration().languages_of(f"multilingual_{name}") for name in ("small", "all"))
    assert set(small) == set(batches["tier1"])
    assert set(all_of_them) == {code for batch in batches.values() for code in batch}
    assert set(batches["tier1"]) == {"bul", "zho", "nld", "eng", "fra", "deu", "ind", "fas", "ukr"}


def test_later_layers_beat_earlier_ones():
    made = configuration(
        {"preset": "tiny"},
        {"train": {"learning_rate": 0.5}},
        {"train": {"learning_rate": 0.25}, "models": {"deu": {"train": {"learning_rate": 0.125}}}},
    )
    rates = {name: made.model(name).train.learning_rate for name in ("eng", "deu")}
    assert rates == {"eng": 0.25, "deu": 0.125}
    assert made.model("eng").train.global_batch_tokens == 4096  # the preset's
    assert made.model("deu").origins["train.learning_rate"] == "layer2.yaml, models.deu"
    assert made.model("eng").origins["train.learning_rate"] == "layer2.yaml"
    assert made.model("eng").origins["train.global_batch_tokens"] == "config/presets/tiny.yaml"
    nested = {"architecture": "transformers", "config": {"model_type": "gpt2", "n_embd": 32}}
    made = configuration({"models": {"deu": {"model": nested, "train": {"objective": "causal"}}}})
    assert made.model("deu").origins["model.config"] == made.model("deu").origins["model.config.n_embd"]


LLADA = {"model": {"source": "lab/LLaDA-8B", "architecture": "transformers"}, "train": {"objective": "diffusion"}}
GPT2 = {"model": {"architecture": "transformers", "config": {"model_type": "gpt2"}}, "train": {"objective": "causal"}}


def test_a_model_of_another_type_has_none_of_a_presets_keys():
    llama = {"model_type": "llama", "hidden_size": 64}
    made = configuration({"preset": "gpt2_30m", "models": {"eng": {"model": {"config": llama}}}}).model("eng")
    assert made.model.config == llama
    made = configuration({"preset": "gpt2_30m", "models": {"eng": {"model": {"config": {"n_embd": 64}}}}}).model("eng")
    assert made.model.config == {"model_type": "gpt2", "n_embd": 64, "n_layer": 8, "n_head": 8}


@pytest.mark.parametrize(
    ("layer", "repository"),
    [
        ({}, "{username}/babybabellm-gptbert-eng"),
        ({"publish": {"username": "lab"}}, "lab/babybabellm-gptbert-eng"),
        ({"train": {"objective": "causal"}}, "{username}/babybabellm-gptbert-eng-causal"),
        ({"train": {"objective": "masked"}}, "{username}/babybabellm-gptbert-eng"),
        ({"export": {"variants": ["ema"]}}, "{username}/babybabellm-gptbert-eng-ema"),
        ({"export": {"variants": ["main"], "default_variant": "main"}}, "{username}/babybabellm-gptbert-eng"),
        ({"models": {"eng": {"publish": {"repo_template": "lab/my-english.v2"}}}}, "lab/my-english.v2"),
        (GPT2, "{username}/babybabellm-gpt2-eng-causal"),
        ({"preset": "bert_30m"}, "{username}/babybabellm-bert-eng"),
        (
            {"models": {"eng": LLADA}},
            "{username}/babybabellm-llada-8b-eng",
        ),
    ],
)
def test_the_repository_of_a_model(layer, repository):
    assert settings_of(configuration(layer), "eng", "publish")["repository"] == repository


def test_the_layer_of_a_null_is_named():
    assert (
        configuration({"corpus": {"hub": None, "builtin": "python-docs"}}).corpus("eng").origins["corpus.hub"]
        == "layer0.yaml"
    )


@pytest.mark.parametrize("value", [0.001, "0.001", "1e-3", 1e-3])
def test_spellings_of_a_number_are_one_setting(value):
    made = configuration({"train": {"learning_rate": value}})
    assert settings_of(made, "eng", "train")["train"]["learning_rate"] == 0.001


def test_text_of_the_command_line_is_coerced():
    def train(**values):
        return settings_of(configuration({"train": values}), "eng", "train")["train"]

    text = {"token_weighted": "true", "hybrid_ratio": "8/16", "learning_rate_floor": "0"}
    typed = {"token_weighted": True, "hybrid_ratio": "1/2", "learning_rate_floor": 0.0}
    assert train(**text, max_steps="100") == train(**typed, max_steps=100)
    assert train(**text, epochs="3") == train(**typed, epochs=3.0)
    assert train(max_steps="null")["max_steps"] is None


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"train": {"learning_rte": 1}}, ["layer0.yaml", "train.learning_rte", "learning_rate"]),
        ({"train": {"precision": "fp16"}}, ["layer0.yaml", "train.precision = 'fp16'", "choose bf16", "fp32"]),
        ({"models": {"eng": {"train": {"epoch": 1}}}}, ["layer0.yaml", "models.eng.train.epoch", "epochs"]),
        ({"tran": {}}, ["layer0.yaml", "tran", "train"]),
        (
            {"train": {"mask_rate_start": 1.5}},
            ["layer0.yaml", "train.mask_rate_start = 1.5", "less than or equal to 1"],
        ),
        ({"train": {"epochs": "many"}}, ["layer0.yaml", "train.epochs = 'many'", "number"]),
        ({"train": {"hybrid_ratio": "3/2"}}, ["layer0.yaml", "train.hybrid_ratio = '3/2'", "0 < n < d"]),
        ({"train": {"optimizer": "sgd"}}, ["layer0.yaml", "train.optimizer = 'sgd'", "'lamb'"]),
        ({"model": {"num_attention_heads": 7}}, ["layer0.yaml", "num_attention_heads = 7", "hidden_size = 768"]),
        ({"train": {"sequence_lengths": [1024]}}, ["layer0.yaml", "train.phase_starts", "sequence_lengths"]),
        (
            {"train": {"sequence_lengths": [1024], "phase_starts": [0]}},
            ["layer0.yaml", "1024", "max_position_embeddings = 512"],
        ),
        ({"preset": "smal"}, ["layer0.yaml", "preset = 'smal'", "small"]),
        ({"models": {"eng": {"preset": "smal"}}}, ["layer0.yaml", "preset = 'smal' of model eng", "small"]),
        ({"models": ["eng"]}, ["layer0.yaml", "models = ['eng']", "mapping"]),
        ({"languages": "eng"}, ["layer0.yaml", "languages = 'eng'", "mapping"]),
        ({"train": {"epochs": True}}, ["layer0.yaml", "train.epochs = True", "number"]),
        ({"targets": ["enf"]}, ["layer0.yaml", "'enf'", "eng"]),
        ({"batches": {"mine": ["enf"]}}, ["layer0.yaml", "mine", "'enf'", "eng"]),
        ({"models": {"a/b": {"languages": ["eng"]}}}, ["layer0.yaml", "'a/b'", "not a name"]),
        ({"models": {"../x": {"languages": ["eng"]}}}, ["layer0.yaml", "'../x'", "not a name"]),
        ({"models": {"mix": {"languages": ["eng", "dee"]}}, "targets": ["mix"]}, ["layer0.yaml", "'dee'", "deu"]),
        ({"export": {"variants": ["main"], "default_variant": "ema"}}, ["layer0.yaml", "'ema'", "variants"]),
        (
            {"publish": {"repo_template": "{username}/{language}"}},
            ["layer0.yaml", "'{username}/{language}'", "{model}"],
        ),
        ({"publish": {"repo_template": "{model}"}}, ["layer0.yaml", "publish.repo_template", "owner/name"]),
        ({"publish": {"repo_template": "{username}/{model.__class__}"}}, ["layer0.yaml", "{model}"]),
        ({"publish": {"repo_template": "a/../{model}"}}, ["layer0.yaml", "owner/name"]),
        ({"run": {"hf_token": "x"}}, ["layer0.yaml", "run.hf_token", "environment"]),
        (
            {"languages": {"eng": {"corpus": {"files": ["nothing/*.txt"]}}}},
            ["layer0.yaml", "nothing/*.txt", "no such file"],
        ),
        ({"languages": {"due": {"corpus": {"files": []}}}}, ["layer0.yaml", "languages.due", "`name`", "deu"]),
        ({"max_steps": 30}, ["layer0.yaml", "unknown key max_steps", "train.max_steps"]),
        ({"corpus": {"files": "a.txt"}}, ["layer0.yaml", "corpus.files = 'a.txt'", "[a.txt]"]),
        ({"train": {"hybrid_ratio": 0.7}}, ["layer0.yaml", "hybrid_ratio = 0.7", "15/16"]),
        ({"train": 3}, ["layer0.yaml", "train = 3", "keys"]),
    ],
)
def test_a_mistake_is_one_line_with_file_key_value_and_what_is_allowed(layer, words):
    name = "mix" if "mix" in layer.get("targets", []) else "eng"
    message = refused(layer, name=name)
    for word in words:
        assert word in message, message


def test_a_folder_in_place_of_a_glob_gets_a_hint(tmp_path):
    (tmp_path / "texts").mkdir()
    assert "texts/*.txt" in refused({"corpus": {"files": [str(tmp_path / "texts")]}})


def test_a_language_without_text_is_told_what_to_set():
    assert "languages.eng.corpus.files" in refused({"corpus": {"hub": None}})


def test_text_comes_from_the_hub_where_there_is_none_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no lock file
    source = {"repository": "BabyLM-community/babylm-zul", "revision": "main", "commit": None}
    assert hub_datasets(configuration(), "zul") == [("zul", source)]
    assert hub_datasets(configuration(TEXT), "eng") == []
    other = configuration(TEXT, {"corpus": {"hub": "a/b"}})
    assert settings_of(configuration(TEXT), "eng", "corpus") == settings_of(other, "eng", "corpus")


def test_parts_of_datasets_have_one_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [configuration({"corpus": {"hub": hub}}) for hub in ("a/b", ["a/b"], [{"repository": "a/b"}])]
    assert len({json.dumps(settings_of(each, "eng", "download")) for each in names}) == 1
    parts = configuration({"corpus": {"hub": ["a/{language}", {"repository": "c/d", "config": "{language}_raw"}]}})
    assert [source for _, source in hub_datasets(parts, "eng")] == [
        {"repository": "a/eng", "revision": "main", "commit": None},
        {"repository": "c/d", "revision": "main", "commit": None, "config": "eng_raw"},
    ]


@pytest.mark.parametrize(
    ("hub", "message"),
    [
        ({"repository": "a/b"}, "a name or a list is expected, such as [{repository: Salesforce/wikitext, config: "),
        ([{"config": "x"}], "each entry needs a repository, such as [{repository: Salesforce/wikitext, config: "),
        ([{"repository": "a/b", "confg": "x"}], "an entry has no key confg; its keys are repository, config, files"),
        ([{"repository": "a/b", "files": "x/*"}], "a list"),
        ([{"repository": "a/b", "files": ["x/*", "x/*"]}], "x/* is there 2 times; name it once"),
        ([], "corpus.hub = []"),
        ([{"repository": ""}], "each entry needs a repository"),
    ],
)
def test_parts_that_cannot_be_meant(hub, message):
    said = refused({"corpus": {"hub": hub}})
    assert message in said and "corpus.hub" in said and "\n" not in said


def test_unknown_names_come_with_the_nearest_known_ones():
    with pytest.raises(UserError, match=r"'enf'; did you mean .*eng"):
        configuration().languages_of("enf")
    with pytest.raises(UserError, match="'multilingal'"):
        configuration({"models": {"multi": {"languages": ["eng"]}}}).languages_of("multilingal")


def test_source_files_enter_the_settings_by_number_and_size_as_long_as_there_is_no_corpus(tmp_path, monkeypatch):
    """What is known without reading them; see `test_local_sources.py`."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one")
    Path("b.txt").write_text("four")
    found = settings_of(configuration({"corpus": {"files": ["*.txt"]}}), "eng", "corpus")["sources"]
    assert found == {"*.txt": {"files": 2, "bytes": 7, "sha256": None}}


def test_single_language_models_ignore_the_mixture():
    def settings(name, *layers):
        two = {"models": {"two": {"languages": ["eng", "deu"]}}}
        return [settings_of(configuration(two, *layers), name, stage) for stage in ("tokenizer", "train")]

    assert settings("eng", {"mixture": {"weights": 0.5}}) == settings("eng")
    for half, size in zip(settings("two", {"mixture": {"weights": 0.5}}), settings("two"), strict=True):
        assert half != size and half | {"mixture": {"weights": 1.0}} == size


TWO = {"models": {"two": {"languages": ["eng", "deu"]}}}


@pytest.mark.parametrize(
    ("stage", "always", "one", "other"),
    [
        ("train", {"train": {"max_steps": 100}}, {"train": {"epochs": 3}}, {"train": {"epochs": 4}}),
        *(
            ("train", {"train": {"objective": objective}}, {"train": {key: one}}, {"train": {key: other}})
            for objective in ("causal", "masked")
            for key, one, other in (("hybrid_ratio", "1/2", "2/3"), ("token_weighted", True, False))
        ),
        *(
            ("train", {"train": {"objective": "causal"}}, {"train": {key: 0.2}}, {"train": {key: 0.3}})
            for key in ("mask_rate_start", "mask_rate_end")
        ),
        *(
            ("tokenizer", {"tokenizer": {"source": "a/b"}}, {"tokenizer": {key: 500}}, {"tokenizer": {key: 600}})
            for key in ("vocab_size", "min_frequency")
        ),
        ("tokenizer", {"tokenizer": {"source": "a/b"}}, {"mixture": {"weights": 0.5}}, {"mixture": {"weights": 1}}),
        ("tokenizer", {}, {"tokenizer": {"revision": "v1"}}, {"tokenizer": {"revision": "v2"}}),
        ("corpus", {"corpus": {"builtin": "python-docs"}}, {"corpus": {"hub": "a/b"}}, {"corpus": {"revision": "v"}}),
    ],
)
def test_what_cannot_matter_is_no_setting(stage, always, one, other):
    name = "eng" if stage == "corpus" else "two"

    def settings(*layers):
        return settings_of(configuration(TWO, *layers), name, stage)

    assert settings(always, one) == settings(always, other)
    if stage == "train":
        assert settings({"train": {"objective": "hybrid"}}, one) != settings({"train": {"objective": "hybrid"}}, other)


@pytest.mark.parametrize(
    ("objective", "scores"), [("hybrid", ["causal", "masked"]), ("masked", ["masked"]), ("causal", ["causal"])]
)
def test_a_model_is_evaluated_by_the_scores_of_its_objective(objective, scores):
    made = settings_of(configuration({"train": {"objective": objective}}), "eng", "evaluate")
    assert made["scores"] == scores


@pytest.mark.parametrize("stage", [*STAGES.values(), None], ids=lambda stage: stage.name if stage else "run")
def test_settings_are_read_as_they_were_configured(stage, tmp_path, monkeypatch):
    """What a file leaves out is filled in; the stage finds its own sections, typed, and its own code."""
    monkeypatch.chdir(tmp_path)
    more = {"models": {"more": {"languages": ["eng"], "model": {"source": "owner/name"}}}}
    made = configuration(TWO, {"publish": {"username": "lab"}}, more)
    name = "eng" if stage and stage.of == "language" else "more" if stage is STAGES["base_model"] else "two"
    resolved = made.corpus(name) if stage and stage.of == "language" else made.model(name)
    values = settings_of(made, name, stage.name if stage else "run")
    write_json("settings.json", values)
    kind = stage.settings if stage else RunSettings
    found = read_settings("settings.json", kind)
    sections = {section: resolved.sections[section] for section in kind.sections()}
    if "tokenizer" in sections:  # it comes from no repository
        sections["tokenizer"] = sections["tokenizer"].model_copy(update={"revision": ""})
    if "publish" in sections:  # the architecture has its name
        template = "{username}/babybabellm-gptbert-{model}{causal_suffix}{variant_suffix}"
        sections["publish"] = sections["publish"].model_copy(update={"repo_template": template})
    assert {section: getattr(found, section) for section in sections} == sections
    assert (found.name, found.raw) == (name, values)
    assert found.languages == (list(resolved.languages) if stage else [])
    assert found.code == values.get("code", "") and found.modules == (stage.modules if stage else {})
    other = STAGES["export" if stage and stage.name == "train" else "train"]
    with pytest.raises(UserError, match=rf"settings\.json: these are settings of stage .*, not of '{other.name}'"):
        read_settings("settings.json", other.settings)


def test_settings_for_other_code_are_refused(tmp_path):
    """A job in the queue was submitted for the code of then; what it would make now is another result."""
    path = tmp_path / "settings.json"
    values = settings_of(configuration(), "eng", "train")
    write_json(path, values | {"code": "0123456789abcdef"})
    with pytest.raises(UserError, match=r"settings\.json: the code of stage train has changed .* \(0123456789abcdef"):
        read_settings(path, TrainSettings)
    write_json(path, values | {"model": values["model"] | {"hidden_size": "wide"}})
    with pytest.raises(UserError, match=r"settings\.json: model\.hidden_size = 'wide': "):
        read_settings(path, TrainSettings)
    write_json(path, values | {"model": values["model"] | {"depth": 3}})
    with pytest.raises(UserError, match=r"settings\.json: model\.depth = 3: "):
        read_settings(path, TrainSettings)


def test_settings_files_are_written_where_they_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_settings(configuration(TEXT), "eng")
    folder = Path("results/settings/eng")
    stages = {"corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert", "publish", "run"}
    assert {path.stem for path in folder.iterdir()} == stages, "text of one's own is not downloaded"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "train.json").write_text("")  # as a crash may leave it
    write_settings(configuration(TEXT, {"evaluation": {"sequence_length": 64}}), "eng")
    changed = {path.name for path in folder.iterdir() if path.stat().st_mtime_ns != before[path.name]}
    assert changed == {"train.json", "evaluate.json"}
    write_settings(configuration(TWO), "two")
    assert {path.stem for path in Path("results/settings/two").iterdir()} == stages - {"corpus"}
    with pytest.raises(UserError, match="no model 'tow'"):
        write_settings(configuration(TWO), "tow")


def test_weights_of_a_mixture_are_exponents():
    def weights(value):
        return configuration({"mixture": {"weights": value}}).model("multilingual_small").mixture.weights

    assert [weights(value) for value in ("size", 1, "uniform", "0", 0.3)] == [1, 1, 0, 0, 0.3]


def test_config_command_prints_values_and_their_layers(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "babelmill", "config", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    done = run("eng", "--profile", "profiles/demo", "--config", "train={epochs: 3}")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["train.epochs"].split()[1:] == ["3.0", "--config"]
    assert "config/demo.yaml" in lines["train.max_steps"]
    shorter = run("eng", "--profile", "profiles/demo", "--config", "train={max_steps: 50}").stdout
    assert re.search(r"train\.max_steps +50 +--config", shorter), "what the user types beats the demo"
    assert "config/presets/tiny.yaml" in lines["model.hidden_size"]
    bad = run("enf")
    assert bad.returncode == 1 and bad.stderr.count("\n") == 1 and "did you mean" in bad.stderr


def test_the_readme_says_how_to_name_ones_own_text(tmp_path, monkeypatch):
    """The edit of config.yaml, as it is described: remove the # of the last three lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("A text.")
    lines = (ROOT / "config/config.yaml").read_text().splitlines()
    edited = yaml.safe_load("\n".join([*lines[:-3], *(line.removeprefix("#") for line in lines[-3:])]))
    assert settings_of(configuration(edited), "eng", "corpus")["corpus"]["files"] == ["texts/*.txt"]
    assert configuration(edited).model("eng").preset == "small"


def test_a_new_key_of_the_mixture_leaves_models_of_one_language_as_they_are(monkeypatch):
    """They have no mixture in their files; what stages read is complete."""

    class Wider(schema.Mixture):
        temperature: Annotated[float, schema.Neutral(1.0)]

    class Wide(TrainSettings):
        mixture: Wider

    values = settings_of(configuration(), "eng", "train")
    assert "mixture" not in values
    read = recorded(values, Wide, "train.json")
    assert read.mixture.weights == 1.0 and read.mixture.temperature == 1.0


def test_the_default_scale_of_adapters_may_be_written_out():
    """The same settings file, so that nothing is trained again; another scale is in it."""

    def train_file(alpha: int | str | None) -> dict[str, Any]:
        train = {"objective": "masked", "optimizer": "adamw", "lora_rank": 4, "lora_alpha": alpha}
        model = {"architecture": "transformers", "source": "owner/name"}
        made = configuration({"models": {"more": {"languages": ["eng"], "model": model, "train": train}}})
        return settings_of(made, "more", "train")

    assert train_file(None) == train_file(8) == train_file("8") and "lora_alpha" not in train_file(8)["train"]
    assert train_file(4)["train"]["lora_alpha"] == 4
    read = recorded(train_file(8), TrainSettings, "train.json").train
    assert (read.lora_rank, read.lora_alpha) == (4, None)


def test_without_an_average_main_is_the_one_variant():
    """As soon as it is said, and not before."""
    made = configuration({"train": {"ema_decay": 0}})
    assert settings_of(made, "eng", "export")["export"]["variants"] == ["main"]
    assert made.model("eng").export.default_variant == "main"
    assert configuration({}).model("eng").export.variants == ["main", "ema"]
