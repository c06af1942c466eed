"""Settings files: what stands in them, and what does not; how stages read them."""

import os
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_config import TEXT, configuration

from babelmill.config import schema
from babelmill.config.resolve import ROOT, Configuration
from babelmill.config.stage_settings import RunSettings, Settings, TrainSettings
from babelmill.core.files import UserError, write_json
from babelmill.settings import read_settings, recorded, settings_of, write_settings
from babelmill.stages import STAGES, Stage

LLADA = {"model": {"source": "lab/LLaDA-8B", "architecture": "transformers"}, "train": {"objective": "diffusion"}}
GPT2 = {"model": {"architecture": "transformers", "config": {"model_type": "gpt2"}}, "train": {"objective": "causal"}}


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
        ({"models": {"eng": LLADA}}, "{username}/babybabellm-llada-8b-eng"),
    ],
)
def test_the_repository_of_a_model(layer, repository):
    assert settings_of(configuration(layer), "eng", "publish")["repository"] == repository


@pytest.mark.parametrize(
    "publish",
    [
        {"username": "my lab"},
        {"username": "lab/eng"},
        {"repo_template": "lab/model--{model}"},
        {"repo_template": "lab/{model}.git"},
        {"repo_template": f"lab/{'x' * 97}"},
        {"repo_template": "lab/{model}-"},
    ],
)
def test_a_repository_that_the_hub_would_refuse_is_refused_before_anything_runs(publish):
    with pytest.raises(UserError, match=rf"layer0\.yaml: publish\.{min(publish)}: '.*a name of the Hub is expected"):
        settings_of(configuration({"publish": publish}), "eng", "publish")


def test_a_language_without_a_tag_of_its_own_has_one_that_the_hub_accepts():
    entries = {code: {"name": code, "corpus": {"builtin": "python-docs"}} for code in ("nds_Latn", "wikitext")}
    for code, tag in (("nds_Latn", "nds"), ("wikitext", "")):
        table = settings_of(configuration({"languages": entries}), code, "convert")["language_table"]
        assert table[code]["tag"] == tag


def test_source_files_enter_the_settings_by_number_and_size_as_long_as_there_is_no_corpus(folder):
    """What is known without reading them; see `test_local_sources.py`."""
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
def test_settings_are_read_as_they_were_configured(stage, folder):
    """What a file leaves out is filled in; the stage finds its own sections, typed, and its own code."""
    more = {"models": {"more": {"languages": ["eng"], "model": {"source": "owner/name"}}}, "evaluation_data": "data"}
    for split in ("train", "valid"):
        path = Path(f"data/full_eval/glue_filtered/rte.{split}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"sentence1": "a", "sentence2": "b", "label": 0}\n')
    more["models"]["entry"] = {"preset": ["small", "babylm_strict_small"]}
    made = configuration(TWO, {"publish": {"username": "lab"}, "predict": {"inputs": {"blimp": "a.csv"}}}, more)
    names = {STAGES["base_model"]: "more", STAGES["submission"]: "entry"}
    name = "eng" if stage and stage.of == "language" else names.get(stage, "two")
    resolved = made.corpus(name) if stage and stage.of == "language" else made.model(name)
    part = {"task": "rte", "tune": "rte.42"}.get(stage.name if stage else "", "blimp")  # which is a suite and a table
    values = settings_of(made, name, stage.settings_name(part) if stage else "run")
    write_json("settings.json", values)
    kind = stage.settings if stage else RunSettings
    found = read_settings("settings.json", kind)
    sections = {section: resolved.sections[section] for section in kind.sections()}
    if "tokenizer" in sections:  # it comes from no repository
        sections["tokenizer"] = sections["tokenizer"].model_copy(update={"revision": ""})
    if "predict" in sections:  # the table has a key of its own
        sections["predict"] = sections["predict"].model_copy(update={"inputs": {}})
    assert {section: getattr(found, section) for section in sections} == sections
    assert (found.name, found.raw) == (name, values)
    assert found.languages == (list(resolved.languages) if stage else [])
    assert found.version == (stage.version if stage else 1)
    other = STAGES["export" if stage and stage.name == "train" else "train"]
    with pytest.raises(UserError, match=rf"settings\.json: these are settings of the stage .*, not of '{other.name}'"):
        read_settings("settings.json", other.settings)


def test_settings_for_another_version_are_refused(tmp_path):
    """A job in the queue was submitted for the version of then; what it would make now is another result."""
    path = tmp_path / "settings.json"
    values = settings_of(configuration(), "eng", "train")
    write_json(path, values | {"version": 0})
    with pytest.raises(UserError, match=r"settings\.json: written for another version of stage train; run"):
        read_settings(path, TrainSettings)
    write_json(path, values | {"model": values["model"] | {"hidden_size": "wide"}})
    with pytest.raises(UserError, match=r"settings\.json: model\.hidden_size = 'wide': "):
        read_settings(path, TrainSettings)
    write_json(path, values | {"model": values["model"] | {"depth": 3}})
    with pytest.raises(UserError, match=r"settings\.json: unknown key model\.depth"):
        read_settings(path, TrainSettings)


def test_settings_files_are_written_where_they_differ(folder):
    write_settings(configuration(TEXT), "eng")
    written = Path("results/settings/eng")
    stages = {"corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert", "publish", "run"}
    assert {path.stem for path in written.iterdir()} == stages, "text of one's own is not downloaded"
    for path in written.iterdir():
        os.utime(path, (1, 1))
    (written / "train.json").write_text("")  # as a crash may leave it
    write_settings(configuration(TEXT, {"evaluation": {"sequence_length": 64}}), "eng")
    changed = {path.name for path in written.iterdir() if path.stat().st_mtime != 1}
    assert changed == {"train.json", "evaluate.json"}
    write_settings(configuration(TWO), "two")
    assert {path.stem for path in Path("results/settings/two").iterdir()} == stages - {"corpus"}
    with pytest.raises(UserError, match="no model 'tow'"):
        write_settings(configuration(TWO), "tow")


def test_a_new_key_of_the_mixture_leaves_models_of_one_language_as_they_are(monkeypatch):
    """They have no mixture in their files; what stages read is complete."""

    class Wider(schema.Mixture):
        temperature: float = 1.0

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


def at_neutral_values(section: str) -> dict[str, Any]:
    """The values of a section's keys, for all keys that have a neutral value."""
    fields = schema.SECTIONS[section].model_fields
    return {key: field.default for key, field in fields.items() if not field.is_required()}


@pytest.mark.parametrize("preset", ["tiny", "labels"])
@pytest.mark.parametrize("section", schema.SECTIONS)
def test_sections_at_nothing_but_neutral_values_are_read_as_they_were_meant(folder, section, preset):
    """If all keys of a section have one, it is `{}` in the settings: labels of plain classes, for example."""
    Path("a.csv").write_text("text,trade\na,b\n")
    Path("suite.tsv").write_text("good\tbad\na\tb\n")
    corpus = {"files": ["a.csv"], "label_columns": ["trade"]} if preset == "labels" else {"files": ["a.csv"]}
    more = {"predict": {"inputs": {"own": {"file": "a.csv"}}}, "evaluation": {"suites": ["own"]}}
    suites = {"suites": {"own": {"files": ["suite.tsv"], "language": "eng", "good": "good", "bad": "bad"}}}
    values = more | {section: at_neutral_values(section) | more.get(section, {})}
    values["train"] = {key: value for key, value in values.get("train", {}).items() if key != "objective"}
    made = configuration({"preset": preset, "languages": {"eng": {"corpus": corpus}}} | suites, values)
    for stage in STAGES.values():
        if not stage.applies(made, "eng"):
            continue
        for part in stage.parts(made, "eng") or [""]:
            raw = settings_of(made, "eng", stage.settings_name(part))
            read = recorded(raw, stage.settings, "x.json")
            for name in stage.settings.sections().keys() & raw.keys():
                if raw[name] == {}:
                    assert getattr(read, name).model_dump() == at_neutral_values(name), (stage.name, name)
    if preset == "labels" and section == "labels":
        assert settings_of(made, "eng", "train")["labels"] == {}


def test_the_stage_of_the_guide_has_a_job_for_each_task_and_seed():
    """As CONTRIBUTING.md shows how to add a stage: its parts are what two wildcards stand for."""

    class TuneSettings(Settings):
        task: str
        seed: int

    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n( +class TuneStage.*?)```", guide, re.DOTALL)
    made = configuration(TWO)
    known = {
        "Stage": Stage,
        "Configuration": Configuration,
        "stage_settings": SimpleNamespace(TuneSettings=TuneSettings),
    }
    exec(textwrap.dedent(code), known)
    tune = known["TuneStage"]()
    assert tune.jobs(made, "two") == [("two", f"{task}.{seed}") for task in ("mnli", "rte") for seed in (1, 2)]
    assert tune.record("two", "mnli.2") == Path("results/tuned/two/mnli/2/manifest.json")
    assert tune.benchmark("two", "mnli.2") == Path("results/benchmarks/tune/two/mnli/2.tsv")
    assert tune.settings_file("two", "mnli.2") == Path("results/settings/two/tune.mnli.2.json")
    assert tune.part_of(SimpleNamespace(model="two", task="mnli", seed="2")) == "mnli.2"
    about = {"stage": "tune", "name": "two", "languages": ["eng", "deu"], "version": 1}
    assert tune.written(made, "two", "mnli.2") == about | {"task": "mnli", "seed": 2}


@pytest.mark.parametrize(
    ("stage", "part", "message"),
    [
        ("download", "", r"the text of eng does not come from the Hub: .* results/corpora/eng/manifest\.json"),
        ("suite", "blimp_nl", r"no model of eng is scored on blimp_nl; add it to evaluation\.suites"),
        ("score", "blimp_nl", r"model eng is not scored on blimp_nl: .* \(it is scored on: blimp\)"),
        ("base_model", "", r"model eng continues no folder or repository \(model\.source\): nothing to fetch"),
        ("predict", "census", r"model eng learns no labels \(train\.objective\)"),
    ],
)
def test_a_job_that_a_language_or_model_does_not_have_is_refused(stage, part, message):
    made = configuration(TEXT, {"evaluation": {"suites": ["blimp"]}})
    with pytest.raises(UserError, match=message):
        STAGES[stage].refuse(made, "eng", part)
    STAGES["suite"].refuse(made, "eng", "blimp")
    STAGES["score"].refuse(made, "eng", "blimp")
