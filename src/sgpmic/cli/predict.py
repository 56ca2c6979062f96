"""``sgpmic predict``: predictions of a fitted model for new rows, in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from rich import progress
from rich.markup import escape
from typer import Argument, Option

from sgpmic._words import plural
from sgpmic.cli import options as opt
from sgpmic.cli.options import console, fail, note, one_sentence
from sgpmic.cli.results import Rows, model_columns, table_bytes
from sgpmic.jobs.job import terminated_as_interrupted
from sgpmic.storage.model_file import replacing
from sgpmic.storage.run_folder import RunFolder, RunFolderError
from sgpmic.tables.errors import list_names

if TYPE_CHECKING:
    from sgpmic.storage.models import StoredModel
    from sgpmic.tables.encoder import TableEncoder
    from sgpmic.tables.reader import TableReader


def predict(
    run: opt.RunPath,
    table: Annotated[Path, Argument(metavar="NEW", help="Table with the new rows.")],
    out: Annotated[
        Path | None,
        Option(metavar="FILE", help="CSV to write; NEW-labels.csv in this folder by default."),
    ] = None,
    id_column: Annotated[
        str | None,
        Option("--id", metavar="COLUMN", help="Column with row names; as in fit by default."),
    ] = None,
    device: opt.Device = "auto",
    force: opt.Force = False,
) -> None:
    """Predict the clusters of new rows, and flag rows that are unlike anything seen.

    Columns are matched by name. Every row is predicted independently of the others, and files of
    any size are read in blocks.
    """
    opt.name_device(device)
    opt.check_device(device)
    from sgpmic.tables.dataset import stored_encoder
    from sgpmic.tables.reader import open_table, without_ending

    target = out if out is not None else Path(f"{without_ending(table)}-labels.csv")
    folder = RunFolder(run)
    try:
        with terminated_as_interrupted(), one_sentence(target):
            record = folder.read_record()
            reader = open_table(table)
            is_table = target.exists() and table.exists() and target.samefile(table)
            if is_table or folder.would_overwrite(target):
                raise RunFolderError(f"{target} is an input file; name another file with --out.")
            if target.exists() and not force:
                raise RunFolderError(f"{target} exists; name another with --out, or add --force.")
            _say_unmatched(reader, record, id_column)
            from sgpmic.storage.models import load_model  # slow; not before errors are reported

            path = folder.results.model
            with one_sentence(path, "read"):
                # No estimator: importing scikit-learn takes longer than all the rest.
                model = load_model(path)
                encoder = stored_encoder(path, model.header)
            check_match(folder, model.header["feature_names"] or (), encoder)
            if id_column is not None:
                reader.require([id_column])
            elif record["data"]["id"] in reader.names:
                id_column = record["data"]["id"]
            total, flagged, n_empty, notes = _write_answers(
                target, model, encoder, reader, record, id_column
            )
    except KeyboardInterrupt:
        raise fail(f"Stopped; {target} was not written.", 130) from None
    for sentence in sorted(notes):
        note(sentence)
    if n_empty:
        note(f"{plural(n_empty, 'row')} without a value in any column of the model: no cluster.")
    console.print(f"{plural(total, 'row')} written to {escape(str(target))}.")
    if flagged:
        verb, whose = ("is", "its cluster") if flagged == 1 else ("are", "their clusters")
        console.print(
            f"[yellow]{flagged} of them {verb} unlike the training rows[/] (column unusual); "
            f"do not rely on {whose}."
        )


def _say_unmatched(reader: TableReader, record: dict[str, Any], id_column: str | None) -> None:
    """Print which features are absent, and which columns ignored; raise if no feature is there."""
    features = record["data"]["features"]
    absent = [name for name in features if name not in reader.names]
    if len(absent) == len(features):
        reader.require(features)
    if absent:
        note(
            f"{reader.path} has no column {list_names(absent)}: taken as missing in all rows. Its "
            f"columns are {list_names(reader.names)}."
        )
    known = {column["name"] for column in record["columns"]} | {id_column}
    extra = [name for name in reader.names if name not in known]
    if extra:
        shown = ", ".join(extra[:5]) + (" …" if len(extra) > 5 else "")
        console.print(f"Columns unknown to the model are ignored: {escape(shown)}")


def check_match(folder: RunFolder, names: Iterable[Any], encoder: TableEncoder | None) -> None:
    """Exit with an error unless the model of a run has the features in its record."""
    from sgpmic.tables.columns import used_names

    found = [*map(str, names)] if encoder is None else used_names(encoder.columns_)
    if found != folder.read_record()["data"]["features"]:
        raise fail(f"{folder.path} holds files of different runs; run sgpmic fit again.")


def _write_answers(
    target: Path,
    model: StoredModel,
    encoder: TableEncoder | None,
    reader: TableReader,
    record: dict[str, Any],
    id_name: str | None,
) -> tuple[int, int, int, set[str]]:
    """Write the predictions; return the numbers of all, unusual and empty rows, and warnings."""
    from sgpmic.exceptions import collected_warnings
    from sgpmic.learning.preprocessing import dense_rows
    from sgpmic.tables.dataset import read_blocks

    bar = progress.Progress(console=console)
    wanted = [] if id_name is None else [id_name]
    notes: list[str] = []
    blocks = read_blocks(reader, encoder, record["data"]["features"], wanted, notes)
    names = [cluster["name"] for cluster in record["result"].get("profiles", ())]  # not in old runs
    total = flagged = n_empty = 0
    with replacing(target) as file, bar:
        task = bar.add_task("predicting", total=reader.n_rows)
        for block in blocks:
            with collected_warnings() as said:
                # In C order, because summation order affects rounding.
                rows = np.ascontiguousarray(block.values, np.float64)
                found = model.predictor.assess(dense_rows(rows, model.reduction))
            notes += [str(w.message) for w in said]
            answers = model_columns(found.labels, found.memberships, found.embedding, names)
            answers |= {"log_density": found.log_density, "unusual": found.unusual.astype(int)}
            empty = found.labels < 0
            columns = Rows(next(iter(block.texts), None), id_name, total, empty).columns(answers)
            file.write(table_bytes(columns, header=total == 0))
            total += len(block)
            flagged += int(found.unusual.sum())
            n_empty += int(empty.sum())
            bar.update(task, completed=total, description=plural(total, "row"))
    return total, flagged, n_empty, set(notes)
