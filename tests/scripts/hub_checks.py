"""Use an exported folder as its users do: load, predict, generate, train, compile. Run by `test_hub.py` with each version of transformers.

Nothing of the babelmill package is used, only what is in the folder, which the environment names (BABELMILL_EXPORT).
"""

import os

import pytest
import torch
from accelerate.state import AcceleratorState
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoProcessor,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    pipeline,
)

FOLDER = os.environ["BABELMILL_EXPORT"]
NORBERT4 = os.environ["BABELMILL_ARCHITECTURE"] == "norbert4"  # else it is a GPT-BERT
HEAD = "classifier.output_projection." if NORBERT4 else "score."  # begins the names of new weights for classification
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


# Loading.


@pytest.mark.parametrize("cls", CLASSES)
def test_every_weight_is_found(cls):
    """But for a classification head, which is new. Nothing is left over: other classes expect the language model's head."""
    model, report = cls.from_pretrained(FOLDER, trust_remote_code=True, output_loading_info=True)
    parts = ["weight", "bias", *(["scale"] if NORBERT4 else [])]
    new = {HEAD + part for part in parts} if "Classification" in cls.__name__ else set()
    assert set(report["missing_keys"]) == new
    assert not (report["mismatched_keys"] or report["unexpected_keys"] or list(model.buffers()))


def test_config_and_tokenizer(tokenizer):
    config = AutoConfig.from_pretrained(FOLDER, trust_remote_code=True)
    assert config.vocab_size == len(tokenizer)
    names = ("bos", "eos", "pad", "mask")
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [1, EOS, PAD, 4]
    assert [getattr(config, f"{name}_token_id") for name in names[:3]] == [1, EOS, PAD]
    encoded = tokenizer("the cat", "a dog", return_offsets_mapping=True)
    assert set(encoded) == {"input_ids", "attention_mask", "offset_mapping"}
    assert encoded["input_ids"] == tokenizer("the cat")["input_ids"] + tokenizer("a dog")["input_ids"]
    assert encoded["input_ids"][0] == 1 and encoded["offset_mapping"][0] == (0, 0)


def test_the_tokenizer_loses_nothing_but_the_space_before_a_mask(tokenizer, tmp_path):
    """After saving and loading too."""
    for text in ("  two  spaces\n\nß ﬁ 漢字 👩‍👩‍👧 ", "é e\u0301 \u00a0\x00"):
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    tokenizer.save_pretrained(tmp_path)
    wanted = [*tokenizer("The black")["input_ids"], 4, *tokenizer(" sat", add_special_tokens=False)["input_ids"]]
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert each("The black <mask> sat")["input_ids"] == wanted
        assert each.model_input_names == ["input_ids", "attention_mask"]


def test_variants():
    main, ema = (load(AutoModelForMaskedLM, variant=variant) for variant in (None, "ema"))
    name = "embedding.word_embedding.weight" if NORBERT4 else "model.embedding.word_embedding.weight"
    close(main.state_dict()[name] * 0.9, ema.state_dict()[name], 1e-6)
    named, weights = load(AutoModelForMaskedLM, variant="main").state_dict(), main.state_dict()
    assert named.keys() == weights.keys() and all(torch.equal(named[key], weights[key]) for key in weights)


# Prediction.


def test_pipelines_know_the_text():
    fill, generate = (pipeline(task, model=FOLDER, trust_remote_code=True) for task in ("fill-mask", "text-generation"))
    texts = {"The black <mask> sat on the mat near the old door.": "cat"}
    texts |= {"Seven wizards boil warm <mask> in very large pots.": "water"}
    for text, word in texts.items():
        assert fill(text)[0]["token_str"].strip() == word
    text = generate("Seven wizards boil", max_new_tokens=20, do_sample=False)[0]["generated_text"]
    assert text == "Seven wizards boil warm water in very large pots."


def test_alignment_and_losses(batch):
    """`mlm` is `mntp` moved by one, and the causal model's scores are unmoved; labels stand where their token does.

    In a model that was trained on the masked token itself, `mlm` is as trained, `mntp` is moved to the left, and labels
    stand where the scores do.
    """
    labels = torch.where(batch["attention_mask"] == 1, batch["input_ids"], -100)
    names, entropy = ("mlm", "mntp"), torch.nn.functional.cross_entropy
    aligned, moved = (load(AutoModelForMaskedLM, logits_alignment=name)(**batch, labels=labels) for name in names)
    raw = moved.logits
    close(aligned.logits[:, 1:], raw[:, :-1], 0)
    assert (aligned.logits[:, 0] == 0).all()
    close(aligned.loss, moved.loss)
    close(load(AutoModelForCausalLM, attention_mode="bidirectional", use_cache=False)(**batch).logits, raw, 0)
    both = [load(AutoModelForMaskedLM, logits_alignment=name, masked_target="same") for name in names]
    aligned, moved = (model(**batch, labels=batch["input_ids"]) for model in both)
    close(aligned.logits, raw, 0)
    close(moved.logits[:, :-1], raw[:, 1:], 0)
    wanted = entropy(raw.flatten(0, 1).float(), batch["input_ids"].flatten())
    close(torch.stack([aligned.loss, moved.loss]), wanted.expand(2), 1e-6)
    causal = load(AutoModelForCausalLM)
    output, targets = causal(**batch, labels=labels), labels[:, 1:].flatten()
    wanted = entropy(output.logits[:, :-1].flatten(0, 1), targets)
    close(output.loss.double(), wanted, 1e-6)
    assert wanted < 0.5  # it knows these texts
    close(causal(**batch, labels=labels, num_items_in_batch=7).loss * 7, output.loss * (targets != -100).sum(), 1e-4)


def test_a_mistake_is_an_error(batch):
    for switch in ("attention_mode", "logits_alignment", "masked_target"):
        with pytest.raises(ValueError, match=f"{switch} = 'mtnp'"):
            load(AutoModelForMaskedLM, **{switch: "mtnp"})
    with pytest.raises(ValueError, match="attention_mask is"):
        load(AutoModel)(batch["input_ids"], attention_mask=batch["attention_mask"][:, 1:])
    model, ids = load(AutoModelForCausalLM, attention_mode="bidirectional"), torch.tensor([[1, 20, 21]])
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(ids, max_new_tokens=3)
    assert model.generate(ids, max_new_tokens=3, use_cache=False).shape[1] > 3


@pytest.mark.parametrize("cls", CLASSES[:4])
@pytest.mark.parametrize("mode", [None, "causal", "bidirectional"])
def test_attention_mode(cls, mode):
    """A token's change reaches earlier positions if and only if attention is bidirectional."""
    model = load(cls, attention_mode=mode)
    if "Classification" in cls.__name__:
        model = model.model  # the encoder: a module, or in NorBERT4 a method
    causal = mode == "causal" or (mode is None and cls is AutoModelForCausalLM)
    ids = torch.arange(20, 32)[None]
    changed = ids.clone()
    changed[0, 8] = 40
    shift = 1 if cls is AutoModelForMaskedLM else 0  # of `mlm` alignment
    moved = (main_output(model(ids)) != main_output(model(changed))).any(-1)[0].tolist()
    wanted = [position >= 8 + shift or (not causal and position >= shift) for position in range(12)]
    assert moved == wanted


# Padding and masks.


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("mode", ["causal", "bidirectional"])
def test_batches_equal_single_rows(tokenizer, cls, side, mode):
    torch.manual_seed(0)
    model = load(cls, attention_mode=mode)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True, padding_side=side)
    together = main_output(model(**batch))
    for row, text in enumerate(TEXTS):
        alone = main_output(model(**tokenizer(text, return_tensors="pt")))[0]
        whole = cls is AutoModelForSequenceClassification
        found = together[row] if whole else together[row][batch["attention_mask"][row] == 1]
        first = 1 if cls is AutoModelForMaskedLM else 0  # which scores nothing
        # A NorBERT4 rounds the angles of its rotations, so a text's place in the row matters in the seventh digit.
        close(found[first:], alone[first:], 1e-5 if NORBERT4 and side == "left" else 1e-9)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_kinds_of_masks(batch, implementation):
    """Two, three and four dimensions, booleans and numbers, and what is added to the scores, say the same."""
    model = load(AutoModel, attn_implementation=implementation)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    pairs = mask[:, :, None] * mask[:, None, :]
    added = torch.zeros(pairs.shape).masked_fill(pairs == 0, torch.finfo(torch.float32).min)[:, None]
    wanted = model(ids, attention_mask=mask).last_hidden_state
    masks = [mask.bool(), mask.float(), pairs, pairs.bool(), pairs[:, None], pairs[:, None].bool(), added]
    for given in [*masks, pairs[:, None].float(), pairs[:, None].expand(-1, 2, -1, -1)]:
        close(model(ids, attention_mask=given).last_hidden_state[mask == 1], wanted[mask == 1])
    causal = load(AutoModel, attention_mode="causal")(ids, attention_mask=mask).last_hidden_state
    close(model(ids, attention_mask=pairs.tril()).last_hidden_state[mask == 1], causal[mask == 1])


def test_outputs(batch):
    model = load(AutoModel)
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    assert len(output.hidden_states) == 3 and len(output.attentions) == 2
    close(output.hidden_states[-1], output.last_hidden_state, 0)
    real = batch["attention_mask"].double()
    close(output.attentions[0].sum(-1), real[:, None].expand(-1, 2, -1))
    close(model(**batch, return_dict=False)[0], output.last_hidden_state)
    close(load(AutoModel, attn_implementation="eager")(**batch).last_hidden_state, output.last_hidden_state)
    words = model.get_input_embeddings()(batch["input_ids"])
    embedded = model(inputs_embeds=words, attention_mask=batch["attention_mask"])
    close(embedded.last_hidden_state, model(**batch).last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cls", CLASSES)
def test_half_precision(cls, dtype, batch):
    """`half()`, `bfloat16()`, and the same asked of `from_pretrained`."""
    torch.manual_seed(0)
    model, real = load(cls), batch["attention_mask"] == 1
    exact = main_output(model(**batch))
    found = main_output(model.to(dtype)(**batch))
    assert found.dtype == dtype == main_output(load(cls, dtype=dtype)(**batch)).dtype
    if cls in LANGUAGE_MODELS:
        found, exact = found.double().softmax(-1)[real], exact.softmax(-1)[real]
    close(found.double(), exact, 0.1 * exact.abs().max().item())


# Generation.


GENERATION = [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}, {"cache_implementation": "static"}]


@pytest.mark.parametrize("options", GENERATION, ids=str)
def test_cache_changes_no_token(tokenizer, options):
    """On untrained weights, where the choices are close."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(load(AutoModelForCausalLM).config, trust_remote_code=True).double().eval()
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True, padding_side="left")
    settings = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": PAD, **options}
    found = model.generate(**batch, **settings)
    settings.pop("cache_implementation", None)
    wanted = model.generate(**batch, use_cache=False, **settings)
    assert found.tolist() == wanted.tolist()
    assert found.shape[1] == batch["input_ids"].shape[1] + 24


# Training.


@pytest.mark.parametrize("cls", CLASSES[1:])
def test_gradient_checkpointing(cls, batch):
    """Same gradients, dropout included."""
    labels = batch["input_ids"] % 2 if cls is AutoModelForTokenClassification else batch["input_ids"]
    labels = torch.tensor([0, 1, 1]) if cls is AutoModelForSequenceClassification else labels
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = load(cls).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(1)
        model(**batch, labels=labels).loss.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    close(gradients[1], gradients[0])
    assert gradients[0].abs().max() > 0


@pytest.mark.parametrize("mode", ["causal", "bidirectional"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_classification_sees_the_whole_text(tokenizer, mode, dimensions):
    """Every token of a text or a pair has a say, with a causal mask (3 dimensions) too."""
    torch.manual_seed(0)
    model = load(AutoModelForSequenceClassification, num_labels=3, attention_mode=mode)
    ids = tokenizer("The black cat", "boil warm water", return_tensors="pt")["input_ids"]
    length = ids.shape[1]
    mask = torch.ones(1, length) if dimensions == 2 else torch.ones(1, length, length).tril()
    wanted = model(ids, attention_mask=mask).logits
    assert wanted.shape == (1, 3)
    for position in range(length):
        changed = ids.clone()
        changed[0, position] = 100
        assert (model(changed, attention_mask=mask).logits - wanted).abs().max() > 1e-6, position


@pytest.mark.parametrize("cls", CLASSES)
def test_save_and_load_again(cls, batch, tmp_path):
    torch.manual_seed(0)
    model = load(cls)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "modeling_gpt_bert.py").is_file() and (tmp_path / "attention.py").is_file()
    assert (tmp_path / "norbert4.py").is_file() == NORBERT4
    with safe_open(tmp_path / "model.safetensors", "pt") as file:  # tied weights once
        assert set(file.keys()) == {name for name, _ in model.named_parameters()}
    close(main_output(load(cls, tmp_path)(**batch)), main_output(model(**batch)), 0)


def test_untrained_model_is_initialised():
    """From a config alone: as published, nothing left as it was in memory."""
    config = load(AutoModel).config
    torch.manual_seed(0)
    weights = AutoModelForMaskedLM.from_config(config, trust_remote_code=True).state_dict()
    std = (2 / (5 * config.hidden_size)) ** 0.5
    for name, weight in weights.items():
        if name.endswith("lambdas"):
            assert weight.tolist() == ([0.5] if len(weight) == 1 else [0.0, 0.0, 1.0, 0.0, 1.0, 0.0])
        elif "alphas" in name:
            assert weight.tolist() == [0.0] * (len(weight) - 1) + [1.0]
        elif name.endswith(("scale", "bias")):
            assert (weight == 0).all()
        elif "layer_norm" in name:
            assert (weight == 1).all()
        else:
            scale = (2 * (1 + int(name.split(".")[3]))) ** -0.5 if "mlp_layers" in name else 1.0
            assert weight.std().item() == pytest.approx(0.8796 * scale * std, rel=0.1), name


# What the BabyLM evaluation pipelines call (2025: `mntp`, `mlm`, `causal`, fine-tuning; 2026: multilingual fine-tuning).


@pytest.mark.parametrize("backend", ["mntp", "mlm", "causal"])
def test_babylm_zero_shot(backend):
    """The token at i is scored at i - 1, but for `mlm`; `<s>` is in front, so that there is an i - 1."""
    processor = AutoProcessor.from_pretrained(FOLDER, padding_side="right", trust_remote_code=True)
    cls = AutoModelForCausalLM if backend == "causal" else AutoModelForMaskedLM
    settings = {"logits_alignment": "mntp"} if backend == "mntp" else {}
    model, sums = load(cls, **settings), []
    for text in ("Seven wizards boil warm water", "Seven boil wizards warm water"):
        encoded = processor(text, return_offsets_mapping=True, return_tensors="pt")
        ids = encoded["input_ids"][0]
        assert ids[0] == processor.bos_token_id
        assert encoded["offset_mapping"][0].tolist()[0] == [0, 0] and encoded["offset_mapping"][0, 1, 1] > 0
        rows, positions = ids.repeat(len(ids) - 1, 1), torch.arange(1, len(ids))
        if backend != "causal":
            rows[positions - 1, positions] = processor.mask_token_id
        output = model(input_ids=rows, attention_mask=torch.ones_like(rows))
        scores = output["logits"][positions - 1, positions - int(backend != "mlm")].log_softmax(-1)
        sums.append(scores.gather(1, ids[1:, None]).sum().item())
    assert sums[0] > sums[1] + 1


def test_babylm_fine_tuning(tokenizer):
    """The encoder's output has states and no logits, for 512 tokens too, with a causal mask of three dimensions too.

    A multilingual one has a configuration of the caller's, another padding token, and long padding.
    """
    model, width = load(AutoModel), AutoConfig.from_pretrained(FOLDER, trust_remote_code=True).hidden_size
    batch = tokenizer(TEXTS, return_tensors="pt", padding="max_length", max_length=512, truncation=True)
    for mask in (batch["attention_mask"], batch["attention_mask"][:, None] * torch.ones(512, 512).tril().long()):
        output = model(batch["input_ids"], attention_mask=mask)
        assert not hasattr(output, "logits") and output[0].shape == (len(TEXTS), 512, width)

    config = AutoConfig.from_pretrained(FOLDER, num_labels=3, finetuning_task="xnli", trust_remote_code=True)
    torch.manual_seed(0)
    model = load(AutoModelForSequenceClassification, config=config)
    model.config.pad_token_id = tokenizer.eos_token_id
    padded = tokenizer(TEXTS, TEXTS[::-1], padding="max_length", max_length=128, truncation=True, return_tensors="pt")
    alone = tokenizer(TEXTS[0], TEXTS[2], return_tensors="pt")
    close(model(**padded).logits[0], model(**alone).logits[0])


# Compilation and adapters. Compiled graphs are run by PyTorch (`aot_eager`): what is in question is whether the model can be
# made one graph, forwards and backwards, and a C++ compiler takes minutes.


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Each test compiles anew, and what a Trainer writes into the environment is gone after it."""
    torch._dynamo.reset()
    AcceleratorState._reset_state(reset_partial_state=True)
    for name in ("MIXED_PRECISION", "DYNAMO_BACKEND", "DYNAMO_MODE", "DYNAMO_USE_FULLGRAPH", "DYNAMO_USE_DYNAMIC"):
        monkeypatch.setenv(f"ACCELERATE_{name}", "no")  # so that it is put back afterwards
        monkeypatch.delenv(f"ACCELERATE_{name}")


def test_compiled_as_one_graph(batch):
    """A training step with dropout."""
    model = load(AutoModelForMaskedLM, dtype=torch.float32).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    losses = [compiled(**batch, labels=batch["input_ids"]).loss for _ in range(2)]
    losses[1].backward()
    assert losses[0] != losses[1] and all(loss.isfinite() for loss in losses)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_adapters(tokenizer, tmp_path):
    """With the layers that the card names; peft has no default for a model of the Hub, and says so."""
    with pytest.raises(ValueError, match="target_modules"):
        get_peft_model(load(AutoModelForSequenceClassification), LoraConfig(task_type="SEQ_CLS"))
    layers = ["v_proj", "out_proj", "down_proj"] if NORBERT4 else ["in_proj_qk", "in_proj_vg", "out_proj"]
    head = "classifier" if NORBERT4 else "score"
    config = LoraConfig(task_type="SEQ_CLS", target_modules=layers, modules_to_save=[head])
    model = get_peft_model(load(AutoModelForSequenceClassification, dtype=torch.float32), config)
    adapted = {name.split(".lora_A")[0].split(".")[-1] for name, _ in model.named_parameters() if ".lora_A" in name}
    assert adapted == set(layers)
    data = [{"label": n % 2, **tokenizer(text)} for n, text in enumerate(TEXTS[:2] * 2)]
    arguments = TrainingArguments(tmp_path / "tuned", max_steps=3, learning_rate=0.1, use_cpu=True, report_to="none")
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    Trainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name, value in model.named_parameters() if value.requires_grad}
    assert all("lora_" in name or head in name for name in moved)
