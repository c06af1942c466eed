"""Draw what `babelmill watch` shows of a run that is under way, as docs/images/watch.svg.

python docs/site/terminal.py rates     # in the folder of the run; with the arguments of `babelmill watch`
"""

import argparse
import io
import re
import sys
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.commands import watch  # noqa: E402

WIDTH, HEIGHT = 100, 27  # characters

parser = argparse.ArgumentParser()
watch.add_arguments(parser)
args = parser.parse_args()
console = Console(record=True, width=WIDTH, file=io.StringIO())
console.print(watch.coloured(watch.view(args, WIDTH, HEIGHT)))
picture = console.export_svg(title=" ".join(["babelmill watch", *args.names]), unique_id="watch")
without_fonts = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they would come from the network
(ROOT / "docs/images/watch.svg").write_text(without_fonts, encoding="utf-8")
