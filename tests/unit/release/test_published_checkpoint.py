"""Checkpoints of the published implementation: what is read from them, and what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer, models, normalizers

from babelmill.core.files import UserError
from babelmill.release.elsewhere import manual_conversion, published_checkpoint
from babelmill.tokens.vocabulary import MASK, SPECIAL_TOKENS
from helpers.models.published import GOLDEN, model, write_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def golden():
    return model()


class Evil:
    """What runs a command when a pickle is loaded without care."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


def test_weights_have_our_names(golden, tmp_path):
    torch.save(golden[1], tmp_path / "model.bin")
    weights = published_checkpoint.read_weights(tmp_path / "model.bin")
    assert weights.keys() == {"main"}
    with safe_open(GOLDEN, "pt") as file:
        wanted = {name.removeprefix("weight.") for name in file.keys() if name.startswith("weight.")}
    assert weights["main"].keys() == wanted
    assert all(value.dtype == torch.float32 for value in weights["main"].values())


def test_a_whole_state_has_the_average_too(golden, tmp_path):
    """With what stands beside the weights in the published `_state_dict.bin`."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    average = {name.removeprefix("module."): value * 2 for name, value in golden[1].items()}
    state = {
        "model": golden[1],
        "ema_model": average,
        "optimizer": optimizer.state_dict(),
        "global_step": 7,
        "epoch": 2,
    }
    torch.save(state | {"scheduler": schedule.state_dict()}, tmp_path / "model_state_dict.bin")
    weights = published_checkpoint.read_weights(tmp_path / "model_state_dict.bin")
    name = "transformer.attention_layers.0.out_proj.weight"
    assert torch.equal(weights["ema"][name], 2 * weights["main"][name])


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_file_is_run(golden, tmp_path, legacy):
    """Neither in today's archives nor in bare pickles."""
    path, canary = tmp_path / "model.bin", tmp_path / "canary"
    torch.save(golden[1] | {"x": Evil(canary)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match=r"model\.bin contains more than tensors .* so it is refused") as error:
        published_checkpoint.read_weights(path)
    assert "\n" not in str(error.value) and not canary.exists()
    torch.load(path, weights_only=False)
    assert canary.exists()  # it would have


def test_what_is_no_checkpoint(golden, tmp_path):
    path = tmp_path / "model.bin"
    torch.save(golden[1], path)
    for content in (b"", b"hello", path.read_bytes()[:3000]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a checkpoint of PyTorch, or a damaged one"):
            published_checkpoint.read_weights(path)
    for content in ([1, 2], {"epoch": 3}, {0: torch.zeros(1)}):
        torch.save(content, path)
        with pytest.raises(UserError, match="does not contain the state_dict"):
            published_checkpoint.read_weights(path)
    torch.save(golden[1] | {"module.classifier.nonlinearity.5.weight": torch.zeros(96, 24)}, path)
    with pytest.raises(UserError, match="is not the token embedding"):
        published_checkpoint.read_weights(path)
    with pytest.raises(UserError, match="no such file"):
        published_checkpoint.read_weights(tmp_path / "none.bin")


def convert_with(golden, tmp_path, **changes):
    """Check the golden weights against a changed configuration."""
    write_tokenizer(tmp_path / "tokenizer.json")
    torch.save(golden[1], tmp_path / "model.bin")
    weights = published_checkpoint.read_weights(tmp_path / "model.bin")
    shape = published_checkpoint.shape_in(golden[0] | changes, weights["main"], "base.json")
    manual_conversion.checked(manual_conversion.FoundModel(weights, shape, tmp_path / "tokenizer.json"), "model.bin")
    return shape


def test_the_shape(golden, tmp_path):
    """LTG-BERT has neither gates nor layer mixing, and its weights tell."""
    shape = convert_with(golden, tmp_path, learning_rate=0.01)
    assert shape == golden[0] | {"gate": True, "layer_mixing": True}
    without = {"transformer.attention_layers.0.in_proj_v.weight": torch.zeros(24, 24)}
    shape = published_checkpoint.shape_in(golden[0], without, "base.json")
    assert not shape["gate"] and not shape["layer_mixing"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 48}, r"classifier.nonlinearity.1.bias is \[24\], but must be \[48\]"),
        ({"num_hidden_layers": 2}, r"attention_layers.2.in_proj_qk.bias is \[48\], but must be absent"),
        ({"num_hidden_layers": 4}, r"attention_layers.3.in_proj_qk.bias is absent, but must be \[48\]"),
        ({"position_bucket_size": 16}, r"relative_embedding is \[63, 24\], but must be \[31, 24\]"),
        ({"vocab_size": 128}, r"\[96\], but must be \[128\]"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size"),
        ({"layer_norm_eps": None}, "base.json: layer_norm_eps = None"),
        ({"hidden_size": "24"}, "base.json: hidden_size = '24'"),
    ],
)
def test_a_wrong_configuration_is_one_line(golden, tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as error:
        convert_with(golden, tmp_path, **changes)
    assert "\n" not in str(error.value)


FORMS = {"BabyBabelLM": (True, None), "ltgoslo": (False, normalizers.Prepend(" ")), "plain": (False, None)}


@pytest.mark.parametrize("form", FORMS)
def test_the_tokenizer_begins_texts_and_knows_the_mask(form, tmp_path):
    """A hidden word in a text is one token, and the words around it are as they were."""
    adapted = published_checkpoint.adapted_tokenizer(write_tokenizer(tmp_path / "tokenizer.json", *FORMS[form]))
    whole = adapted.encode("A B C").ids
    assert whole[0] == SPECIAL_TOKENS.index("<s>")
    assert adapted.encode("A <mask> C").ids == [*whole[:-4], SPECIAL_TOKENS.index(MASK), *whole[-2:]]
    assert adapted.encode("A", "B").tokens.count("<s>") == 2
    assert adapted.get_vocab_size() == 96
    assert "<mask>" not in adapted.decode(adapted.encode("A <mask> C").ids)


def test_a_tokenizer_of_another_model(golden, tmp_path):
    path = tmp_path / "other.json"
    with pytest.raises(UserError, match="has no token <s>"):
        small = Tokenizer(models.BPE({"a": 0}, []))
        small.save(str(path))
        published_checkpoint.adapted_tokenizer(path)
    convert_with(golden, tmp_path)
    large = write_tokenizer(path, size=97)
    weights = published_checkpoint.read_weights(tmp_path / "model.bin")
    found = manual_conversion.FoundModel(weights, golden[0] | {"gate": True, "layer_mixing": True}, large)
    with pytest.raises(UserError, match="97 entries, the model only 96"):
        manual_conversion.checked(found, "model.bin")
