"""Say which models find languages (`corpus.language_filter`), and what they call the languages of the table."""

import importlib.metadata
from pathlib import Path
from typing import Any

from babelmill.config.languages import Language
from babelmill.config.resolve import ResolvedCorpus
from babelmill.core import local_sources
from babelmill.core.files import UserError, not_found

GLOTLID, PY3LANGID = "glotlid", "py3langid"
FILE = "identifier.bin"  # in the results of the stage `identifier`
# Models on the Hub, each at a commit, and the sha256 of the file.
HUB: dict[str, dict[str, Any]] = {
    GLOTLID: {
        "repository": "cis-lmu/glotlid",
        "commit": "3f51edf53f87904e799d81d36cdc53e4960a08b7",
        "file": "model.bin",
        "sha256": "a818b6bd42a628ab47d3dfc1578c7ea615c45381f3494c42535e31e8c4cafc9e",
    },
}


# A code of ISO 639-3 may stand for several languages (a macrolanguage). Models have labels for its members: here those
# that a text with the code is usually in, from ISO 639-3's own table. Members that are other languages for a reader,
# such as Cantonese (yue) for zho, are left out. srp, hrv and bos are languages of their own, although hbs joins them.
_MEMBERS = (
    "zho cmn, nor nob nno, fas pes prs, ara arb, est ekk, nep npi, msa zsm, swa swh, lav lvs, aze azj, uzb uzn,"
    " mon khk, mlg plt, sqi als, yid ydd, orm gaz, pus pbt, kur kmr"
)
MEMBERS = {code: members for code, *members in map(str.split, _MEMBERS.split(","))}
SHORT_MEMBERS = {"no": ("nn", "nb")}  # the same for codes of two letters
# Scripts that models join, or tell apart.
SAME_SCRIPTS = {"Hans": ("Hani",), "Hant": ("Hani",), "Jpan": ("Hira", "Kana"), "Hang": ("Kore",), "Kore": ("Hang",)}


def labels_of(language: Language) -> list[str]:
    """Return the labels that stand for a language in its script: nld_Latn, nld and nl for Dutch."""
    code = language.language_code.partition("_")[0]
    codes = [code, *MEMBERS.get(code, ())]
    scripts = [language.script, *SAME_SCRIPTS.get(language.script, ())]
    short = [language.tag, *SHORT_MEMBERS.get(language.tag, ())] if language.tag else []
    return sorted({*codes, *short, *(f"{each}_{script}" for each in codes for script in scripts)})


def on_the_hub(resolved: ResolvedCorpus) -> dict[str, Any] | None:
    """Return the model on the Hub that finds the languages of a corpus; None if there is none to fetch."""
    asked = resolved.corpus.language_filter
    return HUB.get(asked.model) if asked else None


def identification(resolved: ResolvedCorpus) -> dict[str, Any]:
    """Return what `corpus` must know for `corpus.language_filter`; raise a UserError if there is no such model."""
    asked = resolved.corpus.language_filter
    if asked is None:
        return {}
    found: dict[str, Any] = {"labels": labels_of(resolved.language)}
    if asked.model in HUB:
        return found | {"commit": HUB[asked.model]["commit"]}
    if asked.model == PY3LANGID:
        return found | {"version": importlib.metadata.version(PY3LANGID)}
    if not Path(asked.model).is_file():
        where = f"{resolved.origins['corpus.language_filter']}: corpus.language_filter.model = {asked.model!r}"
        known = f"{', '.join([*HUB, PY3LANGID])} or a file of fastText is expected"
        raise UserError(f"{where}: {known}; {not_found(asked.model)}")
    return found | {"sha256": local_sources.hashes([asked.model])[asked.model]}
