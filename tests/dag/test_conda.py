"""`--sdm conda`: jobs run in the environment that Snakemake makes with conda, which is a small script here."""

import sys

import pytest
import yaml

from conftest import ROOT, SMALL, write_texts
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


@pytest.fixture
def corpus(tmp_path):
    """A function that makes a corpus with --sdm conda, by a Snakefile, and returns where its Python imported from."""
    prefix, folder = tmp_path / "conda", tmp_path / "results"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/conda").write_text(CONDA.format(prefix=prefix, python=sys.executable))
    (prefix / "bin/conda").chmod(0o755)
    (prefix / "bin/activate").write_text('export PATH="$1/bin:$PATH"\n')
    write_texts(folder / "texts/eng", "eng")
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SMALL))

    def run(snakefile, sources) -> list[str]:
        environment = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(sources)}
        options = ["--sdm", "conda", "--cores", "1", "--snakefile", str(snakefile)]
        target = ["converted/eng", "--until", "corpus", "--resources", "gpu=0"]
        run_module("snakemake", *options, *target, cwd=folder, environment=environment, check=True)
        assert [*folder.glob("results/corpus/eng-*/manifest.json")]
        return (prefix / "ran").read_text().splitlines()

    return run


def test_a_clone_is_used_by_the_python_of_the_environment(corpus):
    assert corpus(ROOT / "Snakefile", ROOT / "workflow") == [str(ROOT / "workflow")]
