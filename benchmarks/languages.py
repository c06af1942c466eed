"""Measure what the language filter keeps and drops, on mixed help pages of LibreOffice in known shares.

    python benchmarks/languages.py FOLDER [LANGUAGE ...]

For each language, its corpus is 200 pages of it and 20 of each other one (`real_text.py` fetches them to FOLDER). This
prints how many of its own pages `corpus.language_filter` keeps (py3langid, at least 0.8), and how many of the others it
drops. Help pages share program names, so they are harder than prose.
"""

import random
import sys
from pathlib import Path

import pyarrow as pa
from real_text import documents

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.config.identifiers import labels_of
from babelmill.config.languages import read_table
from babelmill.corpus.identification import Identification, has_enough_letters, other_languages
from babelmill.corpus.tally import Tally

ROOT = Path(__file__).resolve().parents[1]
CODES = {"nl": "nld", "da": "dan", "sv": "swe", "de": "deu", "en-us": "eng", "fr": "fra", "es": "spa", "pt": "por"}
CODES |= {"cs": "ces", "ru": "rus", "el": "ell", "hi": "hin", "ja": "jpn", "zh-cn": "zho", "id": "ind", "eu": "eus"}
OWN, OTHERS = 200, 20


def percent(part: int, whole: int) -> str:
    """Return a share in percent, with the counts."""
    return f"{100 * part / max(1, whole):.1f} % of {whole:,}"


def main() -> None:
    """Print the table."""
    folder, asked = Path(sys.argv[1]), sys.argv[2:] or ["nl", "da", "sv", "de", "en-us", "fr", "es", "pt", "cs", "ru"]
    table = read_table(ROOT / "config/languages.tsv")
    pages = {name: sorted(documents(folder, [name])) for name in asked}
    for each in pages.values():
        random.Random(0).shuffle(each)
    print("| language | own pages kept | other pages dropped |")
    print("|---|---|---|")
    for name in asked:
        language = table[CODES[name]]
        own, others = pages[name][:OWN], [text for other in asked if other != name for text in pages[other][:OTHERS]]
        asked_for, found = Identification("py3langid", False, frozenset(labels_of(language)), 0.8), []
        for texts in (own, others):
            pages_of = [text for text in texts if has_enough_letters(text)]
            kept = other_languages(pa.array(pages_of, pa.string()), asked_for, Tally()).count("")
            found.append(percent(kept if texts is own else len(pages_of) - kept, len(pages_of)))
        print(f"| {name} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
