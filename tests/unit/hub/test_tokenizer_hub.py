"""A tokenizer from the Hub, fetched by the real client from a Hub on this machine: pinned, locked, and its errors."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tokenizers import ByteLevelBPETokenizer

from babelmill.config.loading import load
from babelmill.config.resolve import Configuration
from helpers.hub.hub_stage import asked_for, figures_of, refusal, run_stage
from helpers.stages import settings_of, write_corpus

REPOSITORY = "someone/tokenizer"
REPOSITORY_ON_HUB = f"models/{REPOSITORY}"
CONFIGURATION = {"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}, "tokenizer": {"source": REPOSITORY}}


def tokenizer_file(size: int) -> dict[str, bytes]:
    """A tokenizer.json of so many entries, as somebody trained it."""
    tokenizer, text = ByteLevelBPETokenizer(), ["the tokenizer of someone, and the tokens of the tokenizer"]
    names = ["<s>", "</s>", "<pad>", "<mask>"]
    tokenizer.train_from_iterator(text, size, min_frequency=0, show_progress=False, special_tokens=names)
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


def test_a_moved_branch_changes_nothing(hub):
    first = hub.commit(REPOSITORY_ON_HUB, tokenizer_file(270))
    assert figures_of(run())["hub"] == {"repository": REPOSITORY, "revision": "main", "commit": first}
    hub.commit(REPOSITORY_ON_HUB, tokenizer_file(275))
    figures = figures_of(run())
    assert (figures["hub"]["commit"], figures["vocab_size"]) == (first, 270)


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


def test_a_file_of_ones_own_counts_by_its_content(folder):
    configuration, found = Configuration([("test", {"tokenizer": {"source": "own.json"}})]), []
    for text in ("{}", " {}"):
        Path("own.json").write_text(text)
        found.append(settings_of(configuration, "eng", "tokenizer"))
    assert found[0] != found[1]
