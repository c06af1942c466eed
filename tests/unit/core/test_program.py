"""How a process of this package begins: it imports from the package and its environment, and from nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from babelmill.core import trouble
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
    environment = {**os.environ, "PYTHONPATH": PACKAGE, **variables}
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("path", [PACKAGE, f"other{os.pathsep}{PACKAGE}", f"{PACKAGE}{os.pathsep}other"])
def test_a_stage_and_a_command_import_nothing_from_the_working_folder_or_another_project(shadowed, path):
    assert output_of(shadowed, "-m", "babelmill.shards", "--help", PYTHONPATH=path).startswith("usage: ")
    assert output_of(shadowed, "-m", "babelmill", "status", "--help", PYTHONPATH=path).startswith("usage: ")
    script = Path(sys.executable).with_name("babelmill")
    assert output_of(shadowed, script, "status", "--help", PYTHONPATH=path).startswith("usage: ")


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


def test_a_stage_and_what_it_starts_write_bytecode_whatever_the_machine_says(tmp_path):
    """Or each process would compile PyTorch again, for seconds."""
    (tmp_path / "begin.py").write_text(
        "import sys; sys.argv[0] = '-m'\nimport babelmill, subprocess, tokenize\n"
        "subprocess.run([sys.executable, '-c', 'import sched'], check=True)\n"
    )
    output_of(tmp_path, tmp_path / "begin.py", PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=str(tmp_path / "made"))
    assert {path.name.split(".")[0] for path in (tmp_path / "made").rglob("*.pyc")} >= {"tokenize", "sched"}


HEAVY = ["torch", "transformers", "pyarrow", "pandas", "scipy", "sklearn", "matplotlib"]
NEEDED = {
    "convert": "",
    "submission": "pyarrow scipy",
    "report": "pyarrow",
    "publish": "",
    "tokenizer": "pyarrow",
    "shards": "pyarrow",
    "train": "torch",
    "export": "torch",
    "commands.show": "",
    "commands.config": "",
    "commands.why": "",
    "commands.status": "",
}


@pytest.mark.parametrize("module", NEEDED)
def test_a_program_imports_at_its_start_only_what_it_always_needs(tmp_path, module):
    """PyTorch takes one to four seconds of CPU, transformers' models three to eight more."""
    code = f"import babelmill.{module}, sys; print(*{{*{HEAVY}}} & {{*sys.modules}})"
    assert {*output_of(tmp_path, "-c", code).split()} <= {*NEEDED[module].split()}


def test_a_program_that_only_uses_the_package_keeps_its_paths(shadowed):
    code = "import sys; before = list(sys.path); import babelmill; assert sys.path == before"
    output_of(shadowed, "-c", code, PYTHONPATH=f"{PACKAGE}{os.pathsep}other")


@pytest.mark.parametrize("limit", ["resource.RLIM_INFINITY", "4 << 30"])
def test_openblas_gets_one_thread_where_memory_is_limited(tmp_path, limit):
    """It may wait forever where it cannot start the threads of all cores."""
    (tmp_path / "begin.py").write_text(
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({limit}, resource.RLIM_INFINITY))\n"
        "sys.argv[0] = '-m'; import babelmill; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    assert output_of(tmp_path, tmp_path / "begin.py").strip() == ("1" if "<<" in limit else "None")


@pytest.mark.parametrize("before, library", [("sys", "numpy"), ("numpy", "scipy.linalg")])
def test_openblas_is_not_loaded_without_room_for_it(tmp_path, before, library):
    """It would try again and again to get its memory, forever or until it ends the process itself."""
    (tmp_path / "begin.py").write_text(
        f"import resource, sys, {before}\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (48 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); sys.argv[0] = '-m'; import babelmill\n"
        f"import {library}"
    )
    command, environment = [sys.executable, tmp_path / "begin.py"], os.environ | {"PYTHONPATH": PACKAGE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr.startswith("error: not enough memory; ") and done.stderr.count("\n") == 1


def test_no_traceback_follows_when_memory_ran_out(tmp_path):
    """Libraries clean up at the end of a process, which then fails, too; other errors are shown as ever."""
    (tmp_path / "begin.py").write_text(
        "import atexit, sys; sys.argv[0] = '-m'; import babelmill\n"
        "def fails(error): raise error\n"
        "atexit.register(fails, MemoryError()); atexit.register(fails, ValueError('shown')); raise MemoryError"
    )
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    done = subprocess.run([sys.executable, tmp_path / "begin.py"], env=environment, capture_output=True, text=True)
    assert done.stderr.startswith("error: not enough memory") and "ValueError: shown" in done.stderr
    assert "MemoryError" not in done.stderr


def test_no_traceback_of_a_thread_that_ended_for_lack_of_memory(tmp_path):
    """As of the threads of a library, whose work fails in the main thread, too; of other errors, it is shown."""
    (tmp_path / "begin.py").write_text(
        "import sys, threading; sys.argv[0] = '-m'; import babelmill\n"
        "def fails(error): raise error\n"
        "for error in (MemoryError(), SystemError('without exception'), ValueError('shown')):\n"
        "    thread = threading.Thread(target=fails, args=[error]); thread.start(); thread.join()"
    )
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    done = subprocess.run([sys.executable, tmp_path / "begin.py"], env=environment, capture_output=True, text=True)
    assert done.stderr.count("Exception in thread") == 1 and "ValueError: shown" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("limit", "error", "message"),
    [
        (
            "4 << 30",
            "ImportError('cannot import name x')",
            "a library cannot be imported, probably for lack of memory: cannot",
        ),
        ("4 << 30", "ModuleNotFoundError('No module named x')", "the environment is incomplete: No module"),
        ("resource.RLIM_INFINITY", "ImportError('cannot import name x')", "the environment is incomplete: cannot"),
    ],
)
def test_a_library_that_went_on_without_a_part_of_itself(tmp_path, limit, error, message):
    """PyTorch catches a MemoryError in places, and then lacks a name."""
    (tmp_path / "begin.py").write_text(
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({limit}, resource.RLIM_INFINITY))\n"
        f"sys.argv[0] = '-m'; import babelmill; raise {error}"
    )
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    done = subprocess.run([sys.executable, tmp_path / "begin.py"], env=environment, capture_output=True, text=True)
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


def test_a_panic_that_nothing_catches_is_one_line(capfd):
    """Of a library in Rust, in the middle of transformers' own code: it is no `Exception`."""
    tokenizer = Tokenizer(models.WordLevel({"u": 0}, "u"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+a+)+y"), "isolated")
    with pytest.raises(BaseException) as panic:
        tokenizer.encode("a" * 60)
    assert not isinstance(panic.value, Exception)
    capfd.readouterr()
    trouble.report(panic.type, panic.value, None)
    output = capfd.readouterr().err
    assert output.startswith("error: the `tokenizers` library gave up: ") and output.count("\n") == 1


def test_a_panic_for_lack_of_threads_blames_no_tokenizer(capfd):
    panic = type("PanicException", (BaseException,), {})
    error = panic(
        'ThreadPoolBuildError { kind: IOError(Os { code: 11, message: "Resource temporarily unavailable" }) }'
    )
    trouble.report(panic, error, None)
    assert capfd.readouterr().err.startswith("error: no more threads or processes can start; raise the limits")
