"""The terminal: one console for words, one for errors, and how a command gives up."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape

console = Console(highlight=False)


def fail(sentence: str, code: int = 2) -> typer.Exit:
    """Say what went wrong in one sentence; raise what this returns."""
    Console(stderr=True, highlight=False).print(f"[bold red]sgpmic:[/] {escape(sentence)}")
    return typer.Exit(code)


def listed(values: list[str] | None) -> list[str]:
    """Take options given several times and options with commas alike."""
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
