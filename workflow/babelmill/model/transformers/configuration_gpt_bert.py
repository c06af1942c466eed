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

    vocab_size: int = 8192
    hidden_size: int = 384
    intermediate_size: int = 1280
    num_attention_heads: int = 6
    num_hidden_layers: int = 12
    max_position_embeddings: int = 512
    position_bucket_size: int = 32
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-5
    gate: bool = True
    layer_mixing: bool = True
    attention_mode: str | None = None
    logits_alignment: str = "mlm"
    masked_target: str = "next"
    classifier_dropout: float = 0.1
    use_cache: bool = True

    def __init__(self, **kwargs: Any):
        for name in type(self).__annotations__:
            setattr(self, name, kwargs.pop(name, getattr(type(self), name)))
        self.check()
        PretrainedConfig.__init__(self, **kwargs)  # not `super()`: NorBERT4's configuration takes this method, too

    def check(self) -> None:
        """Raise a ValueError for a value that is not allowed. Models call this again: values may be set later."""
        if self.attention_mode not in (None, "causal", "bidirectional"):
            raise ValueError(f"attention_mode = {self.attention_mode!r}: 'causal', 'bidirectional' or None is allowed")
        if self.logits_alignment not in ("mlm", "mntp"):
            raise ValueError(f"logits_alignment = {self.logits_alignment!r}: 'mlm' or 'mntp' is allowed")
        if self.masked_target not in ("next", "same"):
            raise ValueError(f"masked_target = {self.masked_target!r}: 'next' or 'same' is allowed")
