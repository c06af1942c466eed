"""Find the package, and the files of the project that are no modules: rules, configuration, profiles, the CHANGELOG.

In a checkout they are around the package, where the catalogue of Snakemake workflows looks for them. A wheel has them
in the folder `project/` of the package, at the same places below it.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
IN_WHEEL = PACKAGE / "project"
ROOT = IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parents[1]
