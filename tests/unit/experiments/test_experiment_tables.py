"""The tables of an experiment: what a paper gets."""

import dataclasses
import subprocess

from babelmill.experiments.comparison import Column, Line, best, effects
from babelmill.experiments.tables import Table, caption, labels_of, latex, markdown, table_of
from babelmill.reporting.results import ReportedModel
from helpers.environments import debian

LABELS = {"lamb": "ratio 1/2, LAMB"}
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
    labels = {cell: LABELS.get(cell, cell) for cell in cells}
    return Table(name, titles, [*scores], scores, found, best(scores, found, reference), labels, reference, 3)


CELLS = {
    "lamb": ([2.0, 2.11, 2.2], [0.6, 0.62, 0.61]),
    "adamw": ([1.0, 1.1, 1.21], [0.61, 0.6, 0.62]),
}


def test_the_markdown_has_means_with_intervals_and_differences():
    assert markdown(table(CELLS)).splitlines() == [
        "# masking",
        "",
        "Mean over 3 seeds ± half of its 95 % interval (t distribution). Bold: the best cell, if its difference from"
        " the reference (ratio 1/2, LAMB) is significant (paired t test over seeds, p < 0.05 after Holm's correction over all 2 tests of the table).",
        "",
        "| cell | causal, bits per byte ↓ | BLiMP 100 %\\_ok, % ↑ |",
        "| --- | --- | --- |",
        "| ratio 1/2, LAMB | 2.103 ± 0.249 | 61.0 ± 2.5 |",
        "| adamw | **1.103 ± 0.261** | 61.0 ± 2.5 |",
        "",
        "Differences from ratio 1/2, LAMB, seed by seed, with 95 % intervals; \\* significant after Holm's correction:",
        "",
        "| cell | causal, bits per byte ↓ | BLiMP 100 %\\_ok, % ↑ |",
        "| --- | --- | --- |",
        "| adamw | -1.000 ± 0.025 * | +0.0 ± 4.3 |",
    ]


def test_one_seed_has_no_interval():
    cells = {cell: (bits[:1], shares[:1]) for cell, (bits, shares) in CELLS.items()}
    text = markdown(dataclasses.replace(table(cells), seeds=1))
    assert "One seed: there is no interval, and no difference is tested." in text
    assert "| ratio 1/2, LAMB | 2.000 | 60.0 |" in text and "| adamw | -1.000 | +1.0 |" in text


def test_different_precisions_are_said():
    """In all tables, and on the page, which has this caption."""
    ran = {"x_lamb_s1": "bf16", "x_lamb_s2": "bf16", "x_adamw_s1": "fp32", "x_adamw_s2": None}
    cell = {"base": "eng", "label": "lamb", "values": {}, "seed": 1, "reference": True}
    about = {"cells": [cell | {"name": name} for name in ran], "seeds": 2}
    asked = {"name": "x", "experiment": about, "models": {name: {"languages": []} for name in ran}}

    def made(ran: dict[str, str | None]) -> list[ReportedModel]:
        return [
            ReportedModel(name, [], [], manifests={("train", ""): {"figures": {"precision": precision}}})
            for name, precision in ran.items()
        ]

    precisions = table_of(asked, made(ran)).precisions
    assert table_of(asked, made(ran | {"x_adamw_s1": "bf16"})).precisions == ""
    for seeds in (1, 3):
        found = dataclasses.replace(table(CELLS), seeds=seeds, precisions=precisions)
        note = "Note: x_lamb_s1, x_lamb_s2 ran in bf16, x_adamw_s1 in fp32."
        assert caption(found).endswith(note) and note in markdown(found)
        assert note.replace("_", r"\_") in latex(found)


def test_rows_say_what_varies():
    """In words that a paper can print; cells that would look alike have their names, too."""
    cells = {
        "base": {},
        "ratio1o2_lamb": {"train.hybrid_ratio": "1/2", "train.optimizer": "lamb"},
        "rate0p001": {"train.learning_rate": 0.001},
        "gateOff_lengths128x256": {"model.gate": False, "train.sequence_lengths": [128, 256]},
        "clipNone_small": {"train.clip": None, "preset": "small"},
        "a": {"tokenizer.revision": "1"},
        "b": {"tokenizer.revision": 1},
    }
    assert [*labels_of([{"label": label, "values": values} for label, values in cells.items()]).values()] == [
        "base",
        "hybrid ratio 1/2, LAMB",
        "learning rate 0.001",
        "gate off, sequence lengths 128 / 256",
        "no clip, small",
        "revision 1 (a)",
        "revision 1 (b)",
    ]


def test_rows_tell_keys_apart_and_show_no_mappings():
    """By the shortest ending of each key; of a mapping, a row says what the cells do not share."""
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 2}
    cells = {
        "a": {"model.source": "eng", "tokenizer.source": "deu", "train.clip": 1},
        "b": {"model.config": gpt2},
        "c": {"model.config": gpt2 | {"n_layer": 4, "rope": {"type": "linear", "theta": None}}},
        "d": {"model.config": {"vision": {"rope": {"type": "yarn"}}}},
    }
    assert [*labels_of([{"label": label, "values": values} for label, values in cells.items()]).values()] == [
        "model source eng, tokenizer source deu, clip 1",
        "gpt2, n layer 2, n head 2",
        "gpt2, n layer 4, n head 2, config rope type linear, no theta",
        "vision rope type yarn",
    ]
    same = [{"label": str(n), "values": {"model.config": gpt2 | {"n_layer": n}, "seed": 1}} for n in (2, 4)]
    assert labels_of(same) == {"2": "n layer 2, seed 1", "4": "n layer 4, seed 1"}
    assert labels_of(same[:1]) == {"2": "gpt2, n layer 2, n head 2, seed 1"}, "a single cell shares nothing"
    equal = [{"label": label, "values": {"model.config": {"n_layer": 2}}} for label in "ab"]
    assert labels_of(equal) == {"a": "n layer 2 (a)", "b": "n layer 2 (b)"}
    vague = {"tokenizer.source": "deu", "model.config.rope.type": "yarn"}
    assert labels_of([{"label": "a", "values": vague}]) == {"a": "tokenizer source deu, rope type yarn"}


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
    assert "ratio 1/2, LAMB 2.103 ± 0.249 61.0 ± 2.5" in printed
    # TeX draws an underscore as a rule, which is no text.
    assert "x 1%&$#{}~^\\ 1.103 ± 0.261 61.0 ± 2.5" in printed.replace("˜", "~").replace("ˆ", "^")
    assert r"\textbf{1.103 $\pm$ 0.261}" in text
