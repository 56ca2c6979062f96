"""Output of a fit: labels, model, report, run record, and terminal output."""

from __future__ import annotations

import copy
import csv
import io
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.table import Table as ScreenTable

import sgpmic
from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import percent
from sgpmic.cli.options import console, note
from sgpmic.cli.processes import CommandJob
from sgpmic.storage.model_file import replacing, write_bytes
from sgpmic.storage.run_folder import RunFolder
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.report.content import RunContent
    from sgpmic.report.explanations import Explanation
    from sgpmic.report.statistics import Sizes
    from sgpmic.tables.dataset import Table


class Rows(NamedTuple):
    """Consecutive rows of a file, some of which may be empty."""

    ids: list[str] | None
    id_name: str | None
    first: int  # the number of rows before these
    empty: Bools  # mask of rows without a value in any column that is used

    def names(self, which: Bools) -> list[str]:
        """Return the ids of the selected rows, or their numbers in the file."""
        places = np.flatnonzero(which)
        return [str(self.first + i + 1) if self.ids is None else self.ids[i] for i in places]

    def columns(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to write; ``answers`` are for all rows or for the non-empty ones."""
        n_rows = len(self.empty)
        if self.ids is None:
            names: dict[str, Any] = {"row": np.arange(n_rows) + self.first + 1}
        else:
            clash = not self.id_name or self.id_name in answers
            names = {"id" if clash else str(self.id_name): self.ids}
        if not self.empty.any():
            return names | answers
        for name, cells in answers.items():
            known = np.asarray(cells)
            names[name] = np.full(n_rows, "", dtype=object)
            names[name][~self.empty] = known if len(known) < n_rows else known[~self.empty]
        return names


@dataclass
class Fit:
    """State of one run of the fit command."""

    job: CommandJob  # the participating processes
    folder: RunFolder
    data: Table  # this process's rows
    rows: Rows  # the same, including empty rows
    model: SGPMIC
    #: Options other than the model's parameters: ``table`` and its ``fingerprint``, ``device`` and
    #: ``as_published``.
    options: dict[str, Any]
    seconds: dict[str, float]  # duration of every step
    notes: list[str]  # warnings about the result
    sizes: Sizes | None = None  # of the clusters, over all processes
    comparison: dict[str, Any] | None = None  # the clusters compared with the label
    explanations: list[Explanation] = field(default_factory=list)  # only in the first process


def write_results(fit: Fit) -> None:
    """Write all results; ``run.json`` last, since it marks the run as complete.

    With several processes, each writes the labels of its own rows; the first one writes the rest,
    with a report that shows a sample of all rows.
    """
    from sgpmic.report import content_from_model
    from sgpmic.report.explanations import explain
    from sgpmic.report.statistics import cluster_sizes

    job, own, folder = fit.job, fit.model, fit.folder
    began = time.perf_counter()
    n_rows, fit.sizes = job.group.n_rows, cluster_sizes(own.memberships_, job.group.total)
    own.encoder_ = fit.data.encoder
    if own.encoder_ is None:
        own.feature_names_in_ = np.array(fit.data.names, dtype=object)
    model, data = _sample(fit)
    if job.is_first:
        content = content_from_model(model, data.values)
        fit.explanations = explain(content)
    names = json.loads(job.tell_all(json.dumps([found.name for found in fit.explanations]))[0])
    answers = model_columns(own.labels_, own.memberships_, own.embedding_, names)
    target = folder.new.labels
    parts = [target.with_name(f".labels-{number:06d}.part") for number in range(job.n_processes)]
    write_bytes(parts[job.process], table_bytes(fit.rows.columns(answers), header=job.is_first))
    job.group.wait("labels are written")
    if len(data.values) < n_rows:
        fit.notes.append(f"The report shows {len(data.values)} of the {n_rows} rows.")
    if not job.is_first:
        return
    with replacing(target) as whole:
        for part in parts:
            whole.write(part.read_bytes())
            part.unlink()
    unusual_below = model.unusual_below_
    fit.seconds["describing clusters, computing densities"] = time.perf_counter() - began
    fit.comparison = _compare(model.labels_, model.n_clusters_, data)
    record = _record(fit, n_rows) | {"unusual_below": unusual_below}
    model.save(folder.new.model)
    write_report(
        folder.new.report, content, data, record, fit.rows.empty, explanations=fit.explanations
    )
    folder.finish(record)


def _sample(fit: Fit) -> tuple[SGPMIC, Table]:
    """Return model and data for the report: a sample over all processes, or all rows if alone."""
    group, model, data = fit.job.group, fit.model, fit.data
    if fit.job.is_alone:
        return model, data
    from sgpmic.learning.preprocessing import sample_numbers

    def texts_at(own: list[str] | None) -> list[str] | None:
        if own is None:
            return None
        mine = [own[i] for i in numbers - group.first if 0 <= i < group.n_own]
        return [text for told in fit.job.tell_all(json.dumps(mine)) for text in json.loads(told)]

    numbers = sample_numbers(group.n_rows)
    shown = copy.copy(model)
    arrays = (model.embedding_, model.memberships_, data.values)
    shown.embedding_, shown.memberships_, values = (group.rows_at(a, numbers) for a in arrays)
    shown.labels_ = shown.memberships_.argmax(axis=1)
    labels = texts_at(data.labels)
    return shown, replace(data, values=values, ids=texts_at(data.ids), labels=labels)


def _compare(labels: Ints, n_clusters: int, data: Table) -> dict[str, Any] | None:
    from sgpmic.report.statistics import Confusion, compare_labels

    found = compare_labels(labels, data.labels, n_clusters)
    if found is None or data.labels is None:
        return None
    label = {"label": data.label_name, "rows_without_label": data.labels.count("")}
    if isinstance(found, Confusion):
        return label | {"adjusted_rand_index": found.ari, "purity": found.purity}
    eta = float(found.eta_squared)
    return label | {"eta_squared": eta if np.isfinite(eta) else None}  # JSON has no NaN


def _record(fit: Fit, n_rows: int) -> dict[str, Any]:
    model, data, options = fit.model, fit.data, fit.options
    ignored = {"em__callbacks", "computation__checkpoint", "verbose"}
    settings = {
        name: value
        for name, value in model.get_params().items()
        if name not in ignored and isinstance(value, str | int | float | None)
    }
    names = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "pyarrow")
    return {
        "table": options["table"],
        "data": {
            "rows": n_rows,
            "features": list(data.names),
            "id": data.id_name,
            "label": data.label_name,
            "fingerprint": options["fingerprint"],
        },
        "columns": data.columns,
        "settings": settings | {"as_published": options["as_published"]},
        "device": options["device"],
        "scaling": model.scaler_.kind,
        "result": {
            "bound": model.lower_bound_,
            "iterations": model.n_iter_,
            "converged": bool(model.converged_),
            "clusters": model.n_clusters_,
            "components": model.n_components_,
            "support": model.cluster_tendency_ and asdict(model.cluster_tendency_),
            "number_of_clusters": model._number_of_clusters,
            "number_of_dimensions": model.number_of_dimensions_,
            "committee": model._committee,
            "sizes": fit.sizes and fit.sizes.counts.tolist(),
            "comparison": fit.comparison,
            "profiles": [found.as_dict() for found in fit.explanations],
        },
        "warnings": fit.notes,
        "seconds": {name: round(value, 3) for name, value in fit.seconds.items()},
        "versions": {
            "sgpmic": sgpmic.__version__,  # may run from a source tree without being installed
            **{name: version(name) for name in names},
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def write_report(
    path: Path,
    content: RunContent,
    data: Table,
    record: dict[str, Any],
    empty: Bools,
    *,
    table: str | Path | None = None,
    explanations: list[Explanation] | None = None,
) -> None:
    """Write the report to ``path``; ``content`` is the model's part of it.

    ``empty`` is the mask of the file's rows that are not in the data, ``table`` its current path.
    """
    from sgpmic.report import render_report
    from sgpmic.tables.dataset import read_texts

    texts = {}
    if len(data.values) == record["data"]["rows"]:  # not a sample
        for name, words in read_texts(table or record["table"], record["columns"]).items():
            if name == data.id_name:
                continue
            if len(words) == len(empty):
                words = [words[row] for row in np.flatnonzero(~empty)]
            if len(words) == len(data.values):  # other processes may have empty rows
                texts[name] = words
    # Rows without ids keep their row numbers in the file.
    numbers = Rows(None, None, 0, empty).names(~empty) if empty.any() else None
    name = record["table"].replace("\\", "/").rsplit("/", 1)[-1]
    content = replace(
        content,
        # File names may not be valid Unicode.
        title=name.encode("utf-8", "backslashreplace").decode(),
        columns=record["columns"],
        ids=data.ids or numbers,
        texts=texts,
        given_labels=data.labels,
        label_name=data.label_name or "",
        settings={k: v for k, v in record["settings"].items() if v is not None},
        warnings=record["warnings"],
        times=record["seconds"],
        versions=record["versions"],
    )
    write_bytes(path, render_report(content, explanations=explanations).encode())


def model_columns(
    labels: Ints, memberships: Floats, embedding: Floats, names: Sequence[str]
) -> dict[str, Any]:
    """Return the output columns for fitted or new rows; ``names`` are those of the clusters."""
    return {
        "cluster": labels,
        **({"cluster_name": [names[m] if m >= 0 else "" for m in labels]} if names else {}),
        "certainty": memberships.max(axis=1),
        **{f"membership_{m}": memberships[:, m] for m in range(memberships.shape[1])},
        **{f"latent_{q + 1}": embedding[:, q] for q in range(embedding.shape[1])},
    }


MOST_SHOWN = 30
_LONGEST = 44


def show_columns(data: Table, most: int = MOST_SHOWN) -> None:
    """Print how every column is encoded, up to ``most`` of them, and warnings about columns."""
    from sgpmic.tables.columns import kind_words

    names = ("column", "kind", "range or levels", "missing", "encoded as")
    headers = (Column(name, overflow="fold") for name in names)
    screen = ScreenTable(*headers, title="Columns", title_justify="left")
    for column in data.columns[:most]:
        n_missing = column["n_missing"] or 0
        share = f"{n_missing} ({percent(n_missing / max(column['n_rows'], 1))})"
        name, kind, summary = column["name"], kind_words(column["kind"]), column["summary"]
        cells = (_short(name), kind, _short(summary), share if n_missing else "", column["becomes"])
        screen.add_row(*map(escape, cells))
    console.print(screen)
    more = len(data.columns) - most
    if more > 0:
        console.print(f"… and {more} more, all in run.json.")
    if data.judged_by is not None:
        console.print(f"Column kinds were inferred from a sample of {data.judged_by} rows.")
    for column in [column for column in data.columns if column["warning"]][:most]:
        note(f"column {_short(column['name'])}: {column['warning']}.")


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and the location of the results."""
    from sgpmic.report.explanations import print_summary
    from sgpmic.report.words import unlabeled

    print_summary(fit.model, fit.explanations, console, sizes=fit.sizes, notes=fit.notes)
    if (found := fit.comparison) is not None and "purity" in found and fit.job.is_alone:
        left_out = unlabeled(found["rows_without_label"])
        console.print(
            f"Agreement with {escape(str(found['label']))}, which was not used: adjusted Rand "
            f"index {found['adjusted_rand_index']:z.2f}. {left_out}".removesuffix(". ")
        )
    for sentence in fit.notes:
        note(sentence)
    path = escape(str(fit.folder.path))
    console.print(f"Written to {path}: labels.csv, model.sgpmic, report.html, run.json")


class FitDisplay(Progress):
    """Progress bar of a fit, fed by callbacks (:class:`sgpmic.Progress`) and announcements."""

    def __init__(self, max_iter: int, n_starts: int) -> None:
        line = Column(no_wrap=True, overflow="ellipsis")
        words = TextColumn("{task.description}", markup=False, table_column=line)
        left = TimeRemainingColumn(elapsed_when_finished=True)
        super().__init__(BarColumn(bar_width=16), words, left, console=console)
        self._task, self._bound = self.add_task("starting", total=max_iter * n_starts), ""

    def announce(self, words: str) -> None:
        """Show the current step between iterations."""
        self.update(self._task, description=words + self._bound)

    def show(self, progress: sgpmic.Progress) -> None:
        """Update the display after an iteration."""
        start = f"start {progress.start + 1}/{progress.n_starts}, " if progress.n_starts > 1 else ""
        self._bound = f", bound {progress.bound:.6g}"
        # The total is an upper bound: a start may converge before its last iteration.
        self.update(self._task, completed=progress.start * progress.max_iter + progress.iteration)
        self.announce(f"{start}iteration {progress.iteration}/{progress.max_iter}")

    def finish(self, words: str) -> None:
        """Complete the bar."""
        self.update(self._task, description=f"done: {words}", completed=self.tasks[0].total)


#: Up to this many rows, the standard library writes: Arrow imports pandas if it is installed.
_FEW = 10_000


def table_bytes(columns: Mapping[str, Any], *, header: bool = True) -> bytes:
    """Format columns of equal length as CSV."""
    arrays = [np.asarray(values) for values in columns.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    if len(arrays[0]) <= _FEW:
        writer.writerows(zip(*(array.tolist() for array in arrays), strict=True))
        return text.getvalue().encode()
    import pyarrow as pa
    import pyarrow.csv  # two to three times as fast

    def known(values: NDArray[Any]) -> Any:
        return (
            values
            if values.dtype.kind not in "OU"
            else [None if v == "" else v for v in values.tolist()]
        )

    whole = pa.BufferOutputStream()
    whole.write(text.getvalue().encode())
    table = pa.table([pa.array(known(array)) for array in arrays], names=list(columns))
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    pyarrow.csv.write_csv(table, whole, options)
    return bytes(whole.getvalue())
