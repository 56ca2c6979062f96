"""One, two and four processes: value and gradient of the bound, rows spread over them.

``python benchmarks/processes.py [--rows 400000] [--processes 1 2 4]``. Every process is kept to its
share of the cores; a single process to one core, so that one core is compared with several. The
runs alternate, and the best of each counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from sgpmic.jobs.job import CORES
from sgpmic.jobs.launch import environments, local_slot

P, M, U, Q = 20, 3, 50, 2


def work(n_rows: int, seconds: float) -> None:
    """Run one process of a job: evaluate repeatedly, and report the best time."""
    from sgpmic import jobs

    job = jobs.initialize()
    import jax
    import jax.numpy as jnp

    from sgpmic._runtime import numerics
    from sgpmic.kernels import RBF, stack
    from sgpmic.model.bound import Mappings, data_term

    process, n, _ = job
    first, end = process * n_rows // n, (process + 1) * n_rows // n
    rng = np.random.default_rng(process)
    Y, group = jobs.share(rng.standard_normal((end - first, P)), devices=jax.devices())
    with numerics():
        rows = group.lay_out_rows(Y, None, lambda part: part)
        X = group.lay_out(rng.standard_normal((len(Y), Q)), rows)
        T = group.lay_out(rng.dirichlet(np.ones(M), len(Y)), rows)
        Z = np.random.default_rng(0).standard_normal((U, Q))
        kernels = jax.tree.map(np.asarray, stack([RBF()] * M))

        def loss(X: Any, Z: Any, kernels: Any, T: Any, rows: Any) -> Any:
            return data_term(Mappings(kernels, Z, jnp.asarray(4.0)), X, T, rows, 1e-8)

        evaluate = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
        jax.block_until_ready(evaluate(X, Z, kernels, T, rows))
        times = []
        # As many for all, or the others would wait: a fixed number that takes about as long.
        for _ in range(max(3, int(seconds / 0.5))):
            began = time.perf_counter()
            jax.block_until_ready(evaluate(X, Z, kernels, T, rows))
            times.append(time.perf_counter() - began)
    if process == 0:
        print(json.dumps({"processes": n, "best": min(times), "median": float(np.median(times))}))


def run(n_processes: int, n_rows: int, seconds: float) -> dict[str, float]:
    """Run a job and return the times of its first process."""
    command = [sys.executable, __file__, "--work", "--rows", str(n_rows), "--seconds", str(seconds)]
    if n_processes == 1:
        variables = [{CORES: str(min(os.sched_getaffinity(0)))}]
    else:
        variables = environments([local_slot()] * n_processes)
    children = [
        subprocess.Popen(command, env={**os.environ, **mine}, stdout=subprocess.PIPE, text=True)
        for mine in variables
    ]
    outputs = [child.communicate()[0] for child in children]
    found: dict[str, float] = json.loads(
        next(line for line in outputs[0].splitlines() if line.startswith("{"))
    )
    return found


def main() -> None:
    """Compare numbers of processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", help="a file for the times, as CSV")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.rows, options.seconds)
        return
    best: dict[int, float] = {}
    for _ in range(options.turns):
        for n in options.processes:
            found = run(n, options.rows, options.seconds)
            best[n] = min(best.get(n, float("inf")), found["best"])
            print(f"{n} processes: best {found['best']:.3f} s, median {found['median']:.3f} s")
    base = best[min(best)]
    for n, seconds in best.items():
        print(f"{n} processes: {seconds:.3f} s, {base / seconds:.2f} times as fast")
    if options.out:
        with open(options.out, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["rows", "processes", "best"])
            writer.writerows([options.rows, n, f"{seconds:.4f}"] for n, seconds in best.items())


if __name__ == "__main__":
    main()
