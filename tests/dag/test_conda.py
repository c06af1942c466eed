"""`--sdm conda`: jobs run in the environment that Snakemake makes with conda, which is a small script here."""

import sys

import pytest

from conftest import ROOT
from helpers.programs.prepared import run_module

pytestmark = pytest.mark.slow

# Answers what Snakemake asks of conda. The Python of its environments says in a file where it imports from.
CONDA = """#!/bin/sh
case "$1 $2" in
    "info --json") echo '{{"conda_prefix": "{prefix}", "platform": "linux-64"}}' ;;
    "--version ") echo "conda 26.1.0" ;;
    "config --get") echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
    "env create")
        grep -q torch "$6"
        mkdir -p "$8/bin"
        printf '#!/bin/sh\\necho "$PYTHONPATH" >> {prefix}/ran\\nexec {python} "$@"\\n' > "$8/bin/python"
        chmod +x "$8/bin/python" ;;
    "clean -y") ;;
    *) echo "conda $@: not expected" >&2; exit 1 ;;
esac
"""


def test_a_clone_is_used_by_the_python_of_the_environment(workspace, tmp_path):
    prefix = tmp_path / "conda"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/conda").write_text(CONDA.format(prefix=prefix, python=sys.executable))
    (prefix / "bin/conda").chmod(0o755)
    (prefix / "bin/activate").write_text('export PATH="$1/bin:$PATH"\n')
    sources = str(ROOT / "workflow")
    environment = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": sources}
    arguments = workspace.arguments("converted/eng", "-R", "corpus", "--until", "corpus", "--sdm", "conda")
    run_module("snakemake", *arguments, cwd=workspace.path, environment=environment, check=True)
    assert (prefix / "ran").read_text().splitlines() == [sources]
