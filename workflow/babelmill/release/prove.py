"""Is an exported folder the model that was trained? It is loaded as its users load it and must compute the same.

    python -m babelmill.release.prove --folder results/exports/eng --model results/models/eng \\
        --shards results/shards/eng/eng --variants main ema --default-variant ema

For every variant, and in every case that the architecture names (`architecture.py`), transformers must find every
weight and no other, and the logits of real validation documents (of random tokens where `--shards` names none) must be
the training model's: in float64 within 1e-9, which no wrong weight, mask or alignment meets; in float32 within a few
times the training model's own rounding error. (Equal bits would be too much: the two take different code paths, and the
last bit of a sum depends on the processor.) This runs in a process of its own, since a process that has loaded one
folder's code may be given it again for another one.
"""

import argparse
import copy
import math
import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # before transformers is imported, which reads these
    # Nothing is fetched, and the copy that transformers makes of the folder's code goes with this process.
    os.environ["HF_HUB_OFFLINE"] = "1"
    _MODULES = tempfile.TemporaryDirectory(prefix="babelmill-modules-")
    os.environ["HF_MODULES_CACHE"] = _MODULES.name

import torch
import transformers

from babelmill.core.files import UserError, read_json
from babelmill.release.architecture import Architecture, Case
from babelmill.release.hub_folder import architecture_of
from babelmill.release.loading import WEIGHTS, load
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import Vocabulary, published_roles

DOCUMENTS = 8  # of each language
LONGEST = 1024  # tokens of a document
EXACT = 1e-9  # largest difference of two logits in float64
ROUNDING = 8  # largest difference of two logits in float32, as a multiple of the training model's own rounding error


def documents(shards: list[Path], length: int, vocabulary: Vocabulary) -> list[torch.Tensor]:
    """The first validation documents of each language, `<s>` included, at most `length` tokens each: [1, T] int64."""
    rows = []
    for folder in shards:
        shard = ShardFile.open(folder / "validation.safetensors")
        for start, end in zip(shard.offsets[:DOCUMENTS], shard.offsets[1 : DOCUMENTS + 1], strict=False):
            tokens = vocabulary.given(shard.tokens[start : min(end, start + length)].astype("int64"))
            rows.append(torch.tensor(tokens)[None])
    return rows


def random_rows(vocab_size: int, length: int) -> list[torch.Tensor]:
    """Rows of random tokens, of lengths from 1 to `length`: [1, T] int64, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(1, length, DOCUMENTS).int().tolist()
    return [torch.randint(vocab_size, (1, size), generator=generator) for size in lengths]


def check_tokenizer(folder: Path, texts: list[torch.Tensor], vocab_size: int, published: bool) -> None:
    """The tokenizer as users load it has no entry beyond the embedding, and does what that of the training does.

    It puts one `<s>` in front, but for that of a published model, which does as it was published.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    if len(tokenizer) > vocab_size:
        raise UserError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the model {vocab_size}")
    trained_with = load_tokenizer(folder / "tokenizer.json")
    for row in texts:
        text = tokenizer.decode(row[0, 1:-1].tolist(), clean_up_tokenization_spaces=False)
        wanted = trained_with.encode(text, add_special_tokens=not published).ids
        found = tokenizer(text, split_special_tokens=True, add_special_tokens=not published)["input_ids"]
        if found != wanted or not (published or found[:1] == row[0, :1].tolist()):
            raise UserError(f"{folder}: the tokenizer as users load it makes other tokens of a text: {text[:60]!r}")


class Comparison:
    """The logits of a training model and of what was exported from it, in both precisions."""

    def __init__(self, architecture: Architecture, trained: torch.nn.Module, exported: torch.nn.Module):
        self._architecture = architecture
        self._models = {torch.float32: (trained, exported)}
        self._models[torch.float64] = copy.deepcopy(trained).double(), copy.deepcopy(exported).double()

    @torch.inference_mode()
    def differences(self, rows: list[torch.Tensor], case: Case) -> dict[str, float]:
        """Compare the logits of documents, token ids, each [1, T] int64.

        Returns:
            the largest difference in `float64` and in `float32`, and the training model's own `rounding` error.
        """
        largest = {"float64": 0.0, "float32": 0.0, "rounding": 0.0}
        for row in rows:
            wanted, found = {}, {}
            for dtype, (trained, exported) in self._models.items():
                wanted[dtype] = self._architecture.logits(trained, row, case.mode)[:, case.trained].double()
                found[dtype] = exported(row, attention_mask=torch.ones_like(row)).logits[:, case.exported].double()
            pairs = {
                "float64": (found[torch.float64], wanted[torch.float64]),
                "float32": (found[torch.float32], wanted[torch.float32]),
                "rounding": (wanted[torch.float32], wanted[torch.float64]),
            }
            for name, (a, b) in pairs.items():
                if a.numel():
                    largest[name] = max(largest[name], (a - b).abs().max().nan_to_num(math.inf).item())
        return largest


def check_differences(what: str, differences: dict[str, float]) -> None:
    """Raise a UserError where the differences are more than rounding explains; `what` names the comparison."""
    if differences["float64"] > EXACT:
        raise UserError(f"{what}: logits differ by up to {differences['float64']:g} in float64")
    if differences["float32"] > ROUNDING * differences["rounding"]:
        raise UserError(
            f"{what}: logits differ by up to {differences['float32']:g} in float32, more than {ROUNDING} times the"
            f" training model's rounding error of {differences['rounding']:g}"
        )


def compare(args: argparse.Namespace) -> str:
    """Compare every variant in every mode; return what was found in a line. A UserError names the first difference."""
    shape = read_json(args.model / "config.json")
    length, vocab_size = min(shape["max_position_embeddings"], LONGEST), shape["vocab_size"]
    path = args.tokenizer / "tokenizer.json"
    rows = documents(args.shards, length, Vocabulary.read(path, vocab_size))
    check_tokenizer(args.folder, rows, vocab_size, published_roles(args.tokenizer) is not None)
    rows = rows or random_rows(vocab_size, length)
    architecture = architecture_of(args.model)
    done, largest = 0, {"float64": 0.0, "float32": 0.0}
    for variant in args.variants:
        trained = architecture.trained(args.model, variant, args.frozen)
        named = None if variant == args.default_variant else variant
        for case in architecture.cases(args.model):
            exported = load(getattr(transformers, case.auto_class), args.folder, named, **case.settings)
            differences = Comparison(architecture, trained, exported).differences(rows, case)
            check_differences(f"variant {variant}, {case}", differences)
            largest = {key: max(value, differences[key]) for key, value in largest.items()}
            done += len(rows)
    return (
        f"{done} comparisons with the training model: difference at most {largest['float64']:.1e} in float64,"
        f" {largest['float32']:.1e} in float32"
    )


def main() -> int:
    """The command; its last line says what was compared, or what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, type=Path, help="the exported folder")
    parser.add_argument("--model", required=True, type=Path, help="results/models/{model}")
    parser.add_argument("--tokenizer", required=True, type=Path, help="results/tokenizers/{model}")
    parser.add_argument("--shards", required=True, type=Path, nargs="*", help="folders with validation.safetensors")
    parser.add_argument("--frozen", type=Path, help="the weights that adapters were trained on")
    parser.add_argument("--variants", required=True, nargs="+", choices=list(WEIGHTS))
    parser.add_argument("--default-variant", required=True, choices=list(WEIGHTS))
    try:
        print(compare(parser.parse_args()))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
