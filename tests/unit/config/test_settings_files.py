"""Which results another value of each key of the configuration asks for; what else stands in settings files.

Nothing runs here.
"""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_config import TEXT, configuration

from babelmill.config import entries, schema
from babelmill.core.files import UserError, write_json
from babelmill.graph import Graph, Result, key_of
from babelmill.stages import STAGES, RunSettings, TrainStage
from helpers.stages import settings_of

COLUMNS = "text,other,good,bad,label,kind"
ROWS = "a,b,c,d,e,f\ng,h,i,j,k,l\n"
PAIRS = {"files": ["{language}.csv"], "languages": {"eng": "eng", "deu": "deu"}, "good": "good", "bad": "bad"}
TASK = {"train": ["a.csv"], "test": ["b.csv"], "language": "eng", "text": "{text}"}
OTHER = {"languages": ["eng"], "tokenizer": {"vocab_size": 300}, "model": {"source": None}}
BASE = {
    "preset": "tiny",
    "publish": {"username": "lab"},
    "evaluation": {"suites": ["own"], "tasks": ["own"], "task_seeds": [1]},
    "suites": {"own": PAIRS},
    "tasks": {"own": TASK},
    "languages": {code: {"corpus": {"files": [f"{code}.csv"]}} for code in ("eng", "deu")},
    "models": {"m": {"languages": ["eng", "deu"]}, "other": OTHER},
}


def train(**values: Any) -> dict:
    return {"train": values}


TALK = {"name": "Talk", "corpus": {"files": ["other.csv"]}}  # a text that is no language of the table
A_TEXT = {"languages": {"talk": TALK}, "models": {"m": {"languages": ["talk"]}}}
FOR_ALL = {"languages": {"eng": {}, "deu": {}}}
OF_HUB = {"languages": {code: {"corpus": {"files": []}} for code in ("eng", "deu")}}
FILTERED = {"corpus": {"language_filter": {"model": "py3langid"}}}
SAMPLE = OF_HUB | {"corpus": {"budget": 5}}
CAUSAL, MASKED = train(objective="causal"), train(objective="masked")
NORBERT4 = {"model": {"architecture": "norbert4"}} | MASKED
GPT2 = {"model": {"architecture": "transformers", "config": {"model_type": "gpt2"}}} | CAUSAL
CONTINUED = {"model": {"source": "other"}}
RANK_4 = train(objective="masked", optimizer="adamw", lora_rank=4)
ADAPTERS = {"model": {"source": "lab/model", "architecture": "transformers"}} | RANK_4
ADOPTED = {"tokenizer": {"source": "lab/tokenizer"}}
CENSUS = {"tables": {"census": "census.csv"}, "text_column": "text"}
LABELS = {"preset": "labels_tiny", "corpus": {"label_columns": ["label"]}, "predict": CENSUS}
LINEAR = LABELS | {"predict": CENSUS | {"method": "linear"}}
SPELT = LABELS | {"labels": {"code": "general"}}
A_LANGUAGE_MODEL = OTHER | {"preset": "tiny", "train": {"freeze": "none"}}
ITEMS = {key: PAIRS[key] for key in ("files", "languages")}
CHOICES = {"suites": {"own": ITEMS | {"kind": "choices", "scored": "whole", "options": ["{good}", "{bad}"]}}}
OF_CHALLENGE = {
    "suites": {"own": PAIRS | {"challenge_files": ["full_eval/{language}.csv"]}},
    "tasks": {"own": TASK | {"train": ["{evaluation_data}/full_eval/eng.csv"]}},
    "evaluation_data": "data",
}
READING = {"suites": {"own": ITEMS | {"kind": "reading"}}}
OF_WORDS = {"kind": "tagging", "train": ["a.conll"], "test": ["b.conll"], "language": "eng", "word": 1, "label": 2}
WORDS = {"tasks": {"own": OF_WORDS}}
FEW = {"languages": ["eng", "deu"], "evaluation": {"suites": ["blimp"], "snapshot_suites": [], "tasks": []}}
FEW_WORDS = FEW | {"train": {"max_words": "1M", "max_steps": None}}
IN_NO_CHALLENGE = {"models": {"m": FEW_WORDS}}
IN_CHALLENGE = {"models": {"m": FEW_WORDS | {"submission": "babylm_2026_strict_small"}}}
LONGER_ROWS = train(sequence_lengths=[16, 32, 64]) | {"evaluation": {"sequence_length": 64}}
ON_ANOTHER = LABELS | CONTINUED | {"models": BASE["models"] | {"other": A_LANGUAGE_MODEL}}
ENGLISH_PAIRS = {"suites": {"own": PAIRS | {"files": ["eng.csv"], "languages": {}, "language": "eng"}}}


class Instead(dict):
    """Values that replace those of BASE, where a key does not change alone."""


# A section | the first stages whose results get another key (what is made of them gets one, too, and nothing else does) |
# what is configured instead of parts of BASE, or beside it, so that the key matters, or does not | keys with other
# values than in BASE, one after the other.
KEYS = """
- | - | - | {targets: [deu], groups: {mine: [eng]}, experiments: {seeds: {base: m, seeds: 2}}}
- | tokenizer | - | {preset: small}
- | train | - | {preset: [tiny, tuned]}
- | suite task | OF_CHALLENGE | {evaluation_data: more}
models | tokenizer | - | {languages: [eng], like: other, preset: small}
models | submission | IN_NO_CHALLENGE | {submission: babylm_2026_strict_small}
models | train | - | {preset: [tiny, tuned]}
languages | convert | - | {name: Anglic, script: Cyrl, tag: de}
languages | - | - | {tier: 2, byte_premium: 2.0}
languages | corpus | FILTERED | {script: Cyrl}
corpus | corpus | FOR_ALL | {files: [other.csv]}
corpus | corpus | - | {builtin: python-docs, validation_files: [other.csv], text_column: other, prompt_column: other}
corpus | corpus | - | {label_columns: [label], delimiter: ;, encoding: latin-1, format: tsv, quoting: none}
corpus | corpus | - | {document: line, validation_share: 0.5, on_error: skip, normalization: NFC}
corpus | corpus | - | {control_characters: remove, min_characters: 9, min_words: 9, deduplicate: false}
corpus | corpus | - | {categories: [speech], repair: ftfy, cleaners: speech, language_filter: {model: py3langid}}
corpus | corpus | - | {near_duplicates: 0.8, decontaminate: [own], budget: 5 documents}
corpus | download | OF_HUB | {hub: [{config: x, repository: lab/text}], revision: v1, text_column: other, format: txt}
corpus | - | - | {hub: lab/text, revision: v1}
corpus | corpus | LABELS | {context_column: other, context: here}
corpus | - | {corpus: {validation_files: [other.csv]}} | {validation_share: 0.5}
corpus | identifier | - | {language_filter: {model: glotlid}}
corpus | download | SAMPLE | {budget: 6, min_words: 9}
corpus | corpus | SAMPLE | {near_duplicates: 0.8}
languages | download | SAMPLE | {byte_premium: 2.0}
tokenizer | tokenizer | - | {source: lab/tokenizer, vocab_size: 300, min_frequency: 3, prefix_space: true}
tokenizer | tokenizer | ADOPTED | {revision: v1}
tokenizer | - | ADOPTED | {vocab_size: 300, min_frequency: 3}
mixture | tokenizer | - | {weights: 0.5}
mixture | train | ADOPTED | {weights: 0.5}
model | train | - | {architecture: norbert4, hidden_size: 64, intermediate_size: 64, num_attention_heads: 2}
model | train | - | {num_hidden_layers: 2, position_bucket_size: 16, hidden_dropout_prob: 0.2}
model | train | - | {attention_probs_dropout_prob: 0.2, layer_norm_eps: 1.0e-06, gate: false, layer_mixing: false}
model | train | GPT2 | {config: {model_type: gpt2, n_embd: 64}}
model | tokenizer | - | {source: other}
model | base_model | - | {source: lab/model}
model | base_model | {model: {source: lab/model}} | {source: lab/other, revision: v1}
model | - | - | {revision: v1, local_window_length: 64}
model | train | LONGER_ROWS | {max_position_embeddings: 64}
model | - | NORBERT4 | {position_bucket_size: 16}
model | train | NORBERT4 | {local_global_ratio: 3, local_window_length: 64}
train | train | - | {seed: 43, epochs: 3, max_steps: 9, max_words: 10M, global_batch_tokens: 8192, batch_reduction: 2}
train | train | - | {micro_batch_tokens: 2048, sequence_lengths: [64, 128, 256], phase_starts: [0, 0.5, 0.9]}
train | train | - | {order: documents, objective: causal, token_weighted: true, mask_rate_start: 0.5}
train | train | - | {mask_rate_end: 0.5, mask_random: 0.2, mask_keep: 0.2, optimizer: adamw, learning_rate: 0.5}
train | train | - | {learning_rate_floor: 0.5, warmup: 0.3, cooldown: 0.3, betas: [0.5, 0.9], eps: 0.1}
train | train | - | {weight_decay: 0.5, clip_norm: 9, z_loss_weight: 0.5, ema_decay: 0.5, average_last: 0.5}
train | train | - | {precision: bf16, activation_checkpointing: true, non_finite: skip}
train | - | {train: {max_steps: 9}} | {epochs: 3}
train | train | {train: {objective: hybrid}} | {hybrid_ratio: 1/4}
train | - | CAUSAL | {hybrid_ratio: 1/4, mask_rate_start: 0.5, mask_random: 0.2}
train | - | - | {unknown_context: 0.5}
train | train | ADAPTERS | {lora_rank: 8, lora_alpha: 4}
train | - | ADAPTERS | {lora_alpha: 8}
train | train | ON_ANOTHER | {freeze: encoder}
train | train | LABELS | {unknown_context: 0.5, typos: 0.5}
labels | shards | LABELS | {code: hisco, separator: ;, codes: codes.csv}
labels | - | - | {code: hisco}
labels | shards | SPELT | {block_size: 6}
labels | - | LABELS | {block_size: 6, blocks_weight: 0.1}
labels | train | SPELT | {blocks_weight: 0.1, decoder_layers: 1}
export | export | - | {variants: [ema], default_variant: main, logits_alignment: mntp}
evaluation | evaluate | - | {sequence_length: 64, max_documents: 9}
evaluation | - | LABELS | {max_documents: 9}
evaluation | suite | - | {suites: [own, english_basics]}
evaluation | score | - | {max_items: 9, max_masked_items: 9}
evaluation | - | CAUSAL | {max_masked_items: 9}
evaluation | score | {run: {snapshots: [1]}} | {snapshot_suites: [own]}
evaluation | - | - | {backend: mlm}
evaluation | submission | IN_CHALLENGE | {backend: mlm}
evaluation | convert | - | {tasks: []}
evaluation | tune | - | {task_seeds: [2], keep_tuned: true}
card | convert | - | {license: mit, authors: [A], description: D}
predict | predict | LABELS | {tables: {census: other.csv}, top: 6, method: linear, review: 9, encoding: latin-1}
predict | predict | LINEAR | {threshold: 0.1}
predict | predict | LABELS | {text_column: other, context_column: other, context: here, delimiter: ',', quoting: none}
publish | publish | - | {username: me, repo_template: 'lab/{model}', private: true}
suites | convert | - | {title: Own}
suites | suite | - | {repository: lab/pairs, languages: {deu: eng, eng: deu}, delimiter: ',', encoding: latin-1}
suites | suite | - | {files: ['{language}*.csv'], good: text, bad: text, phenomenon: kind, paradigm: kind}
suites | suite | - | {quoting: none}
suites | suite | {suites: {own: {repository: lab/pairs}}} | {revision: v1}
suites | - | - | {revision: v1, license: mit, note: N, challenge_files: ['full_eval/{language}.csv']}
suites | suite | ENGLISH_PAIRS | {language: deu}
suites | suite | CHOICES | {prompt: '{text}', options: ['{good}', '{text}'], right: 1, drop: x}
suites | suite | CHOICES | {harness_ids: true}
suites | score | CHOICES | {scored: completion, score: mean, ties: first, unknown: wrong}
suites | score | - | {headline: phenomena}
tasks | convert | - | {title: Own}
tasks | task | - | {repository: lab/rows, language: deu, delimiter: ',', encoding: latin-1, train: [other.csv]}
tasks | task | - | {test: [other.csv], text: '{other}', pair: '{other}', label: kind}
tasks | task | {tasks: {own: {repository: lab/rows}}} | {revision: v1}
tasks | task | {tasks: {own: {language: null, languages: {eng: eng}}}} | {languages: {deu: deu}}
tasks | - | - | {license: mit, note: N}
tasks | task | WORDS | {word: 2, resplit: {rows: 10}, metric: span_f1}
tasks | tune | - | {joint: true, metric: f1, protocol: babylm, tuning: {epochs: 3}}
tuning | convert | - | {title: P}
tuning | tune | - | {head: challenge, pooling: last, padding: left, config_padding: eos, dropout: 0.5, longest: 64}
tuning | tune | - | {same_length: true, epochs: 3, batch: 3, learning_rate: 0.5, weight_decay: 0.5, warmup: 0.5}
tuning | tune | - | {schedule: linear, floor: 0.5, clip_norm: 9, shuffle: state, select: last, held_out: 0.5}
tuning | tune | - | {patience: 3, threshold: 0.5, test_batch: 9, words_cut: left_out, plain_text: false}
tuning | - | - | {seeds: [7]}
tuning | tune | {evaluation: {task_seeds: []}} | {seeds: [7]}
run | - | - | {checkpoint_every: 9, checkpoint_minutes: 0.5, log_every: 9, validate_every: 9}
run | - | - | {validation_tokens: 9, snapshots: [1, 2], micro_batch_tokens: 4096}
run | - | - | {compile: never, checkpoint_mirror: 'file:///kept', tracking: wandb}
resources | - | - | {gpus: 9}
"""


def cases() -> Iterator[tuple[str, Any, str, str]]:
    """Yield a key, another value, the first stages whose results get another key, and what is configured besides."""
    for line in KEYS.strip().splitlines():
        group, first, more, values = line.replace("- |", "|").split("|", 3)
        for key, value in yaml.safe_load(values).items():
            yield f"{group.strip()}.{key}".lstrip("."), value, first, more.strip()
    yield (
        "languages.language",
        Instead(A_TEXT | {"languages": {"talk": TALK | {"language": "eng"}}}),
        "suite task",
        "A_TEXT",
    )
    yield "suites.kind", Instead(READING), "suite", ""
    yield "tasks.kind", Instead(WORDS), "task", ""


PLACES = {  # where the keys of entries are
    "suites": ("suites", "own"),
    "tasks": ("tasks", "own"),
    "tuning": ("tasks", "own", "tuning"),
    "languages": ("languages", "eng"),
    "models": ("models", "m"),
}


def layer(key: str, value: Any) -> dict[str, Any]:
    """Return the layer of configuration that sets a key."""
    group, _, name = key.rpartition(".")
    for part in (name, *reversed(PLACES.get(group, (group,) if group else ()))):
        value = {part: value}
    return value


@pytest.fixture
def project(folder):
    """The files that the configuration names."""
    of_challenge = [f"{data}/full_eval/{code}" for data in ("data", "more") for code in ("eng", "deu")]
    for name in ("eng", "deu", "other", "a", "b", "census", *of_challenge):
        Path(f"{name}.csv").parent.mkdir(parents=True, exist_ok=True)
        Path(f"{name}.csv").write_text(f"{COLUMNS}\n{ROWS}{name},b,c,d,e,f,3\n")
    for name in "ab":
        Path(f"{name}.conll").write_text(f"{name} B-X c\n")
    Path("codes.csv").write_text("code\ne\n")


def results_of(graph: Graph) -> list[Result]:
    """Return all results of the model, also what is made of its converted folder."""
    results = graph.of_model("m")
    for stage in ("predict", "submission", "publish"):
        results += [graph.result(stage, "m", part) for part in STAGES[stage].parts(graph.configuration.model("m"))]
    return results


@functools.cache
def asked(layers: str) -> dict[str, tuple[str, str, list[str]]]:
    """Return {title: (stage, key, titles of what it is made from)} of all results of the model; `layers`: as JSON."""
    results = results_of(Graph(configuration(*json.loads(layers))))
    return {
        each.title_for("m"): (each.stage.stage, key_of(each.asked), [of.title_for("m") for of in each.upstream])
        for each in results
    }


@pytest.mark.parametrize(("key", "value", "first", "more"), [*cases()])
def test_a_key_gives_another_key_to_what_depends_on_it_and_to_nothing_else(project, key, value, first, more):
    others = [BASE, yaml.safe_load(more)] if more.startswith("{") else [BASE | globals().get(more, {})]
    before = asked(json.dumps(others))
    now = asked(json.dumps([others[0] | value] if isinstance(value, Instead) else [*others, layer(key, value)]))
    changed = {title for title, (_, key, _) in now.items() if title not in before or before[title][1] != key}
    of_changed = {title for title, (_, _, made_from) in now.items() if changed & {*made_from}}
    assert {now[title][0] for title in changed - of_changed} == {*first.split()}
    assert of_changed <= changed


def test_the_table_above_has_every_key():
    kinds = {**schema.SECTIONS, "suites": entries.Suite, "tasks": entries.Task, "tuning": entries.Tuning}
    kinds |= {"languages": entries.LanguageEntry, "models": entries.ModelEntry}
    keys = {f"{group}.{key}" for group, kind in kinds.items() for key in kind.model_fields}
    keys -= {"languages.corpus", *(f"models.{section}" for section in schema.SECTIONS)}
    keys |= entries.User.model_fields.keys() - kinds.keys()
    assert {case[0] for case in cases()} == keys


LLADA = {"model": {"source": "lab/LLaDA-8B", "architecture": "transformers"}, "train": {"objective": "diffusion"}}


@pytest.mark.parametrize(
    ("layer", "repository"),
    [
        ({}, "{username}/babybabellm-gptbert-eng"),
        ({"publish": {"username": "lab"}, "train": {"objective": "causal"}}, "lab/babybabellm-gptbert-eng-causal"),
        ({"export": {"variants": ["ema"]}}, "{username}/babybabellm-gptbert-eng-ema"),
        ({"models": {"eng": {"publish": {"repo_template": "lab/my-english.v2"}}}}, "lab/my-english.v2"),
        (GPT2, "{username}/babybabellm-gpt2-eng-causal"),
        ({"models": {"eng": LLADA}}, "{username}/babybabellm-llada-8b-eng"),
    ],
)
def test_the_repository_of_a_model(layer, repository):
    assert settings_of(configuration(layer), "eng", "publish")["repository"] == repository


@pytest.mark.parametrize(
    "publish",
    [{"username": "my lab"}, *({"repo_template": f"lab/{text}"} for text in ("a--{model}", "x" * 97, "{model}.git"))],
)
def test_a_repository_that_the_hub_would_refuse_is_refused_before_anything_runs(publish):
    where = r"publish\.repo_template = .* of model eng: (lab|my lab)/.* is no name on the Hub: "
    with pytest.raises(UserError, match=where):
        settings_of(configuration({"publish": publish}), "eng", "publish")


@pytest.mark.parametrize(
    "more", [{}, LABELS, IN_CHALLENGE, OF_HUB | FILTERED], ids=["plain", "labels", "challenge", "hub"]
)
def test_stages_read_their_settings_as_they_were_configured(project, more):
    """What a file leaves out is filled in; sections are typed."""
    graph = Graph(made := configuration(BASE | more))
    for result in results_of(graph):
        graph.write(result)
        found = result.stage.read(result.settings_file)
        assert found.raw == result.asked and found.made_from == result.asked["made_from"]
        for name in result.stage.sections().keys() & result.asked.keys():
            assert (section := getattr(found, name)).written() == result.asked[name]
            if not more and name in ("train", "export", "card", "publish"):
                assert section == getattr(made.model("m"), name)
    run = RunSettings.from_content(graph.run_settings("m").written(), "run.json")
    assert (run.name, run.run, run.gpus) == ("m", made.model("m").run, made.model("m").resources.gpus)


def test_settings_that_a_job_cannot_use_are_refused(tmp_path):
    """A job in the queue was submitted for the version of then; what it would make now is another result."""
    values = settings_of(configuration(), "eng", "train")
    write_json(keyed := tmp_path / f"eng-{key_of(values)}.json", values)
    assert TrainStage.read(keyed).raw == values
    for path, changed, message in [
        ("eng.json", {"version": 0}, "written for another version of stage train; run"),
        ("eng.json", {"stage": "export"}, "these are settings of the stage 'export', not of 'train'"),
        ("eng.json", {"model": values["model"] | {"depth": 3}}, r"unknown key model\.depth"),
        ("eng.json", {"depth": "wide"}, "depth = 'wide': "),
        (keyed.name, {"train": values["train"] | {"seed": 9}}, "was changed after it was written; delete it and run"),
    ]:
        write_json(tmp_path / path, values | changed)
        with pytest.raises(UserError, match=rf"^\S*\.json: {message}.*$"):
            TrainStage.read(tmp_path / path)
    for damaged in ("[]", "{", ""):
        keyed.write_text(damaged)
        with pytest.raises(UserError, match=r"^\S*\.json: "):
            TrainStage.read(keyed)


def test_settings_files_are_written_where_they_differ(folder):
    Graph(configuration(TEXT)).write_settings("eng")
    written = {path.parent.name: path for path in Path("results/settings").glob("*/*.json")}
    assert {*written} == {"corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert", "run"}
    for path in written.values():
        os.utime(path, (1, 1))
    written["train"].write_text("")  # as a crash may leave it
    Graph(configuration(TEXT, {"run": {"log_every": 9}, "card": {"license": "mit"}})).write_settings("eng")
    again = {path for path in Path("results/settings").glob("*/*.json") if path.stat().st_mtime != 1}
    assert again == {written[stage] for stage in ("train", "convert", "run")}
    assert TrainStage.read(written["train"]).languages == ["eng"]
