"""``sgpmic fit`` and ``sgpmic demo``: from a table to clusters, a model and a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from sgpmic._words import plural
from sgpmic.cli import options as opt
from sgpmic.cli import results
from sgpmic.cli.dry_run import show_expectation
from sgpmic.cli.options import console, fail, one_sentence
from sgpmic.cli.processes import CommandJob, join_job
from sgpmic.cli.results import Fit, FitDisplay, Rows, table_bytes, write_results
from sgpmic.jobs import supervised
from sgpmic.jobs.job import is_loss, terminated_as_interrupted
from sgpmic.storage.model_file import write_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.tables.dataset import ColumnOptions, Table


def fit(
    table: opt.TablePath,
    clusters: opt.Clusters = "auto",
    dims: opt.Dimensions = "2",
    out: opt.OutFolder = Path("run"),
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    ids: opt.IdColumns = None,
    label: opt.LabelColumn = None,
    number: opt.Number = None,
    category: opt.Category = None,
    ordered: opt.Ordered = None,
    date: opt.Date = None,
    log: opt.Log = None,
    scale: opt.Scale = None,
    kernel: opt.Kernel = "rbf",
    latent: opt.Latent = "point",
    inducing: opt.Inducing = 50,
    committee: opt.Committee = True,
    starts: opt.Starts = 1,
    max_iter: opt.MaxIter = None,
    rounds: opt.Rounds = None,
    batch: opt.Batch = None,
    as_published: opt.AsPublished = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    processes: opt.Processes = 1,
    checkpoint_every: opt.CheckpointEvery = 1,
    resume: opt.Resume = False,
    force: opt.Force = False,
    dry_run: opt.DryRun = False,
) -> None:
    """Cluster the rows of a table and place them in a latent space.

    Columns may be numbers, categories, dates, ids; cells may be missing. How every column is
    used is shown before anything is learned, and can be changed.

    Written to the folder: labels.csv (cluster, memberships, certainty and coordinates of every
    row), model.sgpmic (for sgpmic predict), report.html (open it in a browser), run.json (every
    setting). If it is interrupted, the same command with --resume reaches the same result.
    """
    job = join_job(processes, device)
    from sgpmic.tables.dataset import ColumnOptions

    if batch is not None:
        console.print("--batch no longer has any effect and will be removed: all rows are used.")
    if rounds is not None:
        console.print("--rounds is now --max-iter; the old name will be removed.")
        max_iter = rounds if max_iter is None else max_iter
    parameters = {
        "n_clusters": opt.number_or_word(clusters),
        "n_components": opt.number_or_word(dims),
        "kernel": kernel,
        "latent": latent,
        "n_inducing": inducing,
        "start__n_init": starts,
        "random_state": seed,
        **({} if max_iter is None else {"max_iter": max_iter}),
        **({} if scale is None else {"scale": scale}),
        **({} if committee else {"committee": None}),
    }
    asked = ColumnOptions(columns, drop, ids, label, number, category, ordered, date, log)
    # Validate everything before changing anything: a typo must not destroy the results of an
    # earlier run.
    began, folder = time.perf_counter(), RunFolder(out)
    data, rows = _read(job, table, asked, folder)
    results.show_columns(data, len(data.columns) if dry_run else results.MOST_SHOWN)
    if data.encoder is not None and data.encoder.has_categories_:
        # The encoder has already brought all columns to a common unit.
        parameters.setdefault("scale", "one")
    model = job.do(lambda: _make_model(parameters, as_published, job))
    if dry_run:
        show_expectation(model, *data.values.shape)
        return job.group.wait("output is printed")
    model.set_params(computation__checkpoint_every=checkpoint_every)
    options = {"as_published": as_published, "device": device, "table": str(table.resolve())}
    seconds = {"reading": time.perf_counter() - began}
    this = Fit(job, folder, data, rows, model, options, seconds, list(data.notes))
    _learn_and_write(this, parameters, force=force, resume=resume)


def _read(
    job: CommandJob, table: Path, asked: ColumnOptions, folder: RunFolder
) -> tuple[Table, Rows]:
    """Read this process's non-empty rows, and the ids of all its rows."""
    from sgpmic.tables.dataset import Dataset, without_empty_rows

    def check() -> None:
        if folder.would_overwrite(table):
            raise RunFolderError(f"{table} would be overwritten by the results; move it first.")

    dataset = job.do(lambda: Dataset(table, asked))
    # The first process fits the encoder for all.
    fitted = job.tell_all(job.do(lambda: dataset.fit_columns() if job.is_first else ""))[0]
    everything = job.do(lambda: dataset.read(fitted, (job.process, job.n_processes)))
    job.do(check)
    data, empty = job.do(lambda: without_empty_rows(everything))
    rows = Rows(everything.ids, everything.id_name, everything.first_row, empty)
    from sgpmic.process_group import ProcessGroup  # slow; not before table errors are reported

    job.group = job.do(lambda: ProcessGroup(len(data.values)))
    if n_empty := int(job.group.total(np.float64(empty.sum()))):
        note = f"{plural(n_empty, 'row')} without a value in any column that is used: no cluster."
        # Ids that are row numbers stay those of the file.
        data = replace(data, ids=rows.names(~empty), notes=(*data.notes, note))
    if data.columns[0]["name"] == "feature_1" and table.suffix not in (".npy", ".npz"):
        console.print("No header was found: the first line is a row, and columns are feature_1, …")
    return data, rows


def _make_model(parameters: dict[str, Any], as_published: bool, job: CommandJob) -> SGPMIC:
    """Build the estimator; raise for settings that would fail later."""
    import sgpmic

    model = sgpmic.SGPMIC.as_published() if as_published else sgpmic.SGPMIC()
    try:
        model.set_params(**parameters).check_settings()
    except (ValueError, TypeError) as error:
        raise ValueError(opt.in_options(error)) from None
    if not isinstance(model.n_clusters, str) and model.n_clusters > job.group.n_rows:
        raise ValueError(
            f"-k {model.n_clusters}: the table has {job.group.n_rows} rows; ask for fewer clusters."
        )
    return model


def _say_finished(folder: RunFolder, parameters: dict[str, Any], options: dict[str, Any]) -> None:
    """Report that the run is finished; raise if settings or data differ from the request."""
    record = folder.read_record()
    asked = parameters | {"as_published": options["as_published"]}
    other = [
        opt.OPTIONS.get(name, name)
        for name, value in asked.items()
        if record["settings"].get(name) != value
    ]
    if record["data"]["fingerprint"] != options["fingerprint"]:
        other.append("data")
    if other:
        raise RunFolderError(
            f"{folder.path} holds a finished run with other {', '.join(other)}; name another "
            "folder with --out, or start again with --force."
        )
    console.print(f"{escape(str(folder.path))} is finished; nothing is left to do.")


def _learn_and_write(this: Fit, parameters: dict[str, Any], *, force: bool, resume: bool) -> None:
    """Fit and write the results, unless the run to resume is already finished."""
    from sgpmic.storage.checkpoints import data_fingerprint

    job, folder = this.job, this.folder
    this.options["fingerprint"] = job.do(lambda: data_fingerprint(this.data.values, job.group))
    if resume and job.do(lambda: job.group.agree(np.array([folder.is_finished]))[0]):
        job.do(lambda: _say_finished(folder, parameters, this.options) if job.is_first else None)
    else:
        this.model.set_params(computation__checkpoint=folder.checkpoint)
        job.do(lambda: folder.make_ready(force=force, resume=resume) if job.is_first else None)
        try:
            with terminated_as_interrupted(), supervised(job.n_processes) as callbacks:
                _learn(this, callbacks)
                with console.status("Computing densities, writing results"):
                    write_results(this)
        except OSError as error:
            raise fail(
                f"The results cannot be written to {folder.path}: {error.strerror or error}. The "
                "checkpoint is kept; free some space and run the same command with --resume."
            ) from None
        except KeyboardInterrupt:
            if not folder.has_checkpoint:
                raise fail("Stopped before the first checkpoint; nothing was saved.", 130) from None
            raise fail("Stopped; resume with the same command and --resume.", 130) from None
        else:
            job.do(lambda: results.show_summary(this))
        finally:
            if job.is_first:
                folder.leave()
    job.group.wait("the run is finished")


def _learn(this: Fit, callbacks: list[Callable[[object], None]]) -> None:
    from sgpmic._runtime import listening
    from sgpmic.exceptions import collected_warnings
    from sgpmic.process_group import SharedTable

    job, model = this.job, this.model
    display = FitDisplay(model.max_iter, model.start.n_init)
    checkpoint = one_sentence(f"The checkpoint {this.folder.checkpoint}")
    try:
        with checkpoint, display, listening(display.announce), collected_warnings() as said:
            model.set_params(em__callbacks=[*callbacks, display.show])
            began = time.perf_counter()
            model.fit(SharedTable(this.data.values, job.group))
            this.seconds["learning"] = time.perf_counter() - began
            display.finish(f"{model.n_iter_} iterations, bound {model.lower_bound_:.2f}")
    except (ValueError, TypeError) as error:
        if is_loss(error):
            raise
        raise fail(" ".join(opt.in_options(error).split())) from None
    model.set_params(em__callbacks=())
    this.notes += [opt.in_options(w.message) for w in said]


def demo(
    out: opt.OutFolder = Path("demo-output"), force: opt.Force = False, seed: opt.Seed = 0
) -> None:
    """Cluster the iris flowers: three species, four measurements, no labels used.

    Writes the table itself (iris.csv) and what sgpmic fit makes of it (run/).
    """
    if out.is_dir() and any(out.iterdir()) and not force:
        raise fail(f"{out} is not empty; name another folder with --out, or add --force.")
    from sklearn.datasets import load_iris

    table, iris = out / "iris.csv", load_iris()
    columns = {"flower": [f"flower {number + 1}" for number in range(len(iris.data))]}
    for name, cells in zip(iris.feature_names, iris.data.T, strict=True):
        columns[name.removesuffix(" (cm)")] = cells.tolist()
    columns["species"] = iris.target_names[iris.target].tolist()
    with one_sentence(f"The folder {out}", "created"):
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(table, table_bytes(columns))
    run = out / "run"
    console.print(escape(f"$ sgpmic fit {table} -k 3 --id flower --label species --out {run}"))
    fit(table, clusters="3", out=run, ids=["flower"], label="species", seed=seed, force=True)
    report = run / "report.html"
    console.print(
        escape(f"Now open {report} in a browser, or try:\n$ sgpmic predict {run} {table}")
    )
