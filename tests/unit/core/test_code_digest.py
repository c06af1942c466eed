"""The code digest: an edit that changes behaviour moves exactly the stages that run the edited code."""

import ast
import functools
import shutil
from pathlib import Path

import pytest

from babelmill.core import code_digest
from babelmill.stages import STAGES

PACKAGE = code_digest.PACKAGE


def digests(package: Path) -> dict[str, str]:
    """The digest of each stage in a copy of the package, whose code is read, not run: an edit may break it."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_digest, "PACKAGE", package)
        for name in ("_path", "_module", "modules"):  # forget what they knew before the edit
            patch.setattr(code_digest, name, functools.cache(getattr(code_digest, name).__wrapped__))
        parts = {name: code_digest.modules(name, stage.also) for name, stage in STAGES.items()}
    return {name: code_digest.combined(found) for name, found in parts.items()}


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
    """The stages whose digest differs after an edit of a module's source."""

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
        return {stage for stage in STAGES if before[stage] != after[stage]}

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
# Who runs what. A new module has to be entered here, and so be thought about.
FOLDERS = {
    "corpus": {"corpus", "download"},  # which counts text as the corpus will
    "corpus/readers": {"corpus", "download"},
    "download": {"download"},
    "evaluation": {"evaluate"},
    "model": {"base_model", "train", "export"},
    "model/transformers": {"train", "export"},
    "prediction": {"predict"},
    "suites": {"score"},
    "text_files": {"corpus", "download", "shards", "evaluate", "predict", "suite"},
    "training": {"train"},
}
SEVERAL = {
    "model/__init__.py": {"base_model", "train", "export", "evaluate", "predict", "score"},
    "model/code_decoder.py": {"base_model", "train", "export", "evaluate", "predict", "score"},
    "model/transformers/diffusion_generation.py": {"export"},
    "model/transformers/modeling_codes.py": {"export"},
    "model/transformers/modeling_gpt_bert_codes.py": {"export"},
    "corpus/__main__.py": {"corpus"},
    "corpus/builtin.py": {"corpus"},
    "corpus/duplicates.py": {"corpus"},
    "corpus/pieces.py": {"corpus"},
    "corpus/workers.py": {"corpus"},
    "corpus/writer.py": {"corpus"},
    "evaluation/__init__.py": {"evaluate", "convert", "score"},
    "evaluation/metrics.py": {"evaluate", "convert"},
    "evaluation/suite_scores.py": {"convert", "score"},
    "release/folder/architecture.py": {"export"},
    "release/folder/gpt_bert_folder.py": {"export"},
    "labels/card.py": {"convert"},
    "labels/picture.py": {"convert"},
    "labels/folder_config.py": {"convert"},
    "labels/folder.py": {"export"},
    "release/__init__.py": {"base_model", "export", "evaluate", "convert", "predict", "score"},
    "release/folder/adapter_folder.py": {"export"},
    "release/card/card.py": {"convert"},
    "release/card/card_beginning.py": {"convert"},
    "release/card/card_data.py": {"convert"},
    "release/card/card_table.py": {"convert"},
    "release/card/card_usage.py": {"convert"},
    "release/folder/hub_folder.py": {"export"},
    "release/folder/merged_adapters.py": {"export"},
    "release/folder/loading.py": {"export", "evaluate", "predict", "score"},
    "release/card/earlier_card.py": {"convert"},
    "release/elsewhere/manual_conversion.py": set(),
    "release/elsewhere/masked_target.py": set(),
    "release/elsewhere/old_repository.py": set(),
    "release/folder/prove.py": {"export"},
    "release/elsewhere/foreign_model.py": {"base_model"},
    "release/elsewhere/llada.py": {"base_model"},
    "release/elsewhere/transformers_names.py": {"base_model"},
    "labels/occcanine.py": {"base_model"},
    "release/elsewhere/published_checkpoint.py": {"base_model"},
    "release/card/suite_card.py": {"convert"},
    "release/card/snapshot_card.py": {"convert"},
    "release/folder/snapshots.py": {"export"},
    "release/card/training_history.py": {"convert"},
    "release/folder/transformers_folder.py": {"export"},
    "training/__init__.py": {"base_model", "train", "export", "evaluate", "score"},
    "training/networks/lora.py": {"train", "export"},
    "training/networks/document_masks.py": {"base_model", "train", "export", "evaluate", "score"},
    "labels/encoder_weights.py": {"train", "export"},
    "labels/labeller.py": {"train", "export"},
    "training/networks/transformers_models.py": {"base_model", "train", "export", "evaluate", "score"},
    "prediction/__init__.py": {"predict"},
    "tables/__init__.py": {"corpus", "download", "predict", "suite"},
    "tables/columns.py": {"corpus", "download", "predict", "suite"},
    "tables/delimited.py": {"corpus", "download", "predict", "suite"},
    "tables/json_lines.py": {"corpus", "download", "predict", "suite"},
    "tables/parquet_file.py": {"corpus", "download", "predict", "suite"},
    "tables/table.py": {"predict", "suite"},
    "suites/__init__.py": {"suite", "score"},
    "suites/pairs.py": {"suite"},
    "suites/comparison.py": set(),
    "suites/statistics.py": set(),
    "text_files/whole.py": {"shards", "evaluate"},
    "tokens/__init__.py": set(STAGES) - {"publish", "suite"},
    "tokens/clean_text.py": {"corpus", "download", "convert", "predict"},
    "tokens/characters.py": {"base_model", "tokenizer", "shards", "train", "export", "evaluate", "score"},
    "tokens/label_text.py": {"corpus", "download", "shards", "evaluate", "predict"},
    "labels/codes.py": {"shards", "train", "export", "evaluate"},
    "labels/corpus_codes.py": {"shards", "evaluate"},
    "tokens/documents.py": {"tokenizer", "shards", "evaluate"},
    "tokens/pretokenizer.py": {"base_model", "tokenizer", "shards", "train", "export", "evaluate", "score"},
    "tokens/published_tokenizer.py": {"base_model", "tokenizer"},
    "tokens/quality.py": {"tokenizer", "evaluate"},
    "tokens/shard_file.py": {"shards", "train", "export", "evaluate"},
    "tokens/tokenizer_file.py": {"base_model", "tokenizer", "shards", "train", "export", "evaluate", "score"},
    "tokens/trial.py": {"base_model", "tokenizer"},
    "tokens/vocabulary.py": {"base_model", "tokenizer", "shards", "train", "export", "evaluate", "score"},
}
# Commands, what acts through the settings alone, and what looks after a run without changing what it computes.
# The digest of a report is in its own settings file.
NONE = {"__init__", "__main__", "cli", "commands", "config", "core", "hub", "runtime", "settings", "stages"}
NONE |= {"report", "reporting", "file_times", "graph"}


def run_by(module: str) -> set[str]:
    if module in SEVERAL:
        return SEVERAL[module]
    top = module.removesuffix(".py").split("/")[0]
    if top in NONE:
        return set()
    folder = module.rpartition("/")[0]
    if folder:
        assert folder in FOLDERS, "who runs this module?"
        return FOLDERS[folder]
    assert top in STAGES, "who runs this module?"
    return {top}


@pytest.mark.parametrize("module", MODULES)
def test_an_edit_moves_the_stages_that_run_it(moved, module):
    assert moved(module, appended("EDITED = True")) == run_by(module)


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
    assert {stage for stage in STAGES if first[stage] != second[stage]} == ({"train"} if what in OTHER else set())


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
    assert {stage for stage in STAGES if before[stage] != after[stage]} == {"train"}


def test_relative_imports_are_followed(moved, package):
    """As in the files that are shipped with a model."""
    source = (package / "model/transformers/modeling_gpt_bert.py").read_text(encoding="utf-8")
    assert "from .configuration_gpt_bert import" in source and "from ..gpt_bert import" in source
    assert "model.gpt_bert" in code_digest.modules("model.transformers.modeling_gpt_bert")
    assert "model.transformers.configuration_gpt_bert" in code_digest.modules("model.transformers.modeling_gpt_bert")


def test_the_manifest_of_a_stage_says_which_modules_it_ran():
    """So that `why` can name those that were edited."""
    for stage in STAGES.values():
        assert code_digest.combined(stage.modules) == stage.digest
        assert stage.name in stage.modules
        assert not {module.split(".")[0] for module in stage.modules} & NONE
    assert {"training.plan.plan", "model.gpt_bert", "tokens.shard_file"} < STAGES["train"].modules.keys()
