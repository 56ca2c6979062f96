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
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as ScreenTable

import sgpmic
from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import duration, percent, plural
from sgpmic.cli.options import console, note
from sgpmic.cli.processes import CommandJob
from sgpmic.storage.model_file import replacing, write_bytes
from sgpmic.storage.run_folder import RunFolder
from sgpmic.tables.errors import list_names, shortened

if TYPE_CHECKING:
    import pyarrow as pa

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

    def note(self, n_empty: int) -> str:
        """Return the note about empty rows; other processes may have more of them."""
        names = self.names(self.empty)
        listed = f" ({list_names(names)})" if len(names) == n_empty else ""
        rows = plural(n_empty, "row")
        return f"{rows}{listed} without a value in any column that is used: no cluster."

    def columns(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to write; ``answers`` are for all rows or for the non-empty ones."""
        n_rows = len(self.empty)
        if self.ids is None:
            names: dict[str, Any] = {"row": np.arange(n_rows) + self.first + 1}
        else:
            clash = self.id_name in _OURS or str(self.id_name).startswith(_OUR_PREFIXES)
            names = {"id" if clash or not self.id_name else self.id_name: self.ids}
        if not self.empty.any():
            return names | answers
        for name, cells in answers.items():
            known = np.asarray(cells)
            names[name] = np.full(n_rows, "", dtype=object)
            names[name][~self.empty] = known if len(known) < n_rows else known[~self.empty]
        return names


# Reserved column names, which the id column must not have.
_OURS = ("cluster", "cluster_name", "certainty", "log_density", "unusual")
_OUR_PREFIXES = ("membership_", "latent_")


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
    names = json.loads(job.tell(json.dumps([found.name for found in fit.explanations])))
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
        """Gather texts of sampled rows, as code points: processes exchange only numbers."""
        if own is None:
            return None
        width = int(group.largest(float(max(map(len, own)))))
        letters = np.array(own, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(own), -1)
        found = np.ascontiguousarray(group.rows_at(letters, numbers).astype(np.uint32))
        return found.view(f"U{found.shape[1]}")[:, 0].tolist()

    numbers = sample_numbers(group.n_rows)
    shown = copy.copy(model)
    arrays = (model.embedding_, model.memberships_, data.values)
    shown.embedding_, shown.memberships_, values = (group.rows_at(a, numbers) for a in arrays)
    shown.labels_ = shown.memberships_.argmax(axis=1)
    labels = texts_at(data.labels)
    return shown, replace(data, values=values, ids=texts_at(data.ids), labels=labels)


def _compare(labels: Ints, n_clusters: int, data: Table) -> dict[str, Any] | None:
    from sgpmic.report.statistics import Confusion, compare_labels

    def plain(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None  # JSON has no NaN

    found = compare_labels(labels, data.labels, n_clusters)
    if found is None or data.labels is None:
        return None
    label = {"label": data.label_name, "rows_without_label": data.labels.count("")}
    if isinstance(found, Confusion):
        return label | {"kind": "classes", "adjusted_rand_index": found.ari, "purity": found.purity}
    return label | {
        "kind": "continuous",
        "eta_squared": plain(found.eta_squared),
        "clusters": [
            {"rows": int(count), "mean": plain(mean), "standard_deviation": plain(deviation)}
            for count, mean, deviation in zip(*found[:3], strict=True)
        ],
    }


def _record(fit: Fit, n_rows: int) -> dict[str, Any]:
    model, data, options = fit.model, fit.data, fit.options
    ignored = {"em__callbacks", "computation__checkpoint", "start__warm_start", "verbose"}
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
_MOST_WARNINGS = 20
_LONGEST = 44
_MOST_SIZES = 8

# Widths in characters: of the bar, shown on wide terminals only, and of the elapsed time.
_BAR, _TIME = 16, 8
_ROOM_FOR_BAR = 70


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
    warned = [column for column in data.columns if column["warning"]]
    for column in warned[:_MOST_WARNINGS]:
        note(f"column {_short(column['name'])}: {column['warning']}.")
    if len(warned) > _MOST_WARNINGS:
        console.print(f"… and {len(warned) - _MOST_WARNINGS} more such notes, all in run.json.")


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and the location of the results."""
    from sgpmic.report.explanations import print_summary

    print_summary(fit.model, fit.explanations, console, sizes=fit.sizes, notes=fit.notes)
    if fit.comparison is not None and fit.job.is_alone:
        _show_comparison(fit.comparison)
    for sentence in fit.notes:
        note(sentence)
    path = escape(str(fit.folder.path))
    console.print(f"Written to {path}: labels.csv, model.sgpmic, report.html, run.json")


def _show_comparison(comparison: dict[str, Any]) -> None:
    from sgpmic.report.words import unlabeled

    label, left_out = escape(str(comparison["label"])), unlabeled(comparison["rows_without_label"])
    if comparison["kind"] == "classes":
        console.print(
            f"Agreement with {label}, which was not used: adjusted Rand index "
            f"{comparison['adjusted_rand_index']:z.2f}. {left_out}".removesuffix(". ")
        )
        return
    eta = comparison["eta_squared"]
    console.print(
        f"{label} is continuous, so it is not compared as classes; the clusters explain "
        f"{'nothing' if eta is None else f'{eta:.2f}'} of its variance (eta²). {left_out}".strip()
    )
    names = ("cluster", f"mean {label}", "standard deviation")
    screen = ScreenTable(*(Column(name, justify="right") for name in names))
    for m, summary in enumerate(comparison["clusters"]):
        numbers = (summary["mean"], summary["standard_deviation"])
        screen.add_row(str(m), *("–" if number is None else f"{number:.4g}" for number in numbers))
    console.print(screen)


class FitDisplay(Progress):
    """Progress bar of a fit, fed by callbacks (:class:`sgpmic.Progress`) and announcements."""

    def __init__(self, max_iter: int, n_starts: int) -> None:
        line = Column(no_wrap=True, overflow="ellipsis")
        words = TextColumn("{task.description}", markup=False, table_column=line)
        bar = [BarColumn(bar_width=_BAR)] if console.width >= _ROOM_FOR_BAR else []
        self._room = console.width - _TIME - len(bar) * (_BAR + 1)
        super().__init__(*bar, words, TimeElapsedColumn(), console=console)
        self._task, self._bound = self.add_task("", total=max_iter * n_starts), ""
        self._say(["starting"])

    def _say(self, parts: Sequence[str], **more: Any) -> None:
        words = shortened(", ".join(filter(None, parts)), self._room)
        self.update(self._task, description=words, **more)

    def announce(self, words: str) -> None:
        """Show the current step between iterations."""
        self._say([words, self._bound])

    def show(self, progress: sgpmic.Progress) -> None:
        """Update the display after an iteration."""
        total = progress.max_iter * progress.n_starts
        done = progress.start * progress.max_iter + progress.iteration
        # An upper bound: a start may converge before its last iteration.
        left = (total - done) * progress.seconds / progress.iteration
        sizes = [f"{size:.0f}" for size in progress.cluster_sizes[:_MOST_SIZES]]
        more = " …" if len(progress.cluster_sizes) > _MOST_SIZES else ""
        start = f"start {progress.start + 1}/{progress.n_starts}, " if progress.n_starts > 1 else ""
        self._bound = f"bound {progress.bound:.6g}"
        parts = [
            f"{start}iteration {progress.iteration}/{progress.max_iter}",
            self._bound,
            f"at most {duration(left)} left" if left > 0 else "",
            "" if progress.change == float("inf") else f"change {progress.change:.0e}",
            f"sizes {' · '.join(sizes)}{more}",
        ]
        self._say(parts, total=total, completed=done)

    def finish(self, words: str) -> None:
        """Complete the bar."""
        self._say([f"done: {words}"], completed=self.tasks[0].total)


#: Rows formatted at a time: an Arrow string array holds at most 2 GiB.
_PART = 65_536
#: Up to this many rows, the standard library's CSV writer is used.
_FEW = 10_000


def table_bytes(columns: Mapping[str, Any], *, header: bool = True) -> bytes:
    """Format columns of equal length as CSV, with numbers as in Python's ``repr``."""
    arrays = [np.asarray(values) for values in columns.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    if len(arrays[0]) <= _FEW:
        writer.writerows(zip(*(array.tolist() for array in arrays), strict=True))
        return text.getvalue().encode()
    import pyarrow.compute as pc  # more than twice as fast, but imports pandas if installed

    lines = []
    for first in range(0, len(arrays[0]), _PART):
        cells = [_texts(array[first : first + _PART]) for array in arrays]
        lines += pc.binary_join_element_wise(*cells, ",").to_pylist()
    return text.getvalue().encode() + "".join(f"{line}\n" for line in lines).encode()


def _texts(values: NDArray[Any]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.dtype.kind == "f":
        texts = pc.cast(pa.array(values), pa.string())
        size = np.abs(values)
        # Arrow formats these differently from Python: whole numbers without a point, 1e-7 for
        # 1e-07, 0.00001 for 1e-05, 1e+10 for 10000000000.0.
        others = ((size >= 9e-10) & (size < 1e-4)) | ~(size < 1e9) | (np.floor(size) == size)
        theirs = pa.array(map(repr, values[others].tolist()), pa.string())
        return pc.replace_with_mask(texts, others, theirs)
    if values.dtype.kind in "iu":
        return pc.cast(pa.array(values), pa.string())
    texts = pa.array(map(str, values.tolist()), pa.string())
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(texts, '[",\r\n]'), quoted, texts)
