"""The stage `base_model`: models from elsewhere become tensors under neutral names, or one clear line."""

import argparse
import json
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers
from transformers import AutoConfig, BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from babelmill import base_model
from babelmill.commands.plan import size_of_model
from babelmill.config.inputs import require_model
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
from helpers.hub.hub_stage import asked_for, run_stage
from helpers.models.published import model as published_model
from helpers.models.published import norbert4, write_norbert4, write_tokenizer
from helpers.stages import settings_of
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, section, train_settings

pytestmark = pytest.mark.slow

LLADA = DATA / "llada_tiny.safetensors"
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


BERT = {
    **{"vocab_size": 270, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8},
    "max_position_embeddings": 32,
}


def write_bert(name: str = "model.safetensors", **config) -> dict[str, torch.Tensor]:
    """A small BERT, some of it in fp16."""
    values = {"model_type": "bert", **BERT, **config}
    write_json("theirs/config.json", values)
    model = BertForMaskedLM(BertConfig(**BERT))
    weights = {key: value.detach().clone() for key, value in model.named_parameters()}
    weights |= {key: value.half() for key, value in weights.items() if "LayerNorm" in key}
    (torch.save if name.endswith(".bin") else save_file)(weights, f"theirs/{name}")
    return weights


def write_published(**more) -> dict:
    config, weights = published_model()
    write_json("theirs/config.json", config | {"model_type": "gpt_bert", "auto_map": {"AutoModel": "x.Y"}} | more)
    torch.save(weights, "theirs/pytorch_model.bin")
    write_tokenizer(Path("theirs/tokenizer.json"), size=96)
    return config


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
    Path("theirs/model.safetensors").unlink()
    first, *others = weights
    parts = {"model-00001-of-00002.safetensors": [first], "model-00002-of-00002.safetensors": others}
    for name, keys in parts.items():
        save_file({key: weights[key] for key in keys}, f"theirs/{name}")
    table = {key: name for name, keys in parts.items() for key in keys}
    write_json("theirs/model.safetensors.index.json", {"weight_map": table})
    run()
    assert load_file("out/model.safetensors").keys() == weights.keys()
    Path("theirs/model-00002-of-00002.safetensors").unlink()
    shutil.rmtree("results/base_model")
    assert "the download is not complete: model.safetensors.index.json also names model-00002-of" in refused()


def cut(path: str = "theirs/model.safetensors") -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) - 100])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, ["model.safetensors: truncated or damaged", "replace it by a complete copy"]),
        (lambda: Path("theirs/model.safetensors").unlink(), ["has no file of weights", "it has config.json"]),
        (lambda: Path("theirs/config.json").unlink(), ["has no config.json"]),
        (lambda: write_bert(auto_map={"AutoModel": "m.M"}, model_type="own"), ["auto_map", "never run", "LLaDA"]),
        (lambda: write_bert(model_type="t5"), ["model_type = 't5'", "has no AutoModelForMaskedLM for it"]),
        (lambda: write_tokenizer(Path("theirs/tokenizer.json"), size=272), ["272", "270"]),
        (lambda: write_bert(model_type=["bert"]), ["model_type = ['bert'] in config.json is not the name of a type"]),
        (
            lambda: write_bert(hidden_size="x"),
            ["Validation error for field 'hidden_size': TypeError: ", "expected int"],
        ),
        (lambda: write_bert(num_hidden_layers=2_000_000), ["num_hidden_layers = 2,000,000: 1,000 layers at most"]),
        (lambda: Path("theirs/config.json").write_text("[" * 100_000), ["config.json: not valid JSON"]),
    ],
)
def test_what_is_no_model_is_one_line(change, words):
    write_bert()
    change()
    line = refused()
    assert all(word in line for word in words), line


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_not_numbers_are_named(value):
    """Training would say much later that the learning rate is too high."""
    weights, name = write_bert(), "bert.encoder.layer.0.output.dense.weight"
    weights[name][3, 3] = float(value)
    save_file(weights, "theirs/model.safetensors")
    line = refused()
    assert f"the model in theirs: {name} holds values that are not numbers" in line and "bytes" not in line
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64):
        assert base_model.all_numbers(torch.ones(3).to(kind))
        assert not base_model.all_numbers(torch.tensor([1, float("nan")]).to(kind))


def test_an_adapter_alone_is_named():
    write_bert()
    Path("theirs/model.safetensors").rename("theirs/adapter_model.safetensors")
    assert "the model in theirs: its only weights are an adapter (PEFT)" in refused()
    Path("theirs/config.json").unlink()
    write_json("theirs/adapter_config.json", {"base_model_name_or_path": "lab/base"})
    assert "its only weights are an adapter (PEFT)" in refused()
    with pytest.raises(UserError, match=r"^here: its only weights are an adapter"):
        require_model("theirs", "here")


def test_a_missing_output_matrix_names_the_key():
    """A Llama says by default that its output is a matrix of its own."""
    config = LlamaConfig(vocab_size=30, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    config.save_pretrained("theirs")
    weights = {name: value.detach() for name, value in LlamaForCausalLM(config).named_parameters()}
    del weights["lm_head.weight"]
    save_file(weights, "theirs/model.safetensors")
    line = refused(auto_class="AutoModelForCausalLM")
    assert "such as lm_head.weight; " in line and "tie_word_embeddings in config.json is wrong" in line
    write_json("theirs/config.json", read_json("theirs/config.json") | {"tie_word_embeddings": True})
    run(auto_class="AutoModelForCausalLM")


def test_a_published_gpt_bert_model_is_ours_under_our_names(caplog):
    config = write_published()
    assert "is a gpt_bert model: set model.architecture: gpt_bert next to model.source" in refused()
    made = run(auto_class=None)
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
    path, canary = Path("theirs/pytorch_model.bin"), Path("canary")
    torch.save(published_model()[1] | {"x": Evil(canary)}, path, _use_new_zipfile_serialization=not legacy)
    line = refused(auto_class=None)
    assert "pytorch_model.bin contains more than tensors" in line and "so it is refused" in line
    assert not canary.exists()
    torch.load(path, weights_only=False)
    assert canary.exists()  # it would have


def test_what_is_no_checkpoint():
    write_published()
    path, weights = Path("theirs/pytorch_model.bin"), published_model()[1]
    for content in (b"", b"hello", path.read_bytes()[:3000]):
        path.write_bytes(content)
        assert "not a checkpoint of PyTorch, or a damaged one" in refused(auto_class=None)
    for content in ([1, 2], {"epoch": 3}, {0: torch.zeros(1)}, {"model": weights, "ema_model": weights}):
        torch.save(content, path)
        assert "does not contain the state_dict" in refused(auto_class=None)
    torch.save(weights | {"module.classifier.nonlinearity.5.weight": torch.zeros(96, 24)}, path)
    assert "is not the token embedding" in refused(auto_class=None)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 48}, "classifier.nonlinearity.1.bias is [24], but must be [48]"),
        ({"num_hidden_layers": 4}, "attention_layers.3.in_proj_qk.bias is absent, but must be [48]"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size"),
        ({"layer_norm_eps": None}, "config.json: layer_norm_eps = None"),
        ({"hidden_size": "24"}, "config.json: hidden_size = '24'"),
        ({"hidden_size": 2**40}, "config.json: hidden_size = 1099511627776"),
    ],
)
def test_a_wrong_configuration_is_one_line(changes, message):
    write_published(**changes)
    assert message in refused(auto_class=None)


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


def test_a_tokenizer_of_another_model(tmp_path):
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
    write_json("theirs/config.json", config | sizes)
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
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) * 1024


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
    done = stage("owner/name")
    assert done.returncode == 0, done.stderr
    figures = manifest.verify("out")["figures"]
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


def test_what_does_not_fit_norbert4_is_one_line():
    theirs = write_norbert4(Path("theirs"))
    config = read_json(Path("theirs/config.json"))
    assert "is a norbert4 model: set model.architecture: norbert4 next to model.source" in refused(auto_class=None)
    assert "model.num_hidden_layers = 9: the model in theirs has 5" in refused(
        **NORBERT4, shape={"num_hidden_layers": 9}
    )
    write_json("theirs/config.json", config | {"hidden_size": 96})
    assert "this is not the model that it describes: classifier.emb2vocab.scale is [48]" in refused(**NORBERT4)
    for key, value in {"query_key_head_size": 11, "local_window_length": "6", "vocab_size": 0}.items():
        write_json("theirs/config.json", config | {key: value})
        assert key in refused(**NORBERT4), key
    write_json("theirs/config.json", config)
    torch.save(theirs | {HEAD: theirs[HEAD] + 1}, "theirs/pytorch_model.bin")
    assert f"{HEAD} is not the token embedding" in refused(**NORBERT4)
    Path("theirs/pytorch_model.bin").unlink()
    save_file({name: value for name, value in theirs.items() if name != HEAD}, "theirs/model.safetensors")
    run(**NORBERT4)
    assert load_file("out/model.safetensors").keys() == theirs.keys() - {HEAD}


def test_the_settings_say_which_architecture_it_is():
    write_norbert4(Path("theirs"))
    more = {"languages": ["eng"], "model": {"source": "./theirs", "architecture": "norbert4"}}
    configuration = Configuration([("config.yaml", {"models": {"more": more}})])
    assert settings_of(configuration, "more", "base_model")["architecture"] == "norbert4"
    labels = {"train": {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]}}
    with pytest.raises(UserError, match="norbert4 has no labels"):
        Configuration([("config.yaml", {"models": {"more": more | labels}})]).model("more")
    assert size_of_model(Graph(configuration), "more").parameters == run(**NORBERT4)["figures"]["parameters"]
