"""Define the configuration of an exported NorBERT4 model. Every difference in behaviour is a field here, not code."""

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

    vocab_size: int = 8192
    hidden_size: int = 384
    intermediate_size: int = 1280
    num_layers: int = 12
    num_attention_heads: int = 6
    query_key_head_size: int = 64
    value_head_size: int = 64
    max_sequence_length: int = 512
    local_global_ratio: int = 4
    local_window_length: int = 128
    global_window_length: int = 512
    layer_norm_eps: float = 1e-5
    embedding_dropout: float = 0.1
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    attention_mode: str | None = None
    logits_alignment: str = "mlm"
    masked_target: str = "next"
    classifier_dropout: float = 0.1
    use_cache: bool = True

    __init__, check = GPTBertConfig.__init__, GPTBertConfig.check  # pyright: ignore[reportAssignmentType]
