"""Make the notebook of the tutorial, `docs/tutorial.ipynb`, from docs/tutorial.md: the same text, commands and output.

python docs/site/notebook.py

Blocks of commands and of settings become cells to run; the others stay text. `make test` compares the notebook with
the tutorial, and `make test-all` runs it.
"""

import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

DOCS = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(yaml|sh|console)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", re.MULTILINE)  # of a console, with its output
BEFORE = "git clone"  # begins a block that is run before there can be a notebook
OTHER = re.compile(r"^This page is also .*\n\n", re.MULTILINE)  # the way to the notebook
ABOUT = """
This notebook is the [tutorial](tutorial.md), with cells to run in place of its commands, and the output that these gave
there. Install first (step 1), then `pip install notebook && jupyter notebook docs/tutorial.ipynb` in the same
environment. Stop a cell where the tutorial presses Ctrl-C. Some cells overwrite `config/config.yaml`: keep a copy if it
is yours.
"""
FOLDER = """# The commands are those of the folder of the clone.
import os

if not os.path.isdir("config"):
    os.chdir("..")"""


def settings_cell(settings: dict[str, str], block: str) -> Any:
    """Return a cell that writes config/config.yaml: what it had, with the top-level keys of a block put in."""
    for entry in re.split(r"^(?=\w)", block, flags=re.MULTILINE)[1:]:
        settings[entry.partition(":")[0]] = entry
    return new_code_cell("%%writefile config/config.yaml\n" + "".join(settings.values()).rstrip())


def command_cell(command: str, output: str) -> Any:
    """Return a cell that runs a command in a shell. One that the tutorial shows to fail is allowed to do so."""
    outputs = [new_output("stream", name="stdout", text=output)] if output else []
    tags = {"tags": ["raises-exception"]} if output.startswith("error: ") else {}
    return new_code_cell(f"%%bash\n{command.rstrip()}", outputs=outputs, metadata=tags)


def notebook() -> Any:
    """Return the notebook of the tutorial as it stands."""
    title, text = (DOCS / "tutorial.md").read_text(encoding="utf-8").split("\n", 1)
    text = OTHER.sub("", text)
    cells, settings, end = [new_markdown_cell(f"{title}\n{ABOUT}".rstrip()), new_code_cell(FOLDER)], {}, 0
    for block in BLOCK.finditer(text):
        if block[2].startswith(BEFORE):
            continue
        cells.append(new_markdown_cell(text[end : block.start()].strip()))
        end = block.end()
        if block[1] == "yaml":
            cells.append(settings_cell(settings, block[2]))
        elif block[1] == "sh":
            cells += [command_cell(line, "") for line in block[2].splitlines()]
        else:
            cells += [command_cell(command[1], command[2]) for command in COMMAND.finditer(block[2])]
    cells.append(new_markdown_cell(text[end:].strip()))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # nbformat draws them
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=[cell for cell in cells if cell.source], metadata=kernel)


def contents() -> str:
    """Return the notebook as its file has it."""
    return nbformat.writes(notebook()) + "\n"


if __name__ == "__main__":
    (DOCS / "tutorial.ipynb").write_text(contents(), encoding="utf-8")
