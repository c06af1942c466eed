"""What the export stage says about a tokenizer; the folder as a whole is tested in `e2e/test_hub.py`."""

import pytest
import torch
from tokenizers import Tokenizer, models

from babelmill.core.files import UserError
from babelmill.release.folder.hub_folder import Case, special_tokens
from babelmill.release.folder.prove import Logits, check_differences, differences


def test_special_tokens_that_stand_beside_the_vocabulary(tmp_path):
    """As in many tokenizers from elsewhere; those that it does not have are not made up."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>", "<mask>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    wanted = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>", "cls_token": "<s>"}
    assert special_tokens(tmp_path) == wanted


@pytest.mark.parametrize("row", range(4))
def test_a_difference_in_any_document_is_seen_though_few_are_compared_in_float64(row):
    """The rounding error of those in float64 says how much the others may differ."""
    double = [torch.randn(1, 5, 7, dtype=torch.float64) for _ in range(4)]
    trained = Logits([each.float() for each in double], double[:2])
    exported = Logits([each.clone() for each in trained.single], [each.clone() for each in trained.double])
    case = Case("AutoModelForCausalLM", "causal")
    found = differences(trained, exported, case)
    assert found["float64"] == found["float32"] == 0 < found["rounding"] < 1e-6
    check_differences("the same", found)
    exported.single[row][0, 3, 2] += 1e-4
    with pytest.raises(UserError, match=r"another: logits differ by up to \S+ in float32, more than 8 times"):
        check_differences("another", differences(trained, exported, case))
    exported.double[row % 2][0, 3, 2] += 1e-8
    with pytest.raises(UserError, match=r"another: logits differ by up to 1e-08 in float64"):
        check_differences("another", differences(trained, exported, case))
