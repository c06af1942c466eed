"""Draw what `watch babelmill status` shows of a run that is under way, as docs/images/status.svg.

python docs/site/terminal.py rates     # in the folder of the run; with the arguments of `babelmill status`
"""

import argparse
import contextlib
import io
import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.commands import status  # noqa: E402

WIDTH = 100  # characters

parser = argparse.ArgumentParser()
status.add_arguments(parser)
args = parser.parse_args()
os.environ["COLUMNS"] = str(WIDTH)
with contextlib.redirect_stdout(io.StringIO()) as shown:
    status.run(args)
console = Console(record=True, width=WIDTH, file=io.StringIO())
console.print(Text(shown.getvalue(), no_wrap=True))
picture = console.export_svg(title=" ".join(["watch -n 5 babelmill status", *args.names]), unique_id="status")
without_fonts = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they would come from the network
(ROOT / "docs/images/status.svg").write_text(without_fonts, encoding="utf-8")
