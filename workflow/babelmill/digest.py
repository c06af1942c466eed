"""A fingerprint of the source code behind a stage.

Snakemake does not track the Python modules that `python -m babelmill.<stage>` imports. This digest does: it covers the
syntax trees of the stage's import closure inside the package, without comments, docstrings and formatting. It stands
in the stage's settings file, so an edit that changes behaviour reruns the stage, and reformatting does not.

The modules in `SHARED` are left out: what they do reaches a stage through its settings alone, or does not change what
it computes.
"""

import ast
import functools
import hashlib
from pathlib import Path

PACKAGE = Path(__file__).parent
# What a stage runs in another process, or ships, without importing it.
ALSO = {"export": ["prove", "model.gpt_bert", "hub.configuration_gpt_bert", "hub.modeling_gpt_bert"]}
SHARED = {"__init__", "config", "schema", "manifest", "files", "digest", "languages", "stage", "by_hand", "hub_client"}


def _strip_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]


def _dump(node):
    """A syntax tree as nested tuples, without what is empty: `ast.dump` differs between versions of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, _dump(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *fields
    return tuple(map(_dump, node)) if isinstance(node, list) else repr(node)


def _path(module: str) -> Path | None:
    """The file of `a.b` relative to the package, None if it is no module of ours."""
    base = PACKAGE.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def _module(module: str) -> tuple[str, frozenset[str]]:
    """(digest, imported modules of the package) of one module."""
    path = _path(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parent = [PACKAGE.name, *path.relative_to(PACKAGE).parent.parts]
    imported = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(
                [*parent[: len(parent) - node.level + 1], node.module or ""] if node.level else [node.module]
            )
            base = base.rstrip(".")
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            inner = name.removeprefix(f"{PACKAGE.name}.")
            if inner != name and _path(inner):
                imported.add(inner)
    _strip_docstrings(tree)
    return hashlib.sha256(repr(_dump(tree)).encode()).hexdigest(), frozenset(imported)


def closure(stage: str) -> list[str]:
    """The modules of the package that a stage's entry point imports, directly or not, and those in `ALSO`; sorted."""
    found, waiting = set(), [stage, f"{stage}.__main__", *ALSO.get(stage, [])]
    while waiting:
        module = waiting.pop()
        if module in found or module in SHARED or not _path(module):
            continue
        found.add(module)
        waiting += _module(module)[1]
        waiting.append(module.rpartition(".")[0] or module)  # importing a.b runs a/__init__.py
    return sorted(found)


@functools.cache
def of_stage(stage: str) -> str:
    """Hex digest of a stage's source code."""
    text = "\n".join(f"{module} {_module(module)[0]}" for module in closure(stage))
    return hashlib.sha256(text.encode()).hexdigest()
