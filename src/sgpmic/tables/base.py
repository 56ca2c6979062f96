"""What the readers of all table formats share: rows in blocks, and their checks."""

from __future__ import annotations

import copy
import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sgpmic._types import Floats
from sgpmic.storage.model_file import free_memory
from sgpmic.tables.cell_text import parse_plain_number
from sgpmic.tables.conversions import column_words, to_numbers, unsupported
from sgpmic.tables.errors import (
    TableError,
    decoding,
    infinite,
    list_names,
    not_numbers,
    other_decimal,
    quote,
)

_P = TypeVar("_P")

#: More columns than a table has: their names alone would fill the memory.
MOST_COLUMNS = 1_000_000
_CELL_BYTES = 8


class Block(NamedTuple):
    """Consecutive rows: numbers of shape (n_rows, n_features), and a list for every text column."""

    values: Floats
    texts: list[list[str]]


class Piece(NamedTuple):
    """Consecutive rows as a format happens to deliver them."""

    batch: pa.RecordBatch
    place: Callable[[int], str]  # of a row in this piece: "line 7"


class TableReader(ABC):
    """A table in a file of any size, read in blocks.

    Nothing is held open between calls, and every call of `blocks` starts at the first row.
    """

    path: str  # as messages name it
    kind: str  # of file: "a Parquet file"
    names: tuple[str, ...]  # of the columns in the file
    rows: range | None = None  # those to read, where the file tells their number
    decimals = "."  # the decimal signs that numbers written as text may have

    @abstractmethod
    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield columns as the file has them, in pieces of whatever size suits the format."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where the file tells it without being read."""
        return None if self.rows is None else len(self.rows)

    def share(self, first: int, end: int) -> Self:
        """Return a reader of the rows from ``first`` up to ``end``, which reads no others."""
        if self.rows is None:
            # In a text file, rows cannot be found without reading all those before.
            raise TableError(
                f"{self.path}: several processes can share a Parquet file or an .npy file, of "
                "which each reads its own rows; convert the table"
            )
        other = copy.copy(self)
        other.rows = self.rows[first:end]
        return other

    def raw_blocks(self, names: Sequence[str], block_rows: int | None = None) -> Iterator[pa.Table]:
        """Yield columns as the file has them: text files as text, other formats with their types.

        A block has ``block_rows`` rows, the last one the rest; or, if None, all rows. A
        `TableError` says that there is no row, or that the file is damaged.
        """
        self.require(names)
        sized = ((piece.batch, len(piece.batch)) for piece in self.pieces(names))
        parts = self._in_blocks(sized, len(names), block_rows, lambda b, i, j: b.slice(i, j - i))
        yield from map(pa.Table.from_batches, parts)

    def blocks(
        self, features: Sequence[str], texts: Sequence[str] = (), block_rows: int | None = None
    ) -> Iterator[Block]:
        """Yield the columns ``features`` as numbers and ``texts``, of any type, as text.

        Blocks and errors are those of `raw_blocks`; a value that is infinite or not a number is an
        error as well.
        """

        def cut(block: Block, i: int, j: int) -> Block:
            return Block(block.values[i:j], [column[i:j] for column in block.texts])

        if not features:
            raise TableError(f"{self.path}: no feature column is left; keep at least one column")
        self.require([*features, *texts])
        sized = ((part, len(part.values)) for part in self._converted(features, texts))
        yield from map(join_blocks, self._in_blocks(sized, len(features), block_rows, cut))

    def _in_blocks(
        self,
        pieces: Iterable[tuple[_P, int]],
        n_columns: int,
        block_rows: int | None,
        cut: Callable[[_P, int, int], _P],
    ) -> Iterator[list[_P]]:
        """Yield the parts of every block, of pieces and their numbers of rows; there must be rows.

        ``cut`` returns the rows of a piece from one number to another. Rows that would not fit into
        memory are refused: at once, or, if the file does not tell their number, in time.
        """
        held: list[_P] = []
        n_held = n_all = 0
        if block_rows is None and self.n_rows is not None:
            check_memory(self.path, _CELL_BYTES * n_columns * self.n_rows)
        for piece, n_rows in pieces:
            if self.n_rows is None:
                check_memory(self.path, _CELL_BYTES * n_columns * (n_held + n_rows))
            n_all += n_rows
            done = 0
            while done < n_rows:
                end = n_rows if block_rows is None else min(done + block_rows - n_held, n_rows)
                held.append(cut(piece, done, end))
                n_held += end - done
                done = end
                if n_held == block_rows:
                    yield held
                    held, n_held = [], 0
        if held:
            yield held
        if not n_all:
            raise TableError(f"{self.path} has columns but no rows; add at least one row of values")

    def _converted(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Block]:
        """Yield every piece as numbers and text."""
        # The first number that is not whole decides between two decimal signs.
        decimal = self.decimals if len(self.decimals) == 1 else ""
        for batch, place in self.pieces(list(dict.fromkeys([*features, *texts]))):
            with decoding(self.path, self.kind):
                columns = {name: batch.column(name) for name in features}
                decimal = decimal or _find_decimal(columns.values())
                values = self._numbers(columns, place, decimal or ".")
                words = [column_words(batch.column(name)) for name in texts]
            yield Block(values, words)

    def _numbers(
        self, columns: Mapping[str, pa.Array], place: Callable[[int], str], decimal: str
    ) -> Floats:
        """Return columns as finite numbers or NaN; an error names all columns that have others."""
        reasons = {kind: unsupported(kind) for kind in {one.type for one in columns.values()}}
        if wrong := [name for name, column in columns.items() if reasons[column.type]]:
            others = f" (nor are {list_names(wrong[1:])} numbers)" if wrong[1:] else ""
            reason = f"{reasons[columns[wrong[0]].type]}{others}"
            raise TableError(f"{self.path}, column {quote(wrong[0])}: {reason}", wrong)
        values, bad = to_numbers(columns, decimal)
        if bad:
            first = min(bad, key=lambda name: bad[name].row)
            where, text = f"{self.path}, {place(bad[first].row)}", bad[first].text
            other = self.decimals.replace(decimal, "")
            if other and parse_plain_number(text, other) is not None:
                raise other_decimal(where, first, text, decimal)
            raise not_numbers(where, text, list(dict.fromkeys([first, *bad])))
        is_infinite = np.isinf(values)
        if is_infinite.any():
            names = np.asarray([*columns], object)
            row, j = np.argwhere(is_infinite)[0]
            found = dict.fromkeys([names[j], *names[is_infinite.any(axis=0)]])
            raise infinite(f"{self.path}, {place(int(row))}", list(found))
        return values

    def require(self, columns: Sequence[str]) -> None:
        """Raise if the table lacks some columns, naming those that may have been meant."""
        known = set(self.names)
        missing = [name for name in columns if name not in known]
        if not missing:
            return
        by_lower = {name.casefold(): name for name in self.names}
        close = difflib.get_close_matches(missing[0].casefold(), by_lower, n=3, cutoff=0.7)
        if len(missing) > 1 or not close:
            advice = f"its columns are {list_names(self.names)}"
        else:
            advice = f"did you mean {' or '.join(quote(by_lower[match]) for match in close)}?"
        plural = "s" if len(missing) > 1 else ""
        raise TableError(f"{self.path} has no column{plural} {list_names(missing)}; {advice}")


def _find_decimal(columns: Collection[pa.Array]) -> str:
    """Return the decimal sign of the numbers in columns of text, "" if all are whole."""
    # Where both occur, the commas are complained about: points are the usual sign.
    for sign in ".,":
        for column in columns:
            cells = column.filter(pc.match_substring(column, sign)).to_pylist()
            if any(parse_plain_number(text, sign) is not None for text in cells):
                return sign
    return ""


def join_blocks(parts: list[Block]) -> Block:
    """Return several parts as one, with an array of its own.

    The list is emptied on the way, so that memory never holds everything twice. It does
    not hold pieces: these keep the file's text, to tell places.
    """
    values = np.empty((sum(len(part.values) for part in parts), parts[0].values.shape[1]))
    texts: list[list[list[str]]] = [[] for _ in parts[0].texts]
    end = len(values)
    while parts:
        part = parts.pop()
        values[end - len(part.values) : end] = part.values
        end -= len(part.values)
        for column, more in zip(texts, part.texts, strict=True):
            column.append(more)
    return Block(values, [[text for part in reversed(column) for text in part] for column in texts])


def check_unique(path: str, names: Sequence[str], place: str = "") -> None:
    """Raise if two columns share a name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        positions = [str(i + 1) for i, name in enumerate(names) if name == twice[0]]
        others = f" (also shared: {list_names(twice[1:])})" if twice[1:] else ""
        raise TableError(
            f"{path}{place}: columns {' and '.join(positions[:2])} are both named "
            f"{quote(twice[0])}{others}; give every column its own name"
        )


def check_count(path: str, count: int) -> None:
    """Raise where a file says that it has more columns than any table, before they are named."""
    if count > MOST_COLUMNS:
        raise TableError(
            f"{path} has more than {MOST_COLUMNS} columns, which no table has; check what "
            "separates its values, or that rows and columns are not exchanged"
        )


def check_memory(where: str, n_bytes: int) -> None:
    """Raise where so many bytes, at least, do not fit into the memory that is free."""
    free = free_memory()
    if n_bytes > free:
        raise TableError(
            f"{where} needs at least {n_bytes / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} "
            "GiB are free; use fewer rows or columns, or a larger machine"
        )
