"""GPU speed: one evaluation, whole fits, large tables, and a comparison with the CPU.

``python benchmarks/gpu.py [part ...] [--out FILE]``; JAX with CUDA, NumPy, SciPy and scikit-learn
are enough. Every result is printed immediately; ``--out`` also writes them as JSON lines. A part
that fails is reported, and the next one runs.

- ``evaluation``: value and gradient of the bound at N=1,000,000, P=50, M=U/10=10, float64, as the
  package chooses and in other blocks, parts and tiles; and the other steps of an EM iteration.
- ``fit``: a whole fit of such a table, the start included, and one of another table with the
  programs of the first; target 8 s.
- ``per-cluster``: the same with a Gaussian process for each cluster.
- ``large``: the same for N=10,000,000, P=20, M=5, U=50, and its peak memory; target 25 s.
- ``predict``: answers of a model of 20,000 × 20 rows; target 3 s for a million.
- ``cpu``: value and gradient on the CPU and on the GPU, N = 1000 to 1,000,000.
- ``iris``: a small fit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import resource
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fit_time import sheets
from sgpmic import EM, SGPMIC, Computation
from sgpmic._runtime import numerics, on_device
from sgpmic.compile_cache import compiled, compiler_options
from sgpmic.kernels import RBF, stack
from sgpmic.model.bound import Mappings, data_term
from sgpmic.model.e_step import e_step
from sgpmic.model.mixture import (
    Conjugate,
    LatentPrior,
    Mixture,
    factor_mixture,
    log_densities,
    update_mixture,
    weighted_sum,
)
from sgpmic.model.row_pass import gpu
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import Rows, gpu_memory_on, make_rows, pad_rows

JITTER = 1e-8
BEGAN = time.perf_counter()
_out: Any = None


def tell(part: str, what: str, **values: Any) -> None:
    """Print a line of the table, and write it as JSON."""
    shown = "  ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    )
    print(f"[{time.perf_counter() - BEGAN:5.0f} s] {part:12s} {what:34s} {shown}", flush=True)
    if _out is not None:
        _out.write(json.dumps({"part": part, "what": what, **values}) + "\n")
        _out.flush()


def milliseconds(call: Callable[[], Any], repeats: int = 10) -> float:
    """Return the best time of a call, after one warm-up call."""
    jax.block_until_ready(call())
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        jax.block_until_ready(result)
        best = min(best, time.perf_counter() - began)
        del result
    return best * 1e3


def table(n_rows: int, n_features: int, n_clusters: int, seed: int = 0) -> np.ndarray:
    """Return rows that lie on a curved surface, in clusters, with noise."""
    rng = np.random.default_rng(seed)
    angle = 2.0 * np.pi * np.arange(n_clusters) / n_clusters
    centers = 4.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    mix, phase = rng.normal(size=(2, n_features)) / 3.0, rng.uniform(0.0, 6.0, n_features)
    Y = np.empty((n_rows, n_features))
    for first in range(0, n_rows, 100_000):
        part = Y[first : first + 100_000]
        which = rng.integers(n_clusters, size=len(part))
        X = centers[which] + 0.5 * rng.normal(size=(len(part), 2))
        part[:] = np.sin(X @ mix + phase) + 0.1 * rng.normal(size=part.shape)
    return Y


class Problem:
    """One evaluation's inputs, on the device that computes."""

    def __init__(self, N: int, P: int, G: int, U: int, Q: int = 2) -> None:
        rng = np.random.default_rng(0)
        self.Y = table(N, P, G)
        self.X, self.S = rng.normal(size=(N, Q)), rng.dirichlet(np.ones(G), size=N)
        self.Z, self.means = rng.normal(size=(U, Q)), rng.normal(size=(G, Q))
        self.kernels = stack([RBF(gamma=0.5 + 1.5 * m / max(1, G - 1)) for m in range(G)])
        self.G, self.Q = G, Q

    def arguments(self, block: int | None = None, gpu_memory: int | None = None) -> tuple[Any, ...]:
        rows = make_rows(self.Y, block, gpu_memory)
        X, S = (jnp.asarray(pad_rows(a, rows.n_padded)) for a in (self.X, self.S))
        logs = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf)), self.kernels)
        mixture = Mixture(
            jnp.full(self.G, 1.0 / self.G),
            jnp.asarray(self.means),
            jnp.broadcast_to(0.3 * jnp.eye(self.Q) + 0.1, (self.G, self.Q, self.Q)),
        )
        parameters = (X, jnp.asarray(self.Z), logs, jnp.log(jnp.asarray(2.0)))
        return parameters, S, rows, mixture


def _mappings(parameters: Any) -> Mappings:
    _, Z, logs, log_beta = parameters
    return Mappings(jax.tree.map(jnp.exp, logs), Z, jnp.exp(log_beta))


def _loss(parameters: Any, S: Array, rows: Rows, prior: LatentPrior) -> Array:
    X = parameters[0]
    data = data_term(_mappings(parameters), X, S, rows, JITTER)
    return data + weighted_sum(S, log_densities(prior, X))


def evaluate(parameters: Any, S: Array, rows: Rows, mixture: Mixture) -> Any:
    """Return value and gradient as an M-step asks for them."""
    return jax.value_and_grad(_loss)(parameters, S, rows, factor_mixture(mixture))


def forwards(parameters: Any, S: Array, rows: Rows, mixture: Mixture) -> Any:
    """Return the sums."""
    kernels, Z, _ = _mappings(parameters)
    return statistics(kernels, Z, parameters[0], S, rows.Y, rows.mesh, rows.gpu_memory)


def expect(parameters: Any, S: Array, rows: Rows, mixture: Mixture) -> Any:
    """Return an E-step's memberships."""
    prior = factor_mixture(mixture)
    args = (_mappings(parameters), prior, parameters[0], S, rows)
    return e_step(*args, shared=False, jitter=jnp.full(S.shape[1], JITTER))[0]


def close_forms(parameters: Any, S: Array, rows: Rows, mixture: Mixture) -> Any:
    """Return the mixture's closed forms."""
    conjugate = Conjugate(jnp.ones(S.shape[1]), jnp.eye(mixture.means.shape[1]))
    return update_mixture(mixture, parameters[0], S, conjugate, kind="full", floor=1e-4)


def difference(found: Any, expected: Any) -> float:
    """Return the largest relative difference of value and gradients, each as a whole."""
    largest = 0.0
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        norm = float(np.linalg.norm(b))
        largest = max(largest, float(np.linalg.norm(np.asarray(a) - b)) / max(norm, 1e-300))
    return largest


@contextmanager
def tiles(points: int, rows: int, warps: int) -> Iterator[None]:
    """Use other tiles for the hand-written sums."""
    before, gpu.SUMS_TILE = gpu.SUMS_TILE, (points, rows, warps)
    try:
        yield
    finally:
        gpu.SUMS_TILE = before


@contextmanager
def nothing_by_hand() -> Iterator[None]:
    """Use the compiler's code instead of the hand-written one."""
    before, gpu.can_be_hand_written = gpu.can_be_hand_written, cache(lambda: False)
    try:
        yield
    finally:
        gpu.can_be_hand_written = before


def timed(function: Callable[..., Any], arguments: Any, repeats: int = 10) -> dict[str, Any]:
    """Compile a function anew and return its times, and its result."""

    def fresh(*args: Any) -> Any:
        return function(*args)

    program = compiled(fresh)
    began = time.perf_counter()
    result = jax.block_until_ready(program(*arguments))
    first = time.perf_counter() - began
    ms = milliseconds(lambda: program(*arguments), repeats)
    return {"ms": ms, "first_s": first, "result": result}


def evaluation() -> None:
    """Time value and gradient at N = 1,000,000."""
    problem = Problem(1_000_000, 50, 10, 100)
    with numerics():
        arguments = problem.arguments()
        rows = arguments[2]
        tell("evaluation", "rows", blocks=list(rows.Y.shape), memory_GiB=rows.gpu_memory / 2**30)
        found = timed(evaluate, arguments)
        result = found.pop("result")
        tell("evaluation", "value and gradient", **found, target=30.0)
        lowered = jax.jit(evaluate).lower(*arguments)
        memory: Any = lowered.compile(compiler_options("gpu")).memory_analysis()
        tell("evaluation", "memory", temporaries_GiB=memory.temp_size_in_bytes / 2**30)
        for name, function in (
            ("sums alone", forwards),
            ("E-step", expect),
            ("closed forms of the mixture", close_forms),
        ):
            found = timed(function, arguments)
            del found["result"]
            tell("evaluation", name, **found)
        kept = jax.tree.map(np.asarray, result)
        del result
        for tile in ((1, 1024, 4), (2, 512, 4), (2, 1024, 8), (4, 512, 4)):
            with tiles(*tile):
                found = timed(evaluate, arguments)
            error = difference(found.pop("result"), kept)
            tell("evaluation", f"tile {tile}", **found, difference=error)
        with nothing_by_hand():
            found = timed(evaluate, arguments)
        error = difference(found.pop("result"), kept)
        tell("evaluation", "nothing hand-written", **found, difference=error)
        small = dataclasses.replace(rows, gpu_memory=8 * 2**30)
        found = timed(evaluate, (*arguments[:2], small, arguments[3]))
        error = difference(found.pop("result"), kept)
        tell("evaluation", "in parts, gpu_memory 8 GiB", **found, difference=error)
        del arguments, rows, small
        # As many places for rows in each, so that the gradients can be compared.
        N = 1_001_472
        for n_blocks in (16, 64, 256, 978):
            block = -(-N // n_blocks)
            arguments = problem.arguments(block)
            found = timed(evaluate, arguments)
            value = float(found.pop("result")[0])
            error = abs(value - float(kept[0])) / abs(float(kept[0]))
            tell("evaluation", f"blocks of {block}", **found, difference_of_value=error)
            del arguments
        arguments = problem.arguments(62_592, gpu_memory=0)
        found = timed(evaluate, arguments, 3)
        error = abs(float(found.pop("result")[0]) - float(kept[0])) / abs(float(kept[0]))
        tell("evaluation", "the CPU's pass, blocks of 62592", **found, difference_of_value=error)


class Watch:
    """A callback that times every iteration, and stops after a limit."""

    def __init__(self, part: str, limit: float) -> None:
        self.part, self.limit = part, limit
        self.began = self.last = time.perf_counter()
        self.iterations: list[float] = []
        self.start = math.nan

    def __call__(self, progress: Any) -> bool:
        """Record an iteration; return whether to stop."""
        now = time.perf_counter()
        if not self.iterations:
            self.start = now - self.began - progress.seconds
            tell(self.part, "start", seconds=self.start)
            self.last = self.began + self.start
        self.iterations.append(now - self.last)
        self.last = now
        tell(
            self.part,
            f"iteration {progress.iteration}",
            seconds=self.iterations[-1],
            bound=progress.bound,
            change=progress.change,
        )
        return now - self.began > self.limit


def device_peak() -> float:
    """Return the peak device memory so far, in GiB."""
    stats = jax.devices()[0].memory_stats() or {}
    return float(stats.get("peak_bytes_in_use", 0)) / 2**30


def whole_fit(
    part: str, N: int, P: int, M: int, U: int, limit: float, seed: int = 0, **others: Any
) -> None:
    """Fit a table and report the time of every stage."""
    began = time.perf_counter()
    Y = table(N, P, M, seed)
    tell(part, "table", N=N, P=P, M=M, U=U, seconds=time.perf_counter() - began)
    watch = Watch(part, limit)
    model = SGPMIC(M, 2, n_inducing=U, random_state=0, em=EM(callbacks=[watch]), **others)
    with warnings.catch_warnings(action="ignore"):
        model.fit(Y)
    total = time.perf_counter() - watch.began
    evaluations = [int(n) for n in model.history_["evaluations"]]
    tell(
        part,
        "fit",
        seconds=total,
        start=watch.start,
        first_iteration=watch.iterations[0],
        later_iteration=float(np.mean(watch.iterations[1:])) if len(watch.iterations) > 1 else None,
        finish=total - watch.start - sum(watch.iterations),
        iterations=model.n_iter_,
        evaluations=evaluations,
        e_steps=[int(n) for n in model.history_["e_steps"]],
        converged=model.converged_,
        device_peak_GiB=device_peak(),
        host_peak_GiB=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )


def fit() -> None:
    """Fit N = 1,000,000."""
    whole_fit("fit", 1_000_000, 50, 10, 100, 120.0)
    whole_fit("fit again", 1_000_000, 50, 10, 100, 120.0, seed=1)


def per_cluster() -> None:
    """Fit N = 1,000,000 with a Gaussian process for each cluster."""
    whole_fit("per-cluster", 1_000_000, 50, 10, 100, 150.0, mapping="per_cluster")


def large() -> None:
    """Fit N = 10,000,000."""
    whole_fit("large", 10_000_000, 20, 5, 50, 400.0)
    whole_fit("large again", 10_000_000, 20, 5, 50, 400.0, seed=1)


def predictions() -> None:
    """Predict for up to a million rows."""
    model = SGPMIC(5, random_state=0).fit(sheets(20_000, 1))
    for method in ("predict", "score_samples"):
        for n_rows in (1000, 100_000, 1_000_000):
            rows = sheets(n_rows, 2)
            if n_rows == 1000:
                getattr(model, method)(rows)  # compiles
            began = time.perf_counter()
            getattr(model, method)(rows)
            tell("predict", f"{method} {n_rows}", seconds=time.perf_counter() - began)


def against_cpu() -> None:
    """Time value and gradient on the CPU and on the GPU."""
    for N in (1_000, 10_000, 100_000, 1_000_000):
        problem = Problem(N, 20, 3, 50)
        times = {}
        for device in ("cpu", "gpu"):
            with on_device(device), numerics():
                found = timed(evaluate, problem.arguments(), 3 if N > 100_000 else 10)
                times[device] = found["ms"]
        ratio = times["cpu"] / times["gpu"]
        tell("cpu", f"N={N}", **{f"{k}_ms": v for k, v in times.items()}, ratio=ratio)


def iris() -> None:
    """Fit Iris, twice."""
    from sklearn.datasets import load_iris
    from sklearn.metrics import adjusted_rand_score

    data = load_iris()
    for device in ("gpu", "cpu"):
        for which in ("first", "again"):
            began = time.perf_counter()
            with warnings.catch_warnings(action="ignore"):
                model = SGPMIC(3, 2, random_state=0, computation=Computation(device=device)).fit(
                    data.data
                )
            tell(
                "iris",
                f"{device}, {which}",
                seconds=time.perf_counter() - began,
                iterations=model.n_iter_,
                bound=model.lower_bound_,
                agreement=float(adjusted_rand_score(data.target, model.labels_)),
            )


PARTS: dict[str, Callable[[], None]] = {
    "evaluation": evaluation,
    "fit": fit,
    "per-cluster": per_cluster,
    "cpu": against_cpu,
    "iris": iris,
    "predict": predictions,
    "large": large,
}


def main() -> None:
    """Run the parts that are asked for."""
    global _out
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--out", help="a file for JSON lines")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if options.out:
        _out = open(options.out, "a", encoding="utf-8")  # noqa: SIM115
    devices = [device.device_kind for device in jax.devices()]
    tell("machine", f"jax {jax.__version__}", devices=devices, memory_GiB=gpu_memory_on() / 2**30)
    for name in options.parts or PARTS:
        try:
            PARTS[name]()
        except Exception as error:
            traceback.print_exc()
            tell(name, "failed", error=f"{type(error).__name__}: {str(error)[:500]}")


if __name__ == "__main__":
    main()
