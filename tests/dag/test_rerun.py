"""What reruns when: for every key of the configuration, exactly the stages that depend on it, of that model and no other."""

import copy
import json
import shutil
from typing import Literal, get_args, get_origin

import pytest
from babelmill.settings import settings_of

from babelmill import __version__
from babelmill.config.resolve import Configuration
from babelmill.config.schema import OF_NORBERT4, SECTIONS
from babelmill.core import manifest
from babelmill.core.files import sha256
from babelmill.stages import STAGES, TO_CONVERTED
from conftest import SMALL

# The first stage that reads a section (`mixture` only for a model of several languages).
READER = {"evaluation": "evaluate", "card": "convert", "model": "train"}
READER |= {stage: stage for stage in ("corpus", "tokenizer", "train", "export")}
# Keys whose other value cannot be made from the type alone.
OTHER = {
    "corpus.files": ["texts/eng/0*.txt"],
    "run.snapshots": [0.001],
    "run.checkpoints": "file:///elsewhere",
    "model.revision": "v1",
    "corpus.builtin": "python-docs",  # beside the files
    "corpus.validation_files": ["texts/deu/000.txt"],
    "corpus.format": "csv",
    "corpus.document": "50 words",
    "corpus.quoting": "none",
    "run.validation_tokens": 1000,
    "corpus.text_column": "content",
    "corpus.hub": "somebody/else",
    "corpus.revision": "v2",
    "corpus.delimiter": ";",
    "corpus.categories": ["child-books"],
    "corpus.budget": "100 words",
    "corpus.language_filter": {"model": "py3langid"},
    "corpus.near_duplicates": 0.8,
    "corpus.near_duplicate_paragraphs": 0.8,
    "tokenizer.source": "results/tokenizers/deu/tokenizer.json",
    "tokenizer.revision": "v2",
    "mixture.weights": "uniform",
    "model.num_attention_heads": 4,
    "train.micro_batch_tokens": 128,
    "train.hybrid_ratio": "2/3",
    "train.sequence_lengths": [16, 32, 32],
    "train.phase_starts": [0.0, 0.5, 0.75],
    "train.batch_reduction": 2.0,
    "train.betas": [0.8, 0.9],
    "export.variants": ["ema"],
    "card.license": "cc-by-4.0",
    "card.authors": ["A. Person"],
    "card.description": "Trained for a test.",
    "publish.username": "lab",
    "publish.repo_template": "{username}/{model}{causal_suffix}{variant_suffix}",
}
# A model of one language has nothing to weigh; there are local files, and no tokenizer of the Hub; the steps are given.
NOTHING = {"mixture.weights", "corpus.hub", "corpus.revision", "tokenizer.revision", "train.epochs", "model.revision"}
# They go together, lead to other models, or need other files: test_transformers_network.py, test_continue.py,
# test_prompts.py, test_transformers_sources.py, test_labels.py, test_labelled_corpora.py.
SEVERAL = {"model.architecture", "model.config", "model.source", "corpus.prompt_column"}
SEVERAL |= {"corpus.label_columns", "corpus.context_column", "corpus.context"}
SEVERAL |= {"corpus.decontaminate"}  # which needs a suite: test_decontaminate.py
SEVERAL |= {f"model.{name}" for name in OF_NORBERT4}  # of another architecture: test_norbert4_sources.py
SEVERAL |= {"train.words"}  # without the steps: test_snapshots.py
SEVERAL |= {"train.lora_rank", "train.lora_alpha", "export.adapter"}
SEVERAL |= {"train.noise"}  # of diffusion: test_noise.py
SEVERAL |= {"train.freeze", "train.unknown_context", "train.typos"}
SEVERAL |= {f"labels.{name}" for name in SECTIONS["labels"].model_fields}  # of another objective: test_labels.py
SEVERAL |= {
    f"evaluation.{name}" for name in ("suites", "pairs", "masked_pairs", "snapshots", "snapshot_suites", "backend")
}  # test_suites_of_pairs.py
SEVERAL |= {f"evaluation.{name}" for name in ("tasks", "task_seeds", "keep_tuned")}  # e2e/test_tune.py
SEVERAL |= {f"predict.{name}" for name in SECTIONS["predict"].model_fields}  # of models of labels: test_predict.py


def keys():
    for section, schema in SECTIONS.items():
        for name in schema.model_fields:
            if f"{section}.{name}" not in SEVERAL:
                yield section, name


def other_value(section, name, value):
    """A valid value that differs from the present one."""
    if f"{section}.{name}" in OTHER:
        return OTHER[f"{section}.{name}"]
    annotation = SECTIONS[section].model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return next(choice for choice in get_args(annotation) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 or 2
    if isinstance(value, float):
        return value / 2 if value else 0.01
    if value is None:  # max_steps and the like: optional numbers
        return 10
    raise AssertionError(f"{section}.{name}: write another valid value into OTHER")


def downstream(stages):
    """The stages, and all that follow from them."""
    found = set(stages)
    for stage in TO_CONVERTED.values():
        if stage.name not in ("score", "tune") and found.intersection(stage.reads):
            found.add(stage.name)
    return found


def expected(section, name):
    """(rule, eng) of each stage that should run after a change of this key for eng."""
    if f"{section}.{name}" in NOTHING or section in ("run", "resources", "publish"):  # nobody asks to publish here
        return set()
    return {(stage, "eng") for stage in downstream([READER[section]])}


def with_value(section, name, value):
    values = copy.deepcopy(SMALL)
    group = "languages" if section == "corpus" else "models"
    values.setdefault(group, {}).setdefault("eng", {}).setdefault(section, {})[name] = value
    return values


def changed(section, name):
    """The small configuration with another value of a key for eng."""
    present = Configuration([("config/config.yaml", SMALL)])
    resolved = present.corpus("eng") if section == "corpus" else present.model("eng")
    value = getattr(getattr(resolved, section), name)
    other = other_value(section, name, value)
    assert other != value
    return with_value(section, name, other)


def settings_files(values):
    """{(stage, name): content} of all settings files of eng and deu."""
    configuration = Configuration([("config/config.yaml", values)])
    stages = [*STAGES.values(), None]
    return {
        (stage.name if stage else "run", name): settings_of(configuration, name, stage.name if stage else "run")
        for name in ("eng", "deu")
        for stage in stages
        if stage is None or stage.applies(configuration, name)
    }


@pytest.mark.parametrize(("section", "name"), list(keys()), ids=lambda value: value)
def test_a_changed_key_changes_the_settings_of_what_reads_it_alone(built, monkeypatch, section, name):
    """What that makes again is decided by the files; the test after this one looks at it for each section."""
    monkeypatch.chdir(built)
    before, after = settings_files(SMALL), settings_files(changed(section, name))
    reader = {"run": "run", "publish": "publish"} | READER
    stages = [] if f"{section}.{name}" in NOTHING or section == "resources" else [reader[section]]
    stages += ["publish"] if f"{section}.{name}" == "export.variants" else []  # the repository's name tells of it
    stages += ["evaluate"] if f"{section}.{name}" == "train.objective" else []  # which says what is scored
    told = ("corpus.validation_share", "corpus.validation_files")  # what a run says about its snapshots
    stages += ["run"] if f"{section}.{name}" in told else []
    assert {key for key in before if before[key] != after[key]} == {(stage, "eng") for stage in stages}


@pytest.mark.parametrize("section", [section for section in SECTIONS if section not in ("labels", "predict")])
def test_a_changed_section_reruns_exactly_what_depends_on_it(workspace, section):
    name = next(
        name
        for name in SECTIONS[section].model_fields
        if f"{section}.{name}" not in OTHER.keys() | SEVERAL | NOTHING or section == "mixture"
    )
    workspace.configure(changed(section, name))
    assert workspace.would_run() == expected(section, name)
    if section in ("corpus", "train"):
        workspace.configure(SMALL)
        assert workspace.would_run() == set(), "changed back: nothing to run"


def test_order_of_keys_spelling_of_numbers_and_values_of_the_defaults_change_nothing(workspace):
    assert workspace.would_run() == set()
    values = {key: SMALL[key] for key in reversed(SMALL)}
    values["train"] = {key: SMALL["train"][key] for key in reversed(SMALL["train"])} | {"learning_rate": "1e-2"}
    values["evaluation"] = {"documents": 10, "sequence_length": 512}
    workspace.configure(values)
    assert workspace.would_run() == set()
    assert workspace.would_run("--config", "train={learning_rate: 0.010, max_steps: 8}") == set()


def test_swapped_values_are_seen(workspace):
    """Snakemake compares params as a nameless set; settings files do not."""
    values = copy.deepcopy(SMALL)
    values["models"] = {"eng": {"train": {"mask_rate_start": 0.15, "mask_rate_end": 0.3}}}
    workspace.configure(values)
    assert workspace.would_run() == {(stage, "eng") for stage in ("train", "export", "evaluate", "convert")}


@pytest.mark.parametrize("arguments", [[], ["--rerun-triggers", "mtime"]])
def test_a_change_is_seen_without_what_snakemake_remembers(workspace, arguments):
    shutil.rmtree(workspace.path / ".snakemake")
    assert workspace.would_run(*arguments) == set()
    values = copy.deepcopy(SMALL)
    values["tokenizer"]["vocab_size"] = 300
    workspace.configure(values)
    stages = downstream(["tokenizer"])
    assert workspace.would_run(*arguments) == {(stage, model) for stage in stages for model in ("eng", "deu")}


def test_the_reason_names_the_settings_file(workspace):
    values = copy.deepcopy(SMALL)
    values["tokenizer"]["vocab_size"] = 300
    workspace.configure(values)
    assert "results/settings/eng/tokenizer.json" in workspace.snakemake("converted/eng", "--dry-run").stdout


def test_why_names_the_value_and_what_follows(workspace):
    values = copy.deepcopy(SMALL)
    values["models"] = {"eng": {"train": {"learning_rate": 0.5}}}
    workspace.configure(values)
    lines = workspace.why("eng")
    assert lines["shards"] == "up to date"
    assert lines["train"] == "train.learning_rate 0.01 -> 0.5"
    assert lines["export"] == "runs because train does"
    assert {*workspace.why("deu").values()} == {"up to date"}


def test_why_agrees_with_the_dry_run_on_a_fresh_folder(workspace):
    shutil.rmtree(workspace.path / "results")
    shutil.rmtree(workspace.path / "converted")
    lines = workspace.why("eng")
    assert lines["corpus"] == "has not run yet"
    assert {stage for stage, _ in workspace.would_run(targets=["converted/eng"])} == set(lines)


def test_a_converted_model_that_lost_a_file_is_an_error(workspace):
    (workspace.path / "converted/eng/config.json").unlink()
    done = workspace.snakemake("converted/eng", check=False)
    assert done.returncode == 1
    assert "error: converted/eng/config.json is missing; delete the folder converted/eng" in done.stdout + done.stderr


NOT_NEEDED = "results/tokenizers/eng/tokenizer.json is missing; not needed, since what was made from it is there"


@pytest.mark.parametrize("change", [{}, {"learning_rate": 0.5}])
def test_a_missing_intermediate_is_made_again_only_where_it_is_needed(workspace, change):
    (workspace.path / "results/tokenizers/eng/tokenizer.json").unlink()
    values = copy.deepcopy(SMALL)
    values["train"] |= change
    workspace.configure(values)
    jobs = workspace.would_run(targets=["converted/eng"])
    assert {stage for stage, _ in jobs} == (downstream(["tokenizer"]) if change else set())
    lines = workspace.why("eng")
    assert {stage for stage, found in lines.items() if found not in ("up to date", NOT_NEEDED)} == {s for s, _ in jobs}
    assert lines["tokenizer"] == ("results/tokenizers/eng/tokenizer.json is missing" if change else NOT_NEEDED)


def test_a_lost_intermediate_of_a_published_model_publishes_nothing_again(workspace, monkeypatch):
    """The receipt of `publish` names what was published, and not what that was made from."""
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    workspace.configure(SMALL | {"publish": {"username": "ada"}})
    model = workspace.path / "converted/eng"
    assert workspace.would_run(targets=["published/eng.json"]) == {("publish", "eng")}
    settings = json.loads((workspace.path / "results/settings/eng/publish.json").read_text())
    receipt = {"stage": "publish", "name": "eng", "version": __version__, "settings": settings, "files": {}}
    upstream = {"converted/eng": sha256(model / manifest.NAME)}
    (workspace.path / "published").mkdir()
    manifest.write_sealed(workspace.path / "published/eng.json", receipt | {"upstream": upstream})
    assert workspace.would_run(targets=["published/eng.json"]) == set()
    (workspace.path / "results/tokenizers/eng/tokenizer.json").unlink()
    assert workspace.would_run(targets=["published/eng.json"]) == set()
