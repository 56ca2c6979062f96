"""Errors for tables that cannot be read or used, and how they quote cells and names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


# ------------------------------------------------------------------------------- bad cells


class BadCells(NamedTuple):
    """Cells that are not what their column is: the first one, and how many were found."""

    row: int
    text: str
    n_cells: int = 1


def not_numbers(where: str, text: str, names: Sequence[str]) -> TableError:
    """Return the error for a cell that is not a number, in the first of the columns that have one.

    ``where`` is the file and the line.
    """
    others = f" (nor is text in {list_names(names[1:])})" if names[1:] else ""
    cell = f"{where}, column {quote(names[0])}: {quote(text)}"
    return TableError(f"{cell} is not a number{others}; correct it", names)


def other_decimal(where: str, name: str, text: str, decimal: str) -> TableError:
    """Return the error for a number with another decimal sign than those before."""
    signs = ["decimal point", "decimal comma"][:: 1 if decimal == "." else -1]
    return TableError(
        f"{where}, column {quote(name)}: {quote(text)} has a {signs[1]}, but other numbers in the "
        f"file have a {signs[0]}; write all numbers the same way"
    )


def infinite(where: str, names: Sequence[str]) -> TableError:
    """Return the error for an infinite value in the first of the columns that have one."""
    others = f" (so are values of {list_names(names[1:])})" if names[1:] else ""
    return TableError(
        f"{where}, column {quote(names[0])}: the value is infinite or too large for a number"
        f"{others}; correct it or remove the row"
    )


def not_all(bad: BadCells, holds: str, word: str) -> str:
    """Return what is wrong with a column most of which is ``word``, such as "a number"."""
    others = f" and {bad.n_cells - 1} other cells are" if bad.n_cells > 1 else " is"
    others = " and another cell are" if bad.n_cells == 2 else others
    plural = f"{word.removeprefix('a ')}s" if word.startswith("a ") else word
    cells = "these cells" if bad.n_cells > 1 else "the cell"
    return (
        f"{holds}, but {quote(bad.text)} (row {bad.row + 1}){others} not "
        f"{plural if bad.n_cells > 1 else word}: correct or empty {cells}, or declare the "
        "column as another kind"
    )


def not_as_in_fit(bad: BadCells, kind: str) -> str:
    """Return what is wrong with new cells of a column that was fitted."""
    word = "yes or no" if kind == "yes_no" else f"a {kind}"
    more = f" and {bad.n_cells - 1} more" if bad.n_cells > 1 else ""
    return (
        f"was {word} in fit, but now has {quote(bad.text)} (row {bad.row + 1}{more}): correct or "
        "empty such cells"
    )


def raise_wrong(wrong: Sequence[tuple[str, str]]) -> None:
    """Raise one error about all columns that are wrong, if there are any."""
    names = [name for name, _ in wrong]
    if len(wrong) == 1:
        raise TableError(f"column {quote(names[0])} {wrong[0][1]}", names)
    if wrong:
        listed = [f"{quote(name)} {what}" for name, what in wrong[:MOST_WRONG]]
        listed += [f"and {len(wrong) - MOST_WRONG} more"] * (len(wrong) > MOST_WRONG)
        raise TableError(f"{len(wrong)} columns cannot be used: {'; '.join(listed)}", names)
