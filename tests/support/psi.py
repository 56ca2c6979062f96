"""Expectations of kernels under q(x) = N(μ, diag σ²) in closed form, and Titsias' bound with them.

Titsias and Lawrence (2010), section 3.2; plain NumPy, nothing of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from support import dense
from support.dense import Array, DenseKernel, Problem, log_det


class Psi(NamedTuple):
    """⟨k(x_n, x_n)⟩ (N,), ⟨k_n⟩ (N, U) and ⟨k_n k_nᵀ⟩ (N, U, U)."""

    diagonal: Array
    first: Array
    second: Array


def closed_forms(kernel: DenseKernel, X: Array, spread: Array, Z: Array) -> Psi:
    """Return the expectations for an RBF or linear kernel."""
    return {"rbf": _rbf, "linear": _linear}[kernel.kind](kernel, X, spread**2, Z)


def _linear(kernel: DenseKernel, X: Array, variance: Array, Z: Array) -> Psi:
    scaled = Z * kernel.variance  # k = xᵀ(V z) + bias
    first = X @ scaled.T + kernel.bias
    spread = np.einsum("nq,uq,vq->nuv", variance, scaled, scaled)
    diagonal = np.sum(kernel.variance * (X**2 + variance), axis=1) + kernel.bias
    return Psi(diagonal, first, first[:, :, None] * first[:, None, :] + spread)


def _rbf(kernel: DenseKernel, X: Array, variance: Array, Z: Array) -> Psi:
    gamma = np.broadcast_to(kernel.gamma, X.shape[1:])
    v, b = kernel.variance, kernel.bias
    once = 1.0 + gamma * variance  # (N, Q)
    from_z = (X[:, None, :] - Z) ** 2 / once[:, None, :]
    one = np.prod(once, axis=1)[:, None] ** -0.5 * np.exp(-0.5 * from_z @ gamma)
    twice = 1.0 + 2.0 * gamma * variance
    middle = 0.5 * (Z[:, None, :] + Z)
    from_middle = (X[:, None, None, :] - middle) ** 2 / twice[:, None, None, :]
    apart = 0.25 * (Z[:, None, :] - Z) ** 2 @ gamma
    two = np.prod(twice, axis=1)[:, None, None] ** -0.5 * np.exp(-apart - from_middle @ gamma)
    second = v**2 * two + v * b * (one[:, :, None] + one[:, None, :]) + b**2
    return Psi(np.full(len(X), v + b), v * one + b, second)


def bound(kernel: DenseKernel, Y: Array, Z: Array, beta: float, psi: Psi) -> float:
    """Return the bound's data part, their Eqs. (14) and (15), one mapping, all rows of weight 1."""
    N, P = Y.shape
    K = kernel.gram(Z)
    second = psi.second.sum(axis=0)
    A = beta * second + K
    W = beta * np.eye(N) - beta**2 * psi.first @ np.linalg.solve(A, psi.first.T)
    logs = N * np.log(beta) + log_det(K) - N * np.log(2.0 * np.pi) - log_det(A)
    trace = psi.diagonal.sum() - np.trace(np.linalg.solve(K, second))
    return float(0.5 * P * logs - 0.5 * np.sum(Y * (W @ Y)) - 0.5 * beta * P * trace)


def repeated(
    problem: Problem, spread: Array, places: Array, shares: Array
) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Return Y and X with a row for every sigma point, and a function that weights them."""
    X = np.concatenate([problem.X + spread * place for place in places])
    Y = np.concatenate([problem.Y] * len(places))
    return Y, X, lambda t: np.concatenate([share * t for share in shares])


def data_term(problem: Problem, spread: Array, places: Array, shares: Array) -> float:
    """Return the data term and trace term with N×N matrices, a weighted row for every point."""
    Y, X, weighted = repeated(problem, spread, places, shares)
    total = 0.0
    for kernel, t in zip(problem.kernels, problem.row_weights().T, strict=True):
        weights = weighted(t)
        covered = np.diag(dense.nystrom(kernel, X, problem.Z))
        own = np.array([kernel.matrix(x[None], x[None])[0, 0] for x in X])
        left_open = 0.5 * problem.beta * Y.shape[1] * np.sum(weights * (own - covered))
        data = dense.data_term(kernel, Y, X, problem.Z, problem.beta, weights)
        total += float(data) - float(left_open)
    return total
