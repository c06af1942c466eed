"""Find files of `config/`: those that come with Babelmill, and the user's own in `config/` of the working folder.

In a clone, both are in the same folder. In a folder that `babelmill init` made, the user's presets, recipes, suites and
tasks are in that folder, and Babelmill's are beside the installed package.
"""

import filecmp
from pathlib import Path

from babelmill.core.files import UserError
from babelmill.core.places import ROOT


def config_names(folder: str, root: Path = ROOT) -> set[str]:
    """Return the names of all .yaml files of a folder such as `config/presets/`, without their suffix."""
    return {path.stem for place in (root, Path()) for path in (place / folder).glob("*.yaml")}


def config_file(path: str, root: Path = ROOT) -> Path:
    """Return where a file such as `config/presets/small.yaml` is. It need not exist.

    A UserError says that Babelmill and the user have different files of this name.
    """
    ours, own = root / path, Path(path)
    if not ours.is_file():
        return own
    if own.is_file() and not filecmp.cmp(ours, own, shallow=False):
        raise UserError(
            f"{path}: Babelmill has another file of this name ({ours}): rename yours, or delete it if it is an old copy"
        )
    return ours
