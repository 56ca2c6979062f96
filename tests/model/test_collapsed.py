"""The collapsed Gaussian-mapping term: value, derivatives, and matrices close to singular."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic.kernels import RBF, cross
from sgpmic.model.bound import (
    JITTER_TRIES,
    SMALLEST_JITTER,
    collapsed_term,
    factorize,
)
from support import exact
from support.dense import log_det

U, P = 5, 3


def example(seed: int = 0) -> tuple[Any, ...]:
    """Return K_uu, Φ, Ψ and β that could have come from data."""
    rng = np.random.default_rng(seed)
    root, K_uf, Y = rng.normal(size=(U, U)), rng.normal(size=(U, 9)), rng.normal(size=(9, P))
    K = root @ root.T + 0.3 * np.eye(U)
    return K, K_uf @ K_uf.T, K_uf @ Y, np.asarray(1.7)


def plain(*inputs: Any) -> Any:
    """Return the term from determinants and a solve; analytic, for complex steps."""
    K, phi, psi, beta, jitter = inputs
    K = K + jitter * np.trace(K) / len(K) * np.eye(len(K))
    A, W = K + beta * phi, beta * psi
    return -0.5 * psi.shape[1] * (log_det(A) - log_det(K)) + 0.5 * np.sum(W * np.linalg.solve(A, W))


factors = jax.jit(factorize, static_argnums=4)


@partial(jax.jit, static_argnums=4)
def value_and_gradient(K: Any, phi: Any, psi: Any, beta: Any, jitter: float) -> Any:
    function = jax.value_and_grad(collapsed_term, argnums=(0, 1, 2, 3))
    return function(K, phi, psi, beta, jitter, jnp.asarray(float(psi.shape[1])))


@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_value_and_derivatives(jitter: float) -> None:
    inputs = example()
    value, gradients = value_and_gradient(*inputs, jitter)
    assert float(value) == pytest.approx(plain(*inputs, jitter), rel=1e-12)
    h = 1e-30
    for i, (matrix, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        expected = np.zeros(matrix.shape)
        for index in np.ndindex(matrix.shape):
            moved: list[Any] = [np.asarray(a, dtype=complex) for a in inputs]
            moved[i][index] += 1j * h
            expected[index] = plain(*moved, jitter).imag / h
        # The derivative by a symmetric matrix's entries one at a time is symmetric too here,
        # the term being made of log|A|, log|K| and WᵀA⁻¹W.
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11)


def test_factors() -> None:
    K, phi, psi, beta = example()
    f = factors(K, phi, psi, beta, 0.0)
    A = K + beta * phi
    np.testing.assert_allclose(f.L_inverse.T @ f.L_inverse, np.linalg.inv(K), rtol=1e-9)
    np.testing.assert_allclose(f.R_inverse.T @ f.R_inverse, np.linalg.inv(A), rtol=1e-9)
    np.testing.assert_allclose(f.alpha, np.linalg.solve(A, beta * psi), rtol=1e-9)
    assert float(f.half_log_det_B) == pytest.approx(0.5 * (log_det(A) - log_det(K)), rel=1e-12)
    assert float(f.jitter) == 0.0
    for triangular in (f.L_inverse, f.R_inverse):
        assert np.array_equal(triangular, np.tril(triangular))


# ----------------------------------------------------------------------------------------- jitter


def factor(K: np.ndarray, jitter: float) -> tuple[np.ndarray, float]:
    """Return the factor of K_uu, and its jitter, of a mapping without data."""
    f = factors(K, np.zeros((U, U)), np.zeros((U, P)), np.asarray(1.0), jitter)
    return np.linalg.inv(f.L_inverse), float(f.jitter)


@pytest.mark.parametrize("jitter", [0.0, 1e-6, 0.1])
def test_a_sound_matrix_gets_the_jitter_asked_for(jitter: float) -> None:
    K = example()[0]
    L, level = factor(K, jitter)
    assert float(level) == jitter
    expected = np.linalg.cholesky(K + jitter * np.mean(np.diag(K)) * np.eye(U))
    np.testing.assert_allclose(L, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_jitter_is_raised_no_more_than_it_takes(scale: float) -> None:
    """An eigenvalue of −2e-8 of the mean diagonal wants more than that, and 1e-7 is the next."""
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.normal(size=(U, U)))
    values = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    values[-1] = -2e-8 * values.mean()
    K = scale * (Q * values) @ Q.T
    K = 0.5 * (K + K.T)
    L, level = factor(K, 0.0)
    assert float(level) == pytest.approx(1e-7)
    np.testing.assert_allclose(
        L @ L.T, K + 1e-7 * np.mean(np.diag(K)) * np.eye(U), atol=1e-13 * scale
    )


def test_a_hopeless_matrix_is_given_up_as_nan() -> None:
    """An indefinite matrix is not a rounding error, and the largest jitter is reported."""
    L, level = factor(-np.eye(U), 0.0)
    assert np.any(np.isnan(L))
    assert float(level) == pytest.approx(SMALLEST_JITTER * 10.0**JITTER_TRIES)
    assert np.any(np.isnan(factor(np.full((U, U), np.nan), 0.0)[0]))


def with_duplicates(seed: int) -> tuple[np.ndarray, ...]:
    """Return K_uu with coincident inducing points and no white part to speak of."""
    rng = np.random.default_rng(seed)
    X, Y, Z = rng.normal(size=(40, 2)), rng.normal(size=(40, P)), rng.normal(size=(U, 2))
    Z[1] = Z[0]
    Z[3] = Z[2]
    kernel = RBF(white=1e-300)
    K_uf = np.asarray(cross(kernel, jnp.asarray(Z), jnp.asarray(X)))
    return np.asarray(kernel.gram(jnp.asarray(Z))), K_uf @ K_uf.T, K_uf @ Y, np.asarray(2.0)


@pytest.mark.parametrize("seed", range(5))
def test_duplicate_inducing_points(seed: int) -> None:
    K, phi, psi, beta = with_duplicates(seed)
    f = factors(K, phi, psi, beta, 0.0)
    assert 0.0 < float(f.jitter) <= SMALLEST_JITTER * 10.0**JITTER_TRIES
    value, gradients = value_and_gradient(K, phi, psi, beta, 0.0)
    for array in (value, *f, *gradients):
        assert np.all(np.isfinite(array))
    # A duplicate says nothing new, so the value is that of the distinct points alone.
    distinct = [0, 2, 4]
    alone = plain(K[np.ix_(distinct, distinct)], phi[np.ix_(distinct, distinct)], psi[distinct],
                  beta, 0.0)  # fmt: skip
    assert float(value) == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("gap", [1e-5, 1e-6, 1e-7, 1e-8])
def test_points_that_almost_coincide(gap: float) -> None:
    """Neither NaN nor a wrong number: the value is right for the jitter that is reported.

    K_uu may just about have a factor and be useless all the same: the rounding errors of Φ grow
    by β/λ_min(K_uu) on their way into B = I + β L⁻¹ΦL⁻ᵀ. With many rows and little noise they
    are larger than I itself, and B has no factor, or a wrong one.
    """
    beta = 1e4
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, Y, Z = rng.normal(size=(200, 2)), rng.normal(size=(200, P)), rng.normal(size=(U, 2))
        Z[1] = Z[0] + gap
        kernel = RBF(white=1e-300, gamma=0.1)
        K = np.asarray(kernel.gram(jnp.asarray(Z)))
        K_uf = np.asarray(cross(kernel, jnp.asarray(Z), jnp.asarray(X)))
        inputs = (K, K_uf @ K_uf.T, K_uf @ Y, np.asarray(beta))
        f = factors(*inputs, 0.0)
        assert all(np.all(np.isfinite(array)) for array in f), seed
        value, gradients = value_and_gradient(*inputs, 0.0)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients), seed
        expected = exact.collapsed_term(K, K_uf, Y, beta, float(f.jitter))
        assert float(value) == pytest.approx(expected, rel=1e-2), seed
