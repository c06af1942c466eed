"""Pin texts, tokenizers, models, suites and tasks on the Hub to commits, so that another person gets the same bytes.

    babelmill lock                  # for the configuration's targets
    babelmill lock eng tier1        # for these models and batches
    babelmill lock --update eng     # use the newest commits of the branches

This writes `config/lock.yaml`, which belongs in version control beside `config/config.yaml`. Existing downloads are
pinned to the commit that was downloaded, so that locking repeats no run. Other entries stay.
"""

import argparse
from typing import Any

from babelmill.config import loading
from babelmill.config.inputs import hub_datasets, hub_model, hub_tokenizer
from babelmill.config.resolve import Configuration
from babelmill.config.suites import hub_suites
from babelmill.config.tasks import hub_tasks
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.hub import revisions
from babelmill.hub.sources import DATASET, MODEL, SUITE, TOKENIZER, resolve


def lock(configuration: Configuration, models: list[str], update: bool) -> dict[str, dict[str, Any]]:
    """Pin the texts, tokenizers, suites and tasks of models, and the models that they start from; return the entries.

    `update`: resolve branches again, even if a commit is known.
    """
    models = list(dict.fromkeys(name for model in models for name in (model, *configuration.ancestors(model))))
    codes = dict.fromkeys(code for model in models for code in configuration.languages_of(model))
    wanted = [(DATASET, key, source) for code in codes for key, source in hub_datasets(configuration, code)]
    for use, key_of, sources in (
        (TOKENIZER, revisions.tokenizer_key, [hub_tokenizer(configuration, model) for model in models]),
        (MODEL, revisions.model_key, [hub_model(configuration, model) for model in models]),
        (SUITE, revisions.dataset_key, hub_suites(configuration, models) + hub_tasks(configuration, models)),
    ):
        wanted += [(use, key_of(source["repository"], source["revision"]), source) for source in sources if source]
    entries = {}
    for use, key, source in wanted:
        asked = source["repository"], source["revision"]
        known = None if update else revisions.in_lock(key, *asked) or revisions.recorded(key, *asked)
        commit = known or resolve(use, *asked)
        entries[key] = {"repository": asked[0], "revision": asked[1], "commit": commit}
    if not entries:
        raise UserError(
            f"no text, tokenizer, model, suite or task of {escape.some(codes)} comes from the Hub: there is nothing to"
            " lock"
        )
    revisions.write_lock(entries)
    return entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", metavar="NAME", help="a model or a batch (default: the targets)")
    parser.add_argument("--update", action="store_true", help="resolve branches again, even if they are already pinned")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Pin texts, tokenizers, models, suites and tasks of the Hub in `config/lock.yaml`."""
    configuration = loading.from_arguments(args)
    models = configuration.models_of(args.models or ["all"])
    for key, entry in lock(configuration, models, args.update).items():
        print(f"{key}: {entry['repository']} at {entry['commit']}")
