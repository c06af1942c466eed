"""Run `python -m babelmill why eng`: the same as the console script `babelmill why eng`."""

import sys

from babelmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
