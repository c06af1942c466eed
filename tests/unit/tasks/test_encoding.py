"""What a model reads of a row: which tokens belong to which word or text, what is cut, and what is no special token."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import CanineTokenizer, PreTrainedTokenizerFast

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError
from babelmill.tasks import encoding, metrics
from babelmill.tasks.encoding import NONE, Encoder, Padding, Row, pad, spread, targets, words_of_pieces
from babelmill.tasks.rows import SCHEMA
from babelmill.tune import equal_shares
from unit.tasks.test_tuner import HOW

WORDS = ["the", "quick", "don't", "日本", "10 000"]
TEXT = ["the quick fox", "do n't", "日 本 国", "1 0 000"]


def byte_level(prefix_space: bool) -> PreTrainedTokenizerFast:
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    fast.post_processor, fast.decoder = processors.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=alphabet, special_tokens=["<pad>"], show_progress=False
    )
    fast.train_from_iterator(TEXT, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="<pad>")


def word_pieces() -> PreTrainedTokenizerFast:
    """As BERT's: it drops accents and characters that it does not know, and puts special tokens around a text."""
    fast = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    fast.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=50, special_tokens=special, show_progress=False)
    )
    around = [("[CLS]", 1), ("[SEP]", 2)]
    fast.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return PreTrainedTokenizerFast(tokenizer_object=fast)


def of_words(form: dict[str, str]) -> PreTrainedTokenizerFast:
    """A token per word; `form` says which special tokens stand around texts and pairs."""
    fast = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "b": 3}, "a"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if form:
        fast.post_processor = processors.TemplateProcessing(**form, special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=fast, mask_token="[MASK]", model_input_names=names)


BERTS = of_words({"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"})
TOKENIZERS = {"byte level": byte_level(False), "with a prefix space": byte_level(True), "word pieces": word_pieces()}


def encoder(tokenizer, longest: int = 16, types: bool = False, **changes) -> Encoder:
    how = Tuning.model_validate(HOW | changes)
    return Encoder(tokenizer, {"A": 0, "B": 1}, longest, how, types)


def tagged(tokenizer, *found: list[str], longest: int = 100, **changes) -> list[Row]:
    return encoder(tokenizer, longest, **changes).sentences(found, [["A"] * len(each) for each in found])


def ids_of(rows: list[Row]) -> list[list[int]]:
    return [row.tokens["input_ids"] for row in rows]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokens_of_each_word_give_the_word(name):
    """Whatever a tokenizer does with spaces, accents and bytes: a word's tokens are those of this word alone."""
    tokenizer = TOKENIZERS[name]
    (row,) = tagged(tokenizer, WORDS)
    for number, word in enumerate(WORDS):
        pairs = zip(row.tokens["input_ids"], row.tokens["words"], strict=True)
        mine = [token for token, of in pairs if of == number]
        if name == "word pieces":
            assert mine == tokenizer(word, add_special_tokens=False)["input_ids"]
        else:
            assert tokenizer.decode(mine).replace(" ", "") == word.replace(" ", "")
    assert row.reached.all() and [of for of in dict.fromkeys(row.tokens["words"]) if of != NONE] == [0, 1, 2, 3, 4]


def test_numbers_of_words_never_fall():
    """Some tokenizers split a letter that ends a word into pieces, one of which also holds what follows."""
    assert words_of_pieces(["a", "b", "c"], [(0, 1), (0, 3), (0, 1), (3, 4), (4, 5)]) == [0, 1, 1, NONE, 2]


def test_words_that_a_model_does_not_see():
    """Some are cut off, and of some there is no token: they have no prediction, which is wrong, or are left out."""
    found = tagged(TOKENIZERS["word pieces"], ["the", "\u200b", "the", "the"], longest=4)
    assert found[0].cut and found[0].reached.tolist() == [True, False, True, False]
    assert found[0].tokens["words"] == [NONE, 0, 1, NONE] and targets(found).tolist() == [0, 0]
    left = tagged(TOKENIZERS["word pieces"], ["the", "\u200b", "the", "the"], longest=4, words_cut="left_out")
    for rows, right, score in ((found, [0, NONE, 0, NONE], 0.5), (left, [0, 0], 1.0)):
        told = spread(rows, np.zeros(2, int), NONE)
        assert rows[0].tokens == found[0].tokens and told[0].tolist() == right
        assert metrics.value("accuracy", [row.labels for row in rows], told, ["A"], True) == score


def test_a_tokenizer_that_does_not_say_where_its_tokens_stand():
    with pytest.raises(UserError, match="CanineTokenizer does not say which tokens belong to which word, so the model"):
        tagged(CanineTokenizer(), ["ba", "ab"])


def test_the_texts_of_a_pair_are_told_apart():
    """BERT reads the type of each token, as transformers' Trainer gives it; a single text has only one type."""
    given = ["a b", "a"], ["b", "b"], ["A", "B"]
    pairs = encoder(BERTS, types=True).texts(*given)
    assert [row.tokens["token_type_ids"] for row in pairs] == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    assert {*encoder(BERTS).texts(*given)[0].tokens} == {"input_ids"} and targets(pairs).tolist() == [0, 1]
    (single,) = encoder(BERTS, types=True).texts(["a b"], [None], ["A"])
    assert {*single.tokens} == {"input_ids"}
    found = pad(pairs[::-1], Padding(4, True, None))
    assert found["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert found["input_ids"][0].tolist() == [4, 0, 2, 1, 3, 1] and found["attention_mask"][0].tolist() == [0, *[1] * 5]


def test_rows_are_encoded_in_portions_and_without_ends_that_nothing_reads(monkeypatch):
    firsts, pairs = (["a b " * count for count in counts] for counts in ((1, 5, 200, 2, 90), (1, 200, 3, 0, 90)))
    for seconds in ([None] * 5, pairs):
        given = (firsts,) if None in seconds else (firsts, pairs)
        expected = BERTS(*given, truncation=True, max_length=16)["input_ids"]
        for most in (1, 2, 100):
            monkeypatch.setattr(encoding, "AT_ONCE", most)
            found = encoder(BERTS).texts(firsts, seconds, [*"ABABA"])
            assert ids_of(found) == expected and sum(row.cut for row in found) == (2 if None in seconds else 3)
    seen: list[int] = []
    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", lambda self, texts, **_: seen.append(len(texts[0])) or {})
    with pytest.raises(KeyError):
        encoder(BERTS).texts(["a " * 100_000], [None], ["A"])
    assert seen == [16 * encoding.PER_TOKEN], "a tokenizer keeps all that it cuts off"


def test_the_name_of_a_special_token_in_a_text_is_plain_text():
    """As in training; the challenge's scripts read it as the special token, and so do its protocols."""
    for plain, token in ((True, 2), (False, 4)):
        (row,) = encoder(BERTS, plain_text=plain).texts(["b [MASK] b"], [None], ["A"])
        assert row.tokens["input_ids"] == [0, 3, token, 3, 1]
        (row,) = tagged(BERTS, ["b", "[MASK]", "b"], plain_text=plain)
        assert row.tokens["input_ids"] == [0, 3, token, 3, 1] and row.reached.all()


def test_a_row_without_tokens(tmp_path):
    """A tokenizer such as GPT-2's adds none, and a model answers an empty row with numbers that mean nothing."""
    table = {"text": ["a", ""], "pair": [None, None], "label": ["A", "B"], "whole": [True, False]}
    pq.write_table(pa.Table.from_pydict(table, SCHEMA), tmp_path / "train.parquet")
    with pytest.raises(UserError, match="row 2 of the split train is empty, or the model's tokenizer makes no token"):
        encoder(of_words({})).rows(tmp_path, "train")


def test_equal_shares_of_languages():
    """As many of each as the smallest has, in the order that the multilingual track gives them (seed 42)."""
    tokenizer = TOKENIZERS["word pieces"]
    mixed = equal_shares([tagged(tokenizer, *[["the"]] * 3), tagged(tokenizer, *[["quick", "the"]] * 7)])
    order = np.random.default_rng(42).permutation(6)
    assert [len(row.labels) for row in mixed] == [[1, 1, 1, 2, 2, 2][number] for number in order]
