"""`python -m babelmill.lock`: pin the Hub datasets, so that another person gets the same bytes.

    python -m babelmill.lock                  # the languages of the configuration's targets
    python -m babelmill.lock eng tier1        # those of these models and batches
    python -m babelmill.lock --update eng     # move on to what the branches are at now

writes `config/lock.yaml`, which belongs into version control beside `config/config.yaml`. A language that was
downloaded before is pinned to what was downloaded, so that locking repeats no run. Entries of other languages stay.
"""

import argparse
import sys

from babelmill import config, download, revisions
from babelmill.files import UserError


def lock(configuration: config.Configuration, models: list[str], update: bool) -> dict[str, dict]:
    """Pin the datasets of the models' languages; returns their entries. `update` resolves branches anew."""
    codes = dict.fromkeys(code for model in models for code in configuration.languages_of(model))
    entries = {}
    for code in codes:
        source = configuration.hub_source(code)
        if source is None:
            continue
        asked = source["repository"], source["revision"]
        known = None if update else revisions.in_lock(code, *asked) or revisions.recorded(code, *asked)
        entries[code] = source | {"commit": known or download.resolve(*asked)}
    if not entries:
        raise UserError(f"no text of {', '.join(codes)} comes from the Hub: there is nothing to lock")
    revisions.write_lock(entries)
    return entries


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models and batches (default: the configuration's targets)")
    parser.add_argument("--update", action="store_true", help="resolve branches anew, even if they were before")
    config.add_arguments(parser)
    args = parser.parse_args()
    try:
        configuration = config.from_arguments(args)
        models = configuration.models_of(args.models or ["all"])
        for code, entry in lock(configuration, models, args.update).items():
            print(f"{code}: {entry['repository']} at {entry['commit']}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
