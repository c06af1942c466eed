"""Find the models of old repositories, and make a folder with our code of each (`babelmill rehost`, or `convert`).

The Hub shows which models are done: a repository is done if Babelmill wrote its config.json. A model with another
target is done if the target's manifest names the commit that it was made from. A model that was made but not pushed is
in a folder with such a manifest.
"""

import argparse
import logging
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_token

from babelmill.config.inputs import HUB_NAME
from babelmill.config.languages import read_table
from babelmill.config.layers import nearest
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_json, sha256
from babelmill.hub import sources
from babelmill.hub.files import Files, in_a_folder, of_repository
from babelmill.hub.sources import MODEL, TOKENIZER, resolve
from babelmill.release.elsewhere import manual_conversion, old_repository
from babelmill.release.elsewhere.old_repository import WeightFiles
from babelmill.release.folder.architectures import write_code

log = logging.getLogger("babelmill.rehost")
OLD = replace(MODEL, key="owner/prefix", revision_key="the branch main", instead="look at it on the Hub")


@dataclass(frozen=True)
class OldModel:
    """A model to be rehosted."""

    label: str  # the beginning of its line
    source: dict[str, Any]  # where it is, for the manifest: repository and commit, or the digests of its checkpoints
    files: Files  # the files of the repository or the folder
    weights: WeightFiles  # the files that hold its weights
    config: Path  # the JSON file with its shape
    language: str | None  # the code of its language; None if it is not known
    target: str  # the repository to push to
    private: bool  # whether the target is private if it has to be created


def is_folder(source: str) -> bool:
    """Return whether the user named a folder, by the rule of `model.source`."""
    return source.startswith(("./", "../", "/"))


def repositories(source: str) -> list[str]:
    """Return the repositories that match `owner/prefix`; if there are none, raise a UserError with similar names."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]*", source, re.ASCII):
        raise UserError(f"{source}: owner/prefix is expected, such as lab/babybabellm-gpt_bert-, or ./folder")
    owner = source.split("/")[0]
    if not get_token():
        log.warning("HF_TOKEN is not set, so private repositories of %s are not found", owner)
    known = sources.models_of(owner)
    found = [name for name in known if name.startswith(source)]
    if not found:
        raise UserError(f"{source}: this owner has no model whose name begins like this{nearest(source, known)}")
    return found


# What a source holds.


def opened(source: str, local: bool) -> tuple[Files, bool]:
    """Return the files of a folder or a repository, and whether it is private."""
    if local:
        if not Path(source).is_dir():
            raise UserError(f"{source}: no such folder")
        return in_a_folder(Path(source)), False
    info = sources.state(OLD, source)
    if info is None:
        raise UserError(f"{source}: the repository does not exist, or HF_TOKEN may not read it")
    return of_repository(OLD, source, str(info.sha), "main"), bool(info.private)


def from_repository(
    source: str, config: Path | None, tokenizer: str | None, masked_target: str | None, scratch: Path
) -> manual_conversion.FoundModel:
    """Read the model of one repository, or of a folder with the files of one.

    `config`: the JSON file with its shape, if there is no config.json. For the others, see `read_repository`.
    """
    local = Path(source).is_dir()
    if not local and not re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII):
        raise UserError(f"{source}: neither a file or folder, nor a repository on the Hub (owner/name)")
    files, private = opened(source, local)
    path = config or files.path("config.json")
    if path is None:
        raise UserError(f"{files.where} has no config.json; name the file with the model's shape with --config")
    content = None if config else read_json(path)
    if isinstance(content, dict) and content.get("model_type") == old_repository.OURS:
        raise UserError(f"{files.where}: Babelmill made it; there is nothing to convert")
    if model_type := content and old_repository.model_type_of(content):
        raise UserError(f"{files.where} is not a GPT-BERT of the published code (model_type {model_type})")
    weights = old_repository.shipped(files)
    language = old_repository.language_of(source.rpartition("/")[2], read_table(manual_conversion.TABLE))
    old = OldModel(source, origin_of(files, weights), files, weights, path, language, source, private)
    return read(old, tokenizer, masked_target, scratch)


def models_in(source: str, args: argparse.Namespace) -> list[OldModel] | str:
    """Return the models of a repository or a folder, or why there is nothing to do."""
    files, private = opened(source, is_folder(source))
    config = args.config or files.path("config.json")
    if config and not args.config:
        content = read_json(config)
        if isinstance(content, dict) and content.get("model_type") == old_repository.OURS:
            return "done already: Babelmill made it"
        if model_type := old_repository.model_type_of(content):
            return f"skipped: not a GPT-BERT (model_type {model_type})"
    found = old_repository.checkpoints(files.names, args.checkpoint_glob, args.checkpoint_regex)
    if config is None:
        if found:
            raise UserError(
                f"no config.json beside {escape.some(next(iter(found.values())).names)}; name the file with --config"
            )
        return "skipped: not a GPT-BERT (it has no config.json)"
    found = found or {None: old_repository.shipped(files)}
    models = []
    for code, weights in found.items():
        label = f"{source} ({code})" if code and (is_folder(source) or len(found) > 1) else source
        language, target = language_and_target(source, code, args)
        models.append(OldModel(label, origin_of(files, weights), files, weights, config, language, target, private))
    return models


def language_and_target(source: str, code: str | None, args: argparse.Namespace) -> tuple[str | None, str]:
    """Return a model's language and its target repository. `code`: the language in its checkpoints' names."""
    owner, name = ("", "") if is_folder(source) else source.split("/")
    language = code or old_repository.language_of(name, read_table(manual_conversion.TABLE))
    rest = name.removeprefix(args.source.partition("/")[2]).strip("-_")  # such as multi-all for several languages
    values = {"owner": owner, "name": name, "language": language or rest}
    target = re.sub(r"{(\w+)}", lambda field: values[field[1]], args.repo_template)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", target, re.ASCII):
        raise UserError(
            f"--repo-template {args.repo_template} gives {target!r}, which is not owner/name"
            + ("; --checkpoint-regex needs (?P<lang>...) to find the language" if not language else "")
        )
    return language, target


def origin_of(files: Files, weights: WeightFiles) -> dict[str, Any]:
    """Return the repository and the commit of files, or for a folder the digests of its checkpoints."""
    where = {key: files.figures[key] for key in ("repository", "commit") if key in files.figures}
    return where or {"checkpoints": {file: sha256(path) for file, path in files.get(weights.names).items()}}


# Conversion.


def made_folder(old: OldModel, args: argparse.Namespace) -> Path:
    """Return the folder of a converted model; make it unless it exists."""
    out = args.out / old.target
    asked = {
        "source": old.source,
        "target": old.target,
        "weights": old.weights.names,
        "config": sha256(old.config),
        "tokenizer": args.tokenizer,
        "masked_target": args.masked_target,
    }
    if not is_made(out, asked):
        make(old, args, asked, out)
    return out


def origin(source: dict[str, Any]) -> str:
    """Return in words where a model comes from."""
    if "repository" in source:
        return f"commit {source['commit']} of {source['repository']}"
    return " and ".join(f"{name} (sha256 {digest})" for name, digest in source["checkpoints"].items())


def already(old: OldModel) -> str | None:
    """Return a message if another repository, the target, already holds this model, made from this commit; else None.

    A UserError says that the target holds something else.
    """
    info = sources.state(OLD, old.target) if old.target != old.source.get("repository") else None
    if info is None:
        return None
    there = of_repository(OLD, old.target, str(info.sha), "main")
    record, known = there.json(manifest.NAME) if manifest.NAME in there.names else None, None
    if isinstance(record, dict) and isinstance(record.get("figures"), dict):
        remedy = "name another target in --repo-template, or delete this one"
        known = manifest.unsealed(record, f"{old.target}: {manifest.NAME}", remedy)["figures"].get("rehosted")
    if known == old.source:
        return f"done already: {old.target} is made from it"
    if known is None and (others := [name for name in there.names if name != ".gitattributes"]):
        raise UserError(
            f"{old.target} exists and has other files ({escape.some(others, 3)}); name another target in"
            " --repo-template"
        )
    return None


def is_made(out: Path, asked: dict[str, Any]) -> bool:
    """Return whether a folder was made with these settings and the present code."""
    if not (out / manifest.NAME).is_file():
        return False
    made = manifest.read(out)
    with tempfile.TemporaryDirectory() as name:
        code = {file: sha256(Path(name, file)) for file in write_code(Path(name))}
    same = all(made["files"].get(file, {}).get("sha256") == digest for file, digest in code.items())
    return same and made["settings"].get("rehost") == asked


def make(old: OldModel, args: argparse.Namespace, asked: dict[str, Any], out: Path) -> None:
    """Read a model, build and prove its folder, and move it to `out`. A folder that we did not make is not deleted."""
    for left in out.parent.glob(f".{out.name}.*"):  # left by a run that was killed
        shutil.rmtree(left)
    if (out / manifest.NAME).is_file() and "rehost" in manifest.read(out)["settings"]:
        shutil.rmtree(out)
    log.info("reading %s", old.files.where)
    with manual_conversion.scratch_beside(out) as scratch:
        found = read(old, args.tokenizer, args.masked_target, scratch)
        manual_conversion.convert(replace(found, name=old.target, asked={"rehost": asked}), scratch, out)


def read(
    old: OldModel, tokenizer: str | None, masked_target: str | None, scratch: Path
) -> manual_conversion.FoundModel:
    """Read a model; `tokenizer` is that of `tokenizer_of`, and for the others, see `old_repository.read_repository`."""
    path = tokenizer_of(old, tokenizer)
    found = old_repository.read_repository(old.files, old.weights, old.config, path, masked_target, scratch)
    parameters = sum(value.numel() for value in next(iter(found.weights.values())).values())
    size = f"{parameters:,}" if parameters < 1e6 else f"{parameters / 1e6:.1f} M"
    text = (
        f"{' and '.join(found.weights)} in {', '.join(old.weights.names)}, {size} parameters, masked target"
        f" {found.shape['masked_target']}"
    )
    return replace(
        found,
        origin=described(old),
        known=found.known | {"languages": manual_conversion.on_card([old.language] if old.language else [])},
        record={"rehosted": old.source, "found": text},
    )


def described(old: OldModel) -> str:
    """Return the sentence of the card about where the model comes from."""
    if "repository" not in old.source:
        return (
            f"Converted from {escape.markdown(origin(old.source))}, trained by the published GPT-BERT implementation."
        )
    repository, commit = old.source["repository"], old.source["commit"]
    address = f"{constants.ENDPOINT}/{repository}"
    return (
        f"Rehosted from commit [`{commit}`]({address}/tree/{commit}) of [{escape.code(repository)}]({address}): the"
        f" same weights ({', '.join(map(escape.code, old.weights.names))}), with the code of this folder."
    )


def tokenizer_of(old: OldModel, asked: str | None) -> Path:
    """Return the tokenizer.json that the user named, or the one of the repository."""
    if asked is None:
        if path := old.files.path("tokenizer.json"):
            return path
        raise UserError("it has no tokenizer.json; name another repository or a file with --tokenizer")
    if "{language}" in asked and old.language is None:
        raise UserError(
            f"--tokenizer {asked}: the model's language is not known; --checkpoint-regex needs (?P<lang>...) to find it"
        )
    name = asked.replace("{language}", old.language or "")
    if Path(name).exists() or not HUB_NAME.fullmatch(name) or name.endswith(".json"):
        return manual_conversion.tokenizer_path(Path(name))
    use = replace(TOKENIZER, key="--tokenizer", instead="name another repository or a file with --tokenizer")
    commit = resolve(use, name, "main")
    return of_repository(use, name, commit, "main").get(["tokenizer.json"])["tokenizer.json"]
