"""Tables of numbers from files: column selection, type inference, and encoding.

A file is opened once, and its encoder is fitted once. Tables of up to `SAMPLE_ROWS` rows are held
in memory and fitted as a whole. For larger ones, the encoder is fitted to rows sampled from across
the file, and the rows are then read in blocks, so that they are never held as text.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sgpmic._types import Bools, Floats
from sgpmic.exceptions import collected_warnings
from sgpmic.tables.cell_text import find_decimal
from sgpmic.tables.columns import Column, NumberEncoding, YesNoEncoding, naming_column, used_names
from sgpmic.tables.conversions import cells_of, column_words, range_words, with_plain_numbers
from sgpmic.tables.errors import BadCells, TableError, check_memory, list_names, raise_wrong
from sgpmic.tables.kinds import read_label
from sgpmic.tables.reader import TableReader, open_table
from sgpmic.tables.typed_files import open_columns

# Encoders import scikit-learn, which takes more than a second: imported inside functions.
if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

#: Number of rows that the encoder of a large table is fitted to.
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Block:
    """Consecutive rows: numbers of shape (n_rows, n_features), and one list per text column."""

    values: Floats
    texts: list[list[str]]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Table:
    """A table of numbers in memory; the fields from ``columns`` on are those of `Dataset.read`."""

    values: Floats  # (n_rows, n_features) in C order: finite, or NaN where missing
    names: tuple[str, ...]  # of the features, or of the columns that they encode
    ids: list[str] | None = None  # the id column as text
    id_name: str | None = None
    labels: list[str] | None = None  # the label column as text; empty where missing
    label_name: str | None = None
    columns: Sequence[dict[str, Any]] = ()  # all of the file: sgpmic.tables.columns.Column
    judged_by: int | None = None  # number of rows that the encoder was fitted to, None for all
    encoder: TableEncoder | None = None  # None if values are the numbers in the file
    notes: tuple[str, ...] = ()  # warnings about cells
    first_row: int = 0  # number of rows in the file before these


@dataclass(frozen=True)
class ColumnOptions:
    """The user's options for columns: lists as given, possibly comma-separated, or None."""

    columns: list[str] | None = None  # the features, if not all
    drop: list[str] | None = None
    ids: list[str] | None = None  # id columns; the first is written beside the labels
    label: str | None = None
    number: list[str] | None = None
    category: list[str] | None = None
    ordered: list[str] | None = None  # optionally with the order: size=small<medium<large
    date: list[str] | None = None
    log: list[str] | None = None  # columns to log-transform


class Dataset:
    """A table in a file, with the user's options for its columns."""

    def __init__(self, path: Path | str, options: ColumnOptions | None = None) -> None:
        self._options = options = ColumnOptions() if options is None else options
        self._reader = reader = open_table(path)
        self._ids, drop = _split(options.ids, reader), _split(options.drop, reader)
        columns = _split(options.columns, reader)
        self._others = dict.fromkeys(drop, ("dropped", "dropped"))
        self._others |= dict.fromkeys(self._ids, ("id", "names the rows"))
        if options.label is not None:
            self._others[options.label] = ("label", "compared with the clusters")
        self._kinds, clashes = _declared_kinds(options, reader, unused=self._others)
        clashes += [name for name in columns if name in self._others]
        clashes += set(self._ids[:1]) & {options.label}
        reader.require([*self._kinds, *self._others])
        if clashes:
            listed = list_names(sorted(set(clashes)))
            raise TableError(f"{reader.path}: conflicting options for {listed}; choose one")
        self._features = reader.choose_features(columns, self._others)
        missing = [name for name in self._kinds if name not in self._features]
        if missing:
            raise TableError(f"{reader.path}: --columns leaves out {list_names(missing)}; add them")

    def fit_columns(self) -> str:
        """Fit the encoder, and choose the id column; return both as JSON, for all processes."""
        from sgpmic.tables.encoder import TableEncoder

        reader = self._reader
        labels = [] if self._options.label is None else [self._options.label]
        names = [*self._features, *self._ids[:1], *labels]
        table, is_whole = reader.sample(names, SAMPLE_ROWS)
        if is_whole:  # read only once
            source = open_columns(reader.path, reader.kind, table)
            self._reader = replace(reader, batches=source.batches, rows=source.rows)
        words = [name for name, kind in self._kinds.items() if kind not in ("number", "log")]
        typed = with_plain_numbers(table.select(self._features), words)
        encoder = TableEncoder(kinds=self._kinds)
        try:
            encoder.fit(typed)
        except ValueError as error:
            remedy = ""
            if columns := getattr(error, "columns", ()):
                listed = shlex.quote(",".join(columns))
                remedy = f" (--category, --number, …), or leave it out (--drop {listed})"
            raise TableError(f"{reader.path}: {error}{remedy}") from None
        if self._ids:
            id_column: str | None = self._ids[0]
        else:
            words = [column.name for column in encoder.columns_ if column.kind in ("id", "text")]
            id_column = naming_column({name: column_words(table.column(name)) for name in words})
        as_is = (None, YesNoEncoding(), NumberEncoding())
        used = typed.select(used_names(encoder.columns_))
        is_plain = all(one in as_is for one in encoder.encodings_)
        is_plain = is_plain and not any(map(pa.types.is_string, used.schema.types))
        judged_by = None if is_whole else len(table)
        return json.dumps([encoder.to_dict(), id_column, judged_by, is_plain])

    def read(self, fitted: str, share: tuple[int, int] = (0, 1)) -> Table:
        """Read and encode the rows; ``share`` is (index, number) of equal parts of them."""
        from sgpmic.tables.encoder import TableEncoder

        state, id_column, judged_by, is_plain = json.loads(fitted)
        fit = TableEncoder.from_dict(state)
        encoder, used = None if is_plain else fit, used_names(fit.columns_)
        reader = self._reader.share(*share)
        table = read_whole(reader, encoder, used, id_column, self._options.label)
        columns = fit.columns_
        if judged_by is not None and share == (0, 1):
            columns = _measured(fit, table.values)
        return replace(
            table,
            columns=self._listing(columns, id_column),
            judged_by=judged_by,
            encoder=encoder,
            first_row=0 if reader.rows is None else reader.rows.start,
        )

    def _listing(self, columns: Sequence[Column], id_column: str | None) -> list[dict[str, Any]]:
        """Describe every column of the file and its encoding, for ``run.json``."""
        known = {column.name: dict(vars(column)) for column in columns}
        if id_column in known:
            known[id_column]["becomes"] += "; names the rows"
        for name, (kind, because) in self._others.items():
            column = Column(name, kind, "", 0, columns[0].n_rows, f"left out: {because}", None, ())
            known[name] = vars(column) | {"n_missing": None}  # unknown
        return [known[name] for name in self._reader.names if name in known]


def without_empty_rows(table: Table) -> tuple[Table, Bools]:
    """Drop rows in which all features are missing; also return the mask of these rows."""
    empty: Bools = np.asarray(np.isnan(table.values).all(axis=1))
    if not empty.any():
        return table, empty
    kept = np.flatnonzero(~empty)
    if not len(kept):
        raise TableError("no row has a value in any column that is used; fill in some")
    ids, labels = (words and [words[row] for row in kept] for words in (table.ids, table.labels))
    return replace(table, values=table.values[kept], ids=ids, labels=labels), empty


def reread(path: Path, known: dict[str, Any], encoder: TableEncoder | None) -> tuple[Table, Bools]:
    """Read the rows of a record's ``data`` without empty ones; also return the mask of these."""
    names = known["features"], known["id"], known["label"]
    return without_empty_rows(read_whole(open_table(path), encoder, *names))


def stored_encoder(path: str | os.PathLike[str], header: Mapping[str, Any]) -> TableEncoder | None:
    """Return the encoder in a model file's header, None if features are the numbers in a table."""
    if header["encoder"] is None:
        return None
    from sgpmic.storage.models import unreadable
    from sgpmic.tables.encoder import TableEncoder

    try:
        encoder = TableEncoder.from_dict(header["encoder"])
        if len(encoder.source_) != header["attributes"]["n_features_in_"]:
            raise ValueError("its table encoder has another number of features")
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(path, error) from error
    return encoder


def read_texts(path: str | Path, columns: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Read those of an encoded table's ``columns`` that are ids or text, including empty rows."""
    names = [column["name"] for column in columns if column["kind"] in ("id", "text")]
    if not names:
        return {}
    table = pa.concat_tables(open_table(path).blocks(names))
    return {name: column_words(table.column(name)) for name in names}


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] = (), share: tuple[int, int] = (0, 1)
) -> Table:
    """Read a table of numbers into memory.

    ``columns`` are the features, in the desired order; all if empty. ``share`` is the index, from
    0, of the part of the rows to read, and the number of equal parts they are divided into.

    Raises `TableError` if the file is not a table, a column does not exist, or a value is infinite
    or not a number.
    """
    reader = open_table(path)
    return read_whole(reader.share(*share), None, reader.choose_features(columns))


def read_whole(
    reader: TableReader,
    encoder: TableEncoder | None,
    features: Sequence[str],
    id_name: str | None = None,
    label_name: str | None = None,
) -> Table:
    """Read all rows as `read_blocks` does; raise if they do not fit into memory."""
    texts = [name for name in (id_name, label_name) if name is not None]
    reader.require([*features, *texts])
    n_features = len(features) if encoder is None else len(encoder.source_)
    check_memory(reader.path, 8 * n_features * (reader.n_rows or 0))
    notes: list[str] = []
    parts: list[Block] = []
    n_rows = 0
    for part in read_blocks(reader, encoder, features, texts, notes):
        parts.append(part)
        n_rows += len(part)
        if reader.n_rows is None:
            check_memory(reader.path, 8 * n_features * n_rows)
    columns = zip(*(part.texts for part in parts), strict=True)
    words = [[word for part in column for word in part] for column in columns]
    values = np.empty((n_rows, n_features))
    while parts:  # emptied along the way, so that memory never holds everything twice
        part = parts.pop()
        n_rows -= len(part)
        values[n_rows : n_rows + len(part)] = part.values
    ids = None if id_name is None else words[0]
    labels = None if label_name is None else read_label(words[-1])[0]
    said = tuple(dict.fromkeys(notes))
    return Table(values, tuple(features), ids, id_name, labels, label_name, notes=said)


def read_blocks(
    reader: TableReader,
    encoder: TableEncoder | None,
    features: Sequence[str],
    texts: Sequence[str],
    notes: list[str],
) -> Iterator[Block]:
    """Yield rows in blocks: ``features`` as numbers, and ``texts``, of any type, as text.

    ``encoder`` is fitted, or None if the cells are plain numbers. Features that are absent from the
    table are taken as missing. Warnings about cells are appended to ``notes``.
    """
    known = set(reader.names)
    present = [name for name in features if name in known]
    tables = reader.blocks(list(dict.fromkeys([*present, *texts])))
    first_row = 0 if reader.rows is None else reader.rows.start
    for table in tables:
        columns = with_plain_numbers(table.select(present), _words(encoder) if encoder else ())
        with collected_warnings() as said:
            try:
                if encoder is None:
                    values = _plain_numbers(columns, features, first_row)
                else:
                    values = encoder._transform(columns, first_row=first_row)
            except TableError as error:
                raise TableError(f"{reader.path}: {error}") from None
        # Callers already know which columns are absent.
        notes += [str(w.message) for w in said if "has no column" not in str(w.message)]
        yield Block(values, [column_words(table.column(name)) for name in texts])
        first_row += len(table)


def _plain_numbers(columns: pa.Table, features: Sequence[str], first_row: int) -> Floats:
    """Convert columns to numbers, NaN where missing; one error names all that are not numeric."""
    values, wrong = np.full((len(columns), len(features)), np.nan), []
    known = set(columns.column_names)
    for j, name in enumerate(features):
        if name in known:
            cells = cells_of(columns.column(name))
            number = NumberEncoding(decimal=find_decimal(cells.texts)[0])
            try:
                values[:, j] = number.read(cells)
            except BadCells as bad:
                bad.row += first_row
                wrong.append((name, f"is not numeric, it has {bad}"))
    raise_wrong(wrong)
    return values


def _words(encoder: TableEncoder) -> list[str]:
    """Return the names of the columns that are not parsed as numbers."""
    pairs = zip(encoder.columns_, encoder.encodings_, strict=True)
    return [c.name for c, one in pairs if not isinstance(one, NumberEncoding | YesNoEncoding)]


def _split(values: Sequence[str] | None, reader: TableReader) -> list[str]:
    """Split comma-separated column names; a name may itself contain commas."""
    found: list[str] = []
    for value in values or ():
        parts = [value] if value in reader.names else [part.strip() for part in value.split(",")]
        found += [part for part in parts if part]
    return found


def _declared_kinds(
    options: ColumnOptions, reader: TableReader, unused: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the kinds of columns that options name, and the columns with conflicting options."""
    kinds: dict[str, Any] = {}
    clashes = []
    for kind in ("number", "category", "ordered", "date", "log"):
        for name in _split(getattr(options, kind), reader):
            order: tuple[str, ...] = ()
            if kind == "ordered" and name not in reader.names:
                name, _, words = name.partition("=")
                order = tuple(word.strip() for word in words.split("<") if word.strip())
            is_logarithm = kind == "log" and kinds.get(name) == "number"
            if name in unused or (name in kinds and not is_logarithm):
                clashes.append(name)
            kinds[name] = (kind, order) if order else kind
    return kinds, clashes


def _measured(encoder: TableEncoder, values: Floats) -> list[Column]:
    """Update missing counts and ranges of columns from a sample to all rows."""
    columns = list(encoder.columns_)
    for j, encoding, features in encoder.features_by_column(values):
        n_missing = int(np.isnan(features).all(axis=1).sum())
        summary = columns[j].summary
        if columns[j].kind in ("number", "whole") and n_missing < len(values):
            cells = encoding.decode(features)
            summary = range_words(np.nanmin(cells), np.nanmax(cells))
        columns[j] = replace(columns[j], summary=summary, n_missing=n_missing, n_rows=len(values))
    return columns
