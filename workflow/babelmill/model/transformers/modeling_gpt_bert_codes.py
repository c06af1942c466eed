"""A model of labels whose encoder is a GPT-BERT: transformers wants the class of its configuration to be named.

This file is shipped inside exported models: it imports nothing but what stands beside it.
"""

from .configuration_gpt_bert import GPTBertConfig
from .modeling_codes import CodesModel


class GPTBertCodesModel(CodesModel):
    """See `CodesModel`."""

    config_class = GPTBertConfig
