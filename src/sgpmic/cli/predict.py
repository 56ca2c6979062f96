"""``sgpmic predict``: what a fitted model says of new rows, in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sgpmic.cli.console import console, fail, load_run, one_sentence
from sgpmic.cli.options import Device, Force, RunPath, choose_device
from sgpmic.cli.results import model_columns, row_names
from sgpmic.cli.startup import interruptible
from sgpmic.storage.outputs import replacing, table_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError
from sgpmic.tables.errors import list_names

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.tables.base import TableReader

_BLOCK = 16_384


def predict(
    run: RunPath,
    table: Annotated[Path, typer.Argument(metavar="NEW", help="Table with the new rows.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV to write; NEW-labels.csv in this folder by default."
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="COLUMN", help="Column that names the rows; as in fit by default."
        ),
    ] = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Say for new rows which cluster they belong to, and which are unlike anything seen.

    Columns are matched by name. Every row is answered for by itself, whatever else is in the
    file, and files of any size go through in blocks.
    """
    choose_device(device)
    from sgpmic.tables.reader import open_table, without_ending

    target = out if out is not None else Path(f"{without_ending(table)}-labels.csv")
    folder = RunFolder(run)
    try:
        with interruptible(), one_sentence(target):
            record = folder.read_record()
            reader = open_table(table)
            present = _present(reader, record["data"]["features"])
            if folder.would_overwrite(target) or _is_same(target, table):
                raise RunFolderError(
                    f"{target} is read here and would be overwritten; name another file with --out."
                )
            if target.exists() and not force:
                raise RunFolderError(
                    f"{target} exists; name another file with --out, or add --force."
                )
            _say_extra(reader, record, id_column)
            model, record = load_run(folder)
            rows = _NewRows(model, reader, record["data"]["features"], present)
            total, flagged = _write(target, rows, _id_name(reader, record, id_column))
    except KeyboardInterrupt:
        raise fail(f"Stopped; {target} was not written.", 130) from None
    for note in sorted(rows.notes):
        console.print(f"[yellow]Note:[/] {escape(note)}")
    console.print(f"{total} rows written to {escape(str(target))}.")
    if flagged:
        verb = "is" if flagged == 1 else "are"
        console.print(
            f"[yellow]{flagged} of them {verb} unlike the rows that were fitted[/] (column "
            "unusual): their clusters mean little."
        )


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two names are those of one file."""
    try:
        return first.samefile(second)
    except OSError:  # one of them is not there
        return False


def _present(reader: TableReader, features: list[str]) -> list[str]:
    """Return which of the columns are there; some must be, and those that are not are named."""
    present = [name for name in features if name in reader.names]
    absent = [name for name in features if name not in reader.names]
    if not present:
        reader.require(features)
    if absent:
        console.print(
            f"[yellow]Note:[/] {escape(reader.path)} has no column {escape(list_names(absent))}: "
            f"taken as missing in all rows. Its columns are {escape(list_names(reader.names))}."
        )
    return present


def _say_extra(reader: TableReader, record: dict[str, Any], id_column: str | None) -> None:
    """Name the columns that are not looked at, those that the fit left out aside."""
    known = {column["name"] for column in record["columns"]} | {id_column}
    extra = [name for name in reader.names if name not in known]
    if extra:
        shown = ", ".join(extra[:5]) + (" …" if len(extra) > 5 else "")
        console.print(f"Columns that the model does not know are left out: {escape(shown)}")


def _id_name(reader: TableReader, record: dict[str, Any], id_column: str | None) -> str | None:
    """Return the column that names the rows: the one asked for, or that of the fit if there."""
    if id_column is not None:
        reader.require([id_column])
        return id_column
    name: str | None = record["data"]["id"]
    return name if name in reader.names else None


class _NewRows:
    """New rows, read and encoded in blocks.

    The model was fitted on the columns ``features``; the table has those that are ``present``.
    """

    def __init__(
        self, model: SGPMIC, reader: TableReader, features: list[str], present: list[str]
    ) -> None:
        self.model = model
        self.n_rows = reader.n_rows
        self.notes: set[str] = set()
        self._done = 0
        self._reader = reader
        self._features = features
        self._present = present

    def blocks(self, texts: list[str]) -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
        """Yield what the model says of some rows, and their columns of text."""
        if self.model.encoder_ is None:
            places = [self._features.index(name) for name in self._present]
            for block in self._reader.blocks(self._present, texts, _BLOCK):
                values = np.full((len(block.values), len(self._features)), np.nan)
                values[:, places] = block.values
                yield self._answers(values, values), block.texts
            return
        from sgpmic.tables.reader import column_words

        names = list(dict.fromkeys([*self._present, *texts]))
        for table in self._reader.raw_blocks(names, _BLOCK):
            words = [column_words(table.column(name)) for name in texts]
            yield self._answers(*self._encoded(table.select(self._present))), words

    def _encoded(self, table: Any) -> tuple[Any, Any]:
        """Return columns as the model takes them, and what its encoder makes of them."""
        from sgpmic.cli.reading import encode_rows, typed_columns

        encoder = self.model.encoder_
        assert encoder is not None
        return typed_columns(encoder, table), encode_rows(encoder, table, self._reader.path)[0]

    def _answers(self, rows: Any, values: Any) -> dict[str, Any]:
        """Return what the model says of new rows, of which ``values`` are the numbers."""
        from sgpmic.cli.reading import refuse_empty_rows
        from sgpmic.exceptions import SGPMICWarning

        refuse_empty_rows(self._reader.path, values, None, self._done)
        self._done += len(values)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = self.model.assess(rows)
        # Columns were matched by name already, and said to be missing.
        self.notes |= {
            str(w.message)
            for w in said
            if issubclass(w.category, SGPMICWarning) and "has no column" not in str(w.message)
        }
        return {
            **model_columns(found.labels, found.memberships, found.embedding),
            "log_density": found.log_density,
            "unusual": found.unusual.astype(int),
        }


def _write(target: Path, rows: _NewRows, id_name: str | None) -> tuple[int, int]:
    """Write the answers, block by block, and return the numbers of rows and of unusual ones."""
    total = flagged = 0
    bar = Progress(
        TextColumn("predicting"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed} rows"),
        TimeElapsedColumn(),
        console=console,
    )
    with replacing(target) as file, bar:
        task = bar.add_task("", total=rows.n_rows)
        for answers, texts in rows.blocks([] if id_name is None else [id_name]):
            n_rows = len(answers["cluster"])
            names = row_names(next(iter(texts), None), id_name, n_rows, total)
            file.write(table_bytes({**names, **answers}, header=total == 0))
            flagged += int(answers["unusual"].sum())
            total += n_rows
            bar.update(task, completed=total)
    return total, flagged
