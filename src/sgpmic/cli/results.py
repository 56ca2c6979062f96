"""What a fit leaves behind: labels, model, report, and the record of the run."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgpmic.storage.outputs import write_bytes
from sgpmic.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from sgpmic.cli.job import CommandJob
    from sgpmic.estimator import SGPMIC
    from sgpmic.learning.predictor import Assessment
    from sgpmic.report.content import RunContent
    from sgpmic.tables.reader import Table

Floats = NDArray[np.float64]

#: A new row is flagged when its density is lower than that of all but this share of the rows
#: that were fitted.
UNUSUAL_SHARE = 0.005

_MOST_ASSESSED = 5_000


def standardized(
    values: Floats, wanted: bool, total: Callable[[Floats], Floats], n_rows: int
) -> tuple[Floats, dict[str, list[float]] | None]:
    """Return the values, standardised if wanted, and what new rows need for the same.

    ``total`` adds up over the processes, which have ``n_rows`` rows together.
    """
    if not wanted:
        return values, None
    means = total(values.sum(axis=0)) / n_rows
    scales = np.sqrt(total(((values - means) ** 2).sum(axis=0)) / n_rows)
    scales = np.where(scales > 0, scales, 1.0)  # a constant feature stays constant
    return (values - means) / scales, {"means": means.tolist(), "scales": scales.tolist()}


def apply_scaling(values: Floats, scaling: dict[str, list[float]] | None) -> Floats:
    """Standardise new rows as the fitted ones were."""
    if scaling is None:
        return values
    scaled: Floats = (values - np.asarray(scaling["means"])) / np.asarray(scaling["scales"])
    return scaled


def write_results(
    folder: RunFolder,
    model: SGPMIC,
    data: Table,
    notes: list[str],
    options: dict[str, Any],
    times: dict[str, float],
    job: CommandJob,
) -> None:
    """Write everything; ``run.json`` last, since it says that the rest is there.

    Of several processes each writes the labels of its rows, and the first one the rest, with a
    report that shows a sample of everybody's.
    """
    columns = {
        **row_names(data.ids, data.id_name, len(data.values), job.group.first),
        **fitted_columns(model),
    }
    n_rows, sizes = job.group.n_rows, job.sizes(model)
    job.write_labels(folder, columns)
    model, data = job.sample(model, data)
    if len(data.values) < n_rows:
        notes.append(f"The report shows {len(data.values)} of the {n_rows} rows.")
    if not job.is_first:
        return
    began = time.perf_counter()
    threshold = density_threshold(model, apply_scaling(data.values, options["scaling"]))
    times |= {
        "learning": float(sum(_last_seconds(model))),
        "judging densities": time.perf_counter() - began,
    }
    record = make_record(model, data, notes, options, times, threshold)
    record["data"]["rows"], record["result"]["sizes"] = n_rows, sizes
    # Set after all that was computed from arrays without names.
    model.feature_names_in_ = np.array(data.names, dtype=object)
    model.save(folder.model)
    write_report(folder, model, data, record)
    folder.write_record(record)


def write_report(folder: RunFolder, model: SGPMIC, data: Table, record: dict[str, Any]) -> None:
    """Write ``report.html``."""
    from sgpmic.report.page import render_report

    write_bytes(folder.report, render_report(report_content(model, data, record)).encode())


def _last_seconds(model: SGPMIC) -> list[float]:
    """Return the seconds each start took."""
    seconds: dict[float, float] = {}
    for start, value in zip(model.history_["start"], model.history_["seconds"], strict=True):
        seconds[start] = value
    return list(seconds.values())


def density_threshold(model: SGPMIC, values: Floats) -> float:
    """Return the log density under which a row is called unlike anything seen.

    From fitted rows, each taken out of the model first: with it, it looks too ordinary.
    """
    if len(values) > _MOST_ASSESSED:
        chosen = np.random.RandomState(0).choice(len(values), _MOST_ASSESSED, replace=False)
        values = values[np.sort(chosen)]
    densities = model._fitted.left_out_log_density(values)
    if len(densities) < len(values):
        # Several processes do not remember each of very many rows; and among so many one alone
        # makes no difference.
        densities = model.score_samples(values)
    return float(np.quantile(densities, UNUSUAL_SHARE))


def row_names(
    ids: list[str] | None, id_name: str | None, n_rows: int, first: int = 0
) -> dict[str, Any]:
    """Return the column that names rows: the user's, or numbers from 1."""
    if ids is None:
        return {"row": np.arange(first + 1, first + n_rows + 1)}
    ours = {"cluster", "certainty", "log_density", "unusual"}
    clash = id_name in ours or str(id_name).startswith(("membership_", "latent_"))
    return {"id" if clash else str(id_name): ids}


def fitted_columns(model: SGPMIC) -> dict[str, Any]:
    """Return what ``labels.csv`` says of the fitted rows."""
    return _columns(model.labels_, model.memberships_, model.embedding_)


def assessed_columns(found: Assessment, threshold: float) -> dict[str, Any]:
    """Return what is said of new rows."""
    columns = _columns(found.labels, found.memberships, found.embedding)
    columns["log_density"] = found.log_density
    columns["unusual"] = (found.log_density < threshold).astype(int)
    return columns


def _columns(labels: NDArray[np.int64], memberships: Floats, embedding: Floats) -> dict[str, Any]:
    return {
        "cluster": labels,
        "certainty": memberships.max(axis=1),
        **{f"membership_{m}": memberships[:, m] for m in range(memberships.shape[1])},
        **{f"latent_{q + 1}": embedding[:, q] for q in range(embedding.shape[1])},
    }


def make_record(
    model: SGPMIC,
    data: Table,
    notes: list[str],
    options: dict[str, Any],
    times: dict[str, float],
    threshold: float,
) -> dict[str, Any]:
    """Return everything that ``run.json`` says."""
    ignored = ("callbacks", "checkpoint", "verbose", "warm_start")
    settings = {k: v for k, v in model.get_params(deep=False).items() if k not in ignored}
    return {
        "table": options["table"],
        "data": {
            "rows": len(data.values),
            "features": list(data.names),
            "id": data.id_name,
            "label": data.label_name,
            "digest": data.digest,
        },
        "settings": {
            **settings,
            "as_published": options["as_published"],
            "standardize": options["standardize"],
        },
        "device": options["device"],
        "scaling": options["scaling"],
        "result": {
            "bound": model.lower_bound_,
            "rounds": model.n_iter_,
            "converged": bool(model.converged_),
            "components": model.n_components_,
            "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        },
        "unusual_below": threshold,
        "warnings": notes,
        "seconds": {name: round(value, 3) for name, value in times.items()},
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    names = ("sgpmic", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "pyarrow")
    found = {name: version(name) for name in names}
    return {**found, "python": platform.python_version(), "system": platform.platform()}


def report_content(model: SGPMIC, data: Table, record: dict[str, Any]) -> RunContent:
    """Return what the report shows."""
    from sgpmic.report.content import RunContent

    return RunContent(
        title=record["table"].replace("\\", "/").rsplit("/", 1)[-1],
        feature_names=data.names,
        values=data.values,
        ids=data.ids,
        given_labels=data.labels,
        label_name=data.label_name or "",
        embedding=model.embedding_,
        memberships=model.memberships_,
        means=model.means_,
        covariances=model.covariances_,
        weights=model.weights_,
        history=model.history_,
        starts=[{k: v for k, v in start.items() if k != "labels"} for start in model.starts_],
        settings={k: v for k, v in record["settings"].items() if v is not None},
        warnings=record["warnings"],
        times=record["seconds"],
        versions=record["versions"],
    )
