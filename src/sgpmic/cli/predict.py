"""``sgpmic predict``: what a fitted model says of new rows, in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sgpmic._types import Floats
from sgpmic.cli.console import console, fail, load_run, note, one_sentence
from sgpmic.cli.options import Device, Force, RunPath, choose_device
from sgpmic.cli.reading import encode_rows, refuse_empty_rows, typed_columns
from sgpmic.cli.results import model_columns, row_names
from sgpmic.cli.startup import interruptible
from sgpmic.storage.outputs import replacing, table_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError
from sgpmic.tables.errors import list_names
from sgpmic.tables.reader import column_words, open_table, without_ending

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.tables.base import TableReader
    from sgpmic.tables.encoder import TableEncoder

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
    target = out if out is not None else Path(f"{without_ending(table)}-labels.csv")
    folder = RunFolder(run)
    notes: set[str] = set()
    try:
        with interruptible(), one_sentence(target):
            record = folder.read_record()
            reader = open_table(table)
            present = _present(reader, record["data"]["features"])
            _check_target(target, table, folder, force)
            _say_extra(reader, record, id_column)
            model, record = load_run(folder)
            id_name = _id_name(reader, record, id_column)
            blocks = _blocks(model.encoder_, reader, record["data"]["features"], present, id_name)
            names = [cluster["name"] for cluster in record["result"].get("profiles", ())]
            answers = _answers(model, reader.path, blocks, id_name, names, notes)
            total, flagged = _write(target, answers, reader.n_rows)
    except KeyboardInterrupt:
        raise fail(f"Stopped; {target} was not written.", 130) from None
    for sentence in sorted(notes):
        note(sentence)
    console.print(f"{total} rows written to {escape(str(target))}.")
    if flagged:
        verb = "is" if flagged == 1 else "are"
        console.print(
            f"[yellow]{flagged} of them {verb} unlike the rows that were fitted[/] (column "
            "unusual): their clusters mean little."
        )


def _check_target(target: Path, table: Path, folder: RunFolder, force: bool) -> None:
    """Raise where writing to the target would cost the user another file."""
    if folder.would_overwrite(target) or _is_same(target, table):
        raise RunFolderError(
            f"{target} is read here and would be overwritten; name another file with --out."
        )
    if target.exists() and not force:
        raise RunFolderError(f"{target} exists; name another file with --out, or add --force.")


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
        note(
            f"{reader.path} has no column {list_names(absent)}: taken as missing in all rows. Its "
            f"columns are {list_names(reader.names)}."
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


def _blocks(
    encoder: TableEncoder | None,
    reader: TableReader,
    features: list[str],
    present: list[str],
    id_name: str | None,
) -> Iterator[tuple[Any, Floats, list[str] | None]]:
    """Yield new rows in blocks: as the model takes them, as numbers, and what they are called.

    The model was fitted on the columns ``features``; the table has those that are ``present``.
    """
    texts = [] if id_name is None else [id_name]
    if encoder is None:
        places = [features.index(name) for name in present]
        for block in reader.blocks(present, texts, _BLOCK):
            values = np.full((len(block.values), len(features)), np.nan)
            values[:, places] = block.values
            yield values, values, next(iter(block.texts), None)
        return
    for table in reader.raw_blocks(list(dict.fromkeys([*present, *texts])), _BLOCK):
        columns = table.select(present)
        values, _ = encode_rows(encoder, columns, reader.path)
        ids = None if id_name is None else column_words(table.column(id_name))
        yield typed_columns(encoder, columns), values, ids


def _answers(
    model: SGPMIC,
    path: str,
    blocks: Iterable[tuple[Any, Floats, list[str] | None]],
    id_name: str | None,
    names: list[str],
    notes: set[str],
) -> Iterator[dict[str, Any]]:
    """Yield what is written about every block; what the model warns of is added to ``notes``.

    ``names`` are those of the clusters, none in runs of earlier versions.
    """
    from sgpmic.exceptions import collected_warnings

    n_done = 0
    for rows, values, ids in blocks:
        refuse_empty_rows(path, values, None, n_done)
        with collected_warnings() as said:
            found = model.assess(rows)
        # Columns were matched by name already, and said to be missing.
        notes |= {str(w.message) for w in said if "has no column" not in str(w.message)}
        yield {
            **row_names(ids, id_name, len(values), n_done),
            **model_columns(found.labels, found.memberships, found.embedding, names),
            "log_density": found.log_density,
            "unusual": found.unusual.astype(int),
        }
        n_done += len(values)


def _write(target: Path, answers: Iterable[dict[str, Any]], n_rows: int | None) -> tuple[int, int]:
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
        task = bar.add_task("", total=n_rows)
        for block in answers:
            file.write(table_bytes(block, header=total == 0))
            flagged += int(block["unusual"].sum())
            total += len(block["unusual"])
            bar.update(task, completed=total)
    return total, flagged
