"""Score a model from anywhere on a suite of minimal pairs or choices, as the workflow scores its own models.

    babelmill score openai-community/gpt2 --suite blimp
    babelmill compare eng scores/openai-community--gpt2

MODEL is a folder that transformers loads as a causal or masked language model, or a repository on the Hub, which is
fetched at one commit. The suite is one of the configuration's (config/README.md). The scores have the same form as
those in results/scores. After an interruption, the same command continues.
"""

import argparse
from pathlib import Path
from typing import Any

from babelmill.commands.progress.made_by_hand import languages_asked, made_by_hand
from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.config.stage_settings import ScoreSettings
from babelmill.config.suites import how_scored
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.evaluation.suite_scores import METHODS
from babelmill.release.elsewhere.given_model import add_model_arguments, compute_quietly, methods_of, model_folder
from babelmill.stages import STAGES


def wanted(folder: Path, asked: list[str] | None) -> list[str]:
    """Return the methods to score by: those asked for (the last is the headline), and the two that `fused` adds up."""
    if not asked:
        return methods_of(folder)
    parts = ["causal", "masked", *asked] if "fused" in asked else asked
    return sorted(dict.fromkeys(parts), key=lambda name: (name == asked[-1], name == "fused", METHODS.index(name)))


def settings_by_hand(args: argparse.Namespace, name: str, folder: Path, configuration: Configuration) -> ScoreSettings:
    """Return the settings that the stage `score` would have."""
    suite = configuration.suite(args.suite)
    languages = languages_asked(f"the suite {args.suite}", "pairs", suite.covered, args.language)
    values: dict[str, Any] = {
        "stage": "score",
        "name": name,
        "languages": languages,
        "suite": args.suite,
        "covered": languages,
        "headline": suite.headline,
        **how_scored(suite),
        "methods": wanted(folder, args.method),
        "masked_pairs": args.masked_pairs or "all",
        "pairs": args.pairs or "all",
    }
    return ScoreSettings(**values, raw=values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add_model_arguments(parser)
    add("--suite", required=True, help="score on this suite, of config/suites or of your configuration")
    add("--language", nargs="+", metavar="CODE", help="score these languages, if the suite has several")
    add(
        "--method",
        nargs="+",
        choices=METHODS,
        help="score by these methods (default: all); the last of those with the most pairs gives the headline",
    )
    add("--pairs", type=int, metavar="N", help="score a sample of N pairs of each paradigm")
    add("--masked-pairs", type=int, metavar="N", help="with method masked, score only N of these pairs")
    add("--out", type=Path, metavar="FOLDER", help="write the scores here (default: scores/{MODEL}/{suite})")
    loading.add_arguments(parser)


def made_of(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what all scores of a model depend on: its files, or its commit, and the version of the stage `score`."""
    from babelmill.suites.scoring_model import is_loaded

    files = {name: digest for name, digest in origin.get("files", {}).items() if is_loaded(name)}
    return {"model": files or origin, "version": STAGES["score"].version}


def refuse_others(out: Path, origin: dict[str, Any]) -> None:
    """Raise a UserError if a folder holds the scores of a model from another folder or repository."""
    if not (out / manifest.NAME).is_file():
        return
    there = manifest.read(out)["figures"].get("model", {})
    if any(there.get(key) != origin.get(key) for key in ("folder", "repository")):
        whose = there.get("folder") or there.get("repository") or "another model"
        raise UserError(f"{out}: holds the scores of {whose}; name another folder with --out, or delete this folder")


def run(args: argparse.Namespace) -> None:
    """Score the model, and write the same files as the stage `score`."""
    for option, count in (("--pairs", args.pairs), ("--masked-pairs", args.masked_pairs)):
        if count is not None and count < 1:
            raise UserError(f"{option} {count}: at least 1 is expected")
    configuration = loading.from_arguments(args)
    configuration.suite(args.suite)  # raises an error for an unknown suite before anything is fetched
    folder, origin, name = model_folder(args, configuration.known_models())
    settings = settings_by_hand(args, name, folder, configuration)
    from babelmill import suite  # imports the client of the Hub
    from babelmill.score import score  # imports PyTorch
    from babelmill.suites.scoring_model import ScoringModel

    compute_quietly(args.threads)
    out = args.out or Path("scores", name, args.suite)
    refuse_others(out, origin)
    suites = [made_by_hand(configuration, "suite", suite.run, code, args.suite) for code in settings.covered]
    model = ScoringModel(folder, made_of(origin), extra=True)
    score(model, suites, settings, out / "partial", out, suites, {"model": origin})
    print(out)
