"""Options that several commands share, and how their words become values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sgpmic.cli.console import fail

Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", help="Features to use, with commas; all columns by default."),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", help="Columns to leave out, with commas.")
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Column that names the rows; not used in fitting.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label", help="Column with known groups: shown beside the clusters, never fitted to."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, gpu, or auto: a GPU where JAX finds one.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the results of an earlier run.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that sgpmic fit wrote.")]


def dimensions(words: str) -> int | float:
    """Read ``-d``: a whole number, or a share of variance."""
    try:
        return int(words)
    except ValueError:
        pass
    try:
        share = float(words)
    except ValueError:
        share = float("nan")
    if not 0.0 < share < 1.0:
        raise fail(
            f"-d {words}: give a whole number of dimensions (2), or a share of variance (0.95)."
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
        raise fail(f"--device {name}: there are auto, cpu and gpu.")
    if platforms[name] is not None:
        os.environ["JAX_PLATFORMS"] = str(platforms[name])


def check_device(name: str) -> None:
    """Stop where there is no GPU and one is asked for.

    This starts JAX, which a process of a job must not do before it has joined the others.
    """
    if name == "gpu":
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError):  # which of them depends on JAX's version
            raise fail(
                "--device gpu: JAX finds no GPU; install pip install 'sgpmic[cuda]' on a machine "
                "that has one, or use --device cpu."
            ) from None
