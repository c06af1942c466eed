"""The stage `tokenizer` on small real corpora: what it learns, what it must never lose, and what it refuses."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from babelmill import tokenizer as stage_tokenizer
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, read_json, write_json
from babelmill.tokens.documents import Documents
from babelmill.tokens.pretokenizer import parts
from babelmill.tokens.tokenizer_file import encode, load_tokenizer, special_ids, vocab_size
from babelmill.tokens.vocabulary import SPECIAL_TOKENS
from helpers import stages
from helpers.programs.prepared import run_module

# Article 1 of the Universal Declaration of Human Rights.
ARTICLE = {
    "eng": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience"
    " and should act towards one another in a spirit of brotherhood.",
    "deu": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt"
    " und sollen einander im Geist der Brüderlichkeit begegnen.",
    "zho": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "jpn": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを"
    "授けられており、互いに同胞の精神をもって行動しなければならない。",
    "tha": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "hin": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और"
    " परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "kan": "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ. ಹಾಗೂ ಘನತೆ ಮತ್ತು ಹಕ್ಕುಗಳಲ್ಲಿ ಸಮಾನರಾಗಿದ್ದಾರೆ.",
}


def write_corpus(folder: Path, training: list[str], validation: list[str] = ("Held out.",), labelled=False) -> Path:
    columns = [
        {"text": texts} | ({"labels": [["1"]] * len(texts)} if labelled else {}) for texts in (training, validation)
    ]
    return stages.write_corpus(folder, *columns, rows=7)


def run(tmp_path, corpora: dict[str, Path], out="out", **sections) -> tuple[Tokenizer, dict]:
    """Run the stage; returns the tokenizer and the manifest's figures."""
    values = {
        "languages": {code: {"name": code} for code in corpora},
        "models": {"model": {"languages": list(corpora), **sections}},
    }
    configuration, folder = Configuration([("test", values)]), tmp_path / out
    figures = stages.run_stage("tokenizer", configuration, "model", folder, corpora=list(corpora.values()))
    return load_tokenizer(folder / "tokenizer.json"), figures


def trained(language: str, size=2000) -> Tokenizer:
    return stage_tokenizer.train(iter([[ARTICLE[language]] * 50]), size, 2)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def test_special_tokens_and_templates(tmp_path):
    corpus = write_corpus(tmp_path / "eng", [ARTICLE["eng"]] * 20)
    tokenizer, figures = run(tmp_path, {"eng": corpus}, tokenizer={"vocab_size": 330})
    assert [tokenizer.id_to_token(i) for i in range(16)] == SPECIAL_TOKENS
    assert special_ids(tokenizer) == list(range(16))
    assert tokenizer.get_vocab_size() == vocab_size(tokenizer) == figures["vocab_size"] == 330
    single, pair = tokenizer.encode("free"), tokenizer.encode("free", "equal")
    assert single.tokens[0] == "<s>" and single.tokens.count("<s>") == 1 and "</s>" not in single.tokens
    assert pair.ids == single.ids + tokenizer.encode("equal").ids
    plain = Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))  # as users of the exported model load it
    assert plain.encode("The <mask> is").tokens[-3:-1] != ["Ġ", "<mask>"]
    assert plain.encode("The <mask>").ids == [*plain.encode("The").ids, 4]


@pytest.mark.parametrize("language", ARTICLE)
def test_every_script_is_given_back_and_has_whole_words(language):
    tokenizer, text = trained(language), ARTICLE[language]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    parts = pieces(tokenizer, text)
    assert "".join(parts) == text and max(map(len, parts)) <= 24
    assert len(ids) == len(parts), "what is frequent enough becomes one token, whatever its script"
    # Letters stay with their marks: no piece begins inside a word. (Thai and Chinese clauses can exceed the cap.)
    words = [word.strip(".,。、।") for word in text.split()]
    if max(map(len, words)) <= 22:
        assert [part.strip(" .,।") for part in parts if part.strip(" .,।")] == words


@pytest.mark.parametrize(
    "text, expected",
    [
        ("don't l'eau м’ять", ["don't", " l'eau", " м’ять"]),
        ("in 1987, 3.5", ["in", " 1", "9", "8", "7", ",", " 3", ".5"]),
        ("(see »Haus«)", ["(see", " »Haus", "«)"]),
        ("می‌خواهم क्‍ष", ["می‌خواهم", " क्‍ष"]),
        ("a  b\n\nc", ["a", " ", " b", "\n", "\n", "c"]),
        ("x" * 60, ["x" * 22, "x" * 22, "x" * 16]),
        ("-" * 60 + " " * 60, ["-" * 16] * 3 + ["-" * 12, " " * 24, " " * 24, " " * 12]),
    ],
)
def test_pieces(text, expected):
    assert pieces(trained("eng", 300), text) == expected


def test_long_documents_are_encoded_in_parts(monkeypatch):
    """Random text of everything that pieces depend on. Only where there is no space do tokens differ at a cut."""
    generator = random.Random(0)
    units = [*" \n\ta。.-", "  ", "\n\n\n", "\r\n", "Zu", "word", "é", "e\u0301", "क्‍ष", "漢字", "..."]
    units += ["'", "’", "’s", "1", "23", "½", "\u00a0", "\u200c", "<s>", "·", "(", "x" * 30, "_", "👩‍👩‍👧"]
    texts = ["".join(generator.choices(units, k=500)) for _ in range(200)]
    tokenizer = stage_tokenizer.train(iter([texts]), 1200, 2)
    words = [" ".join(generator.choices(["a", "Zu", "é", "漢字", "(1)", "not\nso"], k=250)) for _ in range(20)]
    for name, value in (("pretokenizer.PART", 8), ("tokenizer_file.LONG", 100), ("tokenizer_file.GROUP", 3)):
        monkeypatch.setattr(f"babelmill.tokens.{name}", value)
    for given, same in ((words, True), (texts, False)):
        tokens, lengths = encode(tokenizer, given)
        found = [ids.tolist() for ids in np.split(tokens, np.cumsum(lengths)[:-1])]
        whole = [encoding.ids for encoding in tokenizer.encode_batch_fast(given, add_special_tokens=False)]
        assert (found == whole) is same
        assert [tokenizer.decode(ids, skip_special_tokens=False) for ids in found] == given
        assert sum(len(list(parts(text))) for text in given) > 1000


def test_no_text_is_lost(tmp_path):
    trained("eng", 300).save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0x110000, 29)]))
    texts = [stage_tokenizer.PROBE, everything, "a<s>b</s> <mask> <unk><special_3>"]
    for text, encoding in zip(texts, tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True):
        assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
        assert min(encoding.ids) >= 16, "a special token's name in a document is ordinary text"


def test_the_same_bytes_on_every_run_and_for_every_number_of_threads(tmp_path):
    text = " ".join(ARTICLE.values())
    corpus = write_corpus(tmp_path / "eng", [text[i : i + 300] + text[:i] for i in range(0, 900, 7)])
    configuration = Configuration([("test", {"tokenizer": {"vocab_size": 700}})])
    asked = stages.settings_of(configuration, "eng", "tokenizer") | {"made_from": {"corpora": [str(corpus)]}}
    for out, threads, parallel in (("1", "1", "true"), ("2", "2", "false"), ("3", "3", "true")):
        write_json(tmp_path / out / "eng.json", asked)
        environment = os.environ | {"TOKENIZERS_PARALLELISM": parallel}
        words = "babelmill.tokenizer", "eng.json", "--threads", threads
        run_module(*words, cwd=tmp_path / out, environment=environment, check=True)
    for name in ("tokenizer.json", "manifest.json"):
        assert len({(tmp_path / out / "results/tokenizer/eng" / name).read_bytes() for out in "123"}) == 1


def test_report(tmp_path):
    corpora = {code: write_corpus(tmp_path / code, [ARTICLE[code]] * 30, [ARTICLE[code]]) for code in ("eng", "hin")}
    tokenizer, figures = run(tmp_path, corpora, tokenizer={"vocab_size": 380})
    for language, figure in figures["report"].items():
        assert figure["round_trip_rate"] == 1
        assert 1 < figure["bytes_per_token"] < len(ARTICLE[language].encode())
        assert figure["tokens_per_word"] > 1
        assert 0 < figure["vocabulary_used"] < 0.6
    words, tokens = len(ARTICLE["eng"].split()), len(tokenizer.encode(ARTICLE["eng"], add_special_tokens=False).ids)
    assert figures["report"]["eng"]["tokens_per_word"] == pytest.approx(tokens / words, abs=1e-4)


@pytest.mark.parametrize("weights, share", [(1.0, 0.9), (0.0, 0.5), (0.5, 0.75)])
def test_languages_are_trained_in_the_proportions_of_the_mixture(tmp_path, weights, share):
    """9,000 bytes of a against 1,000 of b, documents of many lengths."""
    lengths = [5, 50, 20, 25] * 90
    for name, documents in (("a", lengths), ("b", lengths[:40])):
        write_corpus(tmp_path / name, [name * length for length in documents])
    corpora = [Documents(tmp_path / name / "train.parquet") for name in "ab"]
    for limit in (10**9, 4000):
        text = "".join(t for texts in stage_tokenizer.text_to_train_on(corpora, weights, limit) for t in texts)
        assert len(text) == pytest.approx(min(10000, limit), abs=50)
        assert text.count("a") / len(text) == pytest.approx(share, abs=0.01)


def test_too_little_text_says_for_how_much_it_is_enough(tmp_path, caplog):
    """A labelled table is as large as it is: its owner cannot add text."""
    texts = ["farmer", "fisher and farmer", "baker"] * 3
    corpora = {
        "eng": write_corpus(tmp_path / "eng", texts),
        "occ": write_corpus(tmp_path / "occ", texts, labelled=True),
    }
    with pytest.raises(
        UserError, match=r"vocab_size = 4000: the text of eng occ is enough for (\d+) entries; add text, or"
    ) as error:
        run(tmp_path, corpora, tokenizer={"vocab_size": 4000})
    assert not (tmp_path / "out").exists()
    enough = int(str(error.value).rpartition("to ")[2].split()[0])
    assert run(tmp_path, corpora, tokenizer={"vocab_size": enough})[1]["vocab_size"] == enough
    tokenizer, figures = run(tmp_path, {"occ": corpora["occ"]}, "other", tokenizer={"vocab_size": 4000})
    entries = tokenizer.get_vocab_size()
    assert 260 < entries < 300 and figures["vocab_size"] == entries
    assert f"vocab_size = 4000: the text of occ is enough for {entries} entries; the tokenizer of" in caplog.text


# One's own tokenizer.


def own(path: Path, special: int = len(SPECIAL_TOKENS), **changes) -> str:
    """Write a tokenizer.json as others do: it cuts and pads texts, and begins them with nothing.

    Args:
        special: how many special tokens are declared as such.
        changes: what else is different in the file.
    """
    tokenizer = trained("eng", 300)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    content = json.loads(tokenizer.to_str()) | {"post_processor": None} | changes
    write_json(path, content | {"added_tokens": content["added_tokens"][:special]})
    return str(path)


def test_ones_own_tokenizer(tmp_path):
    corpus = write_corpus(tmp_path / "deu", [ARTICLE["deu"]] * 3)
    tokenizer, figures = run(tmp_path, {"deu": corpus}, tokenizer={"source": own(tmp_path / "own.json")})
    assert figures["vocab_size"] == vocab_size(tokenizer) == 300
    encoding = tokenizer.encode(ARTICLE["deu"])
    assert encoding.tokens[0] == "<s>" and len(encoding.ids) > 20, "no truncation"
    saved = read_json(tmp_path / "out/tokenizer.json")
    assert saved["truncation"] is None and saved["padding"] is None
    assert figures["report"]["deu"]["round_trip_rate"] == 1


@pytest.mark.parametrize(
    "content, message",
    [
        ({"special": 4}, "<mask> is expected among the special tokens"),
        ({"special": 0}, "<s> is expected among the special tokens"),
        ({"normalizer": {"type": "NFKC"}}, "that loses no text"),
        ({"decoder": None}, "that loses no text"),
        ("{}", "a file of the `tokenizers` library"),
        (None, "no such file"),
    ],
)
def test_ones_own_tokenizer_must_be_fit_for_training(tmp_path, content, message):
    corpus, source = write_corpus(tmp_path / "deu", [ARTICLE["deu"]]), tmp_path / "own.json"
    said = "tokenizer.source: .*" if isinstance(content, dict) else ""
    if isinstance(content, dict):
        own(source, **content)
    elif content:
        source.write_text(content)
    with pytest.raises(UserError, match=rf"{said}own\.json.*{message}"):
        run(tmp_path, {"deu": corpus}, tokenizer={"source": str(source)})
