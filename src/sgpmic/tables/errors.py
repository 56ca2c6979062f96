"""Errors for tables that cannot be read or used, formatting of their messages, and checks."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgpmic.storage.model_file import free_memory

#: Maximum number of columns; the names of more would exhaust memory.
MOST_COLUMNS = 1_000_000
_LONGEST_QUOTE = 40
_LONGEST_REASON = 120
_MOST_NAMES = 12
# Columns listed in one error, to keep it readable.
MOST_WRONG = 20


class TableError(ValueError):
    """A table cannot be read or used; the message names the location and the remedy.

    ``columns`` are those that caused it; leaving them out would avoid the error.
    """

    def __init__(self, message: str, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)


def unreadable(path: str, error: OSError) -> TableError:
    """Return the error for an OSError on reading a file."""
    why = error.strerror or error
    return TableError(f"{path} cannot be read ({why}); check its permissions and the disk")


def damaged(path: str, kind: str, reason: object) -> TableError:
    """Return the error for a file that does not match its apparent format."""
    line = shortened(" ".join(str(reason).split()) or type(reason).__name__, _LONGEST_REASON)
    return TableError(f"{path} is damaged or is not {kind} ({line}); copy or export it again")


def shortened(text: str, longest: int) -> str:
    """Truncate text, with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


@contextlib.contextmanager
def decoding(path: str, kind: str) -> Iterator[None]:
    """Convert any exception from a decoder to a `TableError`.

    Damaged bytes make decoders raise errors of many types, so all are caught: use this context only
    around calls to decoders, never around our own logic.
    """
    try:
        yield
    except TableError:
        raise
    except PermissionError as error:
        raise unreadable(path, error) from error
    except MemoryError as error:
        raise TableError(
            f"{path} does not fit into memory, or is damaged; use a larger machine, fewer rows, "
            "or export the table again"
        ) from error
    except Exception as error:
        raise damaged(path, kind, error) from error


def quote(text: str) -> str:
    """Quote text, truncated, with control characters escaped."""
    return repr(shortened(text, _LONGEST_QUOTE))


def list_names(names: Sequence[str]) -> str:
    """List quoted names, up to a dozen."""
    more = len(names) - _MOST_NAMES
    listed = ", ".join(quote(name) for name in names[:_MOST_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def check_names(path: str, names: Sequence[str], place: str = "") -> None:
    """Raise if two columns share a name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        first, second = [i + 1 for i, name in enumerate(names) if name == twice[0]][:2]
        raise TableError(
            f"{path}{place}: columns {first} and {second} are both named {quote(twice[0])}; give "
            "every column its own name"
        )


def check_count(path: str, count: int) -> None:
    """Raise if a file declares an implausible number of columns, before names are generated."""
    if count > MOST_COLUMNS:
        raise TableError(
            f"{path} has more than {MOST_COLUMNS} columns, too many for a table; check the "
            "delimiter, or whether rows and columns are swapped"
        )


def check_memory(where: str, n_bytes: int) -> None:
    """Raise if ``n_bytes``, a lower bound on the memory needed, exceeds what is free."""
    free = free_memory()
    if n_bytes > free:
        raise TableError(
            f"{where} needs at least {n_bytes / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} "
            "GiB are free; use fewer rows or columns, or a larger machine"
        )


@dataclass(eq=False)
class BadCells(Exception):
    """Cells that do not match the kind of their column: the first one, and their number."""

    row: int
    text: str
    n_cells: int = 1
    n_parsed: int = 0  # distinct cells that do match

    def __str__(self) -> str:
        more = f" and {self.n_cells - 1} more" if self.n_cells > 1 else ""
        return f"{quote(self.text)} (row {self.row + 1}{more}): correct or empty such cells"


def raise_wrong(wrong: Sequence[tuple[str, str]]) -> None:
    """Raise one error about all unusable columns, if there are any."""
    if wrong:
        listed = [f"{quote(name)} {what}" for name, what in wrong[:MOST_WRONG]]
        listed += [f"and {len(wrong) - MOST_WRONG} more"] * (len(wrong) > MOST_WRONG)
        many = f"{len(wrong)} columns cannot be used: {'; '.join(listed)}"
        words = f"column {listed[0]}" if len(wrong) == 1 else many
        raise TableError(words, [name for name, _ in wrong])
