"""Define the configuration of an exported NorBERT4 model. Every difference in behaviour is a field here, not code."""

from typing import Any

from transformers import PretrainedConfig

from .configuration_gpt_bert import GPTBertConfig


class NorBERT4Config(PretrainedConfig):
    """Holds the sizes and the behaviour of a model. The names of the sizes are the published ones.

    For `attention_mode`, `logits_alignment`, `masked_target` and `classifier_dropout`, see `GPTBertConfig`.
    """

    model_type = "babelmill_norbert4"
    attribute_map = {  # noqa: RUF012 (as in transformers)
        "num_hidden_layers": "num_layers",
        "max_position_embeddings": "max_sequence_length",
    }

    def __init__(
        self,
        vocab_size: int = 8192,
        hidden_size: int = 384,
        intermediate_size: int = 1280,
        num_layers: int = 12,
        num_attention_heads: int = 6,
        query_key_head_size: int = 64,
        value_head_size: int = 64,
        max_sequence_length: int = 512,
        local_global_ratio: int = 4,
        local_window_length: int = 128,
        global_window_length: int = 512,
        layer_norm_eps: float = 1e-5,
        embedding_dropout: float = 0.1,
        hidden_dropout: float = 0.1,
        attention_dropout: float = 0.1,
        attention_mode: str | None = None,
        logits_alignment: str = "mlm",
        masked_target: str = "next",
        classifier_dropout: float = 0.1,
        use_cache: bool = True,
        **kwargs: Any,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_layers = num_layers
        self.num_attention_heads = num_attention_heads
        self.query_key_head_size = query_key_head_size
        self.value_head_size = value_head_size
        self.max_sequence_length = max_sequence_length
        self.local_global_ratio = local_global_ratio
        self.local_window_length = local_window_length
        self.global_window_length = global_window_length
        self.layer_norm_eps = layer_norm_eps
        self.embedding_dropout = embedding_dropout
        self.hidden_dropout = hidden_dropout
        self.attention_dropout = attention_dropout
        self.attention_mode = attention_mode
        self.logits_alignment = logits_alignment
        self.masked_target = masked_target
        self.classifier_dropout = classifier_dropout
        self.use_cache = use_cache
        self.check()
        super().__init__(**kwargs)

    check = GPTBertConfig.check
