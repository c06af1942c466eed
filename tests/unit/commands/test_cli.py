"""The command line: one place for help, errors and exit codes."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from babelmill.cli import COMMANDS, main
from conftest import ROOT

SCRIPT = Path(sys.executable).with_name("babelmill")


def babelmill(*arguments, cwd=ROOT, **environment) -> subprocess.CompletedProcess:
    return subprocess.run([SCRIPT, *arguments], cwd=cwd, env=os.environ | environment, capture_output=True, text=True)


def test_the_help_is_a_screenful_and_names_every_command():
    done = babelmill("--help", COLUMNS="80", LINES="24")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and max(map(len, lines)) <= 80
    assert len(lines) < 24, "a terminal of 24 lines shows its first line, and the prompt below it"
    for name, text in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, text] for line in lines), name


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_of_its_own(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown, module = capsys.readouterr().out, importlib.import_module(f"babelmill.commands.{command}")
    assert shown.startswith(f"usage: babelmill {command}") and module.__doc__.splitlines()[0] in shown


def test_an_error_is_one_line(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("preset: tiny\n")
    for command in ("why", "status", "plan", "config"):
        done = babelmill(command, "enk", cwd=tmp_path)
        assert done.returncode == 1 and done.stdout == "", command
        assert done.stderr.startswith("error: there is no model 'enk'; did you mean eng"), done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["plan"], ["show", "nothing"]])
def test_a_reader_that_is_gone_is_no_traceback(arguments):
    """Whatever is written last, to standard output or to standard error, and when Python ends."""
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    for streams in ({"stdout": write, "stderr": subprocess.PIPE}, {"stdout": subprocess.PIPE, "stderr": write}):
        done = subprocess.run([SCRIPT, *arguments], cwd=ROOT, env=environment, text=True, **streams)
        assert "Error" not in (done.stderr or "") and "Traceback" not in (done.stdout or "")
        assert done.returncode in (0, 1)
    os.close(write)


def test_another_checkouts_script_refuses(tmp_path):
    """It would write settings files, and judge results, by the code of another checkout."""
    package = tmp_path / "workflow/babelmill"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    done = babelmill("status", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: this babelmill belongs to {ROOT}, but this folder has its own")
    assert "files written" in babelmill("init", "study", cwd=tmp_path).stdout
