"""The tables of an experiment: what a paper gets."""

import dataclasses
import io
import subprocess

from babelmill.experiments.comparison import Column, Line, best, effects
from babelmill.experiments.page import of_score
from babelmill.experiments.tables import Comparison, comparison, labels_of, latex, markdown, with_cells
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import ALL, ScoreRow, frame_of, write_csv
from helpers.environments import debian

BITS, SHARE = Column("", "causal", "bits per byte"), Column("blimp", "causal", "share")


def compared(cells: dict[str, tuple[list[float], list[float]]], name: str = "masking") -> Comparison:
    """Return the comparison of cells: for each, its bits per byte and its shares of right pairs, by seed."""
    scores = {
        Line("eng", "eng", cell): {
            column: dict(enumerate(values, 1)) for column, values in zip((BITS, SHARE), both, strict=True)
        }
        for cell, both in cells.items()
    }
    found = effects(scores, "lamb")
    titles = {BITS: ("causal ↓", "bits per byte"), SHARE: ("BLiMP 100 %_ok ↑", "%")}
    labels = {cell: "ratio 1/2, LAMB" if cell == "lamb" else cell for cell in cells}
    names = {line: labels[line.cell] for line in scores}
    return Comparison(name, titles, names, labels, scores, found, best(scores, found, "lamb"), labels["lamb"], 3)


CELLS = {
    "lamb": ([2.0, 2.11, 2.2], [0.6, 0.62, 0.61]),
    "adamw": ([1.0, 1.1, 1.21], [0.61, 0.6, 0.62]),
}


def rows_of(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")
    ]


def test_the_markdown_has_means_with_intervals_and_differences():
    text = markdown(compared(CELLS))
    assert "reference (ratio 1/2, LAMB) is significant (paired t test over seeds, p < 0.05 after Holm's" in text
    heads = ["cell", "causal ↓, bits per byte", "BLiMP 100 %\\_ok ↑, %"]
    assert rows_of(text) == [
        heads,
        ["ratio 1/2, LAMB", "2.103 ± 0.249", "61.0 ± 2.5"],
        ["adamw", "**1.103 ± 0.261**", "61.0 ± 2.5"],
        heads,
        ["adamw", "-1.000 ± 0.025 *", "+0.0 ± 4.3"],
    ]


def test_the_page_shows_each_seed_and_bold_differences_are_significant():
    _, bits = of_score(compared(CELLS), BITS).frame.iloc
    assert [bits["mean"].text, bits["difference"].text, bits["p"]] == [
        "<b>1.103 ± 0.261</b>",
        "<b>-1.000 ± 0.025</b>",
        "< 0.001",
    ]
    assert bits.iloc[1].text.count('class="seed"') == 3
    reference, shares = of_score(compared(CELLS), SHARE).frame.iloc
    assert [shares["difference"].text, shares["p"]] == ["+0.0 ± 4.3", "1.000"] and reference["p"] is None


def test_one_seed_has_no_interval():
    cells = {cell: (bits[:1], shares[:1]) for cell, (bits, shares) in CELLS.items()}
    text = markdown(dataclasses.replace(compared(cells), seeds=1))
    assert "One seed: there is no interval, and no difference is tested." in text
    assert rows_of(text)[1] == ["ratio 1/2, LAMB", "2.000", "60.0"] and rows_of(text)[-1] == ["adamw", "-1.000", "+1.0"]


def cell(name: str, label: str, seed: int, **values) -> dict:
    return {"name": name, "base": "eng", "label": label, "values": values, "seed": seed, "reference": label == "lamb"}


def test_a_comparison_is_made_of_the_table_of_scores():
    """Of headlines and of the methods of others' headlines; different precisions are said."""
    cells = [
        cell("x_lamb_s1", "lamb", 1, optimizer="lamb"),
        cell("x_adamw_s1", "adamw", 1, optimizer=None, ratio="1/2"),
    ]
    asked = {"name": "x", "cells": cells, "suites": {"blimp": {"title": "BLiMP"}}, "tasks": {}}
    row = ScoreRow("x_lamb_s1", "eng", "blimp", "causal", ALL, ALL, 0.6, "share", 9, 0.5, 0.7, True)
    rows = [row, row._replace(method="masked", headline=False), row._replace(suite="", score=1.5, unit="bits per byte")]
    rows += [
        row._replace(model="x_adamw_s1", method="masked", score=0.7),
        row._replace(phenomenon="binding", score=0.1),
    ]
    table = frame_of([*rows, row._replace(score=0.2, million_words=1)], ScoreRow._fields)
    models = [
        ModelResults(name, {}, manifests={("train", ""): {"figures": {"precision": precision}}})
        for name, precision in (("x_lamb_s1", "bf16"), ("x_adamw_s1", "fp32"))
    ]
    found = comparison(asked, models, table)
    assert found.caption.endswith("Note: x_lamb_s1 ran in bf16, x_adamw_s1 in fp32.")
    masked = "BLiMP (masked) ↑, %"
    assert rows_of(markdown(found))[:3] == [
        ["cell", "causal ↓, bits per byte", "BLiMP (causal) ↑, %", masked],
        ["optimizer lamb", "1.500", "60.0", "60.0"],
        ["no optimizer, ratio 1/2", "–", "–", "70.0"],
    ]
    file = io.StringIO()
    write_csv(with_cells(asked, table), file)
    first, *others = file.getvalue().splitlines()
    assert first.startswith("model,experiment,base,cell,optimizer,ratio,seed,language,suite,") and len(others) == 6
    assert others[0].startswith("x_lamb_s1,x,eng,lamb,lamb,,1,eng,blimp,causal,all,all,0.6,share,9,")


def test_rows_say_what_varies():
    """In words that a paper can print; cells that would look alike have their names, too."""
    cells = {
        "base": {},
        "ratio1o2_lamb": {"train.hybrid_ratio": "1/2", "train.optimizer": "lamb"},
        "rate0p001": {"train.learning_rate": 0.001},
        "gateOff_lengths128x256": {"model.gate": False, "train.sequence_lengths": [128, 256]},
        "clipNone_small": {"train.clip": None, "preset": "small"},
        "sources": {"model.source": "eng", "tokenizer.source": "deu"},
        "a": {"tokenizer.revision": "1"},
        "b": {"tokenizer.revision": 1},
    }
    assert [*labels_of([{"label": label, "values": values} for label, values in cells.items()]).values()] == [
        "base",
        "hybrid ratio 1/2, lamb",
        "learning rate 0.001",
        "gate off, sequence lengths 128x256",
        "no clip, small",
        "model source eng, tokenizer source deu",
        "revision 1 (a)",
        "revision 1 (b)",
    ]


def test_latex_prints_what_the_markdown_says(tmp_path):
    """Names may hold what LaTeX obeys. The document compiles with booktabs."""
    name = "a_b"
    text = latex(compared({"lamb": CELLS["lamb"], "x_1%&$#{}~^\\": CELLS["adamw"]}, name))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}"
    (tmp_path / "paper.tex").write_text(document, encoding="utf-8")
    compiled = [
        debian("pdflatex", "texlive-latex-recommended"),
        "-interaction=nonstopmode",
        "-halt-on-error",
        "paper.tex",
    ]
    done = subprocess.run(compiled, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    subprocess.run([debian("pdftotext", "poppler-utils"), "-layout", "paper.pdf"], cwd=tmp_path, check=True)
    printed = " ".join((tmp_path / "paper.txt").read_text(encoding="utf-8").split())
    assert "cell causal ↓ BLiMP 100 % ok ↑ bits per byte % " in printed
    assert "ratio 1/2, LAMB 2.103 ± 0.249 61.0 ± 2.5" in printed
    # TeX draws an underscore as a rule, which is no text.
    assert "x 1%&$#{}~^\\ 1.103 ± 0.261 61.0 ± 2.5" in printed.replace("˜", "~").replace("ˆ", "^")
    assert r"\textbf{1.103 $\pm$ 0.261}" in text
