"""`tokenizer.prefix_space`: a space before each text, of which nobody sees anything in a decoded text or in offsets."""

import random

import numpy as np
import pytest
from tokenizers import Tokenizer

from babelmill import tokenizer as stage_tokenizer
from babelmill.config.resolve import Configuration
from babelmill.core.files import read_json
from babelmill.labels.data import frame_of
from babelmill.tokens import prefix_space
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import encode, load_tokenizer, vocab_size
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from helpers import stages

SENTENCE = "the cat sat on the mat, and the dog sat on the log."
BEGINNINGS = ["", "   ", " a", "  a", "\na", "\t a", "\u00a0a", "👩‍👩‍👧", *"a \n\u2028\ufeff\x00é中'"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A tokenizer that knows the words of SENTENCE, as the stage writes it."""
    folder = tmp_path_factory.mktemp("prefix")
    sentences = [SENTENCE.replace("cat", f"cat{i}") for i in range(30)]
    corpus = stages.write_corpus(folder / "eng", {"text": sentences}, {"text": [SENTENCE]})
    configuration = Configuration([("test", {"tokenizer": {"vocab_size": 290, "prefix_space": True}})])
    stages.run_stage("tokenizer", configuration, "eng", folder / "out", corpora=[corpus])
    return folder / "out/tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer(path) -> Tokenizer:
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def plain(path) -> Tokenizer:
    """As other programs load it: names of special tokens in a text are special tokens."""
    return Tokenizer.from_file(str(path))


def tokens(tokenizer: Tokenizer, *texts: str) -> list[str]:
    return tokenizer.encode(*texts, add_special_tokens=False).tokens


def test_a_word_alone_is_the_word_after_a_space(plain):
    assert tokens(plain, "the") == ["Ġthe"] and tokens(plain, "sat on the") == ["Ġsat", "Ġon", "Ġthe"]
    assert tokens(plain, " the") == ["Ġ", "Ġthe"], "a space that is there already stays"
    assert tokens(plain, "") == []
    assert plain.encode("the", "dog").tokens == ["<s>", "Ġthe", "<s>", *tokens(plain, "dog")]
    assert tokens(plain, "dog")[0][0] == "Ġ", "the second text of a pair has a space, too"


def test_every_text_is_given_back(tokenizer, plain):
    generator = random.Random(0)
    letters = [*" \n\t\r'-<>aZé中👩\u200d\u00a0\u0301\x00", *map(chr, generator.choices(range(0xE000, 0x110000), k=50))]
    some = ["".join(generator.choices(letters, k=generator.randrange(8))) for _ in range(2000)]
    names = [before + name + after for name in SPECIAL_TOKENS for before in ("", " ", "a") for after in ("", " ", "a")]
    texts = [*BEGINNINGS, *some, *names, stage_tokenizer.PROBE]
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    assert tokenizer.decode_batch(ids, skip_special_tokens=False) == texts
    assert min(map(min, filter(None, ids))) >= 16, "a special token's name in a document is ordinary text"
    for text in set(texts) - set(names) - {stage_tokenizer.PROBE}:
        assert plain.decode(plain.encode(text).ids) == text


def test_a_response_continues_its_prompt(path, tokenizer, tmp_path):
    """Together they are decoded to the text of both. (`e2e/test_space_before_texts.py` has documents without prompts.)"""
    answers = [text for text in [*BEGINNINGS, SENTENCE, "<s> a", "<mask>"] for _ in range(5)]
    questions = ["", "the", " the ", "<s>", "\n"] * (len(answers) // 5)
    columns = {"prompt": questions, "text": answers}
    corpus = stages.write_corpus(tmp_path / "corpus", columns, columns)
    out = tmp_path / "out"
    stages.run_stage("shards", Configuration([("test", {})]), "eng", out, tokenizer=path.parent, corpus=corpus)
    shard = ShardFile.open(out / "train.safetensors")
    for i, (prompt, text) in enumerate(zip(questions, answers, strict=True)):
        document = shard.tokens[shard.offsets[i] : shard.offsets[i + 1]].tolist()
        assert tokenizer.decode(document[1:-1], skip_special_tokens=False) == prompt + text
        assert document[: int(shard.responses[i] - shard.offsets[i])] == tokenizer.encode(prompt).ids
        if not prompt:
            assert document == [*tokenizer.encode(text).ids, 2]


def test_a_context_and_its_text_each_begin_with_a_space(path, tokenizer):
    """A row of a label model has the tokens that the exported tokenizer gives to this pair of texts."""
    context, text = (encode(tokenizer, [each])[0] for each in ("the cat1", "dog on"))
    row = frame_of(tokenizer, Vocabulary.read(path, vocab_size(tokenizer))).row(context, text, 100)
    assert row.tolist() == tokenizer.encode("the cat1", "dog on").ids


def test_words_between_spaces_are_words_of_a_list(plain):
    """A text that is split into words, as for labels of words: each word gets its space."""
    found = plain.encode(["the", "cat1", "sat"], is_pretokenized=True, add_special_tokens=False)
    assert np.flatnonzero([token.startswith("Ġ") for token in found.tokens]).tolist() == [0, 1, len(found.tokens) - 1]
    assert found.tokens[0] == "Ġthe" and found.tokens[-1] == "Ġsat"


def test_an_adopted_tokenizer_keeps_its_space(path, tmp_path):
    """`tokenizer.source` with the tokenizer of another model."""
    corpus = stages.write_corpus(tmp_path / "eng", {"text": [SENTENCE]}, {"text": [SENTENCE]})
    configuration = Configuration([("test", {"tokenizer": {"source": str(path)}})])
    stages.run_stage("tokenizer", configuration, "eng", tmp_path / "out", corpora=[corpus])
    assert read_json(tmp_path / "out/tokenizer.json") == read_json(path)
    assert prefix_space.is_put_in(path) and not prefix_space.is_put_in(tmp_path / "none.json")


def test_all_models_may_have_it_also_one_that_continues_another():
    values = {"tokenizer": {"prefix_space": True}, "models": {"more": {"model": {"source": "eng"}}}}
    assert Configuration([("test", values)]).model("more").tokenizer.prefix_space
