"""How a process of this package begins: it imports from the package and its environment, and from nowhere else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

SHADOWS = ("random", "queue", "select", "json", "fnmatch", "torch", "numpy", "yaml")
PACKAGE = str(ROOT / "workflow")


@pytest.fixture
def shadowed(tmp_path) -> Path:
    """A working folder, and in it a folder of another project, with modules that are named like libraries."""
    for folder in (tmp_path, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        for name in SHADOWS:
            (folder / f"{name}.py").write_text(f"raise SystemExit('{name} is not the library')")
    return tmp_path


def output_of(folder: Path, *words, **variables: str) -> str:
    """What a fresh Python says."""
    environment = os.environ | {"PYTHONPATH": PACKAGE} | variables
    return subprocess.check_output([sys.executable, *words], cwd=folder, env=environment, text=True)


@pytest.mark.parametrize("path", [PACKAGE, f"other{os.pathsep}{PACKAGE}", f"{PACKAGE}{os.pathsep}other"])
def test_a_stage_and_a_command_import_nothing_from_the_working_folder_or_another_project(shadowed, path):
    script = Path(sys.executable).with_name("babelmill")
    for words in (["-m", "babelmill.shards"], ["-m", "babelmill", "status"], [script, "status"]):
        assert output_of(shadowed, *words, "--help", PYTHONPATH=path).startswith("usage: ")


def test_logging_does_without_a_standard_error(tmp_path):
    code = "import sys; from babelmill.core.stage_entry import configure_logging as f; f(None); print(sys.stderr)"
    assert (
        output_of(
            tmp_path, "-c", f"import os; os.close(2); os.execvp(*{[sys.executable, [sys.executable, '-c', code]]})"
        )
        == "None\n"
    )


def test_processes_of_a_stage_import_nothing_from_there_either(shadowed):
    """Those that it starts with `-c`, and workers of `multiprocessing`."""
    (shadowed / "begin.py").write_text(
        "import sys; sys.path.remove(__file__.rpartition('/')[0]) if __name__ == '__main__' else None; sys.argv[0] = '-m'\n"
        "import babelmill, subprocess, multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run([sys.executable, '-c', 'import random; print(random.random() < 1)'], check=True)\n"
        "    process = multiprocessing.get_context('forkserver').Process(target=print, args=['also'])\n"
        "    process.start(); process.join()\n"
    )
    output = output_of(shadowed, shadowed / "begin.py", PYTHONPATH=f"{PACKAGE}{os.pathsep}other")
    assert output.split() == ["True", "also"]


HEAVY = ["torch", "transformers", "pyarrow", "pandas", "scipy", "sklearn", "matplotlib"]
NEEDED = {"report": "pyarrow pandas matplotlib", "tokenizer": "pyarrow", "train": "torch", "export": "torch"}


@pytest.mark.parametrize("module", [*NEEDED, "commands.show", "commands.status", "commands.plan"])
def test_a_program_imports_at_its_start_only_what_it_always_needs(tmp_path, module):
    """PyTorch takes one to four seconds of CPU, transformers' models three to eight more."""
    code = f"import babelmill.{module}, sys; print(*{{*{HEAVY}}} & {{*sys.modules}})"
    assert {*output_of(tmp_path, "-c", code).split()} <= {*NEEDED.get(module, "").split()}


def test_ctrl_c_during_the_imports_has_no_traceback():
    begin = "import sys; sys.argv[0] = '-m'; import babelmill; raise "
    ended, failed = (
        subprocess.run([sys.executable, "-c", begin + error], capture_output=True, text=True, cwd=ROOT / "workflow")
        for error in ("KeyboardInterrupt", "ImportError('no torch')")
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "") and "ImportError: no torch" in failed.stderr
