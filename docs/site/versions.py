"""Keep versions of the documentation beside each other in a folder (the last step of `make site`).

python docs/site/versions.py build/site

What was just built, `new`, becomes `0.3.0`, or `development`. `index.html` leads to the newest release, and
`versions.html` lists all.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEVELOPMENT = "development"  # between two releases, while the CHANGELOG has a section of what is not released
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Babelmill: {title}</title>
<style>body {{ margin: 2rem; font: 1.1rem/1.6 sans-serif }}</style>
{content}
</html>
"""
REDIRECT = '<meta http-equiv="refresh" content="0; url={0}/README.html">\n<a href="{0}/README.html">Babelmill</a>'
ENTRY = '<li><a href="{0}/README.html">{0}</a></li>\n'


def version() -> str:
    """Return the version of these documents: that of the newest section of the CHANGELOG."""
    found = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return DEVELOPMENT if found[1] == "Unreleased" else found[1]


def newest_first(folder: Path) -> list[str]:
    """Return the names of the versions in a folder: releases by their numbers, and development as the last."""
    names = [path.parent.name for path in folder.glob("*/README.html")]
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)


def main() -> None:
    """Name what is new, and write both pages."""
    if len(sys.argv) != 2:
        sys.exit("error: name the folder of the site, such as build/site")
    folder = Path(sys.argv[1])
    if (folder / "new").is_dir():
        old = folder / version()
        if old.is_dir() and old.name != DEVELOPMENT:
            sys.exit(f"error: {old} has the pages of a release; delete it if they are to be made again")
        shutil.rmtree(old, ignore_errors=True)
        (folder / "new").rename(old)
    if not (names := newest_first(folder)):
        sys.exit(f"error: {folder} has no version of the documentation")
    entries = "".join(map(ENTRY.format, names))
    pages = {
        "index.html": PAGE.format(title="documentation", content=REDIRECT.format(names[0])),
        "versions.html": PAGE.format(title="versions", content=f"<h1>Versions</h1>\n<ul>\n{entries}</ul>"),
    }
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
