"""The documents: links lead somewhere, and what they name (stages, keys, commands, configurations) exists."""

import itertools
import re
import shlex
import textwrap
from functools import cache
from pathlib import Path

import pytest
import yaml

from babelmill.cli import COMMANDS
from babelmill.config.resolve import ROOT, Configuration
from babelmill.config.schema import SECTIONS
from babelmill.stages import STAGES

DOCUMENTS = sorted(
    path for folder in (".", "docs", "config", "profiles", "benchmarks") for path in (ROOT / folder).glob("*.md")
)
GUIDES = [path for path in DOCUMENTS if path.parent.name != "benchmarks" and path.name != "CHANGELOG.md"]
# Ends of names, such as train.parquet.
FILES = ("md", "py", "smk", "yaml", "json", "parquet", "safetensors", "csv", "bin")
# Options of Snakemake that take all following words.
LISTS = ("--config", "-C", "--resources", "--default-resources", "--set-resources", "--set-threads")
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def prose(path: Path) -> str:
    """The text of a document without its blocks of code."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that a forge makes of a document's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{name(path)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name(path)} links to {link}, of {sorted(anchors(target))}"


def test_the_catalogue_of_snakemake_finds_the_workflow_and_shows_what_must_be_installed():
    """Under "standardized usage"; its page is config/README.md, and no longer the flags of the settings file."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert "snakemake" in readme and "workflow" in readme and len(readme.splitlines()) <= 120
    assert (ROOT / "workflow/Snakefile").is_file()
    assert all(path.suffix == ".smk" for path in (ROOT / "workflow/rules").iterdir() if path.is_file())
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert usage["software-stack-deployment"] == {"conda": True} and usage["report"] is True
    beginning = (ROOT / "config/README.md").read_text(encoding="utf-8").split("\n\n")[1]
    assert "install the package of the same release" in beginning


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_keys_and_commands_that_documents_name_exist(path):
    text = path.read_text(encoding="utf-8")
    sections = "|".join(SECTIONS)
    for section, key in re.findall(rf"(?<![\w./*{{])({sections})\.([a-z_]+)\b(?!\(|\.\w)", text):
        if key not in FILES:
            assert key in SECTIONS[section].model_fields, f"{name(path)} names {section}.{key}"
    for command in re.findall(r"(?:`|^|&& )babelmill ([a-z][a-z-]*)", text, re.MULTILINE):
        assert command in COMMANDS, f"{name(path)} names the command {command}"


def test_snakemake_understands_the_commands_of_documents():
    """No option that takes all following words (--config, --resources) takes a target."""
    sources = [*DOCUMENTS, ROOT / "Makefile", *(ROOT / "workflow").rglob("*.py"), *(ROOT / "profiles").rglob("*.yaml")]
    found = 0
    for path in sources:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for arguments in re.findall(r"(?<![\w.-])snakemake ((?:-|converted|tier)[^`\n\"]*)", text):
            words = shlex.split(arguments, comments=True)
            for i, word in enumerate(words):  # all words up to the next option
                taken = [*itertools.takewhile(lambda each: not each.startswith("-"), words[i + 1 :])]
                assert word not in LISTS or all("=" in each for each in taken), f"{name(path)}: {arguments}"
            found += 1
    assert found > 30


@pytest.mark.parametrize("path", [path for path in GUIDES if path.parent.name != "profiles"], ids=name)
def test_configurations_that_documents_show_are_valid(path):
    languages = {}
    for _, language, block in FENCE.findall(path.read_text(encoding="utf-8")):
        if language == "yaml":
            settings = yaml.safe_load(textwrap.dedent(block))
            languages |= settings.get("languages", {})
            configuration = Configuration([("above", {"languages": languages}), (name(path), settings)])
            for model in {"eng", *settings.get("models", {})}:
                configuration.model(model)
            for code in settings.get("languages", {}):
                configuration.corpus(code)


def test_the_architecture_page_has_the_table_of_stages():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\|[^|]*\| (.*) \|$", text, re.MULTILINE))
    assert rows.keys() == {*STAGES, "report"}
    for name, stage in STAGES.items():
        assert (stage.named or f"results/{name}/").split("{")[0] in rows[name], f"the folder of {name}"
    assert len(text.splitlines()) <= 250
