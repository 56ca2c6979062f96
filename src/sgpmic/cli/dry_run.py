"""``sgpmic fit --dry-run``: estimated time and memory of a fit.

A simple cost model: one term per step, in the numbers of rows N, features P and inducing points U
and the sample sizes of the steps. The constants are CPU seconds measured on two ARM cores; they are
scaled by timings of a matrix product and of NumPy calls on this machine.
``benchmarks/expected.py`` compares the sum with real fits.
"""

from __future__ import annotations

import time
import timeit
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from sgpmic.cli.options import console

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

#: Calibration statements, and their CPU seconds on the machine where the constants were measured.
_PRODUCT, _CALLS = ("Y @ Y", 0.0138), ("for row in Y: row + 1.0; row.sum()", 0.0020)
#: Seconds to compile all programs if none are cached.
_COMPILING = 14.0
#: Typical iterations to convergence; the first takes as long as four others.
_USUAL_ITERATIONS, _FIRST_ITERATION = 7, 4
#: Maximum sample sizes: test for clusters, number of clusters, neighbor graph of the start, and
#: densities.
_TESTED, _COUNTED, _STARTED, _ASSESSED = 1000, 600, 1500, 5000
#: Baseline memory in bytes, with all imports and compiled programs loaded.
_LEAST_MEMORY = 6.5e8


def expected_seconds(
    model: SGPMIC, n_rows: int, n_features: int, *, product: float = 1.0, calls: float = 1.0
) -> float:
    """Return CPU seconds of a fit, with cached programs and after the table is read.

    ``product`` and ``calls`` are the machine's slowdowns relative to the reference machine.
    """
    N, P, U = n_rows, n_features, model.n_inducing
    n_starts = model.start.n_init
    seconds = n_starts * (0.05 + 4e-4 * min(N, _STARTED) + 8e-6 * N)
    seconds += 2.0 + 3e-5 * N + 9e-6 * min(N, _ASSESSED) * P  # densities, descriptions, results
    if model.committee is not None and model.n_clusters != 1:
        voters = min(N, model.committee.max_rows)
        seconds += 0.3 + min(N, _TESTED) * (3e-5 * min(P, 50) + 4e-6 * P)  # test for clusters
        if model.n_clusters == "auto":
            seconds += 1.2 + 3e-3 * min(N, _COUNTED)
        k = 5 if isinstance(model.n_clusters, str) else model.n_clusters
        seconds += 0.2 + 7e-4 * voters * (0.7 + k / 15) + 1.4e-5 * (N - voters)
    n_iter, iteration = min(model.max_iter, _USUAL_ITERATIONS), 2.7e-9 * N * U * (U + P + 100)
    if model.latent == "variational":  # few such fits converge before the last iteration
        n_iter, iteration = model.max_iter, 5 * iteration
    return calls * seconds + product * n_starts * (n_iter + _FIRST_ITERATION - 1) * iteration


def show_expectation(model: SGPMIC, n_rows: int, n_features: int) -> None:
    """Print the estimated time and memory of a fit of this size in this process."""
    began = time.process_time()  # imports, reading the table
    data = {"Y": np.random.default_rng(0).standard_normal((500, 500))}

    def relative(statement: str, usual: float) -> float:
        timed = timeit.repeat(statement, globals=data, timer=time.process_time, number=1, repeat=25)
        return median(timed) / usual

    with threadpool_limits(1):  # CPU time would count all BLAS threads
        slowness = {"product": relative(*_PRODUCT), "calls": relative(*_CALLS)}
    compiling = slowness["calls"] * _COMPILING
    seconds = began + expected_seconds(model, n_rows, n_features, **slowness)
    # Several copies of the rows, and the distances between those that the committee votes on.
    voters = 0 if model.committee is None else min(n_rows, model.committee.max_rows)
    n_bytes = _LEAST_MEMORY + 8 * (2.5 * voters**2 + n_rows * (6 * n_features + 100))
    console.print(
        f"{n_rows} rows of {n_features} feature{'s' * (n_features > 1)}, -k {model.n_clusters}, "
        f"--starts {model.start.n_init}: about {seconds:.0f} s of CPU time and "
        f"{n_bytes / 1e9:.2f} GB of memory. Compiling takes {compiling:.0f} s more, "
        "unless a table of about this size was fitted here before. Nothing was fitted."
    )
