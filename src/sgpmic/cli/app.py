"""The ``sgpmic`` command-line application."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

import sgpmic
from sgpmic.cli.fit import demo, fit
from sgpmic.cli.options import console
from sgpmic.cli.predict import predict
from sgpmic.cli.report import info, report


class _PlainFlags:
    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with flags (including ``--help``) shown without a type."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, cls=_Group)
for command in (demo, fit, predict, report, info):
    app.command(cls=_Command)(command)


def _show_version(value: bool) -> None:
    if value:
        console.print(f"sgpmic {sgpmic.__version__}")
        raise typer.Exit


_version = Option(
    "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
)


@app.callback()
def options(version: Annotated[bool, _version] = False) -> None:
    """Clustering and non-linear dimensionality reduction, learned together."""
