"""The model card, where the workflow of the other tests does not lead: other text, tokenizers and objectives."""

import copy
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from babelmill.config.objectives import OBJECTIVES
from babelmill.evaluation.metrics import described
from babelmill.labels.card import LabelsCard
from babelmill.release.card.card import ModelCard, SuiteScores, shown_settings, snapshot_card
from babelmill.release.card.earlier_card import EarlierCard

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


def card(**changes) -> ModelCard:
    kind = LabelsCard if "labels" in changes else ModelCard
    return kind(
        **{
            "name": "eng",
            "variants": ["ema"],
            "default_variant": "ema",
            "parameters": 29_892_164,
            "code": {"gpt_bert.py": "0" * 64},
            "languages": {"eng": {"name": "English", "tag": "en"}},
        }
        | changes
    )


def render(card: ModelCard, record: list[dict] | None = None) -> str:
    return replace(card, record=record).text()


def corpus(settings=(), **figures) -> dict:
    return {
        "settings": {"corpus": CORPUS["settings"]["corpus"] | dict(settings)},
        "figures": CORPUS["figures"] | figures,
    }


def front_matter(text: str) -> dict:
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1])


def test_what_is_not_known_is_not_said():
    """Of a bare folder: what it is and how to use it."""
    assert "language" not in front_matter(render(card(languages={"occ_uk": {"name": "Occupations", "tag": ""}})))
    text = render(card(languages={}))
    assert "model: 29.9 million parameters." in text
    for words in ("## Results", "## Training", "## Tokenizer", "curve", "Authors", "None", "unknown"):
        assert words not in text
    assert front_matter(text) == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["gpt-bert", "babylm", "custom_code"],
    }


@pytest.mark.parametrize(
    "manifest, origin",
    [
        (corpus(hub=HUB), f"`BabyLM-community/babylm-eng` at `{HUB['commit']}`"),
        (corpus({"builtin": "python-docs"}, sources=[{}, {}]), "2 local files and python-docs"),
        (
            corpus({"builtin": "python-docs", "budget": 5.43}),
            "python-docs, a sample of 5.43 MB of English-equivalent text",
        ),
        (corpus({"budget": "500000 words"}, sources=[{}]), "1 local file, a sample of 500000 words"),
    ],
)
def test_origin_of_the_text(manifest, origin):
    text = render(card(corpora={"eng": manifest}))
    assert f"| English | {origin} | 1,234 | 830,000 | 5 | cc-by-4.0 |" in text
    assert front_matter(text).get("datasets") == (
        ["BabyLM-community/babylm-eng"] if manifest["figures"]["hub"] else None
    )


@pytest.mark.parametrize(
    ("datasets", "documents", "message"),
    [
        ([{"license": "mit"}], {"cc0-1.0": 3}, "cc0-1.0"),
        ([{"license": "mit"}, {"license": "mit"}], {}, "mit (the dataset's card)"),
        ([{"license": "mit"}, {}], {}, "mit (the dataset's card), unknown"),
        ([{}], {}, "unknown"),
        ([], {}, "unknown"),
    ],
)
def test_the_licence_of_the_text_is_that_of_its_datasets_where_no_document_names_one(datasets, documents, message):
    manifest = corpus(hub=[HUB | dataset for dataset in datasets], licenses=documents)
    assert f" | 1,234 | 830,000 | 5 | {message} |" in render(card(corpora={"eng": manifest}))


def test_a_tokenizer_that_loses_text_is_named_beside_the_scores():
    lossy = {"documents": DOCUMENTS | {"changed": 30}}
    languages = {"eng": EVALUATION["languages"]["eng"] | lossy}
    text = render(card(evaluation=EVALUATION | lossy | {"languages": languages}))
    documents = "validation documents (the tokenizer changes 30 of them, and the scores are those of the changed text)"
    assert f"Bits per byte of a sample of 100 of the 2,345 {documents}, on which" in text
    (result, _) = front_matter(text)["model-index"][0]["results"]
    assert result["dataset"]["name"].endswith(f"{documents}, English")


def test_only_what_was_measured_is_shown():
    """A score that the card has never heard of, and that is a bound; no causal one."""
    bound = described(["causal"])["causal"] | {
        "name": "new",
        "bound": True,
        "meaning": "each in some order",
        "task": "x",
    }
    evaluation = EVALUATION | {
        "metrics": {"new": bound},
        "variants": {"ema": {"new": SCORE}},
        "languages": {"eng": {"variants": {"ema": {"new": SCORE}}, "unigram": SCORE, "documents": DOCUMENTS}},
    }
    text = render(card(evaluation=evaluation))
    assert "| English | ema | at most 1.500 ± 0.012 | 1.500 ± 0.012 |" in text and "| weights | new | unigram" in text
    assert "New: each in some order. The default weights' new perplexity is at most 7.4 per token" in text
    (result,) = front_matter(text)["model-index"][0]["results"]
    assert result["task"]["type"] == "x"
    assert result["metrics"] == [{"type": "bits_per_byte", "value": 1.5, "name": "bits per byte at most, new"}]


@pytest.mark.parametrize(
    "objective, tag", [("hybrid", "text-generation"), ("masked", None), ("causal", "text-generation")]
)
def test_a_folder_for_the_mntp_backend(objective, tag):
    """Its scores are one position off for `pipeline("fill-mask")`: nothing in the card leads there."""
    settings = {"model": {"hidden_size": 8}, "train": {"objective": objective}}
    text = render(card(settings=settings, logits_alignment="mntp"))
    assert front_matter(text).get("pipeline_tag") == tag
    assert 'pipeline("fill-mask", model' not in text and "MaskedLMScorer" not in text
    assert "eval_zero_shot.sh eng mlm" not in text
    assert ("eval_zero_shot.sh eng mntp" in text) == (objective != "causal")
    assert "scores of the masked model at a position are for the *next* token" in text.lower()


def test_what_training_went_on_from():
    """A repository, its commit and licence, also where a model of the workflow stands between; nothing of paths."""
    base = {"name": "owner/name", "sha256": "a" * 64, "repository": "owner/name", "commit": "c" * 40}
    text = render(card(begun_with=base | {"license": "mit"}))
    assert front_matter(text)["base_model"] == "owner/name"
    assert f"(https://huggingface.co/owner/name) at commit `{'c' * 40}` (licence: mit)." in text
    text = render(card(begun_with={"name": "eng", "sha256": "b" * 64, "source": base | {"license": None}}))
    assert front_matter(text)["base_model"] == "owner/name"
    assert f"of `eng` (weights with sha256 `{'b' * 64}`), which continued from [`owner/name`]" in text
    assert "(its card names no licence)" in text
    text = render(card(begun_with={"name": "../secret/theirs", "sha256": "a" * 64}))
    assert "base_model" not in front_matter(text) and "`theirs`" in text and "secret" not in text


def test_source_and_result_on_the_same_text():
    """The loss before training is the source's; a model that began with random weights has none to show."""
    base = {"name": "owner/name", "sha256": "a" * 64, "repository": "owner/name", "commit": "c" * 40}
    text = render(card(begun_with=base), RECORD)
    assert "| prediction | `owner/name` | this model |" in text
    assert "| masked | 5.25 | 4.75 |" in text and "| causal |" not in text, "of the averaged weights, the default"
    assert "| masked | 5.25 | 4.5 |" in render(card(begun_with=base, default_variant="main"), RECORD)
    assert "this model |" not in render(card(begun_with=base), RECORD[1:]), "a run of an earlier version"
    assert "this model |" not in render(card(), RECORD)
    another_sample = [*RECORD[:-1], RECORD[-1] | {"targets": 4000}]
    assert "this model |" not in render(card(begun_with=base), another_sample), "its run changed the sample"


def test_instructions_that_raw_text_may_undo():
    base = {"name": "owner/name", "sha256": "a" * 64, "instructed": True}
    warning = "the base model was tuned on instructions"
    assert warning in render(card(begun_with=base, corpora={"eng": CORPUS}))
    assert warning in render(card(begun_with={"name": "b", "sha256": "", "source": base}, corpora={"eng": CORPUS}))
    assert warning not in render(card(begun_with=base | {"instructed": False}, corpora={"eng": CORPUS}))
    prompts = corpus({"prompt_column": "question"})
    assert warning not in render(card(begun_with=base, corpora={"eng": prompts}))


def test_a_tokenizer_that_loses_text_is_said_to():
    lossy = EVALUATION | {"tokenizer": {"eng": EVALUATION["tokenizer"]["eng"] | {"round_trip_rate": 0.4}}}
    assert "decoding its tokens restores every text exactly" in render(card(evaluation=EVALUATION))
    text = render(card(evaluation=lossy, tokenizer_source="owner/name"))
    assert (
        "The tokenizer of `owner/name`" in text
        and "does not restore every text" in text
        and "restores every text exactly.\n" not in text
    )


def scored(method: str, share: float, pairs: int) -> dict:
    score = {"score": share, "n": pairs, "interval": [share - 0.05, share + 0.05]}
    return {method: {"pairs": score, "paradigms": score | {"groups": 2}}}


def test_scores_of_suites_stand_beside_published_ones():
    hub = {"repository": "nyu-mll/blimp", "revision": "main", "commit": "ab" * 20}
    methods = scored("causal", 0.73, 2000) | scored("masked", 0.7, 100) | scored("fused", 0.75, 100)
    found = {
        "suite": "blimp",
        "headline": {"method": "fused", "of": "paradigms"},
        "masked_pairs": 50,
        "languages": {"eng": {"methods": methods, "pairs": {"hub": hub}}},
    }
    baseline = {"language": "eng", "model": "GPT-2 98M", "pipeline": "lm-evaluation-harness", "score": 73.43}
    suites = [SuiteScores("BLiMP", found, [baseline, baseline | {"language": "deu"}])]
    text = render(card(suites=suites))
    cells = ["73.0 (68.0 to 78.0), n = 2,000", "70.0 (65.0 to 75.0), n = 100", "75.0 (70.0 to 80.0), n = 100"]
    assert f"| BLiMP | English | {' | '.join(cells)} |" in text, "each score with its own number of pairs"
    assert "| BLiMP | English | GPT-2 98M | 73.43 | lm-evaluation-harness |" in text and text.count("73.43") == 1
    assert "The fused and masked scores are of a sample of 50 pairs of each paradigm at most." in text
    assert "unweighted mean over paradigms" in text
    assert f"`nyu-mll/blimp` at `{'ab' * 20}`" in text
    front = yaml.safe_load(text.split("---\n")[1])
    results = front["model-index"][0]["results"]
    assert [metric["value"] for line in results for metric in line["metrics"]] == [0.73, 0.7, 0.75]
    names = [metric["name"] for line in results for metric in line["metrics"]]
    assert ["sample of 50 pairs" in name for name in names] == [False, True, True]
    assert results[0]["dataset"] == {
        "name": "BLiMP, English",
        "type": "nyu-mll/blimp",
        "config": "eng",
        "revision": "ab" * 20,
    }
    assert "Minimal pairs" not in render(card())


def test_suites_of_choices_have_a_section_that_says_what_chance_is():
    hub = {"repository": "lab/boxes", "revision": "main", "commit": "cd" * 20}

    def of(of: str, figures: dict, **more) -> dict:
        methods = scored("causal", 0.23, 500)
        methods["causal"]["phenomena"] = {"score": 0.31, "n": 500, "interval": [0.28, 0.34]}
        languages = {"eng": {"methods": methods, "pairs": {"hub": hub} | figures}}
        about = {"suite": "x", "headline": {"method": "causal", "of": of}, "masked_pairs": "all"}
        return about | {"languages": languages} | more

    pairs = SuiteScores("BLiMP", of("pairs", {}), [])
    boxes = SuiteScores("Boxes", of("phenomena", {"chance": 0.2}, kind="choices"), [])
    wug = SuiteScores("WUG", of("pairs", {"chance": 0.5}, kind="choices", measure="Spearman"), [])
    text = render(card(suites=[boxes, pairs, wug]))
    of_pairs, of_choices = text[text.index("## Minimal pairs") :].split("## Choices")
    assert "Chance is 50." in of_pairs and "| BLiMP | English | 23.0 (18.0 to 28.0), n = 500 |" in of_pairs
    assert "Chance is 20 for Boxes. The score of WUG is another one: Spearman, times 100." in of_choices
    assert "The score of Boxes is the mean over phenomena of the mean over their paradigms." in of_choices
    assert "| Boxes | English | 31.0 (28.0 to 34.0), n = 500 |" in of_choices and "Boxes" not in of_pairs
    assert "The items come from `lab/boxes`" in of_choices and "| BLiMP" not in of_choices
    results = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"]
    metrics = [metric for result in results for metric in result["metrics"]]
    assert [metric["type"] for metric in metrics] == ["accuracy", "accuracy", "spearman"]


def test_the_card_says_which_items_stand_in_the_training_text():
    """Only of suites of which that is known; and what was not looked at."""
    about = {"headline": {"method": "causal", "of": "pairs"}, "masked_pairs": "all"}
    languages = {"eng": {"methods": scored("causal", 0.73, 67000), "pairs": {"hub": None}}}
    found = {"suite": "blimp", "languages": languages, **about}
    without = {"score": 0.712, "n": 66988, "interval": [0.708, 0.716]}
    overlap = {"item": "pair", "looked_in": {"eng": {"documents": 3, "bytes": 9}}, "not_looked_in": {}}
    overlap["languages"] = {"eng": {"items": 67000, "found": 12, "short": 0, "without": without}}
    line = (
        "* BLiMP, English: 12 of 67,000 pairs stand in the training text; without them 71.2 (70.8 to 71.6, n = 66,988)"
    )
    text = render(card(suites=[SuiteScores("BLiMP", found, [], overlap), SuiteScores("Old", found, [])]))
    assert line in text.splitlines() and "* Old" not in text and "Only the text of this training" not in text
    base = {"name": "models/base", "sha256": "ab"}
    text = render(card(suites=[SuiteScores("BLiMP", found, [], overlap)], begun_with=base))
    assert "Only the text of this training was looked at" in text
    gone = overlap | {"looked_in": {}, "not_looked_in": {"eng": "results/corpora/eng is gone"}}
    text = render(card(suites=[SuiteScores("BLiMP", found, [], gone)]))
    assert "* BLiMP, English: not looked for in the training text: results/corpora/eng is gone" in text.splitlines()
    assert "in the training text" not in render(card(suites=[SuiteScores("BLiMP", found, [])]))


def test_codes_may_hold_what_ends_a_cell_of_a_table():
    labels = {"code": "classes", "codes": ["a|b"], "blocks": 1, "decoder_layers": 0}
    text = render(card(labels=labels, evaluation=evaluation_of_labels(["a|b"], ["linear"], "a|b", "a|b")))
    assert "| `a\\|b` | a&#124;b | 3 |" in text, "a code"
    assert "| `a\\|b` a&#124;b | none | 1 | a&#124;b |" in text, "a mistake"


HOSTILE = (
    "mit |\n\n<script>alert(1)</script>\n---\n# More\n[x](https://evil.example) ![i](//evil.example/i.png) `*c*` www.evil.example"
    ' a@evil.example "\'""" <!-- $$x$$ \x1b[2J'
)


def suites(text: str) -> list[SuiteScores]:
    """A suite whose data are this text."""
    hub = {"repository": text, "revision": "main", "commit": text}
    found = {
        "suite": text,
        "headline": {"method": "causal", "of": "paradigms"},
        "masked_pairs": "all",
        "languages": {"eng": {"methods": scored("causal", 0.73, 2000), "pairs": {"hub": hub}}},
    }
    return [SuiteScores(text, found, [{"language": "eng", "model": text, "pipeline": text, "score": 73.43}])]


MICRO = {"precision": 0.5, "recall": 0.25, "f1": 0.3333}
LABEL_FIGURES = {
    "exact": 0.5,
    "micro": MICRO,
    "macro": {"f1": 0.2},
    "top_1": 0.5,
    "top_3": 0.75,
    "top_5": 1.0,
    "texts": 2,
}


def evaluation_of_labels(codes: list[str], methods: list[str], text: str, context: str = "", **changes) -> dict:
    """The evaluation of a model of labels, with a text, its context and codes wherever data can stand.

    The first of the methods is the main one.
    """
    entries = [{"code": code, "name": code, "training": 3} for code in codes]
    method = LABEL_FIGURES | {
        "languages": {},
        "calibration": {"expected_error": 0.1, "bins": []},
        "digits": [],
        "threshold": None,
        "mistakes": [{"true": entries[0], "predicted": None, "count": 1, "examples": [{"text": text}]}],
    }
    score = {"value": 0.5, "standard_error": 0.1, "right": 1, "of": 2, "predicted": 2}
    likeliest = [{"code": code, "chance": 0.5} for code in codes[:3]]
    return {
        "metrics": described(["exact", "f1"]),
        "variants": {"ema": {"exact": score, "f1": score}},
        "languages": {"eng": {"variants": {"ema": {"exact": score, "f1": score}}, "documents": {"scored": 2, "of": 2}}},
        "most_frequent": {"exact": score, "f1": score},
        "documents": {"scored": 2, "of": 2},
        "labels": {
            "figures": {"ema": dict.fromkeys(methods, method | changes)},
            "method": methods[0],
            "baseline": LABEL_FIGURES,
            "unknown_codes": {"texts": 0, "codes": 0},
            "cut": 0,
            "most": 1,
            "codes": entries,
            "example": {"text": text, "likeliest": likeliest} | ({"context": context} if context else {}),
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
    evaluation = evaluation_of_labels([text], ["linear"], text, text)
    labels = {"code": "classes", "codes": [text], "blocks": 1, "decoder_layers": 0}
    of_labels = {"evaluation": evaluation, "labels": labels, "settings": {"train": {"objective": "labels"}}}
    return [card(**known | of_text), card(**known | of_labels)]


def leaves(value) -> list[str]:
    """All texts in a value."""
    if isinstance(value, dict | list):
        return [leaf for entry in (value.values() if isinstance(value, dict) else value) for leaf in leaves(entry)]
    return [str(value)]


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
        assert "\n" not in "".join(leaves(front_matter(text)))
        for code in re.findall(r"```python\n(.*?)```$", text, re.DOTALL | re.MULTILINE):
            compile(code, "card", "exec")


def test_what_a_user_writes_for_a_card_keeps_its_markdown():
    text = render(card(description="See *[here](https://a.example)*.", authors=["[A](https://a.example)", "B\nC"]))
    assert "\n\nSee *[here](https://a.example)*.\n\nAuthors: [A](https://a.example), B C.\n\n" in text


@pytest.mark.parametrize("pad", [None, "</s>"])
def test_the_example_of_a_classifier_pads_without_a_padding_token_of_its_own(pad, folder):
    words = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "text": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", pad_token=pad).save_pretrained("own")
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"), 4)
    config = AutoConfig.for_model("llama", vocab_size=3, num_hidden_layers=1, **sizes, pad_token_id=None)
    AutoModelForCausalLM.from_config(config).save_pretrained("own")
    text = render(card(name="own", model_type="llama", padless=True))
    _, example = (part.partition("```")[0] for part in text.split("```python\n")[-2:])
    loads = text.partition("# Train a classifier")[2].partition("texts = ")[0].partition("from transformers")[2]
    found = {}
    exec(f"from transformers{loads}", found)
    batch = found["tokenizer"](["text", "text text"], padding=True, return_tensors="pt")
    assert found["model"](**batch).logits.shape == (2, 2)
    assert "model.config.pad_token_id = " in example, "with adapters, too"
    assert "pad_token" not in render(card(name="own", model_type="llama"))


def test_words_shares_and_snapshots():
    known = corpus(words={"train": 900_123, "validation": 10})
    two = {"eng": {"name": "English", "tag": "en"}, "deu": {"name": "German", "tag": "de"}}
    figures = {"steps": 9, "tokens": 7200, "epochs": 1.0, "words": 9_001_230, "shares": {"eng": 0.25, "deu": 0.75}}
    figures["missing_snapshots"] = ["chck_9M"]
    text = render(
        card(
            languages=two,
            corpora={"eng": known, "deu": CORPUS},
            figures=figures,
            settings={"train": {"seed": 1}},
            snapshots=["chck_1M", "chck_2M"],
            evaluation=EVALUATION,
        )
    )
    assert "| language | documents | words | MB | share of training | licence of the text |" in text
    assert "| 1,234 | 900,123 | 5 | 25.0 % |" in text and "| 1,234 | 830,000 | 5 | 75.0 % |" in text
    assert "9 steps, 7,200 tokens, 1.0 passes over the text, 9,001,230 words in all." in text
    assert (
        "## Snapshots" in text
        and "`chck_1M`, `chck_2M`. There is none for `chck_9M`: training ended before this" in text
    )
    assert text.index("## Results") < text.index("## Use") < text.index("## Training data")
    assert "Snapshots" not in render(card(corpora={"eng": CORPUS}, evaluation=EVALUATION))
    chinese = {"eng": {"name": "Chinese", "tag": "zh", "script": "Hans"}}
    assert (
        "words"
        not in render(card(languages=chinese, corpora={"eng": CORPUS}, evaluation=EVALUATION))
        .partition("## Training data")[2]
        .partition("##")[0]
    )
    text = render(card(languages=chinese, figures=figures, settings={"train": {"seed": 1}}))
    assert "9,001,230 words in all (in Chinese, a fixed number of bytes counts as a word)." in text


def test_validation_files_are_no_training_data():
    manifest = corpus({"validation_files": ["held/*.txt"]}, sources=[{}] * 5)
    manifest["settings"]["sources"] = {"texts/*.txt": {"files": 3}, "held/*.txt": {"files": 2}}
    assert "| 3 local files |" in render(card(corpora={"eng": manifest}))


def test_the_example_of_a_prompt_model_has_a_prompt():
    for objective in ("causal", "diffusion"):
        settings = {"model": {"max_position_embeddings": 512}, "train": {"objective": objective}}
        prompts = corpus(with_prompt={"train": 9, "validation": 1})
        text = render(card(corpora={"eng": prompts}, settings=settings))
        assert 'tokenizer("A prompt", ' in text and "The beginning of a text" not in text
        assert "which ends like the prompts of the training data" in text
        assert 'tokenizer("The beginning of a text", ' in render(card(settings=settings))


@pytest.mark.parametrize("empty", ["model", "train", "labels"])
def test_a_section_of_settings_without_values_is_no_table(empty):
    """All its keys stand at their neutral values: the labels of plain classes."""
    train = {"objective": "labels", "epochs": 3}
    settings = {"languages": ["eng"], "model": {"hidden_size": 8}, "train": train, "labels": {"code": "hisco"}}
    shown = shown_settings(settings | {empty: {"objective": "labels"} if empty == "train" else {}})
    labels = {"code": "hisco", "codes": ["1"], "blocks": 1, "decoder_layers": 0}
    text = render(card(settings=shown, labels=labels))
    assert ("| `labels.code` | hisco |" in text) == (empty != "labels")
    assert text.count("| setting | value |") == len(shown)


CARDS = Path(__file__).parent / "cards"
REPOSITORY = {
    "name": "owner/name",
    "sha256": "a" * 64,
    "repository": "owner/name",
    "commit": "c" * 40,
    "license": "mit",
}
FIGURES = {"steps": 9, "tokens": 7200, "epochs": 1.0, "words": 5_001_230, "energy_kwh": 3.25}
TWO = {"eng": {"name": "English", "tag": "en"}, "zho": {"name": "Chinese", "tag": "zh", "script": "Hans"}}


def trained(objective: str, model_type: str | None = None, **model) -> dict:
    """Facts of a model that was trained with an objective on one corpus, and whose validation text was scored."""
    scores = dict.fromkeys(OBJECTIVES[objective].scores, SCORE)
    entry = {"variants": {"ema": scores}, "unigram": SCORE, "documents": DOCUMENTS}
    return {
        "settings": {"model": {"hidden_size": 8, **model}, "train": {"objective": objective, "epochs": 3}},
        "figures": FIGURES,
        "corpora": {"eng": corpus(words={"train": 900_123, "validation": 10})},
        "evaluation": EVALUATION | entry | {"metrics": described([*scores, "unigram"]), "languages": {"eng": entry}},
        "license": "apache-2.0",
        "model_type": model_type,
    }


def of_codes(code: str, codes: list[str], method: str, **changes) -> dict:
    """Facts of a model of labels with a code scheme, whose main method is the decoder (`blocks`) or the classifier."""
    decoder = method == "blocks"
    about = {"code": code, "codes": codes, "blocks": 3 if decoder else 1, "decoder_layers": int(decoder)}
    methods = ["blocks", "linear"] if decoder else ["linear"]
    evaluation = evaluation_of_labels(codes, methods, "a baker", "en" if decoder else "", **changes)
    evaluation["labels"] |= {"most": about["blocks"], "cut": 2 * decoder}
    evaluation["labels"] |= {"unknown_codes": {"texts": 1, "codes": 2}} if decoder else {}
    settings = {"train": {"objective": "labels"}, "labels": {"code": code}}
    return {"evaluation": evaluation, "labels": about, "settings": settings, "corpora": {"eng": CORPUS}}


HISCO = {
    "languages": {"eng": LABEL_FIGURES, "deu": LABEL_FIGURES},
    "digits": [0.9, 0.8],
    "threshold": {"value": 0.42, "f1": 0.77},
}


def test_the_card_says_what_the_averaged_weights_are():
    facts = trained("hybrid") | {"variants": ["main", "ema"]}
    assert 'has the moving average of the weights; `variant="main"`' in render(card(**facts))
    facts["settings"]["train"]["average_last"] = 0.2
    assert 'has the mean of the weights over the last 20 % of the steps; `variant="main"`' in render(card(**facts))


# One card for each kind of model and of origin: (facts that are not those of `card()`, metrics.jsonl).
KINDS = {
    "hybrid": (trained("hybrid") | {"authors": ["A. Author"], "description": "A *short* text.\n\nMore."}, RECORD),
    "hybrid_mntp": (trained("hybrid") | {"variants": ["main", "ema"], "logits_alignment": "mntp"}, RECORD),
    "masked": (trained("masked", gate=False) | {"carbon_grams": 1234.5}, RECORD),
    "causal": (trained("causal"), RECORD),
    "diffusion": (trained("diffusion", max_position_embeddings=512), RECORD),
    "prompts": (
        trained("causal")
        | {"corpora": {"eng": corpus({"prompt_column": "question"}, with_prompt={"train": 9, "validation": 1})}},
        RECORD,
    ),
    "transformers_from_scratch": (trained("causal", "gpt2") | {"padless": True, "published_tokenizer": True}, RECORD),
    "transformers_continued": (
        trained("masked", "bert") | {"begun_with": REPOSITORY, "tokenizer_source": "owner/name", "mask": "[MASK]"},
        RECORD,
    ),
    "transformers_diffusion": (trained("diffusion", "eurobert") | {"mask": None}, RECORD),
    "adapters_also": (trained("causal", "gemma3") | {"begun_with": REPOSITORY, "adapter": "also"}, RECORD),
    "adapters_only": (
        trained("causal", "llama") | {"begun_with": REPOSITORY | {"instructed": True}, "adapter": "only"},
        RECORD,
    ),
    "continued_from_a_model_of_the_workflow": (
        trained("causal")
        | {"begun_with": {"name": "eng", "sha256": "a" * 64, "languages": ["eng"], "tokens": 7200, "words": 5000}},
        RECORD,
    ),
    "mixture": (
        trained("causal")
        | {
            "languages": TWO,
            "corpora": {
                "eng": corpus({"builtin": "python-docs", "budget": 5.43}, hub=HUB | {"license": "mit"}, licenses={}),
                "zho": corpus(sources=[{}, {}]),
            },
            "figures": FIGURES | {"shares": {"eng": 0.25, "zho": 0.75}},
        },
        RECORD,
    ),
    "suites_and_snapshots": (
        trained("hybrid")
        | {
            "suites": suites("BLiMP"),
            "snapshots": ["chck_1M", "chck_2M"],
            "figures": FIGURES | {"missing_snapshots": ["chck_9M"]},
        },
        RECORD,
    ),
    "rehosted": (
        {
            "settings": {"model": {"hidden_size": 8}},
            "origin": f"Rehosted from commit [`{'c' * 40}`](https://huggingface.co/owner/name).",
            "earlier": EarlierCard(
                {"license": "mit", "tags": ["babylm", "old"], "pipeline_tag": "feature-extraction"},
                "## Citation\n\n```bibtex\n@misc{ada}\n```",
            ),
        },
        None,
    ),
    "converted_by_hand": (
        {
            "settings": {"model": {"hidden_size": 8}, "train": {"max_steps": 8, "epochs": 3}},
            "origin": "Converted by hand from the final weights of its training.",
            "figures": FIGURES,
            "variants": ["main", "ema"],
        },
        RECORD,
    ),
    "labels_classes": (of_codes("classes", ["bad", "good"], "linear"), RECORD),
    "labels_general": (of_codes("general", ["a1", "a2", "?"], "blocks") | {"model_type": "bert"}, RECORD),
    "labels_hisco": (
        of_codes("hisco", [f"{n:05}" for n in range(60)], "blocks", **HISCO)
        | {"languages": TWO | {"deu": {"name": "German", "tag": "de"}}, "model_type": "canine"},
        RECORD,
    ),
}
KINDS["labels_hisco"][0]["labels"] |= {"cleaning": {"normalization": "NFC"}, "names": {"00001": "baker"}}


@pytest.mark.parametrize("kind", [*KINDS, "snapshot"])
def test_the_card_of_each_kind_is_the_stored_one(kind):
    """`STORE_CARDS=1 pytest tests/unit/release/test_card.py -k stored` stores them anew: then read what `git diff` shows."""
    changes, record = KINDS.get(kind, ({}, None))
    text = render(card(**changes), record)
    if kind == "snapshot":
        figures = {"step": 1234, "million_words": 1.5, "tokens": 2_000_000, "words": 1_500_123}
        text = snapshot_card("eng_big", "chck_1M", "no: such", figures)
    text = re.sub(r"(?m)^Made by Babelmill .*$", lambda line: re.sub(r" \d[^ ,]*(?=[ ,.])", " 1.0", line[0]), text)
    path = CARDS / f"{kind}.md"
    if "STORE_CARDS" in os.environ:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_stored_card_is_left_over():
    assert {path.stem for path in CARDS.iterdir()} == {*KINDS, "snapshot"}
