"""How fast a fitted model answers for new rows, and in how much memory.

``python benchmarks/predict.py [--rows N] [--fitted N] [--device cpu|gpu] [--quick]``

A model of 20 000 × 20 rows in five curved clusters answers for 1000 rows, 500 000 rows (peak
memory) and 1 000 000 rows. Targets: 1000 rows in 0.1 s, 500 000 in 2 GB, 1 000 000 in 3 s on an
H200 and in 40 s on two cores. A first call compiles; the times are of later ones. The time of the
processor stands beside that of the clock, for machines that others use as well.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from sgpmic import SGPMIC, Computation


def make_rows(n_rows: int, seed: int) -> np.ndarray:
    """Return rows of five bent sheets in twenty dimensions."""
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(0).normal(size=(5, 3, 20))
    sheet = rng.integers(5, size=n_rows)
    t = rng.uniform(-1.0, 1.0, size=(n_rows, 2))
    bent = np.column_stack([t, t[:, 0] ** 2 - t[:, 1]])
    rows = np.empty((n_rows, 20))
    for number, its_axes in enumerate(axes):
        own = sheet == number
        rows[own] = bent[own] @ its_axes + 2.0 * its_axes.sum(axis=0)
    return rows + 0.3 * rng.normal(size=rows.shape)


def measure(what: str, call: Callable[[], Any], repeats: int = 1) -> None:
    """Print the best wall and processor time of a call, and the process's peak memory."""
    best = (np.inf, np.inf)
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        call()
        best = min(best, (time.perf_counter() - wall, time.process_time() - processor))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{what:36s} {best[0]:8.3f} s  processor {best[1]:8.3f} s  peak {peak:5.2f} GB", flush=True
    )


def main() -> None:
    """Fit, and print every figure as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fitted", type=int, default=20_000)
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options = parser.parse_args()
    n_rows = options.rows // 10 if options.quick else options.rows
    warnings.simplefilter("ignore")
    print(f"JAX {jax.__version__} on {jax.local_devices()[0].device_kind}")
    model = SGPMIC(5, computation=Computation(device=options.device), random_state=0)
    measure(f"fit {options.fitted} x 20", lambda: model.fit(make_rows(options.fitted, 1)))
    few = make_rows(1000, 2)
    for name in ("predict", "score_samples"):
        answer = partial(getattr(model, name), few)
        measure(f"{name} 1000 rows, first call", answer)
        measure(f"{name} 1000 rows", answer, 5)
    measure("predict 1 row", lambda: model.predict(few[:1]), 5)
    many = make_rows(n_rows, 3)
    measure(f"predict {n_rows // 2} rows", lambda: model.predict(many[: n_rows // 2]))
    measure(f"predict {n_rows} rows", lambda: model.predict(many))
    measure(f"score_samples {n_rows} rows", lambda: model.score_samples(many))


if __name__ == "__main__":
    main()
