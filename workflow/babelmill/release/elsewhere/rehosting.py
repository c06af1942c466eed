"""Find the models of old repositories (`babelmill rehost`, and `convert` for a single one).

The Hub shows which models are done: a repository is done if Babelmill wrote its config.json. A model with another
target is done if the target's manifest names the commit that it was made from. A model that was made but not pushed is
in a folder with such a manifest.
"""

import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from babelmill import __version__
from babelmill.config.inputs import HUB_NAME
from babelmill.config.languages import read_table
from babelmill.config.layers import nearest
from babelmill.core import escape, manifest
from babelmill.core.files import UserError, read_object, remove_leftovers, sha256
from babelmill.hub import sources
from babelmill.hub.files import Files, in_a_folder, of_repository
from babelmill.hub.sources import MODEL, TOKENIZER, resolve
from babelmill.release.elsewhere.foreign_model import OURS
from babelmill.release.elsewhere.old_models import (
    TABLE,
    OldModel,
    WeightFiles,
    checkpoints,
    convert,
    language_of,
    shipped,
)
from babelmill.release.elsewhere.published_models import KEYS

log = logging.getLogger("babelmill.rehost")
OLD = replace(MODEL, key="owner/prefix", revision_key="the branch main", instead="look at it on the Hub")
GPT_BERT = re.compile(r"gpt[-_]?bert", re.IGNORECASE)


class Skipped(UserError):
    """Says why a repository is left as it is."""


def is_folder(source: str) -> bool:
    """Return whether the user named a folder, by the rule of `model.source`."""
    return source.startswith(("./", "../", "/"))


def repositories(source: str) -> list[str]:
    """Return the repositories that match `owner/prefix`; if there are none, raise a UserError with similar names."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]*", source, re.ASCII):
        raise UserError(f"{source}: owner/prefix is expected, such as lab/babybabellm-gpt_bert-, or ./folder")
    owner = source.split("/")[0]
    if not get_token():
        log.warning("no token (HF_TOKEN or `hf auth login`): private repositories of %s are not found", owner)
    known = sources.models_of(owner)
    found = [name for name in known if name.startswith(source)]
    if not found:
        raise UserError(f"{source}: this owner has no model whose name begins like this{nearest(source, known)}")
    return found


def models_in(
    source: str, config: Path | None, glob: str | None = None, pattern: str | None = None
) -> dict[str | None, OldModel]:
    """Return the models of a repository, a folder or a checkpoint, by the language that `pattern` finds in file names.

    `config`: the JSON file with their shape, if there is no config.json. `glob`, `pattern`: see `checkpoints`. Raise
    Skipped if it holds no GPT-BERT of the published code.
    """
    files, private = opened(source)
    path = config or files.path("config.json")
    if path and not config:
        values = read_object(path, f"{files.where}: config.json")
        model_type = str(values.get("model_type", "none in config.json"))
        if model_type in OURS or "layer_mixing" in values:
            raise Skipped("Babelmill made it")
        if not (values.keys() >= KEYS.keys() or GPT_BERT.search(model_type)):
            raise Skipped(f"not a GPT-BERT (model_type {model_type})")
    found = checkpoints(files.names, glob, pattern)
    if path is None:
        raise Skipped("it has no config.json; name the file with the model's shape with --config")
    if Path(source).is_file():
        found = {None: WeightFiles([], dict(zip(("main", "ema"), [[name] for name in files.names], strict=False)))}
    own = language_of(Path(source).name, read_table(TABLE))
    return {
        code: OldModel(files, weights, path, code or own, origin_of(files, weights), private)
        for code, weights in (found or {None: shipped(files)}).items()
    }


def opened(source: str) -> tuple[Files, bool]:
    """Return the files of a folder or a repository, and whether it is private. Of a checkpoint, also its average."""
    path = Path(source)
    if path.is_file():
        files = in_a_folder(path.parent)
        names = [name for name in (path.name, f"{path.stem}_ema{path.suffix}") if name in files.names]
        return replace(files, sizes={name: files.sizes[name] for name in names}, where=source), False
    if path.is_dir():
        return in_a_folder(path), False
    if is_folder(source) or not re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII):
        raise UserError(f"{source}: neither a file or folder, nor a repository on the Hub (owner/name)")
    info = sources.state(OLD, source)
    if info is None:
        raise UserError(f"{source}: the repository does not exist, or HF_TOKEN may not read it")
    return of_repository(OLD, source, str(info.sha), "main"), bool(info.private)


def origin_of(files: Files, weights: WeightFiles) -> dict[str, Any]:
    """Return the repository and the commit of files, or for a folder the digests of its checkpoints."""
    where = {key: files.figures[key] for key in ("repository", "commit") if key in files.figures}
    return where or {"checkpoints": {file: sha256(path) for file, path in files.get(weights.names).items()}}


def target_of(source: str, model: OldModel, prefix: str, template: str) -> str:
    """Return the repository that a model goes to, by --repo-template. `prefix`: that of the names of all sources."""
    owner, _, name = source.rpartition("/")
    rest = name.removeprefix(prefix).strip("-_")  # such as multi-all for several languages
    values = {"owner": "" if is_folder(source) else owner, "name": name, "language": model.language or rest}
    target = re.sub(r"{(\w+)}", lambda field: values[field[1]], template)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", target, re.ASCII):
        more = "" if model.language else "; --checkpoint-regex needs (?P<lang>...) to find the language"
        raise UserError(f"--repo-template {template} gives {target!r}, which is not owner/name{more}")
    return target


def tokenizer_of(model: OldModel, asked: str | None) -> Path:
    """Return the tokenizer.json that the user named, as a file, its folder or a repository, or the one of the model."""
    if asked is None:
        if path := model.files.path("tokenizer.json"):
            return path
        raise UserError("it has no tokenizer.json; name another repository or a file with --tokenizer")
    if "{language}" in asked and model.language is None:
        raise UserError(
            f"--tokenizer {asked}: the model's language is not known; --checkpoint-regex needs (?P<lang>...) to find it"
        )
    name = asked.replace("{language}", model.language or "")
    path = Path(name, "tokenizer.json") if Path(name).is_dir() else Path(name)
    if path.is_file():
        return path
    if not HUB_NAME.fullmatch(name) or name.endswith(".json"):
        raise UserError(f"--tokenizer {name}: no such file")
    use = replace(TOKENIZER, key="--tokenizer", instead="name another repository or a file with --tokenizer")
    commit = resolve(use, name, "main")
    return of_repository(use, name, commit, "main").get(["tokenizer.json"])["tokenizer.json"]


def already(model: OldModel, target: str) -> bool:
    """Return whether another repository, the target, already holds this model, made from this commit.

    A UserError says that the target holds something else.
    """
    info = sources.state(OLD, target) if target != model.source.get("repository") else None
    if info is None:
        return False
    there = of_repository(OLD, target, str(info.sha), "main")
    record, known = there.json(manifest.NAME) if manifest.NAME in there.names else None, None
    if isinstance(record, dict) and isinstance(record.get("figures"), dict):
        remedy = "name another target in --repo-template, or delete this one"
        known = manifest.unsealed(record, f"{target}: {manifest.NAME}", remedy)["figures"].get("rehosted")
    if known is None and (others := [name for name in there.names if name != ".gitattributes"]):
        raise UserError(
            f"{target} exists and has other files ({escape.some(others, 3)}); name another target in --repo-template"
        )
    return known == model.source


def make(model: OldModel, out: Path, target: str, tokenizer: str | None, masked_target: str | None) -> None:
    """Make the folder of a model, unless this version made it with these settings. No other folder is deleted."""
    asked = {
        "source": model.source,
        "target": target,
        "weights": model.weights.names,
        "config": sha256(model.config),
        "tokenizer": tokenizer,
        "masked_target": masked_target,
    }
    made = manifest.read(out) if (out / manifest.NAME).is_file() else {"settings": {}}
    if made["settings"].get("rehost") == asked and made["version"] == __version__:
        return
    if "rehost" in made["settings"]:
        shutil.rmtree(out)
    remove_leftovers([out.parent])
    convert(model, tokenizer_of(model, tokenizer), masked_target, out, target, {"rehost": asked})
