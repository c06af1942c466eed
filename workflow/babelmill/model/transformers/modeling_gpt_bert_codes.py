"""Define a label model whose encoder is a GPT-BERT: transformers needs the class of its configuration.

This file is shipped inside exported models: it imports nothing but the files beside it.
"""

from .configuration_gpt_bert import GPTBertConfig
from .modeling_codes import CodesModel


class GPTBertCodesModel(CodesModel):
    """Adapts `CodesModel` to the configuration of a GPT-BERT."""

    config_class = GPTBertConfig
