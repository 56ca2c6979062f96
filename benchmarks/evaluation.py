"""One value-and-gradient of the bound: against the floor and automatic differentiation.

Run with ``make bench`` or ``python benchmarks/evaluation.py``. Everything is measured on one core,
in one run, alternating, so that noise affects all alike, in CPU time, the best of many; only the
ratios matter.

- *floor*: the matrix products of the statistics and of their backward pass by NumPy's BLAS, plus
  the exponentials by NumPy, in blocks of 1000 rows. Nothing that computes this bound on this
  machine in float64 with these products can be faster.
- *automatic differentiation*: the same formula written plainly over all rows at once, components
  batched with ``vmap``, differentiated by JAX.

- *uncertain*: ours for latent points with posteriors (``latent='variational'``), a pass for each of
  2Q + 1 sigma points; the aim is at most 2.5 Q times ours.

The order matters: ours takes about a fifth longer right after automatic differentiation than right
after the floor. Compare the alternating measurement of all three with earlier ones; both are
printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

if __name__ == "__main__":
    # One core for everything, decided before any library counts the cores.
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from sgpmic._runtime import numerics
from sgpmic.kernels import RBF, Kernel, stack
from sgpmic.model.bound import Mappings, data_term
from sgpmic.model.rows import Rows, make_rows, pad_rows

P, M, U, Q = 20, 3, 50, 2
JITTER = 1e-8


def problem(n_rows: int) -> tuple[Kernel, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    kernels = stack([RBF(gamma=gamma) for gamma in (0.5, 1.0, 2.0)])
    X = rng.normal(size=(n_rows, Q))
    Z = rng.normal(size=(U, Q))
    S = rng.dirichlet(np.ones(M), size=n_rows)
    Y = rng.normal(size=(n_rows, P))
    return kernels, Z, X, S, Y


def ours(kernels: Kernel, Z: Array, beta: Array, X: Array, S: Array, rows: Rows) -> Array:
    return data_term(Mappings(kernels, Z, beta), X, S, rows, JITTER)


def uncertain(
    kernels: Kernel, Z: Array, beta: Array, X: Array, log_spread: Array, S: Array, rows: Rows
) -> Array:
    return data_term(Mappings(kernels, Z, beta), X, S, rows, JITTER, jnp.exp(log_spread))


def plain(kernels: Kernel, Z: Array, beta: Array, X: Array, S: Array, Y: Array) -> Array:
    """The same bound in the simplest code: all rows at once, vmap, no hand-written rule."""

    def one(variance: Array, gamma: Array, bias: Array, white: Array, s: Array) -> Array:
        def k(a: Array, b: Array) -> Array:
            r2 = jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1)[None] - 2.0 * a @ b.T
            return variance * jnp.exp(-0.5 * gamma * r2) + bias

        K_uf = k(Z, X)
        K_uu = k(Z, Z) + white * jnp.eye(U)
        K_uu = K_uu + JITTER * jnp.mean(jnp.diagonal(K_uu)) * jnp.eye(U)
        A = K_uu + beta * (K_uf * s) @ K_uf.T
        W = beta * (K_uf * s) @ Y
        L_A, L_K = jnp.linalg.cholesky(A), jnp.linalg.cholesky(K_uu)
        log_dets = jnp.sum(jnp.log(jnp.diagonal(L_A)) - jnp.log(jnp.diagonal(L_K)))
        C = solve_triangular(L_A, W, lower=True)
        return -P * log_dets + 0.5 * jnp.sum(C**2)

    k = kernels
    assert isinstance(k, RBF)
    total = jnp.sum(jax.vmap(one)(k.variance, k.gamma, k.bias, k.white, S.T))
    mass = jnp.sum(S, axis=1)
    normalizer = 0.5 * P * jnp.log(beta / (2.0 * jnp.pi)) * jnp.sum(mass)
    return normalizer - 0.5 * beta * jnp.sum(mass * jnp.sum(Y**2, axis=1)) + total


def floor(Z: np.ndarray, X: np.ndarray, Y: np.ndarray, block: int = 1000) -> None:
    rng = np.random.default_rng(1)
    G, H = rng.normal(size=(U, U)), rng.normal(size=(U, P))
    for _ in range(M):
        for first in range(0, len(X), block):
            x, y = X[first : first + block], Y[first : first + block]
            K = np.exp(Z @ x.T)  # forwards: distances, exponentials, two sums
            K @ K.T
            K @ y
            K = np.exp(Z @ x.T)  # backwards: the kernel again, ∂L/∂K, ∂L/∂X, ∂L/∂Z
            E = G @ K
            H @ y.T
            E @ x
            Z.T @ E


def fastest(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the best CPU time of each, measured alternately."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.process_time()
            function()
            times[name].append(time.process_time() - began)
    return {name: min(values) for name, values in times.items()}


def compare(n_rows: int, repeats: int) -> None:
    kernels, Z, X, S, Y = problem(n_rows)
    with numerics():
        rows = make_rows(Y)
        padded = [jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, S)]
        beta, inducing = jnp.asarray(2.0), jnp.asarray(Z)
        our_gradient = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))
        plain_gradient = jax.jit(jax.value_and_grad(plain, argnums=(0, 1, 2, 3)))
        our_arguments = (kernels, inducing, beta, *padded, rows)
        plain_arguments = (kernels, inducing, beta, *map(jnp.asarray, (X, S, Y)))
        value, expected = our_gradient(*our_arguments)[0], plain_gradient(*plain_arguments)[0]
        assert abs(value - expected) < 1e-9 * abs(expected), (value, expected)
        run: dict[str, Callable[[], object]] = {
            "ours": lambda: jax.block_until_ready(our_gradient(*our_arguments)),
            "floor": lambda: floor(Z, X, Y),
        }
        other = lambda: jax.block_until_ready(plain_gradient(*plain_arguments))  # noqa: E731
        times = fastest(run | {"automatic differentiation": other}, repeats)
        undisturbed = fastest(run, repeats)
        log_spread = jnp.full_like(padded[0], -1.0)
        uncertain_gradient = jax.jit(jax.value_and_grad(uncertain, argnums=(0, 1, 2, 3, 4)))
        uncertain_arguments = (kernels, inducing, beta, padded[0], log_spread, padded[1], rows)
        uncertain_gradient(*uncertain_arguments)
        both: dict[str, Callable[[], object]] = {
            "ours": run["ours"],
            "uncertain": lambda: jax.block_until_ready(uncertain_gradient(*uncertain_arguments)),
        }
        against_points = fastest(both, max(repeats // 3, 3))
    print(f"N={n_rows:,} P={P} M={M} U={U} Q={Q} float64, one core, best of {repeats}")
    for name, seconds in times.items():
        print(f"  {name:26s} {seconds * 1e3:8.1f} ms   {seconds / times['floor']:5.2f} x floor")
    ratio = times["automatic differentiation"] / times["ours"]
    print(f"  ours is {ratio:.1f} times faster than automatic differentiation")
    ratio = against_points["uncertain"] / against_points["ours"]
    print(f"  uncertain points take {ratio:.2f} times as long, {ratio / Q:.2f} Q")
    print("the same without automatic differentiation in the turns")
    for name, seconds in undisturbed.items():
        print(
            f"  {name:26s} {seconds * 1e3:8.1f} ms   {seconds / undisturbed['floor']:5.2f} x floor"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    compare(options.rows, options.repeats)


if __name__ == "__main__":
    main()
