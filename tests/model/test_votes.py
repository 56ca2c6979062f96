"""Votes: the prior of every row's indicator, with a strength."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic.model import e_step as one_step
from sgpmic.model import mixture
from sgpmic.model.bound import add_latent
from sgpmic.model.rows import pad_rows
from support import bounds, dense
from support.random_problems import Ours, Sizes, our_problem, random_memberships, random_problem

SIZES = Sizes(N=14, P=3, Q=2, M=3, U=4)
BLOCK = 5
e_step = jax.jit(one_step.e_step, static_argnames="shared")
factor_mixture = jax.jit(mixture.factor_mixture)
kl_corrected_bound = jax.jit(bounds.kl_corrected_bound, static_argnames="shared")


def problems(shared: bool, strength: float, seed: int) -> tuple[dense.Problem, Ours, np.ndarray]:
    rng = np.random.default_rng(seed)
    problem = random_problem(SIZES, ["rbf"] * (1 if shared else SIZES.M), rng)
    votes = rng.dirichlet(np.full(SIZES.M, 0.7), SIZES.N)
    ours = our_problem(problem, BLOCK)
    laid_out = jnp.asarray(pad_rows(votes, ours.rows.n_padded))
    rows = replace(ours.rows, assignment_prior=laid_out, prior_weight=np.float64(strength))
    return problem, ours._replace(rows=rows), votes


@pytest.mark.parametrize("strength", [1.0, 4.0])
@pytest.mark.parametrize("shared", [False, True])
def test_e_step(shared: bool, strength: float) -> None:
    """S is proportional to v p^(1/λ), from the dense log p."""
    problem, ours, votes = problems(shared, strength, 0)
    S, _ = e_step(
        ours.mappings, factor_mixture(ours.mixture), ours.X, ours.S, ours.rows,
        shared=shared, jitter=jnp.zeros(len(problem.kernels)),
    )  # fmt: skip
    in_latent_space = dense.log_prior(problem) + np.log(problem.weights)
    log_p = in_latent_space if shared else dense.log_p(problem)
    expected = votes * np.exp((log_p - log_p.max(axis=1, keepdims=True)) / strength)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(S)[: SIZES.N], expected, rtol=1e-8, atol=1e-12)
    assert np.asarray(S)[SIZES.N :].max() == 0.0


def test_bound_has_the_distance_from_the_votes_for_the_entropy() -> None:
    problem, ours, votes = problems(True, 4.0, 1)
    S = problem.S
    parts = add_latent(jnp.zeros(()), factor_mixture(ours.mixture), ours.X, ours.S, ours.rows)
    inside = S > 0
    distance = np.sum(S[inside] * np.log(S[inside] / votes[inside]))
    assert float(parts.entropy) == pytest.approx(-4.0 * distance, rel=1e-12)


@pytest.mark.parametrize("strength", [1.0, 4.0])
@pytest.mark.parametrize("shared", [False, True])
def test_an_e_step_raises_the_bound(shared: bool, strength: float) -> None:
    rng = np.random.default_rng(5)
    for seed in range(4):
        problem, ours, _ = problems(shared, strength, seed)
        prior, jitter = factor_mixture(ours.mixture), jnp.zeros(len(problem.kernels))
        S = jnp.asarray(pad_rows(random_memberships(rng, SIZES.N, SIZES.M), ours.rows.n_padded))

        def bound(S: jax.Array, ours: Ours = ours, prior: object = prior) -> float:
            return float(
                kl_corrected_bound(
                    ours.mappings, prior, ours.X, S, ours.rows, shared=shared, jitter=0.0
                ).bound  # type: ignore[arg-type]
            )

        new, _ = e_step(ours.mappings, prior, ours.X, S, ours.rows, shared=shared, jitter=jitter)
        assert bound(new) >= bound(S) - 1e-9
        if shared:  # the exact maximum: no other S is better
            other = 0.9 * new + 0.1 * S
            assert bound(other) <= bound(new) + 1e-9
