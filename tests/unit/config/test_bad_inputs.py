"""What users write wrongly ends in one line that names file, key and value, before anything runs."""

import argparse
import shutil
from pathlib import Path

import pytest

from babelmill.commands import show
from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError, write_json
from babelmill.core.yaml_file import parse
from babelmill.graph import Graph, Result
from babelmill.stages import STAGES
from conftest import ROOT
from helpers.stages import settings_of

GPT2 = "train: {objective: causal}\nmodel: {architecture: transformers, config: {model_type: gpt2"
TEXT = "languages: {eng: {corpus: {files: [texts/*.txt]}}}\n"


@pytest.fixture(autouse=True)
def project(folder):
    """A folder with a text and a configuration, in which commands would be typed."""
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("A text.")
    Path("config").mkdir()
    Path("config/config.yaml").write_text(TEXT)
    return folder


def results(overrides: dict | None = None, configfiles: tuple = (), name: str = "eng") -> list[Result]:
    """What a dry run does with the configuration: it finds the results of a model, with their settings."""
    made = loading.load(configfiles, overrides)
    settings_of(made, name, "convert")  # other tests wrote files of the same names
    return Graph(made).of_model(name)


def refused(*words: str, **arguments) -> str:
    """The one line of error, which has all the words."""
    with pytest.raises(UserError) as error:
        results(**arguments)
    line = str(error.value)
    assert "\n" not in line and all(word in line for word in words), line
    assert not line.startswith(("None", "?"))
    return line


# A configuration, whose lines are divided by \n here, and what is said of it: one of each kind of mistake.
MISTAKES = r"""
train: {max_steps: 30}\npreset: tiny\ntrain: {epochs: 3} => the key train appears twice | in lines 1 and 3
train: {seed: 1:30} => train.seed = '1:30': | valid integer
tran: {} => unknown key tran; did you mean train
models: {eng: {trian: {}}} => unknown key models.eng.trian; did you mean train
train: {vocab_size: 3} => unknown key train.vocab_size; did you mean tokenizer.vocab_size?
train.learning_rate: 1 => unknown key train.learning_rate | written as train: {learning_rate: ...}
run: {hf_token: x} => unknown key run.hf_token; secrets are environment variables
suites: {mine: {file: [a.tsv]}} => unknown key suites.mine.file; did you mean files
tasks: {mine: {TASK, text: "{a}", tuning: {epoch: 1}}}\nevaluation: {tasks: [mine]} => tasks.mine.tuning: unknown key epoch; did you mean epochs?
preset: TINY => preset = 'TINY' of model eng: there is no such file; did you mean tiny
targets: eng => targets = 'eng': a list is expected: ['eng']
targets: [enf] => targets names 'enf' | eng
targets: [gsw] => 'gsw', which is not a model | `languages: {gsw: {name: NAME, corpus:
models: {a/b: {languages: [eng]}} => models.a/b = 'a/b': a name is expected: a small letter, then
languages: {gsw: {script: Latn}} => languages.gsw.name: a language of your own has a name
train: {max_words: 10m} => train.max_words = '10m': a number of words is expected, such as 10M, 500k or 100000000
corpus: {document: 0 words} => corpus.document = '0 words': file, paragraph, line or a number of words is expected
corpus: {hub: [{config: x}]} => corpus.hub.0.repository: this key is missing
run: {checkpoint_mirror: "s3://key:secret@bucket/x"} => run.checkpoint_mirror = 's3:***@bucket/x': s3://bucket/prefix
run: {checkpoint_mirror: "https://h/x?token=1 2"} => run.checkpoint_mirror = 'https://h/x?***
train: {lora_alpha: 4} => train.lora_alpha = 4, train.lora_rank = 0: an alpha needs a rank
train: {hybrid_ratio: 15/16, max_steps: 100, sequence_lengths: [128, 512], phase_starts: [0, 0.5], global_batch_tokens: 8192} => = 8192, train.batch_reduction = 4.0, | the smallest batch of a phase
train: {sequence_lengths: [1024], phase_starts: [0], global_batch_tokens: 16384} => train.sequence_lengths = [1024] of model eng: model.max_position_embeddings = 512 at most
tasks: {mine: {TASK}} => tasks.mine.text = None, tasks.mine.pair = None: templates
languages: {mine_too: {language: enk}} => languages.mine_too.language = 'enk': there is no such language; did you
corpus: {decontaminate: [blmip]} => corpus.decontaminate: there is no suite 'blmip'; did you mean blimp
languages: {eng: {corpus: {decontaminate: [blimp_nl]}}} => decontaminate = blimp_nl: eng is none of its languages, nld
models: {mix: {languages: [eng, dee]}} => models.mix: model mix: languages: 'dee' is not a language; did you mean deu
GPT2, n_embed: 64}} => model.config.n_embed = 64: gpt2 of transformers has no such key; did you mean n_embd
GPT2, scale_attn_weights: no}} => model.config: | 'scale_attn_weights' expected bool
GPT2, vocab_size: 9}} => model.config = | tokenizer.vocab_size
evaluation: {suites: [blmp, nosuch], tasks: [rt]} => model eng: these do not exist: evaluation.suites: blmp; did you mean blimp | nosuch | evaluation.tasks: rt; did you mean
tokenizer: {source: own/tokenizer.json} => tokenizer.source = 'own/tokenizer.json' of model eng: | no such file
corpus: {validation_share: 0} => corpus.validation_share = 0.0 of eng: | or corpus.validation_files
languages: {eng: {corpus: {files: [], hub: null}}} => languages.eng: corpus of eng: files, a dataset of the Hub (hub) or builtin is expected
model: {source: eng} => model.source: eng continues eng, which is a circle
train: {objective: labels, sequence_lengths: [64, 128], phase_starts: [0, 0.5]} => one length with labels
train: {objective: causal, typos: 0.1} => train.typos = 0.1, train.objective = 'causal': 0 unless
predict: {context: da, context_column: lang} => predict.context_column = 'lang', predict.context = 'da': one of the two
predict: {tables: {1a/b: x.csv}} => predict.tables.1a/b = '1a/b': a name is expected: letters and digits
predict: {tables: {1880: x.csv, '1880': y.csv}} => 1880 appears 2 times
publish: {username: me, repo_template: '{username}/{model.x}'} => publish.repo_template = '{username}/{model.x}': owner/name is expected
predict: {tables: {a: {file: x.csv}}} => predict.tables.a = {'file': 'x.csv'}: input should be a valid string
models: {occ: {languages: [eng], train: {objective: labels, sequence_lengths: [32], phase_starts: [0]}}, more: {languages: [eng], model: {source: occ}}} => model.source = 'occ' of model more: no label model
models: {more: {languages: [eng], model: {source: egn}}} => model.source = 'egn': a model | did you mean eng
models: {more: {model: {source: eng, hidden_size: 512}}} => model.hidden_size = 512 of model more: that of its source eng is 128
models: {more: {languages: [eng], tokenizer: {source: own.json, prefix_space: true}}} => tokenizer.prefix_space = True of model more: false, since the tokenizer is not trained
models: {plain: {languages: [eng]}, more: {model: {source: plain}, tokenizer: {prefix_space: true}}} => tokenizer.prefix_space = True of model more: false, since the tokenizer is not trained
models: {more: {languages: [eng], tokenizer: {prefix_space: true}, model: {architecture: transformers, config: {model_type: canine}}, train: {objective: masked}}} => tokenizer.prefix_space = True of model more: false, since the tokenizer is not trained
models: {more: {model: {source: owner/name}}} => models.more.languages: a list of codes is expected
"""
SHORT = {"GPT2": GPT2, "TASK": "train: [texts/a.txt], test: [texts/a.txt], language: eng"}


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_in_a_file_is_one_line_that_names_the_file(mistake):
    text, words = mistake.replace(r"\n", "\n").split(" => ")
    for short, whole in SHORT.items():
        text = text.replace(short, whole)
    Path("mine.yaml").write_text(text)
    with open("config/config.yaml", "a") as file:
        file.write("preset: tiny\ntrain: {batch_reduction: 4}\n")
    name = "more" if "more:" in text else "mix" if "mix:" in text else "eng"
    assert refused(*words.split(" | "), configfiles=("mine.yaml",), name=name).startswith("mine.yaml")


def test_a_mistake_in_a_model_stops_only_who_asks_for_it():
    """Also where its language is another model's, whose suites and tasks are looked at together."""
    models = "models: {bad: {languages: [eng], train: {epochs: many}}, odd: {languages: [enf]}}\n"
    Path("mine.yaml").write_text(models + "evaluation: {suites: [english_basics]}\n")
    made = loading.load(["mine.yaml"])
    assert made.model("eng") and STAGES["score"].parts(made.model("eng")) == ["english_basics"]
    refused("train.epochs = 'many'", configfiles=("mine.yaml",), name="bad")


def test_an_unknown_key_in_a_file_of_the_project(tmp_path):
    """Each names the file and the nearest key; others may add files to these folders, or change one."""
    shutil.copytree(ROOT / "config", tmp_path / "here/config")
    for path, key, meant, use in (
        ("protocols/sound", "epoch", "epochs", {"evaluation": {"tasks": ["rte_sound"]}}),
        ("suites/blimp", "phenomenom", "phenomenon", {"evaluation": {"suites": ["blimp"]}}),
        ("presets/tuned", "trains", "train", {"preset": "tuned"}),
    ):
        with open(tmp_path / f"here/config/{path}.yaml", "a") as file:
            file.write(f"{key}: 3\n")
        with pytest.raises(UserError, match=rf"config/{path}.yaml: unknown key {key}; did you mean {meant}"):
            Configuration([("mine.yaml", use)], tmp_path / "here").model("eng")


def test_a_folder_without_a_configuration():
    given = {"corpus": {"validation_share": 0, "validation_files": ["texts/a.txt"]}}
    assert results(given), "else nothing is set aside"
    Path("config/config.yaml").unlink()
    refused("config/config.yaml: no such file; go to the folder of the workflow, or name a --configfile")
    line = "--configfile mine.yaml: no such file; --configfile takes all words up to the next option"
    refused(line, configfiles=("mine.yaml",))


def test_words_are_words_and_numbers_are_numbers():
    """`no` is a language, a configuration and a group like any other, and still False where a key says yes or no."""
    Path("mine.yaml").write_text(
        "languages: {no: {name: Norwegian, corpus: {files: [texts/*.txt]}}, off: {name: Official}}\n"
        "corpus: {hub: [{repository: a/b, config: no}, {repository: a/b, config: 2024-01-31}, {repository: a/b, config: 010}], deduplicate: off}\n"
        "groups: {on: [no], yes: [off]}\ntrain: {max_steps: 1e4, learning_rate: 1e-3, seed: 010}\n"
    )
    made = loading.load(["mine.yaml"])
    corpus = made.corpus("off").corpus
    assert (made.language("no").name, made.language("off").name) == ("Norwegian", "Official")
    assert [part.config for part in corpus.hub] == ["no", "2024-01-31", "010"] and corpus.deduplicate is False
    assert (made.groups["on"], made.groups["yes"]) == (["no"], ["off"])
    train = made.model("eng").train
    assert (train.max_steps, train.learning_rate, train.seed) == (10_000, 0.001, 10)


def test_what_looks_like_a_repetition_and_is_none():
    text = "base: &base {train: {seed: 1}}\nother:\n  <<: *base\n  train: {seed: 2}\nlist: [{a: 1}, {a: 2}]\n1: a\n'2': b\n"
    assert parse(text, "a.yaml")["other"] == {"train": {"seed": 2}}
    Path("mine.yaml").write_text("targets: [tier1, eng]\ngroups: {mine: [eng, deu]}\n")
    assert loading.load(["mine.yaml"]).targets().count("eng") == 1
    for path in [*ROOT.glob("config/**/*.yaml"), *ROOT.glob("profiles/*/*.yaml"), *ROOT.glob("envs/*.yaml")]:
        parse(path.read_text(), path)


def test_every_yaml_file_is_checked():
    Path("profile").mkdir()
    not_utf8 = (b"a: 1\nb: \xe9\n", r"line 2 is not UTF-8 \(byte 0xe9\)")
    for content, words in (not_utf8, (b"[1, 2]\n", "a mapping"), (b"a: [", "not valid YAML")):
        Path("profile/profile.yaml").write_bytes(content)
        with pytest.raises(UserError, match=f"^profile/profile.yaml: .*{words}"):
            loading.read_profile("profile")


def test_a_manifest_that_is_none():
    """JSON, but of something else."""
    folder = Path("results/corpus/eng-0")
    folder.mkdir(parents=True)
    for content in ("[]", "3", '{"files": []}', '{"files": {}, "settings": {}, "upstream": {}}', '"text"'):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(UserError, match=r"results/corpus/eng-0/manifest\.json: not a manifest of this workflow"):
            manifest.verify(folder)
        results()  # and a dry run has nothing to say about it
    empty = {key: {} for key in ("files", "settings", "upstream", "figures")}
    write_json(folder / "manifest.json", {"stage": "corpus"} | empty)
    with pytest.raises(UserError, match="results/corpus/eng-0: not a converted model"):
        show.run(argparse.Namespace(folder=folder, masked=None, prompt=None))


def test_a_mistake_of_two_files_names_both():
    Path("one.yaml").write_text("train: {max_steps: 9}\n")
    Path("two.yaml").write_text("models: {eng: {train: {max_words: 1M}}}\n")
    line = r"^two\.yaml, models\.eng and one\.yaml: train\.max_words = 1000000, train\.max_ste"
    with pytest.raises(UserError, match=line):
        loading.load(["one.yaml", "two.yaml"]).model("eng")


def test_words_of_the_command_line():
    """Snakemake hands the null of a profile over as Python writes it."""
    assert loading.parse_overrides(["train={'max_steps': None}"]) == {"train": {"max_steps": None}}
    for words, message in {
        "train.learning_rate=1": "nested keys are written as train: {learning_rate: ...}",
        "train={seed: 1, seed: 2}": "the key seed appears twice",
        "a=1 | a=2": "a is given twice",
        "a=1 | eng": "eng: KEY=VALUE is expected; --config takes all words up to the next option",
    }.items():
        with pytest.raises(UserError, match=rf"^--config.*({message})"):
            loading.load((), loading.parse_overrides(words.split(" | ")))
