"""Compute the figures of a tiny run that never changes, so that a claim of "same results" can be found wrong.

    python tests/scripts/stored_figures.py --write                       # store them: results have changed, and should have
    python tests/scripts/stored_figures.py --out found.json plan batches # compute some sections

Who edits code and does not raise the version of its stage says that its results stay; `tests/unit/training/test_stored_figures.py`
compares these figures with the stored ones (`tests/data/stored_figures.json`), after every edit and every change of a pin. There
are three kinds of figures:

* exact: documents, tokens, rows of the plan, integers of batches;
* float64 on one thread, within 1e-9: learning rates, losses, gradient norms, weights;
* float32, within a tolerance that was measured: {"centre", "tolerance"} in the file. `--write` computes them in six
  processes, for ATEN_CPU_CAPABILITY default, avx2 and avx512 with one and with two threads (four, if the processor has
  no AVX-512); the centre is the middle of them, and the tolerance five times their spread (the widest of a list's
  numbers, at least a rounding step), because other processors differ by more.

Each section makes its own data, so that a difference points at the code that made it: training does not go through the
tokenizer, whose tokens may change with the library.
"""

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import DATA, ROOT
from helpers.figures import FLOAT32, FLOAT64, SECTIONS
from helpers.programs.prepared import run_python

STORED = DATA / "stored_figures.json"
ABOUT = "Made by `python tests/scripts/stored_figures.py --write`, which says what the figures are; do not edit."
RELATIVE = 1e-9  # of float64 figures
SPREADS = 5  # times the spread: tolerance of float32 figures
ROUNDING = 2.0**-22  # relative: the least tolerance of a float32 figure
CPU = Path("/proc/cpuinfo").read_text(encoding="utf-8")
CAPABILITIES = ("default", "avx2", *(["avx512"] if "avx512f" in CPU else []))
CONDITIONS = list(itertools.product(CAPABILITIES, (1, 2)))


def compute(names: list[str], threads: int = 1) -> dict[str, dict]:
    """Return the figures of some sections."""
    result = {}
    for name in names:
        if name in (*FLOAT64, *FLOAT32):
            torch.set_num_threads(threads)
            torch.set_default_dtype(torch.float64 if name in FLOAT64 else torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            result[name] = SECTIONS[name](Path(folder))
    return result


# Comparison.


def leaves(figures: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of all figures: numbers, texts, lists of them, and those with a tolerance."""
    if isinstance(figures, dict) and set(figures) != {"centre", "tolerance"}:
        for key, value in figures.items():
            yield from leaves(value, f"{name}: {key}" if name else key)
    else:
        yield name, figures


def equal(stored: Any, found: Any, tolerance: float | None) -> bool:
    """Return whether two numbers or texts are the same, apart from rounding."""
    if float not in (type(stored), type(found)) or not {type(stored), type(found)} <= {int, float}:
        return stored == found
    return math.isclose(stored, found, rel_tol=0 if tolerance else RELATIVE, abs_tol=tolerance or 1e-15)


def difference(stored: Any, found: Any) -> str | None:
    """Say how a found figure differs from the stored one, or return None if it does not."""
    tolerance = None
    if isinstance(stored, dict):
        stored, tolerance = stored["centre"], stored["tolerance"]
    if not isinstance(stored, list) or not isinstance(found, list):
        return None if equal(stored, found, tolerance) else f"stored {stored!r}, found {found!r}"
    if len(stored) != len(found):
        return f"stored {len(stored)} entries, found {len(found)}"
    wrong = [i for i, pair in enumerate(zip(stored, found, strict=True)) if not equal(*pair, tolerance)]
    if not wrong:
        return None
    first = f"number {wrong[0]}: stored {stored[wrong[0]]!r}, found {found[wrong[0]]!r}"
    allowed = "" if tolerance is None else f" (allowed: +-{tolerance:.1e})"
    return f"{len(wrong)} of {len(stored)} differ; {first}{allowed}"


def compare(stored: dict, found: dict) -> list[str]:
    """Return a line for each figure that differs from the stored one."""
    before, after = dict(leaves(stored)), dict(leaves(found))
    lines = {name: difference(before.get(name, "nothing"), after.get(name, "nothing")) for name in before | after}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def read_stored() -> dict[str, dict]:
    """Return the stored figures."""
    return json.loads(STORED.read_text(encoding="utf-8"))["figures"]


# Commands.


def in_a_process(names, capability: str | None = None, threads: int = 1, package: Path = ROOT / "workflow") -> dict:
    """Return the figures of some sections, computed in a process of its own.

    Args:
        names: of the sections.
        capability: ATEN_CPU_CAPABILITY, which PyTorch reads once; None for the processor's own.
        threads: of PyTorch.
        package: the folder with the package, which may be a copy.
    """
    environment = os.environ | {"PYTHONPATH": f"{package}:{ROOT / 'tests'}"}
    environment |= {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = ["-m", "scripts.stored_figures", "--out", str(out), "--threads", str(threads), *names]
        if capability:
            environment["ATEN_CPU_CAPABILITY"] = capability
            subprocess.run([sys.executable, *command], env=environment, check=True)
        else:
            run_python(*command, environment=environment, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def with_tolerance(found: list[Any]) -> Any:
    """Return what the processes found as it is stored: centre and tolerance of lists of floats, else what all found."""
    first = found[0]
    if isinstance(first, dict):
        return {key: with_tolerance([one[key] for one in found]) for key in first}
    if not isinstance(first, list):
        if not all(equal(first, one, None) for one in found):
            raise RuntimeError(f"processors would not agree on it: {found}")
        return first
    values = np.array(found)
    low, high = values.min(0), values.max(0)
    spread = float((high - low).max())
    least = ROUNDING * float(np.abs(values).max())
    return {"centre": ((low + high) / 2).tolist(), "tolerance": float(f"{max(SPREADS * spread, least):.2g}")}


def measure() -> dict[str, dict]:
    """Return all figures as they are stored."""
    exact = [name for name in SECTIONS if name not in (*FLOAT64, *FLOAT32)]
    figures = in_a_process(exact)
    found = [in_a_process([*FLOAT64, *FLOAT32], *condition) for condition in CONDITIONS]
    for name in FLOAT64:
        figures[name] = found[0][name]
        for condition, other in zip(CONDITIONS, found, strict=True):
            if lines := compare({name: figures[name]}, {name: other[name]}):
                raise RuntimeError(f"in float64, {condition} differs from {CONDITIONS[0]}:\n" + "\n".join(lines))
    for name in FLOAT32:
        figures[name] = with_tolerance([one[name] for one in found])
    return figures


def write(figures: dict) -> None:
    """Store the figures, a list in a line."""
    text = json.dumps({"about": ABOUT, "figures": figures}, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: f"[{' '.join(found[0][1:-1].split())}]", text)
    STORED.write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Compute figures, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="all, if none is named")
    parser.add_argument("--write", action="store_true", help="store all figures: results have changed, and should have")
    parser.add_argument("--out", type=Path, help="write the figures of the sections to this file")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.write:
        write(measure())
    else:
        args.out.write_text(json.dumps(compute(args.sections or list(SECTIONS), args.threads)), encoding="utf-8")


if __name__ == "__main__":
    main()
