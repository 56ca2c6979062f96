"""The options of the commands, and how their words become values."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sgpmic.cli.console import fail

_number = partial(Option, metavar="NUMBER", min=1)
_word = partial(Option, metavar="WORD")
OutFolder = Annotated[Path, Option(metavar="FOLDER", help="Folder for the results.")]
Seed = Annotated[int, _number(min=0, help="Random seed.")]
Device = Annotated[str, _word(help="cpu, gpu, or auto: a GPU where JAX finds one.")]
Force = Annotated[bool, Option("--force", help="Replace the results of an earlier run.")]
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
Clusters = Annotated[
    str, Option("-k", "--clusters", metavar="NUMBER", help="Number of clusters, or auto.")
]
Dimensions = Annotated[
    str,
    Option(
        "-d",
        "--dimensions",
        metavar="NUMBER",
        help="Latent dimensions, at most as many as columns; a share of variance (0.95); or auto.",
    ),
]
Columns = Annotated[
    _Names, _columns("--columns", help="Features to use, separated by commas; all by default.")
]
Drop = Annotated[_Names, _columns("--drop", help="Columns to leave out.")]
IdColumns = Annotated[
    _Names, _column("--id", help="Column that names the rows; the first of several. Not a feature.")
]
LabelColumn = Annotated[
    str | None, _column("--label", help="Known groups to compare the clusters with; not a feature.")
]
Number = Annotated[_Names, _columns("--number", help="Columns to use as numbers, unchanged.")]
Category = Annotated[
    _Names, _columns("--category", help="Columns that are categories, even if they hold numbers.")
]
Ordered = Annotated[
    _Names, _columns("--ordered", help="Columns with ordered levels: size, or 'size=small<large'.")
]
Date = Annotated[_Names, _columns("--date", help="Columns that are dates or times.")]
Log = Annotated[_Names, _columns("--log", help="Columns to take the logarithm of.")]
Scale = Annotated[
    str | None,
    _word(
        help="Divide every feature by its own standard deviation (each), all by one number (one), "
        "or none; auto is each unless many features seem to have one unit."
    ),
]
Kernel = Annotated[str, _word(help="rbf, linear, matern32, matern52 or rational_quadratic.")]
Latent = Annotated[
    str,
    _word(
        help="Latent points as point estimates (point), or with their uncertainty (variational): "
        "slower, and surplus clusters end up empty."
    ),
]
Inducing = Annotated[int, _number(help="Number of inducing points.")]
Committee = Annotated[
    bool,
    Option("--committee/--no-committee", help="Let different methods vote on each row first."),
]
Starts = Annotated[int, _number(max=10_000, help="Number of starts.")]
Rounds = Annotated[int | None, _number(help="Maximum number of rounds; 20, or the paper's 2.")]
Batch = Annotated[int | None, Option(hidden=True)]
AsPublished = Annotated[bool, Option("--as-published", help="All settings as in the paper.")]
Processes = Annotated[
    int,
    _number(
        help="Processes to start on this machine, each with its share of a Parquet or .npy file; "
        "under srun or mpirun leave it out."
    ),
]
CheckpointEvery = Annotated[int, _number(help="Rounds between two checkpoints.")]
Resume = Annotated[bool, Option("--resume", help="Resume a run that was interrupted.")]
DryRun = Annotated[bool, Option("--dry-run", help="Estimate time and memory only.")]

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
    if words != "auto" and (not words.isdecimal() or int(words) < 1):
        raise fail(f"-k {words}: give a whole number of clusters (3), or auto.")
    return words if words == "auto" else int(words)


def dimensions(words: str) -> int | float | str:
    """Read ``-d``: a whole number, a share of variance, or auto."""
    if words == "auto":
        return words
    if words.lstrip("-").isdecimal():
        return int(words)
    with suppress(ValueError):
        if 0.0 < float(words) < 1.0:
            return float(words)
    raise fail(
        f"-d {words}: give a whole number of dimensions (2), a share of variance (0.95), or auto."
    )


def name_device(name: str) -> None:
    """Tell JAX, which must not be imported yet, where to compute."""
    platforms = {"auto": "", "cpu": "cpu", "gpu": "cuda"}
    if name not in platforms:
        raise fail(f"--device {name}: choose auto, cpu or gpu.")
    if name != "auto":
        os.environ["JAX_PLATFORMS"] = platforms[name]


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
