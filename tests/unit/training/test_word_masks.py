"""`train.masking: words`: whole words are masked, and as many tokens as with spans."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from babelmill.tokens.pretokenizer import pre_tokenizer
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from babelmill.tokens.word_edges import ALONE, LETTER, SPACE, word_edges
from babelmill.training.batches import masking
from babelmill.training.batches.token_batches import TokenStream
from babelmill.training.data import Data
from babelmill.training.plan.layouts import Packed
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.plan import every_row
from helpers.training import training_data
from helpers.training.tiny_trainer import ALONE as BY_ITSELF
from helpers.training.training_data import VOCABULARY, section, train_settings, write_documents

CPU = torch.device("cpu")
TEXTS = {  # each with bars before its words
    "English": "The| unhappily|,| well-known| cats| of| 1990|\nnever| don't| sleep_ing|…|\n\nThe| ...|",
    "other letters": "Привет|,| naïve| Οδυσσέα|!| नमस्ते| 안녕|.|",
    "no spaces": "他|去|了| 北|京|。|ひ|ら|が|な| and| cats|",
}


def byte_level() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )


def sentence_piece() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=110, special_tokens=SPECIAL_TOKENS, unk_token="<unk>", show_progress=False
    )


def word_piece() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=130, special_tokens=SPECIAL_TOKENS, show_progress=False)


def made(how, folder: Path) -> tuple[Tokenizer, Vocabulary, np.ndarray]:
    """A small tokenizer, which splits most words, its vocabulary, and the edges of its entries."""
    tokenizer, trainer = how()
    tokenizer.train_from_iterator([text.replace("|", "") for text in TEXTS.values()] + ["cats cats the"] * 9, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = Vocabulary.read(folder / "tokenizer.json", tokenizer.get_vocab_size())
    return tokenizer, vocabulary, word_edges(folder / "tokenizer.json", vocabulary)


def with_bars(text: str, tokenizer: Tokenizer, edges: np.ndarray) -> tuple[str, int]:
    """A text with a bar after each word, and the number of its tokens."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    (number,) = masking.words(torch.tensor([encoding.ids]), torch.tensor(edges)).tolist()
    starts = [encoding.offsets[number.index(each)][0] for each in range(1, max(number) + 1)]
    return "".join("|" * (i in starts) + char for i, char in enumerate(text)) + "|", len(number)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("how", [byte_level, sentence_piece, word_piece])
def test_words_are_found_from_the_tokenizer(how, text, tmp_path):
    """Signs within words are as the tokenizer has them. WordPiece has no spaces: they end the word before."""
    tokenizer, _, edges = made(how, tmp_path)
    expected = TEXTS[text]
    found, tokens = with_bars(expected.replace("|", ""), tokenizer, edges)
    if how is not byte_level:
        expected = expected.replace("l-k", "l|-|k").replace("n't", "n|'|t")
    if how is word_piece:
        expected = re.sub(r"\|(\s+)", r"\1|", expected.replace("_", "|_|").replace("...", ".|.|."))
    assert found == expected
    assert tokens > found.count("|"), "words of several tokens"


def test_a_special_token_is_a_word_alone(tmp_path):
    """What follows it begins a word, be it letters or a sign."""
    tokenizer, vocabulary, edges = made(byte_level, tmp_path)
    for text in ("c", "."):
        ids = [vocabulary.bos, tokenizer.encode(text).ids[0], vocabulary.eos]
        assert masking.words(torch.tensor([ids]), torch.tensor(edges)).diff().tolist() == [[1, 1]], text


BEGINS = np.arange(VOCABULARY.size) < 60  # of the other tests' entries, those above 15 begin a word, or continue one
EDGES = np.stack([np.where(BEGINS, SPACE, LETTER), np.full(VOCABULARY.size, LETTER)])
EDGES[:, :16] = ALONE


@pytest.fixture(scope="module")
def shard(tmp_path_factory) -> ShardFile:
    random, texts = np.random.default_rng(3), []
    for length in random.integers(1, 90, 300):
        texts.append(np.array([1, *random.integers(16, VOCABULARY.size, length), 2]))
    return write_documents(tmp_path_factory.mktemp("words") / "a.safetensors", texts)


def batches(shard: ShardFile, length: int, objective: str = "masked", rate: float = 0.3, **values):
    """(rows, tokens in rows, which are hidden, what stands in their place) of all rows."""
    train = section("train", objective=objective, mask_rate_end=rate, **values)
    stream = TokenStream([shard], VOCABULARY, 7, CPU, objective_of(train), in_place=True, edges=EDGES)
    rows = every_row([Packed(shard.offsets)], length, objective_of(train), 0)
    batch = stream.micro_batch(rows, length, (0.5, 0.5))
    tokens = np.full((len(rows), length), VOCABULARY.pad)
    tokens.reshape(-1)[: len(shard.tokens)] = shard.tokens
    hidden = np.zeros(tokens.size, bool)
    hidden[batch.positions] = True
    return rows, tokens, hidden.reshape(tokens.shape), batch.input_ids.numpy()


def words_in(row: np.ndarray) -> list[np.ndarray]:
    """The places of the words of a row, found token by token; special tokens are in none."""
    found, inside = [], False
    for place, token in enumerate(row.tolist()):
        if token < 16:
            inside = False
        elif inside and not BEGINS[token]:
            found[-1].append(place)
        else:
            found.append([place])
            inside = True
    return [np.array(each) for each in found]


@pytest.mark.parametrize("length", [7, 64])
def test_whole_words_are_hidden_but_for_one_and_as_many_tokens_as_planned(shard, length):
    rows, tokens, hidden, _ = batches(shard, length)
    assert hidden.sum(1).tolist() == rows.targets.tolist()
    partly = 0
    for row, mine in zip(tokens, hidden, strict=True):
        shares = [mine[word].mean() for word in words_in(row)]
        assert sum(0 < share < 1 for share in shares) <= 1
        partly += sum(0 < share < 1 for share in shares)
        assert mine.sum() == sum(mine[word].sum() for word in words_in(row)), "no special token"
    assert partly > 10


def test_a_word_is_replaced_as_a_whole_and_in_the_usual_shares(shard):
    _, tokens, hidden, visible = batches(shard, 64)
    shares, words = np.zeros(3), 0
    for row, mine, seen in zip(tokens, hidden, visible, strict=True):
        assert (row[~mine] == seen[~mine]).all()
        for word in words_in(row):
            if mine[word].all():
                masked, kept = (seen[word] == VOCABULARY.mask).all(), (seen[word] == row[word]).all()
                assert masked or kept or not (seen[word] == VOCABULARY.mask).any()
                shares += np.array([masked, kept and not masked, not masked and not kept]) * len(word)
                words += len(word)
    assert shares / words == pytest.approx([0.8, 0.1, 0.1], abs=0.03)


def test_tokens_of_long_and_short_words_are_hidden_equally_often(shard):
    _, tokens, hidden, _ = batches(shard, 128, rate=0.3)
    counts = np.zeros((2, 4))
    for row, mine in zip(tokens, hidden, strict=True):
        for word in words_in(row):
            counts[:, min(len(word), 4) - 1] += len(word), mine[word].sum()
    assert (counts[0] > 800).all() and counts[1] / counts[0] == pytest.approx(0.3, abs=0.06)


def test_masks_depend_on_the_row_alone(shard):
    """Not on the other rows of its batch."""
    train = section("train", objective="masked")
    stream = TokenStream([shard], VOCABULARY, 7, CPU, objective_of(train), edges=EDGES)
    rows = every_row([Packed(shard.offsets)], 16, objective_of(train), 0)
    whole = stream.micro_batch(rows, 16, (0.5, 0.5)).input_ids
    some = np.random.default_rng(1).permutation(len(rows))[:40]
    assert (stream.micro_batch(rows[some], 16, (0.5, 0.5)).input_ids == whole[some]).all()


@pytest.mark.parametrize("masking", ["spans", "words"])
def test_validation_hides_spans_whatever_training_hides(tmp_path, masking):
    """So that its numbers can be compared between runs."""
    training_data.Data(tmp_path)
    train = section("train", objective="masked", masking=masking, mask_rate_end=0.5)
    opened = Data(train_settings(["eng"], section("model"), train), tmp_path / "tokenizer", [tmp_path / "shards/eng"])
    network = SimpleNamespace(in_place=False, compiled=None)
    found = []
    for split in ("train", "validation"):
        stream = opened.stream(split, network, objective_of(train), BY_ITSELF)
        rows = every_row(opened.layouts[split], 32, objective_of(train), 0)
        spans = TokenStream(opened.shards[split], VOCABULARY, train.seed, CPU, objective_of(train))
        both = [each.micro_batch(rows, 32, (0.5, 0.5)).input_ids for each in (stream, spans)]
        found.append(torch.equal(*both))
    assert found == [masking == "spans", True]
