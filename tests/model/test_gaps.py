"""Missing cells: the bound over the observed ones, in groups of features and with posteriors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from sgpmic.model import bound, e_step, evaluate
from sgpmic.model.bound import factorize_all, mapping_weights, sums
from sgpmic.model.mixture import factor_mixture, log_densities
from sgpmic.model.prediction import left_out, log_joints, make_posterior, mapping_moments
from sgpmic.model.rows import make_rows, pad, pad_rows, with_cells
from support import dense
from support.random_problems import Ours, Sizes, our_kernel, our_problem, random_problem

SIZES = Sizes(N=14, P=5, Q=2, M=3, U=4)
data_term = jax.jit(bound.data_term)
expected_cells = jax.jit(e_step.expected_cells)

several_models = pytest.mark.parametrize(
    ("kind", "shared"), [("rbf", False), ("linear", False), ("rbf", True), ("matern32", True)]
)


def with_holes(kind: str, shared: bool, seed: int = 0) -> dense.Problem:
    """Return a problem in which two features are complete, two miss the same cells, one others."""
    rng = np.random.default_rng(seed)
    problem = random_problem(SIZES, [kind] * (1 if shared else SIZES.M), rng)
    Y = problem.Y.copy()
    Y[2:6, 1:3] = np.nan
    Y[[0, 5, 9], 4] = np.nan
    return replace(problem, Y=Y)


def column_problems(problem: dense.Problem) -> list[tuple[np.ndarray, dense.Problem]]:
    """Return a problem for every feature: the rows that have it, nothing missing."""
    found = []
    for column in problem.Y.T:
        rows = ~np.isnan(column)
        found.append(
            (
                rows,
                replace(problem, Y=column[rows, None], X=problem.X[rows], S=problem.S[rows]),
            )
        )
    return found


def dense_data(problem: dense.Problem) -> float:
    """Return the data term over the observed cells: features are independent given X."""
    return sum(dense.parts(one)["data"] for _, one in column_problems(problem))


def dense_log_p(problem: dense.Problem) -> np.ndarray:
    total = dense.log_prior(problem) + np.log(problem.weights)
    if not problem.shared:
        for rows, one in column_problems(problem):
            total[rows] += dense.expected_log_likelihoods(one)
    return total


def ours_of(problem: dense.Problem, block: int | None = 6) -> Ours:
    return our_problem(problem, block)


def weights_of(ours: Ours, problem: dense.Problem) -> Any:
    return mapping_weights(ours.S, ours.rows, shared=problem.shared)


@several_models
@pytest.mark.parametrize("block", [None, 6])
def test_the_bound_is_that_of_the_observed_cells(kind: str, shared: bool, block: int) -> None:
    problem = with_holes(kind, shared)
    found = evaluate(
        problem.Y,
        problem.X,
        problem.Z,
        [our_kernel(kernel) for kernel in problem.kernels],
        problem.beta,
        problem.S,
        problem.weights,
        problem.means,
        problem.covariances,
        block=block,
    )
    assert found.parts["data"] == pytest.approx(dense_data(problem), rel=1e-9)
    log_p = dense_log_p(problem)
    expected = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.responsibilities, expected, atol=1e-9)


@several_models
def test_its_derivatives_are_those_of_the_dense_evaluation(kind: str, shared: bool) -> None:
    problem = with_holes(kind, shared)
    ours = ours_of(problem)
    T = weights_of(ours, problem)

    def ours_at(X: Any, beta: Any) -> Any:
        return data_term(ours.mappings._replace(beta=beta), X, T, ours.rows, 0.0)

    by_X, by_beta = jax.jit(jax.grad(ours_at, argnums=(0, 1)))(ours.X, ours.mappings.beta)
    step = 1e-6
    for n, q in [(0, 0), (5, 1), (9, 0)]:
        up, down = problem.X.copy(), problem.X.copy()
        up[n, q] += step
        down[n, q] -= step
        slope = dense_data(replace(problem, X=up)) - dense_data(replace(problem, X=down))
        assert by_X[n, q] == pytest.approx(slope / (2 * step), rel=1e-5, abs=1e-6)
    up, down = (replace(problem, beta=problem.beta + sign * step) for sign in (1, -1))
    slope = (dense_data(up) - dense_data(down)) / (2 * step)
    assert by_beta == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_uncertain_points_see_observed_cells_only(shared: bool) -> None:
    """As complete tables of one feature each, added up."""
    problem = with_holes("rbf", shared)
    ours = ours_of(problem)
    spread = np.random.default_rng(3).uniform(0.1, 0.5, problem.X.shape)
    sigma = jnp.asarray(pad_rows(spread, ours.rows.n_padded))
    found = data_term(ours.mappings, ours.X, weights_of(ours, problem), ours.rows, 0.0, sigma)
    expected = 0.0
    for rows, one in column_problems(problem):
        own = our_problem(one, 6)
        own_sigma = jnp.asarray(pad_rows(spread[rows], own.rows.n_padded))
        T = weights_of(own, one)
        expected += float(data_term(own.mappings, own.X, T, own.rows, 0.0, own_sigma))
    assert float(found) == pytest.approx(expected, rel=1e-10)


def cells_problem(kind: str, shared: bool) -> tuple[dense.Problem, Ours, Any]:
    """Return the same with a posterior for every missing cell, and its first means."""
    problem = with_holes(kind, shared)
    ours = ours_of(problem)
    missing = np.isnan(problem.Y)
    n_padded = ours.rows.Y.shape[1]
    marks = pad_rows(pad(missing.astype(float), (SIZES.N, n_padded)), ours.rows.n_padded)
    rows = replace(ours.rows, groups=None, missing=jnp.asarray(marks))
    first = jnp.asarray(marks) * 0.3
    return problem, ours._replace(rows=rows), first


@several_models
def test_posteriors_of_cells_give_a_lower_bound_that_rises(kind: str, shared: bool) -> None:
    problem, ours, cells = cells_problem(kind, shared)
    T = weights_of(ours, problem)

    def bound_of(cells: Any) -> float:
        return float(data_term(ours.mappings, ours.X, T, with_cells(ours.rows, cells), 0.0))

    values = [bound_of(cells)]
    for _ in range(6):
        jitter = jnp.zeros(len(problem.kernels))
        rows = with_cells(ours.rows, cells)
        cells = expected_cells(ours.mappings, ours.X, T, rows, jitter=jitter)
        values.append(bound_of(cells))
    assert all(later >= earlier - 1e-10 for earlier, later in pairwise(values))
    assert values[-1] > values[0]
    assert values[-1] <= dense_data(problem) + 1e-10
    assert not np.asarray(cells)[: SIZES.N, : SIZES.P][~np.isnan(problem.Y)].any()


def test_a_filled_cell_counts_as_one_that_was_observed_but_for_its_normalizer() -> None:
    problem, ours, cells = cells_problem("rbf", True)
    filled = np.where(np.isnan(problem.Y), 0.3, problem.Y)
    expected = dense.parts(replace(problem, Y=filled))["data"]
    expected -= 0.5 * np.isnan(problem.Y).sum() * np.log(problem.beta / (2.0 * np.pi))
    T = weights_of(ours, problem)
    found = data_term(ours.mappings, ours.X, T, with_cells(ours.rows, cells), 0.0)
    assert float(found) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_the_posterior_without_a_row_is_that_of_the_other_rows(shared: bool) -> None:
    problem = with_holes("rbf", shared)
    ours = ours_of(problem, None)
    T = np.asarray(weights_of(ours, problem))

    @jax.jit
    def posterior_of(weights: Any) -> tuple[Any, Any]:
        both = sums(ours.mappings, ours.X, weights, ours.rows)
        factors = factorize_all(ours.mappings, *both, 0.0)
        inverse = jnp.einsum("gvu,gvw->guw", factors.R_inverse, factors.R_inverse)
        posterior = make_posterior(ours.mappings, factors, ours.mixture, ours.rows)
        return posterior, inverse.reshape(posterior.precision_loss.shape)

    posterior, inverse = posterior_of(T)
    shape = (SIZES.N, posterior.mean_weights.shape[2])
    observed = pad((~np.isnan(problem.Y)).astype(float), shape)
    values = pad(np.nan_to_num(problem.Y), shape)
    for n in (0, 5, 12):
        without = T.copy()
        without[n] = 0.0
        expected, _ = posterior_of(without)
        row = slice(n, n + 1)
        at = jnp.asarray(problem.X[row])
        out = jax.jit(left_out)(posterior, inverse, at, T[row], values[row], observed[row])
        moments = jax.jit(mapping_moments)
        for mine, theirs in zip(moments(posterior, at, out), moments(expected, at), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-8 * np.abs(theirs).max())


def test_densities_of_rows_with_gaps_are_marginals() -> None:
    problem = with_holes("rbf", False)
    ours = ours_of(problem, None)

    @jax.jit
    def posterior_and_prior() -> tuple[Any, Any]:
        both = sums(ours.mappings, ours.X, ours.S, ours.rows)
        factors = factorize_all(ours.mappings, *both, 0.0)
        posterior = make_posterior(ours.mappings, factors, ours.mixture, ours.rows)
        return posterior, factor_mixture(ours.mixture)

    posterior, prior = posterior_and_prior()
    X = jnp.asarray(problem.X)
    shape = (SIZES.N, posterior.mean_weights.shape[2])
    has = ~np.isnan(problem.Y)
    found = jax.jit(log_joints)(
        posterior, prior, X, pad(np.nan_to_num(problem.Y), shape), pad(has.astype(float), shape)
    )
    mean, variance = (
        np.asarray(a)[:, :, : SIZES.P] for a in jax.jit(mapping_moments)(posterior, X)
    )
    std = np.sqrt(variance + 1.0 / problem.beta)
    cells = np.where(has, norm.logpdf(np.nan_to_num(problem.Y), mean, std), 0.0)
    expected = cells.sum(axis=2).T + np.asarray(log_densities(prior, X) + prior.log_weights)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    # Each feature's variance is that of a Gaussian process which has seen its rows only.
    for d, (rows, one) in enumerate(column_problems(problem)):
        kernel, s = one.kernels[1], one.S[:, 1]
        own_mean, own_variance = dense.posterior(kernel, one.Y, one.X, one.Z, one.beta, s)
        nystrom = np.diag(dense.nystrom(kernel, one.X, one.Z))
        prior_variance = np.diag(kernel.matrix(one.X, one.X))
        np.testing.assert_allclose(mean[1, rows, d], own_mean[:, 0], atol=1e-9)
        np.testing.assert_allclose(
            variance[1, rows, d], prior_variance - nystrom + own_variance, atol=1e-9
        )


def test_a_table_without_gaps_has_none_of_this() -> None:
    problem = random_problem(SIZES, ["rbf"], np.random.default_rng(0))
    rows = make_rows(problem.Y, 6)
    assert rows.groups is None
    assert rows.n_observed is None
