"""The configuration: layers, coercion, and errors that name file, key, value and what is allowed."""

import json
from pathlib import Path

import pytest
import yaml

from babelmill.cli import main
from babelmill.config.entries import User
from babelmill.config.inputs import few_documents, hub_datasets
from babelmill.config.languages import read_table
from babelmill.config.resolve import ROOT, Configuration
from babelmill.config.schema import SECTIONS
from babelmill.core.files import UserError
from helpers.stages import settings_of

TEXT = {"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}


def configuration(*layers):
    return Configuration([(f"layer{number}.yaml", layer) for number, layer in enumerate(layers)])


def test_defaults_hold_every_key_and_document_it():
    text = (ROOT / "config/defaults.yaml").read_text()
    values = yaml.safe_load(text)
    assert set(values) == {*User.model_fields, *SECTIONS}
    for section, section_type in SECTIONS.items():
        assert list(values[section]) == [*section_type.model_fields], f"{section}: other keys, or in another order"
    for line in text.splitlines():
        continued = line.startswith(" " * 4)
        if line.strip() and not line.strip().startswith("#") and not line.strip().endswith(":") and not continued:
            assert "#" in line or "[eng, zho" in line, f"no comment: {line}"


def test_later_layers_beat_earlier_ones():
    made = configuration(
        {"preset": "tiny", "corpus": {"hub": None, "builtin": "python-docs"}},
        {"train": {"learning_rate": 0.5}},
        {"train": {"learning_rate": 0.25}, "models": {"deu": {"train": {"learning_rate": 0.125}}}},
    )
    rates = {name: made.model(name).train.learning_rate for name in ("eng", "deu")}
    assert rates == {"eng": 0.25, "deu": 0.125}
    assert made.model("eng").train.global_batch_tokens == 4096  # the preset's
    assert made.model("deu").origins["train.learning_rate"] == "layer2.yaml, models.deu"
    assert made.model("eng").origins["train.learning_rate"] == "layer2.yaml"
    assert made.model("eng").origins["train.global_batch_tokens"] == "config/presets/tiny.yaml"
    assert made.corpus("eng").origins["corpus.hub"] == "layer0.yaml", "a null is a value"


def test_text_of_the_command_line_is_coerced():
    def train(**values):
        return settings_of(configuration({"train": values}), "eng", "train")["train"]

    text = {"token_weighted": "true", "hybrid_ratio": "8/16", "learning_rate_floor": "0"}
    typed = {"token_weighted": True, "hybrid_ratio": "1/2", "learning_rate_floor": 0.0}
    assert train(**text, max_steps="100") == train(**typed, max_steps=100)
    assert train(**text, epochs="3") == train(**typed, epochs=3.0)
    assert {train(learning_rate=rate)["learning_rate"] for rate in (0.001, "0.001", "1e-3")} == {0.001}


def test_parts_of_datasets_have_one_spelling(folder):
    names = [configuration({"corpus": {"hub": hub}}) for hub in ("a/b", ["a/b"], [{"repository": "a/b"}])]
    assert len({json.dumps(settings_of(each, "eng", "download")) for each in names}) == 1
    parts = configuration({"corpus": {"hub": ["a/{language}", {"repository": "c/d", "config": "{language}_raw"}]}})
    assert hub_datasets(parts.corpus("eng")) == [
        {"repository": "a/eng", "revision": "main"},
        {"repository": "c/d", "revision": "main", "config": "eng_raw"},
    ]


def test_config_command_prints_values_and_their_layers(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    words = ["config", "eng", "--changed", "--profile", "profiles/demo", "--config"]
    assert main([*words, "train={max_steps: 50, clip_norm: 2.0}"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "train.clip_norm" not in lines and not any("config/defaults.yaml" in line for line in lines.values())
    assert lines["train.max_steps"].split()[1:] == ["50", "--config"], "what the user types beats the demo"
    assert "config/demo.yaml" in lines["train.sequence_lengths"]
    assert "config/presets/tiny.yaml" in lines["model.hidden_size"]


def test_a_table_of_languages_that_an_editor_has_changed_is_refused(tmp_path):
    path = tmp_path / "languages.tsv"
    path.write_text((ROOT / "config/languages.tsv").read_text().replace("eng\tEnglish\t", "eng English "))
    with pytest.raises(UserError, match=r"languages\.tsv: eng English .*, with tabs between them, are expected"):
        read_table(path)


@pytest.mark.parametrize(
    ("corpus", "count"),
    [
        ({"document": "file"}, "2"),
        ({"document": "2000 words"}, "10"),
        ({"document": "100 words"}, None),
        ({"document": "line"}, None),
        ({"document": "paragraph"}, None),
        ({"document": "2000 words", "validation_share": 0.4}, None),
        ({"document": "file", "validation_files": ["a.txt"]}, None),
        ({"document": "file", "builtin": "python-docs"}, None),
        ({"document": "file", "files": ["*"], "format": "jsonl"}, None),
    ],
)
def test_files_and_many_words_are_few_documents_and_else_nothing_is_said(folder, corpus, count):
    """Of two files of 60 kB each."""
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("word " * 12_000)
    values = {"files": ["*.txt"], "validation_share": 0.02} | corpus
    note = few_documents(configuration({"languages": {"eng": {"corpus": values}}}).corpus("eng"))
    said = f"validation_share = 0.02 of {count} documents; set corpus.document: 300 words"
    assert said in (note or "") if count else note is None
