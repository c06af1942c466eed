"""Loading an exported folder, predicting and generating, as its users do. Run by `test_hub.py`, once with each version of transformers.

Nothing of the babelmill package is used, only what is in the folder.
"""

import logging
import os

import pytest
import torch
import transformers
from hub_folder import CLASSES, EOS, FOLDER, LANGUAGE_MODELS, PAD, TEXTS, close, load, main_output
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoProcessor,
    AutoTokenizer,
    pipeline,
)

pytest_plugins = ["hub_folder"]


# Loading.


def test_version():
    assert transformers.__version__ == os.environ["TRANSFORMERS_VERSION"]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_weight_is_found(cls):
    """But for a classification head, which is new. Nothing is left over: other classes expect the language model's head."""
    _, report = cls.from_pretrained(FOLDER, trust_remote_code=True, output_loading_info=True)
    new = {"score.weight", "score.bias"} if "Classification" in cls.__name__ else set()
    assert set(report["missing_keys"]) == new
    assert not report["mismatched_keys"]
    assert not list(cls.from_pretrained(FOLDER, trust_remote_code=True).buffers())
    assert not report["unexpected_keys"]


@pytest.mark.parametrize("cls", [AutoModel, AutoModelForSequenceClassification])
def test_loading_says_nothing_of_the_language_models_head(cls, caplog):
    logging.getLogger("transformers").propagate = True
    cls.from_pretrained(FOLDER, trust_remote_code=True)
    message = "\n".join(record.getMessage() for record in caplog.records)
    assert "classifier" not in message and "UNEXPECTED" not in message and "were not used" not in message
    assert ("score.weight" in message) == (cls is not AutoModel)  # which is new, and it says so


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
    processor = AutoProcessor.from_pretrained(FOLDER, trust_remote_code=True, padding_side="right")
    assert processor("the cat")["input_ids"] == tokenizer("the cat")["input_ids"]


@pytest.mark.parametrize("text", ["  two  spaces\n\nß ﬁ 漢字 👩‍👩‍👧 ", "é e\u0301 \u00a0\x00"])
def test_tokenizer_gives_every_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_the_mask_takes_the_space_before_it(tokenizer, tmp_path):
    """After saving and loading too."""
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    wanted = [*tokenizer("The black")["input_ids"], 4, *tokenizer(" sat", add_special_tokens=False)["input_ids"]]
    assert tokenizer("The black <mask> sat")["input_ids"] == wanted
    assert again("The black <mask> sat")["input_ids"] == wanted
    assert again.model_input_names == ["input_ids", "attention_mask"]


def test_variants():
    main, ema = (load(AutoModelForMaskedLM, variant=variant) for variant in (None, "ema"))
    name = "model.embedding.word_embedding.weight"
    close(main.state_dict()[name] * 0.9, ema.state_dict()[name], 1e-6)
    named, weights = load(AutoModelForMaskedLM, variant="main").state_dict(), main.state_dict()
    assert named.keys() == weights.keys() and all(torch.equal(named[key], weights[key]) for key in weights)


def test_encoder_has_states_and_no_logits(batch):
    output = load(AutoModel)(**batch)
    assert "logits" not in output and output[0] is output.last_hidden_state
    assert output.last_hidden_state.shape == (*batch["input_ids"].shape, 48)


# Prediction.


def test_fill_mask_gives_the_right_word():
    fill = pipeline("fill-mask", model=FOLDER, trust_remote_code=True)
    for text, word in [
        ("The black <mask> sat on the mat near the old door.", "cat"),
        ("Seven wizards boil warm <mask> in very large pots.", "water"),
    ]:
        assert fill(text)[0]["token_str"].strip() == word


def test_text_generation_continues():
    generate = pipeline("text-generation", model=FOLDER, trust_remote_code=True)
    text = generate("Seven wizards boil", max_new_tokens=20, do_sample=False)[0]["generated_text"]
    assert text == "Seven wizards boil warm water in very large pots."


def test_alignment(batch):
    """`mlm` is `mntp` moved by one, and the causal model's scores are unmoved."""
    aligned, raw = (load(AutoModelForMaskedLM, logits_alignment=name)(**batch).logits for name in ("mlm", "mntp"))
    close(aligned[:, 1:], raw[:, :-1], 0)
    assert (aligned[:, 0] == 0).all()
    causal = load(AutoModelForCausalLM, attention_mode="bidirectional", use_cache=False)
    close(causal(**batch).logits, raw, 0)


def test_alignment_of_a_model_that_was_trained_on_the_masked_token_itself(batch):
    """Then `mlm` is as trained, `mntp` is moved to the left, and labels stand where the scores do."""
    settings = {"masked_target": "same"}
    aligned, moved = (load(AutoModelForMaskedLM, logits_alignment=name, **settings) for name in ("mlm", "mntp"))
    raw = load(AutoModelForMaskedLM, logits_alignment="mntp")(**batch).logits
    close(aligned(**batch).logits, raw, 0)
    close(moved(**batch).logits[:, :-1], raw[:, 1:], 0)
    labels = batch["input_ids"]
    wanted = torch.nn.functional.cross_entropy(raw.flatten(0, 1).float(), labels.flatten())
    for model in (aligned, moved):
        close(model(**batch, labels=labels).loss, wanted, 1e-6)


@pytest.mark.parametrize("switch", ["attention_mode", "logits_alignment", "masked_target"])
def test_a_switch_that_has_no_such_position_is_an_error(switch):
    with pytest.raises(ValueError, match=f"{switch} = 'mtnp'"):
        load(AutoModelForMaskedLM, **{switch: "mtnp"})


@pytest.mark.parametrize("cls", CLASSES[:4])
@pytest.mark.parametrize("mode", [None, "causal", "bidirectional"])
def test_attention_mode(cls, mode):
    """A token's change reaches earlier positions if and only if attention is bidirectional."""
    model = load(cls, attention_mode=mode)
    if "Classification" in cls.__name__:
        model = model.model
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
        close(found[first:], alone[first:])


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


def test_a_wrong_mask_is_an_error(batch):
    with pytest.raises(ValueError, match="attention_mask is"):
        load(AutoModel)(batch["input_ids"], attention_mask=batch["attention_mask"][:, 1:])


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


@pytest.mark.parametrize("cls", CLASSES[1:])
def test_outputs_of_heads(cls, batch):
    """Every head passes on what the encoder gives, and is a tuple for who wants one."""
    output = load(cls)(**batch, output_hidden_states=True, output_attentions=True)
    assert len(output.hidden_states) == 3 and len(output.attentions) == 2
    model = load(cls).eval()
    close(model(**batch, return_dict=False)[0], model(**batch).logits, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cls", CLASSES)
def test_half_precision(cls, dtype, batch):
    """`half()`, `bfloat16()`, and the same asked of `from_pretrained`."""
    torch.manual_seed(0)
    model = load(cls)
    exact = main_output(model(**batch))
    model = model.half() if dtype == torch.float16 else model.bfloat16()
    found = main_output(model(**batch))
    assert found.dtype == dtype
    if cls in LANGUAGE_MODELS:
        real = batch["attention_mask"] == 1
        close(found.double().softmax(-1)[real], exact.softmax(-1)[real], 0.1)
    else:
        close(found.double(), exact, 0.1 * exact.abs().max().item())
    assert main_output(load(cls, dtype=dtype)(**batch)).dtype == dtype


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
    if not options:
        for row, text in enumerate(TEXTS):
            alone = model.generate(**tokenizer(text, return_tensors="pt"), **settings)
            assert alone[0, -24:].tolist() == found[row, -24:].tolist()


def test_cached_scores_equal_those_of_the_whole_text(tokenizer):
    model = load(AutoModelForCausalLM)
    ids = tokenizer(TEXTS[2], return_tensors="pt")["input_ids"]
    wanted, cache, pieces = model(ids).logits, None, []
    for piece in (ids[:, :4], ids[:, 4:5], ids[:, 5:9], ids[:, 9:]):
        output = model(piece, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        pieces.append(output.logits)
    close(torch.cat(pieces, 1), wanted)
    close(model(ids, logits_to_keep=1).logits, wanted[:, -1:])


def test_each_new_token_is_one_position_of_work(tokenizer):
    model, lengths = load(AutoModelForCausalLM), []
    model.model.transformer.mlp_layers[0].register_forward_hook(
        lambda _, inputs, __: lengths.append(inputs[0].shape[1])
    )
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    model.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False)
    assert lengths == [ids.shape[1], 1, 1, 1, 1, 1]


def test_generate_as_typed_ends_where_the_text_does(tokenizer):
    model = load(AutoModelForCausalLM)
    ids = model.generate(**tokenizer("A brown dog", return_tensors="pt"), max_new_tokens=40, do_sample=False)
    assert ids[0, -1] == EOS
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == TEXTS[2]


@pytest.mark.parametrize("cls", CLASSES)
def test_pairs_as_typed(tokenizer, cls):
    """`<s> A <s> B`: each half has a say about the other, and a pair is continued as any text."""
    model = load(cls, attention_mode="bidirectional", use_cache=False)
    found = [main_output(model(**tokenizer("the cat", text, return_tensors="pt"))) for text in ("a dog", "a mat")]
    assert (found[0][0, 1] != found[1][0, 1]).any()
    if cls is AutoModelForCausalLM:
        pair = tokenizer("the cat", "A brown dog", return_tensors="pt")
        ids = load(cls).generate(**pair, max_new_tokens=5, do_sample=False)
        assert ids[0, : pair["input_ids"].shape[1]].tolist() == pair["input_ids"][0].tolist()


def test_a_bidirectional_model_refuses_a_cache():
    model = load(AutoModelForCausalLM, attention_mode="bidirectional")
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(torch.tensor([[1, 20, 21]]), max_new_tokens=3)
    assert model.generate(torch.tensor([[1, 20, 21]]), max_new_tokens=3, use_cache=False).shape[1] > 3
