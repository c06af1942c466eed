"""Define the types and bounds of every configuration key, one class per section.

This is the one source of truth for what a key may be. The values live in `config/defaults.yaml` (with their
documentation), `config/presets/*.yaml` and the user's files; no class sets a default of its own, so that each value is
in one place. `resolve.py` merges the layers, and `stage_settings.py` says which stage reads which section.
"""

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from babelmill.config.corpus_section import Corpus
from babelmill.config.hub_names import language_tag, licence
from babelmill.config.marks import Implied, Neutral, OnlyIf, from_scratch, gpt_bert
from babelmill.config.predict_section import Predict
from babelmill.config.section import (
    BelowOne,
    Integer,
    Names,
    NonNegative,
    Number,
    Positive,
    Section,
    Share,
)
from babelmill.config.snapshots import Snapshots
from babelmill.config.suite_section import Suite
from babelmill.config.values import each_once, exponent, optimizer, precision, ratio, repo_template, two_numbers, typed

# These limits are far above all trainings so far, and far below any overflow of arithmetic.
MAX_STEPS = 10_000_000
MAX_LENGTH = 2**20
MAX_BATCH = 2**30
SPELT = ("general", "hisco", "occ1950")  # values of labels.code whose codes are also predicted symbol by symbol

# Keys that model.config may not set, since the workflow does, and what to set instead.
OF_THE_WORKFLOW = {
    "vocab_size": "set tokenizer.vocab_size",
    "max_position_embeddings": "set model.max_position_embeddings",
    "n_positions": "set model.max_position_embeddings",
    "token_id": "the ids of special tokens come from the tokenizer",
}


class Tokenizer(Section):
    """The byte-level BPE tokenizer."""

    source: str | None
    revision: str
    vocab_size: Annotated[Integer, Field(ge=16 + 256, le=2**20), OnlyIf("source", (None,), 16 + 256)]
    min_frequency: Annotated[Positive, OnlyIf("source", (None,), 1)]


class Mixture(Section):
    """How a model of several languages weighs them: by the size of each to the power of `weights`."""

    weights: Annotated[Share, BeforeValidator(exponent, json_schema_input_type=Share | Literal["size", "uniform"])]


class Model(Section):
    """The architecture: GPT-BERT, a class of transformers with its `config`, or the trained model that has it."""

    architecture: Annotated[Literal["gpt_bert", "transformers"], Neutral("gpt_bert")]
    config: Annotated[
        dict[str, Any] | None, BeforeValidator(typed), OnlyIf("architecture", ("transformers",), None), Neutral(None)
    ]
    source: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    revision: Annotated[str, Neutral("main")]
    hidden_size: Annotated[Positive, Field(le=2**20), from_scratch(1), gpt_bert(1)]
    intermediate_size: Annotated[Positive, Field(le=2**22), from_scratch(1), gpt_bert(1)]
    num_attention_heads: Annotated[Positive, from_scratch(1), gpt_bert(1)]
    num_hidden_layers: Annotated[Positive, Field(le=10_000), from_scratch(1), gpt_bert(1)]
    max_position_embeddings: Annotated[Positive, Field(le=MAX_LENGTH), from_scratch(1)]
    position_bucket_size: Annotated[Integer, Field(ge=2, le=MAX_LENGTH), from_scratch(2), gpt_bert(2)]
    hidden_dropout_prob: Annotated[BelowOne, gpt_bert(0.0)]
    attention_probs_dropout_prob: Annotated[BelowOne, gpt_bert(0.0)]
    layer_norm_eps: Annotated[Number, Field(gt=0, le=1), from_scratch(1e-5), gpt_bert(1e-5)]
    gate: Annotated[bool, from_scratch(True), gpt_bert(True)]
    layer_mixing: Annotated[bool, from_scratch(True), gpt_bert(True)]

    def shape(self) -> dict[str, Any]:
        """Return the settings that define a GPT-BERT, without those that say where its weights come from."""
        return self.model_dump(exclude={"architecture", "config", "source", "revision"})

    @model_validator(mode="after")
    def _config_of_its_architecture(self) -> Self:
        if self.source is not None and self.config is not None:
            raise ValueError(f"model.config: a model that continues {self.source} takes its config; leave the key out")
        wanted = self.architecture == "transformers" and self.source is None
        if wanted != (self.config is not None):
            needed = "needs model.config" if self.config is None else "does not use model.config"
            raise ValueError(
                f"model.architecture = {self.architecture!r} {needed}: the model of transformers and its sizes, such as"
                " {model_type: gpt2, n_embd: 512, n_layer: 8, n_head: 8}, under model.architecture: transformers"
            )
        config = self.config or {"model_type": ""}
        if not isinstance(config.get("model_type"), str):
            raise ValueError(
                "model.config needs `model_type`, the name of a model of transformers, such as gpt2 or bert"
            )
        for key in config:
            if setting := OF_THE_WORKFLOW.get("token_id" if str(key).endswith("_token_id") else key):
                raise ValueError(f"model.config has {key}, which the workflow sets: {setting}")
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.source is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"model.num_attention_heads = {self.num_attention_heads} does not divide"
                f" model.hidden_size = {self.hidden_size}; choose a divisor"
            )
        return self


def default_alpha(train: dict[str, Any]) -> int:
    """Return the value that `train.lora_alpha: null` means, given the section's values."""
    return 2 * train["lora_rank"]


class Train(Section):
    """Objective, data schedule and optimiser."""

    seed: Annotated[NonNegative, Field(lt=2**63)]
    epochs: Annotated[Number, Field(gt=0, le=1e6), OnlyIf("max_steps", (None,), 1.0)]
    max_steps: Annotated[Positive, Field(le=MAX_STEPS)] | None
    global_batch_tokens: Annotated[Positive, Field(le=MAX_BATCH)]
    batch_reduction: Annotated[Number, Field(ge=1, le=1e6)]
    micro_batch_tokens: Annotated[Annotated[Positive, Field(le=MAX_BATCH)] | None, Neutral(None)]
    sequence_lengths: Annotated[list[Annotated[Integer, Field(ge=2, le=MAX_LENGTH)]], Field(min_length=1)]
    phase_starts: Annotated[list[BelowOne], Field(min_length=1)]
    objective: Literal["hybrid", "masked", "causal", "diffusion", "labels"]
    hybrid_ratio: Annotated[str, BeforeValidator(ratio), OnlyIf("objective", ("hybrid",), "1/2")]
    token_weighted: Annotated[bool, OnlyIf("objective", ("hybrid",), False)]
    mask_rate_start: Annotated[Number, Field(gt=0, le=1), OnlyIf("objective", ("hybrid", "masked"), 1.0)]
    mask_rate_end: Annotated[Number, Field(gt=0, le=1), OnlyIf("objective", ("hybrid", "masked"), 1.0)]
    mask_random: Annotated[Share, OnlyIf("objective", ("hybrid", "masked"), 0.1), Neutral(0.1)]
    mask_keep: Annotated[Share, OnlyIf("objective", ("hybrid", "masked"), 0.1), Neutral(0.1)]
    optimizer: Annotated[Literal["lamb", "adamw"], BeforeValidator(optimizer)]
    learning_rate: Annotated[Number, Field(gt=0, le=10)]
    learning_rate_floor: Share
    warmup: BelowOne
    cooldown: BelowOne
    betas: Annotated[list[BelowOne], BeforeValidator(two_numbers)]
    eps: Annotated[Number, Field(gt=0, le=1)]
    weight_decay: Annotated[Number, Field(ge=0, le=10)]
    clip_norm: Annotated[Number, Field(gt=0)]
    z_loss_weight: Annotated[Number, Field(ge=0, le=10)]
    ema_decay: BelowOne
    lora_rank: Annotated[NonNegative, Field(le=4096), Neutral(0)]
    lora_alpha: Annotated[Positive | None, Neutral(None), Implied(default_alpha)]
    freeze: Annotated[Literal["none", "encoder"], OnlyIf("objective", ("labels",), "none"), Neutral("none")]
    unknown_context: Annotated[Share, OnlyIf("objective", ("labels",), 0.0), Neutral(0.0)]
    typos: Annotated[Share, Neutral(0.0)]
    precision: Annotated[Literal["bf16", "fp32"], BeforeValidator(precision)]
    gradient_reduction: Annotated[Literal["bf16", "fp32"], Neutral("fp32")]
    activation_checkpointing: bool
    non_finite: Literal["stop", "skip"]

    @model_validator(mode="after")
    def _phases(self) -> Self:
        starts = self.phase_starts
        if len(starts) != len(self.sequence_lengths):
            raise ValueError(
                f"train.phase_starts has {len(starts)} entries and train.sequence_lengths {len(self.sequence_lengths)};"
                " give one start for each length"
            )
        if starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(f"train.phase_starts = {starts} must begin with 0 and rise")
        if self.mask_random + self.mask_keep > 1:
            raise ValueError(
                f"train.mask_random = {self.mask_random:g} and train.mask_keep = {self.mask_keep:g} are shares of the"
                " hidden tokens: together they may be 1 at most"
            )
        longest = max(self.sequence_lengths)
        for name in ("global_batch_tokens", "micro_batch_tokens"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < longest:
                raise ValueError(f"train.{name} = {tokens} must hold at least one row of {longest} tokens")
        return self

    @model_validator(mode="after")
    def _labels_have_one_length(self) -> Self:
        if self.objective != "labels":
            return self
        if len(self.sequence_lengths) > 1:
            raise ValueError(
                f"train.sequence_lengths = {self.sequence_lengths}: with train.objective: labels there is only one"
                " length, the most tokens of a text; set one, such as [128], and train.phase_starts: [0]"
            )
        if self.lora_rank:
            raise ValueError(
                f"train.lora_rank = {self.lora_rank}: models of labels have no adapters; train.freeze: encoder trains"
                " only the heads"
            )
        return self

    @model_validator(mode="after")
    def _typos_are_in_labelled_text(self) -> Self:
        if self.typos and self.objective != "labels":
            raise ValueError(
                f"train.typos = {self.typos:g} changes only labelled texts (train.objective: labels), not the text of"
                f" train.objective: {self.objective}; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _adapters_have_a_rank(self) -> Self:
        if self.lora_alpha is not None and not self.lora_rank:
            raise ValueError(
                f"train.lora_alpha = {self.lora_alpha} scales adapters, but train.lora_rank = 0 means no adapters; set"
                " a rank"
            )
        return self

    @model_validator(mode="after")
    def _warmup_and_cooldown(self) -> Self:
        together = self.warmup + self.cooldown
        if together > 1 + 1e-9:
            raise ValueError(
                f"train.warmup = {self.warmup:g} and train.cooldown = {self.cooldown:g} are {together:g} of all steps"
                " together; 1 is the most"
            )
        return self

    @model_validator(mode="after")
    def _first_batch_has_both_objectives(self) -> Self:
        """Check the first batch; the training checks the later ones, since it knows the number of steps."""
        length, needed = self.sequence_lengths[0], Fraction(self.hybrid_ratio).denominator
        rows = max(1, int(self.global_batch_tokens / length * (1 / self.batch_reduction) + 0.5))
        if self.objective == "hybrid" and rows < needed:
            raise ValueError(
                f"train.global_batch_tokens = {self.global_batch_tokens} with train.batch_reduction ="
                f" {self.batch_reduction:g} gives {rows} rows of {length} tokens (train.sequence_lengths) at the first"
                f" step, fewer than the {needed} that train.hybrid_ratio = {self.hybrid_ratio} needs; raise"
                " global_batch_tokens, lower batch_reduction or simplify the ratio"
            )
        return self


class Labels(Section):
    """What the labels of a labelled corpus mean, and what predicts them (`train.objective: labels`)."""

    code: Annotated[Literal["classes", "general", "hisco", "occ1950"], Neutral("classes")]
    block_size: Annotated[Annotated[Positive, Field(le=64)], OnlyIf("code", ("general",), 5), Neutral(5)]
    symbol_separator: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    separator: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    codes: Annotated[str | None, Neutral(None)]
    on_error: Annotated[Literal["stop", "skip"], Neutral("stop")]
    blocks_weight: Annotated[Share, OnlyIf("code", SPELT, 0.5), Neutral(0.5)]
    decoder_layers: Annotated[Annotated[Positive, Field(le=48)], OnlyIf("code", SPELT, 3), Neutral(3)]
    class_weights: Annotated[Literal["none", "balanced"], Neutral("none")]

    @model_validator(mode="after")
    def _symbols_of_codes(self) -> Self:
        said = f"labels.symbol_separator = {self.symbol_separator!r}"
        if self.symbol_separator and self.code != "general":
            raise ValueError(f"{said} is only for labels.code: general, not for {self.code}; leave it out")
        if self.symbol_separator and self.symbol_separator == self.separator:
            raise ValueError(f"{said} is also labels.separator, which separates the codes of a column; change one")
        return self


class Export(Section):
    """What the Hugging Face folder holds."""

    variants: Annotated[list[Literal["main", "ema"]], Field(min_length=1), AfterValidator(each_once)]
    default_variant: Literal["main", "ema"]
    logits_alignment: Annotated[Literal["mlm", "mntp"], Neutral("mlm")]
    adapter: Annotated[Literal["none", "also", "only"], Neutral("none")]
    include_raw: bool

    @model_validator(mode="after")
    def _default_is_exported(self) -> Self:
        if self.default_variant not in self.variants:
            raise ValueError(
                f"export.default_variant = {self.default_variant!r} is not in export.variants = {self.variants}"
            )
        return self


class Evaluation(Section):
    """How the exported model is measured."""

    sequence_length: Annotated[Integer, Field(ge=2, le=MAX_LENGTH)]
    disjoint_masks: Annotated[Integer, Field(ge=2)]
    diffusion_samples: Annotated[Integer, Field(ge=1, le=1024), Neutral(16)]
    documents: Annotated[Annotated[Integer, Field(ge=2)] | None, Neutral(None)]
    suites: Annotated[Names, Neutral([])]
    masked_pairs: Annotated[Annotated[Positive, Field(le=MAX_BATCH)] | Literal["all"], Neutral("all")]
    within_word_l2r: Annotated[bool, Neutral(False)]
    snapshots: Annotated[bool, Neutral(False)]

    @model_validator(mode="after")
    def _masks_are_in_a_row(self) -> Self:
        if self.disjoint_masks > self.sequence_length:
            raise ValueError(
                f"evaluation.disjoint_masks = {self.disjoint_masks} is more than evaluation.sequence_length ="
                f" {self.sequence_length}: some passes would hide nothing"
            )
        return self


class Card(Section):
    """What only the author knows about the model."""

    license: Annotated[str, AfterValidator(licence)]
    authors: list[str]
    description: str
    carbon_grams: Annotated[Number, Field(ge=0)] | None


class Publish(Section):
    """The repository on the Hugging Face Hub."""

    username: str | None
    repo_template: Annotated[str, AfterValidator(repo_template)]
    private: bool


class Run(Section):
    """How a training run is monitored and saved. Changing these keys never repeats a run."""

    checkpoint_every: Positive
    checkpoint_share: Annotated[Number, Field(gt=0, le=1)]
    keep: Positive
    log_every: Positive
    validate_every: NonNegative
    validation_documents: Positive
    snapshots: Annotated[Snapshots, Neutral([])]
    micro_batch_tokens: Annotated[Annotated[Positive, Field(le=MAX_BATCH)] | Literal["auto"], Neutral("auto")]
    compile: Annotated[Literal["auto", "always", "never"], Neutral("auto")]
    tracking: Literal["none", "wandb"]


class Resources(Section):
    """What a training job asks of the machine."""

    gpus: Annotated[NonNegative, Field(le=100_000)]


SECTIONS: dict[str, type[Section]] = {
    "corpus": Corpus,
    "tokenizer": Tokenizer,
    "mixture": Mixture,
    "model": Model,
    "train": Train,
    "labels": Labels,
    "export": Export,
    "evaluation": Evaluation,
    "card": Card,
    "predict": Predict,
    "publish": Publish,
    "run": Run,
    "resources": Resources,
}


class LanguageEntry(Section):
    """An entry of `languages:`; what it leaves out comes from `config/languages.tsv`."""

    name: str = ""
    tier: Literal[1, 2, 3] | None = None
    script: str = ""
    byte_premium: Annotated[Number, Field(gt=0, le=100)] | None = None
    tag: Annotated[str, AfterValidator(language_tag)] = ""
    corpus: dict[str, Any] = {}


class ModelEntry(Section):
    """An entry of `models:`; its sections are laid over the user's configuration for this model alone."""

    languages: Names = []
    preset: str | None = None
    tokenizer: dict[str, Any] = {}
    mixture: dict[str, Any] = {}
    model: dict[str, Any] = {}
    train: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    export: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    card: dict[str, Any] = {}
    predict: dict[str, Any] = {}
    publish: dict[str, Any] = {}
    run: dict[str, Any] = {}
    resources: dict[str, Any] = {}


class User(Section):
    """The top level of the user's configuration."""

    targets: Names
    preset: str
    batches: dict[str, Names]
    suites: dict[str, Suite]
    models: dict[str, ModelEntry]
    languages: dict[str, LanguageEntry]
