"""The tables of an experiment: what a paper gets."""

import dataclasses
import subprocess

from babelmill.experiments.comparison import Column, Line, best, effects
from babelmill.experiments.tables import Table, latex, markdown
from helpers.environments import debian

BITS, SHARE = Column("", "causal", "bits per byte"), Column("blimp", "causal", "share")


def table(
    cells: dict[str, tuple[list[float], list[float]]], name: str = "masking", reference: str | None = "lamb"
) -> Table:
    """Return the table of cells: for each, its bits per byte and its shares of right pairs, by seed."""
    scores = {
        Line("eng", "eng", cell): {
            column: dict(enumerate(values, 1)) for column, values in zip((BITS, SHARE), both, strict=True)
        }
        for cell, both in cells.items()
    }
    found = effects(scores, reference)
    titles = {BITS: "causal, bits per byte", SHARE: "BLiMP 100 %_ok"}
    return Table(name, titles, [*scores], scores, found, best(scores, found, reference), reference, 3)


CELLS = {
    "lamb": ([2.0, 2.11, 2.2], [0.6, 0.62, 0.61]),
    "adamw": ([1.0, 1.1, 1.21], [0.61, 0.6, 0.62]),
}


def test_the_markdown_has_means_with_intervals_and_differences():
    assert markdown(table(CELLS)).splitlines() == [
        "# masking",
        "",
        "Mean over 3 seeds ± half of its 95 % interval (t distribution). Bold: the best cell, if its difference from lamb"
        " is significant (paired t test over seeds, p < 0.05 after Holm's correction over all 2 tests of the table).",
        "",
        "| cell | causal, bits per byte ↓ | BLiMP 100 %\\_ok, % ↑ |",
        "| --- | --- | --- |",
        "| lamb | 2.103 ± 0.249 | 61.0 ± 2.5 |",
        "| adamw | **1.103 ± 0.261** | 61.0 ± 2.5 |",
        "",
        "Differences from lamb, seed by seed, with 95 % intervals; \\* significant after Holm's correction:",
        "",
        "| cell | causal, bits per byte ↓ | BLiMP 100 %\\_ok, % ↑ |",
        "| --- | --- | --- |",
        "| adamw | -1.000 ± 0.025 * | +0.0 ± 4.3 |",
    ]


def test_one_seed_has_no_interval():
    cells = {cell: (bits[:1], shares[:1]) for cell, (bits, shares) in CELLS.items()}
    text = markdown(dataclasses.replace(table(cells), seeds=1))
    assert "One seed: there is no interval, and no difference is tested." in text
    assert "| lamb | 2.000 | 60.0 |" in text and "| adamw | -1.000 | +1.0 |" in text


def test_latex_prints_what_the_markdown_says(tmp_path):
    """Names may hold what LaTeX obeys. The document compiles with booktabs."""
    name = "a_b"
    text = latex(table({"lamb": CELLS["lamb"], "x_1%&$#{}~^\\": CELLS["adamw"]}, name))
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
    assert "lamb 2.103 ± 0.249 61.0 ± 2.5" in printed
    # TeX draws an underscore as a rule, which is no text.
    assert "x 1%&$#{}~^\\ 1.103 ± 0.261 61.0 ± 2.5" in printed.replace("˜", "~").replace("ˆ", "^")
    assert r"\textbf{1.103 $\pm$ 0.261}" in text
