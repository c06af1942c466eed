"""The stage `base_model`: models from elsewhere become tensors under neutral names, or one clear line."""

import argparse
import json
import math
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers
from transformers import AutoConfig, BertConfig, BertForMaskedLM

from babelmill import base_model
from babelmill.commands.plan import size_of_model
from babelmill.config import inputs
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.core.stage_entry import Job
from babelmill.graph import Graph
from babelmill.release.elsewhere import llada
from babelmill.release.elsewhere.foreign_model import adapted_tokenizer
from babelmill.stages import BaseModelStage
from babelmill.tokenizer import adopt_from_model
from babelmill.tokens.vocabulary import MASK, SPECIAL_TOKENS, Vocabulary
from babelmill.train import make_network
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from babelmill.training.networks.source_weights import load_weights, shape_of
from babelmill.training.networks.transformers_models import on_meta
from helpers import DATA
from helpers.hub.hub_stage import asked_for, figures_of, run_stage
from helpers.models.published import model as published_model
from helpers.models.published import norbert4, write_norbert4, write_tokenizer
from helpers.models.published_models import publish
from helpers.stages import settings_of
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, section, train_settings

pytestmark = pytest.mark.slow

LLADA = DATA / "llada_tiny.safetensors"
BIN, SAFETENSORS, CONFIG = (Path("theirs", name) for name in ("pytorch_model.bin", "model.safetensors", "config.json"))
GPT_BERT = {"auto_class": None}
NORBERT4 = {"auto_class": None, "architecture": "norbert4"}
HEAD = "classifier.emb2vocab.weight"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    return tmp_path


def run(auto_class: str | None = "AutoModelForMaskedLM", **more) -> dict:
    """Run the stage for the folder `theirs`, for a class of transformers, or for a model of ours; its manifest."""
    asked = {"source": None, "sources": {"theirs": {}}, "shape": {}, "auto_class": auto_class} | more
    settings = Path(asked_for("base_model", asked))
    base_model.run(Job(BaseModelStage, settings, 1, 0, argparse.Namespace()))
    return manifest.verify("out")


def refused(**arguments) -> str:
    with pytest.raises(UserError) as error:
        run(**arguments)
    assert "\n" not in str(error.value) and not Path("out").exists()
    return str(error.value)


def write_bert(name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    """A small BERT, some of it in fp16."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(vocab_size=270, max_position_embeddings=32, **sizes)
    config.save_pretrained("theirs")
    parameters = BertForMaskedLM(config).named_parameters()
    weights = {key: (value.half() if "LayerNorm" in key else value).detach().clone() for key, value in parameters}
    (torch.save if name.endswith(".bin") else save_file)(weights, f"theirs/{name}")
    return weights


def write_published() -> dict:
    config, weights = published_model()
    write_json(CONFIG, config | {"model_type": "gpt_bert", "auto_map": {"AutoModel": "x.Y"}})
    torch.save(weights, BIN)
    write_tokenizer(Path("theirs/tokenizer.json"), size=96)
    return config


KINDS = {
    "bert": (write_bert, {}),
    "gpt_bert": (write_published, GPT_BERT),
    "norbert4": (lambda: write_norbert4(Path("theirs")), NORBERT4),
}


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_model_of_transformers_keeps_names_and_configuration(name):
    weights = write_bert(name)
    Path("theirs/README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A model\n")
    Path("theirs/modeling_bert.py").write_text("raise SystemExit('run')")
    Path("theirs/vocab.txt").write_text("a\n")
    assert "model.hidden_size = 16: the model in theirs has 8" in refused(shape={"hidden_size": 16})
    made = run(shape={"hidden_size": 8})
    found = load_file("out/model.safetensors")
    assert found.keys() == weights.keys() and all(
        torch.equal(found[key], value.float()) for key, value in weights.items()
    )
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert sorted(made["files"]) == ["config.json", "model.safetensors", "vocab.txt"]
    assert read_json("out/config.json")["model_type"] == "bert"
    figures = made["figures"]
    assert (figures["architecture"], figures["license"]) == ("transformers", "cc-by-4.0")
    assert figures["parameters"] == sum(value.numel() for value in weights.values())


def test_parts_are_one_file_again():
    weights = write_bert()
    SAFETENSORS.unlink()
    save_torch_state_dict(weights, "theirs", max_shard_size=8000)
    run()
    assert load_file("out/model.safetensors").keys() == weights.keys()
    _, part, *_ = sorted(Path("theirs").glob("model-*"))
    part.unlink()
    shutil.rmtree("results/base_model")
    assert f"the download is not complete: model.safetensors.index.json also names {part.name}" in refused()


# What is changed (a dictionary: in config.json), and parts of the line that refuses it.
REFUSED = {
    "bert": [
        (lambda: SAFETENSORS.write_bytes(SAFETENSORS.read_bytes()[:-100]), "model.safetensors: truncated or damaged ... replace it by"),
        (SAFETENSORS.unlink, "has no file of weights ... it has config.json"),
        (CONFIG.unlink, "has no config.json"),
        (lambda: CONFIG.write_text("[" * 100_000), "config.json: not valid JSON"),
        ({"auto_map": {"AutoModel": "m.M"}, "model_type": "own"}, "auto_map ... never run ... LLaDA"),
        ({"model_type": "t5"}, "model_type = 't5' ... has no AutoModelForMaskedLM for it"),
        ({"model_type": ["bert"]}, "model_type = ['bert'] in config.json is not the name of a type"),
        ({"hidden_size": "x"}, "Validation error for field 'hidden_size': TypeError:  ... expected int"),
        ({"num_hidden_layers": 2_000_000}, "num_hidden_layers = 2,000,000: 1,000 layers at most"),
        (lambda: write_tokenizer(Path("theirs/tokenizer.json"), size=272), "272 ... 270"),
        (lambda: SAFETENSORS.rename("theirs/adapter_model.safetensors"), "the model in theirs: its only weights are an adapter (PEFT)"),
    ],
    "gpt_bert": [
        ({"hidden_size": 48}, "classifier.nonlinearity.1.bias is [24], but must be [48]"),
        ({"num_hidden_layers": 4}, "attention_layers.3.in_proj_qk.bias is absent, but must be [48]"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size"),
        ({"layer_norm_eps": None}, "config.json: layer_norm_eps = None"),
        ({"hidden_size": 2**40}, "config.json: hidden_size = 1099511627776"),
        (lambda: Path("theirs/tokenizer.json").write_text("{"), "theirs/tokenizer.json: a file of the `tokenizers` library is expected"),
    ],
    "norbert4": [
        ({"hidden_size": 96}, "this is not the model that it describes: classifier.emb2vocab.scale is [48]"),
        ({"query_key_head_size": 11}, "query_key_head_size"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "words"), [(kind, *case) for kind in REFUSED for case in REFUSED[kind]])
def test_what_is_no_model_is_one_line(kind, change, words):
    write, arguments = KINDS[kind]
    write()
    write_json(CONFIG, read_json(CONFIG) | change) if isinstance(change, dict) else change()
    line = refused(**arguments)
    assert all(part in line for part in words.split(" ... ")), line


def test_weights_that_are_not_numbers_are_named():
    """Training would say much later that the learning rate is too high."""
    weights, name = write_bert(), "bert.encoder.layer.0.output.dense.weight"
    weights[name][3, 3] = math.inf
    save_file(weights, SAFETENSORS)
    line = refused()
    assert f"the model in theirs: {name} holds values that are not numbers" in line and "bytes" not in line
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64):
        assert base_model.all_numbers(torch.ones(3).to(kind))
        assert not base_model.all_numbers(torch.tensor([1, math.nan]).to(kind))


def test_what_is_no_checkpoint():
    write_published()
    whole, weights = BIN.read_bytes(), published_model()[1]
    for content in (b"", b"hello", whole[:3000]):
        BIN.write_bytes(content)
        assert "not a checkpoint of PyTorch, or a damaged one" in refused(**GPT_BERT)
    for content in ([1, 2], {"epoch": 3}, {0: torch.zeros(1)}, {"model": weights, "ema_model": weights}):
        torch.save(content, BIN)
        assert "does not contain the state_dict" in refused(**GPT_BERT)
    torch.save(weights | {"module.classifier.nonlinearity.5.weight": torch.zeros(96, 24)}, BIN)
    assert "is not the token embedding" in refused(**GPT_BERT)


def test_an_adapter_alone_is_named_without_a_configuration_and_before_anything_runs():
    write_bert()
    SAFETENSORS.rename("theirs/adapter_model.safetensors")
    CONFIG.unlink()
    write_json("theirs/adapter_config.json", {"base_model_name_or_path": "lab/base"})
    assert "its only weights are an adapter (PEFT)" in refused()
    model = {"languages": ["eng"], "model": {"source": "./theirs"}}
    with pytest.raises(UserError, match=r"model\.source = '\./theirs' of model m: its only weights are an adapter"):
        inputs.base_model(Configuration([("here", {"models": {"m": model}})]).model("m"))


def test_a_missing_output_matrix_names_the_key():
    """A Llama says by default that its output is a matrix of its own."""
    publish("llama", Path("theirs"))
    save_file({name: value for name, value in load_file(SAFETENSORS).items() if name != "lm_head.weight"}, SAFETENSORS)
    line = refused(auto_class="AutoModelForCausalLM")
    assert "such as lm_head.weight; " in line and "tie_word_embeddings in config.json is wrong" in line
    write_json(CONFIG, read_json(CONFIG) | {"tie_word_embeddings": True})
    run(auto_class="AutoModelForCausalLM")


def test_a_published_gpt_bert_model_is_ours_under_our_names(caplog):
    config = write_published()
    assert "is a gpt_bert model: set model.architecture: gpt_bert next to model.source" in refused()
    made = run(**GPT_BERT)
    assert made["figures"]["architecture"] == "gpt_bert"
    assert read_json("out/config.json") == config | {"gate": True, "layer_mixing": True}
    expected = {name.removeprefix("module."): value.float() for name, value in published_model()[1].items()}
    settings = train_settings(["eng"], section("model", source="theirs", hidden_dropout_prob=0.2), section("train"))
    shape = shape_of(settings, Path("out"), 96)
    assert (shape.hidden_size, shape.hidden_dropout_prob) == (config["hidden_size"], 0.2)
    network = GPTBertNetwork(shape, section("train"), ALONE)
    load_weights(Path("out/model.safetensors"), network)
    assert all(torch.equal(value, expected[name]) for name, value in network.weights().items())
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles is None and tokenizer.encode("a").tokens[0] == "<s>"
    assert "the tokenizer of theirs is not lossless" in caplog.text, "a warning: there is no other for these weights"
    with pytest.raises(UserError, match=r"the tokenizer has 97 entries, but the embedding of theirs has only 96 rows:"):
        shape_of(settings, Path("out"), 97)


class Evil:
    """What runs a command when a pickle is loaded without care."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_file_is_run(legacy):
    """Neither in today's archives nor in bare pickles."""
    write_published()
    canary = Path("canary")
    torch.save(published_model()[1] | {"x": Evil(canary)}, BIN, _use_new_zipfile_serialization=not legacy)
    line = refused(**GPT_BERT)
    assert "pytorch_model.bin contains more than tensors" in line and "so it is refused" in line
    assert not canary.exists()
    torch.load(BIN, weights_only=False)
    assert canary.exists()  # it would have


FORMS = {"BabyBabelLM": (True, None), "ltgoslo": (False, normalizers.Prepend(" ")), "plain": (False, None)}


@pytest.mark.parametrize("form", FORMS)
def test_the_tokenizer_begins_texts_and_knows_the_mask(form, tmp_path):
    """A hidden word in a text is one token, and the words around it are as they were."""
    adapted = adapted_tokenizer(write_tokenizer(tmp_path / "tokenizer.json", *FORMS[form]))
    whole = adapted.encode("A B C").ids
    assert whole[0] == SPECIAL_TOKENS.index("<s>")
    assert adapted.encode("A <mask> C").ids == [*whole[:-4], SPECIAL_TOKENS.index(MASK), *whole[-2:]]
    assert adapted.encode("A", "B").tokens.count("<s>") == 2
    assert adapted.get_vocab_size() == 96
    assert "<mask>" not in adapted.decode(adapted.encode("A <mask> C").ids)
    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "other.json"))
    with pytest.raises(UserError, match="has no token <s>"):
        adapted_tokenizer(tmp_path / "other.json")


def write_llada(name: str = "model.safetensors", **sizes) -> dict[str, torch.Tensor]:
    """A small LLaDA with the stored weights, or with 3 everywhere where it has other sizes."""
    with safe_open(LLADA, "pt") as file:
        config = json.loads(file.metadata()["config"])
        weights = {n.removeprefix("weight."): file.get_tensor(n) for n in file.keys() if n.startswith("weight.")}
    if sizes:
        renamed = AutoConfig.for_model(**llada.config_of(config | sizes, "it"))
        shapes = dict(on_meta(renamed, "AutoModelForMaskedLM").named_parameters())
        names = llada.names_of([n for n in weights if f"blocks.{sizes['n_layers']}." not in n], sizes["n_layers"], "it")
        weights = {theirs: torch.full(shapes[ours].shape, 3.0) for ours, theirs in names.items()}
    write_json(CONFIG, config | sizes)
    (torch.save if name.endswith(".bin") else save_file)(weights, f"theirs/{name}")
    return weights


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_llada_becomes_eurobert_a_tensor_at_a_time(name):
    """It may have 8 billion parameters. Here, 7 tensors of 40 MB stay in their file until they are written."""
    weights = write_llada(name)
    run()
    assert read_json("out/config.json")["model_type"] == "eurobert"
    head = load_file("out/model.safetensors")["lm_head.weight"]
    assert torch.equal(head, weights["model.transformer.ff_out.weight"])
    shutil.rmtree("results/base_model")
    Path(f"theirs/{name}").unlink()
    write_llada(name, d_model=512, mlp_hidden_size=20480, n_layers=2)
    before, seen, done = anonymous_memory(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(anonymous_memory() - before)

    with ThreadPoolExecutor() as pool:
        pool.submit(watch)
        try:
            run()
        finally:
            done.set()
    assert max(seen) < 70 * 2**20
    with safe_open("out/model.safetensors", "pt") as file:
        assert file.get_tensor("model.layers.1.mlp.down_proj.weight")[-1, -1] == 3


def anonymous_memory() -> int:
    """Bytes of this process that are no file's."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def test_a_repository_is_fetched_at_a_commit_that_stays(hub, monkeypatch):
    """By the real client, from a Hub on this machine, nothing but the files of the model; and then from the cache."""

    def stage(source: str) -> subprocess.CompletedProcess:
        more = {"languages": ["eng"], "model": {"architecture": "transformers", "source": source}}
        more["train"] = {"objective": "masked", "optimizer": "adamw"}
        configuration = Configuration([("test", {"models": {"more": more}})])
        return run_stage("base_model", asked_for("base_model", settings_of(configuration, "more", "base_model")))

    weights = write_bert()
    files = {path.name: path.read_bytes() for path in Path("theirs").iterdir()}
    files |= {"modeling.py": b"raise SystemExit", "README.md": b"---\nlicense: mit\n---\n", "onnx/model.bin": b"x"}
    commit = hub.commit("models/owner/name", files)
    figures = figures_of(stage("owner/name"))
    assert (figures["commit"], figures["license"]) == (commit, "mit")
    assert figures["summary"] == f"owner/name at {commit[:8]}, 3.3 k parameters"
    assert load_file("out/model.safetensors").keys() == weights.keys()
    assert hub.count("modeling.py") == hub.count("onnx/model.bin") == 0
    hub.commit("models/owner/name", files | {"README.md": b"---\nlicense: other\n---\n"})
    for offline in ("0", "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        shutil.rmtree("results/base_model")
        assert stage("owner/name").returncode == 0 and manifest.verify("out")["figures"]["commit"] == commit
    monkeypatch.delenv("HF_HUB_OFFLINE")
    lines = stage("owner/nothing").stderr.splitlines()
    assert len(lines) == 1 and "the model owner/nothing on http" in lines[0] and "model.source" in lines[0]


# NorBERT4, as HPLT publishes it.


@pytest.mark.parametrize("objective", ["hybrid", "masked", "causal", "diffusion"])
def test_every_objective_begins_with_the_weights_of_norbert4(objective):
    theirs, made = write_norbert4(Path("theirs")), run(**NORBERT4)
    assert made["figures"]["architecture"] == "norbert4"
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles is None and tokenizer.encode("a<mask>").tokens[0] == "<s>", "a token before a text"
    assert made["figures"]["parameters"] == sum(t.numel() for n, t in theirs.items() if n != HEAD)
    model = section("model", architecture="norbert4", source="./theirs", hidden_dropout_prob=0.3)
    settings = train_settings(["eng"], model, section("train", objective=objective))
    network = make_network(settings, VOCABULARY, Path("out"), ALONE)
    assert network.config.items() >= norbert4()[0].items()
    assert (network.config["embedding_dropout"], network.config["hidden_dropout"]) == (0.3, 0.3)
    load_weights(Path("out/model.safetensors"), network)
    assert network.weights().keys() == theirs.keys() - {HEAD}
    assert all(torch.equal(value, theirs[name]) for name, value in network.weights().items())


def test_a_tokenizer_with_other_names_stays_as_it_is():
    write_norbert4(Path("theirs"))
    text = Path("theirs/tokenizer.json").read_text()
    for ours, other in (("<s>", "[CLS]"), ("</s>", "[SEP]"), ("<mask>", "[MASK]"), ("<pad>", "[PAD]")):
        text = text.replace(json.dumps(ours), json.dumps(other))
    Path("theirs/tokenizer.json").write_text(text)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    write_json("theirs/tokenizer_config.json", names)
    run(**NORBERT4)
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles == {"entries": 160, "begin": 1, "end": 2, "pad": 3, "mask": 4, "unknown": None}
    assert tokenizer.encode("a").tokens[0] != "[CLS]", "documents get it, not the tokenizer"
    model = section("model", architecture="norbert4", source="./theirs")
    vocabulary = Vocabulary.published(roles, {1, 2, 3, 4})
    network = make_network(train_settings(["eng"], model, section("train")), vocabulary, Path("out"), ALONE)
    assert network.config["vocab_size"] == 160 < vocabulary.size


def test_a_norbert4_has_its_own_architecture_and_needs_no_second_embedding():
    theirs = write_norbert4(Path("theirs"))
    assert "is a norbert4 model: set model.architecture: norbert4 next to model.source" in refused(**GPT_BERT)
    line = refused(**NORBERT4, shape={"num_hidden_layers": 9})
    assert "model.num_hidden_layers = 9: the model in theirs has 5" in line
    torch.save(theirs | {HEAD: theirs[HEAD] + 1}, BIN)
    assert f"{HEAD} is not the token embedding" in refused(**NORBERT4)
    BIN.unlink()
    save_file({name: value for name, value in theirs.items() if name != HEAD}, SAFETENSORS)
    made = run(**NORBERT4)
    assert load_file("out/model.safetensors").keys() == theirs.keys() - {HEAD}
    more = {"languages": ["eng"], "model": {"source": "./theirs", "architecture": "norbert4"}}
    graph = Graph(Configuration([("config.yaml", {"models": {"more": more}})]))
    assert size_of_model(graph, "more").parameters == made["figures"]["parameters"]
    labels = {"train": {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}}
    with pytest.raises(UserError, match="norbert4 has no labels"):
        Configuration([("config.yaml", {"models": {"more": more | labels}})]).model("more")


def test_a_tokenizer_without_our_tokens_is_refused():
    write_published()
    path = Path("theirs/tokenizer.json")
    path.write_text(path.read_text().replace(json.dumps("<mask>"), json.dumps("[MASK]")))
    run(**GPT_BERT)
    with pytest.raises(UserError, match=r"the tokenizer of theirs: .* is expected among the special tokens"):
        adopt_from_model(Path("out"), "theirs")


def test_a_tokenizer_of_ours_that_was_saved_without_its_template_begins_with_bos():
    write_published()
    write_json(CONFIG, read_json(CONFIG) | {"model_type": "babelmill_gpt_bert"})
    path = Path("theirs/tokenizer.json")
    write_json(path, json.loads(adapted_tokenizer(path).to_str()) | {"post_processor": None})
    run(**GPT_BERT)
    tokenizer, roles = adopt_from_model(Path("out"), "theirs")
    assert roles is None and tokenizer.encode("a").tokens[0] == "<s>"
