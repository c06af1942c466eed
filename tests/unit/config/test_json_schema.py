"""`config/schema.json` is what the types say, takes what is right, and finds what is wrong."""

import json
import re
import textwrap

import pytest
import yaml
from jsonschema import Draft7Validator

from babelmill.config.json_schema import PATH, json_schema
from babelmill.config.resolve import ROOT

SCHEMA = json.loads(PATH.read_text(encoding="utf-8"))
FILES = sorted([*(ROOT / "config").glob("*.yaml"), *(ROOT / "config/presets").glob("*.yaml")])
FILES.remove(ROOT / "config/published.yaml")  # it is no configuration: `reporting/published.py` checks it


def complaints(text: str) -> list[str]:
    """What an editor underlines."""
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(text) or {})]


def test_it_is_in_step_with_the_types():
    assert json_schema() == SCHEMA, "run python -m babelmill.config.json_schema"
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_name_it_and_hold(path):
    text = path.read_text(encoding="utf-8")
    (schema,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
    assert (path.parent / schema).resolve() == PATH
    assert not complaints(text)


def test_what_documents_show_holds():
    for path in [ROOT / "README.md", ROOT / "config/README.md", *(ROOT / "docs").glob("*.md")]:
        for block in re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            assert not complaints(textwrap.dedent(block)), path


def test_what_is_wrong_is_found_and_short_forms_are_right():
    wrong = ("tran: {epochs: 3}", "train: {learning_rate: 11}", "train: {objective: hybird}")
    assert all(
        map(
            complaints,
            [*wrong, "models: {eng: {train: {epoch: 3}}}", "models: {Eng: {}}", "corpus: {hub: [{repo: a/b}]}"],
        )
    )
    assert not complaints(
        "mixture: {weights: uniform}\npredict: {tables: {census: data/census.csv}}\n"
        "corpus: {hub: [a/b, {repository: c/d, config: en}], label_columns: code, budget: 10M words}\n"
        "models: {eng: {model: {architecture: transformers, config: {model_type: gpt2, n_embd: 512}}}}"
    )
