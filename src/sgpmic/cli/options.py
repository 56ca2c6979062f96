"""Shared by all commands: console, one-sentence errors, and option definitions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from typer import Argument, Option

#: Control characters, line separators and bidirectional overrides, which a terminal may act on.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class SafeConsole(Console):
    """Console that escapes control characters, for names and text from files."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield escaped segments; Rich's own control segments pass unchanged."""
        for text, style, control in super().render(renderable, options):
            shown = text if control else _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
            yield Segment(shown, style, control)


console = SafeConsole(highlight=False)


def fail(sentence: str, code: int = 2) -> typer.Exit:
    """Print an error in one sentence; the caller raises the returned exception."""
    SafeConsole(stderr=True, highlight=False).print(f"[bold red]sgpmic:[/] {escape(sentence)}")
    return typer.Exit(code)


def note(sentence: str) -> None:
    """Print a note that is not an error."""
    console.print(f"[yellow]Note:[/] {escape(sentence)}")


@contextmanager
def one_sentence(what: object, doing: str = "written") -> Iterator[None]:
    """Exit with one sentence on errors of files; an OSError is "``what`` cannot be ``doing``"."""
    from sgpmic.storage.model_file import ModelFileError
    from sgpmic.storage.run_folder import RunFolderError
    from sgpmic.tables.errors import TableError

    try:
        yield
    except (RunFolderError, TableError, ModelFileError) as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{what} cannot be {doing}: {error.strerror or error}.") from None


def prepare_process() -> None:
    """Ignore write errors of the output streams."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is not None:
            setattr(sys, name, Screen(getattr(sys, name)))


class Screen:
    """Stream wrapper that drops output on write errors, and escapes what it cannot encode.

    The disk may be full, or the program that reads may have stopped.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write text, or drop it."""
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Any, *text: str) -> None:
        try:
            action(*text)
        except OSError:
            # Redirect to devnull, else Python retries at exit to flush the buffer, and complains.
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_count = partial(Option, metavar="NUMBER")
_number = partial(_count, min=1)
_word = partial(Option, metavar="WORD")
_flag = partial(Option, metavar="")
OutFolder = Annotated[Path, Option(metavar="FOLDER", help="Folder for the results.")]
Seed = Annotated[int, _number(min=0, help="Random seed.")]
Device = Annotated[str, _word(help="cpu, gpu, or auto: a GPU where JAX finds one.")]
Force = Annotated[bool, _flag("--force", help="Replace the results of an earlier run.")]
RunPath = Annotated[Path, Argument(metavar="RUN", help="Folder that sgpmic fit wrote.")]

# Options that name columns may be given several times, or once with commas.
_Names = list[str] | None
_columns = partial(Option, metavar="COLUMNS")
_column = partial(Option, metavar="COLUMN")
TablePath = Annotated[
    Path,
    Argument(
        metavar="TABLE",
        help="CSV, TSV (also .gz), Parquet, Feather/Arrow, NPY, NPZ, JSON records or XLSX.",
    ),
]
Clusters = Annotated[str, _count("-k", "--clusters", help="Number of clusters, or auto.")]
_dimensions = "Number of latent dimensions; a share of variance (0.95); or auto."
Dimensions = Annotated[str, _count("-d", "--dimensions", help=_dimensions)]
Columns = Annotated[_Names, _columns(help="Features to use, separated by commas; all by default.")]
Drop = Annotated[_Names, _columns(help="Columns to leave out.")]
IdColumns = Annotated[
    _Names, _column("--id", help="Column with row names (the first of several); not a feature.")
]
LabelColumn = Annotated[
    str | None, _column("--label", help="Known groups to compare the clusters with; not a feature.")
]
Number = Annotated[_Names, _columns(help="Columns to use as numbers, unchanged.")]
Category = Annotated[_Names, _columns(help="Columns that are categories, even if of numbers.")]
Ordered = Annotated[_Names, _columns(help="Columns with an order: size, or 'size=small<large'.")]
Date = Annotated[_Names, _columns(help="Columns that are dates or times.")]
Log = Annotated[_Names, _columns(help="Columns to take the logarithm of.")]
Scale = Annotated[
    str | None,
    _word(help="Divide features by their deviations (each), by one (one), none or auto."),
]
Kernel = Annotated[str, _word(help="rbf, linear, matern32, matern52 or rational_quadratic.")]
Latent = Annotated[
    str,
    _word(help="Latent points as estimates (point), or with uncertainty (variational): slower."),
]
Inducing = Annotated[int, _number(help="Number of inducing points.")]
Committee = Annotated[
    bool, _flag("--committee/--no-committee", help="Let different methods vote on each row first.")
]
Starts = Annotated[int, _number(max=10_000, help="Number of starts.")]
MaxIter = Annotated[int | None, _number(help="Maximum EM iterations; 20, or the paper's 2.")]
Rounds = Annotated[int | None, _number(hidden=True)]
Batch = Annotated[int | None, Option(hidden=True)]
AsPublished = Annotated[bool, _flag("--as-published", help="All settings as in the paper.")]
Processes = Annotated[
    int,
    _number(help="Processes on this machine, which share a Parquet or .npy file; not with srun."),
]
CheckpointEvery = Annotated[int, _number(help="Iterations between two checkpoints.")]
Resume = Annotated[bool, _flag("--resume", help="Resume a run that was interrupted.")]
DryRun = Annotated[bool, _flag("--dry-run", help="Estimate time and memory only.")]

#: The options of ``sgpmic fit`` that set parameters of the estimator.
OPTIONS = {
    "n_clusters": "--clusters",
    "n_components": "--dimensions",
    "kernel": "--kernel",
    "latent": "--latent",
    "n_inducing": "--inducing",
    "scale": "--scale",
    "max_iter": "--max-iter",
    "start__n_init": "--starts",
    "start__kernel_scale='data'": "--as-published",
    "random_state": "--seed",
    "as_published": "--as-published",
}


def in_options(said: Exception | Warning | str) -> str:
    """Rewrite an estimator's message to name command-line options instead of parameters."""
    from sgpmic.exceptions import Advice, InvalidParameterError

    if isinstance(said, InvalidParameterError):
        return OPTIONS.get(said.parameter, said.parameter) + said.problem
    message = said.args[0] if isinstance(said, Exception) and said.args else said
    if not isinstance(message, Advice):
        return str(said)
    options = []
    for parameter in message.parameters:
        name, _, value = parameter.replace("'", "").partition("=")
        if option := OPTIONS.get(parameter):
            options.append(option)
        elif option := OPTIONS.get(name):
            options.append(f"{option} {value}")
    return f"{message.sentence} ({', '.join(options)})." if options else f"{message.sentence}."


def number_or_word(words: str) -> int | float | str:
    """Parse ``-k`` and ``-d``; the estimator says what they may be."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(words)
    return words


def name_device(name: str) -> None:
    """Select the JAX platform; JAX must not be imported yet."""
    if name in ("cpu", "gpu"):
        os.environ["JAX_PLATFORMS"] = "cuda" if name == "gpu" else name
    elif name != "auto":
        raise fail(f"--device {name}: choose auto, cpu or gpu.")


def check_device(name: str) -> None:
    """Exit if a GPU is asked for and there is none; it starts JAX: join a job before."""
    if name == "gpu":
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError):  # depends on JAX's version
            raise fail(
                "--device gpu: JAX finds no GPU; run pip install 'sgpmic[cuda]' on a machine that "
                "has one, or use --device cpu."
            ) from None
