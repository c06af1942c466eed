"""Convert models of the published GPT-BERT code to Hugging Face folders with our code (`babelmill convert`, `rehost`).

A model's files are in a repository or a folder, which contains one of: `model.safetensors` and
`model_main.safetensors` or `model_ema.safetensors`; `pytorch_model.bin`; or the checkpoints of training under their own
names. No code of the repository is run: only tensors are read, and the folder is built and proven as in the workflow
(the proof uses random tokens). The card says only what the files say, since the training text is not known and nothing
was measured.

The Hub shows which repositories are done: a repository is done if Babelmill wrote its config.json. A model that was
made but not pushed is in a folder whose manifest names the commit that it was made from.
"""

import logging
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from huggingface_hub import constants, get_token
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from babelmill import __version__
from babelmill.config.languages import language_on_card, read_table
from babelmill.config.layers import nearest
from babelmill.config.resolve import ROOT
from babelmill.config.schema import Export
from babelmill.core import escape, manifest
from babelmill.core.files import (
    UserError,
    atomic_folder,
    read_object,
    read_text,
    remove_leftovers,
    sha256,
    temporary_folder,
    write_json,
    write_text,
)
from babelmill.core.words import short
from babelmill.hub import sources
from babelmill.hub.files import Files, in_a_folder, of_repository
from babelmill.hub.sources import MODEL
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.release.card.card import ModelCard, read_card
from babelmill.release.elsewhere import foreign_model
from babelmill.release.folder.hub_folder import ExportInputs, build, prove
from babelmill.release.folder.loading import WEIGHTS
from babelmill.tokens import prefix_space
from babelmill.tokens.tokenizer_file import special_ids, token_id
from babelmill.tokens.vocabulary import BOS, MASK, Vocabulary

TABLE = ROOT / "config/languages.tsv"
DEFAULT = "default"
OLD = replace(MODEL, key="owner/prefix", revision_key="the branch main", instead="look at it on the Hub")
GPT_BERT = re.compile(r"gpt[-_]?bert", re.IGNORECASE)
# The test of what a model predicts at a mask: number of texts, tokens of each, distance of the hidden pairs, and by how
# many nats per token one of the two tokens must be better.
ROWS, LENGTH, APART, SURE = 32, 16, 5, 1.0

log = logging.getLogger("babelmill.rehost")


class Skipped(UserError):
    """Says why a repository is left as it is."""


@dataclass(frozen=True)
class OldModel:
    """A model as it was found."""

    files: Files  # the files of the repository or the folder
    weights: Mapping[str, list[str]]  # {variant: the files with its weights}, see `shipped`
    config: Path  # the JSON file with its shape
    name: str  # of its repository, folder or file, which may contain the code of its language
    private: bool = False  # whether its repository is private

    @property
    def names(self) -> list[str]:
        """Return the names of its files of weights, sorted."""
        return sorted({name for names in self.weights.values() for name in names})

    @cached_property
    def source(self) -> dict[str, Any]:
        """Return where it is, for the manifest: repository and commit, or the digests of its checkpoints."""
        where = {key: self.files.figures[key] for key in ("repository", "commit") if key in self.files.figures}
        return where or {"checkpoints": {name: sha256(path) for name, path in self.files.get(self.names).items()}}

    @property
    def origin(self) -> str:
        """Return the sentence of the card about where it comes from, in Markdown."""
        if "checkpoints" in self.source:
            files = " and ".join(f"{name} (sha256 {digest})" for name, digest in self.source["checkpoints"].items())
            return f"Converted from {escape.markdown(files)}, trained by the published GPT-BERT implementation."
        repository, commit = self.source["repository"], self.source["commit"]
        address = f"{constants.ENDPOINT}/{repository}"
        return (
            f"Rehosted from commit [`{commit}`]({address}/tree/{commit}) of [{escape.code(repository)}]({address}): the"
            f" same weights ({', '.join(map(escape.code, self.names))}), with the code of this folder."
        )


# Which models there are.


def repositories(source: str) -> list[str]:
    """Return the repositories that match `owner/prefix`; if there are none, raise a UserError with similar names."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]*", source, re.ASCII):
        raise UserError(f"{source}: owner/prefix is expected, such as lab/babybabellm-gpt_bert-")
    owner = source.split("/")[0]
    if not get_token():
        log.warning("no token (HF_TOKEN or `hf auth login`): private repositories of %s are not found", owner)
    known = sources.models_of(owner)
    found = [name for name in known if name.startswith(source)]
    if not found:
        raise UserError(f"{source}: this owner has no model whose name begins like this{nearest(source, known)}")
    return found


def model_of(source: str, config: Path | None = None) -> OldModel:
    """Return the model of a repository, a folder or a checkpoint. Raise Skipped if this is no model of GPT-BERT's code.

    `config`: the JSON file with its shape, if there is no config.json.
    """
    files, private = opened(source)
    path = config or files.path("config.json")
    if path is None:
        raise Skipped("it has no config.json; name the file with its shape by --config of `babelmill convert`")
    if not config:
        values = read_object(path, f"{files.where}: config.json")
        model_type = str(values.get("model_type", "none in config.json"))
        if model_type in foreign_model.OURS or "layer_mixing" in values:
            raise Skipped("Babelmill made it")
        if not (values.keys() >= foreign_model.KEYS.keys() or GPT_BERT.search(model_type)):
            raise Skipped(f"not a GPT-BERT (model_type {model_type})")
    return OldModel(files, shipped(files), path, Path(source).name, private)


def opened(source: str) -> tuple[Files, bool]:
    """Return the files of a folder or a repository, and whether it is private. Of a checkpoint, also its average."""
    path = Path(source)
    if path.is_file():
        files = in_a_folder(path.parent)
        names = [name for name in (path.name, f"{path.stem}_ema{path.suffix}") if name in files.names]
        return replace(files, sizes={name: files.sizes[name] for name in names}, where=source), False
    if path.is_dir():
        return in_a_folder(path), False
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII):
        raise UserError(f"{source}: neither a file or folder, nor a repository on the Hub (owner/name)")
    info = sources.state(OLD, source)
    if info is None:
        raise UserError(f"{source}: the repository does not exist, or HF_TOKEN may not read it")
    return of_repository(OLD, source, str(info.sha), "main"), bool(info.private)


def shipped(files: Files) -> dict[str, list[str]]:
    """Return {variant: files}, by the names that transformers and the scripts give to weights.

    The variant is `main`, `ema`, or DEFAULT: the files that load by default, if only the numbers in them can tell
    which of the two they hold.
    """
    variants = {}
    for variant in WEIGHTS:
        known = (f"model.{variant}.safetensors", f"model_{variant}.safetensors", f"pytorch_model_{variant}.bin")
        names = [name for name in known if name in files.names]
        variants |= {variant: names[:1]} if names else {}
    if variants and not [name for name in files.names if name.removesuffix(".index.json") in foreign_model.ONE_FILE]:
        return variants
    default = foreign_model.weight_files(files)
    if default[0].endswith("_ema.bin"):
        last = default[0].replace("_ema.bin", ".bin")
        return ({"main": [last]} if last in files.names else {}) | {"ema": default}
    return variants | {DEFAULT if variants else alone(files): default}


def alone(files: Files) -> str:
    """Return which variant a repository's only weights are, according to the scripts' card or the repository's name."""
    card = files.path("README.md")
    declared = re.search(r"^## Variants Available\s+(main|ema)\s*$", read_text(card), re.MULTILINE) if card else None
    named = re.search(r"[-_]ema\b", files.figures.get("repository", ""))
    return declared[1] if declared else "ema" if named else "main"


def languages_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the language whose code is part of a repository's name, for the card; none if there are several codes."""
    table = read_table(TABLE)
    found = table.keys() & {*re.split(r"[^A-Za-z]+", name), name.rpartition("-")[2]}
    return {code: language_on_card(code, table) for code in found} if len(found) == 1 else {}


# Reading.


def read_weights(old: OldModel) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]], str]:
    """Return the shape, the tensors of each variant under our names in float32, and the default variant.

    The size of the vocabulary is taken from the embedding. The config.json may state a wrong one, since the scripts
    copied it from any configuration.
    """
    shapes, found, where = [], dict[str, dict[str, Tensor]](), old.files.where
    values = read_object(old.config, f"{where}: {old.config.name}")
    for variant, names in old.weights.items():
        tensors, _ = foreign_model.open_weights(old.files.get(names), where)
        rows = [len(tensor) for name, tensor in tensors.items() if name.endswith(foreign_model.EMBEDDING)]
        values |= {"vocab_size": rows[0]} if rows else {}
        model = foreign_model.read_model("gpt_bert", values, tensors, None, where)
        shapes.append(model.shape)
        found[variant] = {name: tensor.float().contiguous() for name, tensor in model.weights.items()}
    if any(shape != shapes[0] for shape in shapes):
        raise UserError(f"{where}: {' and '.join(old.names)} are weights of different models")
    default = "ema" if "ema" in found else "main"
    if loaded := found.pop(DEFAULT, None):
        same = [v for v in found if all(torch.equal(found[v][name], tensor) for name, tensor in loaded.items())]
        if not same and len(found) == len(WEIGHTS):
            raise UserError(f"{old.weights[DEFAULT][0]} has neither the weights of {' nor of '.join(old.names)}")
        default = same[0] if same else "ema" if "main" in found else "main"
        found.setdefault(default, loaded)
    return shapes[0], {variant: found[variant] for variant in WEIGHTS if variant in found}, default


@torch.no_grad()
def learnt_target(shape: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> str:
    """Return which token a GPT-BERT learnt to predict at a mask, "next" or "same"; UserError if it cannot be told.

    Its files do not say it. The published code predicts the next token everywhere. BabyBabelLM's code predicts the next
    token in causal rows, but the hidden token itself in masked rows. So the model is tested: it generates texts
    causally, and pairs of neighbouring tokens are hidden in them. The model's scores at the first position of a pair
    fit either the first or the second token far better, unless the model has learnt too little.
    """
    model = GPTBert(GPTBertShape(**shape)).eval()
    model.load_state_dict(dict(weights))
    both = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    texts = torch.full((ROWS, 1), token_id(tokenizer, BOS))
    special = torch.tensor(special_ids(tokenizer))
    while texts.size(1) < LENGTH:
        size = texts.size(1)
        scores = model(texts, both[..., :size, :size].tril())[:, -1].index_fill(1, special, -math.inf)
        texts = torch.cat([texts, torch.multinomial(scores.softmax(-1), 1, generator=generator)], 1)
    first = torch.arange(APART - 2, LENGTH - 1, APART)
    given = texts.index_fill(1, torch.cat([first, first + 1]), token_id(tokenizer, MASK))
    scores = model(given, both).log_softmax(-1)[:, first]
    same, next = (scores.gather(-1, texts[:, first + ahead, None]).mean().item() for ahead in (0, 1))
    log.info("at a mask, the hidden token has a loss of %.2f nats, and the next one %.2f", same, next)
    if abs(same - next) < SURE:
        raise UserError(
            "the model has learnt too little to tell which token it predicts at a mask: set --masked-target next"
            " (GPT-BERT) or same (BabyBabelLM's code)"
        )
    return "same" if same > next else "next"


# Conversion.


def convert(
    old: OldModel, tokenizer: str | None, masked_target: str | None, out: Path, name: str, asked: dict[str, Any]
) -> None:
    """Read a model, build and prove its folder, write its card, and move it to `out`.

    `tokenizer`: see `tokenizer_of`. `masked_target`: the token that masked positions predicted, "next" or "same"; None:
    the model is tested. `name`: the model's name on its card. `asked`: more entries for the settings of the manifest. A
    UserError says that `out` exists, that the files do not fit together, or that the model has learnt too little to
    tell its masked target.
    """
    if out.exists():
        raise UserError(f"--out {out} already exists; remove it or name another folder")
    log.info("reading %s", old.files.where)
    earlier = read_card(old.files.path("README.md"), old.files.where)
    adapted = foreign_model.adapted_tokenizer(tokenizer_of(old, tokenizer))  # a mistake is found before the weights
    shape, weights, default = read_weights(old)
    foreign_model.check_entries(adapted, shape["vocab_size"], old.files.where)
    shape["masked_target"] = masked_target or learnt_target(shape, weights[default], adapted)
    wanted = Export.model_validate({"variants": list(weights), "default_variant": default, "logits_alignment": "mlm"})
    parameters = sum(value.numel() for value in weights[default].values())
    with temporary_folder(out) as scratch, atomic_folder(out) as folder:
        inputs = ExportInputs(scratch / "model", scratch / "tokenizer", [])
        write_text(inputs.tokenizer / "tokenizer.json", adapted.to_str(pretty=True))
        vocabulary = Vocabulary.read(inputs.tokenizer / "tokenizer.json", shape["vocab_size"])
        write_json(inputs.model / "config.json", shape | vocabulary.ids)
        for variant, tensors in weights.items():
            save_file(tensors, inputs.weights(variant))
        log.info("building %s", out)
        files = build(folder, inputs, wanted)
        prove(folder, inputs, wanted, out)
        card = ModelCard(
            name=name,
            export=wanted,
            parameters=parameters,
            code={file: sha256(folder / file) for file in files if file.endswith(".py")},
            origin=old.origin,
            prefix_space=prefix_space.is_put_in(folder / "tokenizer.json"),
            settings={"model": shape},
            earlier=earlier,
            languages=languages_of(old.name),
        )
        files += card.write(folder)
        found = f"{' and '.join(weights)} in {', '.join(old.names)}, {short(parameters)} parameters, masked target"
        settings = {"name": out.name, "export": wanted.model_dump(exclude={"logits_alignment"})} | asked
        figures = {"origin": old.origin, "rehosted": old.source, "found": f"{found} {shape['masked_target']}"}
        manifest.write(folder, SimpleNamespace(stage="convert", raw=settings), files, figures=figures)


# What the commands do.


def tokenizer_of(model: OldModel, asked: str | None) -> Path:
    """Return the tokenizer.json that the user named, as a file, its folder or a repository, or the one of the model."""
    if asked and Path(asked).is_file():
        return Path(asked)
    files = opened(asked)[0] if asked else model.files
    if path := files.path("tokenizer.json"):
        return path
    raise UserError(f"{files.where} has no tokenizer.json; name another repository or a file with --tokenizer")


def make(model: OldModel, out: Path, name: str, tokenizer: str | None, masked_target: str | None) -> None:
    """Make the folder of a model, unless this version made it with these settings. No other folder is deleted."""
    asked = {"source": model.source, "weights": model.names, "config": sha256(model.config)}
    asked |= {"tokenizer": tokenizer, "masked_target": masked_target}
    made = manifest.read(out) if (out / manifest.NAME).is_file() else {"settings": {}}
    if made["settings"].get("rehost") == asked and made["version"] == __version__:
        return
    if "rehost" in made["settings"]:
        shutil.rmtree(out)
    remove_leftovers([out.parent])
    convert(model, tokenizer, masked_target, out, name, {"rehost": asked})
