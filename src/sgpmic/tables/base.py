"""What the readers of all table formats share: the error, the blocks and their checks."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import stat
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Piece", "TableError", "TableReader"]

Floats = NDArray[np.float64]
#: Numbers of shape (n_rows, n_columns), and a list of n_rows texts for every text column.
Rows = tuple[Floats, list[list[str]]]

_LONGEST_QUOTE = 40
_MOST_NAMES = 12


class TableError(ValueError):
    """A table cannot be read or used; the text names the place and what to do."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a table.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        The numbers, finite, columns in the order asked for.
    ids : list of str or None
        The rows' names, if an id column was asked for.
    first_row : int
        The place of the first row in the table, counted from 0.
    """

    values: Floats
    ids: list[str] | None
    first_row: int


@dataclass(frozen=True)
class Piece:
    """Consecutive rows as a format happens to deliver them, not yet checked.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        The numbers; NaN where a value is missing.
    texts : list of list of str
        One list for every text column asked for.
    place : callable
        Turns the index of a row in this piece into words such as ``"line 7"``.
    """

    values: Floats
    texts: list[list[str]]
    place: Callable[[int], str]


class TableReader(ABC):
    """A table in a file of any size, read in blocks.

    Nothing is held open between calls, and every call of `blocks` starts at the first row.

    Attributes
    ----------
    path : str
        The file, as messages name it.
    names : tuple of str
        The columns in the file.
    n_rows : int or None
        The number of rows where the file tells it without being read.
    """

    path: str
    names: tuple[str, ...]
    n_rows: int | None = None

    def share(self, first: int, end: int) -> TableReader:
        """Return a reader of the rows from ``first`` up to ``end``, which reads no others.

        Raises
        ------
        TableError
            For a format whose rows cannot be found without reading all those before.
        """
        raise TableError(
            f"{self.path}: several processes can share a Parquet file or an .npy file, of which "
            "each reads its own rows; convert the table"
        )

    @abstractmethod
    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield all rows, unchecked, in pieces of whatever size suits the format."""

    def checked_pieces(self, features: Sequence[str], texts: Sequence[str] = ()) -> Iterator[Piece]:
        """Yield all rows, at least one, with finite numbers only.

        Parameters
        ----------
        features : sequence of str
            The columns to read as numbers.
        texts : sequence of str
            The columns to read as text.

        Raises
        ------
        TableError
            At the first value that is not a finite number, or if the file is damaged.
        """
        if not features:
            raise TableError(f"{self.path}: no feature column is left; keep at least one column")
        check_known(self.path, [*features, *texts], self.names)
        empty = True
        pieces = self.pieces(features, texts)
        for piece in pieces:
            if not np.isfinite(piece.values).all():
                raise self._not_finite(features, piece, pieces)
            empty = empty and not len(piece.values)
            yield piece
        if empty:
            raise TableError(f"{self.path} has columns but no rows; add at least one row of values")

    def blocks(
        self, columns: Sequence[str], id_column: str | None = None, block_rows: int = 65536
    ) -> Iterator[Block]:
        """Yield the table's rows in order, ``block_rows`` at a time (the last block has the rest).

        Parameters
        ----------
        columns : sequence of str
            The columns to read as numbers, in the order wanted.
        id_column : str, optional
            A column of any type to read as text.
        block_rows : int
            The number of rows of a block.

        Yields
        ------
        Block

        Raises
        ------
        TableError
            As soon as a value that is not a finite number, or damage, is met.
        """
        if block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
        texts = () if id_column is None else (id_column,)
        held: list[Rows] = []
        n_held = first_row = 0
        for piece in self.checked_pieces(columns, texts):
            held.append((piece.values, piece.texts))
            n_held += len(piece.values)
            if n_held < block_rows:
                continue
            values, words = join_rows(held)
            whole = n_held - n_held % block_rows
            for start in range(0, whole, block_rows):
                rows = slice(start, start + block_rows)
                # A copy, so that a block that is kept does not keep its neighbours.
                yield Block(
                    values[rows].copy(), words[0][rows] if words else None, first_row + start
                )
            held = [(values[whole:], [column[whole:] for column in words])]
            first_row += whole
            n_held -= whole
        if n_held:
            values, words = join_rows(held)
            yield Block(values, words[0] if words else None, first_row)

    def _not_finite(
        self, features: Sequence[str], piece: Piece, rest: Iterator[Piece]
    ) -> TableError:
        """Return the error for the first value that is missing or infinite."""
        row, column = np.argwhere(~np.isfinite(piece.values))[0]
        where = f"{self.path}, {piece.place(int(row))}, column {quote(features[column])}"
        if not np.isnan(piece.values[row, column]):
            return TableError(
                f"{where}: the value is infinite or too large for a number; correct it or "
                "remove the row"
            )
        count = int(np.isnan(piece.values).sum())
        least = ""
        try:
            count += sum(int(np.isnan(piece.values).sum()) for piece in rest)
        except TableError:
            least = "at least "  # something else is wrong further down: one thing at a time
        if count == 1 and not least:
            return TableError(f"{where}: the value is missing; fill it or remove the row")
        return TableError(
            f"{where}: the first of {least}{count} missing values; fill or remove them"
        )


def join_rows(parts: list[Rows]) -> Rows:
    """Return the numbers of several pieces as one array, and their text columns as one list each.

    The list is emptied on the way, so that memory never holds everything twice.  It is not one of
    pieces: these hold on to the file's text, to tell places.
    """
    values = np.empty((sum(len(values) for values, _ in parts), parts[0][0].shape[1]))
    texts: list[list[list[str]]] = [[] for _ in parts[0][1]]
    end = len(values)
    while parts:
        part, words = parts.pop()
        values[end - len(part) : end] = part
        end -= len(part)
        for column, more in zip(texts, words, strict=True):
            column.append(more)
    return values, [[text for part in reversed(column) for text in part] for column in texts]


# ------------------------------------------------------------------------------ the file


def first_bytes(path: str, count: int = 64) -> bytes:
    """Return how a file starts, after checking that it is there and can be read."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise TableError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise TableError(f"{path} is a folder; name a table in it")
    if not stat.S_ISREG(mode):
        # A pipe can be read once only, and opening one may wait for ever.
        raise TableError(f"{path} is not a regular file; save the table to a file first")
    try:
        with open(path, "rb") as file:
            start = file.read(count)
    except OSError as error:
        raise unreadable(path, error) from error
    if not start:
        raise TableError(f"{path} is empty; export the table again")
    return start


def unreadable(path: str, error: OSError) -> TableError:
    """Return the error for a file that the operating system does not let us read."""
    if isinstance(error, PermissionError):
        return TableError(f"{path} may not be read; ask for permission or copy the file")
    return TableError(f"{path} cannot be read ({error.strerror or error}); check the disk")


def damaged(path: str, kind: str, reason: object) -> TableError:
    """Return the error for a file that is not what its name or first bytes say."""
    words = " ".join(str(reason).split()) or type(reason).__name__
    short = words if len(words) <= 120 else words[:119] + "…"
    return TableError(
        f"{path} is damaged or is not {kind} ({short}); copy it or export the table again"
    )


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


# ------------------------------------------------------------------------------ names


def check_names(path: str, names: Sequence[str], place: str = "") -> None:
    """Raise if two columns share a name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        positions = [str(i + 1) for i, name in enumerate(names) if name == twice[0]]
        others = f" (also shared: {list_names(twice[1:])})" if twice[1:] else ""
        raise TableError(
            f"{path}{place}: columns {' and '.join(positions[:2])} are both named "
            f"{quote(twice[0])}{others}; give every column its own name"
        )


def check_known(path: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Raise if a column that is asked for does not exist, naming those it may have meant."""
    known = set(found)
    for name in wanted:
        if name not in known:
            raise TableError(f"{path} has no column {quote(name)}; {_suggestion(name, found)}")


def _suggestion(name: str, found: Sequence[str]) -> str:
    by_lower = {other.casefold(): other for other in found}
    close = difflib.get_close_matches(name.casefold(), by_lower, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(quote(by_lower[match]) for match in close)}?"
    return f"its columns are {list_names(found)}"


def quote(text: str) -> str:
    """Return text in quotes, shortened, and with control characters made visible."""
    return repr(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…")


def list_names(names: Sequence[str]) -> str:
    """Return names in quotes, the first dozen of them."""
    more = len(names) - _MOST_NAMES
    listed = ", ".join(quote(name) for name in names[:_MOST_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def drop_advice(name: str) -> str:
    """Return how to do without a column."""
    return f"use --drop {shlex.quote(name)} to leave the column out"
