"""Compute a digest of the source code behind a stage.

Snakemake does not track the Python modules that `python -m babelmill.<stage>` imports. This digest does: it covers the
syntax trees of all modules of the package that the stage imports, directly or not. It leaves out what cannot change a
result: comments, docstrings, formatting, annotations, and the messages of errors and of the log. A module's templates
count as its code: beside `card.py`, these are `card.md`, `card.use.md` and so on.

The packages in `SHARED` are left out, too: they affect a stage only through its settings, or do not change what it
computes. The package `labels` counts only for label models, since only they run it. So a stage that imports it has
two digests, and an edit there runs no other model again. `code_versions.py` says which digests give the same results.
"""

import ast
import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from babelmill.core.files import UserError, atomic_write, read_json
from babelmill.core.places import PACKAGE

SHARED = {"__init__", "__main__", "cli", "commands", "config", "core", "file_times", "graph", "hub", "runtime"}
SHARED |= {"settings", "stages"}
LABELS = "labels"
DIGITS = 16  # hexadecimal digits of a digest
TEMPLATES = (".html", ".md")  # how the names of templates end
LOGGERS = {"log", "logger", "logging"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


class _Stripper(ast.NodeTransformer):
    """Removes from a syntax tree what cannot change a result."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Keep the annotations in the body of a class: dataclasses and pydantic read them."""
        body = _without_docstring(node.body)
        node.body = [child if isinstance(child, ast.AnnAssign) else self.visit(child) for child in body]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        node = ast.Raise(exc=node.exc, cause=None)
        if isinstance(node.exc, ast.Call):
            node.exc = ast.Call(func=node.exc.func, args=[], keywords=[])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Remove the arguments of `log.info(...)`, and the help texts of `add_argument(...)`."""
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in LEVELS
            and isinstance(function.value, ast.Name)
            and function.value.id in LOGGERS
        ):
            return ast.Call(func=function, args=[], keywords=[])
        if isinstance(function, ast.Attribute) and function.attr == "add_argument":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "help"]
        return self.generic_visit(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def _without_unused_imports(tree: ast.AST) -> ast.AST:
    """Drop the imports that only the removed messages and annotations needed."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [a for a in node.names if (a.asname or a.name.split(".")[0]) in used]
    return tree


def _dump(node: object) -> object:
    """Return a syntax tree as nested tuples, without empty fields: `ast.dump` differs between Python versions."""
    if isinstance(node, ast.AST):
        fields = ((name, _dump(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *fields
    if isinstance(node, list):
        return tuple(_dump(child) for child in node if not _is_empty(child))
    return repr(node)


def _is_empty(node: object) -> bool:
    """Return whether a statement does nothing."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Import | ast.ImportFrom) and not node.names)


@functools.cache
def _path(module: str) -> Path | None:
    """Return the file of the module `a.b` of the package; None if the package has no such module."""
    base = f"{PACKAGE}/{module.replace('.', '/')}"
    return next((Path(path) for path in (f"{base}.py", f"{base}/__init__.py") if os.path.isfile(path)), None)


def _imports(tree: ast.Module, package: list[str]) -> set[str]:
    """Return what a module imports from our package, both modules and names in them.

    `package`: the names of the packages that the module is in, the outermost first.
    """
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        found |= {name.removeprefix(f"{PACKAGE.name}.") for name in names if name.startswith(f"{PACKAGE.name}.")}
    return found


@functools.cache
def _module(module: str) -> tuple[str, list[str]]:
    """Return the digest of one module, and the modules of the package that it imports."""
    path = _path(module)
    if path is None:
        raise ValueError(f"{module} is no module of {PACKAGE}")
    source = path.read_bytes()
    names = [name for name in sorted(os.listdir(path.parent)) if name.startswith(f"{path.stem}.")]
    templates = [(path.parent / name).read_text(encoding="utf-8") for name in names if name.endswith(TEMPLATES)]
    package = [PACKAGE.name, *path.relative_to(PACKAGE).parent.parts]
    key = digest_of([*package, source.decode(), *templates])
    if key not in (known := _remembered()):
        tree = ast.parse(source)
        imported = sorted(_imports(tree, package))
        text = repr(_dump(_without_unused_imports(_Stripper().visit(tree))))
        known[key] = digest_of([text, *templates]), imported
    digest, imported = known[key]
    return digest, [name for name in imported if _path(name)]


@functools.cache
def _remembered() -> dict[str, tuple[str, list[str]]]:
    """Return the earlier results of `_module`, by a digest of the source. Computing all of them takes 0.5 s."""
    with contextlib.suppress(UserError, TypeError, ValueError):  # missing or damaged
        return {key: (digest, list(imported)) for key, (digest, imported) in dict(read_json(_memory())).items()}
    return {}


def _memory() -> Path:
    """Return the path of the file that keeps these results, beside Python's bytecode.

    Its name depends on the version of Python and on this module's source.
    """
    version = digest_of([sys.version, Path(__file__).read_text(encoding="utf-8")])
    return PACKAGE / f"__pycache__/code_digests.{version}.json"


def _remember(known: int) -> None:
    """Write the results if there are more than `known`. If writing fails, the next run computes them again."""
    if len(_remembered()) > known and not sys.dont_write_bytecode:
        with contextlib.suppress(OSError, UserError), atomic_write(_memory(), "w", durable=False) as file:
            json.dump(_remembered(), file)


@functools.cache
def modules(entry: str, also: tuple[str, ...] = (), labelled: bool = False) -> dict[str, str]:
    """Return {module: digest} of the modules in `also` and all that the stage `entry` imports, directly or not.

    `labelled`: whether to include the package `labels` and what only this package imports.
    """
    left_out = SHARED if labelled else SHARED | {LABELS}
    known = len(_remembered())
    found, waiting = set(), [entry, f"{entry}.__main__", *also]
    while waiting:
        module = waiting.pop()
        if module in found or module.split(".")[0] in left_out or not _path(module):
            continue
        found.add(module)
        waiting += _module(module)[1]
        waiting.append(module.rpartition(".")[0] or module)  # importing a.b runs a/__init__.py
    _remember(known)
    return {module: _module(module)[0] for module in sorted(found)}


@functools.cache
def digest(entry: str, also: tuple[str, ...] = (), labelled: bool = False) -> str:
    """Return one digest of all modules of a stage; see `modules`."""
    return combined(modules(entry, also, labelled))


def combined(parts: dict[str, str]) -> str:
    """Return one digest for all modules of a stage."""
    return digest_of(f"{name} {digest}" for name, digest in sorted(parts.items()))


def digest_of(lines: Iterable[str]) -> str:
    """Return the digest of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGITS]
