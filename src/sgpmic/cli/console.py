"""Console output and its streams, and error messages in one sentence."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

if TYPE_CHECKING:
    from sgpmic.storage.run_folder import RunFolder
    from sgpmic.tables.encoder import TableEncoder

#: What a terminal may take for a command, or for the end of a line, or writes from right to left.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class SafeConsole(Console):
    """A console for names and words from files: their control characters are made visible."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is shown; Rich's own commands to the terminal are segments of another kind."""
        for text, style, control in super().render(renderable, options):
            shown = text if control else _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
            yield Segment(shown, style, control)


console = SafeConsole(highlight=False)


def fail(sentence: str, code: int = 2) -> typer.Exit:
    """Say what went wrong in one sentence; raise what this returns."""
    SafeConsole(stderr=True, highlight=False).print(f"[bold red]sgpmic:[/] {escape(sentence)}")
    return typer.Exit(code)


def note(sentence: str) -> None:
    """Say what the user should know, though nothing went wrong."""
    console.print(f"[yellow]Note:[/] {escape(sentence)}")


@contextmanager
def one_sentence(path: Path, doing: str = "written") -> Iterator[None]:
    """End the command with one sentence where a file or folder is not as it should be.

    The disk's errors are about ``path``, which is written or read here.
    """
    from sgpmic.storage.model_file import ModelFileError
    from sgpmic.storage.run_folder import RunFolderError
    from sgpmic.tables.errors import TableError

    try:
        yield
    except (RunFolderError, TableError, ModelFileError) as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{path} cannot be {doing}: {error.strerror or error}.") from None


def check_match(folder: RunFolder, names: Iterable[Any], encoder: TableEncoder | None) -> None:
    """End the command unless the model of a run has the features that its record names."""
    from sgpmic.tables.columns import used_names

    found = [*map(str, names)] if encoder is None else used_names(encoder.columns_)
    if found != folder.read_record()["data"]["features"]:
        raise fail(
            f"{folder.results.model} and {folder.results.record} are not from one run; run sgpmic "
            "fit again."
        )


def prepare_process() -> None:
    """Suppress XLA's log messages, and ignore write errors of the output streams.

    Loading a compiled program makes XLA print errors about tuning flags that no processor has.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    screens: Any = sys
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is not None:
            setattr(screens, name, Screen(getattr(sys, name)))


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
        """Write what was held back."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Any, *text: str) -> None:
        try:
            action(*text)
        except OSError:
            # Python tries again at its end to write what is held back, and would complain.
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
