"""Posteriors of the mixture's parameters, against what they integrate out.

For points that are known (σ = 0) and memberships that are certain, the bound with the best
posteriors is no bound but the evidence itself: the product of every point's Student-t density
given those before it, and the Dirichlet-multinomial probability of the memberships.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import multivariate_normal, multivariate_t, t

from sgpmic.model import mixture
from sgpmic.model.bound import add_latent
from sgpmic.model.mixture import COVARIANCE_TYPES, Conjugate, Mixture, divergence, log_densities

N, Q, M, PADDED = 23, 2, 3, 5
OMEGA = np.array([[0.6, 0.2], [0.2, 0.4]])
ALPHA = 0.7
expected_prior = jax.jit(mixture.expected_prior, static_argnames="kind")
update_posterior = jax.jit(mixture.update_posterior, static_argnames="kind")


def conjugate(n_clusters: int = PADDED) -> Conjugate:
    alpha = np.zeros(n_clusters)
    alpha[:M] = ALPHA
    return Conjugate(jnp.asarray(alpha), jnp.asarray(OMEGA))


def points(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points and the clusters they are in; the last cluster has none."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(M - 1, size=N)
    return rng.normal(size=(N, Q)) + 2.0 * labels[:, None], labels


@partial(jax.jit, static_argnames="kind")
def objective(mixture: Mixture, X: Any, S: Any, x_std: Any, kind: str) -> Any:
    """Return the part of the bound that the posteriors have a say in."""
    prior = expected_prior(mixture, conjugate(S.shape[1]), jnp.asarray(float(N)), kind=kind)
    latent = add_latent(jnp.zeros(()), prior, X, S, x_std=x_std).bound
    return latent - divergence(mixture, conjugate(S.shape[1]), jnp.asarray(float(N)), kind=kind)


def predictive(
    kind: str, x: np.ndarray, mean: np.ndarray, kappa: float, nu: float, B: Any
) -> float:
    """Return the log density of a point given those before it; B is W⁻¹."""
    wider = (kappa + 1.0) / kappa
    if kind == "unit":
        return float(multivariate_normal(mean, wider * np.eye(Q)).logpdf(x))
    if kind == "diag":
        return float(np.sum(t(nu, mean, np.sqrt(np.diag(B) * wider / nu)).logpdf(x)))
    if kind == "spherical":
        return float(multivariate_t(mean, B * wider / nu * np.eye(Q), nu).logpdf(x))
    df = nu - Q + 1.0
    return float(multivariate_t(mean, B * wider / df, df).logpdf(x))


def log_evidence(kind: str, X: np.ndarray, labels: np.ndarray) -> float:
    """Return log p(X, labels) with all parameters integrated out, point by point."""
    mean_variance = np.trace(OMEGA) / Q
    kappa = np.full(M, 1.0 if kind == "unit" else mean_variance)
    means = np.zeros((M, Q))
    nu = np.full(M, float(Q))
    start: Any = Q * (mean_variance if kind == "spherical" else OMEGA)
    B = [np.array(start) for _ in range(M)]
    total = 0.0
    for x, m in zip(X, labels, strict=True):
        total += predictive(kind, x, means[m], kappa[m], nu[m], B[m])
        off = x - means[m]
        share = kappa[m] / (kappa[m] + 1.0)
        new = B[m] + share * (off @ off if kind == "spherical" else np.outer(off, off))
        means[m] += off / (kappa[m] + 1.0)
        kappa[m] += 1.0
        for other in range(M) if kind == "tied" else [m]:
            B[other] = new
            nu[other] += Q if kind == "spherical" else 1.0
    counts = np.bincount(labels, minlength=M)
    total += gammaln(M * ALPHA) - gammaln(M * ALPHA + N)
    return float(total + np.sum(gammaln(ALPHA + counts) - gammaln(ALPHA)))


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_clusters", [M, PADDED])
def test_the_bound_is_the_evidence_where_nothing_else_is_uncertain(
    kind: str, n_clusters: int
) -> None:
    X, labels = points()
    S = jnp.asarray(np.eye(n_clusters)[labels])
    none = jnp.zeros((N, Q))
    mixture = update_posterior(jnp.asarray(X), none, S, conjugate(n_clusters), kind=kind)
    found = objective(mixture, jnp.asarray(X), S, none, kind)
    assert float(found) == pytest.approx(log_evidence(kind, X, labels), rel=1e-9)


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_no_other_posterior_is_better(kind: str) -> None:
    """With uncertain points and memberships too."""
    rng = np.random.default_rng(1)
    X, _ = points()
    x_std = rng.uniform(0.1, 0.8, (N, Q))

    def memberships() -> Any:
        S = np.zeros((N, PADDED))
        S[:, :M] = rng.dirichlet(np.ones(M), N)
        return jnp.asarray(S)

    def posterior(X: Any, x_std: Any, S: Any) -> Mixture:
        return update_posterior(jnp.asarray(X), jnp.asarray(x_std), S, conjugate(), kind=kind)

    S = memberships()
    best = objective(posterior(X, x_std, S), jnp.asarray(X), S, jnp.asarray(x_std), kind)
    assert np.isfinite(best)
    others = [
        posterior(X, x_std, memberships()),
        posterior(X, x_std, 0.98 * S + 0.02 * memberships()),
        posterior(1.01 * X, x_std, S),
        posterior(X + 0.01, x_std, S),
    ]
    if kind != "unit":
        others.append(posterior(X, 1.02 * x_std, S))
    for other in others:
        value = objective(other, jnp.asarray(X), S, jnp.asarray(x_std), kind)
        assert best - 30.0 < value < best


def test_padding_gets_no_row_and_no_number_that_is_not_finite() -> None:
    X, labels = points()
    S = jnp.asarray(np.eye(PADDED)[labels])
    mixture = update_posterior(jnp.asarray(X), jnp.ones((N, Q)), S, conjugate(), kind="full")
    prior = expected_prior(mixture, conjugate(), jnp.asarray(float(N)), kind="full")
    np.testing.assert_array_equal(mixture.weights[M:], 0.0)
    np.testing.assert_array_equal(prior.log_weights[M:], -np.inf)
    assert np.all(np.isfinite(prior.log_weights[:M]))
    for leaf in (*mixture, prior.whiteners, prior.log_normalizers):
        assert np.all(np.isfinite(leaf))


def test_expected_log_densities_of_uncertain_points() -> None:
    """Log densities are quadratic: five points for each of two dimensions are exact."""
    X, labels = points()
    S = jnp.asarray(np.eye(PADDED)[labels])
    x_std = np.random.default_rng(2).uniform(0.1, 0.8, (N, Q))
    mixture = update_posterior(jnp.asarray(X), jnp.asarray(x_std), S, conjugate(), kind="full")
    prior = expected_prior(mixture, conjugate(), jnp.asarray(float(N)), kind="full")
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    weights = weights / weights.sum()
    expected = sum(
        weights[i] * weights[j] * np.asarray(log_densities(prior, X + x_std * nodes[[i, j]]))
        for i, j in np.ndindex(5, 5)
    )
    found = log_densities(prior, jnp.asarray(X), jnp.asarray(x_std))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
