"""Fill the test Hub with small repositories of GPT-BERT models like those that older scripts pushed."""

import io
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save

from helpers.hub.hub_server import HubServer
from helpers.models.published import model, write_tokenizer

CARD = """\
---
pipeline_tag: {task}
tags:
- gpt-bert
- babylm
- remote-code
license: {license}
{more}---

## Quick usage

```python
## AutoModel.from_pretrained(...)
```

## Citation

```bibtex
## @misc{{adas}}
```
"""
WRAPPERS = ("GPTBertForMaskedLM", "GPTBertForCausalLM", "GPTBertForSequenceClassification")
NEVER = b"raise SystemExit('code of a repository was run')\n"


def shape(longest: int = 512) -> dict:
    """Return the training configuration, for rows of so many tokens."""
    return model()[0] | {"max_position_embeddings": longest}


def config(longest: int = 512) -> dict:
    """Return config.json: the training configuration, and what the wrappers need."""
    auto = {f"AutoModel{name.removeprefix('GPTBert')}": f"modeling_gpt_bert.{name}" for name in WRAPPERS}
    auto |= {"AutoConfig": "configuration_gpt_bert.GPTBertConfig", "AutoModel": f"modeling_gpt_bert.{WRAPPERS[0]}"}
    heads = {"classifier_dropout": 0.1, "classifier_layer_norm_eps": 1e-5, "num_labels": 2}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "mask_token_id": 4}
    return shape(longest) | {"architectures": [*WRAPPERS], "auto_map": auto, "model_type": "gpt_bert"} | heads | ids


def weights(prefix: str, factor: float = 1.0) -> dict[str, torch.Tensor]:
    """Return the golden weights times a factor, with buffers and the embedding twice, under names that begin with a prefix."""
    named = model()[1]
    return {name.replace("module.", prefix, 1): (value * factor).to(value.dtype) for name, value in named.items()}


def pickled(value) -> bytes:
    """Return the bytes of `torch.save`."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def tokenizer(size: int = 96) -> bytes:
    """Return tokenizer.json, with so many entries."""
    with tempfile.TemporaryDirectory() as folder:
        return write_tokenizer(Path(folder, "tokenizer.json"), size=size).read_bytes()


def files(task: str = "fill-mask", license: str = "other", more: str = "", longest: int = 128) -> dict[str, bytes]:
    """Return the files that all repositories have. A proof takes 5 s if rows have the published 512 tokens, else 1."""
    return {
        ".gitattributes": b"",
        "README.md": CARD.format(task=task, license=license, more=more).encode(),
        "config.json": json.dumps(config(longest)).encode(),
        "original_project_config.json": json.dumps(shape(longest)).encode(),
        "configuration_gpt_bert.py": NEVER,
        "modeling_gpt_bert.py": NEVER,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
    }


def fill(hub: HubServer) -> None:
    """Give the organisation `lab` old repositories, of which two can be converted as they are.

    The averaged weights are the golden ones, the last ones twice them.
    """
    average, last = save(weights("model.")), save(weights("model.", 2))
    both = {"model.safetensors": average, "model_ema.safetensors": average, "model_main.safetensors": last}
    one = {"model.safetensors": average, "pytorch_model.bin": pickled(weights("model."))}
    declared = files("text-generation", "cc-by-4.0", "language:\n- en\nauthors: Ada\n")
    without = {name: data for name, data in files().items() if name != "tokenizer.json"}
    hub.commit("models/lab/old-eng", declared | both | {"notes.txt": b"by Bo"})
    hub.commit("models/lab/old-deu", without | {"pytorch_model.bin": one["pytorch_model.bin"]}, private=True)
    hub.commit("models/lab/old-fra", files() | {"model.safetensors": average[:-1000]})
    hub.commit("models/lab/old-nld", files(longest=512) | one)  # as published
    hub.commit("models/lab/old-zho", files() | one | {"tokenizer.json": tokenizer(97)})
    hub.commit("models/lab/old-bert", {"config.json": b'{"model_type": "bert"}'})
    hub.commit("models/lab/old-card", files() | one | {"README.md": b"---\na: [\n---\n"})
    hub.commit("models/lab/old-code", files() | {"pytorch_model.bin": pickled({"x": Path("x")})})
    hub.commit("models/lab/old-empty", files())
    hub.commit("models/lab/old-none", {"README.md": b""} | one)
