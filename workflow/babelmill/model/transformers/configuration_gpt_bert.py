"""Define the configuration of an exported GPT-BERT model. Every difference in behaviour is a field here, not code."""

from typing import Any

from transformers import PretrainedConfig


class GPTBertConfig(PretrainedConfig):
    """Holds the sizes and the behaviour of a model.

    Args:
        attention_mode: "causal" (a token attends to itself and earlier tokens), "bidirectional", or None: causal for
            `...ForCausalLM`, bidirectional for the other classes.
        logits_alignment: only for `...ForMaskedLM`. With "mlm", the scores at a position are for the token at this
            position, as users of masked models expect. With "mntp", they are for the next token. A position that has
            no scores (with "mlm", the first position of a GPT-BERT) holds zeros.
        masked_target: which token the model predicted at a masked position in training: the "next" one (GPT-BERT), or
            the "same" one (BERT; models of the BabyBabelLM code). `logits_alignment` shifts the scores from there.
        classifier_dropout: dropout before the classification heads.
        The other arguments are those of the training configuration.
    """

    model_type = "babelmill_gpt_bert"

    def __init__(
        self,
        vocab_size: int = 8192,
        hidden_size: int = 384,
        intermediate_size: int = 1280,
        num_attention_heads: int = 6,
        num_hidden_layers: int = 12,
        max_position_embeddings: int = 512,
        position_bucket_size: int = 32,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-5,
        gate: bool = True,
        layer_mixing: bool = True,
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
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = num_hidden_layers
        self.max_position_embeddings = max_position_embeddings
        self.position_bucket_size = position_bucket_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.gate = gate
        self.layer_mixing = layer_mixing
        self.attention_mode = attention_mode
        self.logits_alignment = logits_alignment
        self.masked_target = masked_target
        self.classifier_dropout = classifier_dropout
        self.use_cache = use_cache
        self.check()
        super().__init__(**kwargs)

    def check(self) -> None:
        """Raise a ValueError for a value that is not allowed. Models call this again: values may be set later."""
        if self.attention_mode not in (None, "causal", "bidirectional"):
            raise ValueError(f"attention_mode = {self.attention_mode!r}: 'causal', 'bidirectional' or None is allowed")
        if self.logits_alignment not in ("mlm", "mntp"):
            raise ValueError(f"logits_alignment = {self.logits_alignment!r}: 'mlm' or 'mntp' is allowed")
        if self.masked_target not in ("next", "same"):
            raise ValueError(f"masked_target = {self.masked_target!r}: 'next' or 'same' is allowed")
