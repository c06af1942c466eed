"""Build the documentation site with Sphinx, from the Markdown files of the repository as they are (`make site`).

The repository itself is the source folder, so that links work in the same way on the site, on GitHub and in an editor.
A page that is made by the build has a comment such as `<!-- generated: settings -->` where the text goes.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow"), str(Path(__file__).parent)]

import versions  # noqa: E402
from reference import GENERATED, contents  # noqa: E402

project = "Babelmill"
author = "the authors of Babelmill"
version = release = versions.version()
language = "en"

extensions = ["myst_parser"]
root_doc = "README"
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "config", "profiles", "benchmarks")
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in PAGES]  # Sphinx does not look into these
exclude_patterns += [
    "docs/README.md",
    "docs/site",
]  # the first is GitHub's list of pages, which is the site's menu here
include_patterns = ["**.md"]

myst_heading_anchors = 4  # GitHub's anchors
myst_links_external_new_tab = False
toc_object_entries = False  # one entry a section; the keys of the configuration are found by the search
suppress_warnings = ["myst.header"]  # a changelog repeats its headings

html_theme = "furo"
html_title = f"Babelmill {release}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_extra_path = ["index.html"]
templates_path = ["templates"]  # the last line of the menu
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_theme_options = {
    # No fonts from elsewhere: the site works without a network.
    "light_css_variables": {"color-brand-primary": "#0b6e5f", "color-brand-content": "#0b6e5f"},
    "dark_css_variables": {"color-brand-primary": "#63d3c0", "color-brand-content": "#63d3c0"},
}

# The menu, in the order in which a newcomer reads.
MENU = {
    "Begin": {
        "The first model": "README",
        "Tutorial": "docs/tutorial",
        "Ways to install": "docs/installation",
        "Gallery": "docs/gallery",
        "A card": "docs/gallery/card",
    },
    "Guides": {
        "Text": "docs/data",
        "Models": "docs/models",
        "Training": "docs/training",
        "Clusters": "profiles/README",
        "Evaluation": "docs/evaluation",
        "Experiments": "docs/experiments",
        "Fine-tuning": "docs/fine-tuning",
        "Publishing": "docs/publishing",
        "The BabyLM challenge": "docs/challenge",
        "Labels and codes": "docs/labels",
        "Coming from other code": "docs/coming-from",
    },
    "Reference": {
        "Settings": "docs/settings",
        "Configuration files": "config/README",
        "Commands": "docs/commands",
        "Fields of results": "docs/fields",
        "Glossary": "docs/glossary",
    },
    "Help": {"When something goes wrong": "docs/troubleshooting"},
    "How it works": {
        "Architecture": "docs/architecture",
        "Contributing": "CONTRIBUTING",
        "Benchmarks": "benchmarks/README",
        "Security": "SECURITY",
        "Changes": "CHANGELOG",
    },
}


def menu() -> str:
    """Return the tables of contents of the start page, which the theme shows at the side of every page."""
    parts = []
    for caption, pages in MENU.items():
        names = "\n".join(f"{title} <{'self' if page == root_doc else page}>" for title, page in pages.items())
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n")
    return "\n" + "\n".join(parts)


def complete(_: Sphinx, page: str, text: list[str]) -> None:
    """Add the menu to the start page, and what the build makes to the pages that ask for it."""
    if page == root_doc:
        text[0] += menu()
    for name in GENERATED:
        mark = f"<!-- generated: {name} -->"
        if mark in text[0]:
            text[0] = text[0].replace(mark, contents(name))


def setup(app: Sphinx) -> None:
    """Register what runs when a page has been read."""
    app.connect("source-read", complete)
