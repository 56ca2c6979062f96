"""From a file to the numbers that a fit takes: which columns, what each is, what becomes of it.

Who decides: up to `SAMPLE_ROWS` rows, all of them. Of a larger table of plain numbers some rows from
all over it, so that it is read once and never held as text; of other larger tables, again all rows.
Where several processes share a table the first one decides, by rows from all over the file, and tells
the others.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgpmic.tables.errors import TableError, list_names, quote
from sgpmic.tables.reader import (
    Table,
    TableReader,
    choose_features,
    open_table,
    read_columns,
    read_table,
    sample_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from sgpmic.cli.job import CommandJob
    from sgpmic.tables.encoder import TableEncoder

#: The number of rows that columns of large tables are judged by.
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Asked:
    """What a user says of columns: lists as they were given, also with commas.

    Attributes
    ----------
    columns, drop : list of str
        The features, if not all; columns to leave out.
    ids : list of str
        Columns that name the rows; the first one is written beside the labels.
    label : str or None
    number, category, ordered, date : list of str
        What columns are; an order may be added: ``size=small<medium<large``.
    log : list of str
        Columns to take the logarithms of.
    """

    columns: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    label: str | None = None
    number: list[str] = field(default_factory=list)
    category: list[str] = field(default_factory=list)
    ordered: list[str] = field(default_factory=list)
    date: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Choice:
    """What is asked for, in names of columns that are there."""

    features: list[str]
    id_column: str | None
    label_column: str | None
    kinds: dict[str, Any]
    log: list[str]
    #: Columns that are no features because the user says so, and what becomes of them.
    others: dict[str, str]

    @property
    def texts(self) -> list[str]:
        """The columns that are read as text."""
        return [name for name in (self.id_column, self.label_column) if name is not None]


@dataclass(frozen=True)
class EncodedTable(Table):
    """A table as it is fitted.

    Attributes
    ----------
    encoder : TableEncoder or None
        What made ``values`` of the columns; None where these are the numbers of the file.
    columns : list of dict
        Every column and what became of it (:class:`sgpmic.tables.encoder.Column`).
    notes : list of str
        What was strange about cells.
    judged_by : int or None
        The number of rows that columns were judged by, where it was not all.
    """

    encoder: TableEncoder | None
    columns: list[dict[str, Any]]
    notes: list[str]
    judged_by: int | None


def choose(reader: TableReader, asked: Asked) -> Choice:
    """Return which columns are asked for, and as what.

    Raises
    ------
    TableError
        Where columns are not there, or two things are asked of one.
    """
    ids = _split(asked.ids, reader)
    id_column = ids[0] if ids else None
    drop, columns = _split(asked.drop, reader), _split(asked.columns, reader)
    kinds: dict[str, Any] = {}
    clashes = []
    for kind in ("number", "category", "ordered", "date"):
        for name in _split(getattr(asked, kind), reader):
            order: tuple[str, ...] = ()
            if kind == "ordered" and name not in reader.names:
                name, _, words = name.partition("=")
                order = tuple(word.strip() for word in words.split("<") if word.strip())
            if name in kinds:
                clashes.append(name)
            kinds[name] = (kind, order) if order else kind
    log = _split(asked.log, reader)
    reader.require([*dict.fromkeys([*kinds, *log, *ids])])
    unused = {*drop, *ids, *([asked.label] if asked.label else [])}
    clashes += [name for name in (*kinds, *log) if name in unused]
    clashes += [name for name in log if kinds.get(name, "number") != "number"]
    if clashes:
        raise TableError(
            f"{reader.path}: two things are asked of {list_names(sorted(set(clashes)))}; choose one"
        )
    features = choose_features(reader, columns, [*drop, *ids[1:]], id_column, asked.label)
    missing = [name for name in (*kinds, *log) if name not in features]
    if missing:
        raise TableError(
            f"{reader.path}: {list_names(missing)} is not among --columns; add it, or say less of it"
        )
    others = {name: "left out: dropped" for name in drop} | {
        name: "left out: names the rows" for name in ids
    }
    if asked.label is not None:
        others[asked.label] = "left out: compared with the clusters"
    return Choice(features, id_column, asked.label, kinds, log, others)


def _split(values: Sequence[str], reader: TableReader) -> list[str]:
    """Return names of columns, given one by one or with commas; a name may have commas itself."""
    found: list[str] = []
    for value in values:
        parts = [value] if value in reader.names else [part.strip() for part in value.split(",")]
        found += [part for part in parts if part]
    return found


def read_for_fit(job: CommandJob, path: Path, asked: Asked) -> EncodedTable:
    """Return this process's rows as they are fitted.

    Parameters
    ----------
    job : CommandJob
    path : Path
    asked : Asked
    """

    def look() -> tuple[TableReader, Choice, TableEncoder | None]:
        reader = open_table(path)
        choice = choose(reader, asked)
        return reader, choice, _judge(reader, choice, job.is_alone) if job.is_first else None

    reader, choice, encoder = job.do(look)
    if not job.is_alone:
        state = job.tell("" if encoder is None else json.dumps(encoder.to_dict()))
        from sgpmic.tables.encoder import TableEncoder

        encoder = TableEncoder.from_dict(json.loads(state))
    return job.do(lambda: _encode(job, reader, choice, encoder))


def _judge(reader: TableReader, choice: Choice, is_alone: bool) -> TableEncoder:
    """Return an encoder that was fitted to some rows, or to all if they are few."""
    head = next(reader.raw_blocks(choice.features, SAMPLE_ROWS))
    encoder = _fit_encoder(reader.path, head, choice)
    if is_alone or len(head) < SAMPLE_ROWS:
        return encoder
    # Whether a column numbers the rows is seen in rows that follow each other; everything else,
    # in rows from all over the file.
    spread = sample_columns(reader, choice.features, SAMPLE_ROWS)
    return _fit_encoder(reader.path, spread, _with_ids(choice, encoder))


def _with_ids(choice: Choice, encoder: TableEncoder) -> Choice:
    """Return what is asked for, and that columns are ids which an encoder took for such."""
    ids = {column.name: "id" for column in encoder.columns_ if column.kind == "id"}
    return replace(choice, kinds=ids | choice.kinds)


def _fit_encoder(path: str, table: pa.Table, choice: Choice) -> TableEncoder:
    """Return an encoder fitted to raw columns, or raise for all of those that are wrong."""
    from sgpmic.tables.encoder import TableEncoder
    from sgpmic.tables.encodings import NumberEncoding
    from sgpmic.tables.plain_numbers import with_plain_numbers

    words = [name for name, kind in choice.kinds.items() if kind != "number"]
    table = with_plain_numbers(table, words)
    encoder = TableEncoder(kinds=choice.kinds)
    try:
        encoder.fit(table)
        # Logarithms that the encoder takes by itself, less columns that are to stay as they are.
        taken = [
            column.name
            for column, encoding in zip(encoder.columns_, encoder.encodings_, strict=True)
            if isinstance(encoding, NumberEncoding) and encoding.shift is not None
        ]
        wanted = [name for name in taken if name not in choice.kinds] + choice.log
        if sorted(wanted) != sorted(taken):
            encoder = TableEncoder(kinds=choice.kinds, log=wanted).fit(table)
    except (TableError, ValueError) as error:
        raise TableError(f"{path}: {error}") from None
    return encoder


def _encode(
    job: CommandJob, reader: TableReader, choice: Choice, encoder: TableEncoder
) -> EncodedTable:
    """Return this process's rows, read as plain numbers where that is all they are."""
    path = reader.path
    selection = {
        "id_column": choice.id_column,
        "label_column": choice.label_column,
        "share": job.share,
    }
    if _is_plain(encoder):
        try:
            return _read_plain(job, reader, choice, encoder, selection)
        except TableError:
            pass  # cells that only the encoder can read, or nobody: it says which
    raw = read_columns(path, columns=choice.features, **selection)
    if job.is_alone and len(raw.columns) > SAMPLE_ROWS:
        encoder = _fit_encoder(path, raw.columns, choice)
    values, notes = encode_rows(encoder, raw.columns, path)
    listing = _listing(reader, choice, encoder)
    judged_by = None if job.is_alone else encoder.columns_[0].n_rows
    used = tuple(column.name for column in encoder.columns_ if column.features)
    return EncodedTable(
        values,
        used,
        raw.ids,
        raw.id_name,
        raw.labels,
        raw.label_name,
        encoder,
        listing,
        notes,
        judged_by,
    )


def encode_rows(encoder: TableEncoder, columns: pa.Table, path: str) -> tuple[Any, list[str]]:
    """Return rows as numbers, and what was strange about their cells."""
    from sgpmic.exceptions import SGPMICWarning
    from sgpmic.tables.encodings import NumberEncoding, YesNoEncoding
    from sgpmic.tables.plain_numbers import with_plain_numbers

    words = [
        column.name
        for column, encoding in zip(encoder.columns_, encoder.encodings_, strict=True)
        if not isinstance(encoding, NumberEncoding | YesNoEncoding)
    ]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            values = encoder.transform(with_plain_numbers(columns, words))
        except TableError as error:
            raise TableError(f"{path}: {error}") from None
    return values, [str(w.message) for w in said if issubclass(w.category, SGPMICWarning)]


def _is_plain(encoder: TableEncoder) -> bool:
    """Return whether encoded columns are the numbers of the file."""
    from sgpmic.tables.encodings import NumberEncoding, YesNoEncoding

    def is_plain(encoding: Any) -> bool:
        if isinstance(encoding, NumberEncoding):
            return not encoding.sentinels and encoding.shift is None and encoding.divisor == 1
        return isinstance(encoding, YesNoEncoding) and encoding.divisor == 1

    return all(is_plain(encoding) for encoding in encoder.encodings_ if encoding is not None)


def _read_plain(
    job: CommandJob,
    reader: TableReader,
    choice: Choice,
    encoder: TableEncoder,
    selection: dict[str, Any],
) -> EncodedTable:
    """Return rows of plain numbers, which no encoder is needed for."""
    used = [column.name for column in encoder.columns_ if column.features]
    judged_by = encoder.columns_[0].n_rows
    if not job.is_alone or judged_by < SAMPLE_ROWS:
        data = read_table(reader.path, columns=used, **selection)
        listing = _listing(reader, choice, encoder)
        return _plain_table(data, listing, None if job.is_alone else judged_by)
    # Columns that only seem to be constant or copies, of the first rows, are looked at again.
    numbers = [
        column.name
        for column in encoder.columns_
        if column.features or column.kind in ("constant", "copy", "empty")
    ]
    data = read_table(reader.path, columns=numbers, **selection)
    encoder = _judge_values(reader.path, data, _with_ids(choice, encoder))
    if not _is_plain(encoder):
        raise TableError("not plain after all")
    kept = [place for place, column in enumerate(encoder.columns_) if column.features]
    columns = _measured(encoder, data)
    if len(kept) < len(numbers):
        values = np.ascontiguousarray(data.values[:, kept])
        data = replace(data, values=values, names=tuple(numbers[place] for place in kept))
    known = {column["name"]: column for column in columns}
    listing = _listing(reader, choice, encoder, known)
    return _plain_table(data, listing, len(data.values) and SAMPLE_ROWS)
