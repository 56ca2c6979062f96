"""What the command line says: options that exist, no parameters of Python, lines that fit."""

import ast
import io
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.cli.helpers import here
from typer.main import get_command
from typer.testing import CliRunner

import sgpmic
from sgpmic import SGPMIC, Progress
from sgpmic._runtime import listening
from sgpmic.cli import results as display_module
from sgpmic.cli.app import app
from sgpmic.cli.options import OPTIONS, in_options
from sgpmic.cli.results import FitDisplay
from sgpmic.exceptions import Advice, DimensionsWarning, InvalidParameterError
from sgpmic.learning.starts import explain_choice

SOURCE = Path(sgpmic.__file__).parent

#: Parameters of the estimator, also by the names they have within their settings.
PARAMETERS = {part for name in SGPMIC().get_params() for part in (name, name.split("__")[-1])}
#: Those among them that are words of English, or of an option, as well.
_WORDS = {"kernel", "latent", "scale", "committee", "start", "em", "computation", "embedding"}
_WORDS |= {"memberships", "inducing", "pieces", "selection", "optimizer", "callbacks", "device"}
_WORDS |= {"checkpoint", "jitter", "mapping", "strength", "verbose"}
TECHNICAL = PARAMETERS - _WORDS

#: Raised only for what the command line has no option for, or about another program's options.
NOT_FOR_COMMANDS = (
    "X has",
    "n_samples=",
    "start__{name}",
    "A fit in several",
    "iconv",
)


def all_options() -> set[str]:
    found: set[str] = set()

    def visit(command: Any) -> None:
        for parameter in command.params:
            found.update(parameter.opts, parameter.secondary_opts)
        for child in getattr(command, "commands", {}).values():
            visit(child)

    visit(get_command(app))
    return found | {"--help"}


def text_of(node: ast.AST) -> str:
    """Return a literal, with a number for everything that is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.FormattedValue):
        return "'each'" if node.conversion == ord("r") else "7"
    return ""


def sentences(path: Path) -> list[str]:
    """Return the texts of all errors, warnings and notes in a module."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    found = [
        text_of(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in docstrings | inner
    ]
    return [text for text in found if text.count(" ") > 2]


#: Modules whose errors and warnings a user of ``sgpmic fit`` can see.
SEEN = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE / "plots"]


@pytest.mark.parametrize("path", SEEN, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_sentence_names_what_the_command_line_does_not_have(path: Path) -> None:
    options = all_options()
    for sentence in sentences(path):
        if any(words in sentence for words in NOT_FOR_COMMANDS):
            continue
        for name in re.findall(r"[A-Za-z_]\w*", sentence):
            assert name not in TECHNICAL, sentence
        for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", sentence):
            assert option in options, sentence


def test_the_sentences_are_found() -> None:
    found = sentences(SOURCE / "learning" / "run.py")
    assert any("The bound was still rising" in sentence for sentence in found)
    assert len(found) >= 7


def test_parameters_become_options_that_set_them() -> None:
    assert set(OPTIONS.values()) <= all_options()
    cases: dict[Exception | Warning | str, str] = {
        UserWarning(Advice("Allow more", "max_iter", "tol")): "Allow more (--max-iter).",
        ValueError(
            Advice("Be", "n_clusters='auto'", "scale=1")
        ): "Be (--clusters auto, --scale 1).",
        ValueError(Advice("Raise it", "em__jitter")): "Raise it.",
        ValueError("the kernel's scale and latent points"): "the kernel's scale and latent points",
        InvalidParameterError("latent", "='x' is not known."): "--latent='x' is not known.",
        InvalidParameterError("tol", " must be 1."): "tol must be 1.",
    }
    for said, expected in cases.items():
        assert in_options(said) == expected


def test_messages_survive_the_way_between_processes() -> None:
    advice = Advice("Allow more", "max_iter", "tol")
    assert str(advice) == "Allow more (max_iter, tol)."
    error = InvalidParameterError("latent", " must be a word.")
    assert str(error) == "latent must be a word."
    for said in (ValueError(advice), error):
        again = pickle.loads(pickle.dumps(said))
        assert (str(again), in_options(again)) == (str(said), in_options(said))


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (("-d", "0"), "--dimensions must be a whole number"),
        (("--kernel", "cosine"), "use one of linear, matern32, matern52, rational_quadratic, rbf."),
        (("--latent", "soft"), "--latent must be one of 'point'"),
        (("--scale", "all"), "--scale must be one of 'auto'"),
        (("--as-published", "--scale", "each"), "(--as-published, --scale one)"),
    ],
)
def test_refusals_name_options(tmp_path: Path, slip: tuple[str, ...], words: str) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(70, 3)))
    done = here("fit", tmp_path / "t.npy", "-k", "2", *slip, "--out", tmp_path / "run")
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert words in said
    assert not TECHNICAL & set(re.findall(r"[A-Za-z_]\w*", said))


def test_help_is_in_words() -> None:
    for command in ((), ("fit",), ("demo",), ("predict",), ("report",)):
        done = CliRunner().invoke(app, [*command, "--help"])
        assert done.exit_code == 0
        for word in ("<str>", "list[str]", "<int", "Show it"):
            assert word not in done.output, f"{command}: {word}"
    assert "Show the version and exit." in CliRunner().invoke(app, ["--help"]).output


def start(embedding: str, bound: float, agreement: float, *, kept: bool = False) -> dict[str, Any]:
    return {
        "embedding": embedding,
        "memberships": "fcm",
        "bound": bound,
        "agreement": agreement,
        "kept": kept,
    }


def test_why_a_start_was_kept() -> None:
    first, second = start("isomap", -10.0, 0.5), start("pca", -30.0, 0.9, kept=True)
    words = explain_choice([first, second])
    assert words.startswith("Kept: start 2 of 2 (pca and fcm), whose clusters agree best")
    assert "0.90" in words
    assert explain_choice([second]) == ""


def progress(number: int, n_starts: int = 1) -> Progress:
    return Progress(
        start=n_starts - 1,
        n_starts=n_starts,
        iteration=number,
        max_iter=20,
        bound=-123456789.123,
        change=float("inf") if number == 1 else 1.5e-3,
        cluster_sizes=np.full(30, 12345.0),
        seconds=1000.0,
        _labels=lambda: np.zeros(1, np.int64),
    )


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_progress_line_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(display_module, "console", console)
    shown = FitDisplay(20, 10)
    steps: list[tuple[Any, Any, str]] = [
        (shown.announce, "committee: SGPMIC, ISOMAP start and votes", "committee: SGPMIC"),
        (shown.announce, "start: isomap and votes", "start: isomap"),
        (shown.announce, "first iteration (compiling may take a while)", "first iteration"),
        (shown.show, progress(1, 10), "iteration 1/20"),
        (shown.show, progress(3, 10), "iteration 3/20"),
        (shown.announce, "start: pca and fcm", "start: pca and fcm"),
        (shown.finish, "12 iterations, bound -123456789.12", "done: 12 iterations"),
    ]
    for tell, what, words in steps:
        tell(what)
        with console.capture() as captured:
            console.print(shown.get_renderable())
        (line,) = captured.get().rstrip("\n").split("\n")
        assert len(line) <= width
        assert words in line


def test_a_fit_says_what_it_does_and_what_was_wrong_with_it() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)) + 5.0 * (np.arange(60)[:, None] % 3)
    heard: list[str] = []
    model = SGPMIC(3, 4, n_inducing=10, max_iter=1, random_state=0)
    model.set_params(em__m_steps=2)
    with listening(heard.append), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(rows)
    assert heard[0] == "testing for clusters"
    assert heard[1] == "committee: k-means"
    at = heard.index("start: isomap and votes")
    assert heard[at + 1].startswith("first iteration")
    assert heard[-1] == "last E-step"
    (said,) = [one.message for one in warned if one.category is DimensionsWarning]
    assert str(said).startswith("4 latent dimensions are more than the table has features (3)")
    assert str(said).endswith("Use fewer, or let the data decide (n_components='auto').")
    assert in_options(said).endswith("Use fewer, or let the data decide (--dimensions auto).")
