"""The latent mixture's objective and its competitors, from SciPy's distributions."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy
from scipy.stats import dirichlet, invwishart, multivariate_normal

Values = tuple[np.ndarray, np.ndarray, np.ndarray]


def expected_log_density(mixture: Values, X: np.ndarray, S: np.ndarray) -> float:
    """Return Σ s_nm [log N(x_n|x̄_m, C_m) + log π_m]."""
    weights, means, covariances = mixture
    total = float(np.sum(xlogy(S, weights)))
    for m in range(S.shape[1]):
        total += float(S[:, m] @ multivariate_normal(means[m], covariances[m]).logpdf(X))
    return total


def log_conjugate(mixture: Values, nu: float, omega: np.ndarray) -> float:
    """Return the conjugate prior's log density, 0 at its peak.

    An inverse Wishart has its peak at scale/(df + Q + 1); a Dirichlet's density goes with
    Π π^(α − 1). Strength ν therefore means df + Q + 1 = ν, scale = νΩ and α = ν + 1.
    """
    if nu == 0:
        return 0.0
    weights, _, covariances = mixture
    M, Q, _ = covariances.shape
    wishart = invwishart(df=nu - Q - 1, scale=nu * omega)
    spread = sum(wishart.logpdf(C) - wishart.logpdf(omega) for C in covariances)
    counts = np.full(M, nu + 1.0)
    return float(
        spread + dirichlet.logpdf(weights, counts) - dirichlet.logpdf(np.full(M, 1 / M), counts)
    )


def random_of_kind(kind: str, rng: np.random.Generator, M: int, Q: int, floor: float) -> np.ndarray:
    """Return covariances of a kind, their eigenvalues at or above ``floor``."""
    eye = np.eye(Q)
    if kind == "unit":
        return np.stack([eye] * M)
    if kind == "spherical":
        return (floor + rng.uniform(0.0, 2.0, M))[:, None, None] * eye
    if kind == "diag":
        return (floor + rng.uniform(0.0, 2.0, (M, Q)))[:, :, None] * eye
    roots = rng.normal(size=(1 if kind == "tied" else M, Q, Q))
    full = roots @ roots.transpose(0, 2, 1) + floor * eye
    return np.broadcast_to(full, (M, Q, Q)).copy()


def random_mixture(kind: str, rng: np.random.Generator, M: int, Q: int, floor: float) -> Values:
    return (
        rng.dirichlet(np.full(M, 2.0)),
        rng.normal(size=(M, Q)),
        random_of_kind(kind, rng, M, Q, floor),
    )


def towards(mixture: Values, other: Values, share: float) -> Values:
    """Return a mixture between two of one kind; every kind's covariances are a convex set."""
    between = [(1 - share) * a + share * b for a, b in zip(mixture, other, strict=True)]
    return (between[0], between[1], between[2])
