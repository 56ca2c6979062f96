"""What a fit leaves behind: labels, model, report, and the record of the run."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import sgpmic
from sgpmic._types import Bools, Floats, Ints
from sgpmic.storage.outputs import write_bytes
from sgpmic.storage.run_folder import RunFolder
from sgpmic.tables.errors import list_names

if TYPE_CHECKING:
    from sgpmic.cli.job import CommandJob
    from sgpmic.estimator import SGPMIC
    from sgpmic.report.explanations import Explanation
    from sgpmic.report.statistics import Sizes
    from sgpmic.tables.dataset import EncodedTable
    from sgpmic.tables.reader import Table


class Rows(NamedTuple):
    """The rows of a file, or some consecutive ones, of which some may be empty."""

    ids: list[str] | None  # what they are called
    id_name: str | None
    first: int  # the number of rows before
    empty: Bools  # which have no value in any column that is used

    def names(self, which: Bools) -> list[str]:
        """Return what some rows are called: by their numbers where they have no names."""
        places = np.flatnonzero(which)
        return [str(self.first + i + 1) if self.ids is None else self.ids[i] for i in places]

    def note(self, n_empty: int) -> str:
        """Return what is said about empty rows; there may be more in other processes."""
        names = self.names(self.empty)
        listed = f" ({list_names(names)})" if len(names) == n_empty else ""
        subject, verbs = ("row", "has") if n_empty == 1 else ("rows", "have")
        return (
            f"{n_empty} {subject}{listed} {verbs} no value in any column that is used: set aside, "
            "without a cluster."
        )

    def columns(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to write: names, and the answers for rows that are not empty.

        ``answers`` are of all rows, or of those.
        """
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


# Columns that a row's name must not be taken for.
_OURS = ("cluster", "cluster_name", "certainty", "log_density", "unusual")
_OUR_PREFIXES = ("membership_", "latent_")


@dataclass
class Fit:
    """A fit of a table, and all that belongs to it."""

    job: CommandJob  # the processes that take part
    folder: RunFolder
    data: EncodedTable  # this process's rows
    rows: Rows  # the same and those that are empty
    model: SGPMIC
    #: What was asked for besides the model's parameters: ``table`` and its ``fingerprint``,
    #: ``device`` and ``as_published``.
    options: dict[str, Any]
    seconds: dict[str, float]  # what took how long
    notes: list[str]  # what the user should know about the result
    sizes: Sizes | None = None  # of the clusters, over all processes
    comparison: dict[str, Any] | None = None  # the clusters compared with the label
    explanations: list[Explanation] = field(default_factory=list)  # known to the first process


def write_results(fit: Fit) -> None:
    """Write everything; ``run.json`` last, since it says that the rest is there.

    Of several processes each writes the labels of its rows, and the first one the rest, with a
    report that shows a sample of all rows.
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
    model, data = job.sample(own, fit.data)
    if job.is_first:
        fit.explanations = explain(content_from_model(model, data.values, title=""))
    names = json.loads(job.tell(json.dumps([found.name for found in fit.explanations])))
    answers = model_columns(own.labels_, own.memberships_, own.embedding_, names)
    job.write_labels(folder, fit.rows.columns(answers))
    if len(data.values) < n_rows:
        fit.notes.append(f"The report shows {len(data.values)} of the {n_rows} rows.")
    if not job.is_first:
        return
    unusual_below = model.unusual_below_
    fit.seconds["describing clusters, judging densities"] = time.perf_counter() - began
    fit.comparison = _compare(model.labels_, model.n_clusters_, data)
    record = _record(fit, n_rows) | {"unusual_below": unusual_below}
    model.save(folder.new.model)
    write_report(
        folder.new.report, model, data, record, fit.rows.empty, explanations=fit.explanations
    )
    folder.finish(record)


def _compare(labels: Ints, n_clusters: int, data: EncodedTable) -> dict[str, Any] | None:
    """Return the clusters compared with the label: as classes, or as a number."""
    from sgpmic.report.statistics import Confusion, compare_labels

    found = compare_labels(labels, data.labels, n_clusters)
    if found is None:
        return None
    label = {"label": data.label_name}
    if isinstance(found, Confusion):
        agreement = {"adjusted_rand_index": found.ari, "purity": found.purity}
        return label | {"kind": "classes"} | agreement
    return label | {
        "kind": "continuous",
        "eta_squared": _or_none(found.eta_squared),
        "clusters": [
            {"rows": int(count), "mean": _or_none(mean), "standard_deviation": _or_none(deviation)}
            for count, mean, deviation in zip(*found[:3], strict=True)
        ],
    }


def _or_none(value: float) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return float(value) if np.isfinite(value) else None


def _record(fit: Fit, n_rows: int) -> dict[str, Any]:
    model, data, options = fit.model, fit.data, fit.options
    ignored = {"em__callbacks", "computation__checkpoint", "start__warm_start", "verbose"}
    plain = (str, bool, int, float, type(None))
    settings = {
        name: value
        for name, value in model.get_params().items()
        if name not in ignored and isinstance(value, plain)
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
            "rounds": model.n_iter_,
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
            "sgpmic": sgpmic.__version__,  # it may run from a folder without being installed
            **{name: version(name) for name in names},
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def write_report(
    path: Path,
    model: SGPMIC,
    data: Table,
    record: dict[str, Any],
    empty: Bools,
    *,
    table: str | Path | None = None,
    explanations: list[Explanation] | None = None,
) -> None:
    """Write the report to ``path``.

    ``empty`` says which rows of the file are not among the data, ``table`` where it is now, and
    ``explanations`` are those of the clusters, if known.
    """
    from sgpmic.report import content_from_model, render_report
    from sgpmic.tables.dataset import read_texts

    texts = {}
    if len(data.values) == record["data"]["rows"]:  # not a sample
        found = read_texts(table or record["table"], record["columns"])
        found.pop(str(data.id_name), None)
        for name, words in found.items():
            if len(words) == len(empty):
                words = [words[row] for row in np.flatnonzero(~empty)]
            if len(words) == len(data.values):  # other processes may have empty rows
                texts[name] = words
    # Rows without names keep the numbers that they have in the file.
    numbers = Rows(None, None, 0, empty).names(~empty) if empty.any() else None
    name = record["table"].replace("\\", "/").rsplit("/", 1)[-1]
    content = content_from_model(
        model,
        data.values,
        # The name of a file may be no text.
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
    """Return what is said of every row, fitted or new; ``names`` are those of the clusters."""
    return {
        "cluster": labels,
        **({"cluster_name": [names[m] if m >= 0 else "" for m in labels]} if names else {}),
        "certainty": memberships.max(axis=1),
        **{f"membership_{m}": memberships[:, m] for m in range(memberships.shape[1])},
        **{f"latent_{q + 1}": embedding[:, q] for q in range(embedding.shape[1])},
    }
