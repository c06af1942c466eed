"""Is an exported folder the model that was trained? It is loaded as its users load it and must compute the same.

    python -m babelmill.prove --folder results/exports/eng --model results/models/eng --shards results/shards/eng/eng \\
        --variants main ema --default-variant ema

For every variant and both attention modes, transformers must find every weight and no other, and the logits of real
validation documents must equal the training model's bit for bit. `export` runs this in a process of its own, since a
process that has loaded one folder's code may be given it again for another folder.
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

from babelmill.files import UserError, read_json  # noqa: E402
from babelmill.model.gpt_bert import GPTBert, GPTBertConfig  # noqa: E402
from babelmill.shard_file import ShardFile  # noqa: E402

DOCUMENTS = 8  # of each language
FILES = {"main": "model.safetensors", "ema": "ema.safetensors"}


def documents(shards: list[Path], length: int) -> list[torch.Tensor]:
    """The first validation documents of each language, `<s>` included, at most `length` tokens each: [1, T] int64."""
    rows = []
    for folder in shards:
        shard = ShardFile.open(folder / "validation.safetensors")
        for start, end in zip(shard.offsets[:DOCUMENTS], shard.offsets[1 : DOCUMENTS + 1], strict=False):
            rows.append(torch.tensor(shard.tokens[start : min(end, start + length)].astype("int64"))[None])
    return rows


def training_model(folder: Path, variant: str) -> GPTBert:
    """The model of the training engine, with trained weights."""
    shape = read_json(folder / "config.json")
    config = GPTBertConfig(**{name: shape[name] for name in GPTBertConfig.__dataclass_fields__})
    model = GPTBert(config).eval()
    model.load_state_dict(load_file(folder / FILES[variant]))
    return model


def load(cls, folder: Path, variant: str | None, **settings):
    """A model as users load it; a UserError unless every weight was found and no other."""
    model, report = cls.from_pretrained(
        folder, variant=variant, trust_remote_code=True, dtype=torch.float32, output_loading_info=True, **settings
    )
    wrong = {key: sorted(map(str, names)) for key, names in report.items() if names}
    if wrong:
        raise UserError(f"{folder}, variant {variant or 'default'}: weights do not fit the classes: {wrong}")
    return model.eval()


def check_tokenizer(folder: Path, rows: list[torch.Tensor], vocab_size: int) -> None:
    """The tokenizer as users load it has no entry beyond the embedding, and gives back the tokens of its own text."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    if len(tokenizer) > vocab_size:
        raise UserError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the model {vocab_size}")
    for row in rows:
        ids = row[0, 1:-1].tolist()
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        again = tokenizer(text, split_special_tokens=True)["input_ids"][1:]
        if tokenizer.decode(again, clean_up_tokenization_spaces=False) != text:
            raise UserError(f"{folder}: the tokenizer does not give a text back: {text[:60]!r}")


@torch.inference_mode()
def compare(args: argparse.Namespace) -> int:
    """Number of comparisons; a UserError at the first difference."""
    shape = read_json(args.model / "config.json")
    rows, done = documents(args.shards, shape["max_position_embeddings"]), 0
    check_tokenizer(args.folder, rows, shape["vocab_size"])
    for variant in args.variants:
        trained = training_model(args.model, variant)
        named = None if variant == args.default_variant else variant
        exported = {
            "causal": load(AutoModelForCausalLM, args.folder, named),
            "bidirectional": load(AutoModelForMaskedLM, args.folder, named, logits_alignment="mntp"),
        }
        aligned = load(AutoModelForMaskedLM, args.folder, named)
        for row in rows:
            for mode, model in exported.items():
                allowed = torch.ones(1, 1, row.size(1), row.size(1), dtype=torch.bool)
                wanted = trained(row, allowed.tril() if mode == "causal" else allowed)
                found = model(row, attention_mask=torch.ones_like(row)).logits
                difference = (found - wanted).abs().max().item()
                if not torch.equal(found, wanted):
                    raise UserError(f"variant {variant}, {mode}: logits differ by up to {difference:g}")
                done += 1
            if not torch.equal(aligned(row).logits[:, 1:], wanted[:, :-1]):
                raise UserError(f"variant {variant}: logits_alignment 'mlm' is not 'mntp' moved by one")
    return done


def main() -> int:
    """The command; its last line says what was compared, or what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, type=Path, help="the exported folder")
    parser.add_argument("--model", required=True, type=Path, help="results/models/{model}")
    parser.add_argument("--shards", required=True, type=Path, nargs="+", help="folders with validation.safetensors")
    parser.add_argument("--variants", required=True, nargs="+", choices=list(FILES))
    parser.add_argument("--default-variant", required=True, choices=list(FILES))
    try:
        print(f"{compare(parser.parse_args())} comparisons with the training model: difference 0")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
