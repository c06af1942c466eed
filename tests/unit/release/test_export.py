"""What the export stage says about a tokenizer; the folder as a whole is tested in `e2e/test_hub.py`."""

from tokenizers import Tokenizer, models

from babelmill.release.folder.hub_folder import special_tokens


def test_special_tokens_that_stand_beside_the_vocabulary(tmp_path):
    """As in many tokenizers from elsewhere; those that it does not have are not made up."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>", "<mask>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    wanted = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>", "cls_token": "<s>"}
    assert special_tokens(tmp_path) == wanted
