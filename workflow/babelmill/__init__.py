"""Babelmill: raw text to published language models, one per language.

If this is the program that was started (`python -m babelmill.train`, `babelmill why`), and not a part of another one
(Snakemake, a test), the lines below prepare it before anything else is imported.
"""

import sys

__version__ = "1.0.0.dev0"

if sys.argv[:1] == ["-m"] or (sys.argv[:1] and sys.argv[0].endswith(("/babelmill", "babelmill.exe"))):
    from babelmill.core import program

    program.prepare()
