"""Add the exported snapshots to a converted model, with a card for each."""

from collections.abc import Callable
from pathlib import Path

from huggingface_hub.utils import yaml_dump

from babelmill.config.snapshots import FOLDER
from babelmill.core import manifest
from babelmill.core.escape import plain
from babelmill.core.files import atomic_write, link_or_copy, sha256
from babelmill.runtime.checkpoint import names

CARD = """\
---
license: {license}
---
# {model} after {words} million words

This snapshot holds the averaged weights of [{model}](../main) after step {step:,} of its training ({read}).
Use it to study how a model learns. The card of the branch `main` says how the model was trained, and how to load it;
add `revision="{name}"`. Words are separated by whitespace. In scripts without spaces, a fixed number of bytes counts as
a word.
"""


def convert_snapshots(
    export: Path, folder: Path, kept: Callable[[str], bool], asked: manifest.StageSettings, license: str
) -> dict[str, str]:
    """Put the exported snapshots into the converted folder, each with a card. Files are hard links if possible.

    Args:
        export: the exported folder.
        folder: the converted folder.
        kept: tells whether a file of the export goes into the converted folder.
        asked: the settings of the stage, for the manifests.
        license: the licence that the cards declare.

    Returns:
        {name: sha256 of the snapshot's manifest}.
    """
    license = yaml_dump({"license": plain(license)}).removeprefix("license: ").strip()  # quoted, if it must be
    found = {}
    for name in names(export):
        source, target = export / FOLDER / name, folder / FOLDER / name
        made = manifest.verify(source, within=export)
        files, figures = [file for file in made["files"] if kept(file)], made["figures"]
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source / file, target / file)
        with atomic_write(target / "README.md", "w") as file:
            counts = [f"{figures[unit]:,} {unit}" for unit in ("tokens", "words") if unit in figures]
            about = {"model": asked.name, "name": name, "step": figures["step"], "license": license}
            words = f"{figures['million_words']:,g}"
            file.write(CARD.format(**about, words=words, read=", ".join(counts)))
        manifest.write(target, asked, [*files, "README.md"], [source], figures)
        found[name] = sha256(target / manifest.NAME)
    return found
