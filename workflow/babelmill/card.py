"""The text of the model card: every number in it was measured by a stage and comes from that stage's manifest.

`convert` fills it. The front matter is written by `huggingface_hub`, with a model-index, so that the Hub shows the
results beside other models'.
"""

import math

from huggingface_hub import EvalResult, ModelCardData

PAPER = "https://arxiv.org/abs/2410.24159"

USE = """\
```python
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

path = "{model}"  # this folder, or its name on the Hub
tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=True)

# Masked: which word stands here?
print(pipeline("fill-mask", model=path, trust_remote_code=True)("A text with a <mask> in it."))

# Causal: how does it go on?
model = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True)
inputs = tokenizer("The beginning of a text", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=30)[0]))

# Classification: fine-tune a head on labelled texts, or on pairs: tokenizer(first, second).
from transformers import AutoModelForSequenceClassification

classifier = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2, trust_remote_code=True)
```

* {variants}
* Scores of the masked model at a position are for the token at that position. The model was trained to predict the next
  token in both objectives; `logits_alignment="mntp"` (an argument of `from_pretrained`) gives the scores unshifted, as
  evaluation pipelines with a masked *next*-token backend want them.
* `attention_mode="causal"` or `"bidirectional"` overrides what each class does by itself.
* The code is in this repository: read it, and pin a `revision=` before you trust it. Its sha256 are below."""


WEIGHTS = {"main": "the last weights of training", "ema": "the moving average of the weights"}


def weights(variants: list[str], default: str) -> str:
    """Which weights load by default, and how to load the other ones."""
    others = [f'`variant="{name}"` loads {WEIGHTS[name]}' for name in variants if name != default]
    return "; ".join([f"`model.safetensors` has {WEIGHTS[default]}", *others]) + "."


def table(header: list[str], rows: list[list]) -> str:
    """A Markdown table; numbers to the right."""
    lines = [header, ["---:" if isinstance(cell, int | float) else "---" for cell in rows[0]], *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _text(cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def front_matter(settings, evaluation: dict, default_variant: str) -> str:
    """The card's YAML: languages, licence, tags and the model-index."""
    languages = settings.language_table
    results = []
    for code in settings.languages:
        of_language = evaluation["languages"][code]["variants"][default_variant]
        for kind, task in (("causal", "text-generation"), ("masked", "fill-mask")):
            results.append(
                EvalResult(
                    task_type=task,
                    dataset_type="babelmill-validation",
                    dataset_name=f"validation split, {languages[code]['name']}",
                    dataset_config=code,
                    dataset_split="validation",
                    metric_type="bits_per_byte",
                    metric_name=f"bits per byte, {kind}",
                    metric_value=round(of_language[kind]["bits_per_byte"], 4),
                )
            )
    card = ModelCardData(
        language=list(dict.fromkeys(languages[code]["tag"] for code in settings.languages)),
        license=settings.card.license,
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=["gpt-bert", "babylm", "custom_code"],
        model_name=settings.name,
        eval_results=results,
    )
    return f"---\n{card.to_yaml()}\n---\n"


def results(evaluation: dict, languages: dict) -> str:
    """Bits per byte by language and variant, beside the unigram model."""
    header = ["language", "weights", "causal", "masked", "unigram model"]
    rows = []
    for code, entry in evaluation["languages"].items():
        unigram = entry["unigram"]["bits_per_byte"]
        for variant, scores in entry["variants"].items():
            causal, masked = (scores[kind]["bits_per_byte"] for kind in ("causal", "masked"))
            rows.append([languages[code]["name"], variant, causal, masked, unigram])
    return table(header, rows)


def tokenizer_figures(evaluation: dict, languages: dict) -> str:
    """What the tokenizer does to each language's validation text."""
    keys = ("bytes_per_token", "tokens_per_word", "vocabulary_used", "round_trip_rate")
    rows = [
        [languages[code]["name"], *(float(entry[key]) for key in keys)]
        for code, entry in evaluation["tokenizer"].items()
    ]
    return table(["language", *(key.replace("_", " ") for key in keys)], rows)


def training_data(corpora: dict[str, dict], languages: dict) -> str:
    """Size and origin of each language's text, from the corpus manifests."""
    rows = []
    for code, manifest in corpora.items():
        figures, corpus = manifest["figures"], manifest["settings"]["corpus"]
        origin = "local files" if corpus["files"] else corpus["builtin"] or corpus.get("hub")
        licences = ", ".join(sorted(figures.get("licenses", {}))) or "unknown"
        documents, size = figures["documents"]["train"], figures["bytes"]["train"]
        rows.append([languages[code]["name"], origin, documents, size / 1e6, licences])
    return table(["language", "source", "documents", "MB", "licence of the text"], rows)


def hyper_parameters(model: dict) -> str:
    """The `model` and `train` settings of the run, one row each."""
    settings = model["settings"]
    rows = [[key, value] for section in ("model", "train") for key, value in settings[section].items()]
    return table(["setting", "value"], rows)


def render(settings, facts: dict) -> str:
    """The whole card.

    Args:
        settings: of the `convert` stage (`card`, `languages`, `language_table`).
        facts: `evaluation` (evaluation.json), `corpora` (manifests by language), `model` and `export` (manifests),
            `hours` of training, `code` (sha256 by file), `versions` by package.
    """
    card, languages, evaluation = settings.card, settings.language_table, facts["evaluation"]
    figures, exported = facts["model"]["figures"], facts["export"]["settings"]["export"]
    names = ", ".join(languages[code]["name"] for code in settings.languages)
    default = exported["default_variant"]
    perplexity = math.exp(evaluation["variants"][default]["causal"]["nats_per_token"])
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    code = [[f"`{name}`", f"`{digest}`"] for name, digest in sorted(facts["code"].items())]
    sections = [
        front_matter(settings, evaluation, default),
        f"# {settings.name}",
        f"A [GPT-BERT]({PAPER}) language model of {names}: {figures['parameters'] / 1e6:.1f} million parameters,"
        " trained on masked and causal prediction at once, so that one set of weights fills masks and generates text.",
        card.description,
        f"Authors: {', '.join(card.authors)}." if card.authors else "",
        "## Use",
        USE.format(model=settings.name, variants=weights(exported["variants"], default)),
        "## Results",
        f"Bits per byte of validation text, which was not trained on, with {evaluation['sequence_length']} tokens of"
        " context (lower is better). Causal: each token from those before it; masked: each token hidden once, from both"
        f" sides. The default weights' causal perplexity is {perplexity:.1f} a token, with a vocabulary of"
        f" {evaluation['vocab_size']:,}.",
        results(evaluation, languages),
        "## Training data",
        training_data(facts["corpora"], languages),
        "## Tokenizer",
        f"Byte-level BPE of {evaluation['vocab_size']:,} entries; it gives every text back unchanged.",
        tokenizer_figures(evaluation, languages),
        "## Training",
        f"{figures['steps']:,} steps, {figures['tokens']:,} tokens, {figures['epochs']:.1f} passes over the text,"
        f" {facts['hours']:.2f} hours.",
        "![loss by step](training_curve.png)",
        hyper_parameters(facts["model"]),
        "## Files and versions",
        f"Made by Babelmill with {versions}.",
        table(["code file", "sha256"], code),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"
