"""The ``sgpmic`` command-line application."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

import sgpmic
from sgpmic.cli.fit import demo, fit
from sgpmic.cli.options import console
from sgpmic.cli.predict import predict
from sgpmic.cli.report import info, report

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for command in (demo, fit, predict, report, info):
    app.command()(command)


def _show_version(value: bool) -> None:
    if value:
        console.print(f"sgpmic {sgpmic.__version__}")
        raise typer.Exit


_version = Option(
    "--version",
    metavar="",
    callback=_show_version,
    is_eager=True,
    help="Show the version and exit.",
)


@app.callback()
def options(version: Annotated[bool, _version] = False) -> None:
    """Clustering and non-linear dimensionality reduction, learned together."""
