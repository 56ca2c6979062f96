"""``sgpmic fit`` and ``sgpmic demo``: from a table to clusters, a model and a report.

In one or several processes: which one prints and writes, and how all end together.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import typer
from rich.markup import escape

from sgpmic.cli import options as opt
from sgpmic.cli import results
from sgpmic.cli.dry_run import show_expectation
from sgpmic.cli.options import console, fail
from sgpmic.cli.results import Fit, FitDisplay, Rows, table_bytes, write_results
from sgpmic.jobs import Job, JobError, find_job, initialize, launch, supervised, together
from sgpmic.jobs.job import REFUSED, divert_runtime_output, is_loss, terminated_as_interrupted
from sgpmic.storage.model_file import replacing, write_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.process_group import ProcessGroup
    from sgpmic.tables.dataset import ColumnOptions, EncodedTable

_T = TypeVar("_T")


def fit(
    table: opt.TablePath,
    clusters: opt.Clusters = "auto",
    dims: opt.Dimensions = "2",
    out: opt.OutFolder = Path("run"),
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    id_column: opt.IdColumns = None,
    label_column: opt.LabelColumn = None,
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
        console.print(
            "--batch has no effect any more and will be removed: every round passes over all rows."
        )
    parameters = {
        "n_clusters": opt.clusters(clusters),
        "n_components": opt.dimensions(dims),
        "kernel": kernel,
        "latent": latent,
        "n_inducing": inducing,
        "start__n_init": starts,
        "random_state": seed,
        **({} if rounds is None else {"max_iter": rounds}),
        **({} if scale is None else {"scale": scale}),
        **({} if committee else {"committee": None}),
    }
    asked = ColumnOptions(
        columns, drop, id_column, label_column, number, category, ordered, date, log
    )
    # Everything is looked at before anything is changed: a slip must not cost the results of an
    # earlier run.
    began, folder = time.perf_counter(), RunFolder(out)
    data, rows = _read(job, table, asked, folder)
    results.show_columns(data, len(data.columns) if dry_run else results.MOST_SHOWN)
    if data.is_mixed:
        # The encoder has brought all columns to one unit already.
        parameters.setdefault("scale", "one")
    model = job.do(lambda: _make_model(parameters, as_published, job))
    if dry_run:
        show_expectation(model, *data.values.shape)
        return job.group.wait("all is said")
    model.set_params(computation__checkpoint_every=checkpoint_every)
    options = {"as_published": as_published, "device": device, "table": str(table.resolve())}
    seconds = {"reading": time.perf_counter() - began}
    this = Fit(job, folder, data, rows, model, options, seconds, list(data.notes))
    _learn_and_write(this, parameters, force=force, resume=resume)


def _read(
    job: CommandJob, table: Path, asked: ColumnOptions, folder: RunFolder
) -> tuple[EncodedTable, Rows]:
    """Return this process's rows with a value, and the names of all.

    Where several processes share a table the first one decides what its columns are, and tells the
    others.
    """
    from sgpmic.tables.dataset import Dataset, FittedColumns, without_empty_rows

    def check() -> None:
        if folder.would_overwrite(table):
            raise RunFolderError(f"{table} would be overwritten by the results; move it first.")

    dataset = job.do(lambda: Dataset(table, asked))
    told = job.do(lambda: dataset.fit_columns().to_json() if job.is_first else "")
    fitted = FittedColumns.from_json(told if job.is_alone else job.tell(told))
    everything = job.do(lambda: dataset.read(fitted, job.share))
    job.do(check)
    data, empty = job.do(lambda: without_empty_rows(everything))
    rows = Rows(everything.ids, everything.id_name, everything.first_row, empty)
    job.do(lambda: job.meet(data.values))
    if n_empty := int(job.group.total(np.float64(empty.sum()))):
        # The names keep the numbers that rows have in the file.
        notes = (*data.notes, rows.note(n_empty))
        data = replace(data, ids=rows.names(~empty), notes=notes)
    if data.columns[0]["name"] == "feature_1" and table.suffix not in (".npy", ".npz"):
        console.print(
            "No header was found: the first line is a row; columns are named feature_1, …"
        )
    return data, rows


def _make_model(parameters: dict[str, Any], as_published: bool, job: CommandJob) -> SGPMIC:
    """Return the estimator, or raise for what would make it fail later."""
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
    """Say that nothing is left to do, unless something else is asked for than was done."""
    folder.tidy()
    record = folder.read_record()
    for name, value in {**parameters, "as_published": options["as_published"]}.items():
        if record["settings"].get(name) != value:
            option, before = opt.OPTIONS.get(name, name), record["settings"].get(name)
            raise RunFolderError(
                f"{folder.path} holds a finished run with other settings ({option} {before}, not "
                f"{value}); name another folder with --out, or start again with --force."
            )
    if record["data"]["fingerprint"] != options["fingerprint"]:
        raise RunFolderError(
            f"{folder.path} holds a finished run on other data; name another folder with --out."
        )
    console.print(f"{escape(str(folder.path))} is finished; nothing is left to do.")


def _learn_and_write(this: Fit, parameters: dict[str, Any], *, force: bool, resume: bool) -> None:
    """Fit, unless a run that is resumed turns out to be finished."""
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
                with console.status("Judging densities, writing results"):
                    write_results(this)
        except OSError as error:
            raise fail(
                f"The results cannot be written to {folder.path}: {error.strerror or error}. What "
                "was learned is kept; free some space and run the same command with --resume."
            ) from None
        except KeyboardInterrupt:
            if not folder.has_checkpoint:
                raise fail("Stopped before the first checkpoint; nothing was kept.", 130) from None
            raise fail(
                "Stopped. What was learned is kept; resume with the same command and --resume.", 130
            ) from None
        else:
            job.do(lambda: results.show_summary(this))
        finally:
            if job.is_first:
                folder.leave()
    job.group.wait("all is done")


def _learn(this: Fit, callbacks: list[Callable[[object], None]]) -> None:
    """Fit with a live display, and note what the model warned of.

    ``callbacks`` end it where another process is lost or stuck.
    """
    from sgpmic._runtime import listening
    from sgpmic.exceptions import collected_warnings
    from sgpmic.process_group import SharedTable

    job, model = this.job, this.model
    display = FitDisplay(model.max_iter, model.start.n_init)
    try:
        with display, listening(display.announce), collected_warnings() as said:
            model.set_params(em__callbacks=[*callbacks, display.show])
            began = time.perf_counter()
            model.fit(SharedTable(this.data.values, job.group))
            this.seconds["learning"] = time.perf_counter() - began
            display.finish(f"{model.n_iter_} rounds, bound {model.lower_bound_:.2f}")
    except OSError as error:
        raise fail(
            f"The checkpoint {this.folder.checkpoint} cannot be written: {error.strerror or error}."
        ) from None
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
    if out.exists() and not out.is_dir():
        raise fail(f"{out} is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise fail(f"{out} is not empty; name another folder with --out, or add --force.")
    table = out / "iris.csv"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_iris(table)
    except OSError as error:
        raise fail(f"The folder {out} cannot be created: {error.strerror}.") from None
    console.print(
        f"$ sgpmic fit {escape(str(table))} -k 3 --scale one --id flower --label "
        f"species --out {escape(str(out / 'run'))}"
    )
    fit(
        table,
        clusters="3",
        out=out / "run",
        id_column=["flower"],
        label_column="species",
        scale="one",  # lengths of one flower
        seed=seed,
        force=True,
    )
    console.print(
        f"Now open {escape(str(out / 'run' / 'report.html'))} in a browser, or try:\n"
        f"$ sgpmic predict {escape(str(out / 'run'))} {escape(str(table))}"
    )


def _write_iris(path: Path) -> None:
    from sklearn.datasets import load_iris

    iris = load_iris()
    columns = {"flower": [f"flower {number + 1}" for number in range(len(iris.data))]}
    for name, cells in zip(iris.feature_names, iris.data.T, strict=True):
        columns[name.removesuffix(" (cm)")] = cells.tolist()
    columns["species"] = iris.target_names[iris.target].tolist()
    write_bytes(path, table_bytes(columns))


def join_job(processes: int, device: str) -> CommandJob:
    """Join the job this process was started in; or start as many processes as are asked for.

    They run this command again; the process that started them ends with them.
    """
    opt.name_device(device)
    try:
        found = find_job(os.environ)
        is_alone = found is not None and found.n_processes == 1
        if processes > 1 and is_alone:
            start = "from sgpmic.cli.startup import main; main()"
            command = [sys.executable, "-P", "-c", start, *sys.argv[1:]]
            raise typer.Exit(launch(command, processes))
        if not is_alone:
            divert_runtime_output()
            opt.prepare_process()  # other streams now
        job = CommandJob(initialize())
    except JobError as error:
        raise fail(str(error), error.code) from None
    except OSError as error:  # no place for the log, or the system starts no more processes
        raise fail(f"The processes cannot be started: {error.strerror or error}.") from None
    console.quiet = not job.is_first
    job.do(lambda: opt.check_device(device))
    return job


class CommandJob:
    """The processes that run a command together, of which this is one; or the only one."""

    group: ProcessGroup  # who has which rows; known after `meet`

    def __init__(self, job: Job) -> None:
        self._job = job
        self.share = (job.process, job.n_processes)
        self.n_processes = job.n_processes
        self.is_alone = job.n_processes == 1
        self.is_first = job.process == 0

    def do(self, step: Callable[[], _T]) -> _T:
        """Take a step that can fail in any process; all end where one of them fails.

        ``step`` raises ValueError, TypeError or OSError with a sentence for the user.
        """
        with together(self.n_processes):
            result: Any = None
            sentence = ""
            try:
                result = step()
            except (ValueError, TypeError, OSError) as error:
                if is_loss(error):
                    raise
                sentence = " ".join(str(error).split()) or type(error).__name__
            failed = self._gather(np.array([sentence != ""]))[:, 0]
            # One sentence is enough where all have the same complaint.
            if sentence and np.argmax(failed) == self._job.process:
                fail(sentence)
            if failed.any():
                self._gather(np.zeros(1))  # wait until it is said
                raise typer.Exit(REFUSED)
            return result

    def _gather(self, own: np.ndarray) -> np.ndarray:
        if self.is_alone:  # no need to import JAX, only to say that a table is not there
            return own[None]
        from sgpmic.process_group import gathered

        return gathered(own)

    def tell(self, text: str) -> str:
        """Return the first process's text to all of them; others may give anything."""
        own = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        length = int(self._gather(np.array([len(own)]))[0, 0])
        # Only numbers of one shape travel between processes.
        padded = np.zeros(length, np.int64)
        padded[: min(len(own), length)] = own[:length]
        return self._gather(padded)[0].astype(np.uint8).tobytes().decode()

    def meet(self, values: np.ndarray) -> None:
        """Find out which process has which rows; ``values`` are those of this one."""
        from sgpmic.process_group import ProcessGroup

        self.group = ProcessGroup(len(values))

    def write_labels(self, folder: RunFolder, columns: dict[str, Any]) -> None:
        """Write every process's part of ``labels.csv``, and join them."""
        name = folder.new.labels.with_name
        parts = [name(f".labels-{number:06d}.part") for number in range(self.n_processes)]
        write_bytes(parts[self._job.process], table_bytes(columns, header=self.is_first))
        self.group.wait("labels are written")
        if not self.is_first:
            return
        with replacing(folder.new.labels) as whole:
            for part in parts:
                whole.write(part.read_bytes())
                part.unlink()

    def sample(self, model: SGPMIC, data: EncodedTable) -> tuple[SGPMIC, EncodedTable]:
        """Return what the report shows: a sample of all processes' rows, or all of this one's."""
        if self.is_alone:
            return model, data
        from sgpmic.learning.preprocessing import sample_numbers

        numbers = sample_numbers(self.group.n_rows)
        shown = copy.copy(model)
        shown.embedding_, shown.memberships_, values = (
            self.group.rows_at(own, numbers)
            for own in (model.embedding_, model.memberships_, data.values)
        )
        shown.labels_ = shown.memberships_.argmax(axis=1)
        ids, labels = (self._texts_at(own, numbers) for own in (data.ids, data.labels))
        return shown, replace(data, values=values, ids=ids, labels=labels)

    def _texts_at(self, own: list[str] | None, numbers: np.ndarray) -> list[str] | None:
        """Return texts of some rows. Only numbers travel between processes, so as code points."""
        if own is None:
            return None
        width = int(self.group.largest(float(max(map(len, own)))))
        letters = np.array(own, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(own), -1)
        found = np.ascontiguousarray(self.group.rows_at(letters, numbers).astype(np.uint32))
        return found.view(f"U{found.shape[1]}")[:, 0].tolist()
