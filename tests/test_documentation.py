"""What the documentation shows must run, and what it links to must be there.

The blocks of a page run in order, in one namespace and one temporary folder: Python as it stands,
and of the console blocks every line that starts with ``$ sgpmic``. A block of text right after one
of Python is what it prints. What is shown after a command is not compared: it has times in it.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import doctest
import html
import importlib
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import typer
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from sgpmic import EM, SGPMIC, Committee, Computation, Start

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import pages  # noqa: E402

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])

MODULES = (
    *("sgpmic", "sgpmic.estimator", "sgpmic.model.evaluate"),
    *("sgpmic.tables.encoder", "sgpmic.anndata"),
    *("paper.datasets", "paper.metrics"),
)

#: Commands that are shown and not run: they set up a machine, or only look at files.
NOT_RUN = ("cd", "git", "head", "ls", "make", "pip")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


# ------------------------------------------------------------------------------- running


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[tuple[str, str, str, int]]:
    """Return of every block that runs: language, text, what it prints, and its first line."""
    text = page.read_text(encoding="utf-8")
    pattern = r"^```(python|console)\n(.*?)^```\n(?:\n```text\n(?!\$ )(.*?)^```)?"
    return [
        (block[1], block[2], block[3] or "", text.count("\n", 0, block.start(2)) + 1)
        for block in re.finditer(pattern, text, flags=re.S | re.M)
    ]


def commands_of(block: str) -> list[str]:
    """Return the commands of a console block; a line that ends in a backslash has a next one."""
    joined = block.replace("\\\n", " ")
    return [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]


#: Where the first page that shows ``sgpmic demo`` has run it.
DEMOS: list[Path] = []


def run_command(words: list[str], place: str) -> None:
    from sgpmic.cli.app import app

    if words == ["demo"] and DEMOS:  # the same every time
        shutil.copytree(DEMOS[0], "demo-output")
        return
    # A command may say where JAX computes, which is not for the tests that follow.
    with mock.patch.dict(os.environ):
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{place}: {shlex.join(words)}\n{done.output}\n{done.exception!r}"
    if words == ["demo"]:
        DEMOS.append(Path("demo-output").resolve())


NUMBER = r"-?\d+(?:\.\d+)?"


def numbers_of(text: str) -> list[float]:
    return [float(number) for number in re.findall(NUMBER, text)]


def check_printed(shown: str, printed: str, place: str) -> None:
    """Compare words, and how many numbers there are: another processor rounds otherwise."""
    words = [re.sub(r"\s", "", re.sub(NUMBER, "#", text)) for text in (shown, printed)]
    assert words[0] == words[1], f"{place} prints\n{printed}and the page shows\n{shown}"


def run_page(page: Path) -> dict[str, Any]:
    """Run the blocks of a page, and return what their names stand for in the end."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for language, block, shown, line in blocks_of(page):
        place = f"{name_of(page)}, line {line}"
        if language == "python":
            # As many lines before it as on the page, so that a traceback names the right one.
            code = compile("\n" * (line - 1) + block, str(page), "exec")
            printed = io.StringIO()
            with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
                warnings.simplefilter("ignore")
                exec(code, namespace)
            if shown:
                check_printed(shown, printed.getvalue(), place)
            continue
        commands = commands_of(block)
        assert commands, f"{place}: a console block without a command"
        for command in commands:
            first, *words = shlex.split(command, comments=True)
            if first == "sgpmic":
                run_command(words, place)
            else:
                assert first in NOT_RUN, f"{place}: is {first!r} to be run or not?"
    return namespace


@pytest.fixture
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is where pages run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


READ_ALOUD, CELLS = DOCS / "reading-a-report.md", DOCS / "howto" / "single-cells.md"
PAGES_THAT_RUN = [p for p in PAGES if blocks_of(p) and p not in (READ_ALOUD, CELLS)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name_of)
@pytest.mark.usefixtures("anywhere")
def test_a_page_runs(page: Path) -> None:
    run_page(page)


@pytest.mark.slow
def test_kinds_of_blood_cells_are_found_as_well_as_by_leiden(anywhere: Path) -> None:
    """On the page about single cells, with the seven hundred that scanpy brings along."""
    scanpy = pytest.importorskip("scanpy")
    pytest.importorskip("igraph")
    adata = run_page(CELLS)["adata"]
    with warnings.catch_warnings(action="ignore"):
        scanpy.tl.leiden(adata, resolution=0.5, flavor="igraph", n_iterations=2, directed=False)
    kinds = adata.obs["bulk_labels"]
    leiden = adjusted_rand_score(kinds, adata.obs["leiden"])
    ours = adjusted_rand_score(kinds, adata.obs["sgpmic"])
    print(f"agreement with the kinds of cells: Leiden {leiden:.2f}, SGPMIC {ours:.2f}")
    # Half of all pairs right is what graph clusterings reach on this set of overlapping kinds.
    assert leiden > 0.35
    assert ours > 0.45
    support = scanpy.read_h5ad(anywhere / "cells.h5ad").uns["sgpmic"]["support"]
    assert support["supported"]
    assert support["p_value"] < 0.05
    assert support["sentence"].startswith("There are clusters")
    # What scanpy does with clusters works with ours: a categorical is all it asks for.
    assert len(adata.uns["rank_genes_groups"]["names"].dtype) == adata.obs["sgpmic"].nunique()


# What the page calls things that the report does not quote in a sentence.
CONTROLS = (
    *("Box", "Lasso", "Save as CSV", "Color by", "Principal components beside it", "Dimensions"),
    *("Turn", "Save PNG", "Save SVG", "Search", "certainty below 90 %", "Typical", "Committee"),
    *("Select these in the picture", "Save this page with the names", "Bound over iterations"),
    *("Certainty of rows", "Starts", "Learning and certainty", "Most doubtful rows", "The run"),
)


def plain(text: str) -> str:
    """Return words as they are compared: no marks between cells, one space between words."""
    text = re.sub(r"[*·…,]", " ", text.replace("’", "'").replace("−", "-"))
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.usefixtures("as_shipped")
def test_what_is_read_aloud_stands_in_the_report(anywhere: Path) -> None:
    with mock.patch.dict(globals(), DEMOS=[]):
        run_page(READ_ALOUD)
    page = READ_ALOUD.read_text(encoding="utf-8")
    report = (anywhere / "demo-output" / "run" / "report.html").read_text(encoding="utf-8")
    report = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", report, flags=re.S)
    said = plain(html.unescape(re.sub(r"<[^>]+>", " ", report)))

    quotes = re.findall(r"(?:^> .*\n)+", page, flags=re.M)
    assert len(quotes) == 8
    for quote in map(plain, (re.sub(r"^> ", "", quote, flags=re.M) for quote in quotes)):
        pattern = f"({NUMBER})".join(re.escape(words) for words in re.split(NUMBER, quote))
        found = [[*map(float, match.groups())] for match in re.finditer(pattern, said)]
        assert pytest.approx(numbers_of(quote), rel=0.2, abs=0.1) in found, quote

    for control in CONTROLS:
        assert control in said, control
        assert control.lower() in plain(page).lower(), control
    table = re.findall(r"^\| (cluster \d) \| (\d+) \| (\d+) \| (\d+) \|$", page, flags=re.M)
    assert len(table) == 3
    for line in table:
        assert " ".join(line) in said


# ------------------------------------------------------------------------------- links


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def slug(heading: str) -> str:
    """Return the anchor that Python-Markdown's table of contents gives a heading."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def anchors_of(page: Path) -> set[str]:
    text = without_blocks(page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*?)(?: \{.*\})?$", text, flags=re.M)
    objects = re.findall(r"^::: (\S+)$", text, flags=re.M)
    return {*map(slug, headings), *objects, *re.findall(r"\{ ?#([\w.-]+)", text)}


def links_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield file and anchor of every link that does not leave the project."""
    text = without_blocks(page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", link):
            file, _, anchor = link.partition("#")
            yield file, anchor


OTHERS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS, ROOT / "paper" / "README.md"], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in links_of(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"there is no {file}"
        if anchor:
            assert anchor in anchors_of(target), f"{file} has no heading #{anchor}"


def test_the_menu_has_every_page_and_no_other() -> None:
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    menu = configuration.split("\nnav:\n")[1].split("\n\n")[0]
    listed = re.findall(r":\s+(\S+\.md)$", menu, flags=re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_the_reference_names_things_that_exist() -> None:
    names = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(encoding="utf-8"), flags=re.M)
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


def test_the_page_of_parameters_names_every_one() -> None:
    page = (DOCS / "parameters.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (.*?) \|", page, re.M))))
    parameters = set(inspect.signature(SGPMIC).parameters)
    assert named >= parameters, parameters - named
    for settings in (Start, Committee, EM, Computation):
        section = page.split(f"\n### {settings.__name__}\n")[1].split("\n#")[0]
        fields = dict(re.findall(r"^\| (`.*?) \| (.*?) \|", section, flags=re.M))
        listed = {
            name: default
            for names, defaults in fields.items()
            for name, default in zip(names.split(", "), defaults.split(", "), strict=True)
        }
        expected = settings().get_params()
        assert {name.strip("`") for name in listed} == set(expected)
        for name, default in listed.items():
            assert ast.literal_eval(default.strip("`")) == expected[name.strip("`")], name


def test_the_page_of_parameters_names_every_option_and_no_other() -> None:
    from sgpmic.cli.app import app

    command = typer.main.get_command(app).commands["fit"]
    options = {
        word for parameter in command.params for word in parameter.opts + parameter.secondary_opts
    }
    page = (DOCS / "parameters.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(--?[a-z][a-z-]*)`", page))
    assert named <= options
    hidden = {"--batch", "--rounds"}  # for one release
    assert options - named - hidden <= {
        "table",
        "--clusters",
        "--dimensions",
        "--committee",
        "--help",
    }


# ------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_measured_figures_are_those_of_the_result_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(pages.BLOCK.findall(text)) == text.count("<!-- from ") == text.count("<!-- end -->")
    assert pages.filled(text) == text, "the result files have changed: python benchmarks/pages.py"


def test_every_block_is_on_a_page() -> None:
    texts = (page.read_text(encoding="utf-8") for page in PAGES)
    assert {name for text in texts for _, name, _ in pages.BLOCK.findall(text)} == set(pages.BLOCKS)


def test_comparisons_have_one_home() -> None:
    """Scores such as .343 are typed on two pages only; others have them from a result file."""
    for page in PAGES:
        if name_of(page) in ("docs/quality.md", "docs/judge.md"):
            continue
        words = pages.BLOCK.sub("", without_blocks(page.read_text(encoding="utf-8")))
        assert not re.findall(r"(?<![\w.])\.\d\d+\b", words), name_of(page)


def block(name: str) -> str:
    """Return what stands on the page about quality between the marks of a block."""
    text = (DOCS / "quality.md").read_text(encoding="utf-8")
    return text.split(f"<!-- from {name} -->")[1].split("<!-- end -->")[0]


CLOUDS = ("blobs10", "aniso", "varied", "sizes")
CURVES = ("moons", "circles", "spiral", "arcs")


def test_the_figures_by_shape_are_those_of_the_arena() -> None:
    """The page splits the synthetic shapes: its means and medians, computed again."""
    fits: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with (ROOT / "benchmarks" / "results" / "arena.csv").open(encoding="utf-8") as file:
        for fit in csv.DictReader(file):
            if fit["group"] == "shapes":
                fits[fit["method"], fit["set"]].append((float(fit["ari"]), float(fit["seconds"])))
    listed = re.findall(
        r"^\| ([\w +-]+) \| (.*\d.*) \| (.*) \| (.*) \| (.*) \|$",
        block("arena.csv: clouds and curves"),
        flags=re.M,
    )
    assert len(listed) == 7
    for method, *figures in listed:
        shown = [float(figure) for figure in figures]
        for kind, (ari, seconds) in zip((CLOUDS, CURVES), (shown[:2], shown[2:]), strict=True):
            sets = [f"{name}{variant}" for name in kind for variant in (0, 1)]
            means = [np.mean(fits[method, name], axis=0) for name in sets]
            assert ari == pytest.approx(np.mean(means, axis=0)[0], abs=0.00051), method
            assert seconds == pytest.approx(np.median(means, axis=0)[1], rel=0.05), method


def test_no_picture_stands_for_another() -> None:
    pictures = [*(ROOT / "docs").rglob("*.png"), *(ROOT / "docs").rglob("*.svg")]
    assert len({picture.read_bytes() for picture in pictures}) == len(pictures)
