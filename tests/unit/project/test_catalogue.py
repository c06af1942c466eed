"""What Snakemake's catalogue of workflows asks of a repository, and shows of it under "standardized usage"."""

import yaml

from babelmill.config.resolve import ROOT


def test_it_is_found_and_its_usage_is_called_standardized():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert "snakemake" in readme and "workflow" in readme
    assert (ROOT / "workflow/Snakefile").is_file()
    assert all(path.suffix == ".smk" for path in (ROOT / "workflow/rules").iterdir() if path.is_file())
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert usage["software-stack-deployment"] == {"conda": True} and usage["report"] is True


def test_its_page_says_what_must_be_installed():
    """It shows config/README.md, and no longer the flags of the settings file."""
    beginning = (ROOT / "config/README.md").read_text(encoding="utf-8").split("\n\n")[1]
    assert "install the package of the same release" in beginning
