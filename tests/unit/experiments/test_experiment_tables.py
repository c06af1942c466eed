"""The tables of an experiment: what a paper gets."""

import subprocess

from babelmill.experiments.tables import Comparison, comparison, labels_of, latex, markdown, of_score, with_cells
from babelmill.reporting.results import ModelResults
from babelmill.reporting.table import ALL, ScoreRow, score_frame
from helpers.environments import debian

SCORE = ScoreRow("", "eng", "blimp", "causal", ALL, ALL, 0.6, "share", 9, 0.5, 0.7, True, 0.5)
BITS = {"suite": "", "unit": "bits per byte", "simple": 2.15}
CELLS = {"lamb": ([2.0, 2.11, 2.2], [0.6, 0.62, 0.61]), "adamw": ([1.0, 1.1, 1.21], [0.61, 0.6, 0.62])}


def compared(cells: dict[str, tuple[list[float], list[float]]], name: str = "masking") -> Comparison:
    """Return the comparison of cells: for each, its bits per byte and its shares of right pairs, by seed."""
    rows, asked = list[ScoreRow](), list[dict]()
    for label, columns in cells.items():
        for seed, (bits, share) in enumerate(zip(*columns, strict=True), 1):
            asked.append(cell(f"x_{label}_s{seed}", label, seed, **{"train.optimizer": label}))
            score = SCORE._replace(model=f"x_{label}_s{seed}")
            rows += [score._replace(score=share), score._replace(score=bits, **BITS)]
    figures = {"parameters": 31_400_000, "steps": 2000, "precision": "bf16"}
    made = {("train", ""): {"figures": figures}, ("corpus", "eng"): {"figures": {"documents": {"train": 12_345}}}}
    models = [ModelResults(each["name"], {}, manifests=made) for each in asked]
    about = {"name": name, "cells": asked, "suites": {"blimp": {"title": "BLiMP 100 %_ok"}}, "tasks": {}}
    return comparison(about, models, score_frame(rows))


def rows_of(text: str) -> list[list[str]]:
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


def test_means_and_differences_in_markdown_and_on_the_page():
    found = compared(CELLS)
    text = markdown(found)
    assert "the reference (lamb), seed by seed, ± half of its 95 % interval" in text
    assert "after Holm's correction over all 2 tests of the table" in text
    facts = ["3", "31.4 M", "2,000", "12,345"]
    assert rows_of(text) == [
        ["cell", "seeds", "parameters", "steps", "documents", "bits per byte ↓, causal", "BLiMP 100 %\\_ok ↑, % right"],
        ["lamb", *facts, "2.103 ± 0.249", "61.0 ± 2.5"],
        ["adamw", *facts, "**1.103 ± 0.261** (-1.000 ± 0.025\\*)", "61.0 ± 2.5 (+0.0 ± 4.3)"],
    ]
    (_, bits), (reference, shares) = (of_score(found, number).frame.iloc for number in (0, 1))
    assert [bits["mean"], bits["difference"], bits["p"]] == ["1.103 ± 0.261", "<b>-1.000 ± 0.025</b>", "< 0.001"]
    assert bits.iloc[1].text.count('class="seed"') == 3 and 'class="beside"' in bits.iloc[1].text
    assert [shares["difference"], shares["p"]] == ["+0.0 ± 4.3", "1.000"]
    assert [reference["difference"], reference["p"]] == ["reference", None]


def test_without_vary_the_base_is_the_only_cell():
    asked = [cell(f"x_s{seed}", "base", seed) for seed in (1, 2, 3)]
    rows = [SCORE._replace(model=each["name"], score=0.6) for each in asked]
    about = {"name": "spread", "cells": asked, "suites": {"blimp": {"title": "BLiMP"}}, "tasks": {}}
    found = comparison(about, [ModelResults(each["name"], {}) for each in asked], score_frame(rows))
    assert rows_of(markdown(found))[1][:2] == ["base", "3"]


def test_guessing_is_marked_and_one_seed_has_no_interval():
    worse = {"lamb": ([2.2] * 3, [0.6] * 3), "adamw": ([2.0] * 3, [0.5] * 3)}
    once = {cell: (bits[:1], shares[:1]) for cell, (bits, shares) in CELLS.items()}
    for cells, said, expected in (
        (worse, "† Not better than guessing", ["2.200 ± 0.000†", "50.0 ± 0.0† (-10.0 ± 0.0)"]),
        (once, "One seed: there is no interval, and no difference is tested.", ["2.000", "61.0 (+1.0)"]),
    ):
        text = markdown(compared(cells))
        _, first, second = rows_of(text)
        assert said in text and [first[5], second[6]] == expected
        assert ("†" in text) == (cells is worse) and ("±" in text) == (cells is worse)


def cell(name: str, label: str, seed: int, **values) -> dict:
    return {"name": name, "base": "eng", "label": label, "values": values, "seed": seed, "reference": label == "lamb"}


def test_a_comparison_is_made_of_the_table_of_scores():
    """Of headlines and of the methods of others' headlines, beside baselines; different precisions are said."""
    other = cell("x_adamw_s1", "adamw", 1, optimizer=None, ratio="1/2")
    cells = [cell("x_lamb_s1", "lamb", 1, optimizer="lamb"), other]
    asked = {"name": "x", "cells": cells, "suites": {"blimp": {"title": "BLiMP"}}, "tasks": {}}
    row = SCORE._replace(model="x_lamb_s1")
    left_out = [{"phenomenon": "binding"}, {"million_words": 1}, {"method": "fused", "simple": None}]
    left_out = [row._replace(score=0.1, **values) for values in left_out]
    masked, bits = row._replace(method="masked", headline=False), row._replace(**BITS | {"score": 1.5})
    other = row._replace(model="x_adamw_s1", method="masked", score=0.7)
    table = score_frame([row, masked, bits, other, *left_out])
    made = {name: {("train", ""): {"figures": {"precision": name[2]}}} for name in ("x_lamb_s1", "x_adamw_s1")}
    found = comparison(asked, [ModelResults(name, {}, manifests=each) for name, each in made.items()], table)
    assert found.caption.endswith("Note: x_lamb_s1 ran in l, x_adamw_s1 in a.")
    assert [[row[0], *row[5:]] for row in rows_of(markdown(found))] == [
        ["cell", "bits per byte ↓, causal", "BLiMP ↑, % right, causal", "BLiMP ↑, % right, masked"],
        ["optimizer lamb", "1.500", "60.0", "60.0"],
        ["no optimizer, ratio 1/2", "–", "–", "70.0 (+10.0)"],
    ]
    names = ["model", "experiment", "base", "cell", "optimizer", "ratio", "seed", "language"]
    assert [*with_cells(asked, table).columns[:8]] == names


def test_rows_say_what_varies():
    """In words that a paper can print; cells that would look alike have their names, too."""
    cells = {
        "base": {},
        "ratio1o2_lamb": {"train.hybrid_ratio": "1/2", "train.optimizer": "lamb"},
        "gateOff_lengths128x256": {"model.gate": False, "train.sequence_lengths": [128, 256]},
        "clipNone_small": {"train.clip": None, "preset": "small"},
        "a": {"tokenizer.revision": "1"},
        "b": {"tokenizer.revision": 1},
    }
    found = [*labels_of([{"label": label, "values": values} for label, values in cells.items()]).values()]
    assert found[:4] == ["base", "hybrid ratio 1/2, lamb", "gate off, sequence lengths 128x256", "no clip, small"]
    assert found[4:] == ["revision 1 (a)", "revision 1 (b)"]


def test_latex_prints_what_the_markdown_says(tmp_path):
    """Names may hold what LaTeX obeys. The document compiles with booktabs."""
    name = "a_b"
    text = latex(compared({"lamb": CELLS["lamb"], "x_1%&$#{}~^\\": CELLS["adamw"]}, name))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}"
    (tmp_path / "paper.tex").write_text(document, encoding="utf-8")
    latex_of_debian = debian("pdflatex", "texlive-latex-recommended")
    compiled = [latex_of_debian, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(compiled, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    subprocess.run([debian("pdftotext", "poppler-utils"), "-layout", "paper.pdf"], cwd=tmp_path, check=True)
    printed = " ".join((tmp_path / "paper.txt").read_text(encoding="utf-8").split())
    assert "cell seeds parameters steps documents bits per byte ↓ BLiMP 100 % ok ↑ causal % right" in printed
    assert "lamb 3 31.4 M 2,000 12,345 2.103 ± 0.249 61.0 ± 2.5" in printed
    assert "1.103 ± 0.261 61.0 ± 2.5" in printed and "(-1.000 ± 0.025*) (+0.0 ± 4.3)" in printed
    # TeX draws an underscore as a rule, which is no text.
    assert "x 1%&$#{}~^\\ 3 31.4 M 2,000 12,345" in printed.replace("˜", "~").replace("ˆ", "^")
    assert r"\textbf{1.103 $\pm$ 0.261}" in text
