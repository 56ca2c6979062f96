"""Latent points with uncertainty: expectations, the bound and its derivatives."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic.kernels import unstack
from sgpmic.model.bound import Mappings, data_term, sums
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import make_rows, pad_rows
from sgpmic.model.uncertain import entropy_of_points, expected_diagonal, sigma_points
from support import dense, psi
from support.random_problems import Ours, Sizes, our_problem, random_problem

SIZES = Sizes(N=17, P=3, Q=2, M=2, U=4)
CASES = [("rbf", False), ("rbf", True), ("linear", False), ("linear", True)]


def one_mapping(kind: str, *, ard: bool = False, seed: int = 0) -> tuple[dense.Problem, Ours]:
    problem = random_problem(SIZES, [kind], np.random.default_rng(seed), ard=ard)
    return problem, our_problem(problem, 7)


def padded(values: np.ndarray, ours: Ours) -> Any:
    return jnp.asarray(pad_rows(values, ours.rows.n_padded))


def random_spread(size: float, seed: int = 1) -> np.ndarray:
    return size * np.random.default_rng(seed).uniform(0.5, 1.5, (SIZES.N, SIZES.Q))


@jax.jit
def all_sums(ours: Ours, sigma: Any) -> tuple[Any, Any, Any]:
    kernels, Z, _ = ours.mappings
    T = ours.rows.flat_weight[:, None]
    phi, first = statistics(kernels, Z, ours.X, T, ours.rows.Y, None, 0, sigma)
    return phi, first, expected_diagonal(kernels, ours.X, sigma, T)


def our_sums(ours: Ours, x_std: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    phi, first, diagonal = all_sums(ours, padded(x_std, ours))
    return np.asarray(phi)[0], np.asarray(first)[0, :, : SIZES.P], float(diagonal)


@pytest.mark.parametrize("Q", [1, 2, 3, 5])
def test_sigma_points_have_the_moments_of_a_standard_normal(Q: int) -> None:
    places, weights = sigma_points(Q)
    assert places.shape == (2 * Q + 1, Q)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights @ places, 0.0, atol=1e-15)
    np.testing.assert_allclose((places.T * weights) @ places, np.eye(Q), atol=1e-14)
    fourth = weights @ places**4
    assert np.all(fourth >= 3.0 - 1e-12)  # a smaller one would let the data hide in σ
    if Q < 3:
        np.testing.assert_allclose(fourth, 3.0)


@pytest.mark.parametrize(("kind", "ard"), CASES)
def test_sums_are_the_closed_forms(kind: str, ard: bool) -> None:
    """Exactly for the linear kernel; for the RBF the error falls with the fourth power of σ."""
    problem, ours = one_mapping(kind, ard=ard)
    errors = []
    for size in (0.1, 0.05):
        x_std = random_spread(size)
        expected = psi.closed_forms(problem.kernels[0], problem.X, x_std, problem.Z)
        phi, first, diagonal = our_sums(ours, x_std)
        assert diagonal == pytest.approx(expected.diagonal.sum(), rel=1e-12)
        exact = expected.second.sum(axis=0), expected.first.T @ problem.Y
        errors.append([np.abs(a - b).max() for a, b in zip((phi, first), exact, strict=True)])
        # At σ = 0.1 the expectations are far from the values at μ ...
        at_mean = problem.kernels[0].matrix(problem.Z, problem.X)
        assert np.abs(at_mean @ at_mean.T - exact[0]).max() > 30 * errors[-1][0]
    if kind == "linear":
        assert np.max(errors) < 1e-12
    else:  # ... and the sigma points close to them.
        ratios = np.divide(*errors)
        assert np.all((ratios > 12) & (ratios < 20))


def test_the_closed_forms_are_expectations() -> None:
    """The test's own formulas, by Gauss and Hermite's quadrature."""
    problem, _ = one_mapping("rbf", ard=True)
    kernel, x_std = problem.kernels[0], random_spread(0.5)
    expected = psi.closed_forms(kernel, problem.X, x_std, problem.Z)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    weights = weights / weights.sum()
    first, second = np.zeros_like(expected.first), np.zeros_like(expected.second)
    for i, j in np.ndindex(30, 30):
        k = kernel.matrix(problem.X + x_std * nodes[[i, j]], problem.Z)
        first += weights[i] * weights[j] * k
        second += weights[i] * weights[j] * k[:, :, None] * k[:, None, :]
    np.testing.assert_allclose(first, expected.first, rtol=1e-8)
    np.testing.assert_allclose(second, expected.second, rtol=1e-8)


@pytest.mark.parametrize(("kind", "ard"), CASES)
def test_with_exact_expectations_it_is_titsias_and_lawrence_s_bound(
    kind: str, ard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, ours = one_mapping(kind, ard=ard)
    kernel, beta, x_std = problem.kernels[0], problem.beta, random_spread(0.7)
    exact = psi.closed_forms(kernel, problem.X, x_std, problem.Z)
    P = ours.rows.Y.shape[1]
    first = np.zeros((SIZES.U, P))
    first[:, : SIZES.P] = exact.first.T @ problem.Y
    T = ours.rows.flat_weight[:, None]
    exact_sums = jnp.asarray(exact.second.sum(axis=0))[None], jnp.asarray(first)[None]
    monkeypatch.setattr("sgpmic.model.bound.sums", lambda *_: exact_sums)
    value = float(data_term(ours.mappings, ours.X, T, ours.rows, 0.0, padded(x_std, ours)))
    assert value == pytest.approx(psi.bound(kernel, problem.Y, problem.Z, beta, exact), rel=1e-9)


@pytest.mark.skipif(importlib.util.find_spec("gpflow") is None, reason="needs GPflow")
def test_gpflow_has_the_same_bound() -> None:
    import gpflow

    problem, _ = one_mapping("rbf")
    jitter = gpflow.config.default_jitter()
    kernel = replace(problem.kernels[0], variance=1.3, bias=0.0, white=jitter, gamma=0.8)
    x_std = random_spread(0.7)
    exact = psi.closed_forms(kernel, problem.X, x_std, problem.Z)
    other = gpflow.models.BayesianGPLVM(
        problem.Y,
        problem.X,
        x_std**2,
        gpflow.kernels.SquaredExponential(kernel.variance, kernel.gamma**-0.5),
        inducing_variable=problem.Z,
    )
    other.likelihood.variance.assign(1.0 / problem.beta)
    divergence = 0.5 * np.sum(x_std**2 + problem.X**2 - 1.0 - 2.0 * np.log(x_std))
    ours = psi.bound(kernel, problem.Y, problem.Z, problem.beta, exact) - divergence
    assert ours == pytest.approx(float(other.elbo()), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "shared"), [*((kind, True) for kind in dense.KINDS), ("rbf", False), ("linear", False)]
)
def test_the_data_term_and_its_derivatives(kind: str, shared: bool) -> None:
    """Against N×N matrices, in any number of blocks; derivatives against finite differences."""
    rng = np.random.default_rng(3)
    problem = random_problem(SIZES, [kind] * (1 if shared else SIZES.M), rng)
    x_std = random_spread(0.4)
    ours = our_problem(problem, 7)
    T = ours.rows.flat_weight[:, None] if shared else ours.S

    def value(X: Any, log_x_std: Any, Z: Any, log_kernels: Any, log_beta: Any) -> Any:
        mappings = Mappings(jax.tree.map(jnp.exp, log_kernels), Z, jnp.exp(log_beta))
        return data_term(mappings, X, T, ours.rows, 1e-6, jnp.exp(log_x_std))

    kernels, Z, beta = ours.mappings
    # Padding rows have some spread too: it must not matter.
    wide = np.asarray(padded(x_std, ours))
    log_x_std = np.log(np.where(wide > 0, wide, 0.3))
    point = (ours.X, log_x_std, Z, jax.tree.map(np.log, kernels), np.log(beta))
    point = jax.tree.map(np.asarray, point)
    both = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2, 3, 4)))
    found, gradient = both(*point)
    assert float(found) == pytest.approx(
        psi.data_term(problem, x_std, *sigma_points(SIZES.Q)), rel=2e-6
    )
    assert not np.any(gradient[1][SIZES.N :])
    step = 1e-5
    for argument in range(5):  # each by itself, or a small one would hide behind a large one
        direction = [jax.tree.map(np.zeros_like, part) for part in point]
        direction[argument] = jax.tree.map(
            lambda leaf: np.asarray(rng.normal(size=leaf.shape)), point[argument]
        )
        there, back = (
            both(*jax.tree.map(lambda p, d, s=s: p + s * step * d, point, tuple(direction)))[0]
            for s in (1.0, -1.0)
        )
        pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(tuple(direction)), strict=True)
        expected = sum(float(np.sum(g * d)) for g, d in pairs)
        assert float(there - back) / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_without_spread_it_is_the_point_bound_and_the_trace_term() -> None:
    problem, ours = one_mapping("matern32")
    T = ours.rows.flat_weight[:, None]
    tiny = jnp.full_like(ours.X, 1e-9)
    point = float(jax.jit(data_term)(ours.mappings, ours.X, T, ours.rows, 0.0))
    kernel = problem.kernels[0]
    own = kernel.variance + kernel.bias
    covered = np.diag(dense.nystrom(kernel, problem.X, problem.Z))
    trace = -0.5 * problem.beta * SIZES.P * np.sum(own - covered)
    assert trace < -1.0
    found = float(jax.jit(data_term)(ours.mappings, ours.X, T, ours.rows, 0.0, tiny))
    assert found == pytest.approx(point + trace, rel=1e-9)


def test_blocks_and_the_gpu_s_pass_change_nothing() -> None:
    problem, ours = one_mapping("rbf")
    x_std = random_spread(0.4)
    expected = None
    for block, gpu_memory in ((None, 0), (3, 0), (3, 2**20)):
        rows = make_rows(problem.Y, block, gpu_memory)
        X, sigma = (jnp.asarray(pad_rows(a, rows.n_padded)) for a in (problem.X, x_std))
        T = rows.flat_weight[:, None]

        def value(X: Any, sigma: Any, rows: Any = rows, T: Any = T) -> Any:
            return data_term(ours.mappings, X, T, rows, 1e-8, sigma)

        result, gradient = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))(X, sigma)
        found = [np.asarray(result), *(np.asarray(g)[: SIZES.N] for g in gradient)]
        expected = found if expected is None else expected
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_sums_with_a_spread_are_those_of_the_bound() -> None:
    problem, ours = one_mapping("rational_quadratic")
    x_std = random_spread(0.4)
    T = ours.rows.flat_weight[:, None]
    phi, first = sums(ours.mappings, ours.X, T, ours.rows, padded(x_std, ours))
    Y, X, weighted = psi.repeated(problem, x_std, *sigma_points(SIZES.Q))
    kernel = dense.DenseKernel(
        "rational_quadratic", **unstack(ours.mappings.kernels)[0].parameters()
    )
    K = kernel.matrix(problem.Z, X) * weighted(np.ones(SIZES.N))
    np.testing.assert_allclose(phi[0], K @ kernel.matrix(X, problem.Z), rtol=1e-9)
    np.testing.assert_allclose(first[0, :, : SIZES.P], K @ Y, rtol=1e-8, atol=1e-12)


def test_the_entropy_of_the_points_leaves_padding_out() -> None:
    from scipy.stats import norm

    x_std = random_spread(0.4)
    log_x_std = jnp.asarray(np.log(np.concatenate([x_std, np.full((3, SIZES.Q), 9.0)])))
    weight = jnp.asarray(np.repeat([1.0, 0.0], [SIZES.N, 3]))
    expected = norm(scale=x_std).entropy().sum()
    assert float(entropy_of_points(log_x_std, weight)) == pytest.approx(expected, rel=1e-12)
