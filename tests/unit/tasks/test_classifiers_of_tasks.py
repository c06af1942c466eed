"""Models of other projects as classifiers: what they read of a row, and what ends in one line."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
    T5Config,
    T5Model,
    XLNetConfig,
    XLNetModel,
)

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError, read_json, write_json
from babelmill.tasks import tuner
from babelmill.tasks.classifier import OwnClassifier, PooledClassifier, refusing
from babelmill.tasks.rows import SCHEMA
from babelmill.tasks.tuner import EncodedRows, Padding, encode
from babelmill.tune import check_tokens, longest_of, rows_of, try_out

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
HOW = {"head": "model", "longest": 16, "epochs": 1, "batch": 8, "learning_rate": 0.05, "schedule": "cosine"}
HOW |= {"shuffle": "state", "select": "best", "seeds": [1]}
BERT = BertConfig(vocab_size=40, max_position_embeddings=12, **SMALL)
SHAPE_OF_GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 12}
RIGHT = Padding(9, False, None)


def rows(*ids: list[int]) -> EncodedRows:
    return EncodedRows([*ids], np.zeros(len(ids), np.int64), 0)


def model_of(made, folder) -> OwnClassifier:
    made.save_pretrained(folder)
    return OwnClassifier(folder, 2, RIGHT.token).eval()


def test_the_texts_of_a_pair_are_told_apart(tmp_path):
    """BERT reads the type of each token, as transformers' Trainer gives it; a single text has only one type."""
    words = {"[CLS]": 0, "[SEP]": 1, "a": 2, "b": 3, "[PAD]": 4}
    fast = Tokenizer(models.WordLevel(words, "a"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    form = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    fast.post_processor = processors.TemplateProcessing(**form, special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="[PAD]", model_input_names=names)
    pairs = encode(tokenizer, ["a b", "a"], ["b", "b"], np.zeros(2, np.int64), 16)
    assert pairs.types == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    assert encode(tokenizer, ["a b"], [None], np.zeros(1, np.int64), 16).types is None
    model = model_of(BertModel(BERT), tmp_path)
    assert model.reads_types and not PooledClassifier(tmp_path, 2, "first", 0.1).reads_types
    ids, there, types = pairs.chosen([1, 0]).batch([0, 1], Padding(4, True, None))
    assert types.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]] and there[0, 0] == 0
    expected = model.encoder(input_ids=ids, attention_mask=there, token_type_ids=types).logits
    assert torch.equal(model(ids, there, types), expected) and not torch.allclose(model(ids, there), expected)


def test_the_last_token_of_a_row_is_read_before_its_padding(tmp_path):
    """GPT-2's classifier looks for the last token that is no padding: that of the tokenizer, whatever config.json says."""
    model = model_of(GPT2Model(GPT2Config(**SHAPE_OF_GPT2, pad_token_id=3)), tmp_path)
    found = rows([5, 6], [5, 6, 7, 8])
    alone, padded = (model(*found.batch(chosen, RIGHT)) for chosen in ([0], [0, 1]))
    assert torch.allclose(alone[0], padded[0], atol=1e-6)
    assert PooledClassifier(tmp_path, 2, "last", 0.1)(*found.batch([0], RIGHT)).shape == (1, 2), "n_embd is its width"


def test_models_that_cannot_be_tuned(tmp_path):
    T5Model(T5Config(vocab_size=40, d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8)).save_pretrained(tmp_path)
    for make in (lambda: PooledClassifier(tmp_path, 2, "first", 0.1), lambda: OwnClassifier(tmp_path, 2, 0)):
        with pytest.raises(UserError, match=r"this model cannot be fine-tuned for a task: .*; use another model"):
            with refusing(tmp_path):
                model = make()
            try_out(model, tmp_path, rows([5, 6]), RIGHT)
    model = model_of(GPT2Model(GPT2Config(**SHAPE_OF_GPT2)), tmp_path / "gpt2")
    with pytest.raises(UserError, match="has a token 40, but the model has only 40 "):
        check_tokens(model, tmp_path, 0, rows([5, 40]))


def test_models_of_labels_and_weights_of_other_shapes(tmp_path):
    """A classifier's head may have another number of classes; it is made anew."""
    made = BertForSequenceClassification(BertConfig(**BERT.to_dict() | {"num_labels": 5}))
    assert model_of(made, tmp_path)(*rows([5, 6]).batch([0], RIGHT)).shape == (1, 2)
    config = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", config | {"vocab_size": 50})
    with pytest.raises(
        UserError, match=r"the weights .*word_embeddings.* do not have the shapes that its config\.json"
    ):
        OwnClassifier(tmp_path, 2, RIGHT.token)
    write_json(tmp_path / "config.json", config | {"labels": {"codes": ["a", "b"]}})
    with pytest.raises(UserError, match="a model of labels cannot be fine-tuned for a task; use the model that"):
        PooledClassifier(tmp_path, 2, "first", 0.1)


def test_rows_are_encoded_in_portions_and_without_ends_that_nothing_reads(monkeypatch):
    fast = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<s>": 2}, "a"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    form = {"single": "<s> $A", "pair": "<s> $A <s> $B"}
    fast.post_processor = processors.TemplateProcessing(**form, special_tokens=[("<s>", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast)
    texts = ["a b " * count for count in (1, 5, 200, 2, 90)]
    pairs = ["b a " * count for count in (1, 200, 3, 0, 90)]
    for seconds in ([None] * 5, pairs):
        given = (texts,) if None in seconds else (texts, pairs)
        expected = tokenizer(*given, truncation=True, max_length=16)["input_ids"]
        for most in (1, 100, 2**20):
            monkeypatch.setattr(tuner, "AT_ONCE", most)
            found = encode(tokenizer, texts, seconds, np.zeros(5, np.int64), 16)
            assert found.ids == expected and found.cut == (2 if None in seconds else 3)
    seen: list[int] = []
    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", lambda self, texts, **_: seen.append(len(texts[0])) or {})
    with pytest.raises(KeyError):
        encode(tokenizer, ["a " * 100_000], [None], np.zeros(1, np.int64), 16)
    assert seen == [16 * tuner.PER_TOKEN], "a tokenizer keeps all that it cuts off"


def test_a_row_without_tokens(tmp_path):
    """A tokenizer such as GPT-2's adds none, and a model answers an empty row with numbers that mean nothing."""
    fast = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    table = {"text": ["a", ""], "pair": [None, None], "label": ["0", "1"]}
    pq.write_table(pa.Table.from_pydict(table, SCHEMA), tmp_path / "train.parquet")
    with pytest.raises(UserError, match="row 2 of the split train is empty, or the model's tokenizer makes no token"):
        rows_of(tmp_path, "train", PreTrainedTokenizerFast(tokenizer_object=fast), ["0", "1"], 16)


def test_the_longest_row_is_that_of_the_model(tmp_path):
    how = Tuning.model_validate(HOW)
    xlnet = XLNetModel(XLNetConfig(vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=16))
    for name, made, longest in (("bert", BertModel(BERT), 12), ("xlnet", xlnet, 16)):
        assert longest_of(model_of(made, tmp_path / name), tmp_path / name, how) == longest


def test_weights_that_are_missing_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "babelmill.tune"):
        model_of(BertModel(BERT), tmp_path)
        assert "random numbers" not in caplog.text
        save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors", {"format": "pt"})
        OwnClassifier(tmp_path, 2, 0)
    assert "they begin with random numbers" in caplog.text
