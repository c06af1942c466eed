"""The code digest: an edit that changes behaviour moves exactly the stages that run the edited code."""

import ast
import functools
import shutil
from pathlib import Path

import pytest

from babelmill.config.resolve import Configuration
from babelmill.config.stage_settings import ExportSettings, TrainSettings
from babelmill.core import code_digest, code_versions
from babelmill.core.files import UserError
from babelmill.graph import jobs_of
from babelmill.settings import read_settings, settings_of, write_settings
from babelmill.stages import STAGES
from helpers.results.finished import finish

PACKAGE = code_digest.PACKAGE


def digests(package: Path) -> dict[str, tuple[str, str]]:
    """The digests of each stage in a copy of the package, without `labels/` and for models of labels."""

    with pytest.MonkeyPatch.context() as patch:
        of_edited_code(patch, package)
        return {name: (stage.digest(), stage.digest(labelled=True)) for name, stage in STAGES.items()}


def of_edited_code(patch: pytest.MonkeyPatch, package: Path) -> None:
    """From now on, the digests are those of a copy of the package. Its code is read, not run: an edit may break it."""
    patch.setattr(code_digest, "PACKAGE", package)
    for name in ("_path", "_module", "modules", "digest"):  # forget what they knew before the edit
        patch.setattr(code_digest, name, functools.cache(getattr(code_digest, name).__wrapped__))


def that_differ(before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]) -> set[str]:
    """The stages whose digests differ, those that differ for models of labels alone as "train of labels"."""
    found = set()
    for stage in STAGES:
        plain, of_labels = (one != other for one, other in zip(before[stage], after[stage], strict=True))
        assert of_labels or not plain, "a model of labels runs all that other models run"
        found |= {stage} if plain else {f"{stage} of labels"} if of_labels else set()
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    copy = tmp_path_factory.mktemp("package") / "babelmill"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def before(package):
    return digests(package)


@pytest.fixture
def moved(package, before):
    """The stages whose digests differ after an edit of a module's source (`that_differ`)."""

    def moved(module: str, edit) -> set[str]:
        path = package / module
        source = path.read_text(encoding="utf-8")
        edited = edit(source)
        assert edited != source
        path.write_text(edited, encoding="utf-8")
        try:
            after = digests(package)
        finally:
            path.write_text(source, encoding="utf-8")
        return that_differ(before, after)

    return moved


def replaced(old: str, new: str):
    """An edit: the first `old` becomes `new`."""

    def edit(source: str) -> str:
        assert old in source, old
        return source.replace(old, new, 1)

    return edit


def appended(text: str):
    """An edit: lines at the end."""
    return lambda source: f"{source}\n\n{text}\n"


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
TEMPLATES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.md"))
# Which stages run which modules. A room has a line, then what differs in it; `~train` is the training of labels alone.
# A new module has to be entered here, and so be thought about, where its room has no line or other stages run it.
TABLE = """
corpus: corpus download
corpus/__main__ corpus/builtin corpus/duplicates corpus/parts corpus/pieces corpus/workers corpus/writer: corpus
corpus/near_copies corpus/near_duplicates corpus/shingles: corpus
download: download
evaluation: evaluate
evaluation/__init__: evaluate convert score submission
evaluation/metrics: evaluate convert
evaluation/overlaps evaluation/suite_scores: convert score submission
evaluation/tuned_scores: convert
identifier: identifier
labels/__init__: ~base_model ~shards ~train ~export ~evaluate ~convert ~predict
labels/card: ~convert
labels/codes: ~base_model ~shards ~train ~export ~evaluate
labels/corpus_codes: ~shards ~evaluate
labels/data labels/network: ~train
labels/evaluation labels/metrics: ~evaluate
labels/folder: ~export
labels/labeller: ~train ~export
labels/occcanine: ~base_model
labels/prediction labels/windows: ~predict
labels/predictor: ~evaluate ~predict
model: base_model train export
model/__init__ model/code_decoder: base_model train export evaluate ~predict score tune
model/transformers: export
model/transformers/__init__: ~train export
model/transformers/configuration_gpt_bert model/transformers/modeling_gpt_bert: ~train export
release/__init__: base_model convert export evaluate ~predict score tune
release/card: convert
release/elsewhere: base_model
release/folder: export
release/folder/__init__ release/folder/loading: export evaluate ~predict score tune
suites: score
suites/__init__: score corpus download suite submission tune
suites/sought: score corpus download
suites/texts: score suite corpus download
suites/word_files: score suite
suites/readers: suite
suites/results: score submission tune
suites/challenge reporting/__init__ reporting/published: submission
tables/__init__ tables/columns tables/delimited tables/parquet_file: corpus download predict suite task
tables/table: predict suite task
tasks: tune
tasks/__init__ tasks/classes tasks/resplit tasks/spans: task tune
tasks/conll tasks/rows: task
text_files: corpus download ~shards ~evaluate predict suite task
text_files/whole: ~shards ~evaluate task
tokens/characters tokens/pretokenizer: base_model tokenizer shards train export evaluate score tune
tokens/tokenizer_file: base_model tokenizer shards train export evaluate score tune
tokens/vocabulary tokens/prefix_space: base_model tokenizer shards train export evaluate score tune convert
tokens/__init__: base_model tokenizer shards train export evaluate score corpus download convert ~predict tune
tokens/clean_text: corpus download ~convert ~predict
tokens/hashed_words: score corpus download
tokens/documents: tokenizer shards evaluate
tokens/label_text: corpus download ~shards ~evaluate ~predict
tokens/published_tokenizer tokens/trial: base_model tokenizer
tokens/quality: tokenizer evaluate
tokens/shard_file: shards train export evaluate
tokens/limits: tokenizer
training: train
training/__init__: base_model train export evaluate score predict tune
training/arithmetic: train evaluate score predict tune
training/networks/__init__: base_model train export evaluate score tune
training/networks/document_masks training/networks/transformers_models: base_model train export evaluate score tune
training/networks/lora: train export
"""
RUN_BY = {
    name: {f"{stage[1:]} of labels" if stage[0] == "~" else stage for stage in stages.split()}
    for names, stages in (line.split(": ") for line in TABLE.split("\n") if line)
    for name in names.split()
}
# No stage runs commands and what they alone use, what acts through the settings alone, and what looks after a run without
# changing what it computes. The digests of a report and of an experiment are in their own settings files.
NONE = {"__init__", "__main__", "cli", "commands", "config", "core", "hub", "runtime", "settings", "stages"}
NONE |= {"experiment", "experiments", "report", "reporting", "survey", "sweep", "file_times", "graph"}
NONE |= {"suites/statistics", "tasks/comparing", "tasks/together", "release/folder/trying", "corpus/server"}
OF_COMMANDS = ("given_model", "manual_conversion", "old_repository", "rehosting")
NONE |= {f"release/elsewhere/{name}" for name in OF_COMMANDS}


def run_by(module: str) -> set[str]:
    """The stages that run a module: those of the module itself or of the nearest room around it."""
    path = Path(module).with_suffix("")
    for name in map(str, (path, *path.parents)):
        if name in NONE:
            return set()
        if name in RUN_BY or name in STAGES:
            return RUN_BY.get(name, {name})
    raise AssertionError(f"{module}: who runs this module?")


@pytest.mark.parametrize("module", MODULES)
def test_an_edit_moves_the_stages_that_run_it(moved, module):
    assert moved(module, appended("EDITED = True")) == run_by(module)


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_edit_of_a_template_moves_the_stages_that_fill_it_in(moved, template):
    """A template that belongs to no module would move none."""
    assert moved(template, appended("More words.")) == run_by(f"{template.split('.')[0]}.py")


@pytest.mark.parametrize("module", ["train.py", "model/gpt_bert.py"])
def test_comments_docstrings_and_formatting_move_nothing(moved, module):
    assert moved(module, lambda source: "# a comment\n" + source + "\n\n# another\n") == set()
    assert moved(module, replaced('"""', '"""Other words. ')) == set()
    assert moved(module, lambda source: ast.unparse(ast.parse(source))) == set()


# Pairs of texts that are put at the end of a module: (before, after).
SAME = {
    "a message of the log": (
        'def f(x):\n    log.info("%d steps", x)',
        'def f(x):\n    log.info("step %d of %s", x, x * 2)',
    ),
    "the message of an error": (
        'def f(x):\n    raise UserError(f"{x}: no such file")',
        'def f(x):\n    raise UserError(f"{x}: there is none", x) from None',
    ),
    "the docstring of a function": ('def f(x):\n    """Do it."""\n    return x', "def f(x):\n    return x"),
    "the docstring of a method": (
        'class C:\n    """C."""\n    def f(self):\n        """Do it."""',
        'class C:\n    """D."""\n    def f(self):\n        """Done."""',
    ),
    "annotations of a function": (
        "def f(x: int, *more: str, y: float = 1.0, **rest: int) -> int:\n    return x",
        "def f(x, *more, y: 'float' = 1.0, **rest) -> None:\n    return x",
    ),
    "annotations of a variable": (
        "def f():\n    x: list[int] = []\n    return x",
        "def f():\n    x = []\n    return x",
    ),
    "annotations of a method": (
        "class C:\n    async def f(self, x: int): return x",
        "class C:\n    async def f(self, x) -> int: return x",
    ),
}
SAME |= {
    "a text of help": (
        'parser.add_argument("--out", type=int, help="a number")',
        'parser.add_argument("--out", type=int, help="how many")',
    ),
    "an import for an annotation": ("def f(x): return x", "from typing import Any\n\ndef f(x: Any): return x"),
}
OTHER = {
    "the default of an argument": (
        'parser.add_argument("--out", default=1, help="a number")',
        'parser.add_argument("--out", default=2, help="a number")',
    ),
    "where a function comes from": ("from math import log2 as f\nf(1)", "from math import log10 as f\nf(1)"),
    "the class of an error": ("def f(x):\n    raise ValueError(x)", "def f(x):\n    raise KeyError(x)"),
    "what is called beside the log": ("def f(x):\n    book.info(x)", "def f(x):\n    book.info(x + 1)"),
    "a number": ("def f(x):\n    return x + 1", "def f(x):\n    return x + 2"),
    "a default": ("def f(x=1):\n    return x", "def f(x=2):\n    return x"),
    "a text that is no docstring": ('def f():\n    return "a"', 'def f():\n    return "b"'),
    "a decorator": ("@cache\ndef f():\n    return 1", "def f():\n    return 1"),
    "the order of statements": ("a = 1\nb = 2", "b = 2\na = 1"),
    "a field of a dataclass": (
        "@dataclass\nclass C:\n    x: int\n    y: int",
        "@dataclass\nclass C:\n    x: int\n    y: ClassVar[int]",
    ),
    "a field of a pydantic model": (
        "class C(BaseModel):\n    x: Annotated[int, Field(gt=0)]",
        "class C(BaseModel):\n    x: Annotated[int, Field(gt=1)]",
    ),
    "a field with a default": ("class C(BaseModel):\n    x: int = 1", "class C(BaseModel):\n    x: float = 1"),
    "where an error is caught": (
        "try:\n    f()\nexcept OSError:\n    g()",
        "try:\n    f()\nexcept ValueError:\n    g()",
    ),
}


@pytest.mark.parametrize("what", [*SAME, *OTHER])
def test_what_an_edit_can_change(package, moved, what):
    """In a module that only the stage `train` runs."""
    module, (before, after) = "training/plan/plan.py", (SAME | OTHER)[what]
    source = (package / module).read_text(encoding="utf-8")
    try:
        appended_before = appended(before)(source)
        (package / module).write_text(appended_before, encoding="utf-8")
        first = digests(package)
        (package / module).write_text(appended(after)(source), encoding="utf-8")
        second = digests(package)
    finally:
        (package / module).write_text(source, encoding="utf-8")
    assert that_differ(first, second) == ({"train"} if what in OTHER else set())


def test_a_moved_module_moves_its_stages(package, before):
    """Its name is part of the digest: what is imported under another name may be another thing."""
    path = package / "training/optimization/optim.py"
    trainer = package / "training/trainer.py"
    importers = [p for p in package.rglob("*.py") if "training.optimization.optim" in p.read_text(encoding="utf-8")]
    assert trainer in importers
    sources = {p: p.read_text(encoding="utf-8") for p in importers}
    try:
        path.rename(package / "training/optimizers.py")
        for importer, source in sources.items():
            importer.write_text(source.replace("training.optimization.optim", "training.optimizers"), encoding="utf-8")
        after = digests(package)
    finally:
        (package / "training/optimizers.py").rename(path)
        for importer, source in sources.items():
            importer.write_text(source, encoding="utf-8")
    assert that_differ(before, after) == {"train"}


def test_relative_imports_are_followed(moved, package):
    """As in the files that are shipped with a model."""
    source = (package / "model/transformers/modeling_gpt_bert.py").read_text(encoding="utf-8")
    assert "from .configuration_gpt_bert import" in source and "from ..gpt_bert import" in source
    assert "model.gpt_bert" in code_digest.modules("model.transformers.modeling_gpt_bert")
    assert "model.transformers.configuration_gpt_bert" in code_digest.modules("model.transformers.modeling_gpt_bert")


def test_the_manifest_of_a_stage_says_which_modules_it_ran():
    """So that `why` can name those that were edited."""
    for stage in STAGES.values():
        for labelled in (False, True):
            modules = stage.modules(labelled)
            assert code_digest.combined(modules) == stage.digest(labelled)
            assert stage.name in modules
            others = {module.split(".")[0] for module in modules} & NONE
            assert others <= ({"reporting"} if stage.name == "submission" else set()), "it names published scores"
    plain, of_labels = (STAGES["train"].modules(labelled).keys() for labelled in (False, True))
    assert {"training.plan.plan", "model.gpt_bert", "tokens.shard_file"} < plain < of_labels
    assert "labels.network" in of_labels and not [name for name in plain if name.startswith("labels")]
    assert "labels.folder" in STAGES["export"].modules(labelled=True), "which it finds by its name in a table"


LABELLED = {
    **{"languages": ["eng"], "labels": {"code": "hisco"}},
    "train": {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0.0]},
}


@pytest.fixture
def finished(folder, monkeypatch) -> Configuration:
    """A folder with the results of a model and of a model of labels, which released code made."""
    lines = [f"{stage.name} 1 aaaaaaaa {digest} 0.2.0\n" for stage in STAGES.values() for digest in stage.digests]
    Path("versions.txt").write_text("".join(lines))
    monkeypatch.setattr(code_versions, "PATH", Path("versions.txt"))
    code_versions.read.cache_clear()
    Path("eng.csv").write_text("text,code\n")
    values = {"languages": {"eng": {"corpus": {"files": ["eng.csv"], "label_columns": ["code"]}}}}
    configuration = Configuration([("test", {"preset": "tiny", "models": {"occ": LABELLED}, **values})])
    finish(configuration, "eng", "occ")
    for model in ("eng", "occ"):
        write_settings(configuration, model)
    yield configuration
    code_versions.read.cache_clear()


def edit(package: Path, module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Edit a module of the package, or none for the name ""."""
    copy = shutil.copytree(package, tmp_path / "edited" / package.name)
    if module:
        (copy / module).write_text(f"{(copy / module).read_text(encoding='utf-8')}\nEDITED = True\n", encoding="utf-8")
    of_edited_code(monkeypatch, copy)


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("", {"eng": None, "occ": None}),
        ("labels/network.py", {"eng": None, "occ": "train"}),
        ("labels/folder.py", {"eng": None, "occ": "export"}),
        ("labels/codes.py", {"eng": None, "occ": "shards"}),
        ("training/trainer.py", {"eng": "train", "occ": "train"}),
    ],
)
def test_an_edit_of_labels_runs_models_of_labels_again_and_no_other(
    finished, package, monkeypatch, tmp_path, module, first
):
    """The released code is known for both: nothing runs."""
    edit(package, module, monkeypatch, tmp_path)
    for model, stage in first.items():
        jobs = jobs_of(finished, model)
        edited = [job.stage.name for job in jobs if job.reasons and job.reasons[0].startswith("source code of")]
        assert (edited or [None])[0] == stage, model
        where = f"changed in {module.removesuffix('.py').replace('/', '.')}"
        assert all(job.reasons[0].endswith(where) for job in jobs if job.stage.name in edited)
        for job in jobs:
            code = settings_of(finished, job.name, job.stage.settings_name(job.part))["code"]
            assert (code == f"{job.stage.name} 1 (aaaaaaaa)") is (job.stage.name not in edited)


def test_a_stage_whose_labels_were_edited_while_it_was_queued_refuses(finished, package, monkeypatch, tmp_path):
    """Also where its settings do not say what the model learns: those of its training beside them do."""
    edit(package, "labels/folder.py", monkeypatch, tmp_path)
    read_settings("results/settings/eng/export.json", ExportSettings)
    read_settings("results/settings/occ/train.json", TrainSettings)
    with pytest.raises(
        UserError, match=r"occ/export\.json: the code of stage export has changed since .*, now \w{16}\)"
    ):
        read_settings("results/settings/occ/export.json", ExportSettings)
    shutil.copy("results/settings/occ/export.json", "export.json")
    assert read_settings("export.json", ExportSettings).code == "export 1 (aaaaaaaa)"


def test_the_results_of_a_model_of_labels_name_the_code_in_labels(finished):
    """So that `why` can name an edited module."""
    for model, there in (("eng", False), ("occ", True)):
        modules = read_settings(f"results/settings/{model}/export.json", ExportSettings).modules
        assert ("labels.folder" in modules) is there
