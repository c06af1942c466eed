"""The notebook of the tutorial runs from its first cell to its last, in a folder of its own, and ends in a table."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from babelmill.cli import main
from conftest import ROOT

# Less of everything: each stage still runs, and each command says what it says in the tutorial.
SMALLER = {
    "max_steps: 100": "max_steps: 2",
    "[english_basics]}": "[english_basics], max_documents: 3, max_masked_items: 2}",
    "max_documents: 30": "max_documents: 2, max_masked_items: 2",
    "seeds: 2": "seeds: 1",
}


@pytest.mark.timeout(1800)
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # as in an activated environment
    main(["init", str(tmp_path / "clone")])
    (tmp_path / "clone/docs").mkdir()
    text = (ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8")
    for words, fewer in SMALLER.items():
        assert words in text
        text = text.replace(words, fewer)
    notebook = nbformat.reads(text, as_version=4)
    shown = outputs_of(notebook)
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path / "clone/docs")}}).execute()
    found = outputs_of(notebook)
    typo = "%%bash\nbabelmill config eng --config 'trian={max_steps: 2}'"
    assert found[typo].splitlines()[-1] == shown[typo].strip()
    assert "| learning rate 0.003 |" in found["%%bash\ncat experiments/rates/table.md"]


def outputs_of(notebook) -> dict[str, str]:
    """Return {what a cell runs: what it printed}."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return {cell.source: "".join(output.get("text", "") for output in cell.outputs) for cell in cells}
