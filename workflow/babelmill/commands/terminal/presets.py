"""Show what presets and challenges hold, and how to run them (`babelmill config --presets`)."""

import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from babelmill.config.challenges import file_of
from babelmill.config.layers import CHALLENGES, PRESETS, nearest
from babelmill.config.own_files import config_file, config_names
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Challenge
from babelmill.config.suites import scores_asked
from babelmill.core.files import UserError
from babelmill.core.words import aligned, plural, short
from babelmill.core.yaml_file import read_yaml

WIDTH = 100  # characters per line


class Preset(NamedTuple):
    """What a preset's file says."""

    name: str
    about: str  # what it is for
    sections: dict[str, Any]

    @property
    def gpus(self) -> int:
        """Return how many GPUs a training takes; 0 for presets of laptops."""
        return self.sections.get("resources", {}).get("gpus", 0)

    @property
    def budget(self) -> str:
        """Return how much text it is for, if it says so."""
        return self.sections.get("corpus", {}).get("budget", "")


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(config_names(PRESETS))


def preset(name: str) -> Preset:
    """Read the preset with this name."""
    path = config_file(f"{PRESETS}{name}.yaml")
    return Preset(name, about_of(path), read_yaml(path))


def preset_table() -> list[str]:
    """Return a heading and one line per preset, which ends with its purpose, shortened to fit."""
    presets = [preset(name) for name in names()]
    lines = aligned([["preset", "GPUs"], *([each.name, f"{each.gpus}"] for each in presets)], [False, True])
    room = WIDTH - len(lines[0]) - 2
    purposes = ["for", *(re.split(r"\.\s+(?=[A-Z])|: ", each.about)[0] for each in presets)]
    shortened = (textwrap.shorten(purpose, room, placeholder=" ...") for purpose in purposes)
    return [f"{line}  {purpose}" for line, purpose in zip(lines, shortened, strict=True)]


def challenge_table() -> list[str]:
    """Return a heading and one line per challenge."""
    challenges = Configuration([("presets", {})]).challenges
    rows = [[name, short(each.words), f"{snapshots_of(each)}", each.title] for name, each in challenges.items()]
    return aligned([["challenge", "words", "snapshots", "for"], *rows], [False, True, True, False])


def snapshots_of(challenge: Challenge) -> int:
    """Return how many snapshots a challenge asks for."""
    return len(challenge.settings.get("run", {}).get("snapshots", []))


def challenge_description(name: str) -> list[str]:
    """Return paragraphs on a challenge: the comment of its file, and how to run a model for it."""
    challenge = Configuration([("presets", {})]).challenges[name]
    model = {"models": {"mine": {"challenge": name}}}
    of_model, of_each = scores_asked(Configuration([("presets", model)]), "mine")
    return [
        textwrap.fill(about_of(config_file(file_of(name))), WIDTH),
        f"{short(challenge.words)} words at most, {plural(snapshots_of(challenge), 'snapshot')},"
        f" {plural(of_model, 'suite')}, of which {of_each} for each snapshot",
        "In config/config.yaml:",
        f"models: {{mine: {{challenge: {name}}}}}",
        "snakemake --profile profiles/local -- converted/mine",
    ]


def about_of(path: Path) -> str:
    """Return the first paragraph of the comment at the beginning of a file. It ends at a line without words."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#") and line.strip("# "), lines)
    return " ".join(line.lstrip("#").strip() for line in comment if "yaml-language-server" not in line)


def description(found: Preset) -> list[str]:
    """Return paragraphs on a preset: its purpose, its values, and how to run it."""
    values = (
        f"{section}: " + ", ".join(f"{key} {value}" for key, value in keys.items())
        for section, keys in found.sections.items()
    )
    return [textwrap.fill(found.about, WIDTH), "\n".join(values), *commands(found)]


def commands(found: Preset) -> list[str]:
    """Return paragraphs that show how to run a preset: with the user's text, with a dataset, and on fewer GPUs."""
    run = "snakemake --profile profiles/local" + (f" --resources gpu={found.gpus}" if found.gpus else "")
    if found.sections.get("train", {}).get("objective") == "labels":
        return [
            "In config/config.yaml, with the columns of your table (docs/labels.md):",
            "targets: [occ]\n"
            "languages:\n"
            "  occ_en: {name: Occupations, corpus: {files: [table.csv], text_column: text, label_columns: [code]}}\n"
            f"models: {{occ: {{preset: {found.name}, languages: [occ_en]}}}}",
            f"{run} -- converted/occ",
        ]
    run += f" --config preset={found.name}"
    amount = "" if found.budget else f", budget: {100 if found.gpus else 1}M words"
    paragraphs = [
        f"{run} -- converted/eng",
        "With text of a dataset on the Hub:",
        f"{run} 'corpus={{hub: [{{repository: allenai/c4, config: en}}]{amount}}}' -- converted/eng",
    ]
    if found.gpus > 1:
        paragraphs.append("On fewer GPUs the result is the same: give their number with --resources gpu=N.")
    return paragraphs


def shown(name: str) -> str:
    """Return the list of presets and challenges, or the one with this name, and how to run it."""
    challenges = config_names(CHALLENGES)
    if not name:
        how = "`babelmill config --presets NAME` says how to run one, `babelmill plan` what it costs."
        return "\n".join([*preset_table(), *challenge_table(), how])
    if name in challenges:
        return "\n\n".join(challenge_description(name))
    if name in names():
        return "\n\n".join(description(preset(name)))
    raise UserError(f"there is no preset {name!r}{nearest(name, [*names(), *challenges])}")
