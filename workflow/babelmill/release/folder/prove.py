"""Prove that an exported folder computes the same as the trained model, when it is loaded as users load it.

The proof checks every variant, and every case that the architecture names (`hub_folder.py`). transformers must find
every weight and no other. The logits of real validation documents (of random tokens if there are none) must agree with
those of the training model. In float64 they may differ by 1e-9, and a wrong weight, mask or alignment would give a
larger difference; the two longest documents show that. In float32, in which users compute, the logits of all
documents may differ by a few times the training model's own rounding error on these two. Equal bits would be too
strict: the two models run different code, and the last bit of a sum depends on the processor.

Only one model at a time is in memory, in float32, except for the parts that compute in float64 at the moment, so a
machine that can load a model of 8 billion parameters can prove it. The proof runs in a separate process, since a
process that has loaded one folder's code might use the same code for the next folder. The snapshots of a run have the
same code, so one process proves them all.
"""

import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from pydantic import TypeAdapter
from torch import nn
from transformers.utils.logging import disable_progress_bar

from babelmill.core.files import UserError, read_json
from babelmill.release.folder.hub_folder import DIFFERS, Architecture, Case, ExportInputs, architecture_of
from babelmill.release.folder.loading import load, tokenizer_of
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from babelmill.tokens.vocabulary import Vocabulary, published_roles
from babelmill.training.networks.transformers_models import blocks_of

DOCUMENTS, DOUBLE = 8, 2  # documents that are compared in float32, and how many of them, the longest, in float64, too
LONGEST = 1024  # tokens per document
EXACT = 1e-9  # largest difference of two logits in float64
ROUNDING = 8  # largest difference of two logits in float32, as a multiple of the training model's own rounding error


class Logits(NamedTuple):
    """Holds the logits of rows, each [1, T, V], in float32, and of the first `DOUBLE` of them also in float64."""

    single: list[torch.Tensor]
    double: list[torch.Tensor]


def documents(shards: list[Path], length: int, vocabulary: Vocabulary) -> list[torch.Tensor]:
    """Return the first validation documents of the languages in turn, the longest first, at most `DOCUMENTS` of them.

    A document is [1, T] int64 with `<s>`, cut to `length`.
    """
    found = list[list[torch.Tensor]]()
    for folder in shards:
        shard = ShardFile.open(folder / "validation.safetensors")
        bounds = itertools.islice(itertools.pairwise(shard.offsets), DOCUMENTS)
        rows = (shard.tokens[start : min(end, start + length)].astype("int64") for start, end in bounds)
        found.append([torch.tensor(vocabulary.given(row))[None] for row in rows])
    in_turn = (row for rows in itertools.zip_longest(*found) for row in rows if row is not None)
    return sorted(itertools.islice(in_turn, DOCUMENTS), key=torch.numel, reverse=True)


def random_rows(vocab_size: int, length: int) -> list[torch.Tensor]:
    """Return rows of random tokens, of lengths from `length` to 1: [1, T] int64, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(length, 1, DOCUMENTS).int().tolist()
    return [torch.randint(vocab_size, (1, size), generator=generator) for size in lengths]


def check_tokenizer(folder: Path, own: Path, texts: list[torch.Tensor], vocab_size: int, published: bool) -> None:
    """Check the tokenizer as users load it: it has no entry beyond the embedding and encodes texts as in training.

    It must put one `<s>` in front of a text, unless it is the unchanged tokenizer of a `published` model. A UserError
    says which of these does not hold. `own`: the tokenizer.json that the model was trained with. `texts`: documents,
    token ids, each [1, T] int64.
    """
    tokenizer = tokenizer_of(folder)
    if len(tokenizer) > vocab_size:
        raise UserError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the model only {vocab_size}")
    trained_with = load_tokenizer(own)
    for row in texts:
        text = tokenizer.decode(row[0, 1:-1].tolist(), clean_up_tokenization_spaces=False)
        wanted = trained_with.encode(text, add_special_tokens=not published).ids
        found = tokenizer(text, split_special_tokens=True, add_special_tokens=not published)["input_ids"]
        if found != wanted or not (published or found[:1] == row[0, :1].tolist()):
            raise UserError(f"{folder}: the tokenizer as users load it encodes a text differently: {text[:60]!r}")


def widen(model: nn.Module) -> None:
    """Let a model compute in float64 from now on, each layer only while it computes.

    This takes little more memory than the weights in float32, and it is exact: a float32 keeps its value in float64.
    """

    def before(layer: nn.Module, _: object) -> None:
        layer.double()

    def after(layer: nn.Module, *_: object) -> None:
        layer.float()

    layers = blocks_of(model)
    inside = {module for layer in layers for module in layer.modules()}
    for module in model.modules():
        if module not in inside:
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.data = tensor.data.double() if tensor.is_floating_point() else tensor.data
        if type(module).__name__ == "CanineSelfAttention":
            module.register_forward_pre_hook(mask_in_float64)
    for layer in layers:
        layer.register_forward_pre_hook(before)
        layer.register_forward_hook(after)


def mask_in_float64(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Mask CANINE's local attention in float64.

    Its own class makes the mask in float32, where the smallest number of float64 would become infinite.
    """
    rows, columns, mask, *more = given
    if mask is not None and mask.ndim == 3:
        mask = ((1.0 - mask.double()) * torch.finfo(torch.float64).min)[:, None]
    return (rows, columns, mask, *more)


@torch.no_grad()
def logits_of(
    model: nn.Module, rows: list[torch.Tensor], score: Callable[[nn.Module, torch.Tensor, str], torch.Tensor], mode: str
) -> Logits:
    """Return the logits of rows, each [1, T] int64. Do not use the model again.

    `score` takes the model, a row and the mode, and returns logits [1, T, V].
    """
    single = [score(model, row, mode) for row in rows]
    widen(model)
    return Logits(single, [score(model, row, mode) for row in rows[:DOUBLE]])


def differences(wanted: Logits, found: Logits, case: Case) -> dict[str, float]:
    """Compare the logits of the training model with those of the exported model.

    Return the largest difference in `float64` and in `float32`, and the training model's own `rounding` error.
    """

    def largest(one: list[torch.Tensor], other: list[torch.Tensor], place: slice) -> float:
        """Return the largest difference of the training model's logits from others, which stand at `place`."""
        each = [(a[:, case.trained].double() - b[:, place]).abs() for a, b in zip(one, other, strict=True)]
        return max((gaps.max().nan_to_num(math.inf).item() for gaps in each if gaps.numel()), default=0.0)

    return {
        "float64": largest(wanted.double, found.double, case.exported),
        "float32": largest(wanted.single, found.single, case.exported),
        "rounding": largest(wanted.single[: len(wanted.double)], wanted.double, case.trained),
    }


def compare_variant(
    architecture: Architecture,
    inputs: ExportInputs,
    exported: tuple[Path, str | None],
    variant: str,
    rows: list[torch.Tensor],
) -> Iterator[tuple[Case, dict[str, float]]]:
    """Yield each case with the differences between the logits. Only one model at a time is in memory.

    `inputs`: the folders that the export was made from. `exported`: the folder, and the variant as `from_pretrained`
    takes it. `rows`: documents, token ids, each [1, T] int64.
    """
    cases = architecture.cases(inputs.model)
    wanted: dict[str, Logits] = {}
    for mode in {case.mode for case in cases}:
        trained = architecture.trained(inputs, variant)
        wanted[mode] = logits_of(trained, rows, architecture.logits, mode)
        del trained
    for case in cases:
        model = load(getattr(transformers, case.auto_class), *exported, **case.settings)
        found = logits_of(model, rows, architecture.exported_logits, case.mode)
        del model
        yield case, differences(wanted[case.mode], found, case)


def check_differences(what: str, differences: dict[str, float]) -> None:
    """Raise a UserError if the differences are larger than rounding explains. `what` names the comparison."""
    if differences["float64"] > EXACT:
        raise UserError(f"{what}: logits differ by up to {differences['float64']:g} in float64")
    if differences["float32"] > ROUNDING * differences["rounding"]:
        raise UserError(
            f"{what}: logits differ by up to {differences['float32']:g} in float32, more than {ROUNDING} times the"
            f" training model's rounding error of {differences['rounding']:g}"
        )


def compare(asked: dict[str, Any]) -> str:
    """Compare every variant of the folder and of its snapshots in every case; return the result in a line.

    How far it is, is printed. `asked`: what `hub_folder.prove` asks. A UserError names the first difference.
    """
    folder, inputs = Path(asked["folder"]), TypeAdapter(ExportInputs).validate_python(asked)
    shape, path = read_json(inputs.model / "config.json"), inputs.tokenizer / "tokenizer.json"
    length, vocab_size = min(shape["max_position_embeddings"], LONGEST), shape["vocab_size"]
    rows = documents(inputs.shards, length, Vocabulary.read(path, vocab_size))
    check_tokenizer(folder, path, rows, vocab_size, published_roles(inputs.tokenizer) is not None)
    rows = rows or random_rows(vocab_size, length)
    parts = [(folder, inputs, variant) for variant in asked["variants"]]
    for place, weights in asked["snapshots"]:
        parts.append((Path(place), dataclasses.replace(inputs, snapshot=Path(weights)), "ema"))
    architecture = architecture_of(inputs.model)
    total = len(rows) * len(architecture.cases(inputs.model)) * len(parts)
    done, largest = 0, {"float64": 0.0, "float32": 0.0}
    for place, trained, variant in parts:
        exported = place, None if trained.snapshot or variant == asked["default_variant"] else variant
        for case, found in compare_variant(architecture, trained, exported, variant, rows):
            check_differences(f"{place.name + ': ' if trained.snapshot else ''}variant {variant}, {case}", found)
            largest = {key: max(value, found[key]) for key, value in largest.items()}
            done += len(rows)
            print(f"{done} of {total} comparisons with the trained model", flush=True)
    return (
        f"{total} comparisons with the training model: difference at most {largest['float64']:.1e} in float64,"
        f" {largest['float32']:.1e} in float32"
    )


def main() -> int:
    """Run the command, whose argument is JSON. Its last line says what was compared, or what differs."""
    disable_progress_bar()
    try:
        print(compare(json.loads(sys.argv[1])))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return DIFFERS
    return 0


if __name__ == "__main__":
    sys.exit(main())
