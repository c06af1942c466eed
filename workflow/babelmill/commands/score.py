"""Score a model from anywhere on a suite of minimal pairs, as the workflow scores its own models.

    babelmill score openai-community/gpt2 --suite blimp
    babelmill compare eng scores/openai-community--gpt2

MODEL is a folder that transformers loads as a causal or masked language model, or a repository of the Hub, fetched at
one commit. The suite is one of the configuration (config/README.md). The scores have the same form as those in
results/scores. After an interruption, the same command continues.
"""

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from babelmill.config import loading
from babelmill.config.layers import nearest
from babelmill.config.model_source import lacks_config
from babelmill.config.snapshots import FOLDER
from babelmill.config.transformers_models import check_layers
from babelmill.core import escape, manifest, outside
from babelmill.core.files import UserError, sha256
from babelmill.core.globs import at_home
from babelmill.evaluation.suite_scores import METHODS

if TYPE_CHECKING:
    from babelmill.config.resolve import Configuration
    from babelmill.config.stage_settings import ScoreSettings

log = logging.getLogger("babelmill.commands.score")
OWN_FOLDERS = ("converted", "results")  # a name that begins with one of these is not a repository


def methods_of(folder: Path) -> list[str]:
    """Return the methods by which a folder's model can score sentences; the last is the headline."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    from babelmill.config.objectives import OBJECTIVES

    config = outside.read_object(folder / "config.json")
    if "objective" in config:
        return list(OBJECTIVES["diffusion"].sentences)
    evaluation = manifest.read(folder)["figures"].get("evaluation", {}) if (folder / manifest.NAME).is_file() else {}
    said = [config.get(key) for key in ("auto_map", "architectures")]
    names = {name for each in said if isinstance(each, dict | list) for name in each if isinstance(name, str)}
    if "variants" in evaluation:  # a converted folder: its metrics say what the model learnt
        names = {{"causal": "ForCausalLM", "masked": "ForMaskedLM"}.get(name, "") for name in _metrics(evaluation)}
    causal = any(_ends(name, "ForCausalLM", "LMHeadModel") and not _ends(name, "WithLMHeadModel") for name in names)
    masked = any(_ends(name, "ForMaskedLM") for name in names)
    if causal or masked:
        return ["causal"] * causal + ["masked"] * masked + ["fused"] * (causal and masked)
    if str(config.get("model_type")) in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return ["masked"]
    if str(config.get("model_type")) in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return ["causal"]
    raise UserError(f"{folder}: config.json names neither a causal nor a masked language model of transformers")


def _metrics(evaluation: dict[str, Any]) -> dict[str, Any]:
    return next(iter(evaluation["variants"].values()))


def _ends(name: str, *endings: str) -> bool:
    return name.endswith(endings)


def wanted(folder: Path, asked: list[str] | None) -> list[str]:
    """Return the methods to score by: those asked for (the last is the headline), and the two that `fused` adds up."""
    if not asked:
        return methods_of(folder)
    parts = ["causal", "masked", *asked] if "fused" in asked else asked
    return sorted(dict.fromkeys(parts), key=lambda name: (name == asked[-1], name == "fused", METHODS.index(name)))


def check_trust(folder: Path, local: bool, trusted: bool) -> None:
    """Raise a UserError if a folder is damaged, or contains code that the user has not agreed to run."""
    if local and (folder / manifest.NAME).is_file():
        manifest.verify(folder)  # this workflow has written the code
        return
    if "auto_map" not in outside.read_object(folder / "config.json") or trusted:
        return
    raise UserError(f"{folder}: contains Python code that would be run: read it, then add --trust-remote-code")


def fetched(repository: str, revision: str, code: bool) -> tuple[Path, dict[str, Any]]:
    """Fetch the files of a model from the Hub; return their folder, and where they come from."""
    import dataclasses

    from babelmill.hub.files import of_repository
    from babelmill.hub.sources import MODEL, resolve
    from babelmill.release.elsewhere.foreign_model import require_config, weight_files
    from babelmill.tokens.published_tokenizer import FILES

    use = dataclasses.replace(
        MODEL, key="MODEL", revision_key="--revision", instead="name a folder, or another repository"
    )
    commit = resolve(use, repository, revision)
    files = of_repository(use, repository, commit, revision)
    require_config(files)
    weights = weight_files(files.names, files.json, files.where)
    names = ["config.json", *weights, *(name for name in files.names if name.endswith(".index.json"))]
    names += [name for name in files.names if name in FILES or (code and name.endswith(".py"))]
    log.info("%s at %s", repository, commit)
    return files.get(list(dict.fromkeys(names)))["config.json"].parent, files.figures


def found_in(folder: Path) -> dict[str, Any]:
    """Return what a local folder holds: {"folder", "files": {name: sha256}}."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: {lacks_config(folder)}")
    return {"folder": str(folder), "files": {p.name: sha256(p) for p in sorted(folder.iterdir()) if p.is_file()}}


def pairs_of(configuration: "Configuration", suite: str, code: str) -> Path:
    """Return the folder of a suite's pairs in a language; run the stage `suite` if it is missing or outdated."""
    from babelmill import suite as stage
    from babelmill.config.inputs import SETTINGS
    from babelmill.config.suites import SUITES
    from babelmill.core.files import write_json
    from babelmill.settings import settings_of

    folder, settings = SUITES / suite / code, settings_of(configuration, code, f"suite.{suite}")
    if manifest.missing(folder) or manifest.read(folder)["settings"] != settings:
        path = SETTINGS / code / f"suite.{suite}.json"
        write_json(path, settings)
        stage.run(argparse.Namespace(settings=path, out=folder))
    return folder


def languages_of(configuration: "Configuration", suite: str, asked: list[str] | None) -> list[str]:
    """Return the languages to score: those asked for, or the only one of the suite."""
    covered = list(configuration.suite(suite).covered)
    if not asked and len(covered) > 1:
        raise UserError(
            f"the suite {suite} has several languages: add --language with one or more of {escape.some(covered)}"
        )
    for code in asked or []:
        if code not in covered:
            raise UserError(f"the suite {suite} has no pairs of {code}{nearest(code, covered)}")
    return asked or covered


def settings_by_hand(args: argparse.Namespace, name: str, folder: Path, configuration: Any) -> "ScoreSettings":
    """Return the settings that the stage `score` would have."""
    from babelmill.config.stage_settings import ScoreSettings

    languages = languages_of(configuration, args.suite, args.language)
    values: dict[str, Any] = {
        "stage": "score",
        "name": name,
        "languages": languages,
        "suite": args.suite,
        "covered": languages,
        "headline": configuration.suite(args.suite).headline,
        "methods": wanted(folder, args.method),
        "masked_pairs": args.masked_pairs or "all",
        "pairs": args.pairs or "all",
        "within_word_l2r": args.within_word_l2r,
    }
    return ScoreSettings(**values, raw=values)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name and load a model."""
    parser.add_argument(
        "model", metavar="MODEL", type=at_home, help="a folder (converted/eng), or a repository of the Hub"
    )
    parser.add_argument("--revision", default="main", help="branch, tag or commit of the repository (default: main)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the Python code in the model's folder")
    parser.add_argument("--within-word-l2r", action="store_true", help="masked: also hide the later tokens of the word")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="number of threads (default: all cores)"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--suite", required=True, help="a suite of config/suites, or of your configuration")
    parser.add_argument(
        "--language", nargs="+", metavar="CODE", help="languages to score, for a suite of several languages"
    )
    parser.add_argument(
        "--method",
        nargs="+",
        choices=METHODS,
        help="methods of scoring (default: all); the headline is the last of those with the most pairs",
    )
    parser.add_argument("--pairs", type=int, metavar="N", help="score a sample of N pairs of each paradigm")
    parser.add_argument("--masked-pairs", type=int, metavar="N", help="masked: score only N of these pairs")
    parser.add_argument("--out", type=Path, help="folder for the scores (default: scores/{MODEL}/{suite})")
    loading.add_arguments(parser)


def model_folder(args: argparse.Namespace) -> tuple[Path, dict[str, Any], str]:
    """Return the folder of the model, its origin and its name. Raise a UserError if it may not be loaded."""
    folder = Path(args.model)
    local = folder.is_dir()
    if not local and (folder.parts[0] in OWN_FOLDERS or (folder.parent != Path() and folder.parent.is_dir())):
        raise UserError(f"{folder}: no such folder; is the model finished? (`babelmill status`)")
    if not local and Path("converted", args.model).is_dir():
        raise UserError(f"{args.model}: expected a folder, such as converted/{args.model}, or owner/name on the Hub")
    name = name_of(folder.resolve()) if local else args.model.replace("/", "--")
    if local:
        origin = found_in(folder)
    else:
        folder, origin = fetched(args.model, args.revision, args.trust_remote_code)
    check_trust(folder, local, args.trust_remote_code)
    check_layers(outside.read_object(folder / "config.json"), args.model)
    if (folder / "tokenizer.json").is_file() and not (folder / manifest.NAME).is_file():
        from babelmill.tokens import trial

        trial.check(folder / "tokenizer.json", f"{args.model}: tokenizer.json")
    return folder, origin, name


def name_of(folder: Path) -> str:
    """Return the name of a model in a folder; the name of a snapshot begins with that of its model."""
    if folder.parent.name == FOLDER:
        return f"{folder.parents[1].name}--{folder.name}"
    return folder.name


def made_of(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what all scores of a model depend on: its files, or its commit, and the code that scores."""
    from babelmill.score import is_loaded
    from babelmill.stages import STAGES

    files = {name: digest for name, digest in origin.get("files", {}).items() if is_loaded(name)}
    return {"model": files or origin, "code": STAGES["score"].digest}


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
    folder, origin, name = model_folder(args)
    settings = settings_by_hand(args, name, folder, configuration)
    import torch
    from transformers.utils import logging as of_transformers

    from babelmill import score
    from babelmill.runtime.run_lock import Lock
    from babelmill.suites.partial import Partial

    of_transformers.disable_progress_bar()
    of_transformers.set_verbosity_error()
    torch.set_num_threads(args.threads)
    out = args.out or Path("scores", name, args.suite)
    refuse_others(out, origin)
    suites = [pairs_of(configuration, args.suite, code) for code in settings.covered]
    with Lock(out / "partial", "another process that scores the same"):
        partial = Partial(out / "partial", made_of(origin))
        model = score.ScoringModel(folder, settings.within_word_l2r, extra=True)
        score.write(*score.score_suites(model, suites, settings, partial), out)
        manifest.write(out, settings, ["pairs.parquet", "scores.json"], suites, {"model": origin})
        partial.delete()
    print(out)
