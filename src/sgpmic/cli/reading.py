"""From a file to the numbers that a fit takes: which columns, what each is, what becomes of it.

Who decides: of a table of up to `SAMPLE_ROWS` rows, all of them. Of a larger table of plain numbers
some rows from all over it, so that it is never held as text; of other larger tables again all rows.
Where several processes share a table the first one decides, by rows from all over the file, and
tells the others.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sgpmic._types import Floats
from sgpmic.tables.base import TableReader
from sgpmic.tables.columns import Column, naming_column, used_names
from sgpmic.tables.conversions import with_plain_numbers
from sgpmic.tables.encodings import Encoding, NumberEncoding, YesNoEncoding
from sgpmic.tables.errors import TableError, list_names, quote
from sgpmic.tables.reader import (
    Table,
    choose_features,
    column_words,
    open_table,
    read_columns,
    read_table,
    sample_columns,
)

if TYPE_CHECKING:
    from sgpmic.cli.job import CommandJob
    from sgpmic.tables.encoder import TableEncoder

#: The number of rows that columns of large tables are judged by.
SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Asked:
    """What a user says of columns: lists as they were given, also with commas, or None."""

    columns: list[str] | None = None  # the features, if not all
    drop: list[str] | None = None
    ids: list[str] | None = None  # name the rows; the first one is written beside the labels
    label: str | None = None
    number: list[str] | None = None
    category: list[str] | None = None
    ordered: list[str] | None = None  # an order may be added: size=small<medium<large
    date: list[str] | None = None
    log: list[str] | None = None  # to take the logarithms of


@dataclass(frozen=True)
class Choice:
    """What is asked for, in names of columns that are there."""

    features: list[str]
    id_column: str | None
    label_column: str | None
    kinds: dict[str, Any]
    log: list[str]
    others: dict[str, tuple[str, str]]  # no features because the user says so: kind, and why


@dataclass(frozen=True)
class EncodedTable(Table):
    """A table as it is fitted."""

    columns: list[dict[str, Any]]  # all of the file: sgpmic.tables.columns.Column
    judged_by: int | None  # the number of rows that columns were judged by, where it was not all
    encoder: TableEncoder | None = None  # None where values are the numbers of the file
    notes: tuple[str, ...] = ()  # what was strange about cells

    @property
    def is_mixed(self) -> bool:
        """Whether an encoder has brought columns of different kinds to one unit."""
        return self.encoder is not None and self.encoder.has_categories_


def choose(reader: TableReader, asked: Asked) -> Choice:
    """Return which columns are asked for, and as what."""
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
    features = choose_features(reader, columns, id_column, asked.label, [*drop, *ids[1:]])
    missing = [name for name in (*kinds, *log) if name not in features]
    if missing:
        raise TableError(
            f"{reader.path}: --columns leaves out {list_names(missing)}, named by other options; "
            "add what is missing"
        )
    others = dict.fromkeys(drop, ("dropped", "dropped"))
    others |= dict.fromkeys(ids, ("id", "names the rows"))
    if asked.label is not None:
        others[asked.label] = ("label", "compared with the clusters")
    return Choice(features, id_column, asked.label, kinds, log, others)


def _split(values: Sequence[str] | None, reader: TableReader) -> list[str]:
    """Return names of columns, given one by one or with commas; a name may have commas itself."""
    found: list[str] = []
    for value in values or ():
        parts = [value] if value in reader.names else [part.strip() for part in value.split(",")]
        found += [part for part in parts if part]
    return found


def read_for_fit(job: CommandJob, path: Path, asked: Asked) -> EncodedTable:
    """Return this process's rows as they are fitted."""

    def look() -> tuple[TableReader, Choice, tuple[TableEncoder, str | None] | None]:
        reader = open_table(path)
        choice = choose(reader, asked)
        return reader, choice, _judge(reader, choice, job.is_alone) if job.is_first else None

    reader, choice, judged = job.do(look)
    if not job.is_alone:
        state = "" if judged is None else json.dumps([judged[0].to_dict(), judged[1]])
        from sgpmic.tables.encoder import TableEncoder

        stored, name = json.loads(job.tell(state))
        judged = TableEncoder.from_dict(stored), name
    assert judged is not None
    encoder, name_column = judged
    return job.do(lambda: _encode(job, reader, choice, encoder, name_column))


def _judge(reader: TableReader, choice: Choice, is_alone: bool) -> tuple[TableEncoder, str | None]:
    """Return an encoder that was fitted to some rows, or to all if they are few.

    And the column that names the rows, if there is one.
    """
    head = next(reader.raw_blocks(choice.features, SAMPLE_ROWS))
    encoder = _fit_encoder(reader.path, head, choice)
    name = _find_names(head, encoder) if choice.id_column is None else choice.id_column
    if is_alone or len(head) < SAMPLE_ROWS:
        return encoder, name
    # Whether a column numbers the rows is seen in rows that follow each other; everything else,
    # in rows from all over the file.
    spread = sample_columns(reader, choice.features, SAMPLE_ROWS)
    return _fit_encoder(reader.path, spread, _with_ids(choice, encoder)), name


def _find_names(table: pa.Table, encoder: TableEncoder) -> str | None:
    """Return the id or text that names rows, if there is one."""
    names = [column.name for column in encoder.columns_ if column.kind in ("id", "text")]
    return naming_column({name: column_words(table.column(name)) for name in names})


def _with_ids(choice: Choice, encoder: TableEncoder) -> Choice:
    """Return what is asked for, and that columns are ids which an encoder took for such."""
    ids = {column.name: "id" for column in encoder.columns_ if column.kind == "id"}
    return replace(choice, kinds=ids | choice.kinds)


def _fit_encoder(path: str, table: pa.Table, choice: Choice) -> TableEncoder:
    """Return an encoder fitted to raw columns, or raise for all of those that are wrong."""
    from sgpmic.tables.encoder import TableEncoder

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
    except ValueError as error:
        raise TableError(f"{path}: {error}{_remedy(error)}") from None
    return encoder


def _remedy(error: ValueError) -> str:
    """Return what to type, for columns that are wrong."""
    columns = error.columns if isinstance(error, TableError) else ()
    if not columns:
        return ""
    names = shlex.quote(",".join(columns))
    if len(columns) == 1:
        return f" (--category {names}), or leave it out (--drop {names})"
    return f"; on the command line: --category, --number, …, or leave them out with --drop {names}"


def _encode(
    job: CommandJob,
    reader: TableReader,
    choice: Choice,
    encoder: TableEncoder,
    name_column: str | None,
) -> EncodedTable:
    """Return this process's rows, read as plain numbers where that is all they are."""
    path = reader.path
    found_names = name_column if choice.id_column is None else None
    selection: dict[str, Any] = {
        "id_column": choice.id_column,
        "label_column": choice.label_column,
        "share": job.share,
    }
    if _is_plain(encoder):
        try:
            return _read_plain(job, reader, choice, encoder, selection | {"id_column": name_column})
        except TableError:
            pass  # cells that only the encoder can read, or nobody: it says which
    raw = read_columns(path, columns=choice.features, **selection)
    if job.is_alone and len(raw.columns) > SAMPLE_ROWS:
        encoder = _fit_encoder(path, raw.columns, choice)
    values, notes = encode_rows(encoder, raw.columns, path)
    ids = raw.ids if found_names is None else column_words(raw.columns.column(found_names))
    return EncodedTable(
        values,
        tuple(used_names(encoder.columns_)),
        ids,
        name_column,
        raw.labels,
        choice.label_column,
        columns=_listing(reader, choice, encoder.columns_, name_column),
        judged_by=_judged_by(job, encoder),
        encoder=encoder,
        notes=tuple(notes),
    )


def read_again(
    path: Path,
    features: Sequence[str],
    id_column: str | None,
    label_column: str | None,
    *,
    encoder: TableEncoder | None,
) -> Table:
    """Return a table that was fitted, as it was fitted."""
    if encoder is None:
        return read_table(path, columns=features, id_column=id_column, label_column=label_column)
    raw = read_columns(path, columns=features, id_column=id_column, label_column=label_column)
    values, _ = encode_rows(encoder, raw.columns, str(path))
    return Table(values, tuple(features), raw.ids, id_column, raw.labels, label_column)


def read_texts(path: str | Path, columns: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the columns of ids and text, none of which is fitted to, for the report to show.

    ``columns`` are those of :class:`EncodedTable`.
    """
    names = [column["name"] for column in columns if column["kind"] in ("id", "text")]
    if not names:
        return {}
    found = read_columns(path, columns=names).columns
    return {name: column_words(found.column(name)) for name in names}


def encode_rows(encoder: TableEncoder, columns: pa.Table, path: str) -> tuple[Floats, list[str]]:
    """Return rows as numbers, and what was strange about their cells."""
    from sgpmic.exceptions import collected_warnings

    with collected_warnings() as said:
        try:
            values = encoder.transform(typed_columns(encoder, columns))
        except TableError as error:
            raise TableError(f"{path}: {error}") from None
    return values, [str(w.message) for w in said]


def typed_columns(encoder: TableEncoder, columns: pa.Table) -> pa.Table:
    """Return columns with plain numbers as numbers, but for those that are read as words."""
    words = [
        column.name
        for column, encoding in zip(encoder.columns_, encoder.encodings_, strict=True)
        if not isinstance(encoding, NumberEncoding | YesNoEncoding)
    ]
    return with_plain_numbers(columns, words)


def refuse_empty_rows(path: str, values: Floats, ids: list[str] | None, first: int) -> None:
    """Raise for rows without any value, by their names or numbers; ``first`` rows are before."""
    empty = np.flatnonzero(np.isnan(values).all(axis=1))
    if not len(empty):
        return
    names = [str(first + row + 1) if ids is None else quote(ids[row]) for row in empty[:5]]
    more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
    rows, have = ("row", "has") if len(empty) == 1 else ("rows", "have")
    raise TableError(
        f"{path}: {rows} {', '.join(names)}{more} {have} no value in any column that is used; "
        f"remove {'it' if len(empty) == 1 else 'them'}"
    )


def _is_plain(encoder: TableEncoder) -> bool:
    """Return whether encoded columns are the numbers of the file."""

    def is_plain(encoding: Encoding) -> bool:
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
    columns = encoder.columns_
    if job.is_alone and columns[0].n_rows >= SAMPLE_ROWS:
        data, columns = _judge_again(reader.path, choice, encoder, selection)
        judged_by: int | None = min(SAMPLE_ROWS, len(data.values))
    else:
        data = read_table(reader.path, columns=used_names(columns), **selection)
        judged_by = _judged_by(job, encoder)
    return EncodedTable(
        **vars(data),
        columns=_listing(reader, choice, columns, selection["id_column"]),
        judged_by=judged_by,
    )


def _judged_by(job: CommandJob, encoder: TableEncoder) -> int | None:
    """Return the number of rows that columns were judged by, None for all."""
    n_rows = encoder.columns_[0].n_rows
    return None if job.is_alone or n_rows < SAMPLE_ROWS else n_rows


def _judge_again(
    path: str, choice: Choice, encoder: TableEncoder, selection: dict[str, Any]
) -> tuple[Table, list[Column]]:
    """Return a table of plain numbers, and its columns judged by rows from all over it.

    So far an encoder has judged them by the first rows.
    """
    # What was constant, or a copy, in the first rows only, is looked at again.
    again = ("constant", "copy", "empty")
    names = [column.name for column in encoder.columns_ if column.features or column.kind in again]
    data = read_table(path, columns=names, **selection)
    rows = np.unique(np.linspace(0, len(data.values) - 1, SAMPLE_ROWS).astype(np.int64))
    sample = {name: data.values[rows, place] for place, name in enumerate(names)}
    kinds = _with_ids(choice, encoder).kinds
    known = {name: kind for name, kind in kinds.items() if name in sample}
    spread = _fit_encoder(path, pa.table(sample), replace(choice, kinds=known))
    if not _is_plain(spread):
        raise TableError("columns are more than plain numbers after all")
    found = {column.name: column for column in (*encoder.columns_, *_measured(spread, data))}
    kept = [place for place, column in enumerate(spread.columns_) if column.features]
    if len(kept) < len(names):
        values = np.ascontiguousarray(data.values[:, kept])
        data = replace(data, values=values, names=tuple(names[place] for place in kept))
    return data, list(found.values())


def _measured(encoder: TableEncoder, data: Table) -> list[Column]:
    """Return columns of numbers with the gaps and ranges of all rows, not of some."""
    columns = []
    for place, column in enumerate(encoder.columns_):
        values = data.values[:, place]
        n_missing = int(np.isnan(values).sum())
        summary = column.summary
        if column.kind in ("number", "whole") and n_missing < len(values):
            summary = f"{np.nanmin(values):.6g} to {np.nanmax(values):.6g}"
        columns.append(replace(column, summary=summary, n_missing=n_missing, n_rows=len(values)))
    return columns


def _listing(
    reader: TableReader, choice: Choice, columns: Sequence[Column], name_column: str | None
) -> list[dict[str, Any]]:
    """Return every column of the file and what becomes of it, for ``run.json``."""
    known = {column.name: asdict(column) for column in columns}
    n_rows = columns[0].n_rows
    if name_column in known:
        known[name_column]["becomes"] += "; names the rows"
    for name, (kind, because) in choice.others.items():
        column = Column(name, kind, "", 0, n_rows, f"left out: {because}", None, ())
        known[name] = asdict(column) | {"n_missing": None}  # nobody has looked
    return [known[name] for name in reader.names if name in known]
