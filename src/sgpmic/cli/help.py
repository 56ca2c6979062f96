"""Help without names of Python's types: an option that takes no value shows none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _plainly(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class PlainCommand(TyperCommand):
    """A command whose flags, also ``--help``, are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a word for their value."""
        return _plainly(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a word for their value."""
        return _plainly(super().get_params(ctx))
