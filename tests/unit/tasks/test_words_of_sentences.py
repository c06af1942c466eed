"""Which tokens belong to which word, what a model says of words, and how that is scored."""

import dataclasses

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    CanineTokenizer,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
)

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError
from babelmill.tasks.sentences import NONE, encode_sentences, words_of_pieces
from babelmill.tasks.tagger import OwnTagger, PooledTagger
from babelmill.tasks.tuner import Padding, Tuner, set_seed
from babelmill.tune import equal_shares
from unit.tasks.test_tuner import Interrupts

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


TOKENIZERS = {
    "byte level": byte_level(False),
    "with a prefix space": byte_level(True),
    "word pieces": word_pieces(),
    "characters": CanineTokenizer(),
}


def encoded(tokenizer, *sentences: list[str], longest: int = 100, leave_out: bool = False):
    return encode_sentences(tokenizer, sentences, [["A"] * len(each) for each in sentences], ["A"], longest, leave_out)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokens_of_each_word_give_the_word(name):
    """Whatever a tokenizer does with spaces, accents and bytes: a word's tokens are those of this word alone."""
    tokenizer = TOKENIZERS[name]
    found = encoded(tokenizer, WORDS)
    (ids,), (words,) = found.ids, found.words
    for number, word in enumerate(WORDS):
        mine = [token for token, of in zip(ids, words, strict=True) if of == number]
        if name in ("characters", "word pieces"):
            assert mine == tokenizer(word, add_special_tokens=False)["input_ids"]
        else:
            assert tokenizer.decode(mine).replace(" ", "") == word.replace(" ", "")
    assert found.reached[0].all() and [of for of in dict.fromkeys(words) if of != NONE] == [0, 1, 2, 3, 4]


def test_numbers_of_words_never_fall():
    """Some tokenizers split a letter that ends a word into pieces, one of which also holds what follows."""
    assert words_of_pieces(["a", "b", "c"], [(0, 1), (0, 3), (0, 1), (3, 4), (4, 5)]) == [0, 1, 1, NONE, 2]


def test_words_that_a_model_does_not_see():
    """Some are cut off, and of some there is no token: they have no prediction, which is wrong, or are left out."""
    tokenizer = TOKENIZERS["word pieces"]
    found = encoded(tokenizer, ["the", "\u200b", "the", "the"], longest=4)
    assert found.cut == 1 and found.reached[0].tolist() == [True, False, True, False]
    assert found.words == [[NONE, 0, 1, NONE]] and found.targets([0]).tolist() == [0, 0]
    logits = np.ones((2, 1))
    assert found.predictions(logits)[0].tolist() == [0, NONE, 0, NONE] and found.score("accuracy", logits) == 0.5
    left = encoded(tokenizer, ["the", "\u200b", "the", "the"], longest=4, leave_out=True)
    assert left.words == found.words and left.score("accuracy", logits) == 1.0
    canine = encoded(TOKENIZERS["characters"], ["ab", "cd"], longest=5)
    assert canine.words == [[NONE, 0, 0, NONE, NONE]] and canine.reached[0].tolist() == [True, False]


@pytest.mark.slow
def test_a_tokenizer_that_tells_nothing_of_its_tokens():
    class Unknown(CanineTokenizer):
        """Reads the letters of a word in another order than those of a text."""

        def _tokenize(self, text):
            return sorted(text)

    with pytest.raises(UserError, match="Unknown does not say which tokens belong to which word, so the model cannot"):
        encoded(Unknown(), ["ba", "ab"])


def saved(folder, made, **settings):
    made.save_pretrained(folder)
    return folder


BERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def test_which_tokens_say_what_a_word_is(tmp_path):
    """The first piece, or the last one; the challenge's head reads their mean, and no padding, on either side."""
    folder = saved(tmp_path, BertModel(BertConfig(**BERT, max_position_embeddings=16)))
    set_seed(1)
    first = OwnTagger(folder, 3, 0, "first").eval()
    set_seed(1)
    last, pooled = OwnTagger(folder, 3, 0, "last").eval(), PooledTagger(folder, 3, 0.1).eval()
    both = [[5, 6, 7, 8, 9], [10, 11, 12]], [[NONE, 0, 0, 1, NONE], [0, NONE, 0]]
    found = dataclasses.replace(encoded(TOKENIZERS["word pieces"], ["the"]), ids=both[0], words=both[1])
    rows = [found.batch([0, 1], Padding(0, left, None)) for left in (False, True)]
    alone = found.batch([0], Padding(0, False, None)), found.batch([1], Padding(0, False, None))
    for model, chosen in ((first, ([1, 3], [0])), (last, ([2, 3], [2]))):
        whole = [model.encoder(input_ids=ids, attention_mask=there).logits[0] for ids, there, _ in alone]
        expected = torch.cat([whole[0][chosen[0]], whole[1][chosen[1]]])
        assert torch.allclose(model(*rows[0]), expected, atol=1e-5)
    states = [pooled.encoder(input_ids=ids, attention_mask=there).last_hidden_state[0] for ids, there, _ in alone]
    means = torch.stack([states[0][1:3].mean(0), states[0][3], states[1][[0, 2]].mean(0)])
    assert torch.allclose(pooled(*rows[0]), pooled.head(means), atol=1e-5)
    gpt2 = saved(
        tmp_path / "gpt2", GPT2Model(GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=16))
    )
    for model in (OwnTagger(gpt2, 3, 0, "last"), PooledTagger(gpt2, 3, 0.1)):
        assert model.eval()(*rows[0]).shape == (3, 3)


def test_equal_shares_of_languages():
    """As many of each as the smallest has, in the order that the multilingual track gives them (seed 42)."""
    tokenizer = TOKENIZERS["word pieces"]
    few, many = encoded(tokenizer, *[["the"]] * 3), encoded(tokenizer, *[["quick", "the"]] * 7)
    mixed = equal_shares([few, many])
    order = np.random.default_rng(42).permutation(6)
    assert [len(each) for each in mixed.labels] == [[1, 1, 1, 2, 2, 2][number] for number in order]


def test_killed_anywhere_the_tags_have_the_same_bits(tmp_path):
    """In the middle of an epoch, and twice; noise stays at chance."""
    folder = saved(tmp_path / "bert", BertModel(BertConfig(**BERT, max_position_embeddings=16)))
    how = {"head": "challenge", "longest": 16, "epochs": 3, "batch": 8, "learning_rate": 0.01, "schedule": "linear"}
    how = Tuning.model_validate(how | {"shuffle": "epoch", "select": "best", "seeds": [1]})
    draw = np.random.default_rng(0)
    sentences = [draw.choice(["the", "quick", "fox"], size=draw.integers(2, 6)).tolist() for _ in range(60)]
    labels = [draw.choice(["A", "B"], size=len(words)).tolist() for words in sentences]
    rows = encode_sentences(TOKENIZERS["word pieces"], sentences, labels, ["A", "B"], 16, False)

    def tagged(name: str, *stops: int) -> tuple[np.ndarray, list[float]]:
        for after in (*stops, 0):
            set_seed(1)
            model, padding = PooledTagger(folder, 2, 0.1), Padding(0, False, None)
            cpu = torch.device("cpu")
            tuner = Tuner(model, how, 1, "accuracy", rows.chosen(range(40)), rows, padding, tmp_path / name, cpu)
            assert tuner.run(Interrupts(after)) == (after == 0)
        outcome = tuner.outcome(rows)
        return outcome.logits, outcome.chosen_by

    whole, scores = tagged("whole")
    for name, stops in {"middle": (3,), "twice": (9, 4)}.items():
        again = tagged(name, *stops)
        assert np.array_equal(whole, again[0]) and scores == again[1]
    assert all(0.35 < score < 0.65 for score in scores)
