"""Peak memory of one value-and-gradient with ten million rows, or of fits of many shapes.

    python benchmarks/memory.py [--rows 10000000] [--limit 6]
    python benchmarks/memory.py --shapes 300 [--limit 4]

The table has 20 features in float64: 1.6 GB for ten million rows. A process of its own makes it,
cuts it into blocks, and evaluates the bound (M = 3, U = 50, Q = 2) and its gradient by the kernels,
Z, β and X once. The peak is that of the whole process, Python and compiler included; it is also
taken after every step, which shows where it comes from. Nothing of size N × U may be stored: that
alone would be 12 GB. The optimizer's own memory (a few copies of X) is not included.

With ``--shapes``, one process fits so many small tables, each of a different shape: its memory must
level off, since old compiled programs are evicted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

if __name__ == "__main__":
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = "1"

import jax
import jax.numpy as jnp
import numpy as np

from evaluation import M, P, Q, U, ours
from sgpmic import EM, SGPMIC
from sgpmic._runtime import numerics
from sgpmic.kernels import RBF, stack
from sgpmic.model.rows import make_rows, pad_rows


def peak() -> float:
    """Return this process's peak memory so far in GB (10⁹ bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def evaluate(n_rows: int) -> None:
    """Make a table, evaluate once, and report the memory used."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"N={n_rows:,} P={P} M={M} U={U} Q={Q} float64, one core; peak memory in GB")
    print(f"  {peak():5.2f}  imports")
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((n_rows, P))
    X = rng.standard_normal((n_rows, Q))
    S = rng.random((n_rows, M))
    S /= S.sum(axis=1, keepdims=True)
    print(f"  {peak():5.2f}  the table ({Y.nbytes / 1e9:.2f} GB), X and S", flush=True)
    with numerics():
        rows = make_rows(Y)
        print(f"  {peak():5.2f}  cut into blocks", flush=True)
        arrays = [jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, S)]
        kernels = stack([RBF(gamma=gamma) for gamma in (0.5, 1.0, 2.0)])
        Z = jnp.asarray(rng.standard_normal((U, Q)))
        gradient = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))
        compiled = gradient.lower(kernels, Z, jnp.asarray(2.0), *arrays, rows).compile()
        began = time.perf_counter()
        value, _ = jax.block_until_ready(compiled(kernels, Z, jnp.asarray(2.0), *arrays, rows))
        seconds = time.perf_counter() - began
    assert np.isfinite(value)
    print(f"  {peak():5.2f}  value and gradient, in {seconds:.1f} s", flush=True)


def fit_shapes(n_shapes: int) -> None:
    """Fit tables of different shapes, and report the memory of the process now and then."""
    warnings.simplefilter("ignore")
    Y = np.random.default_rng(0).standard_normal((160, 4))
    model = SGPMIC(3, max_iter=1, em=EM(m_steps=1), committee=None, random_state=0)
    began = time.process_time()
    for number in range(n_shapes):
        model.set_params(n_inducing=8 + number // 3, n_components=1 + number % 3).fit(Y)
        if number % 10 == 9:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            gigabytes = pages * resource.getpagesize() / 1e9
            print(
                f"{number + 1:5} shapes  {gigabytes:5.2f} GB  {time.process_time() - began:5.0f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--limit", type=float, default=6.0, help="GB; more is a failure")
    parser.add_argument("--shapes", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fit_shapes(options.shapes) if options.shapes else evaluate(options.rows)
        return
    subprocess.run([sys.executable, *sys.argv, "--inside"], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    print(f"peak memory of the process {used:.2f} GB, limit {options.limit:.2f} GB")
    if used > options.limit:
        sys.exit("More memory than allowed.")


if __name__ == "__main__":
    main()
