"""The options of the commands, and how their words become values."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sgpmic.cli.console import fail

TablePath = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="CSV, TSV (also .gz), Parquet, Feather/Arrow, NPY, NPZ, JSON records or XLSX.",
    ),
]
Clusters = Annotated[
    str,
    typer.Option(
        "-k", "--clusters", metavar="NUMBER", help="Number of clusters, or auto to find it."
    ),
]
Dimensions = Annotated[
    str,
    typer.Option(
        "-d",
        "--dimensions",
        metavar="NUMBER",
        help="Latent dimensions, no more than columns; a share of variance (0.95); or auto.",
    ),
]
OutFolder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the results.")]
# Options that name columns may be given several times, or once with commas.
_Names = list[str] | None
_columns = partial(typer.Option, metavar="COLUMNS")
_column = partial(typer.Option, metavar="COLUMN")
_number = partial(typer.Option, metavar="NUMBER", min=1)
_word = partial(typer.Option, metavar="WORD")
Columns = Annotated[
    _Names, _columns("--columns", help="Features to use, with commas; all columns by default.")
]
Drop = Annotated[_Names, _columns("--drop", help="Columns to leave out, with commas.")]
IdColumns = Annotated[
    _Names, _column("--id", help="Column that names the rows; of several the first. Not fitted to.")
]
Number = Annotated[
    _Names, _columns("--number", help="Columns that are numbers, as they are, with commas.")
]
Category = Annotated[
    _Names, _columns("--category", help="Columns that are categories, also if they hold numbers.")
]
Ordered = Annotated[
    _Names,
    _columns(
        "--ordered", help="Columns with levels in an order; the order too: 'size=small<mid<large'."
    ),
]
Date = Annotated[_Names, _columns("--date", help="Columns that are dates or times, with commas.")]
Log = Annotated[
    _Names, _columns("--log", help="Columns of which the logarithm is taken, with commas.")
]
LabelColumn = Annotated[
    str | None,
    _column(
        "--label", help="Column with known groups: shown beside the clusters, never fitted to."
    ),
]
Scale = Annotated[
    str | None,
    _word(
        help="Divide every feature by its own standard deviation (each), all by one number (one), "
        "or none; auto is each unless many features look like one unit.",
    ),
]
Kernel = Annotated[str, _word(help="rbf, linear, matern32, matern52 or rational_quadratic.")]
Latent = Annotated[
    str,
    _word(
        help="Latent points as point estimates (point), or with their uncertainty (variational): "
        "slower, and clusters that the data do not ask for end empty.",
    ),
]
Inducing = Annotated[int, _number(help="Number of inducing points.")]
Committee = Annotated[
    bool,
    typer.Option(
        "--committee/--no-committee",
        help="Let different clusterings vote on every row first, or leave it to the model alone.",
    ),
]
Starts = Annotated[int, _number(max=10_000, help="Number of starts.")]
Rounds = Annotated[int | None, _number(help="Most rounds of EM; 20, or the paper's 2.")]
Batch = Annotated[int | None, typer.Option(hidden=True)]
AsPublished = Annotated[bool, typer.Option("--as-published", help="Every choice as in the paper.")]
Seed = Annotated[int, _number(min=0, help="Seed of everything random.")]
Device = Annotated[str, _word(help="cpu, gpu, or auto: a GPU where JAX finds one.")]
Processes = Annotated[
    int,
    _number(
        help="Processes to start on this machine, each with its share of a Parquet or .npy "
        "file; under srun or mpirun leave it out.",
    ),
]
CheckpointEvery = Annotated[int, _number(help="Rounds between two checkpoints.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was interrupted.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the results of an earlier run.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what to expect; fit nothing.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that sgpmic fit wrote.")]

#: The options of ``sgpmic fit`` that set parameters of the estimator.
OPTIONS = {
    "n_clusters": "--clusters",
    "n_components": "--dimensions",
    "kernel": "--kernel",
    "latent": "--latent",
    "n_inducing": "--inducing",
    "scale": "--scale",
    "max_iter": "--rounds",
    "start__n_init": "--starts",
    "start__kernel_scale='data'": "--as-published",
    "random_state": "--seed",
    "as_published": "--as-published",
}


def in_options(said: Exception | Warning | str) -> str:
    """Return a message of the estimator with options in place of parameters that have one."""
    from sgpmic.exceptions import Advice, InvalidParameterError

    if isinstance(said, InvalidParameterError):
        return OPTIONS.get(said.parameter, said.parameter) + said.problem
    message = said.args[0] if isinstance(said, Exception) and said.args else said
    if not isinstance(message, Advice):
        return str(said)
    options = []
    for parameter in message.parameters:
        name, _, value = parameter.partition("=")
        value = value.strip("'")
        if option := OPTIONS.get(parameter):
            options.append(option)
        elif option := OPTIONS.get(name):
            options.append(f"{option} {value}" if value else option)
    return f"{message.sentence} ({', '.join(options)})." if options else f"{message.sentence}."


def clusters(words: str) -> int | str:
    """Read ``-k``: a whole number, or auto."""
    if words == "auto":
        return words
    if not words.isdecimal() or int(words) < 1:
        raise fail(f"-k {words}: give a whole number of clusters (3), or auto.")
    return int(words)


def dimensions(words: str) -> int | float | str:
    """Read ``-d``: a whole number, a share of variance, or auto."""
    if words == "auto":
        return words
    if words.lstrip("-").isdecimal():
        return int(words)
    try:
        share = float(words)
    except ValueError:
        share = float("nan")
    if not 0.0 < share < 1.0:
        raise fail(
            f"-d {words}: give a whole number of dimensions (2), a share of variance (0.95), "
            "or auto."
        )
    return share


def choose_device(name: str) -> None:
    """Tell JAX, which must not be imported yet, where to compute; check that it can."""
    name_device(name)
    check_device(name)


def name_device(name: str) -> None:
    """Tell JAX, which must not be imported yet, where to compute."""
    platforms = {"auto": None, "cpu": "cpu", "gpu": "cuda"}
    if name not in platforms:
        raise fail(f"--device {name}: choose auto, cpu or gpu.")
    if platforms[name] is not None:
        os.environ["JAX_PLATFORMS"] = str(platforms[name])


def check_device(name: str) -> None:
    """End the command if a GPU is asked for and there is none.

    This starts JAX, which a process of a job must not do before it has joined the others.
    """
    if name == "gpu":
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError):  # which of them depends on JAX's version
            raise fail(
                "--device gpu: JAX finds no GPU; run pip install 'sgpmic[cuda]' on a machine that "
                "has one, or use --device cpu."
            ) from None
