"""Help without names of Python's types: an option that takes no value shows none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


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
