"""Write what a model card says about use: code for each task, and commands of evaluation pipelines of others."""

import re
from typing import Any

from babelmill.core.escape import code, python

# Each snippet works without changes; `{path}` is the folder.
MASKED = """\
```python
# Predict a hidden word.
from transformers import pipeline

fill = pipeline("fill-mask", model="{path}", trust_remote_code=True)
print(fill({hidden}))
```"""
CAUSAL = """\
```python
# {continue}
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{path}", trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained("{path}", trust_remote_code=True)
inputs = tokenizer("{beginning}", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=30)[0], skip_special_tokens=True))
```"""
UNMASKING = """\
```python
# {generate} by filling masks, the most probable tokens first (LLaDA's sampler, whose code explains the arguments).
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module

generate = get_class_from_dynamic_module("diffusion_generation.generate", "{path}")
tokenizer = AutoTokenizer.from_pretrained("{path}", trust_remote_code=True)
model = AutoModelForMaskedLM.from_pretrained("{path}", trust_remote_code=True)
prompt = tokenizer("{beginning}", return_tensors="pt").input_ids
tokens = generate(model, prompt, tokenizer.mask_token_id, gen_length={length}, steps={length}, temperature=0.5)
print(tokenizer.decode(tokens[0], skip_special_tokens=True))
```"""
SNIPPETS = {"fill-mask": MASKED, "text-generation": CAUSAL}  # the first task of a folder is its main one
TEXTS = {"continue": "Continue a text.", "generate": "Generate a text", "beginning": "The beginning of a text"}
PROMPTS = {
    "continue": "Answer a prompt, which ends like the prompts of the training data.",
    "generate": "Answer a prompt, which ends like the prompts of the training data,",
    "beginning": "A prompt",
}
CLASSIFICATION = """\
```python
# Train a classifier of texts, or of pairs of texts: tokenizer(first, second). Its head begins with random weights.
# The Trainer of transformers needs one more package: pip install accelerate
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("{path}", trust_remote_code=True)
model = AutoModelForSequenceClassification.from_pretrained("{path}", num_labels=2, trust_remote_code=True)
{padding}texts = [{{"label": 1, **tokenizer("A good text")}}, {{"label": 0, **tokenizer("A bad text")}}]
arguments = TrainingArguments("tuned", num_train_epochs=1, report_to="none")
Trainer(model, arguments, train_dataset=texts, processing_class=tokenizer).train()
inputs = tokenizer("A text", return_tensors="pt").to(model.device)
print(model(**inputs).logits)
```"""
# For models that pad with a token of the text, of which their configuration or tokenizer says nothing.
PADDING = """\
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model.config.pad_token_id = tokenizer.pad_token_id
"""
ADAPTERS = """\
```python
# The same, but train only adapters, not all weights (pip install peft accelerate). peft needs the names of the layers.
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("{path}", num_labels=2, trust_remote_code=True)
layers = ["in_proj_qk", "{value}", "out_proj"]
model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", target_modules=layers, modules_to_save=["score"]))
model.print_trainable_parameters()
```"""
ALL_LINEAR = """\
```python
# The same, but train only adapters, not all weights (pip install peft accelerate).
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("{path}", num_labels=2)
{padding}model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", target_modules="all-linear"))
model.print_trainable_parameters()
```"""
ADAPTER_FOLDER = """\
```python
# Load the adapters together with the model on which they were trained (pip install peft).
from peft import PeftModel
from transformers import {auto_class}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{path}")
base = {auto_class}.from_pretrained({base})
model = PeftModel.from_pretrained(base, "{path}", subfolder="adapter")
```"""
NOTES = """\
* {variants}
* {alignment}
* `attention_mode="causal"` or `"bidirectional"` overrides the attention of each class.
* The code is in this repository: read it, and pin a `revision=` before you trust it. Its sha256 digests are below."""
ALIGNMENT = {
    "mlm": "Scores of the masked model at a position are for the token at that position."
    ' `logits_alignment="mntp"` (an argument of `from_pretrained`) moves them by one position, for code that expects a'
    " masked *next*-token model.",
    "mntp": "Scores of the masked model at a position are for the *next* token (`logits_alignment` in `config.json`):"
    ' `pipeline("fill-mask")` gives wrong results with this folder. `logits_alignment="mlm"` (an argument of'
    " `from_pretrained`) moves the scores to the positions of their tokens.",
}
# The commands of evaluation pipelines of others. With the wrong backend, the numbers look plausible but are wrong.
BABYLM_MASKED = (
    "BabyLM 2025 and 2026, masked",
    "`bash scripts/eval_zero_shot.sh {path} {alignment}`, that is `--backend {alignment}`; the other masked backend"
    " reads every score at the wrong position, without an error",
)
BABYLM_CAUSAL = ("BabyLM 2025 and 2026, causal", "`bash scripts/eval_zero_shot.sh {path} causal`")
LM_EVAL = (
    "lm-evaluation-harness",
    "`lm_eval --model hf --model_args pretrained={path},trust_remote_code=True --tasks ...`; its English BLiMP puts a"
    " space before each sentence, so its scores differ a little from those above; versions before 0.4.9.2 leave out the"
    " `<s>` of tasks with a context; add `,add_bos_token=False` for tasks of perplexity (wikitext) and for no others:"
    " without it, their texts begin with two `<s>`, and with it, those of other tasks have none",
)
MINICONS = (
    "minicons{note}",
    '`scorer.{scorer}("{path}", "cpu", tokenizer=AutoTokenizer.from_pretrained("{path}", trust_remote_code=True),'
    " trust_remote_code=True)`, without `bos_token=True` anywhere: the tokenizer adds `<s>` itself",
)
SCORERS = {
    "causal": {"note": "", "scorer": "IncrementalLMScorer"},
    "masked": {"note": ", masked (transformers 4)", "scorer": "MaskedLMScorer"},
}
NO_CODE = """\
* {variants}
* Its class is part of transformers (`model_type` is {model_type}), {versions}; {code}."""
WITHOUT_CODE = "the folder has no code"
GENERATED = 64  # how many tokens an example generates at most
# Types that transformers 4.57 can also read (tested). Others are new in 5, or have other names of weights in 4.57.
ALSO_IN_4 = ("bert", "distilbert", "electra", "gpt2", "llama", "mistral", "modernbert", "opt", "qwen3", "roberta")
VARIANTS = {"main": "the last weights of training", "ema": "the moving average of the weights"}
# Text that is true only of our own tokenizers, which put `<s>` in front of every text.
OURS = re.compile(r"; versions before 0\.4\.9\.2 [^|]* have none|, without `bos_token=True` [^|]* itself")


def weights(variants: list[str], default: str) -> str:
    """Return a sentence that says which weights load by default, and how to load the others."""
    others = [f'`variant="{name}"` loads {VARIANTS[name]}' for name in variants if name != default]
    return "; ".join([f"`model.safetensors` has {VARIANTS[default]}", *others]) + "."


def without_code(text: str) -> str:
    """Return text without `trust_remote_code=True`, for a folder that needs no code of its own."""
    return re.sub(r", ?trust_remote_code=True", "", text)


def use(
    path: str,
    tasks: list[str],
    gated: bool,
    unmasks: int,
    model_type: str | None = None,
    mask: str | None = "<mask>",
    prompted: bool = False,
    padless: bool = False,
) -> list[str]:
    """Return the code that shows how to use the model.

    Args:
        path: the path of the folder.
        tasks: the tasks that the model can do without further training.
        gated: whether attention has gates.
        unmasks: how many tokens the model can read, if it generates by filling masks; otherwise 0.
        model_type: the model type in transformers; None for a GPT-BERT.
        mask: the tokenizer's mask token; None if the tokenizer has no name for it.
        prompted: whether the training data has prompts.
        padless: whether the folder's configuration or tokenizer names no padding token.
    """
    padding = PADDING if padless else ""
    texts = (PROMPTS if prompted else TEXTS) | {"path": path, "hidden": python(f"A text with a {mask} in it.")}
    adapters = ALL_LINEAR if model_type else ADAPTERS
    pieces = [
        "## Use",
        f"`{path}` means this folder, or its name on the Hub.",
        *([unmasking(texts, unmasks, mask)] if unmasks else []),
        *(SNIPPETS[task].format(**texts) for task in tasks if mask or task != "fill-mask"),
        CLASSIFICATION.format(path=path, padding=padding),
        adapters.format(path=path, padding=padding, value="in_proj_vg" if gated else "in_proj_v"),
    ]
    return [without_code(piece) for piece in pieces] if model_type else pieces


def adapter_use(path: str, base: dict[str, Any], hides: bool) -> str:
    """Return the code that loads adapters together with their base model.

    Args:
        path: the path of the folder.
        base: what is known about the base model.
        hides: whether the base is a masked model, not a causal one.
    """
    auto_class = "AutoModelForMaskedLM" if hides else "AutoModelForCausalLM"
    known = '"FOLDER-OF-THE-BASE"'
    if "repository" in base:
        known = f"{python(base['repository'])}, revision={python(base['commit'])}"
    return ADAPTER_FOLDER.format(path=path, auto_class=auto_class, base=known)


def unmasking(texts: dict[str, str], unmasks: int, mask: str | None) -> str:
    """Return the code that generates by filling masks. `texts`: the texts in it."""
    example = UNMASKING.format(**texts, length=min(GENERATED, max(1, unmasks // 2)))
    return example if mask else example.replace("tokenizer.mask_token_id", "model.config.mask_token_id")


def notes(
    variants: list[str], default: str, alignment: str, unmasks: bool = False, model_type: str | None = None
) -> str:
    """Return notes on the variants, the alignment of scores, the class and the code of the folder."""
    if model_type:
        versions = "in versions 4.57 and 5" if model_type in ALSO_IN_4 else "from version 5"
        runs = "loading it runs no code of the folder, which contains only the sampler" if unmasks else WITHOUT_CODE
        known = {"model_type": code(model_type), "versions": versions, "code": runs}
        return NO_CODE.format(variants=weights(variants, default), **known)
    return NOTES.format(variants=weights(variants, default), alignment=ALIGNMENT[alignment])


def pipelines(
    path: str, scores: tuple[str, ...], alignment: str, model_type: str | None = None, published: bool = False
) -> str:
    """Return the command of each evaluation pipeline that fits the scores of the objective.

    `published` says whether the tokenizer is that of a published model. If it is, the commands contain no advice about
    the `<s>` of our own tokenizers.
    """
    rows: list[tuple[tuple[str, str], dict[str, str]]] = []
    if "masked" in scores:
        rows += [(BABYLM_MASKED, {}), *([(MINICONS, SCORERS["masked"])] if alignment == "mlm" else [])]
    if "causal" in scores:
        rows += [(BABYLM_CAUSAL, {}), (LM_EVAL, {}), (MINICONS, SCORERS["causal"])]
    lines = [f"| {name} | {what} |".format(path=path, alignment=alignment, **more) for (name, what), more in rows]
    if not rows:
        return ""
    lines = [without_code(line) for line in lines] if model_type else lines
    lines = [OURS.sub("", line) for line in lines] if published else lines
    return "\n".join(["## Evaluation pipelines\n", "| pipeline | type |", "|---|---|", *lines])
