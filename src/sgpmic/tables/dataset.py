"""Datasets for the command line: column selection, type inference, and encoding of table files.

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
from sgpmic.tables.columns import Column, NumberEncoding, YesNoEncoding, naming_column, used_names
from sgpmic.tables.conversions import column_words, range_words, with_plain_numbers
from sgpmic.tables.errors import TableError, check_memory, list_names
from sgpmic.tables.reader import Block, Table, TableReader, open_table

# Encoders import scikit-learn, which takes more than a second: imported inside functions.
if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

#: Number of rows that the encoder of a large table is fitted to.
SAMPLE_ROWS = 20_000

_BLOCK_ROWS = 16_384


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
        # All rows, if they are few: unconverted, and with plain numbers converted.
        self._whole: tuple[pa.Table, pa.Table] | None = None

    def fit_columns(self) -> str:
        """Fit the encoder, and choose the id column; return both as JSON, for all processes."""
        from sgpmic.tables.encoder import TableEncoder

        labels = [] if self._options.label is None else [self._options.label]
        names = [*self._features, *self._ids[:1], *labels]
        table, is_whole = self._reader.sample(names, SAMPLE_ROWS)
        words = [name for name, kind in self._kinds.items() if kind not in ("number", "log")]
        typed = with_plain_numbers(table.select(self._features), words)
        if is_whole:
            self._whole = table, typed
        encoder = TableEncoder(kinds=self._kinds)
        try:
            encoder.fit(typed)
        except ValueError as error:
            columns: Sequence[str] = getattr(error, "columns", ())
            listed, remedy = shlex.quote(",".join(columns)), ""
            if len(columns) == 1:
                kind = self._kinds.get(columns[0])
                if isinstance(kind, tuple) or kind == "ordered":
                    remedy = f" (--ordered {shlex.quote(columns[0] + '=low<high')})"
                elif kind is None and "another kind" in str(error):
                    remedy = f" (--category {listed})"
                remedy += f", or leave it out (--drop {listed})"
            elif columns:
                remedy = f" (--category, --number, …), or leave them out (--drop {listed})"
            raise TableError(f"{self._reader.path}: {error}{remedy}") from None
        if self._ids:
            id_column: str | None = self._ids[0]
        else:
            words = [column.name for column in encoder.columns_ if column.kind in ("id", "text")]
            id_column = naming_column({name: column_words(table.column(name)) for name in words})
        return json.dumps([encoder.to_dict(), id_column, None if is_whole else len(table)])

    def read(self, fitted: str, share: tuple[int, int] = (0, 1)) -> Table:
        """Read and encode the rows; ``share`` is (index, number) of equal parts of them."""
        from sgpmic.tables.encoder import TableEncoder

        state, id_column, judged_by = json.loads(fitted)
        encoder, label = TableEncoder.from_dict(state), self._options.label
        reader, used = self._reader.share(*share), used_names(encoder.columns_)
        texts = [name for name in (id_column, label) if name is not None]
        as_is = [None, YesNoEncoding(), NumberEncoding("."), NumberEncoding(",")]
        is_plain = all(one in as_is for one in encoder.encodings_)
        notes: list[str] = []
        if self._whole is not None and share == (0, 1):
            (whole, plain), words = self._whole, set(_words(encoder))
            found = [(whole if name in words else plain).column(name) for name in used]
            typed = pa.table(found, names=used)
            # Only the encoder can parse numbers in other notations again.
            is_plain = is_plain and not any(map(pa.types.is_string, typed.schema.types))
            values = _encode(encoder, typed, reader.path, notes)
            block = Block(values, [column_words(whole.column(name)) for name in texts])
        else:
            blocks: list[Block] = []
            if is_plain:
                try:
                    blocks = [*read_blocks(reader, None, used, texts, notes, None)]
                except TableError:
                    is_plain = False  # the encoder parses other cells, or reports them
            blocks = blocks or [*read_blocks(reader, encoder, used, texts, notes, None)]
            block = Block.join(blocks)
        columns = encoder.columns_
        if judged_by is not None and share == (0, 1):
            columns = _measured(encoder, block.values)
        return replace(
            Table.of(block, used, id_column, label),
            columns=self._listing(columns, id_column),
            judged_by=judged_by,
            encoder=None if is_plain else encoder,
            notes=tuple(dict.fromkeys(notes)),
            first_row=share[0] * (self._reader.n_rows or 0) // share[1],
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
    reader, features, names = open_table(path), known["features"], (known["id"], known["label"])
    texts = [name for name in names if name is not None]
    reader.require([*features, *texts])
    block = Block.join([*read_blocks(reader, encoder, features, texts, [], None)])
    return without_empty_rows(Table.of(block, features, *names))


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
    table = pa.concat_tables(open_table(path).raw_blocks(names, _BLOCK_ROWS))
    return {name: column_words(table.column(name)) for name in names}


def read_blocks(
    reader: TableReader,
    encoder: TableEncoder | None,
    features: Sequence[str],
    texts: Sequence[str],
    notes: list[str],
    block_rows: int | None = _BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield rows in blocks: ``features`` as numbers, and ``texts``, of any type, as text.

    ``encoder`` is fitted, or None if the cells are plain numbers. Features that are absent from the
    table are taken as missing. Warnings about cells are appended to ``notes``. If ``block_rows`` is
    None, plain numbers are yielded as one block, others in blocks of any size.
    """
    known = set(reader.names)
    present = [name for name in features if name in known]
    if encoder is None:
        for block in reader.blocks(present, texts, block_rows):
            if len(present) < len(features):
                values = np.full((len(block), len(features)), np.nan)
                values[:, [name in known for name in features]] = block.values
                block = Block(values, block.texts)
            yield block
        return
    if block_rows is None and reader.n_rows is not None:
        check_memory(reader.path, 8 * len(encoder.source_) * reader.n_rows)
    names = list(dict.fromkeys([*present, *texts]))
    words = _words(encoder)
    for table in reader.raw_blocks(names, block_rows or _BLOCK_ROWS):
        typed = with_plain_numbers(table.select(present), words)
        values = _encode(encoder, typed, reader.path, notes)
        yield Block(values, [column_words(table.column(name)) for name in texts])


def _words(encoder: TableEncoder) -> list[str]:
    """Return the names of the columns that are not parsed as numbers."""
    pairs = zip(encoder.columns_, encoder.encodings_, strict=True)
    return [c.name for c, one in pairs if not isinstance(one, NumberEncoding | YesNoEncoding)]


def _encode(encoder: TableEncoder, columns: pa.Table, path: str, notes: list[str]) -> Floats:
    """Encode columns as features; append warnings about their cells to ``notes``."""
    with collected_warnings() as said:
        try:
            values = encoder.transform(columns)
        except TableError as error:
            raise TableError(f"{path}: {error}") from None
    # Callers already know which columns are absent.
    notes += [str(w.message) for w in said if "has no column" not in str(w.message)]
    return values


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
