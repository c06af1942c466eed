"""Make a folder of your own, in which the installed Babelmill runs: no clone is needed.

    babelmill init study
    cd study
    snakemake --profile profiles/local -n converted/eng

The folder gets `config/config.yaml` for your settings, `config/demo.yaml`, the profiles, and a `Snakefile` that names
the workflow of the environment in which Snakemake runs. Results appear in the same folder. Presets, suites and tasks
of your own are files in `config/presets/`, `config/suites/`, ... of this folder.

Nothing is ever overwritten: what is already there stays, and what is missing is added.
"""

import argparse
import os
import subprocess
from pathlib import Path
from shlex import quote

from babelmill.core.escape import line
from babelmill.core.files import UserError, atomic_write
from babelmill.core.places import ROOT
from babelmill.core.words import plural

SNAKEFILE = '''\
"""Runs the workflow of the Babelmill that is installed beside Snakemake. Rules of your own may stand below."""

from babelmill.core.places import ROOT


include: ROOT / "workflow/Snakefile"


workflow.default_target = "all"  # a bare `snakemake` builds the `targets:` of config/config.yaml
'''
OURS = "from babelmill.core.places import ROOT\n"  # a Snakefile with this line is one of these
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")  # the ones that Snakemake finds
SETTINGS = "config/config.yaml"
COPIED = (SETTINGS, "config/demo.yaml", "profiles/*.*", "profiles/*/*.*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="make this folder, or add to it what is missing")


def run(args: argparse.Namespace) -> None:
    """Write the files that are missing, and say what to do next."""
    folder: Path = args.folder
    refuse(folder)
    names = [str(path.relative_to(ROOT)) for pattern in COPIED for path in sorted(ROOT.glob(pattern))]
    files = {"Snakefile": SNAKEFILE} | {name: copied(name) for name in names}
    for path in (folder / name for name in files):
        if os.path.lexists(path) and not path.is_file():
            raise UserError(f"{line(str(path))}: a file is expected, not a folder or a link to nothing: remove it")
    missing = {name: text for name, text in files.items() if not (folder / name).exists()}
    for name, text in missing.items():
        with atomic_write(folder / name, "w") as file:
            file.write(text)
        if name.endswith(".sh"):
            (folder / name).chmod((folder / name).stat().st_mode | 0o111)
    kept = f"; {plural(len(files) - len(missing), 'file')} of yours stayed as they were" * (len(missing) < len(files))
    print(f"{line(str(folder))}: {plural(len(missing), 'file')} written{kept}")
    if not folder.resolve().samefile(Path.cwd()):
        print(f"  cd {line(quote(str(folder)))}")
    print("  snakemake --profile profiles/demo converted/eng    # the demo: a few minutes on two cores, no download")
    print(f"Your settings are config/config.yaml. Guides: {line(str(ROOT / 'docs/README.md'))}")


def refuse(folder: Path) -> None:
    """Raise a UserError if another workflow is in the folder."""
    for name in SNAKEFILES:
        if (folder / name).is_file() and OURS not in (folder / name).read_text(encoding="utf-8", errors="replace"):
            raise UserError(f"{line(str(folder / name))} is another workflow's: name another folder (or use a module)")


def copied(name: str) -> str:
    """Return the text of a copied file. What it names beside itself, and is not copied, it then names by its path."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name == SETTINGS and (ROOT / ".git").exists():  # a clone, whose own settings are not for others
        committed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", ROOT, "show", f"HEAD:{name}"], capture_output=True, encoding="utf-8"
        )
        if committed.returncode:
            raise UserError(f"git does not show {name} of {line(str(ROOT))}: {line(committed.stderr.strip(), 200)}")
        text = committed.stdout
    text = text.replace("$schema=", f"$schema={ROOT}/config/").replace("](../", f"]({ROOT}/")
    return text.replace(" config/defaults.yaml", f" {ROOT}/config/defaults.yaml").replace("(docs/", f"({ROOT}/docs/")
