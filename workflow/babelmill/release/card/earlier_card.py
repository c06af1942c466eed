"""Keep what a repository's card declares, and what its authors wrote, when its model is converted again.

The licence, the languages and the other declared fields stay as they were, except for the library and, if it no longer
fits, the task. The new card replaces the sections about the use of the files. The other sections follow under their own
headings.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelmill.core.files import read_text
from babelmill.core.yaml_file import FRONT, front_matter

# Headings of sections that the new card writes itself, since they must fit the new files.
SAID_ANEW = re.compile(
    r"\b(usage|use|using|quick|start|variants?|files?|config\w*|load\w*|example|inference|shape)\b", re.I
)

OF_A_SCRIPT = "Weights are the exact trained parameters"  # a sentence in the notes by BabyBabelLM's script


@dataclass(frozen=True)
class EarlierCard:
    """Holds the card that a repository had before."""

    data: dict[str, Any] = field(default_factory=dict)  # its front matter
    sections: str = ""  # the sections that the new card does not replace, as Markdown

    def joined(self, ours: dict[str, Any], tasks: list[str]) -> dict[str, Any]:
        """Return the new front matter: `ours`, overridden by the declared fields. `tasks` are the model's tasks."""
        joined = ours | {key: value for key, value in self.data.items() if value is not None}
        joined["library_name"] = ours["library_name"]
        tags = self.data.get("tags") or []
        joined["tags"] = list(dict.fromkeys([*ours["tags"], *([tags] if isinstance(tags, str) else tags)]))
        if joined.get("pipeline_tag") not in tasks:
            joined["pipeline_tag"] = ours.get("pipeline_tag")
        return {key: value for key, value in joined.items() if value is not None}


def read_card(path: Path | None, where: str) -> EarlierCard:
    """Read a README.md (None: an empty card); raise a UserError if its front matter cannot be read."""
    if path is None:
        return EarlierCard()
    data = front_matter(path, f"{where}: the front matter of README.md")
    text = read_text(path)
    front = FRONT.match(text)
    return EarlierCard(data, _kept(text[front.end() :] if front else text))


def _kept(text: str) -> str:
    """Return the second-level sections that the new card does not replace. Headings in code blocks do not count."""
    sections, fenced = [""], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if not fenced and re.match(r"##? ", line):
            sections.append("")
        sections[-1] += line
    kept = [each.strip() for each in sections if each.startswith("## ") and OF_A_SCRIPT not in each]
    return "\n\n".join(each for each in kept if not SAID_ANEW.search(each.partition("\n")[0]))
