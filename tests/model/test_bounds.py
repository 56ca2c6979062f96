"""What must hold of the bounds: limits known in closed form, inequalities, and ascent.

All random problems have one shape, so that every function here is compiled once for each kernel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.stats import multivariate_normal

from sgpmic.model import evaluate
from sgpmic.model.bound import add_latent, factorize_all, mapping_weights, sums
from sgpmic.model.e_step import e_step, expected_log_likelihoods
from sgpmic.model.mixture import (
    COVARIANCE_TYPES,
    Conjugate,
    Mixture,
    factor_mixture,
    update_mixture,
)
from support import dense, mixtures
from support.bounds import kl_corrected_bound, standard_bound
from support.random_problems import (
    Ours,
    Sizes,
    our_kernel,
    our_problem,
    random_memberships,
    random_problem,
)

SIZES = Sizes(N=14, P=3, Q=2, M=3, U=4)
BLOCK = 5  # three blocks, the last one ragged

# A mapping that is shared drops out of the E-step, so one kernel is enough for it.
several_models = pytest.mark.parametrize(
    ("kind", "shared"), [("rbf", False), ("linear", False), ("matern32", False), ("rbf", True)]
)


def problem_of(kind: str, shared: bool, seed: int) -> dense.Problem:
    n_kernels = 1 if shared else SIZES.M
    return random_problem(SIZES, [kind] * n_kernels, np.random.default_rng(seed))


# --------------------------------------------------------------- one cluster: known closed forms


@pytest.mark.parametrize("kind", ["rbf", "linear"])
def test_one_cluster_is_the_sparse_gaussian_process(kind: str) -> None:
    """With M = 1 and S = 1 the data part is log N(Y|0, Q + I/β), the DTC likelihood.

    Titsias' collapsed bound is that minus β/2 tr(K_ff − Q) for every feature; the form checked
    here is his own, in the U×U matrices.
    """
    sizes = SIZES._replace(M=1)
    problem = replace(
        random_problem(sizes, [kind], np.random.default_rng(0)), S=np.ones((sizes.N, 1))
    )
    kernel, Y, X, Z, beta = (
        problem.kernels[0], problem.Y, problem.X, problem.Z, problem.beta,
    )  # fmt: skip
    found = evaluate(
        Y, X, Z, [our_kernel(kernel)], beta, problem.S, [1.0], problem.means, problem.covariances,
        block=BLOCK,
    )  # fmt: skip
    K_uf = kernel.matrix(Z, X)
    Q = K_uf.T @ np.linalg.inv(kernel.gram(Z)) @ K_uf
    marginal = multivariate_normal(cov=Q + np.eye(sizes.N) / beta)
    assert found.parts["data"] == pytest.approx(sum(map(marginal.logpdf, Y.T)), rel=1e-9)

    L = np.linalg.cholesky(kernel.gram(Z))
    A = np.linalg.solve(L, K_uf) * np.sqrt(beta)
    B = np.eye(sizes.U) + A @ A.T
    c = np.linalg.solve(np.linalg.cholesky(B), A @ Y) * np.sqrt(beta)
    prior_variance = sum(float(kernel.matrix(x[None], x[None])[0, 0]) for x in X)
    trace = 0.5 * beta * sizes.P * (prior_variance - np.trace(A @ A.T) / beta)
    titsias = (
        0.5 * sizes.N * sizes.P * np.log(beta / (2 * np.pi))
        - 0.5 * sizes.P * np.linalg.slogdet(B)[1]
        - 0.5 * beta * np.sum(Y**2)
        + 0.5 * np.sum(c**2)
        - trace
    )
    assert trace > 0.0
    assert found.parts["data"] == pytest.approx(titsias + trace, rel=1e-9)
    # The rest is the latent density alone: one cluster leaves nothing to choose.
    density = multivariate_normal(problem.means[0], problem.covariances[0]).logpdf(X).sum()
    assert found.bound - found.parts["data"] == pytest.approx(density, rel=1e-9)
    assert np.array_equal(found.responsibilities, np.ones((sizes.N, 1)))


# ----------------------------------------------------------------------- the E-step and the bounds


class Chain(NamedTuple):
    """The bounds around one E-step, and at responsibilities that have nothing to do with it."""

    before: Array
    standard_before: Array
    standard_after: Array
    after: Array
    standard_elsewhere: Array
    elsewhere: Array


@partial(jax.jit, static_argnames="shared")
def chain(ours: Ours, other: Array, *, shared: bool) -> tuple[Chain, Array]:
    prior = factor_mixture(ours.mixture)
    T = mapping_weights(ours.S, ours.rows, shared=shared)
    phi, psi = sums(ours.mappings, ours.X, T, ours.rows)
    factors = factorize_all(ours.mappings, phi, psi, 0.0)
    likelihoods = expected_log_likelihoods(ours.mappings, factors, ours.X, ours.rows)

    def corrected(S: Array) -> Array:
        return kl_corrected_bound(
            ours.mappings, prior, ours.X, S, ours.rows, shared=shared, jitter=0.0
        ).bound

    def standard(S: Array) -> Array:
        return standard_bound(
            ours.mappings, factors, prior, likelihoods, ours.X, S, ours.rows, shared=shared
        )

    new, _ = e_step(
        ours.mappings,
        prior,
        ours.X,
        ours.S,
        ours.rows,
        shared=shared,
        jitter=jnp.zeros(1 if shared else SIZES.M),
    )
    # One bound after another through a loop compiles the bound once instead of three times.
    S = jnp.stack([ours.S, new, other])
    kl, sv = jax.lax.map(corrected, S), jax.lax.map(standard, S)
    return Chain(kl[0], sv[0], sv[1], kl[1], sv[2], kl[2]), new


@several_models
def test_an_exact_e_step_never_lowers_the_bound(kind: str, shared: bool) -> None:
    """Fifty problems a model: L = L_SV before, which rises with S, and L stays above it."""
    gains = []
    for seed in range(50):
        problem = problem_of(kind, shared, seed)
        ours = our_problem(problem, BLOCK)
        rng = np.random.default_rng(1000 + seed)
        other = random_memberships(rng, SIZES.N, SIZES.M)
        padded = jnp.zeros_like(ours.S).at[: SIZES.N].set(other)
        found, new = chain(ours, padded, shared=shared)
        slack = 1e-10 * abs(float(found.before))
        assert float(found.standard_before) == pytest.approx(float(found.before), rel=1e-10)
        assert found.standard_after >= found.standard_before - slack
        assert found.after >= found.standard_after - slack
        assert found.elsewhere >= found.standard_elsewhere - slack
        gains.append(float(found.after - found.before))
        if seed < 5:  # the same numbers from N×N matrices
            new_S = dense.responsibilities(problem)
            np.testing.assert_allclose(new[: SIZES.N], new_S, rtol=1e-8, atol=1e-12)
            for value, expected in [
                (found.before, dense.bound(problem)),
                (found.after, dense.bound(problem.with_responsibilities(new_S))),
                (found.standard_after, dense.standard_bound(problem, new_S)),
                (found.standard_elsewhere, dense.standard_bound(problem, other)),
            ]:
                assert float(value) == pytest.approx(expected, rel=1e-9)
    assert min(gains) >= -1e-9
    assert np.median(gains) > 0.1  # and it does something


def test_the_inequality_is_strict_somewhere() -> None:
    """With own mappings a q(F) made for one S is not the best for another."""
    ours = our_problem(problem_of("rbf", False, 0), BLOCK)
    other = jnp.zeros_like(ours.S).at[: SIZES.N, 0].set(1.0)
    found, _ = chain(ours, other, shared=False)
    assert found.elsewhere > found.standard_elsewhere + 0.1


# ------------------------------------------------------------------- closed forms of the mixture


@partial(jax.jit, static_argnames=("kind", "floor"))
def closed_forms(
    old: Mixture, X: Array, S: Array, conjugate: Conjugate, *, kind: str, floor: float
) -> tuple[Mixture, Any, Any]:
    new = update_mixture(old, X, S, conjugate, kind=kind, floor=floor)
    return (
        new,
        add_latent(jnp.zeros(()), factor_mixture(old), X, S).bound,
        add_latent(jnp.zeros(()), factor_mixture(new), X, S).bound,
    )


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_closed_forms_never_lower_bound_plus_prior(kind: str) -> None:
    """They leave data and entropy alone, so the latent part and the prior decide."""
    floor = 0.05
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, S = rng.normal(size=(14, 2)), random_memberships(rng, 14, 3)
        omega = mixtures.random_of_kind("full", rng, 1, 2, 0.3)[0]
        old = mixtures.random_mixture(kind, rng, 3, 2, floor)
        for nu in (0.0, 6.0):
            new, before, after = closed_forms(
                Mixture(*map(jnp.asarray, old)), X, S,
                Conjugate(jnp.full(3, nu), jnp.asarray(omega)), kind=kind, floor=floor,
            )  # fmt: skip
            values = (np.asarray(new[0]), np.asarray(new[1]), np.asarray(new[2]))
            gain = float(after - before)
            # The package's own sums and SciPy's densities agree on what was gained.
            independent = mixtures.expected_log_density(values, X, S)
            independent -= mixtures.expected_log_density(old, X, S)
            assert gain == pytest.approx(independent, rel=1e-9, abs=1e-9)
            gain += mixtures.log_conjugate(values, nu, omega)
            gain -= mixtures.log_conjugate(old, nu, omega)
            assert gain >= -1e-9
            again, _, _ = closed_forms(
                new, X, S, Conjugate(jnp.full(3, nu), jnp.asarray(omega)), kind=kind, floor=floor
            )
            for one, two in zip(new, again, strict=True):  # at the top already
                np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)
