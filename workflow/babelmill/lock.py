"""`python -m babelmill.lock`: pin texts and tokenizers on the Hub, so that another person gets the same bytes.

    python -m babelmill.lock                  # the languages of the configuration's targets
    python -m babelmill.lock eng tier1        # those of these models and batches
    python -m babelmill.lock --update eng     # move on to what the branches are at now

writes `config/lock.yaml`, which belongs into version control beside `config/config.yaml`. What was downloaded before
is pinned to what was downloaded, so that locking repeats no run. Other entries stay.
"""

import argparse
import sys

from babelmill import config, revisions
from babelmill.files import UserError
from babelmill.hub_source import DATASET, TOKENIZER, resolve


def lock(configuration: config.Configuration, models: list[str], update: bool) -> dict[str, dict]:
    """Pin the texts and tokenizers of models; returns their entries. `update` resolves branches anew."""
    codes = dict.fromkeys(code for model in models for code in configuration.languages_of(model))
    wanted = [(DATASET, code, configuration.hub_source(code)) for code in codes]
    tokenizers = (configuration.hub_tokenizer(model) for model in models)
    wanted += [
        (TOKENIZER, revisions.tokenizer_key(source["repository"], source["revision"]), source)
        for source in tokenizers
        if source
    ]
    entries = {}
    for use, key, source in wanted:
        if source is None:
            continue
        asked = source["repository"], source["revision"]
        known = None if update else revisions.in_lock(key, *asked) or revisions.recorded(key, *asked)
        entries[key] = source | {"commit": known or resolve(use, *asked)}
    if not entries:
        raise UserError(f"no text of {', '.join(codes)} comes from the Hub, and no tokenizer: there is nothing to lock")
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
        for key, entry in lock(configuration, models, args.update).items():
            print(f"{key}: {entry['repository']} at {entry['commit']}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
