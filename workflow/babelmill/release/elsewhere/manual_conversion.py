"""Convert a model that was trained elsewhere, or by an earlier run, to a Hugging Face folder by hand.

`babelmill convert` takes a result of the stage `train`, or a checkpoint of a run, or a copy of either; a checkpoint of
the published implementation; or a repository that was made with it (`rehosting.py`). The same code as in the workflow
builds and proves the folder (the proof uses random tokens). The card says only what these files say, since the training
text is not known and nothing was measured.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from babelmill.config.languages import language_on_card, read_table
from babelmill.config.model_source import SHAPE
from babelmill.config.objectives import OBJECTIVES
from babelmill.config.resolve import ROOT
from babelmill.config.schema import Export
from babelmill.core import escape, manifest
from babelmill.core.files import (
    UserError,
    atomic_folder,
    copy_file,
    read_json,
    read_object,
    sha256,
    temporary_folder,
    write_json,
)
from babelmill.model.gpt_bert import GPTBertShape
from babelmill.release.card.card import ModelCard, shown_settings
from babelmill.release.elsewhere import published_checkpoint
from babelmill.release.folder.architectures import ExportInputs
from babelmill.release.folder.hub_folder import build, prove
from babelmill.release.folder.loading import WEIGHTS
from babelmill.runtime.checkpoint import SavedTensors
from babelmill.stages import TrainStage
from babelmill.tokens import prefix_space
from babelmill.tokens.tokenizer_file import load_tokenizer, vocab_size
from babelmill.tokens.vocabulary import BOS, EOS, MASK, PAD

log = logging.getLogger(__name__)

TABLE = ROOT / "config/languages.tsv"
SPECIAL = {"bos": BOS, "eos": EOS, "pad": PAD, "mask": MASK}


@dataclass
class FoundModel:
    """Holds a trained model as it was found."""

    weights: dict[str, dict[str, Tensor]]  # {variant: {name: tensor}}; the variants are `main` and perhaps `ema`
    shape: dict[str, Any]  # the model's shape, as in the training configuration
    tokenizer: Path  # the path of its tokenizer.json
    origin: str = ""  # a sentence for the card that says where the model comes from
    known: dict[str, Any] = field(default_factory=dict)  # more facts for the card, as arguments of `ModelCard`
    metrics: Path | None = None  # the path of metrics.jsonl; None if there is none
    name: str | None = None  # the model's name; None stands for the name of the new folder
    default: str | None = None  # the variant that loads by default; None stands for the last one of `weights`
    # asked, record: more entries for `settings` and `figures` of the manifest.
    asked: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file. Raise a UserError if it is missing or damaged."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise UserError(f"{path}: not a safetensors file, or a damaged one ({error})") from None


def from_gpt_bert(
    weights: Path, average: Path | None, config: Path, tokenizer: Path, same: bool, scratch: Path
) -> FoundModel:
    """Read a checkpoint of the published implementation.

    `weights`: model.bin or model_state_dict.bin. `average`: model_ema.bin, if there is one. `config`: the JSON file
    with the model's shape. `same`: whether masked positions predicted the token at the mask itself, not the next one.
    `scratch`: a folder for the adapted tokenizer.
    """
    log.info("reading %s", weights)
    found = published_checkpoint.read_weights(weights)
    if average:
        found["ema"] = published_checkpoint.read_weights(average)["main"]
    shape = published_checkpoint.shape_in(read_object(config), found["main"], config)
    shape |= {"masked_target": "same" if same else "next"}
    path = scratch / "tokenizer.json"
    published_checkpoint.adapted_tokenizer(tokenizer).save(str(path))
    digests = " and ".join(f"{escape.code(file.name)} (sha256 `{sha256(file)}`)" for file in (weights, average) if file)
    origin = f"Converted from {digests}, trained by the published GPT-BERT implementation."
    return checked(FoundModel(found, shape, path, origin), weights)


def is_of_training(folder: Path) -> bool:
    """Return whether a folder is a result of this package, or has a shape that the published code does not write."""
    config = folder / "config.json"
    shape = read_json(config) if config.is_file() else {}
    whole = isinstance(shape, dict) and GPTBertShape.__dataclass_fields__.keys() <= shape.keys()
    return (folder / manifest.NAME).is_file() or (whole and "model_type" not in shape)


def from_training(source: Path, tokenizer: Path) -> FoundModel:
    """Read the folder of a trained model, or a checkpoint of a run that has its run's `identity.json` beside it."""
    log.info("reading %s", source)
    return checked(from_model_folder(source, tokenizer) if source.is_dir() else from_run(source, tokenizer), source)


def from_model_folder(folder: Path, tokenizer: Path) -> FoundModel:
    """Read results/train/{label}-{key} or a copy of it: weights, config.json and, if it exists, the manifest."""
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{folder} has no config.json; name a folder like results/of/eng/train, or a step-*.safetensors"
        )
    known = {}
    if (folder / manifest.NAME).is_file():
        made = manifest.verify(folder)
        if made["stage"] != "train":
            raise UserError(
                f"{folder} is a result of {made['stage']}, not of training; name results/of/{{model}}/train"
            )
        known = known_from(made["settings"], made["figures"].get("precision")) | {"figures": made["figures"]}
        seal = tokenizer.parent / manifest.NAME
        if seal.is_file() and manifest.digest(tokenizer.parent) not in made["upstream"].values():
            raise UserError(f"{tokenizer} is not the tokenizer with which {folder} was trained")
    weights = {variant: folder / name for variant, name in WEIGHTS.items() if (folder / name).is_file()}
    if not weights:
        raise UserError(f"{folder} has neither {' nor '.join(WEIGHTS.values())}")
    return FoundModel(
        {variant: read_safetensors(path) for variant, path in weights.items()},
        read_json(folder / "config.json"),
        tokenizer,
        "Converted by hand from the final weights of its training.",
        known,
        folder / "metrics.jsonl" if (folder / "metrics.jsonl").is_file() else None,
    )


def from_run(path: Path, tokenizer: Path) -> FoundModel:
    """Read results/checkpoints/{label}-{key}/step-00000100.safetensors, or a copy of it."""
    tensors = read_safetensors(path)
    seal, identity = path.with_suffix(".json"), path.parent / "identity.json"
    if seal.is_file() and read_json(seal)["sha256"] != sha256(path):
        raise UserError(f"{path}: damaged, its sha256 is not the one in {seal}")
    if not identity.is_file():
        raise UserError(
            f"{path} is not in the folder of a run ({identity} is missing: copy it from the folder of the checkpoint);"
            " to convert the result of a training, name its folder, such as results/of/eng/train"
        )
    run = read_json(identity)
    if not isinstance(run, dict) or not isinstance(run.get("data"), dict) or not isinstance(run.get("settings"), dict):
        raise UserError(f"{identity} does not say what was trained; copy it again from the folder of the checkpoint")
    if sha256(tokenizer) != run.get("tokenizer"):
        raise UserError(f"{tokenizer} is not the tokenizer with which {path} was trained")
    weights = {
        variant: {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        for variant, prefix in (("main", "model."), ("ema", "average."))
    }
    weights = {variant: found for variant, found in weights.items() if found}  # train.ema_decay: 0 keeps no average
    steps = re.search(r"\d+", path.stem)
    origin = f"Converted by hand from a checkpoint of its training, after {int(steps[0]):,} steps." if steps else ""
    rows = len(weights["main"].get(published_checkpoint.EMBEDDING, ()))
    asked = TrainStage.from_content(run["settings"], identity)
    model, objective = asked.model, asked.train.objective
    require_gpt_bert(model.architecture, path)
    shape = model.shape() | {"vocab_size": rows}
    theirs = run.get("shape", {})  # the shape of the model that training continued from
    shape |= {key: theirs[key] for key in SHAPE if key in theirs}
    if OBJECTIVES[objective].unmasks:
        shape["objective"] = objective
    precision = SavedTensors(path).state.get("precision")
    return FoundModel(weights, shape, tokenizer, origin, known_from(run["settings"], precision))


class ByHand(NamedTuple):
    """What a manifest says about a conversion by hand."""

    stage: str
    raw: dict[str, Any]


def require_gpt_bert(architecture: str, source: Path | str) -> None:
    """Raise a UserError for any other architecture."""
    if architecture != "gpt_bert":
        raise UserError(f"{source} is not a GPT-BERT; use the workflow, which can convert transformers models")


def checked(found: FoundModel, source: Path | str) -> FoundModel:
    """Return a model. Raise a UserError unless its weights fit its shape, and its tokenizer fits its weights."""
    fields = GPTBertShape.__dataclass_fields__
    require_gpt_bert(found.shape.get("architecture", "gpt_bert"), source)
    if absent := [name for name in fields if name not in found.shape]:
        raise UserError(f"{source}: its configuration has no {absent[0]}, so it was not written by training")
    for variant, weights in found.weights.items():
        if difference := published_checkpoint.misfit(found.shape, weights):
            raise UserError(
                f"{source}: the {variant} weights do not fit the given configuration: {difference}; name the"
                " configuration of its training"
            )
    entries, rows = vocab_size(load_tokenizer(found.tokenizer)), found.shape["vocab_size"]
    if entries > rows:
        raise UserError(
            f"the tokenizer has {entries:,} entries, the model only {rows:,}: this is not the model's own tokenizer"
        )
    if entries < rows:
        log.warning(
            "the tokenizer has only %d entries, the model %d: the model's last entries are never used", entries, rows
        )
    return found


def known_from(settings: dict[str, Any], precision: str | None) -> dict[str, Any]:
    """Return the facts for the card of a model that was trained with these settings, in this precision if known."""
    return {"languages": on_card(settings["languages"]), "settings": shown_settings(settings, precision)}


def on_card(languages: list[str]) -> dict[str, dict[str, Any]]:
    """Return the card's entries for languages, by their codes."""
    table = read_table(TABLE)
    return {code: language_on_card(code, table) for code in languages}


@contextlib.contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """Make a temporary folder beside `out`, and remove it at the end; raise a UserError if `out` exists."""
    if out.exists():
        raise UserError(f"--out {out} already exists; remove it or name another folder")
    made = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary_folder(out) as folder:
            yield folder
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()


def tokenizer_path(given: Path) -> Path:
    """Return the path of tokenizer.json, given this path or its folder. Raise a UserError if there is none."""
    path = given / "tokenizer.json" if given.is_dir() else given
    if not path.is_file():
        raise UserError(f"--tokenizer {given}: no such file")
    return path


def write_stage_folders(found: FoundModel, scratch: Path) -> ExportInputs:
    """Write the model and its tokenizer to folders like those of the stages `train` and `tokenizer`."""
    vocabulary = load_tokenizer(found.tokenizer).get_vocab(with_added_tokens=True)
    ids = {f"{name}_token_id": vocabulary[token] for name, token in SPECIAL.items()}
    for folder in ("model", "tokenizer"):
        (scratch / folder).mkdir()
    for variant, weights in found.weights.items():
        contiguous = {name: value.contiguous() for name, value in weights.items()}
        save_file(contiguous, scratch / "model" / WEIGHTS[variant])
    write_json(scratch / "model/config.json", found.shape | ids)
    copy_file(found.tokenizer, scratch / "tokenizer/tokenizer.json")
    return ExportInputs(scratch / "model", scratch / "tokenizer", [])


def convert(found: FoundModel, scratch: Path, out: Path) -> None:
    """Build and prove the folder, write its card, and move it to `out`."""
    inputs = write_stage_folders(found, scratch)
    variants = list(found.weights)
    known: dict[str, Any] = {"settings": {"model": found.shape}} | found.known
    neutral = {"logits_alignment": "mlm", "adapter": "none", "include_raw": False}
    wanted = Export.model_validate({"variants": variants, "default_variant": found.default or variants[-1], **neutral})
    with atomic_folder(out) as folder:
        log.info("building %s", out)
        files = build(folder, inputs, wanted)
        prove(folder, inputs, wanted, out)
        log.info("writing the card")
        card = ModelCard(
            name=found.name or re.sub(r"[^\w.-]+", "-", out.name),  # as a repository on the Hub
            variants=variants,
            default_variant=wanted.default_variant,
            parameters=sum(value.numel() for value in found.weights[variants[0]].values()),
            code={name: sha256(folder / name) for name in files if name.endswith(".py")},
            origin=found.origin,
            prefix_space=prefix_space.is_put_in(folder / "tokenizer.json"),
            metrics_file=found.metrics,
            **known,
        )
        files += card.write(folder)
        settings = {"export": wanted.model_dump(exclude=set(neutral))} | found.asked
        figures = {"origin": found.origin} | found.record
        manifest.write(folder, ByHand("convert", {"name": out.name} | settings), files, figures=figures)
