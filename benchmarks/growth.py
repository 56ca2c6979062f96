"""How one value-and-gradient grows with rows, inducing points, components and features.

    python benchmarks/growth.py [--out docs/performance] [--quick]

One size varies, the others are fixed (N = 50 000, U = 50, M = 3, P = 20, Q = 2). One core, CPU
time, best of several. The exponent is the slope of a straight line through the logarithms; theory
says 1 for N and M, and for U and P between 0 and their share of O(N U (U + P)): towards 2 and 1
where they dominate. Writes growth.csv and growth.png.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from evaluation import ours
from sgpmic._runtime import numerics
from sgpmic.kernels import RBF, stack
from sgpmic.model.rows import make_rows, pad_rows

STANDARD = {"N": 50_000, "U": 50, "M": 3, "P": 20}
VALUES = {
    "N": [12_500, 25_000, 50_000, 100_000, 200_000, 400_000],
    "U": [25, 50, 100, 200, 400],
    "M": [1, 2, 4, 8, 16],
    "P": [5, 20, 80, 320],
}
NAMES = {"N": "rows N", "U": "inducing points U", "M": "components M", "P": "features P"}
Q = 2


def seconds(N: int, U: int, M: int, P: int, repeats: int) -> float:
    """Return the best CPU time of one value-and-gradient."""
    rng = np.random.default_rng(0)
    with numerics():
        rows = make_rows(rng.normal(size=(N, P)))
        X, S = rng.normal(size=(N, Q)), rng.dirichlet(np.ones(M), size=N)
        gradient = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))
        arguments: tuple[Any, ...] = (
            stack([RBF(gamma=0.5 + m / M) for m in range(M)]),
            jnp.asarray(rng.normal(size=(U, Q))),
            jnp.asarray(2.0),
            *(jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, S)),
            rows,
        )
        jax.block_until_ready(gradient(*arguments))
        times = []
        for _ in range(repeats):
            began = time.process_time()
            jax.block_until_ready(gradient(*arguments))
            times.append(time.process_time() - began)
    return min(times)


def exponent(values: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(values), np.log(times), 1)[0])


def draw(results: dict[str, list[float]], values: dict[str, list[int]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(12, 3.2), sharey=True, layout="constrained")
    for axis, (what, times) in zip(axes, results.items(), strict=True):
        sizes = np.asarray(values[what])
        slope = exponent(values[what], times)
        axis.loglog(sizes, times, "o-", color="#1f5fa8", markersize=5)
        guide = times[-1] * (sizes / sizes[-1])
        axis.loglog(sizes, guide, "--", color="0.6", linewidth=1, label="slope 1")
        if what == "U":
            axis.loglog(sizes, guide * sizes / sizes[-1], ":", color="0.6", label="slope 2")
        axis.set_xticks(sizes, [f"{v // 1000}k" if v >= 10_000 else str(v) for v in sizes])
        axis.minorticks_off()
        axis.tick_params(axis="x", labelsize=8)
        axis.set_xlabel(NAMES[what])
        axis.set_title(f"exponent {slope:.2f}", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("seconds, one core")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, nothing written")
    options = parser.parse_args()
    values = {k: v[:3] for k, v in VALUES.items()} if options.quick else VALUES
    results: dict[str, list[float]] = {}
    for what, sizes in values.items():
        results[what] = [
            seconds(**(STANDARD | {what: size}), repeats=options.repeats) for size in sizes
        ]
        line = ", ".join(
            f"{v}: {t * 1e3:.1f} ms" for v, t in zip(sizes, results[what], strict=True)
        )
        print(
            f"{NAMES[what]:18s} exponent {exponent(sizes, results[what]):.2f}   {line}", flush=True
        )
    if options.quick:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "growth.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "value", "seconds"])
        for what, times in results.items():
            writer.writerows(
                [what, v, f"{t:.5f}"] for v, t in zip(values[what], times, strict=True)
            )
    draw(results, values, options.out / "growth.png")


if __name__ == "__main__":
    main()
