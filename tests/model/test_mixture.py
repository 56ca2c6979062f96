"""The latent mixture: densities and closed forms against SciPy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy as scipy_entropy
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _estimate_gaussian_parameters

from sgpmic.model.mixture import (
    COVARIANCE_TYPES,
    Conjugate,
    Mixture,
    entropy,
    factor_mixture,
    log_conjugate,
    log_densities,
    pooled_scatter,
    standardize,
    update_mixture,
    weighted_sum,
)
from support import mixtures
from support.random_problems import random_memberships

N, Q, M = 30, 2, 3
FLOOR = 1e-3
every_type = pytest.mark.parametrize("kind", COVARIANCE_TYPES)

update = partial(jax.jit, static_argnames=("kind", "floor"))(update_mixture)
evaluate_conjugate = jax.jit(
    lambda mixture, conjugate: log_conjugate(mixture, conjugate, factor_mixture(mixture))
)


# Compiled, because a loop that is run eagerly is compiled anew at every call.
@jax.jit
def log_joint(mixture: Mixture, X: jax.Array) -> jax.Array:
    """Return log π_m + log N(x_n|x̄_m, C_m)."""
    prior = factor_mixture(mixture)
    return log_densities(prior, X) + prior.log_weights


def example(seed: int = 0) -> tuple[Any, Any]:
    """Return latent rows and responsibilities, among them exact zeros and ones."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, Q)) @ np.array([[1.0, 0.6], [0.0, 0.5]]), random_memberships(
        rng, N, M
    )


def conjugate(nu: float, omega: np.ndarray | None = None) -> Conjugate:
    return Conjugate(jnp.full(M, nu), jnp.asarray(np.eye(Q) if omega is None else omega))


def start() -> Mixture:
    return Mixture(jnp.full(M, 1.0 / M), jnp.zeros((M, Q)), jnp.broadcast_to(jnp.eye(Q), (M, Q, Q)))


def as_arrays(mixture: Mixture) -> mixtures.Values:
    weights, means, covariances = map(np.asarray, mixture)
    return weights, means, covariances


# ------------------------------------------------------------------------------------- densities


def test_log_densities_are_scipy_s() -> None:
    X, _ = example()
    mixture = mixtures.random_mixture("full", np.random.default_rng(1), M, Q, 0.1)
    found = log_joint(Mixture(*map(jnp.asarray, mixture)), jnp.asarray(X))
    for m, (weight, mean, covariance) in enumerate(zip(*mixture, strict=True)):
        expected = np.log(weight) + multivariate_normal(mean, covariance).logpdf(X)
        np.testing.assert_allclose(found[:, m], expected, rtol=1e-11)


def test_weighted_sum_and_entropy() -> None:
    _, S = example()
    values = np.random.default_rng(2).normal(size=S.shape)
    assert np.any(S == 0.0)
    assert float(weighted_sum(S, values)) == pytest.approx(np.sum(S * values), rel=1e-13)
    infinite = jnp.where(S > 0, values, -jnp.inf)
    assert float(weighted_sum(S, infinite)) == pytest.approx(np.sum(S * values), rel=1e-13)
    assert float(entropy(S)) == pytest.approx(scipy_entropy(S, axis=1).sum(), rel=1e-13)


# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("kind", ["spherical", "diag", "tied", "full"])
def test_closed_forms_are_scikit_learn_s(kind: str) -> None:
    X, S = example()
    found = update(start(), X, S, conjugate(0.0), kind=kind, floor=FLOOR)
    counts, means, covariances = _estimate_gaussian_parameters(X, S, 0.0, kind)
    full: dict[str, Callable[[], np.ndarray]] = {
        "spherical": lambda: covariances[:, None, None] * np.eye(Q),
        "diag": lambda: covariances[:, :, None] * np.eye(Q),
        "tied": lambda: np.stack([covariances] * M),
        "full": lambda: covariances,
    }
    np.testing.assert_allclose(found.weights, counts / N, rtol=1e-11)
    np.testing.assert_allclose(found.means, means, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.covariances, full[kind](), rtol=1e-11, atol=1e-13)


def test_iterating_them_is_scikit_learn_s_mixture() -> None:
    """EM of a plain Gaussian mixture from the same start ends where scikit-learn's does."""
    rng = np.random.default_rng(3)
    centers = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    X = centers[rng.integers(M, size=N)] + rng.normal(size=(N, Q))
    theirs = GaussianMixture(
        M, reg_covar=0.0, means_init=centers, weights_init=np.full(M, 1 / M),
        precisions_init=np.stack([np.eye(Q)] * M), tol=0.0, max_iter=60,
    )  # fmt: skip
    with pytest.warns(match="did not converge"):  # a tolerance of 0 is never met
        theirs.fit(X)
    mixture = start()._replace(means=jnp.asarray(centers))

    @jax.jit
    def iterate(mixture: Mixture) -> Mixture:
        S = jax.nn.softmax(log_joint(mixture, jnp.asarray(X)), axis=1)
        return update(mixture, X, S, conjugate(0.0), kind="full", floor=FLOOR)

    for _ in range(60):
        mixture = iterate(mixture)
    np.testing.assert_allclose(mixture.weights, theirs.weights_, rtol=1e-8)
    np.testing.assert_allclose(mixture.means, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(mixture.covariances, theirs.covariances_, rtol=1e-8)


def test_unit_covariances_stay_unit() -> None:
    X, S = example()
    found = update(start(), X, S, conjugate(5.0), kind="unit", floor=FLOOR)
    assert np.array_equal(found.covariances, np.stack([np.eye(Q)] * M))


@every_type
@pytest.mark.parametrize("nu", [0.0, 7.0], ids=["no prior", "prior"])
@pytest.mark.parametrize("scale", [1.0, 0.04], ids=["free", "floored"])
def test_closed_forms_are_a_maximum(kind: str, nu: float, scale: float) -> None:
    """No mixture of the kind, near or far, does better; nor where the floor cuts in."""
    X, S = example(4)
    X = scale * X
    rng = np.random.default_rng(5)
    omega = scale**2 * mixtures.random_of_kind("full", rng, 1, Q, 0.3)[0]
    found = as_arrays(update(start(), X, S, conjugate(nu, omega), kind=kind, floor=FLOOR))

    def objective(mixture: mixtures.Values) -> float:
        prior = mixtures.log_conjugate(mixture, nu, omega)
        return mixtures.expected_log_density(mixture, X, S) + prior

    best = objective(found)
    smallest = np.linalg.eigvalsh(found[2]).min()
    assert smallest >= FLOOR * (1 - 1e-12)
    if kind != "unit" and scale < 1 and nu == 0:  # the case is what it says
        assert smallest == pytest.approx(FLOOR)
    assert found[0].sum() == pytest.approx(1.0, rel=1e-13)
    for share in (1.0, 0.1, 0.01, 0.001):
        for _ in range(10):
            other = mixtures.random_mixture(kind, rng, M, Q, FLOOR)
            for field in (0, 1, 2):  # one thing at a time, too: a gain in one could hide
                one = list(found)
                one[field] = mixtures.towards(found, other, share)[field]
                assert objective((one[0], one[1], one[2])) <= best + 1e-10 * abs(best)
            assert objective(mixtures.towards(found, other, share)) <= best + 1e-10 * abs(best)


def test_log_conjugate_is_an_inverse_wishart_and_a_dirichlet() -> None:
    rng = np.random.default_rng(6)
    omega = mixtures.random_of_kind("full", rng, 1, Q, 0.3)[0]
    for nu in (6.0, 25.0):
        for _ in range(3):
            mixture = mixtures.random_mixture("full", rng, M, Q, 0.1)
            found = evaluate_conjugate(Mixture(*map(jnp.asarray, mixture)), conjugate(nu, omega))
            expected = mixtures.log_conjugate(mixture, nu, omega)
            assert float(found) == pytest.approx(expected, rel=1e-10)
            assert float(found) < 0.0


def test_log_conjugate_is_zero_at_its_peak_and_without_strength() -> None:
    omega = np.array([[1.5, 0.2], [0.2, 0.7]])
    peak = start()._replace(covariances=jnp.stack([jnp.asarray(omega)] * M))
    assert float(evaluate_conjugate(peak, conjugate(9.0, omega))) == pytest.approx(0.0, abs=1e-12)
    dead = start()._replace(weights=jnp.array([1.0, 0.0, 0.0]))
    assert float(evaluate_conjugate(dead, conjugate(0.0, omega))) == 0.0


@every_type
@pytest.mark.parametrize("nu", [0.0, 4.0], ids=["no prior", "prior"])
def test_a_dead_cluster_keeps_finite_values(kind: str, nu: float) -> None:
    X, S = example()
    S = np.stack([S[:, 0] + S[:, 1], np.zeros(N), S[:, 2]], axis=1)
    old = mixtures.random_mixture(kind, np.random.default_rng(7), M, Q, FLOOR)
    omega = np.array([[1.5, 0.2], [0.2, 0.7]])
    found = update(
        Mixture(*map(jnp.asarray, old)), X, S, conjugate(nu, omega), kind=kind, floor=FLOOR
    )
    for values in found:
        assert np.all(np.isfinite(values))
    assert np.array_equal(found.means[1], old[1][1])  # nothing to learn a mean from
    assert float(found.weights[1]) == pytest.approx(nu / (N + M * nu), abs=1e-15)
    if kind == "full":  # the covariance is the old one, or with a prior the prior's
        np.testing.assert_allclose(found.covariances[1], omega if nu else old[2][1], rtol=1e-12)
    S_new = np.asarray(jax.nn.softmax(log_joint(found, jnp.asarray(X)), axis=1))
    assert np.all(np.isfinite(S_new))
    assert nu > 0 or not S_new[:, 1].any()
    assert np.isfinite(weighted_sum(jnp.asarray(S), jnp.log(found.weights)[None, :]))


@every_type
def test_a_cluster_of_one_row_is_held_up_by_the_floor(kind: str) -> None:
    X, S = example()
    S = np.zeros((N, M))
    S[0, 0] = S[1, 1] = 1.0
    S[2:, 2] = 1.0
    found = update(start(), X, S, conjugate(0.0), kind=kind, floor=FLOOR)
    values = np.linalg.eigvalsh(found.covariances)
    assert np.all(np.isfinite(values))
    assert values.min() >= FLOOR * (1 - 1e-12)


def test_pooled_scatter_is_the_tied_covariance() -> None:
    X, S = example()
    _, _, expected = _estimate_gaussian_parameters(X, S, 0.0, "tied")
    np.testing.assert_allclose(pooled_scatter(X, S), expected, rtol=1e-11)


# --------------------------------------------------------------------------------- scale of X


def test_standardize() -> None:
    rng = np.random.default_rng(8)
    X = 3.0 + rng.normal(size=(N, 3)) * [10.0, 1.0, 0.1]
    found = np.asarray(standardize(jnp.asarray(X), jnp.ones(N))[0])
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-13)
    assert np.mean(found**2) == pytest.approx(1.0, rel=1e-13)
    # One scale for all: the dimensions keep their proportions.
    np.testing.assert_allclose(
        found.std(axis=0) / found.std(axis=0)[0], X.std(axis=0) / X.std(axis=0)[0], rtol=1e-12
    )
    np.testing.assert_allclose(standardize(jnp.asarray(found), jnp.ones(N))[0], found, atol=1e-13)


def test_standardize_ignores_padding() -> None:
    X = np.random.default_rng(9).normal(size=(N, Q))
    padded: Any = np.concatenate([X, np.full((4, Q), 1e3)])
    weight = np.concatenate([np.ones(N), np.zeros(4)])
    found = standardize(jnp.asarray(padded), jnp.asarray(weight))[0]
    np.testing.assert_allclose(found[:N], standardize(jnp.asarray(X), jnp.ones(N))[0], rtol=1e-13)
    assert not np.any(found[N:])
