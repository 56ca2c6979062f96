"""What float32 costs in accuracy: the bound at the end of fits, and the labels of fits in it.

``python benchmarks/precision.py [--rows 20000] [--device gpu]``. Every problem is fitted in
float64; the data term of the bound at its end is then evaluated in both precisions, at the same
jitter, and the problem is fitted in float32. A table in Markdown is printed.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from gpu import table as curved
from sgpmic import SGPMIC
from sgpmic._runtime import numerics, on_device
from sgpmic.learning.crew import Alone
from sgpmic.learning.em import processes_of
from sgpmic.learning.fitted import measure_units
from sgpmic.model.bound import data_term, process_weights
from sgpmic.model.rows import make_rows, pad_rows
from sgpmic.model.single_precision import LEAST_JITTER
from sgpmic.paper.datasets import five_arcs


class Case(NamedTuple):
    """A table and how it is fitted."""

    name: str
    Y: np.ndarray
    settings: dict[str, Any]


def cases(n_rows: int) -> Iterator[Case]:
    """Yield the problems."""
    arcs = five_arcs(random_state=0)[0]
    tables = {
        "five arcs": (arcs, {"n_clusters": 5, "n_components": 1}),
        "Iris": (load_iris().data, {"n_clusters": 3}),
        "breast cancer": (scale(load_breast_cancer().data), {"n_clusters": 2}),
        f"{n_rows} rows on a curved surface": (curved(n_rows, 20, 5), {"n_clusters": 5}),
    }
    for name, (Y, settings) in tables.items():
        for mapping in ("shared", "per_cluster"):
            yield Case(f"{name}, {mapping}", Y, {**settings, "mapping": mapping})


def fitted(case: Case, device: str, precision: str) -> tuple[SGPMIC, float]:
    """Return a fit and its seconds."""
    model = SGPMIC(**case.settings, random_state=0, device=device, precision=precision)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.Y)
    return model, time.perf_counter() - began


def data_terms(model: SGPMIC, Y: np.ndarray, device: str) -> dict[str, float]:
    """Return the data term at the end of a fit, in both precisions."""
    state, found = model._state, {}
    reduced = measure_units(Y, Alone(len(Y))).reduce(Y)
    with on_device(device), numerics():
        processes = processes_of(state.parameters)
        jitter = jnp.maximum(state.jitter, LEAST_JITTER)
        for single in (False, True):
            rows = make_rows(reduced, single=single)
            X, S = (
                jnp.asarray(pad_rows(np.asarray(a)[: len(Y)], rows.n_padded))
                for a in (state.parameters.X, state.S)
            )
            T = process_weights(S, rows, shared=model.mapping == "shared")
            found["float32" if single else "float64"] = float(
                data_term(processes, X, T, rows, jitter)
            )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    heads = ("problem", "β", "error a row", "same labels", "bound a row, 64", "32", "s, 64", "32")
    print("|", " | ".join(heads), "|")
    print("|", " | ".join(["---"] + ["---:"] * (len(heads) - 1)), "|")
    for case in cases(options.rows):
        n = len(case.Y)
        double, seconds = fitted(case, options.device, "float64")
        values = data_terms(double, case.Y, options.device)
        single, seconds_single = fitted(case, options.device, "float32")
        agreement = adjusted_rand_score(double.labels_, single.labels_)
        cells = (
            f"{float(np.exp(double._state.parameters.log_beta)):.2g}",
            f"{abs(values['float32'] - values['float64']) / n:.1e}",
            f"{agreement:.4f}",
            f"{double.lower_bound_ / n:.4f}",
            f"{single.lower_bound_ / n:.4f}",
            f"{seconds:.1f}",
            f"{seconds_single:.1f}",
        )
        print("|", " | ".join((case.name, *cells)), "|", flush=True)


if __name__ == "__main__":
    main()
