"""``sgpmic predict``: what a fitted model says of new rows, in blocks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sgpmic.cli.console import console, fail, load_run, one_sentence
from sgpmic.cli.options import Device, Force, RunPath, choose_device
from sgpmic.cli.results import model_columns, row_names
from sgpmic.cli.startup import interruptible
from sgpmic.storage.outputs import replacing, table_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.tables.reader import TableReader

_BLOCK = 16_384


def predict(
    run: RunPath,
    table: Annotated[Path, typer.Argument(metavar="NEW", help="Table with the new rows.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV to write; NEW-labels.csv in this folder by default.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column that names the rows; as in fit by default.")
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
            reader.require(record["data"]["features"])
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
            total, flagged = _write(target, model, reader, record, id_column)
    except KeyboardInterrupt:
        raise fail(f"Stopped; {target} was not written.", 130) from None
    console.print(f"{total} rows written to {escape(str(target))}.")
    if flagged:
        verb = "is" if flagged == 1 else "are"
        console.print(
            f"[yellow]{flagged} of them {verb} unlike the rows that were fitted[/] (column "
            "unusual): there clusters mean little."
        )


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two names are those of one file."""
    try:
        return first.samefile(second)
    except OSError:  # one of them is not there
        return False


def _say_extra(reader: TableReader, record: dict[str, Any], id_column: str | None) -> None:
    """Name the columns that are not looked at, a label or an id of the fit aside."""
    known = {*record["data"]["features"], record["data"]["id"], record["data"]["label"], id_column}
    extra = [name for name in reader.names if name not in known]
    if extra:
        shown = ", ".join(extra[:5]) + (" …" if len(extra) > 5 else "")
        console.print(f"Columns that the model does not know are left out: {escape(shown)}")


def _write(
    target: Path,
    model: SGPMIC,
    reader: TableReader,
    record: dict[str, Any],
    id_column: str | None,
) -> tuple[int, int]:
    """Write the answers, block by block, and return the numbers of rows and of unusual ones."""
    id_name = id_column or record["data"]["id"]
    if id_name not in reader.names and id_column is None:
        id_name = None
    total = flagged = 0
    bar = Progress(
        TextColumn("predicting"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed} rows"),
        TimeElapsedColumn(),
        console=console,
    )
    with replacing(target) as file, bar:
        task = bar.add_task("", total=reader.n_rows)
        texts = [] if id_name is None else [id_name]
        for block in reader.blocks(record["data"]["features"], texts, _BLOCK):
            columns = {
                **row_names(next(iter(block.texts), None), id_name, len(block.values), total),
                **_answers(model, block.values),
            }
            file.write(table_bytes(columns, header=total == 0))
            flagged += int(columns["unusual"].sum())
            total += len(block.values)
            bar.update(task, completed=total)
    return total, flagged


def _answers(model: SGPMIC, values: NDArray[np.float64]) -> dict[str, Any]:
    """Return what the model says of new rows."""
    with warnings.catch_warnings():
        # Columns were matched by name already; the array has none any more.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = model.assess(values)
    return {
        **model_columns(found.labels, found.memberships, found.embedding),
        "log_density": found.log_density,
        "unusual": found.unusual.astype(int),
    }
