"""``sgpmic fit``: from a table to clusters, a model and a report."""

from __future__ import annotations

import shlex
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console, fail, listed
from sgpmic.cli.display import FitDisplay
from sgpmic.cli.job import CommandJob, join_job
from sgpmic.cli.options import (
    Columns,
    Device,
    Drop,
    Force,
    IdColumn,
    LabelColumn,
    check_device,
    dimensions,
    name_device,
)
from sgpmic.cli.startup import forget_damaged
from sgpmic.storage.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    import sgpmic
    from sgpmic.tables.reader import Table


def fit(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="CSV, TSV (also .gz), Parquet, Feather/Arrow, NPY or NPZ."
        ),
    ],
    clusters: Annotated[int, typer.Option("-k", "--clusters", min=1, help="Number of clusters.")],
    dims: Annotated[
        str,
        typer.Option(
            "-d", "--dimensions", help="Latent dimensions, or the share of variance to keep (0.95)."
        ),
    ] = "2",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("run"),
    columns: Columns = None,
    drop: Drop = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    standardize: Annotated[
        bool,
        typer.Option(
            "--standardize", help="Give every feature mean 0 and variance 1: for unlike units."
        ),
    ] = False,
    kernel: Annotated[
        str, typer.Option(help="rbf, linear, matern32, matern52 or rational_quadratic.")
    ] = "rbf",
    inducing: Annotated[int, typer.Option(min=1, help="Number of inducing points.")] = 50,
    starts: Annotated[int, typer.Option(min=1, help="Number of starts.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Most rounds of EM; 20, or the paper's 2.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learn in random batches of so many rows (some thousand): for large tables.",
        ),
    ] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Every choice as in the paper.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    device: Device = "auto",
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Processes to start on this machine, each with its share of a Parquet or .npy "
            "file; under srun or mpirun leave it out.",
        ),
    ] = 1,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Rounds between two checkpoints.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
    ] = False,
    force: Force = False,
) -> None:
    """Cluster the rows of a table and place them in a latent space.

    Written to the folder: labels.csv (cluster, memberships, certainty and coordinates of every
    row), model.sgpmic (for sgpmic predict), report.html (open it in a browser), run.json (every
    setting). Interrupted, the same command with --resume goes on to the same result.
    """
    name_device(device)
    job = join_job(processes)
    job.do(lambda: check_device(device))
    folder = RunFolder(out)
    began = time.perf_counter()
    parameters: dict[str, Any] = {
        "n_components": dimensions(dims),
        "kernel": kernel,
        "n_inducing": inducing,
        "n_init": starts,
        "batch_size": batch,
        "random_state": seed,
    }
    if rounds is not None:
        parameters["max_iter"] = rounds
    options = {
        "standardize": standardize,
        "as_published": as_published,
        "table": str(table.resolve()),
        "device": device,
    }
    # Everything is looked at before anything is changed: a slip must not cost the results of an
    # earlier run.
    selection = {
        "columns": listed(columns),
        "drop": listed(drop),
        "id_column": id_column,
        "label_column": label_column,
    }
    data = job.do(lambda: _read(table, selection, folder, job))
    job.do(lambda: job.meet(data.values, folder.checkpoint if resume else None))
    data = replace(data, digest=job.do(lambda: job.digest(data)))
    asked = {"n_clusters": clusters, **parameters} | {k: options[k] for k in _ASKED}
    if resume and job.do(lambda: job.hears(folder.is_complete)):
        job.do(lambda: _say_finished(folder, data, asked) if job.speaks else None)
        job.part()
        return
    model = job.do(lambda: _make_model(clusters, parameters, as_published, data, job))
    job.do(lambda: folder.make_ready(force=force, resume=resume) if job.speaks else None)
    if data.names[0] == "feature_1" and table.suffix not in (".npy", ".npz"):
        console.print("No header was found: the first line is a row, columns are feature_1, …")
    read_seconds = time.perf_counter() - began
    model.set_params(checkpoint=folder.checkpoint, checkpoint_every=checkpoint_every)
    try:
        with _terminated_as_interrupted(), job.watching(model):
            notes = _learn(model, data, options, job)
            _write(folder, model, data, notes, options, read_seconds, job)
    except KeyboardInterrupt:
        if not folder.checkpoint.exists():
            raise fail("Stopped before the first checkpoint; nothing was kept.", 130) from None
        raise fail(
            "Stopped. What was learned is kept; the same command with --resume goes on.", 130
        ) from None
    job.do(lambda: _summarise(model, data, notes, folder, job))
    job.part()


_ASKED = ("as_published", "standardize")


def _read(table: Path, selection: dict[str, Any], folder: RunFolder, job: CommandJob) -> Table:
    """Return this process's rows of the table."""
    from sgpmic.tables.reader import TableError, read_table

    try:
        data = read_table(table, **selection, share=job.share)
    except TableError as error:
        if error.column is None:
            raise
        advice = f"or leave the column out with --drop {shlex.quote(error.column)}"
        raise TableError(f"{error}, {advice}") from None
    if table.resolve() in (folder.labels.resolve(), folder.report.resolve()):
        raise RunFolderError(f"{table} would be overwritten by the results; move it first.")
    return data


def _make_model(
    clusters: int, parameters: dict[str, Any], as_published: bool, data: Table, job: CommandJob
) -> sgpmic.SGPMIC:
    """Return the estimator, or raise for what would make it fail later."""
    import sgpmic
    from sgpmic._validation import check_parameters
    from sgpmic.kernels import get_kernel

    if parameters["batch_size"] is not None and not job.alone:
        raise ValueError("--batch works in one process: leave out --batch, or --processes.")
    maker = sgpmic.SGPMIC.as_published if as_published else sgpmic.SGPMIC
    model: sgpmic.SGPMIC = maker(clusters, **parameters)
    check_parameters(model.get_params(deep=False))
    get_kernel(model.kernel)
    if clusters > job.n_rows(data):
        raise ValueError(
            f"-k {clusters}: the table has {job.n_rows(data)} rows; ask for fewer clusters."
        )
    return model


def _write(
    folder: RunFolder,
    model: sgpmic.SGPMIC,
    data: Table,
    notes: list[str],
    options: dict[str, Any],
    read_seconds: float,
    job: CommandJob,
) -> None:
    from sgpmic.cli.results import write_results

    try:
        with console.status("Writing results"):
            write_results(folder, model, data, notes, options, {"reading": read_seconds}, job)
    except OSError as error:
        raise fail(
            f"The results cannot be written to {folder.path}: {error.strerror or error}. What was "
            "learned is kept; make room and run the same command with --resume."
        ) from None


def _say_finished(folder: RunFolder, data: Table, asked: dict[str, Any]) -> None:
    """Say that nothing is left to do, unless something else is asked for than was done."""
    record = folder.read_record()
    for name, value in asked.items():
        if record["settings"].get(name) != value:
            raise RunFolderError(
                f"{folder.path} holds a finished run with other settings "
                f"({name} {record['settings'].get(name)}, not {value}); name another folder with "
                "--out, or start anew with --force."
            )
    if record["data"]["digest"] != data.digest:
        raise RunFolderError(
            f"{folder.path} holds a finished run on other data; name another folder with --out."
        )
    console.print(f"{escape(str(folder.path))} is finished; nothing is left to do.")


def _learn(
    model: sgpmic.SGPMIC, data: Table, options: dict[str, Any], job: CommandJob
) -> list[str]:
    """Fit with a live display; return what the model warned of."""
    from sgpmic.cli.results import standardized
    from sgpmic.exceptions import ConvergenceWarning, SGPMICWarning
    from sgpmic.parallel.watchdog import is_loss
    from sgpmic.storage.model_file import ModelFileError

    values, options["scaling"] = standardized(
        data.values, options["standardize"], job.total, job.n_rows(data)
    )
    display = FitDisplay(model.max_iter, model.n_init)
    try:
        with display, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            callbacks = [*(model.callbacks or []), display.show]
            model.set_params(callbacks=callbacks).fit(job.table(values))
            display.finish(f"{model.n_iter_} rounds, bound {model.lower_bound_:.2f}")
    except OSError as error:
        raise fail(
            f"The checkpoint {model.checkpoint} cannot be written: {error.strerror or error}."
        ) from None
    except (ModelFileError, ValueError, TypeError) as error:
        if not job.alone and is_loss(error):
            raise
        raise fail(_one_line(error)) from None
    model.set_params(callbacks=None)
    for warning in said:
        forget_damaged(str(warning.message))
    # Others say nothing about the data.
    ours = (SGPMICWarning, ConvergenceWarning)
    return [str(w.message) for w in said if issubclass(w.category, ours)]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let a polite request to end (SIGTERM, as schedulers send) leave as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summarise(
    model: sgpmic.SGPMIC, data: Table, notes: list[str], folder: RunFolder, job: CommandJob
) -> None:
    screen = ScreenTable(title=f"{job.n_rows(data)} rows in {model.n_clusters} clusters")
    for name in ("cluster", "rows", "weight", "mean certainty"):
        screen.add_column(name, justify="right")
    sizes = job.sizes(model)
    for m, size in enumerate(sizes):
        own = model.memberships_[model.labels_ == m, m]
        certainty = f"{float(job.total(own.sum())) / size:.3f}" if size else "–"
        screen.add_row(str(m), str(size), f"{model.weights_[m]:.2f}", certainty)
    console.print(screen)
    if data.labels is not None and job.alone:
        from sklearn.metrics import adjusted_rand_score

        agreement = adjusted_rand_score(data.labels, model.labels_)
        console.print(
            f"Agreement with {escape(str(data.label_name))}, which was not used: adjusted Rand "
            f"index {agreement:.2f}"
        )
    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}")
    console.print(
        f"Written to {escape(str(folder.path))}: labels.csv, model.sgpmic, report.html, run.json"
    )
