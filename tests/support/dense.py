r"""The model computed the slow way: N×N matrices, plain NumPy, nothing of the package.

This is the paper's Eq. (KLBound) as it stands there,

.. math:: L = \sum_{m,i} \log N(y_{:,i} | 0, Q_m + B_m^{-1}) + \sum_{nm} c_{nm}, \qquad
   Q = K_{fu} K_{uu}^{-1} K_{uf}, \quad B_m = \mathrm{diag}(\beta s_{nm}),

with the constants c_nm spelled out. Where s_nm = 0 the entry of B⁻¹ is infinite; in the limit
s → 0 the row drops out of that component's Gaussian, and log N's −½ log(2π/(βs)) cancels against
the last term of c_nm. So such rows are left out of the Gaussian and have c_nm = 0.

Everything up to :func:`data_term` is analytic in its arguments, so that derivatives can be had
exactly by a complex step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[Any]

KINDS = ("linear", "rbf", "matern32", "matern52", "rational_quadratic")


@dataclass(frozen=True)
class DenseKernel:
    """A kernel's parameters; ``gamma`` (``variance`` if linear) may have one entry a dimension."""

    kind: str
    variance: Any = 1.0
    bias: Any = 0.1
    white: Any = 0.1
    gamma: Any = 1.0
    alpha: Any = 1.0

    def matrix(self, A: Array, B: Array) -> Array:
        """Return k(a_i, b_j) without the white part."""
        if self.kind == "linear":
            products = A[:, None, :] * B[None, :, :] * self.variance
            return np.sum(products, axis=2) + self.bias
        squares = np.sum(self.gamma * (A[:, None, :] - B[None, :, :]) ** 2, axis=2)
        return self.variance * self._correlation(squares) + self.bias

    def _correlation(self, squares: Array) -> Array:
        r = np.sqrt(squares)
        if self.kind == "rbf":
            return np.exp(-squares / 2.0)
        if self.kind == "matern32":
            return (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r)
        if self.kind == "matern52":
            return (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * squares) * np.exp(-np.sqrt(5.0) * r)
        if self.kind == "rational_quadratic":
            return (1.0 + squares / (2.0 * self.alpha)) ** (-self.alpha)
        raise ValueError(self.kind)

    def gram(self, Z: Array) -> Array:
        """Return K_uu, white on its diagonal."""
        return self.matrix(Z, Z) + self.white * np.eye(len(Z))


@dataclass(frozen=True)
class Problem:
    """Values of everything the bound depends on.

    One kernel for several clusters means one mapping that all clusters share, in which every row
    has weight 1.
    """

    Y: Array
    X: Array
    Z: Array
    kernels: tuple[DenseKernel, ...]
    beta: Any
    S: Array
    weights: Array
    means: Array
    covariances: Array

    @property
    def shared(self) -> bool:
        return len(self.kernels) == 1 and self.S.shape[1] > 1

    def row_weights(self) -> Array:
        """Return the weight of every row in every Gaussian process."""
        return np.ones((len(self.Y), 1)) if self.shared else self.S

    def with_responsibilities(self, S: Array) -> Problem:
        return replace(self, S=S)


def log_det(M: Array) -> Any:
    sign, log_absolute = np.linalg.slogdet(M)
    return log_absolute + np.log(sign) if np.iscomplexobj(M) else log_absolute


def nystrom(kernel: DenseKernel, X: Array, Z: Array) -> Array:
    """Return Q = K_fu K_uu⁻¹ K_uf, N×N."""
    K_fu = kernel.matrix(X, Z)
    return K_fu @ np.linalg.solve(kernel.gram(Z), K_fu.T)


def _observed(kernel: DenseKernel, X: Array, Z: Array, beta: Any, s: Array) -> tuple[Any, ...]:
    """Return Q, which rows have weight, and the covariance of their data."""
    Q = nystrom(kernel, X, Z)
    rows = np.flatnonzero(np.real(s) > 0)
    return Q, rows, Q[np.ix_(rows, rows)] + np.diag(1.0 / (beta * s[rows]))


def data_term(kernel: DenseKernel, Y: Array, X: Array, Z: Array, beta: Any, s: Array) -> Any:
    """Return Σ_i log N(y_i|0, Q + B⁻¹) plus the last term of c_nm, for one Gaussian process."""
    P = Y.shape[1]
    _, rows, covariance = _observed(kernel, X, Z, beta, s)
    y, weight = Y[rows], s[rows]
    gaussian = -0.5 * (
        P * (len(rows) * np.log(2.0 * np.pi) + log_det(covariance))
        + np.sum(y * np.linalg.solve(covariance, y))
    )
    rate = beta / (2.0 * np.pi)
    constants = 0.5 * P * np.sum(weight * np.log(rate) - np.log(weight * rate))
    return gaussian + constants


def log_normal(X: Array, mean: Array, covariance: Array) -> Array:
    """Return log N(x_n | mean, covariance)."""
    D = X - mean
    squares = np.sum(D * np.linalg.solve(covariance, D.T).T, axis=1)
    return -0.5 * (squares + log_det(2.0 * np.pi * covariance))


def log_prior(problem: Problem) -> Array:
    """Return log N(x_n | x̄_m, C_m), (N, M)."""
    components = zip(problem.means, problem.covariances, strict=True)
    return np.stack([log_normal(problem.X, x, C) for x, C in components], axis=1)


def parts(problem: Problem) -> dict[str, float]:
    """Return the four parts of the bound."""
    S = problem.S
    positive = S > 0
    log_S = np.log(np.where(positive, S, 1.0))
    log_weights = np.log(np.where(problem.weights > 0, problem.weights, 1.0))
    data = sum(
        data_term(kernel, problem.Y, problem.X, problem.Z, problem.beta, s)
        for kernel, s in zip(problem.kernels, problem.row_weights().T, strict=True)
    )
    return {
        "data": float(data),
        "latent_prior": float(np.sum(S * log_prior(problem))),
        "weights": float(np.sum(S * log_weights)),
        "entropy": -float(np.sum(S * log_S)),
    }


def bound(problem: Problem) -> float:
    """Return the KL-corrected bound."""
    return sum(parts(problem).values())


def posterior(
    kernel: DenseKernel, Y: Array, X: Array, Z: Array, beta: float, s: Array
) -> tuple[Array, Array]:
    """Return mean (N, P) and variance (N,) of q(f): a Gaussian given the rows that have weight."""
    Q, rows, covariance = _observed(kernel, X, Z, beta, s)
    gain = np.linalg.solve(covariance, Q[rows]).T
    return gain @ Y[rows], np.diag(Q) - np.sum(gain * Q[:, rows], axis=1)


def expected_log_likelihoods(problem: Problem) -> Array:
    """Return ⟨log p(y_n|f_n)⟩ under every optimal q(f_m), (N, G)."""
    P = problem.Y.shape[1]
    columns = []
    for kernel, s in zip(problem.kernels, problem.row_weights().T, strict=True):
        mean, variance = posterior(kernel, problem.Y, problem.X, problem.Z, problem.beta, s)
        spread = np.sum((problem.Y - mean) ** 2, axis=1) + P * variance
        columns.append(0.5 * P * np.log(problem.beta / (2 * np.pi)) - 0.5 * problem.beta * spread)
    return np.stack(columns, axis=1)


def log_p(problem: Problem) -> Array:
    """Return the unnormalized logarithms of the E-step, (N, M)."""
    latent = log_prior(problem) + np.log(problem.weights)
    # A mapping that all clusters share says nothing about which of them a row belongs to.
    return latent if problem.shared else latent + expected_log_likelihoods(problem)


def responsibilities(problem: Problem) -> Array:
    """Return S after one exact E-step."""
    log_joint = log_p(problem)
    new: Array = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    return new


def divergence(problem: Problem) -> float:
    """Return Σ_m KL(q(u_m)||p(u_m)) of the optimal q, from the textbook formula.

    y_n = g_nᵀu + noise with G = K_fu K_uu⁻¹ makes q(u) the posterior of a linear regression.
    """
    total = 0.0
    for kernel, s in zip(problem.kernels, problem.row_weights().T, strict=True):
        K = kernel.gram(problem.Z)
        G = np.linalg.solve(K, kernel.matrix(problem.Z, problem.X)).T
        weighted = G.T * (problem.beta * s)
        covariance = np.linalg.inv(np.linalg.inv(K) + weighted @ G)
        mean = covariance @ weighted @ problem.Y
        U, P = mean.shape
        spread = np.trace(np.linalg.solve(K, covariance)) - U + log_det(K) - log_det(covariance)
        total += 0.5 * float(P * spread + np.sum(mean * np.linalg.solve(K, mean)))
    return total


def standard_bound(problem: Problem, S: Array) -> float:
    """Return L_SV(q(F), S), Eq. (traditionalBound), q(F) being the optimum for ``problem.S``."""
    other = problem.with_responsibilities(S)
    expected = np.sum(other.row_weights() * expected_log_likelihoods(problem))
    latent = sum(value for name, value in parts(other).items() if name != "data")
    return float(expected) - divergence(problem) + latent
