"""Find a model that a user names for a command by hand: a folder, a model in converted/, or a repository of the Hub."""

import argparse
import difflib
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from babelmill.config.model_source import lacks_config
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.snapshots import FOLDER
from babelmill.config.transformers_keys import check_layers
from babelmill.core import manifest
from babelmill.core.files import UserError, read_object, sha256

log = logging.getLogger("babelmill.given_model")
CONVERTED = Path("converted")
OWN_FOLDERS = ("converted", "results")  # a name that begins with one of these is not a repository


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name and load a model."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        type=os.path.expanduser,
        help="a folder, such as converted/eng (or just eng), or a repository on the Hub",
    )
    add("--revision", default="main", help="read this branch, tag or commit of the repository (default: main)")
    add("--trust-remote-code", action="store_true", help="allow the Python code in the model's folder to run")
    cores = len(os.sched_getaffinity(0))
    add("--threads", type=int, default=cores, metavar="N", help="use N threads (default: all cores)")


def model_folder(args: argparse.Namespace, models: Collection[str] = ()) -> tuple[Path, dict[str, Any], str]:
    """Return the folder of the model, its origin and its name. Raise a UserError if it may not be loaded.

    `models`: names of the configuration. The Hub is not asked for such a name, even if the model is not finished.
    """
    folder = converted_folder(args.model)
    if not folder.is_dir() and args.model in models:
        folder = CONVERTED / args.model
    local = folder.is_dir()
    if not local and (folder.parts[0] in OWN_FOLDERS or (folder.parent != Path() and folder.parent.is_dir())):
        unfinished = "; is the model finished? (`babelmill status`)"
        hint = "" if folder.name in models else meant(folder.name, models)
        raise UserError(f"{folder}: no such folder{hint or unfinished}")
    name = name_of(folder.resolve()) if local else args.model.replace("/", "--")
    if local:
        origin = found_in(folder)
    else:
        try:
            folder, origin = fetched(args.model, args.revision, args.trust_remote_code)
        except UserError as error:
            raise UserError(f"{error}{meant(args.model, models)}") from None
    check_trust(folder, local, args.trust_remote_code)
    check_layers(read_object(folder / "config.json"), args.model)
    return folder, origin, name


def converted_folder(text: str) -> Path:
    """Return the folder that a user names; the name of a converted model stands for its folder in converted/."""
    folder, converted = Path(os.path.expanduser(text)), CONVERTED / text
    return converted if len(folder.parts) == 1 and not folder.is_dir() and converted.is_dir() else folder


def meant(name: str, models: Collection[str] = ()) -> str:
    """Return a hint such as `; did you mean eng?` if a model here has a similar name, else nothing."""
    near = difflib.get_close_matches(name, {*models, *(path.name for path in CONVERTED.glob("*") if path.is_dir())})
    return f"; did you mean {' or '.join(near)}?" if near else ""


def name_of(folder: Path) -> str:
    """Return the name of a model in a folder; the name of a snapshot begins with that of its model."""
    if folder.parent.name == FOLDER:
        return f"{folder.parents[1].name}--{folder.name}"
    return folder.name


def check_trust(folder: Path, local: bool, trusted: bool) -> None:
    """Raise a UserError if a folder is damaged, or contains code that the user has not agreed to run."""
    if local and (folder / manifest.NAME).is_file():
        manifest.verify(folder)  # this workflow has written the code
        return
    if "auto_map" not in read_object(folder / "config.json") or trusted:
        return
    raise UserError(f"{folder}: contains Python code that would be run: read it, then add --trust-remote-code")


def fetched(repository: str, revision: str, code: bool) -> tuple[Path, dict[str, Any]]:
    """Fetch the files of a model from the Hub; return their folder, and where they come from."""
    import dataclasses

    from babelmill.hub.files import of_repository
    from babelmill.hub.sources import MODEL, resolve
    from babelmill.release.elsewhere.foreign_model import require_config, weight_files
    from babelmill.tokens.tokenizer_file import FILES

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


def compute_quietly(threads: int) -> None:
    """Let PyTorch use so many threads, and transformers print errors alone."""
    import torch
    from transformers.utils import logging as of_transformers

    torch.set_num_threads(threads)
    of_transformers.disable_progress_bar()
    of_transformers.set_verbosity_error()


def methods_of(folder: Path) -> list[str]:
    """Return the methods by which a folder's model can score sentences; the last is the headline."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config = read_object(folder / "config.json")
    if "objective" in config:
        return list(OBJECTIVES["diffusion"].sentences)
    evaluation = manifest.read(folder)["figures"].get("evaluation", {}) if (folder / manifest.NAME).is_file() else {}
    declared = [config.get(key) for key in ("auto_map", "architectures")]
    names = {name for each in declared if isinstance(each, dict | list) for name in each if isinstance(name, str)}
    if "variants" in evaluation:  # a converted folder: its metrics say what the model learnt
        names = {
            {"causal": "ForCausalLM", "masked": "ForMaskedLM"}.get(name, "")
            for name in next(iter(evaluation["variants"].values()))
        }
    masked = any(name.endswith("ForMaskedLM") for name in names)
    causal = any(
        name.endswith(("ForCausalLM", "LMHeadModel")) and not name.endswith("WithLMHeadModel") for name in names
    )
    if causal or masked:
        return ["causal"] * causal + ["masked"] * masked + ["fused"] * (causal and masked)
    if str(config.get("model_type")) in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return ["masked"]
    if str(config.get("model_type")) in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return ["causal"]
    raise UserError(f"{folder}: config.json names neither a causal nor a masked language model")
