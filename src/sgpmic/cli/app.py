"""The command line: words and options; the work is done by the layers below."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import sgpmic
from sgpmic.cli.console import console
from sgpmic.cli.fit import demo, fit
from sgpmic.cli.predict import predict
from sgpmic.cli.report import info, report


class _PlainFlags:
    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a word for their value."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class PlainCommand(_PlainFlags, TyperCommand):
    """A command whose flags, also ``--help``, are shown without a type."""


class PlainGroup(_PlainFlags, TyperGroup):
    """The same for a group of commands."""


app = typer.Typer(
    help="Clustering and non-linear dimensionality reduction, learned together.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    cls=PlainGroup,
)
for command in (demo, fit, predict, report, info):
    app.command(cls=PlainCommand)(command)


def _show_version(value: bool) -> None:
    if value:
        console.print(f"sgpmic {sgpmic.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Clustering and non-linear dimensionality reduction, learned together."""
