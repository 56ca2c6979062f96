"""Errors for tables that cannot be read or used, and how they quote cells and names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

_LONGEST_QUOTE = 40
_LONGEST_REASON = 120
_MOST_NAMES = 12
# So that one error stays readable.
MOST_WRONG = 20


class TableError(ValueError):
    """A table cannot be read or used; the text names the place and what to do.

    ``columns`` could be left out instead, because they hold no numbers.
    """

    def __init__(self, message: str, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)


def unreadable(path: str, error: OSError) -> TableError:
    """Return the error for a file that the operating system does not let us read."""
    if isinstance(error, PermissionError):
        return TableError(f"{path} may not be read; ask for permission or copy the file")
    return TableError(f"{path} cannot be read ({error.strerror or error}); check the disk")


def damaged(path: str, kind: str, reason: object) -> TableError:
    """Return the error for a file that is not what its name or first bytes say."""
    line = shortened(" ".join(str(reason).split()) or type(reason).__name__, _LONGEST_REASON)
    return TableError(
        f"{path} is damaged or is not {kind} ({line}); copy it or export the table again"
    )


def shortened(text: str, longest: int) -> str:
    """Return text that ends with … where it is cut off."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


@contextlib.contextmanager
def decoding(path: str, kind: str) -> Iterator[None]:
    """Turn whatever a decoder raises into one sentence.

    Damaged bytes make decoders raise errors of many types, so all of them are caught: put only
    calls of a decoder into this context, never our own reasoning.
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
    """Return text in quotes, shortened, and with control characters made visible."""
    return repr(shortened(text, _LONGEST_QUOTE))


def list_names(names: Sequence[str]) -> str:
    """Return names in quotes, the first dozen of them."""
    more = len(names) - _MOST_NAMES
    listed = ", ".join(quote(name) for name in names[:_MOST_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def raise_wrong(wrong: Sequence[tuple[str, str]]) -> None:
    """Raise one error about all columns that are wrong."""
    if not wrong:
        return
    if len(wrong) == 1:
        raise TableError(f"column {quote(wrong[0][0])} {wrong[0][1]}", [wrong[0][0]])
    listed = [f"{quote(name)} {what}" for name, what in wrong[:MOST_WRONG]]
    more = len(wrong) - MOST_WRONG
    if more > 0:
        listed.append(f"and {more} more")
    names = [name for name, _ in wrong]
    raise TableError(f"{len(wrong)} columns cannot be used: {'; '.join(listed)}", names)
