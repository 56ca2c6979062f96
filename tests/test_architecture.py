"""Which module may import which: docs/architecture.md, held."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sgpmic"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

#: From the bottom up: a module imports from its own layer and from those before it.
LAYERS = {
    "base": (
        "sgpmic",
        "sgpmic._types",
        "sgpmic._words",
        "sgpmic._runtime",
        "sgpmic.compile_cache",
        "sgpmic.exceptions",
    ),
    "kernels": ("sgpmic.kernels",),
    "model": ("sgpmic.model",),
    "process group": ("sgpmic.process_group",),
    "learning": ("sgpmic.learning", "sgpmic.committee"),
    "storage": ("sgpmic.storage",),
    "tables": ("sgpmic.tables",),
    "estimator": (
        *("sgpmic.estimator", "sgpmic._predictions", "sgpmic._plots"),
        *("sgpmic._input_rows", "sgpmic.anndata"),
    ),
    "jobs": ("sgpmic.jobs", "sgpmic.parallel"),
    "report": ("sgpmic.report", "sgpmic.colors"),
    "plots": ("sgpmic.plots",),
    "cli": ("sgpmic.cli", "sgpmic.__main__"),
}
ORDER = list(LAYERS)

#: What a layer knows nothing of.
FOREIGN = {
    "kernels": {"sklearn", "typer", "rich", "pyarrow", "safetensors", "matplotlib"},
    "model": {"sklearn", "typer", "rich", "pyarrow", "safetensors", "matplotlib"},
    "process group": {"sklearn", "typer", "rich", "matplotlib"},
    "learning": {"typer", "rich", "pyarrow", "safetensors", "matplotlib"},
    "estimator": {"typer", "rich", "pyarrow", "safetensors"},
}


def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer_of(module: str) -> str:
    best = max(
        (
            (len(prefix), layer)
            for layer, prefixes in LAYERS.items()
            for prefix in prefixes
            if module == prefix or (prefix != "sgpmic" and module.startswith(prefix + "."))
        ),
        default=None,
    )
    assert best is not None, f"{module} belongs to no layer: name it in LAYERS"
    return best[1]


#: What functions may import all the same: a method that draws, and the judge's stored weights.
EXCEPTIONS = {
    # Methods of the estimator that draw and describe; pictures and pages import the estimator.
    "sgpmic._plots": {
        "sgpmic.plots",
        *(f"sgpmic.report.{name}" for name in ("content", "explanations", "page")),
    },
    "sgpmic.committee.judge": {"safetensors.numpy", "safetensors.numpy.load"},
}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(module: str) -> set[str]:
    """Return what a module and its functions import, without what is named as an exception."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(ALL[module].read_text())]
    while waiting:
        node = waiting.pop()
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        waiting += ast.iter_child_nodes(node)
    return found - EXCEPTIONS.get(module, set())


ALL = modules()


@pytest.mark.parametrize("module", sorted(ALL))
def test_a_module_imports_from_the_layers_before_it_only(module: str) -> None:
    mine = ORDER.index(layer_of(module))
    for name in imports(module):
        if name in ALL and name != "sgpmic":
            assert ORDER.index(layer_of(name)) <= mine, f"{module} imports {name}"
        foreign = FOREIGN.get(layer_of(module), set())
        assert name.split(".")[0] not in foreign, f"{module} imports {name}"


def test_the_package_imports_nothing_that_is_not_installed_with_it() -> None:
    beside = {path.name for path in SOURCE.parents[1].iterdir() if path.is_dir()} - {"src"}
    assert {"paper", "benchmarks", "tests"} <= beside
    for module, path in ALL.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not beside & {name.split(".")[0] for name in names}, module


def test_there_is_no_circle() -> None:
    graph = {
        module: {name for name in imports(module) if name in ALL and name not in (module, "sgpmic")}
        for module in ALL
    }
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " imports ".join((*way[way.index(module) :], module))
        if module in done:
            return
        for name in graph[module]:
            # A package and its modules are one thing here: importing one imports the other.
            if not (module.startswith(name + ".") or name.startswith(module + ".")):
                visit(name, (*way, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_the_page_lists_the_layers_in_this_order() -> None:
    listed = re.findall(r"^\| \*\*([\w ]+)\*\* \|", PAGE.read_text(), flags=re.MULTILINE)
    assert listed == ORDER


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of a function's lines without its docstring."""
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start, end = function.lineno, function.end_lineno or 0
    documented = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return end - start + 1 - documented


def test_no_function_is_longer_than_eighty_lines() -> None:
    long = [
        f"{module}.{node.name}: {code_lines(node)}"
        for module, path in ALL.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and code_lines(node) > 80
    ]
    assert not long
