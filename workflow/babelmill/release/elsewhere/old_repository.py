"""Read a repository with files of the published GPT-BERT code, so that it can be converted.

Such a repository contains one of: `model.safetensors` and `model_main.safetensors` or `model_ema.safetensors`;
`pytorch_model.bin`; or the checkpoints of training under their own names, which a glob and a pattern find. No code of
the repository is run: only tensors are read, and the new folder is built and proven as in the workflow.
"""

import dataclasses
import fnmatch
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from babelmill.config.languages import Language
from babelmill.core.files import UserError, read_object, read_text
from babelmill.hub.files import Files
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.release.card.earlier_card import read_card
from babelmill.release.elsewhere import published_checkpoint
from babelmill.release.elsewhere.foreign_model import ONE_FILE, open_weights, read_model, weight_files
from babelmill.release.elsewhere.manual_conversion import FoundModel, checked
from babelmill.release.elsewhere.published_checkpoint import EMBEDDING
from babelmill.release.folder.loading import WEIGHTS
from babelmill.tokens.tokenizer_file import special_ids, token_id
from babelmill.tokens.vocabulary import BOS, MASK

OURS = "babelmill_gpt_bert"
GPT_BERT = re.compile(r"gpt[-_]?bert", re.IGNORECASE)
# The test of what a model predicts at a mask: number of texts, tokens of each, distance of the hidden pairs, and by how
# many nats per token one of the two tokens must be better.
ROWS, LENGTH, APART, SURE = 32, 16, 5, 1.0

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WeightFiles:
    """Says which files hold the weights of a model."""

    default: list[str]  # the files that load by default; empty if no file is the default
    variants: dict[str, list[str]]  # {variant: files} for `main` and `ema`, if the names of files tell the variant

    @property
    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted({name for names in [self.default, *self.variants.values()] for name in names})


def model_type_of(config: Any) -> str | None:
    """Return the model type that a config.json names, or None if it belongs to a GPT-BERT of the published code."""
    if not isinstance(config, dict):
        return "none in config.json"
    model_type = str(config.get("model_type", "none in config.json"))
    if config.keys() >= published_checkpoint.KEYS.keys():
        return None
    return None if GPT_BERT.search(model_type) else model_type


def checkpoints(names: list[str], glob: str | None, pattern: str | None) -> dict[str | None, WeightFiles]:
    """Return the checkpoints that a glob and a pattern find among files: {language: weights}.

    The language is the pattern's group `lang`, or None if the pattern has no such group. A file holds averaged weights
    if the pattern's group `ema` matches, or, if there is no such group, if its name ends in `_ema`. A UserError says
    that two files are the same variant of one language.
    """
    found: dict[str | None, dict[str, list[str]]] = {}
    wanted = re.compile(pattern or ".*")
    for name in fnmatch.filter(names, glob) if glob else []:
        if not (match := wanted.fullmatch(name)):
            continue
        groups = match.groupdict()
        ema = groups["ema"] is not None if "ema" in groups else Path(name).stem.endswith("_ema")
        variants = found.setdefault(groups.get("lang"), {})
        if other := variants.get(variant := "ema" if ema else "main"):
            raise UserError(
                f"{other[0]} and {name} are both the {variant} weights: make --checkpoint-glob or --checkpoint-regex"
                " match only one of them, or add the language to the latter, (?P<lang>[a-z]{3})"
            )
        variants[variant] = [name]
    return {language: WeightFiles([], variants) for language, variants in found.items()}


def shipped(files: Files) -> WeightFiles:
    """Return the weights in a repository, by the names that transformers and the scripts give them."""

    variants = {}
    for variant in WEIGHTS:
        known = (f"model.{variant}.safetensors", f"model_{variant}.safetensors", f"pytorch_model_{variant}.bin")
        names = [name for name in known if name in files.names]
        variants |= {variant: names[:1]} if names else {}
    if variants and not {*ONE_FILE, *(f"{name}.index.json" for name in ONE_FILE)} & {*files.names}:
        return WeightFiles([], variants)
    default = weight_files(files.names, files.json, files.where)
    if default[0].endswith("_ema.bin"):
        last = default[0].replace("_ema.bin", ".bin")
        return WeightFiles([], ({"main": [last]} if last in files.names else {}) | {"ema": default})
    return WeightFiles(default, variants) if variants else WeightFiles([], {alone(files): default})


def alone(files: Files) -> str:
    """Return which variant a repository's only weights are, according to the scripts' card or the repository's name."""
    card = files.path("README.md")
    declared = re.search(r"^## Variants Available\s+(main|ema)\s*$", read_text(card), re.MULTILINE) if card else None
    named = re.search(r"[-_]ema\b", files.figures.get("repository", ""))
    return declared[1] if declared else "ema" if named else "main"


def read_weights(
    files: Files, weights: WeightFiles, config: Path
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]], str]:
    """Return the shape, the tensors of each variant under our names in float32, and the default variant.

    The size of the vocabulary is taken from the embedding. The config.json may state a wrong one, since the scripts
    copied it from any configuration.
    """
    shapes: list[dict[str, Any]] = []
    values = read_object(config, f"{files.where}: {config.name}")

    def tensors(names: list[str]) -> dict[str, Tensor]:
        opened = open_weights(files.get(names), files.where)
        rows = next((value.size(0) for name, value in opened.shapes.items() if name.endswith(EMBEDDING)), None)
        model = read_model("published", values | ({"vocab_size": rows} if rows else {}), opened, files.where)
        shapes.append(model.config)
        return {ours: opened.load(theirs).float() for ours, theirs in model.names.items()}

    found = {variant: tensors(names) for variant, names in sorted(weights.variants.items(), reverse=True)}
    default = list(found)[-1] if found and not weights.default else None
    if weights.default:
        loaded = tensors(weights.default)
        default = next((variant for variant, known in found.items() if equal(known, loaded)), None)
        if default is None and len(found) == len(WEIGHTS):
            raise UserError(f"{weights.default[0]} has neither the weights of {' nor of '.join(weights.names)}")
        if default is None:
            default = "ema" if "main" in found else "main"
            found[default] = loaded
    return shapes[0], {variant: found[variant] for variant in WEIGHTS if variant in found}, str(default)


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two models have the same weights."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def read_repository(
    files: Files, weights: WeightFiles, config: Path, tokenizer: Path, masked_target: str | None, scratch: Path
) -> FoundModel:
    """Read the model and the card of a repository or a folder; `config` is the JSON file with the model's shape.

    `masked_target`: the token that masked positions predicted, "next" or "same"; None: the model is tested. The adapted
    tokenizer is written to the folder `scratch`. A UserError says that the files do not fit together, or that the model
    has learnt too little to tell its masked target.
    """
    earlier = read_card(files.path("README.md"), files.where)
    shape, tensors, default = read_weights(files, weights, config)
    adapted, path = published_checkpoint.adapted_tokenizer(tokenizer), scratch / "tokenizer.json"
    adapted.save(str(path))
    found = checked(FoundModel(tensors, shape, path, known={"earlier": earlier}, default=default), files.where)
    found.shape["masked_target"] = masked_target or learnt_target(shape, tensors[default], adapted)
    if found.shape["masked_target"] is None:
        raise UserError(
            "the model has learnt too little to tell which token it predicts at a mask: set --masked-target next"
            " (GPT-BERT) or same (BabyBabelLM's code)"
        )
    return found


@torch.no_grad()
def learnt_target(shape: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> str | None:
    """Return which token a GPT-BERT learnt to predict at a mask, "next" or "same"; None if it cannot be told.

    Its files do not say it. The published code predicts the next token everywhere. BabyBabelLM's code predicts the next
    token in causal rows, but the hidden token itself in masked rows. So the model is tested: it generates texts
    causally, and pairs of neighbouring tokens are hidden in them. The model's scores at the first position of a pair
    fit either the first or the second token far better, unless the model has learnt too little.
    """
    model = GPTBert(GPTBertShape(**{name: shape[name] for name in GPTBertShape.__dataclass_fields__})).eval()
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
        return None
    return "same" if same > next else "next"


def language_of(name: str, table: Mapping[str, Language]) -> str | None:
    """Return the language whose code is part of a repository's name, such as my-model-eng.

    Return None if there is no such language, or several. `table` is {code: language}.
    """
    parts = {*re.split(r"[^A-Za-z]+", name), name.rpartition("-")[2]}
    found = [code for code in table if code in parts]
    return found[0] if len(found) == 1 else None
