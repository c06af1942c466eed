"""A tokenizer from the Hub, fetched by the real client from a Hub on this machine: pinned, locked, and its errors."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from babelmill.config.loading import load
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from helpers.hub.hub_stage import asked_for, refusal, run_stage
from helpers.stages import settings_of, write_corpus

REPOSITORY = "someone/tokenizer"
REPOSITORY_ON_HUB = f"models/{REPOSITORY}"
CONFIGURATION = {"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}, "tokenizer": {"source": REPOSITORY}}


def tokenizer_file(size: int) -> dict[str, bytes]:
    """A tokenizer.json of so many entries, as somebody trained it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "</s>", "<pad>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the tokenizer of someone, and the tokens of the tokenizer"], trainer)
    return {"tokenizer.json": tokenizer.to_str().encode()}


@pytest.fixture
def hub(hub, folder):
    Path("config").mkdir()
    Path("config/config.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    write_corpus(Path("corpus"), *[{"text": ["the tokens of the text"]}] * 2)
    return hub


def run(**environment) -> subprocess.CompletedProcess:
    """Write the settings as the workflow does, and run the stage as its rule does."""
    settings = asked_for("tokenizer", settings_of(load(), "eng", "tokenizer"), corpora=["corpus"])
    return run_stage("tokenizer", settings, **environment)


def succeed(**environment) -> dict:
    done = run(**environment)
    assert done.returncode == 0, done.stderr
    return manifest.verify("out")["figures"]


def test_a_moved_branch_changes_nothing_until_it_is_asked_for(hub):
    first = hub.commit(REPOSITORY_ON_HUB, tokenizer_file(270))
    assert succeed()["hub"] == {"repository": REPOSITORY, "revision": "main", "commit": first}
    asked = settings_of(load(), "eng", "tokenizer")
    second = hub.commit(REPOSITORY_ON_HUB, tokenizer_file(275))
    figures = succeed()
    assert (figures["hub"]["commit"], figures["vocab_size"]) == (first, 270)
    Path("results/hub.lock").write_text(f"models/{REPOSITORY}@main {second}\n")
    assert succeed()["vocab_size"] == 275
    assert settings_of(load(), "eng", "tokenizer") == asked, "as asked: the commit is no setting"


@pytest.mark.parametrize(
    ("files", "revision", "message"),
    [
        ({"tokenizer.json": b""}, "v9", "has no revision 'v9': correct tokenizer.revision"),
        ({"README.md": b""}, "main", "has no file tokenizer.json for tokenizer.source; it has README.md"),
        ({"tokenizer.json": b"{}"}, "main", "a file of the `tokenizers` library is expected"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(hub, files, revision, message):
    hub.commit(REPOSITORY_ON_HUB, files)
    values = CONFIGURATION | {"tokenizer": {"source": REPOSITORY, "revision": revision}}
    Path("config/config.yaml").write_text(yaml.safe_dump(values))
    line = refusal(run())
    assert re.search(f"error: .*{message}", line), line
    assert not Path("out").exists()


def test_it_is_a_change_of_settings_only_where_it_is_read(folder):
    def settings(**tokenizer) -> str:
        return json.dumps(settings_of(Configuration([("test", {"tokenizer": tokenizer})]), "eng", "tokenizer"))

    assert settings() == settings(revision="v2")
    assert settings(source=REPOSITORY) != settings(source=REPOSITORY, revision="v2")
    assert settings(source=REPOSITORY) == settings(source=REPOSITORY, vocab_size=300, min_frequency=9)
    text = tokenizer_file(270)["tokenizer.json"].decode()
    Path("own.json").write_text(text)
    before = settings(source="own.json", vocab_size=300, revision="v2")
    assert before == settings(source="own.json")
    Path("own.json").write_text(f" {text}")
    assert settings(source="own.json") != before
