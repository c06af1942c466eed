"""Fetch real text in several scripts for benchmarks: the help pages of LibreOffice from Debian packages.

    python benchmarks/real_text.py FOLDER [LANGUAGE ...]

This downloads `libreoffice-help-LANGUAGE` (default: en-us de hi ja zh-cn) with `apt-get download` and writes one
document per line to FOLDER/LANGUAGE.jsonl, 4 to 6 MB each (MPL-2.0). Existing files are kept. On a machine without apt,
put such files there yourself.

`enlarge` makes corpora of any size from them: it shuffles the paragraphs of each document, so that the text stays
real and no two documents are equal.
"""

import argparse
import html
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = ("en-us", "de", "hi", "ja", "zh-cn")


def fetch(folder: Path, language: str) -> Path:
    """Return the JSONL file with the documents of a language in `folder`. Download it if needed."""
    path = folder / f"{language}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", f"libreoffice-help-{language}"]
            subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["dpkg-deb", "-x", *Path(scratch).glob("*.deb"), f"{scratch}/x"], check=True)
            texts = [
                paragraphs(page) for page in sorted(Path(scratch).glob("x/**/text/**/*.html")) if not page.is_symlink()
            ]
        lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts if text]
        path.write_text("".join(lines), encoding="utf-8")
    return path


def paragraphs(page: Path) -> str:
    """Return the text of a help page, one paragraph per line."""
    found = re.findall(r"<(?:p|h[1-6])\b[^>]*>(.*?)</(?:p|h[1-6])>", page.read_text(encoding="utf-8"), re.DOTALL)
    plain = (" ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split()) for text in found[1:])
    return "\n".join(text for text in plain if text)


def enlarge(texts: list[str], size: int, seed: int = 0) -> Iterator[str]:
    """Yield at least `size` UTF-8 bytes of documents: the texts, again and again, with their paragraphs shuffled."""
    generator = random.Random(seed)
    done = 0
    while done < size:
        for text in texts:
            lines = text.split("\n")
            generator.shuffle(lines)
            yield (document := f"{generator.getrandbits(32):08x}\n" + "\n".join(lines))
            done += len(document.encode())


def documents(folder: Path, languages=LANGUAGES) -> list[str]:
    """Return the documents of all languages, one of each in turn."""
    parts = []
    for language in languages:
        with open(fetch(folder, language), encoding="utf-8") as file:
            parts.append([json.loads(line)["text"] for line in file])
    return [text for texts in zip(*parts, strict=False) for text in texts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("languages", nargs="*", default=LANGUAGES)
    args = parser.parse_args()
    for name in args.languages:
        target = fetch(args.folder, name)
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
