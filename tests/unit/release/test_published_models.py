"""Files of the published GPT-BERT code: what is read from them, and what is refused."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers

from babelmill.core.files import UserError
from babelmill.release.elsewhere.foreign_model import ForeignModel, adapted_tokenizer, open_weights, read_model
from babelmill.tokens.vocabulary import MASK, SPECIAL_TOKENS
from helpers.models.published import model, write_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def golden():
    return model()


def read(path: Path, **config) -> ForeignModel:
    return read_model("gpt_bert", model()[0] | config, open_weights({path.name: path}, "it")[0], None, "it")


class Evil:
    """What runs a command when a pickle is loaded without care."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_file_is_run(golden, tmp_path, legacy):
    """Neither in today's archives nor in bare pickles."""
    path, canary = tmp_path / "model.bin", tmp_path / "canary"
    torch.save(golden[1] | {"x": Evil(canary)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match=r"it: model\.bin contains more than tensors .* so it is refused") as error:
        read(path)
    assert "\n" not in str(error.value) and not canary.exists()
    torch.load(path, weights_only=False)
    assert canary.exists()  # it would have


def test_what_is_no_checkpoint(golden, tmp_path):
    path = tmp_path / "model.bin"
    torch.save(golden[1], path)
    for content in (b"", b"hello", path.read_bytes()[:3000]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a checkpoint of PyTorch, or a damaged one"):
            read(path)
    for content in ([1, 2], {"epoch": 3}, {0: torch.zeros(1)}, {"model": golden[1], "ema_model": golden[1]}):
        torch.save(content, path)
        with pytest.raises(UserError, match="does not contain the state_dict"):
            read(path)
    torch.save(golden[1] | {"module.classifier.nonlinearity.5.weight": torch.zeros(96, 24)}, path)
    with pytest.raises(UserError, match="is not the token embedding"):
        read(path)


def test_the_shape(golden, tmp_path):
    """The weights tell whether there are gates and layer mixing, which LTG-BERT has not."""
    torch.save(golden[1], tmp_path / "model.bin")
    assert read(tmp_path / "model.bin", learning_rate=0.01).config == golden[0] | {"gate": True, "layer_mixing": True}
    torch.save(
        {name: value for name, value in golden[1].items() if ".dwa_modules." not in name}, tmp_path / "model.bin"
    )
    assert not read(tmp_path / "model.bin").config["layer_mixing"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 48}, r"classifier.nonlinearity.1.bias is \[24\], but must be \[48\]"),
        ({"num_hidden_layers": 4}, r"attention_layers.3.in_proj_qk.bias is absent, but must be \[48\]"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size"),
        ({"layer_norm_eps": None}, "it: config.json: layer_norm_eps = None"),
        ({"hidden_size": "24"}, "it: config.json: hidden_size = '24'"),
        ({"hidden_size": 2**40}, "it: config.json: hidden_size = 1099511627776"),
    ],
)
def test_a_wrong_configuration_is_one_line(golden, tmp_path, changes, message):
    torch.save(golden[1], tmp_path / "model.bin")
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path / "model.bin", **changes)
    assert "\n" not in str(error.value)


FORMS = {"BabyBabelLM": (True, None), "ltgoslo": (False, normalizers.Prepend(" ")), "plain": (False, None)}


@pytest.mark.parametrize("form", FORMS)
def test_the_tokenizer_begins_texts_and_knows_the_mask(form, tmp_path):
    """A hidden word in a text is one token, and the words around it are as they were."""
    adapted = adapted_tokenizer(write_tokenizer(tmp_path / "tokenizer.json", *FORMS[form]))
    whole = adapted.encode("A B C").ids
    assert whole[0] == SPECIAL_TOKENS.index("<s>")
    assert adapted.encode("A <mask> C").ids == [*whole[:-4], SPECIAL_TOKENS.index(MASK), *whole[-2:]]
    assert adapted.encode("A", "B").tokens.count("<s>") == 2
    assert adapted.get_vocab_size() == 96
    assert "<mask>" not in adapted.decode(adapted.encode("A <mask> C").ids)


def test_a_tokenizer_of_another_model(tmp_path):
    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "other.json"))
    with pytest.raises(UserError, match="has no token <s>"):
        adapted_tokenizer(tmp_path / "other.json")
