"""Stage `export`: the Hugging Face folder of a trained model, proven equal to the training model.

    python -m babelmill.export --settings results/settings/eng/export.json --model results/models/eng \\
        --tokenizer results/tokenizers/eng --shards results/shards/eng/eng \\
        --checkpoints results/checkpoints/eng --out results/exports/eng

The folder holds the weights (`model.safetensors` is the default variant, `model.ema.safetensors` or
`model.main.safetensors` the other one), the tokenizer, the configuration, and the code: the training model's own files
and the transformers classes around them. Before it is put into its place, a fresh process loads it as users do and
compares its logits with the training model's (`prove.py`); a difference is an error, and nothing is left.

With `include_raw`, `training_checkpoint/` holds the run's final checkpoint, which is a safetensors file too.
"""

import argparse
import logging
import subprocess
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from babelmill import config, manifest, stage
from babelmill.files import UserError, atomic_folder, atomic_write, copy_file, read_json, sha256, write_json
from babelmill.hub import __file__ as hub_package
from babelmill.model import __file__ as model_package
from babelmill.tokenizer_file import BOS, EOS, MASK, PAD, UNK, load_tokenizer

log = logging.getLogger(__name__)

CODE = [
    *(Path(model_package).parent / name for name in ("attention.py", "dropout.py", "gpt_bert.py", "mixing.py")),
    *(Path(hub_package).parent / name for name in ("configuration_gpt_bert.py", "modeling_gpt_bert.py")),
]
WEIGHTS = {"main": "model.safetensors", "ema": "ema.safetensors"}  # as the train stage names them
CLASSES = {
    "AutoModel": "GPTBertModel",
    "AutoModelForMaskedLM": "GPTBertForMaskedLM",
    "AutoModelForCausalLM": "GPTBertForCausalLM",
    "AutoModelForSequenceClassification": "GPTBertForSequenceClassification",
    "AutoModelForTokenClassification": "GPTBertForTokenClassification",
}
SPECIAL = {
    "bos_token": BOS,
    "eos_token": EOS,
    "unk_token": UNK,
    "pad_token": PAD,
    "mask_token": MASK,
    "cls_token": BOS,  # what scorers of masked models ask for
}
RAW_FOLDER = "training_checkpoint"
RAW = """\
# The final training checkpoint

`{run}/{step}.safetensors` is the state of the training run after its last step, without anything that could run code:

* `model.*`: the last weights; `average.*`: their moving average (names as in the training code);
* `optimizer.I.J.KEY`: what optimizer I keeps of its parameter J. Its parameters are numbered along its groups, which
  are in the metadata, with the names of the parameters and everything else that is no tensor:

```python
import json
from safetensors import safe_open

with safe_open("{run}/{step}.safetensors", "pt") as file:
    tensors = {{name: file.get_tensor(name) for name in file.keys()}}
    optimizers = json.loads(file.metadata()["state"])["optimizers"]  # each a list of groups
names = [name for group in optimizers[0] for name in group["param_names"]]  # names[J]
```

`identity.json` says which settings, code and data the run had, `metrics.jsonl` how it went. With the same of all three,
Babelmill takes it up: copy `{run}` into `results/checkpoints/{model}/` and run the workflow, which then does not train.
"""


def write_code(folder: Path) -> list[str]:
    """Ship the code as flat files, in which imports from the package become imports from beside; their names."""
    for path in CODE:
        with atomic_write(folder / path.name, "w") as file:
            file.write(path.read_text(encoding="utf-8").replace("from ..model.", "from ."))
    return [path.name for path in CODE]


def write_weights(source: Path, target: Path) -> None:
    """Weights under the names that the transformers classes give them: `model.` before all but the head."""
    weights = load_file(source)
    named = {name if name.startswith("classifier.") else f"model.{name}": value for name, value in weights.items()}
    with atomic_write(target) as file:
        file.write(save(named, metadata={"format": "pt"}))


def model_config(shape: dict) -> dict:
    """config.json, from the training model's."""
    return shape | {
        "architectures": ["GPTBertForMaskedLM"],
        "model_type": "babelmill_gpt_bert",
        "auto_map": {"AutoConfig": "configuration_gpt_bert.GPTBertConfig"}
        | {auto: f"modeling_gpt_bert.{name}" for auto, name in CLASSES.items()},
        "attention_mode": None,
        "logits_alignment": "mlm",
        "classifier_dropout": shape["hidden_dropout_prob"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def special_tokens(tokenizer: Path) -> dict[str, str]:
    """The special tokens that a tokenizer has: transformers would add the others, beyond the embedding."""
    vocabulary = load_tokenizer(tokenizer / "tokenizer.json").get_vocab(with_added_tokens=True)
    return {name: token for name, token in SPECIAL.items() if token in vocabulary}


def tokenizer_config(tokens: dict[str, str], positions: int) -> dict:
    """tokenizer_config.json. `PreTrainedTokenizerFast` is the one class name that transformers 4 and 5 both know."""
    return tokens | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": positions,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }


def copy_checkpoint(folder: Path, args: argparse.Namespace, name: str) -> list[str]:
    """Copy the final checkpoint of the run that the model is of, and how to use it; names below `folder`."""
    figures = manifest.read(args.model)["figures"]
    run, step = figures["fingerprint"], f"step-{figures['steps']:08d}"
    source = args.checkpoints / run
    data, seal = source / f"{step}.safetensors", source / f"{step}.json"
    remedy = "set export.include_raw to false, or train again: snakemake --forcerun train"
    if not (data.is_file() and seal.is_file()):
        raise UserError(f"{data}: the final checkpoint is not there any more; {remedy}")
    if sha256(data) != read_json(seal)["sha256"]:
        raise UserError(f"{data}: damaged, its sha256 is not the one in {seal}; {remedy}")
    with safe_open(data, "pt") as file:
        for prefix, weights in (("model", "main"), ("average", "ema")):
            for key, tensor in load_file(args.model / WEIGHTS[weights]).items():
                if not torch.equal(file.get_tensor(f"{prefix}.{key}"), tensor):
                    raise UserError(f"{data}: {key} is not that of {args.model}; {remedy}")
    files = [f"{step}.safetensors", f"{step}.json", "identity.json", "metrics.jsonl"]
    for file in files:
        copy_file(source / file, folder / RAW_FOLDER / run / file)
    with atomic_write(folder / RAW_FOLDER / "README.md", "w") as file:
        file.write(RAW.format(run=run, step=step, model=name))
    return [f"{RAW_FOLDER}/README.md", *(f"{RAW_FOLDER}/{run}/{file}" for file in files)]


def build(folder: Path, args: argparse.Namespace, export) -> list[str]:
    """Write all files but the manifest; their names."""
    shape = read_json(args.model / "config.json")
    files = write_code(folder)
    for variant in export.variants:
        name = "model.safetensors" if variant == export.default_variant else f"model.{variant}.safetensors"
        write_weights(args.model / WEIGHTS[variant], folder / name)
        files.append(name)
    copy_file(args.tokenizer / "tokenizer.json", folder / "tokenizer.json")
    tokens = special_tokens(args.tokenizer)
    written = {
        "config.json": model_config(shape),
        "tokenizer_config.json": tokenizer_config(tokens, shape["max_position_embeddings"]),
        "special_tokens_map.json": tokens,
        "generation_config.json": {key: shape[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }
    for name, values in written.items():
        write_json(folder / name, values)
    return [*files, "tokenizer.json", *written]


def prove(folder: Path, args: argparse.Namespace, export) -> None:
    """Let a fresh process load the folder and compare it with the training model; a UserError with its last line."""
    command = [sys.executable, "-m", "babelmill.prove", "--folder", folder, "--model", args.model]
    command += ["--variants", *export.variants, "--default-variant", export.default_variant]
    command += ["--shards", *args.shards]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
        log.error("%s", "\n".join(lines[-30:]))
        raise UserError(f"{args.out}: the exported folder is not the trained model, so it is not kept: {lines[-1]}")
    log.info("%s", done.stdout.strip())


def run(args: argparse.Namespace) -> None:
    """Build, prove, and put the folder into its place."""
    settings = config.read_settings(args.settings, "export")
    manifest.verify(args.model)
    manifest.verify(args.tokenizer, "tokenizer.json")
    manifest.verify_upstream(args.model, args.tokenizer, *args.shards)
    for shards in args.shards:
        manifest.verify(shards, "validation.safetensors")
    with atomic_folder(args.out) as folder:
        files = build(folder, args, settings.export)
        if settings.export.include_raw:
            files += copy_checkpoint(folder, args, settings.name)
        prove(folder, args, settings.export)
        manifest.write(folder, settings, files, [args.model, args.tokenizer])


def main() -> int:
    """The command."""
    parser = stage.arguments(__doc__)
    parser.add_argument("--model", required=True, type=stage.folder, help="results/models/{model}")
    parser.add_argument("--tokenizer", required=True, type=stage.folder, help="results/tokenizers/{model}")
    parser.add_argument("--shards", required=True, type=stage.folder, nargs="+", help="text for the comparison")
    parser.add_argument("--checkpoints", required=True, type=Path, help="the model's folder of runs, for include_raw")
    parser.add_argument("--out", required=True, type=Path, help="results/exports/{model}")
    return stage.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
