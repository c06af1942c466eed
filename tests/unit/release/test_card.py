"""The model card, where the workflow of the other tests does not lead: other text, tokenizers and objectives."""

import copy
import json
import os
import re
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from babelmill.config.models import OBJECTIVES
from babelmill.config.schema import Export
from babelmill.core.files import read_json, write_json
from babelmill.evaluation.metrics import described
from babelmill.labels.card import LabelsCard
from babelmill.release.card.card import EarlierCard, ModelCard, SuiteScores, snapshot_card
from helpers.models.published_models import publish

CORPUS = {
    "settings": {"corpus": {"files": [], "builtin": None, "budget": None}},
    "figures": {
        "documents": {"train": 1234},
        "bytes": {"train": 5_000_000},
        "words": {"train": 830_000},
        "sources": [],
        "hub": None,
        "licenses": {"cc-by-4.0": 1234},
    },
}
HUB = {"repository": "BabyLM-community/babylm-eng", "revision": "main", "commit": "0123456789" * 4}
SCORE = {"value": 1.5, "standard_error": 0.0123, "nats_per_token": 2.0}
DOCUMENTS = {"scored": 100, "of": 2345}
SCORES = {"causal": SCORE, "masked": SCORE}
EVALUATION = {
    "metrics": described(["causal", "masked", "unigram"]),
    "variants": {"ema": SCORES},
    "unigram": SCORE,
    "documents": DOCUMENTS,
    "languages": {"eng": {"variants": {"ema": SCORES}, "unigram": SCORE, "documents": DOCUMENTS}},
    "tokenizer": {"eng": {"bytes_per_token": 4, "tokens_per_word": 1.5, "vocabulary_used": 1, "round_trip_rate": 1}},
    "vocab_size": 8192,
    "sequence_length": 512,
}

# Two hours of training, and the validation before and after it.
RECORD = [
    {"step": 0, "kind": "validation", "loss_masked": 5.25, "ema_loss_masked": 5.25, "loss_causal": None},
    {"step": 9, "kind": "train", "tokens": 7200, "tokens_per_second": 1.0, "loss_masked": 4.0},
    {"step": 9, "kind": "validation", "loss_masked": 4.5, "ema_loss_masked": 4.75, "loss_causal": None},
]


def export(*variants: str, logits_alignment: str = "mlm") -> Export:
    """The section `export` with these variants; the last is the default one."""
    return Export(variants=variants, default_variant=variants[-1], logits_alignment=logits_alignment)


def card(**changes) -> ModelCard:
    kind = LabelsCard if "labels" in changes else ModelCard
    return kind(
        **{
            "name": "eng",
            "export": export("ema"),
            "parameters": 29_892_164,
            "code": {"gpt_bert.py": "0" * 64},
            "languages": {"eng": {"name": "English", "tag": "en"}},
        }
        | changes
    )


def render(card: ModelCard, record: list[dict] | None = None) -> str:
    """The text of a card, of a model whose training has this record."""
    card.record = record or []
    return card.text()


def corpus(settings=(), **figures) -> dict:
    return {
        "settings": {"corpus": CORPUS["settings"]["corpus"] | dict(settings)},
        "figures": CORPUS["figures"] | figures,
    }


HELD_OUT = corpus({"validation_files": ["held/*.txt"]}, sources=[{}] * 5)
HELD_OUT["settings"]["sources"] = {"texts/*.txt": {"files": 3}, "held/*.txt": {"files": 2}}
BY_DATASETS = [HUB | {"license": "mit"}, HUB]
# Validation files are no training text. Where no document names a licence, it is that of the datasets.
TEXTS = {
    "files": HELD_OUT,
    "sample": corpus({"budget": "500000 words"}, hub=[HUB, HUB]),
    "documents": corpus(hub=BY_DATASETS, licenses={"cc0-1.0": 3}),
    "datasets": corpus(hub=BY_DATASETS, licenses={}),
    "unknown": corpus(licenses={}),
}


def test_the_losses_of_the_source_stand_beside_those_of_the_result():
    """Of the weights that are loaded, on the same text; a model that began with random weights has none to show."""
    other_sample = [*RECORD[:-1], RECORD[-1] | {"targets": 4000}]
    for source, record in ((REPOSITORY, RECORD[1:]), (None, RECORD), (REPOSITORY, other_sample)):
        assert "this model |" not in render(card(begun_with=source), record)


def scored(method: str, share: float, pairs: int) -> dict:
    score = {"score": share, "n": pairs, "interval": [share - 0.05, share + 0.05]}
    return {method: {"pairs": score, "paradigms": score | {"groups": 2}}}


HOSTILE = (
    "mit |\n\n<script>alert(1)</script>\n---\n# More\n[x](https://evil.example) ![i](//evil.example/i.png) `*c*` www.evil.example"
    ' a@evil.example "\'""" <!-- $$x$$ \x1b[2J'
)


def suite(text: str, methods: dict, kind: str, of: str, **figures) -> SuiteScores:
    """A suite whose data are this text; `figures`: more of the manifest of its items."""
    hub = {"repository": text, "revision": "main", "commit": text}
    about = {"suite": text, "headline": {"method": "causal", "of": of}, "max_masked_items": 50, "kind": kind}
    found = about | {"languages": {"eng": {"methods": methods, "pairs": {"hub": hub} | figures}}}
    return SuiteScores(text, found)


def suites(text: str) -> list[SuiteScores]:
    """A suite of pairs, some of whose scores are of a sample; one of choices; and one with another measure."""
    methods = scored("causal", 0.73, 2000) | scored("masked", 0.7, 100) | scored("fused", 0.75, 100)
    without = {"score": 0.712, "n": 1988, "interval": [0.708, 0.716]}
    overlap = {"item": "pair", "looked_in": {"eng": {"documents": 3, "bytes": 9}}}
    overlap["languages"] = {"eng": {"items": 2000, "found": 12, "short": 0, "without": without}}
    choices = scored("causal", 0.23, 500)
    measured = suite(text, scored("causal", 0.31, 90), "choices", "pairs", chance=0.5, pairs=90)
    measured.found["measure"] = "partial R²"
    return [
        suite(text, methods, "pairs", "paradigms", pairs=2000)._replace(overlap=overlap),
        suite(text, choices, "choices", "paradigms", chance=0.2, pairs=500),
        measured,
    ]


MICRO = {"precision": 0.5, "recall": 0.25, "f1": 0.3333}
LABEL_FIGURES = {
    "exact": 0.5,
    "micro": MICRO,
    "macro": {"f1": 0.2},
    "texts": 2,
}


def evaluation_of_labels(codes: list[str], methods: list[str]) -> dict:
    """The evaluation of a model of labels, with codes wherever data can stand.

    The first of the methods is the main one.
    """
    entries = [{"code": code, "name": code, "training": 3} for code in codes]
    score = {"value": 0.5, "standard_error": 0.1, "right": 1, "of": 2, "predicted": 2}
    return {
        "metrics": described(["exact", "f1"]),
        "variants": {"ema": {"exact": score, "f1": score}},
        "languages": {"eng": {"variants": {"ema": {"exact": score, "f1": score}}, "documents": {"scored": 2, "of": 2}}},
        "most_frequent": {"exact": score, "f1": score},
        "documents": {"scored": 2, "of": 2},
        "labels": {
            "figures": {"ema": dict.fromkeys(methods, LABEL_FIGURES)},
            "method": methods[0],
            "baseline": LABEL_FIGURES,
            "unknown_codes": {"texts": 0, "codes": 0},
            "cut": 0,
            "most": 1,
            "codes": entries,
        },
    }


def of_data(text: str) -> list[ModelCard]:
    """The facts of two models, with this text wherever data can stand: one of text, and one of labels."""
    base = {"name": text, "sha256": "a" * 64, "license": text, "repository": text, "commit": text}
    made = copy.deepcopy(corpus(hub=HUB | {"repository": text, "commit": text}, licenses={text: 1}))
    made["settings"]["corpus"] |= {"builtin": text, "budget": text}
    known = {
        "license": text,
        "languages": {"eng": {"name": text, "tag": text}},
        "code": {text: text},
        "begun_with": base | {"source": {"name": text, "sha256": text, "tokens": 1, "languages": [text]}},
        "corpora": {"eng": made},
        "settings": {"model": {"source": text, "config": [text]}, "train": {"objective": "hybrid"}},
    }
    of_text = {"evaluation": EVALUATION, "tokenizer_source": text, "mask": text, "suites": suites(text)}
    evaluation = evaluation_of_labels([text], ["linear"])
    labels = {"code": "classes", "codes": [text], "blocks": 1, "decoder_layers": 0}
    of_labels = {"evaluation": evaluation, "labels": labels, "settings": {"train": {"objective": "labels"}}}
    return [card(**known | of_text), card(**known | of_labels)]


def test_data_add_nothing_to_a_card():
    """Headings, links, pictures, HTML, rows and keys of the front matter are those of harmless data."""

    def structure(text: str) -> list[str]:
        front, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL).groups()
        keys = [key if key == "name" else f"{key} {type(value)}" for key, value in yaml.safe_load(front).items()]
        tokens = MarkdownIt("commonmark").enable("table").parse(body)
        flat = [each for token in tokens for each in (token, *(token.children or []))]
        kept = ("heading", "link", "image", "html", "tr", "td", "th", "fence", "hr", "list")
        kept += ("em_", "strong", "blockquote")
        return keys + [f"{each.type} {each.attrs.get('src', '')}" for each in flat if each.type.startswith(kept)]

    for hostile, harmless in zip(of_data(HOSTILE), of_data("word"), strict=True):
        text = render(hostile, RECORD)
        assert structure(text) == structure(render(harmless, RECORD))
        assert "\x1b" not in text
        assert "\\n" not in json.dumps(yaml.safe_load(text.split("\n---\n")[0])), "each value is a line"
        for code in re.findall(r"```python\n(.*?)```$", text, re.DOTALL | re.MULTILINE):
            compile(code, "card", "exec")


@pytest.mark.parametrize("pad", [False, True])
def test_the_example_of_a_classifier_pads_without_a_padding_token_of_its_own(pad, folder):
    publish("gpt2", Path("own"))
    named = read_json("own/tokenizer_config.json")
    write_json("own/tokenizer_config.json", named | {"pad_token": named["eos_token"] if pad else None})
    text = render(card(name="own", model_type="gpt2", padless=True))
    _, example = (part.partition("```")[0] for part in text.split("```python\n")[-2:])
    loads = text.partition("# Train a classifier")[2].partition("texts = ")[0].partition("from transformers")[2]
    found = {}
    exec(f"from transformers{loads}", found)
    batch = found["tokenizer"](["text", "text text"], padding=True, return_tensors="pt")
    assert found["model"](**batch).logits.shape == (2, 2)
    assert "model.config.pad_token_id = " in example, "with adapters, too"
    assert "pad_token" not in render(card(name="own", model_type="gpt2"))


# A score that the card has never heard of, and that is a bound; and a lossy tokenizer.
BOUND = described(["causal"])["causal"] | {"name": "new", "bound": True, "meaning": "each in some order", "task": "x"}
LOSSY = {"documents": DOCUMENTS | {"changed": 30}, "variants": {"ema": {"new": SCORE}}, "unigram": SCORE}
LOSSY = EVALUATION | LOSSY | {"metrics": {"new": BOUND}, "languages": {"eng": LOSSY}}
LOSSY |= {"tokenizer": {"eng": EVALUATION["tokenizer"]["eng"] | {"round_trip_rate": 0.4}}}

CARDS = Path(__file__).parent / "cards"
REPOSITORY = {"name": "owner/name", "sha256": "a" * 64, "repository": "owner/name", "commit": "c" * 40}
REPOSITORY |= {"license": "mit"}
FIGURES = {"steps": 9, "tokens": 7200, "epochs": 1.0, "words": 5_001_230, "energy_kwh": 3.25}
PROMPTS = corpus({"prompt_column": "question"}, with_prompt={"train": 9, "validation": 1})
TWO = {"eng": {"name": "English", "tag": "en"}, "zho": {"name": "Chinese", "tag": "zh", "script": "Hans"}}


def trained(objective: str, model_type: str | None = None, average_last: float = 0, **model) -> dict:
    """Facts of a model that was trained with an objective on one corpus, and whose validation text was scored."""
    scores = dict.fromkeys(OBJECTIVES[objective].scores, SCORE)
    entry = {"variants": {"ema": scores}, "unigram": SCORE, "documents": DOCUMENTS}
    train = {"objective": objective, "epochs": 3} | ({"average_last": average_last} if average_last else {})
    return {
        "settings": {"model": {"hidden_size": 8, **model}, "train": train},
        "figures": FIGURES,
        "corpora": {"eng": corpus(words={"train": 900_123, "validation": 10})},
        "evaluation": EVALUATION | entry | {"metrics": described([*scores, "unigram"]), "languages": {"eng": entry}},
        "license": "apache-2.0",
        "model_type": model_type,
    }


def of_codes(code: str, codes: list[str], method: str) -> dict:
    """Facts of a model of labels with a code scheme, whose main method is the decoder (`blocks`) or the classifier."""
    decoder = method == "blocks"
    about = {"code": code, "codes": codes, "blocks": 3 if decoder else 1, "decoder_layers": int(decoder)}
    methods = ["blocks", "linear"] if decoder else ["linear"]
    evaluation = evaluation_of_labels(codes, methods)
    evaluation["labels"] |= {"most": about["blocks"], "cut": 2 * decoder}
    evaluation["labels"] |= {"unknown_codes": {"texts": 1, "codes": 2}} if decoder else {}
    settings = {"train": {"objective": "labels"}, "labels": {"code": code}}
    return {"evaluation": evaluation, "labels": about, "settings": settings, "corpora": {"eng": CORPUS}}


SEVERAL = {"eng": corpus({"builtin": "python-docs", "budget": 5.43}, hub=HUB | {"license": "mit"}, licenses={})}
SEVERAL |= {"zho": corpus(sources=[{}, {}])}
FROM_A_FOLDER = {"name": "../secret/theirs", "sha256": "a" * 64}  # whose path is not said
FROM_OURS = {"name": "eng", "sha256": "a" * 64, "languages": ["eng"], "tokens": 7200, "words": 5000}
OLD = {"license": "mit", "tags": ["babylm", "old"], "pipeline_tag": "feature-extraction"}
OF_HISCO = of_codes("hisco", [f"{n:05}" for n in range(60)], "blocks")
OF_HISCO["evaluation"]["languages"]["deu"] = OF_HISCO["evaluation"]["languages"]["eng"]
OF_HISCO["labels"] |= {"cleaning": {"normalization": "NFC"}, "names": {"00001": "baker"}, "contexts": True}
# One card for each kind of model and of origin: the facts that are not those of `card()`.
KINDS = {
    "bare": {"languages": {}},
    "bare_masked_mntp": {
        "settings": {"train": {"objective": "masked"}},
        "export": export("ema", logits_alignment="mntp"),
    },
    "texts": {"languages": {key: {"name": key, "tag": ""} for key in TEXTS}, "corpora": TEXTS},
    "continued_from_a_folder": {"begun_with": FROM_A_FOLDER, "export": export("main")},
    "hybrid": trained("hybrid", gate=False)
    | {"authors": ["[A](https://a.example)", "B\nC"], "description": "A *short* text.\n\nMore."},
    "another_metric_and_a_tokenizer_that_loses_text": trained("causal", average_last=0.2) | {"evaluation": LOSSY},
    "diffusion": trained("diffusion", max_position_embeddings=512) | {"corpora": {"eng": PROMPTS}},
    "prompts": trained("causal") | {"corpora": {"eng": PROMPTS}},
    "transformers_from_scratch": trained("causal", "gpt2") | {"padless": True, "published_tokenizer": True},
    "transformers_continued": trained("masked", "bert")
    | {"begun_with": REPOSITORY, "tokenizer_source": "owner/name", "mask": "[MASK]"},
    "transformers_diffusion": trained("diffusion", "eurobert") | {"mask": None},
    "continued_from_a_model_of_the_workflow": trained("causal")
    | {"begun_with": FROM_OURS | {"source": REPOSITORY | {"license": None}}},
    "mixture": trained("causal")
    | {"languages": TWO, "corpora": SEVERAL, "figures": FIGURES | {"shares": {"eng": 0.25, "zho": 0.75}}},
    "suites_and_snapshots": trained("hybrid")
    | {"export": export("main", "ema", logits_alignment="mntp")}
    | {"suites": suites("BLiMP"), "snapshots": ["chck_1M"], "figures": FIGURES | {"missing_snapshots": ["chck_9M"]}},
    "rehosted": {
        "settings": {"model": {"hidden_size": 8}},
        "origin": f"Rehosted from commit [`{'c' * 40}`](https://huggingface.co/owner/name).",
        "earlier": EarlierCard(OLD, "## Citation\n\n```bibtex\n@misc{ada}\n```"),
    },
    "labels_classes": of_codes("classes", ["bad", "good"], "linear"),
    "labels_general": of_codes("general", ["a1", "a2", "?"], "blocks") | {"model_type": "bert"},
    "labels_hisco": OF_HISCO | {"languages": TWO | {"deu": {"name": "German", "tag": "de"}}, "model_type": "canine"},
}


@pytest.mark.parametrize("kind", [*KINDS, "snapshot"])
def test_the_card_of_each_kind_is_the_stored_one(kind):
    """`STORE_CARDS=1 pytest tests/unit/release/test_card.py -k stored` stores them anew: then read what `git diff` shows."""
    text = render(card(**KINDS.get(kind, {})), None if kind in ("bare", "rehosted") else RECORD)
    if kind == "snapshot":
        figures = {"step": 1234, "million_words": 1.5, "tokens": 2_000_000, "words": 1_500_123}
        text = snapshot_card("eng_big", "chck_1M", "no: such", figures)
    text = re.sub(r"(?m)^Made by Babelmill .*$", lambda line: re.sub(r" \d[^ ,]*(?=[ ,.])", " 1.0", line[0]), text)
    path = CARDS / f"{kind}.md"
    if "STORE_CARDS" in os.environ:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
