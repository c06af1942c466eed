"""Measure what the language filter keeps and drops, on mixed help pages of LibreOffice in known shares.

    python benchmarks/languages.py FOLDER [LANGUAGE ...]

For each language, its corpus is 200 pages of it and 20 of each other one (`real_text.py` fetches them to FOLDER). This
prints how many of its own pages `corpus.language_filter` keeps (py3langid, at least 0.8), and how many of the others it
drops, for whole documents and for lines. Help pages share program names, so they are harder than prose.
"""

import random
import sys
from pathlib import Path

import pyarrow as pa
from real_text import documents

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))
from babelmill.config.identifiers import labels_of
from babelmill.config.languages import read_table
from babelmill.corpus.identification import Identification, has_enough_letters, in_the_language, without_other_lines
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
    print("| language | own pages kept | other pages dropped | own lines kept | other lines dropped |")
    print("|---|---|---|---|---|")
    for name in asked:
        language = table[CODES[name]]
        own, others = pages[name][:OWN], [text for other in asked if other != name for text in pages[other][:OTHERS]]
        found = []
        for level in ("document", "line"):
            filters = Identification("py3langid", False, frozenset(labels_of(language)), language.script, 0.8, level)
            for texts in (own, others):
                parts = texts if level == "document" else [line for text in texts for line in text.split("\n")]
                batch = pa.array(parts, pa.string())
                batch = batch.filter(pa.array(has_enough_letters(batch)))
                if level == "document":
                    kept = int(in_the_language(batch, filters, Tally())[0].sum())
                else:
                    kept = sum(map(bool, without_other_lines(batch, filters, Tally()).to_pylist()))
                found.append(percent(kept if texts is own else len(batch) - kept, len(batch)))
        print(f"| {name} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
