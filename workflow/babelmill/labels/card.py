"""Write the card of a model of labels: how to use it, what was measured, and which codes it knows."""

from typing import Any

from babelmill.core.escape import Markdown, code, markdown
from babelmill.core.words import plural
from babelmill.evaluation.metrics import shown, value_of
from babelmill.labels.picture import PICTURE
from babelmill.release.card.card_table import table

TASK = "text-classification"
CODES = 50  # how many codes the card lists at most
MISTAKES = 10
NO_CODE = "?"  # as in `labels/codes.py`
# {metric: (name on the Hub, description)}
HUB_METRICS = {"exact": ("accuracy", "exact set of codes"), "f1": ("f1", "micro F1")}
SYSTEMS = {
    "classes": "classes",
    "general": "codes",
    "hisco": "[HISCO](https://historyofwork.iisg.nl) codes of occupations",
    "occ1950": "OCC1950 codes of occupations",
}
METHODS = {"blocks": "the decoder, symbol by symbol", "linear": "the classifier"}

PREDICT = """\
```python
# Predict the codes of texts, and the probability of each.{asks}
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{path}"{trust})
model = AutoModel.from_pretrained("{path}", trust_remote_code=True)
texts = [{text}]
inputs = tokenizer({given}, padding=True, truncation=True, return_tensors="pt")
for found in model.predict(inputs["input_ids"], inputs["attention_mask"], top={top}, method="{method}"):
    print("codes:", found.codes)
    print("likeliest:", found.likeliest){printed}
```"""
PIPELINE = """\
```python
# Use only the classifier{without_code}.{fours}
from transformers import pipeline

classify = pipeline("text-classification", model="{path}"{trust})
print(classify({given}, top_k={top}{padding}))
```"""
FOURS = """ The CANINE of transformers reads groups of four characters:
# without padding to whole groups, it fails on shorter texts, and gives other texts other probabilities."""
NOTES = """\
* {weights}
* The model itself computes the probability of a code. The calibration says how reliable it is.
* `AutoModel` runs `modeling_codes.py` of this folder: read it, and pin a `revision=` before you trust it."""


def introduction(kind: str, languages: str, parameters: str, about: dict[str, Any]) -> str:
    """Return the sentences that say what the model is. `about` is `labels` in config.json."""
    most = about["blocks"]
    several = "exactly one" if most == 1 else f"1 to {most}"
    spelt = " and a decoder that spells them" if about["decoder_layers"] else ""
    return (
        f"This model predicts the codes of texts{f' in {languages}' if languages else ''}: {several} of"
        f" {len(about['codes']):,} {SYSTEMS[about['code']]} per text, with probabilities. It is a {kind} encoder with a"
        f" classifier{spelt}, and has {parameters} parameters."
    )


def use(
    path: str, about: dict[str, Any], example: dict[str, Any] | None, model_type: str | None, weights: str
) -> list[str]:
    """Return code that works without changes, notes on it, and the purpose of the model.

    Args:
        path: the path of the folder.
        about: `labels` in config.json.
        example: a text with a correct prediction in the evaluation, or None if there is none.
        model_type: the encoder's model type in transformers; None for a GPT-BERT.
        weights: a sentence that says which weights there are.
    """
    text, context = (example["text"], example.get("context", "")) if example else ("A text", "")
    trust = "" if model_type else ", trust_remote_code=True"
    in_fours = model_type == "canine"
    pair = {"text": text, "text_pair": ""} if not context else {"text": context, "text_pair": text}
    printed = ""
    if example:
        pairs = ", ".join(f"({entry['code']!r}, {entry['chance']:.3f})" for entry in example["likeliest"])
        printed = f"\n# codes: [({example['likeliest'][0]['code']!r}, {example['likeliest'][0]['chance']:.3f})]"
        printed += f"\n# likeliest: [{pairs}]"
    top = len(example["likeliest"]) if example else 3
    method = "blocks" if about["decoder_layers"] else "linear"
    known = {"path": path, "trust": trust, "top": top}
    asks = ' `method="linear"` uses the classifier instead of the decoder.' if about["decoder_layers"] else ""
    given = f"[{context!r}], texts" if context else "texts"
    return [
        "## Use",
        f"`{path}` means this folder, or its name on the Hub. If texts have contexts, such as their language or their"
        " source, give the tokenizer pairs: `tokenizer(contexts, texts)`.",
        PREDICT.format(**known, text=repr(text), given=given, method=method, asks=asks, printed=printed),
        PIPELINE.format(
            **known,
            given=repr(pair) if context else repr(text),
            without_code=", which needs no code of this folder" if model_type else "",
            fours=FOURS if in_fours else "",
            padding=", padding=True, pad_to_multiple_of=4" if in_fours else "",
        ),
        "\n".join([NOTES.format(weights=weights), *notes(about)]),
        f"The model suggests {SYSTEMS[about['code']]} for short texts like those that it was trained on. It knows only"
        f" the codes below, and gives each text {'exactly' if about['blocks'] == 1 else 'at least'} one of them. A"
        " person should check important predictions, and begin with those of low probability.",
    ]


def notes(about: dict[str, Any]) -> list[str]:
    """Return notes on how to clean texts, on the names of codes, and on the code for "no code"."""
    cleaning = about.get("cleaning", {})
    done = {"normalization": 'normalized (`unicodedata.normalize("NFC", text)`)'}
    done |= {"control_characters": "cleaned of control characters"}
    said = " and ".join(done[key] for key in done if key in cleaning)
    lines = [f"* Its training text was {said}. Do the same to yours, as `babelmill predict` does."] if said else []
    named = '* `model.config.labels["names"]` has the names of the codes.'
    none = f"* `{NO_CODE}` means that a text has no code."
    return [*lines, *([named] if "names" in about else []), *([none] if NO_CODE in about["codes"] else [])]


def results(evaluation: dict[str, Any], variant: str, languages: dict[str, Any]) -> list[str]:
    """Return the sections with the figures of the default weights. `languages` is {code: {"name"}}."""
    found, scores = evaluation["labels"], evaluation["variants"][variant]
    every = found["figures"][variant]
    own = every[found["method"]]
    exact, f1 = scores["exact"], scores["f1"]
    frequent = [value_of(evaluation["most_frequent"][name]) for name in ("exact", "f1")]
    documents = evaluation["documents"]
    unknown, cut = found["unknown_codes"], found["cut"]
    sentences = [
        f"Texts with exactly the right codes: {shown(exact)}, {exact['right']:,} of {exact['of']:,}. Micro F1:"
        f" {shown(f1)}, {f1['right']:,} right codes of {f1['predicted']:,} predicted and {f1['of']:,} true ones. (±"
        " the standard error over texts; a model that always predicts the most frequent code has"
        f" {frequent[0]:.3f} and {frequent[1]:.3f}.)",
        f"All {documents['scored']:,} validation texts with a code were scored. The model was not trained on them.",
    ]
    if unknown["codes"]:
        sentences.append(
            f"In {plural(unknown['texts'], 'text')}, the model does not know a code, which counts as not found"
            f" ({plural(unknown['codes'], 'such code')})."
        )
    if cut:
        sentences.append(f"Texts that were cut, since they are longer than the model can read: {cut:,}.")
    parts = ["## Results", " ".join(sentences), by_method(every, found["baseline"])]
    if len(own["languages"]) > 1:
        parts.append(
            table(["language", *HEADER], [[languages[k]["name"], *cells(v)] for k, v in own["languages"].items()])
        )
    if len(own["contexts"]) > 1:
        rows = [[context_name(entry), *cells(entry)] for entry in own["contexts"]]
        parts.append(table(["context", *HEADER], rows))
    if own["columns"]:
        rows = [
            [short(name), v["texts"], v["found"], v["top_1"], v["top_3"], v["top_5"]]
            for name, v in own["columns"].items()
        ]
        parts.append(table(["column of labels", "texts", "codes found", "top 1", "top 3", "top 5"], rows))
    return [*parts, *trusted(own, every, found["method"], found["most"]), *mistaken(own["mistakes"])]


HEADER = ("texts", "exact", "precision", "recall", "F1", "macro F1", "top 1", "top 3", "top 5")


def cells(entry: dict[str, Any]) -> list[Any]:
    """Return the cells of one row of figures, in the order of HEADER."""
    micro = entry["micro"]
    tops = [entry[f"top_{k}"] for k in (1, 3, 5)]
    rates = [entry["exact"], micro["precision"], micro["recall"], micro["f1"], entry["macro"]["f1"], *tops]
    return [entry["texts"], *(f"{rate:.3f}" for rate in rates)]


def by_method(every: dict[str, Any], baseline: dict[str, Any]) -> str:
    """Return the table of the figures over all texts, by method."""
    rows = [[Markdown(f"`{name}`: {METHODS[name]}"), *cells(entry)] for name, entry in every.items()]
    made = table(["method", *HEADER], [*rows, ["the most frequent codes", *cells(baseline)]])
    return (
        f"{made}\n\nPrecision, recall and F1 count all codes together; macro F1 is the mean over codes. Top 3 is the"
        " share of texts with a true code among the three most probable ones."
    )


def context_name(entry: dict[str, Any]) -> str:
    """Return the name of a context, for a table."""
    if entry["context"] is None:
        return f"{entry['contexts']:,} others"
    return code(short(entry["context"])) or "none"


def trusted(own: dict[str, Any], every: dict[str, Any], method: str, most: int) -> list[str]:
    """Return the section on calibration, on how many symbols are right, and on the best threshold.

    Args:
        own: the figures of the model's main method.
        every: the figures of each method.
        method: the name of the main method.
        most: how many codes a text has at most.
    """
    error = own["calibration"]["expected_error"]
    sentences = [
        f"On average, the probability of the most probable code (`{method}`) differs by {error:.3f} from the share of"
        f" such codes that are right (expected calibration error, {len(own['calibration']['bins'])} bins)."
    ]
    if own["digits"]:
        shares = ", ".join(f"{n}: {share:.3f}" for n, share in enumerate(own["digits"], 1))
        sentences.append(f"Share of texts whose first code has its first n symbols right: {shares}.")
    if best := every["linear"]["threshold"]:
        sentences.append(
            f"In the figures of `linear`, a second or later code counts from a probability of 0.5 on. Its micro F1 on"
            f" these texts would be highest, {best['f1']:.3f}, with a threshold of {best['value']:.3f}. This is the"
            " `threshold` in `config.json`, which `predict` uses if you give it no other one."
        )
    if most > 1:
        sentences.append(
            "These figures are about only the most probable code of each text."
            + (
                " The decoder's probability of a code is the probability that it comes first. If a text has several"
                " codes, they share this probability, so a code is right more often than its probability says."
                if method == "blocks"
                else ""
            )
            + " The classifier computes the probability of each code independently, so those of a text need not sum to"
            " 1."
        )
    picture = f"![reliability of the probabilities, and shares of texts that are right]({PICTURE})"
    return ["### Calibration", " ".join(sentences), picture]


def mistaken(mistakes: list[dict[str, Any]]) -> list[str]:
    """Return the section with the most frequent mistakes."""
    if not mistakes:
        return []
    rows = [
        [
            *(called(entry[side]) if entry[side] else "none" for side in ("true", "predicted")),
            entry["count"],
            short(entry["examples"][0]["text"]),
        ]
        for entry in mistakes[:MISTAKES]
    ]
    return ["### Most frequent mistakes", table(["true code", "predicted", "texts", "for example"], rows)]


def called(entry: dict[str, Any]) -> Markdown:
    """Return a code with its name."""
    return Markdown(f"{code(short(entry['code']))} {markdown(short(entry.get('name', '')))}".strip())


def short(text: str) -> str:
    """Return text as one line of at most 80 characters, for a table."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def label_list(evaluation: dict[str, Any]) -> list[str]:
    """Return the section with the codes that the model knows, or the most frequent ones if there are many."""
    codes = evaluation["labels"]["codes"]
    named = any("name" in entry for entry in codes)
    rows = [
        [code(short(entry["code"])), *([short(entry.get("name", ""))] if named else []), entry["training"]]
        for entry in codes[:CODES]
    ]
    most = f"The {CODES} most frequent of {len(codes):,}; all" if len(codes) > CODES else f"All {len(codes):,}; they"
    return [
        "## Codes",
        f"{most} are in `config.json` (`id2label`).",
        table(["code", *(["name"] if named else []), "training texts"], rows),
    ]
