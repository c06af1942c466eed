"""What the checks of an exported folder share; it is named by the environment (BABELMILL_EXPORT)."""

import os

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

FOLDER = os.environ["BABELMILL_EXPORT"]
LANGUAGE_MODELS = [AutoModelForMaskedLM, AutoModelForCausalLM]
CLASSES = [AutoModel, *LANGUAGE_MODELS, AutoModelForSequenceClassification, AutoModelForTokenClassification]
TEXTS = ["The black cat sat on the mat", "Seven wizards boil", "A brown dog runs through our green garden every day."]
EOS, PAD = 2, 3


def load(cls, folder=FOLDER, dtype=torch.float64, **settings):
    """A model in evaluation mode; in float64, so that what should be equal is equal."""
    return cls.from_pretrained(folder, trust_remote_code=True, dtype=dtype, **settings).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)


@pytest.fixture
def batch(tokenizer):
    return tokenizer(TEXTS, return_tensors="pt", padding=True)


def close(found, wanted, tolerance=1e-9):
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)


def main_output(output):
    return output.logits if "logits" in output else output.last_hidden_state
