"""What several tests need, by topic."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
SCRIPTS = ROOT / "tests/scripts"
