"""Models of other projects with new heads: what they read of a row, and what ends in one line."""

import logging

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from babelmill.config.entries import Tuning
from babelmill.core.files import UserError, read_json, write_json
from babelmill.tasks.encoding import NONE, Padding, Row, pad
from babelmill.tasks.heads import ChallengeHead, OwnHead, model_of
from babelmill.tune import longest_of, try_out
from unit.tasks.test_tuner import HOW, encoded

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = transformers.BertConfig(vocab_size=40, max_position_embeddings=12, **SMALL)
SHAPE_OF_GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 12}
RIGHT = Padding(9, False, None)


def rows(*ids: list[int]) -> list[Row]:
    return encoded([*ids], [0] * len(ids))


def head_of(folder, classes: int = 2, tagging: bool = False, **changes) -> OwnHead | ChallengeHead:
    return model_of(folder, Tuning.model_validate(HOW | changes), classes, RIGHT.token, tagging).eval()


def saved(made, folder):
    made.save_pretrained(folder)
    return folder


def test_only_models_with_types_read_them(tmp_path):
    model = head_of(saved(transformers.BertModel(BERT), tmp_path))
    assert model.reads_types and not head_of(tmp_path, head="challenge").reads_types
    given = pad(rows([5, 6]), RIGHT) | {"token_type_ids": torch.tensor([[0, 1]])}
    assert torch.equal(model(**given), model.encoder(**given).logits)
    assert not torch.allclose(model(**given), model(**pad(rows([5, 6]), RIGHT)))


def test_which_tokens_say_what_a_word_is(tmp_path):
    """The first piece, or the last one; the challenge's head reads their mean, and no padding, on either side."""
    transformers.BertModel(BERT).save_pretrained(tmp_path / "bert")
    heads = []
    for position in ("first", "last"):
        transformers.set_seed(1)
        heads.append(head_of(tmp_path / "bert", 3, tagging=True, pooling=position))
    pooled = head_of(tmp_path / "bert", 3, tagging=True, head="challenge")
    both = (
        {"input_ids": [5, 6, 7, 8, 9], "words": [NONE, 0, 0, 1, NONE]},
        {"input_ids": [10, 11, 12], "words": [0, NONE, 0]},
    )
    found = [Row(tokens, np.zeros(2, int), np.ones(2, bool), False) for tokens in both]
    padded = [pad(found, Padding(0, left, None)) for left in (False, True)]
    alone = [pad([row], Padding(0, False, None)) for row in found]
    for model, chosen in zip(heads, (([1, 3], [0]), ([2, 3], [2])), strict=True):
        whole = [model.encoder(each["input_ids"], each["attention_mask"]).logits[0] for each in alone]
        assert torch.allclose(model(**padded[0]), torch.cat([whole[0][chosen[0]], whole[1][chosen[1]]]), atol=1e-5)
    states = [pooled.encoder(each["input_ids"], each["attention_mask"]).last_hidden_state[0] for each in alone]
    means = torch.stack([states[0][1:3].mean(0), states[0][3], states[1][[0, 2]].mean(0)])
    assert torch.allclose(pooled(**padded[0]), pooled.head(means), atol=1e-5)
    transformers.GPT2Model(transformers.GPT2Config(**SHAPE_OF_GPT2)).save_pretrained(tmp_path / "gpt2")
    for model in (head_of(tmp_path / "gpt2", 3, tagging=True, head=head) for head in ("model", "challenge")):
        assert [tuple(model(**each).shape) for each in padded] == [(3, 3)] * 2


def test_the_last_token_of_a_row_is_read_before_its_padding(tmp_path):
    """GPT-2's classifier looks for the last token that is no padding: that of the tokenizer, whatever config.json says."""
    model = head_of(saved(transformers.GPT2Model(transformers.GPT2Config(**SHAPE_OF_GPT2, pad_token_id=3)), tmp_path))
    found = rows([5, 6], [5, 6, 7, 8])
    alone, padded = model(**pad(found[:1], RIGHT)), model(**pad(found, RIGHT))
    assert torch.allclose(alone[0], padded[0], atol=1e-6)
    last = head_of(tmp_path, head="challenge", pooling="last", padding="left")
    assert last(**pad(found[:1], RIGHT)).shape == (1, 2), "n_embd is its width"


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path):
    model = head_of(saved(transformers.GPT2Model(transformers.GPT2Config(**SHAPE_OF_GPT2)), tmp_path / "gpt2"))
    with pytest.raises(UserError, match="has a token 40, but the model has only 40 "):
        try_out(model, tmp_path, rows([5, 40]), RIGHT)


def test_models_of_labels_and_weights_of_other_shapes(tmp_path):
    """A classifier's head may have another number of classes; it is made anew."""
    made = transformers.BertForSequenceClassification(transformers.BertConfig(**BERT.to_dict() | {"num_labels": 5}))
    assert head_of(saved(made, tmp_path))(**pad(rows([5, 6]), RIGHT)).shape == (1, 2)
    config = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", config | {"vocab_size": 50})
    with pytest.raises(UserError, match=r"the weights .*word_embeddings.* do not have the shapes that its config"):
        head_of(tmp_path)
    write_json(tmp_path / "config.json", config | {"labels": {"codes": ["a", "b"]}})
    with pytest.raises(UserError, match="a model of labels cannot be fine-tuned for a task; use the model that"):
        head_of(tmp_path, head="challenge")


def test_a_model_that_needs_the_input_of_a_decoder_is_refused(tmp_path):
    sizes = {"d_model": 32, "d_ff": 48, "num_layers": 1, "num_heads": 2, "d_kv": 16}
    saved(transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=40, **sizes)), tmp_path)
    with pytest.raises(UserError, match=r"this model cannot be fine-tuned for a task: .*; use another model"):
        try_out(head_of(tmp_path, head="challenge"), tmp_path, rows([5, 6]), RIGHT)


def test_the_longest_row_is_that_of_the_model(tmp_path):
    how = Tuning.model_validate(HOW)
    config = transformers.XLNetConfig(vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=16)
    xlnet = transformers.XLNetModel(config)
    for name, made, longest in (("bert", transformers.BertModel(BERT), 12), ("xlnet", xlnet, 16)):
        assert longest_of(head_of(saved(made, tmp_path / name)), tmp_path / name, how) == longest


def test_weights_that_are_missing_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "babelmill.tune"):
        head_of(saved(transformers.BertModel(BERT), tmp_path))
        assert "random numbers" not in caplog.text
        save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors", {"format": "pt"})
        head_of(tmp_path)
    assert "they begin with random numbers" in caplog.text
