"""Make models like those of the published GPT-BERT implementation and of HPLT: weights, shape and tokenizer."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from babelmill.tokens.vocabulary import SPECIAL_TOKENS
from helpers import DATA

GOLDEN = DATA / "gpt_bert_tiny.safetensors"
GOLDEN_NORBERT4 = DATA / "norbert4_tiny.safetensors"
# Code without Babelmill, whose first argument is GOLDEN: how far the logits of a model are from the published ones.
LOGITS = """
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

golden = load_file(sys.argv[1])
segments, causal = golden["segments"], golden["causal"]
same = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, :, None]
position = torch.arange(segments.shape[1])
allowed = (same & ((position[:, None] >= position) | ~causal[:, None, None]))[:, None]
given = {"trust_remote_code": True, "dtype": torch.float64, "logits_alignment": "mntp"}

def difference(folder, variant=None):
    model = AutoModelForMaskedLM.from_pretrained(folder, variant=variant, **given).eval()
    logits = model(golden["input_ids"], attention_mask=allowed).logits.transpose(0, 1)
    return (logits[golden["labels"].T != -100] - golden["logits_time_major"]).abs().max().item()
"""


def model() -> tuple[dict, dict[str, torch.Tensor]]:
    """Return configuration and state_dict, with the prefix of data-parallel training and with unneeded buffers."""
    with safe_open(GOLDEN, "pt") as file:
        config = json.loads(file.metadata()["config"])
        names = [name for name in file.keys() if name.startswith("weight.")]
        weights = {name.replace("weight.", "module.", 1): file.get_tensor(name) for name in names}
    for layer in range(config["num_hidden_layers"]):
        weights[f"module.transformer.attention_layers.{layer}.position_indices"] = torch.zeros(512, 512).long()
    weights["module.classifier.nonlinearity.5.weight"] = weights["module.embedding.word_embedding.weight"]
    return config, weights


def write_tokenizer(path: Path, prefix_space: bool = True, normalizer=None, size: int = 96) -> Path:
    """Write a tokenizer of single bytes, whose special tokens are not declared, like that of the published scripts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda character: (character != "Ġ", character))
    entries = [*SPECIAL_TOKENS, *alphabet][:size]
    tokenizer = Tokenizer(models.BPE({entry: i for i, entry in enumerate(entries)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.save(str(path))
    return path


def norbert4() -> tuple[dict, dict[str, torch.Tensor]]:
    """Return the sizes of the NorBERT4 whose numbers are stored, and these numbers.

    They are what the published definition gives in float64, without dropout. Of the gradients of matrices,
    `gradient_sums.` holds the products with the cosines of 1, 2, ...
    """
    with safe_open(GOLDEN_NORBERT4, "pt") as file:
        values = json.loads(file.metadata()["config"])
        return {key: value for key, value in values.items() if key != "is_decoder"}, {
            name: file.get_tensor(name) for name in file.keys()
        }


def write_norbert4(folder: Path, tokens: bool = True) -> dict[str, torch.Tensor]:
    """Write this model as HPLT's repositories hold it, in fp32. Return its weights. `tokens`: also a tokenizer."""
    sizes, numbers = norbert4()
    folder.mkdir(exist_ok=True)
    names = ("MaskedLM", "CausalLM")
    auto = {f"AutoModelFor{name}": f"modeling_gptbert.GptBertFor{name}" for name in names}
    auto |= {"AutoConfig": "configuration_gptbert.GptBertConfig"}
    dropout = {"embedding_dropout": 0.1, "hidden_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.2}
    about = {"architectures": ["GptBertForMaskedLM"], "auto_map": auto, "model": "norbert4", **dropout}
    (folder / "config.json").write_text(json.dumps(sizes | about))
    (folder / "modeling_gptbert.py").write_text("raise SystemExit('run')")
    weights = {n.removeprefix("weight."): t.float() for n, t in numbers.items() if n.startswith("weight.")}
    weights["classifier.emb2vocab.weight"] = weights["embedding.word_embedding.weight"].clone()
    torch.save(weights, folder / "pytorch_model.bin")
    if tokens:
        write_tokenizer(folder / "tokenizer.json", prefix_space=False, size=sizes["vocab_size"])
    return weights
