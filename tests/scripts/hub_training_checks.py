"""Training an exported folder further, and what evaluation pipelines call. Run by `test_hub.py`, once with each version of transformers.

Nothing of the babelmill package is used, only what is in the folder.
"""

import pytest
import torch
from hub_folder import CLASSES, FOLDER, TEXTS, close, load, main_output
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoProcessor,
    DataCollatorForLanguageModeling,
)

pytest_plugins = ["hub_folder"]


# Training.


def test_losses(batch):
    """Labels stand where their token does, in both language models and both alignments."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    labels = torch.where(mask == 1, ids, -100)
    models = [load(AutoModelForMaskedLM, logits_alignment=name) for name in ("mlm", "mntp")]
    close(*(model(**batch, labels=labels).loss for model in models))
    causal = load(AutoModelForCausalLM)
    output = causal(**batch, labels=labels)
    targets = labels[:, 1:].flatten()
    wanted = torch.nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), targets)
    close(output.loss.double(), wanted, 1e-6)
    assert wanted < 0.5  # it knows these texts
    close(causal(**batch, labels=labels, num_items_in_batch=7).loss * 7, output.loss * (targets != -100).sum(), 1e-4)


def test_masked_training_with_the_usual_collator(tokenizer, batch):
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5)
    model = load(AutoModelForMaskedLM, dtype=torch.float32).train()
    examples = [{"input_ids": ids} for ids in tokenizer(TEXTS)["input_ids"]]
    torch.manual_seed(0)
    model(**collate(examples)).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


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


def test_classification_losses(batch):
    for labels, count in [(torch.tensor([0, 2, 1]), 3), (torch.rand(3), 1), (torch.rand(3, 3), 3)]:
        model = load(AutoModelForSequenceClassification, num_labels=count)
        assert model(**batch, labels=labels.double() if labels.is_floating_point() else labels).loss.isfinite()
    tokens = load(AutoModelForTokenClassification, num_labels=5)
    output = tokens(**batch, labels=batch["input_ids"] % 5)
    assert output.loss.isfinite() and output.logits.shape == (*batch["input_ids"].shape, 5)


@pytest.mark.parametrize("cls", CLASSES)
def test_save_and_load_again(cls, batch, tmp_path):
    torch.manual_seed(0)
    model = load(cls)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "modeling_gpt_bert.py").is_file() and (tmp_path / "attention.py").is_file()
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
        if "alphas" in name:
            assert weight.tolist() == [0.0] * (len(weight) - 1) + [1.0]
        elif name.endswith("bias"):
            assert (weight == 0).all()
        elif "layer_norm" in name:
            assert (weight == 1).all()
        else:
            scale = (2 * (1 + int(name.split(".")[3]))) ** -0.5 if "mlp_layers" in name else 1.0
            assert weight.std().item() == pytest.approx(0.8796 * scale * std, rel=0.1), name


def test_a_new_head_leaves_loaded_weights_alone(batch):
    body = load(AutoModelForSequenceClassification).model
    close(body(**batch).last_hidden_state, load(AutoModel)(**batch).last_hidden_state, 0)


def test_more_tokens(tokenizer):
    """A vocabulary that grows keeps what it knows."""
    model = load(AutoModelForCausalLM)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    before = model(ids).logits
    model.resize_token_embeddings(len(tokenizer) + 7, mean_resizing=False)
    after = model(ids).logits
    assert after.shape[-1] == len(tokenizer) + 7 == model.config.vocab_size
    close(after[..., : len(tokenizer)], before)


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
    """The encoder's output has states and no logits, for 512 tokens too, with a causal mask of three dimensions too."""
    model, width = load(AutoModel), AutoConfig.from_pretrained(FOLDER, trust_remote_code=True).hidden_size
    batch = tokenizer(TEXTS, return_tensors="pt", padding="max_length", max_length=512, truncation=True)
    for mask in (batch["attention_mask"], batch["attention_mask"][:, None] * torch.ones(512, 512).tril().long()):
        output = model(batch["input_ids"], attention_mask=mask)
        assert not hasattr(output, "logits") and output[0].shape == (len(TEXTS), 512, width)


def test_babylm_multilingual_fine_tuning(tokenizer):
    """With a configuration of the caller's, another padding token, long padding, and all but the new head frozen."""
    config = AutoConfig.from_pretrained(FOLDER, num_labels=3, finetuning_task="xnli", trust_remote_code=True)
    torch.manual_seed(0)
    model = load(AutoModelForSequenceClassification, config=config)
    model.config.pad_token_id = tokenizer.eos_token_id
    padded = tokenizer(TEXTS, TEXTS[::-1], padding="max_length", max_length=128, truncation=True, return_tensors="pt")
    alone = tokenizer(TEXTS[0], TEXTS[2], return_tensors="pt")
    close(model(**padded).logits[0], model(**alone).logits[0])
    heads = [name for name, _ in model.named_parameters() if "classifier" in name or name.startswith("score")]
    assert heads == ["score.weight", "score.bias"]
