"""What users write wrongly ends in one line that names file, key and value, before anything runs."""

import argparse
import shutil
from pathlib import Path

import pytest
from babelmill.settings import read_settings, settings_of
from tokenizers import Tokenizer, models

from babelmill.cli import main
from babelmill.commands import show
from babelmill.config import loading
from babelmill.config.layers import OTHER_NAMES
from babelmill.config.resolve import Configuration
from babelmill.config.schema import SECTIONS, Tuning
from babelmill.core import manifest
from babelmill.core.files import UserError, write_json
from babelmill.core.yaml_file import parse
from babelmill.stages import STAGES, TO_CONVERTED
from conftest import ROOT

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


def settings(overrides: dict | None = None, configfiles: tuple = (), name: str = "eng") -> dict:
    """What a dry run does with the configuration: the settings of all stages of a model."""
    made = loading.load(configfiles, overrides)
    stages = [stage for stage in TO_CONVERTED.values() if stage.of == "model" or stage.name == "corpus"]
    return {stage.name: settings_of(made, name, stage.name) for stage in stages if stage.applies(made, name)}


def refused(*words: str, **arguments) -> str:
    """The one line of error, which has all the words."""
    with pytest.raises(UserError) as error:
        settings(**arguments)
    line = str(error.value)
    assert "\n" not in line and all(word in line for word in words), line
    assert "None:" not in line and not line.startswith("?")
    return line


# A configuration, whose lines are divided by \n here, and what is said of it.
MISTAKES = r"""
train: {max_steps: 30}\npreset: tiny\ntrain: {epochs: 3} => the key train appears twice, in lines 1 and 3
train:\n  epochs: 3\n  seed: 1\n  epochs: 4 => the key epochs appears twice, in lines 2 and 4
train:\n\tseed: 1 => not valid YAML | line 2
preset: TINY => preset = 'TINY' | did you mean tiny
languages: {true: {name: Norwegian}} => True is a key of languages:  | put it in quotes
train: {seed: 010} => train.seed = '010' | plain digits
train: {max_steps: 1:30} => train.max_steps = '1:30'
train: {max_steps: 1_000} => train.max_steps = '1_000' | plain digits
predict: {inputs: {1880: a.csv, "1880": b.csv}} => 1880 is the name of two tables
corpus: {hub: [{repository: a/b, config: 1.10}]} => config = 1.1: a text is expected | quotes
corpus: {budget: 010 words} => corpus.budget = '010 words'
GPT2, use_cache: no}} => model.config =  | no is a boolean or a text | write true or false
train: {zeed: 1ZEROS} => not valid YAML
train: {zeed: xZEROS} => unknown key train.zeed; did you mean seed
train: {seed: xZEROS} => train.seed = 'x000 | ... (5,003 characters)
suites: {mine: {title: Mine}} => suites.mine = | set `language`
train: {lr: 1} => unknown key train.lr; did you mean learning_rate?
lr: 1 => unknown key lr; did you mean train.learning_rate?
models: {123: {languages: [eng]}} => 123 is a key of models:
languages: {gsw: {script: Latn}} => needs a `name` | `languages: {gsw: {name: NAME, corpus:
targets: [gsw] => 'gsw', which is not a model | `languages: {gsw: {name: NAME, corpus:
models: {mix: {languages: [gsw]}} => 'gsw', which is not a language | `languages: {gsw: {name: NAME,
train: {betas: 0.9} => train.betas = 0.9: a list of two numbers is expected, such as [0.9, 0.98]
train: {betas: [0.9]} => train.betas = [0.9]: a list of two numbers
preset: [ => not valid YAML | line 2
targets: [no] => targets names 'no', which is not a model
targets: [true] => targets.0 = True: a text is expected | put it in quotes
targets: no => targets = 'no': a list is expected, such as [no]
languages: {eng: {tokenizer: {vocab_size: 400}}} => languages.eng.tokenizer | models.eng.tokenizer
batches:\n  true: [eng] => True is a key of batches:  | put it in quotes
targets: [eng, deu, eng] => targets =  | eng appears 2 times
batches: {mine: [eng, eng]} => batches.mine =  | eng appears 2 times
models: {mix: {languages: [eng, eng]}} => models.mix.languages =  | eng appears 2 times
export: {variants: [ema, ema]} => export.variants =  | ema appears 2 times
mixture: {weights: {eng: 2}} => mixture.weights = {'eng': 2} | a number from 0 to 1
mixture: {weights: true} => mixture.weights = True | a number
tokenizer: {vocab_size: true} => tokenizer.vocab_size = True | a number
train: {betas: [0.9, no]} => train.betas.1 = 'no' | a valid number
card: {license: true} => card.license = True: a text is expected
card: {license: Apache-2.0} => card.license = 'Apache-2.0' | did you mean apache-2.0 | other
card: {license: ''} => card.license = '' | write other
languages: {gsw: {tag: Swiss German}} => languages.gsw.tag = 'Swiss German' | such as en or gsw
languages: {eng: {tag: eng_Latn}} => languages.eng.tag = 'eng_Latn' | such as eng
languages: {eng: {tag: en-GB}} => languages.eng.tag = 'en-GB' | such as en
languages: {jpn: {tag: jp}} => languages.jpn.tag = 'jp' | no code of ISO 639-1
train.learning_rate: 1 => unknown key train.learning_rate | written as train: {learning_rate: 1}
train: {mask_random: 0.7, mask_keep: 0.4} => train.mask_random = 0.7 and train.mask_keep = 0.4 | 1 at most
train: {order: documents, objective: labels, sequence_lengths: [128], phase_starts: [0]} => train.order = 'documents' | leave it out
export: {adapter: also} => export.adapter = 'also' | train.lora_rank = 0 trains none
train: {lora_alpha: 32} => train.lora_alpha = 32 | train.lora_rank = 0 means no adapters
train: {warmup: 0.7, cooldown: 0.6} => train.warmup = 0.7 and train.cooldown = 0.6 add up to 1.3
train: {max_steps: 1000000000000000000} => train.max_steps = 1000000000000000000 | 10000000
train: {learning_rate: 1.0e+300} => train.learning_rate = 1e+300 | less than or equal to 10
train: {seed: 99999999999999999999} => train.seed = 99999999999999999999 | less than
train: {epochs: 1.0e+9} => train.epochs = 1000000000.0 | 1000000
model: {hidden_size: 100000000} => model.hidden_size = 100000000 | 1048576
train: {hybrid_ratio: 15/16, max_steps: 100, sequence_lengths: [128, 512], phase_starts: [0, 0.5], global_batch_tokens: 8192} => = 8192 with train.batch_reduction = 4 gives 10 rows of 512 | at step 50, fewer than the 16
train: {hybrid_ratio: 63/64} => = 4096 with train.batch_reduction = 4 gives 8 rows of 128 | 64 that train.hybrid_ratio = 63/64
evaluation: {sequence_length: 4} => evaluation.sequence_length = 4: input should be greater than or equal to 7
model: {hidden_size: 65536, num_attention_heads: 64, intermediate_size: 262144} => model.hidden_size = 65536 | parameters; at 20 bytes each | TiB, more than 2 TiB
model: {architecture: transformers} => model.architecture = 'transformers' needs model.config | model_type:
model: {config: {model_type: gpt2}} => model.architecture = 'gpt_bert' does not use model.config
model: {architecture: transformers, config: {n_layer: 2}} => model.config needs `model_type`
GPT3}} => model.config.model_type = 'gpt3' | did you mean | gpt2
GPT2, n_embed: 64}} => model.config has 'n_embed', which GPT2Config | did you mean n_embd
GPT2, n_embd: many}} => model.config.n_embd = 'many': GPT2Config of transformers expects int
GPT2, hidden_size: 64.5}} => model.config.hidden_size = 64.5 | expects int
GPT2, activation_function: 3}} => model.config.activation_function = 3 | expects str
GPT2, vocab_size: 9}} => model.config has vocab_size | tokenizer.vocab_size
GPT2, n_positions: 9}} => model.config has n_positions | model.max_position_embeddings
GPT2, eos_token_id: 9}} => model.config has eos_token_id | come from the tokenizer
HYBRID}} => train.objective: masked, diffusion or causal
GPT2}}\nevaluation: {sequence_length: 600} => evaluation.sequence_length = 600 | = 512
tokenizer: {source: own/tokenizer.json} => tokenizer.source: own/tokenizer.json: no such file
tokenizer: {source: ./texts} => tokenizer.source: ./texts: this is a folder
tokenizer: {source: texts/a.txt} => tokenizer.source: texts/a.txt: not valid JSON
tokenizer: {source: odd.json} => tokenizer.source: odd.json: not a tokenizer
tokenizer: {source: plain.json} => tokenizer.source: plain.json has no token <s>
corpus: {validation_files: [odd.xml]} => odd.xml: this file format cannot be read | .jsonl
corpus: {validation_files: ['texts/*.md']} => texts/*.md: no such file
train: {precision: fp16} => train.precision = 'fp16' | choose auto | fp32
models: {eng: {train: {epoch: 1}}} => models.eng.train.epoch | epochs
tran: {} => tran | train
train: {mask_rate_start: 1.5} => train.mask_rate_start = 1.5 | less than or equal to 1
train: {epochs: many} => train.epochs = 'many' | number
train: {hybrid_ratio: "3/2"} => train.hybrid_ratio = '3/2' | 0 < n < d
train: {optimizer: sgd} => train.optimizer = 'sgd' | 'lamb'
train: {optimizer: muon, lora_rank: 4} => train.optimizer = muon | train.lora_rank = 4 | set train.optimizer: adamw
recipe: tune => recipe = 'tune' | no such recipe | did you mean tuned
models: {eng: {recipe: publishd}} => models.eng.recipe = 'publishd' | did you mean published
model: {num_attention_heads: 7} => num_attention_heads = 7 | hidden_size = 128
train: {sequence_lengths: [1024]} => train.phase_starts | sequence_lengths
train: {sequence_lengths: [1024], phase_starts: [0], global_batch_tokens: 16384} => 1024 | max_position_embeddings = 512
preset: smal => preset = 'smal' | small
models: {eng: {preset: smal}} => preset = 'smal' of model eng | small
models: [eng] => models = ['eng'] | mapping
languages: eng => languages = 'eng' | mapping
train: {epochs: true} => train.epochs = True | number
targets: [enf] => 'enf' | eng
batches: {mine: [enf]} => mine | 'enf' | eng
models: {a/b: {languages: [eng]}} => 'a/b' | not a name
models: {../x: {languages: [eng]}} => '../x' | not a name
models: {mix: {languages: [eng, dee]}} => 'dee' | deu
export: {variants: [main], default_variant: ema} => 'ema' | variants
publish: {repo_template: "{username}/{language}"} => '{username}/{language}' | {model}
publish: {repo_template: "{model}"} => publish.repo_template | owner/name
publish: {repo_template: "{username}/{model.__class__}"} => {model}
publish: {repo_template: "a/../{model}"} => owner/name
run: {hf_token: x} => run.hf_token | environment
run: {checkpoints: "s3://key:secret@bucket/x"} => run.checkpoints = 's3:***@bucket/x' | s3://bucket/prefix | environment
run: {checkpoints: ["s3://key:sec ret@bucket/x"]} => run.checkpoints = ['s3:***@bucket/x']
run: {checkpoints: "gs://bucket/x"} => run.checkpoints = 'gs://bucket/x' | s3://bucket/prefix or file:///path
run: {checkpoints: "https://h/x?token=1 2"} => run.checkpoints = 'https://h/x?*** | s3://bucket/prefix
run.checkpoints: "s3://key:sec@ret@bucket/x" => run: {checkpoints: s3:***@bucket/x}
languages: {eng: {corpus: {files: ["nothing/*.txt"]}}} => nothing/*.txt | no such file
languages: {due: {corpus: {files: []}}} => languages.due | `name` | deu
languages: {eng: {corpus: {files: a.txt}}} => corpus.files = 'a.txt' | [a.txt]
train: {hybrid_ratio: 0.7} => hybrid_ratio = 0.7 | 15/16
train: 3 => train = 3 | keys
languages: {eng: {corpus: {files: [texts]}}} => texts/*.txt
languages: {eng: {corpus: {files: [], hub: null}}} => languages.eng.corpus.files
corpus: {hub: {repository: a/b}} => corpus.hub = | a name or a list is expected, such as [{repository: Salesforce/wikitext, config:
corpus: {hub: [{config: x}]} => corpus.hub | each entry needs a repository, such as [{repository: Salesforce/wikitext, config:
corpus: {hub: [{repository: a/b, confg: x}]} => corpus.hub | an entry has no key confg; its keys are repository, config, files
corpus: {hub: [{repository: a/b, files: x/*}]} => corpus.hub | a list
corpus: {hub: [{repository: a/b, files: [x/*, x/*]}]} => corpus.hub | x/* appears 2 times; name it once
corpus: {hub: []} => corpus.hub = []
corpus: {hub: [{repository: ""}]} => corpus.hub | each entry needs a repository
model: {source: eng} => eng continues eng
models: {more: {languages: [eng], model: {source: more}}} => more continues more | cannot continue itself
models: {more: {model: {source: b}}, b: {model: {source: more}}} => more continues b continues more
models: {more: {languages: [eng], model: {source: egn}}} => 'egn' | did you mean eng
models: {more: {languages: [eng], model: {source: converted/eng}}} => write only its name, eng
models: {more: {languages: [eng], model: {source: ""}}} => model.source = ''
models: {more: {model: {source: owner/name}}} => models.more needs `languages:`
models: {more: {model: {source: eng, hidden_size: 512}}} => model.hidden_size = 512 | it is 128
models: {more: {model: {source: eng, gate: false}}} => model.gate = False | it is True
train: {batch_size: 64} => unknown key train.batch_size; did you mean global_batch_tokens?
train: {block_size: 64} => unknown key train.block_size; did you mean sequence_lengths?
batch_size: 64 => unknown key batch_size; did you mean train.global_batch_tokens?
model: {n_layer: 4} => unknown key model.n_layer; did you mean num_hidden_layers?
model: {context_length: 4} => unknown key model.context_length; did you mean max_position_embeddings?
run: {save_steps: 4} => unknown key run.save_steps; did you mean checkpoint_every?
tasks: {mine: {TASK, text: "{a}", tuning: {batch_size: 1}}}\nevaluation: {tasks: [mine]} => mine.yaml: tasks.mine.tuning: unknown key batch_size; did you mean batch?
train: {steps: 3} => unknown key train.steps; did you mean max_steps?
steps: 3 => unknown key steps; did you mean train.max_steps?
corpus: {documents: 5} => unknown key corpus.documents; did you mean document?
train: {vocab_size: 3} => unknown key train.vocab_size; did you mean tokenizer.vocab_size?
model: {heads: 4} => unknown key model.heads; did you mean num_attention_heads?
corpus: {language_filter: {keeep: 1}} => unknown key corpus.language_filter.keeep; known are
tasks: {mine: {txt: "{a}"}} => unknown key tasks.mine.txt; did you mean text?
tasks: {mine: 3} => tasks.mine = 3: keys with values are expected
tasks: {mine: {TASK, baselines: [{modell: a}]}} => unknown key tasks.mine.baselines.0.modell; did you mean model?
tasks: {mine: {TASK, text: "{a}", tuning: {lr: 1}}}\nevaluation: {tasks: [mine]} => mine.yaml: tasks.mine.tuning: unknown key lr; did you mean learning_rate?
tasks: {mine: {TASK, text: "{a}", tuning: {seeds: [1, 1]}}}\nevaluation: {tasks: [mine]} => tasks.mine.tuning: seeds = [1, 1]: 1 appears 2 times
evaluation: {task_seeds: [1, 1]} => evaluation.task_seeds = [1, 1]: 1 appears 2 times; name it once
tasks: {mine: {TASK}} => mine.yaml: tasks.mine: set `text`
tasks: {mine: {TASK, text: "{a}", languages: {gsw: x}}} => tasks.mine
suites: {mine: {file: [a.tsv]}} => unknown key suites.mine.file; did you mean files?
experiments: {a: {base: eng, varies: {}}} => unknown key experiments.a.varies; did you mean vary?
experiments: {a: {base: eng, vary: {train.steps: [1, 2]}}} => unknown key train.steps; did you mean train.max_steps?
"""
SHORT = {
    "ZEROS": "0" * 5000,
    "GPT2": GPT2,
    "TASK": "train: [texts/a.txt], test: [texts/a.txt], language: eng",
    "GPT3": GPT2.replace("gpt2", "gpt3"),
    "HYBRID": GPT2.replace("causal", "hybrid"),
}


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_in_a_file_is_one_line_that_names_the_file(mistake):
    Path("odd.json").write_text('{"a": 1}')
    Path("odd.xml").write_text("<a/>")
    Tokenizer(models.BPE()).save("plain.json")
    text, words = mistake.replace(r"\n", "\n").replace(r"\t", "\t").split(" => ")
    for short, whole in SHORT.items():
        text = text.replace(short, whole)
    Path("mine.yaml").write_text(text)
    with open("config/config.yaml", "a") as file:
        file.write("preset: tiny\ntrain: {batch_reduction: 4}\n")
    name = "more" if "more:" in text else "eng"
    assert refused(*words.split(" | "), configfiles=("mine.yaml",), name=name).startswith("mine.yaml")


@pytest.mark.parametrize(
    ("path", "key", "meant", "use"),
    [
        ("protocols/sound", "epoch", "epochs", {"evaluation": {"tasks": ["rte_sound"]}}),
        ("tasks/rte", "metrik", "metric", {"evaluation": {"tasks": ["rte"]}}),
        ("suites/blimp", "phenomenom", "phenomenon", {"evaluation": {"suites": ["blimp"]}}),
        ("challenges/babylm_strict", "word", "words", {}),
        ("recipes/tuned", "trains", "train", {"recipe": "tuned"}),
    ],
)
def test_an_unknown_key_in_a_file_of_the_project(path, key, meant, use, tmp_path):
    """Each names the file and the nearest key; others may add files to these folders, or change one."""
    shutil.copytree(ROOT / "config", tmp_path / "here/config")
    with open(tmp_path / f"here/config/{path}.yaml", "a") as file:
        file.write(f"{key}: 3\n")
    with pytest.raises(UserError) as error:
        Configuration([("mine.yaml", use)], tmp_path / "here").model("eng")
    said = str(error.value)
    assert f"config/{path}.yaml: unknown " in said and f"{key}; did you mean {meant}" in said and "\n" not in said


def test_every_other_name_of_a_key_is_the_name_of_no_key_here():
    """A name that is a key of the same section would never be looked up; a key that does not exist would be no help."""
    fields = [set(section.model_fields) for section in (*SECTIONS.values(), Tuning)]
    for key, others in OTHER_NAMES.items():
        of_key = [names for names in fields if key in names]
        assert of_key, f"there is no key {key}"
        assert not any(other in names for other in others.split() for names in of_key), key


@pytest.mark.parametrize(
    ("model", "train", "words"),
    [
        ("{source: b}", "{objective: hybrid}", ["has no hybrid models, only masked or causal"]),
        ("{source: b, config: {model_type: gpt2}}", "{}", ["model.config: a model that continues b takes its config"]),
        ("{source: b, architecture: gpt_bert}", "{}", ["model.architecture = gpt_bert", "where it is transformers"]),
        ("{source: deu, architecture: transformers}", "{}", ["where it is gpt_bert; leave the key out"]),
        ("{source: deu}", "{lora_rank: 8}", ["train.lora_rank = 8: adapters change a trained transformers model"]),
        ("{source: b}", "{objective: masked, optimizer: adamw, sequence_lengths: [1024], phase_starts: [0]}", ["1024"]),
    ],
)
def test_a_source_of_another_kind(model, train, words):
    more = "train: {objective: masked, optimizer: adamw}\n"
    entry = f"models: {{eng: {{model: {model}, train: {train}}}, b: {{languages: [eng], preset: bert_30m}}}}\n"
    Path("mine.yaml").write_text(more + entry)
    assert refused(*words, configfiles=("mine.yaml",)).startswith("mine.yaml, models.eng: ")


def test_a_folder_without_a_configuration():
    Path("config/config.yaml").unlink()
    refused("config/config.yaml: no such file; go to the folder of the workflow, or name a --configfile")
    refused(
        "--configfile mine.yaml: no such file; --configfile takes all words up to the next option",
        configfiles=("mine.yaml",),
    )


def test_a_language_that_is_in_no_list_says_how_it_is_added():
    made = loading.load()
    for ask in (made.language, made.languages_of):
        with pytest.raises(
            UserError, match=r"`languages: \{gsw: \{name: NAME, corpus: \{files: \[texts/gsw/\*\.txt\]\}\}\}`"
        ):
            ask("gsw")
        with pytest.raises(UserError, match=r"did you mean eng( or \w+)*\?$"):
            ask("Eng")


def test_words_are_words_and_numbers_are_numbers():
    """`no` is a language, a configuration and a batch like any other, and still False where a key says yes or no."""
    Path("mine.yaml").write_text(
        "languages: {no: {name: Norwegian, corpus: {files: [texts/*.txt]}}, off: {name: Official}}\n"
        "corpus: {hub: [{repository: a/b, config: no}, {repository: a/b, config: 2024-01-31}], deduplicate: off}\n"
        "batches: {on: [no], yes: [off]}\ntrain: {max_steps: 1e4, learning_rate: 1e-3}\n"
    )
    made = loading.load(["mine.yaml"])
    corpus = made.corpus("off").corpus
    assert (made.language("no").name, made.language("off").name) == ("Norwegian", "Official")
    assert [part.config for part in corpus.hub] == ["no", "2024-01-31"] and corpus.deduplicate is False
    assert (made.batches["on"], made.batches["yes"]) == (["no"], ["off"])
    assert (made.model("eng").train.max_steps, made.model("eng").train.learning_rate) == (10_000, 0.001)


def test_what_differs_from_the_defaults_is_shown_alone(capsys):
    Path("mine.yaml").write_text("preset: tiny\ntrain: {seed: 7, clip_norm: 2.0}\n")
    assert main(["config", "eng", "--changed", "--configfile", "mine.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    found = {line.split()[0]: line.split()[-1] for line in lines}
    assert found["train.seed"] == "mine.yaml" and found["corpus.files"] == "languages.eng"
    assert "config/presets/tiny.yaml" in found.values() and "config/defaults.yaml" not in found.values()
    assert "train.clip_norm" not in found, "the user said what is the default"


def test_what_looks_like_a_repetition_and_is_none():
    text = "base: &base {train: {seed: 1}}\nother:\n  <<: *base\n  train: {seed: 2}\nlist: [{a: 1}, {a: 2}]\n1: a\n'2': b\n"
    assert parse(text, "a.yaml")["other"] == {"train": {"seed": 2}}
    Path("mine.yaml").write_text("targets: [tier1, eng]\nbatches: {mine: [eng, deu]}\n")
    assert loading.load(["mine.yaml"]).targets().count("eng") == 1
    for path in [*ROOT.glob("config/**/*.yaml"), *ROOT.glob("profiles/*/*.yaml"), *ROOT.glob("envs/*.yaml")]:
        parse(path.read_text(), path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.learning_rate=1"], "'train={learning_rate: 1}'"),
        (["train={seed: 1, seed: 2}"], "the key seed appears twice"),
        (["a=1", "a=2"], "a is given twice"),
        (["a=1", "eng"], "eng: KEY=VALUE is expected; --config takes all words up to the next option"),
    ],
)
def test_mistakes_on_the_command_line(words, message):
    with pytest.raises(UserError, match=rf"^--config.*({message})"):
        loading.load((), loading.parse_overrides(words))


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("config/config.yaml", loading.load),
        ("profile/profile.yaml", lambda: loading.read_profile("profile")),
    ],
)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: \xe9\n", r"line 2 is not UTF-8 \(byte 0xe9\)"),
        (b"[1, 2]\n", "a mapping"),
        (b"a: 1\na: 2\n", "twice"),
    ],
)
def test_every_yaml_file_is_checked(path, read, content, words):
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(content)
    with pytest.raises(UserError, match=f"^{path}: .*{words}"):
        read()


def test_a_manifest_that_is_none():
    """JSON, but of something else."""
    folder = Path("results/corpora/eng")
    folder.mkdir(parents=True)
    for content in ("[]", "3", '{"files": []}', '{"files": {}, "settings": {}, "upstream": {}}', '"text"'):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(UserError, match=r"results/corpora/eng/manifest\.json: not a manifest of this workflow"):
            manifest.verify(folder)
        settings()  # and a dry run has nothing to say about it
    write_json(
        folder / "manifest.json", {"stage": "corpus", "files": {}, "settings": {}, "upstream": {}, "figures": {}}
    )
    with pytest.raises(UserError, match="results/corpora/eng: not a converted model"):
        show.run(argparse.Namespace(folder=folder, masked=None, prompt=None))


def test_an_unknown_key_of_a_settings_file_is_refused():
    values = settings()["train"]
    write_json("train.json", values | {"modle": {}})
    with pytest.raises(UserError, match=r"train\.json: unknown key modle; delete the file"):
        read_settings("train.json", STAGES["train"].settings)
