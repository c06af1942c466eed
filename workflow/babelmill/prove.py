"""Is an exported folder the model that was trained? It is loaded as its users load it and must compute the same.

    python -m babelmill.prove --folder results/exports/eng --model results/models/eng --shards results/shards/eng/eng \\
        --variants main ema --default-variant ema

For every variant and both attention modes, transformers must find every weight and no other, and the logits of real
validation documents (of random tokens where `--shards` names none) must equal the training model's bit for bit. This
runs in a process of its own, since a process that has loaded one folder's code may be given it again for another one.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

# Nothing is fetched, and the copy that transformers makes of the folder's code goes with this process.
os.environ["HF_HUB_OFFLINE"] = "1"
_MODULES = tempfile.TemporaryDirectory(prefix="babelmill-modules-")
os.environ["HF_MODULES_CACHE"] = _MODULES.name

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer  # noqa: E402

from babelmill.export import WEIGHTS  # noqa: E402
from babelmill.exported import load  # noqa: E402
from babelmill.files import UserError, read_json  # noqa: E402
from babelmill.model.gpt_bert import GPTBert, GPTBertConfig  # noqa: E402
from babelmill.shard_file import ShardFile  # noqa: E402

DOCUMENTS = 8  # of each language


def documents(shards: list[Path], length: int) -> list[torch.Tensor]:
    """The first validation documents of each language, `<s>` included, at most `length` tokens each: [1, T] int64."""
    rows = []
    for folder in shards:
        shard = ShardFile.open(folder / "validation.safetensors")
        for start, end in zip(shard.offsets[:DOCUMENTS], shard.offsets[1 : DOCUMENTS + 1], strict=False):
            rows.append(torch.tensor(shard.tokens[start : min(end, start + length)].astype("int64"))[None])
    return rows


def random_rows(vocab_size: int, length: int) -> list[torch.Tensor]:
    """Rows of random tokens, of lengths from 1 to `length`: [1, T] int64, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(1, length, DOCUMENTS).int().tolist()
    return [torch.randint(vocab_size, (1, size), generator=generator) for size in lengths]


def training_model(folder: Path, variant: str) -> GPTBert:
    """The model of the training engine, with trained weights."""
    shape = read_json(folder / "config.json")
    config = GPTBertConfig(**{name: shape[name] for name in GPTBertConfig.__dataclass_fields__})
    model = GPTBert(config).eval()
    model.load_state_dict(load_file(folder / WEIGHTS[variant]))
    return model


def check_tokenizer(folder: Path, texts: list[torch.Tensor], vocab_size: int) -> None:
    """The tokenizer as users load it has no entry beyond the embedding, and gives back the tokens of its own texts."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    if len(tokenizer) > vocab_size:
        raise UserError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the model {vocab_size}")
    for row in texts:
        ids = row[0, 1:-1].tolist()
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        again = tokenizer(text, split_special_tokens=True)["input_ids"][1:]
        if tokenizer.decode(again, clean_up_tokenization_spaces=False) != text:
            raise UserError(f"{folder}: the tokenizer does not give a text back: {text[:60]!r}")


@torch.inference_mode()
def compare(args: argparse.Namespace) -> int:
    """Number of comparisons; a UserError at the first difference."""
    shape = read_json(args.model / "config.json")
    length, vocab_size, done = shape["max_position_embeddings"], shape["vocab_size"], 0
    texts = documents(args.shards, length)
    check_tokenizer(args.folder, texts, vocab_size)
    as_trained, moved, here, there = "mntp", "mlm", slice(None, -1), slice(1, None)
    if shape.get("masked_target") == "same":
        as_trained, moved, here, there = moved, as_trained, there, here
    for variant in args.variants:
        trained = training_model(args.model, variant)
        named = None if variant == args.default_variant else variant
        exported = {
            "causal": load(AutoModelForCausalLM, args.folder, named),
            "bidirectional": load(AutoModelForMaskedLM, args.folder, named, logits_alignment=as_trained),
        }
        other = load(AutoModelForMaskedLM, args.folder, named, logits_alignment=moved)
        for row in texts or random_rows(vocab_size, length):
            for mode, model in exported.items():
                allowed = torch.ones(1, 1, row.size(1), row.size(1), dtype=torch.bool)
                wanted = trained(row, allowed.tril() if mode == "causal" else allowed)
                found = model(row, attention_mask=torch.ones_like(row)).logits
                difference = (found - wanted).abs().max().item()
                if not torch.equal(found, wanted):
                    raise UserError(f"variant {variant}, {mode}: logits differ by up to {difference:g}")
                done += 1
            if not torch.equal(other(row).logits[:, there], wanted[:, here]):
                raise UserError(f"variant {variant}: logits_alignment 'mlm' is not 'mntp' moved by one")
    return done


def main() -> int:
    """The command; its last line says what was compared, or what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, type=Path, help="the exported folder")
    parser.add_argument("--model", required=True, type=Path, help="results/models/{model}")
    parser.add_argument("--shards", required=True, type=Path, nargs="*", help="folders with validation.safetensors")
    parser.add_argument("--variants", required=True, nargs="+", choices=list(WEIGHTS))
    parser.add_argument("--default-variant", required=True, choices=list(WEIGHTS))
    try:
        print(f"{compare(parser.parse_args())} comparisons with the training model: difference 0")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
