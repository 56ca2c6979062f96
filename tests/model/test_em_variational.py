"""EM with uncertain latent points: the bound only rises, and is the dense one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic.learning.em import (
    State,
    em_iteration,
    first_state,
    last_e_step,
    log_prior_of,
    prior_of,
)
from sgpmic.learning.settings import EMOptions
from sgpmic.model.bound import add_latent
from sgpmic.model.rows import Rows
from sgpmic.model.uncertain import entropy_of_points, sigma_points
from support import dense, psi
from support.random_problems import Sizes, dense_problem, our_problem, random_problem

SIZES = Sizes(N=17, P=3, Q=2, M=2, U=4)
BLOCK = 7  # three blocks of six rows, one of them padding


def options(**changes: Any) -> EMOptions:
    base = {
        "m_steps": np.int32(6),
        "e_steps": np.int32(3),
        "e_tol": np.asarray(1e-6),
        "covariance_floor": np.asarray(1e-4),
        "shared": True,
        "covariance_type": "full",
        "optimizer": "scg",
        "has_prior": True,
        "variational": True,
    }
    return EMOptions(**(base | changes))


CASES = {
    "scg, shared, full": ("rbf", options()),
    "lbfgs, own, diag": (
        "linear",
        options(shared=False, covariance_type="diag", optimizer="lbfgs"),
    ),
    "scg, own, tied": ("matern32", options(shared=False, covariance_type="tied")),
    "lbfgs, shared, spherical, mixture left alone": (
        "rational_quadratic",
        options(optimizer="lbfgs", covariance_type="spherical"),
    ),
    "scg, shared, unit": ("matern52", options(covariance_type="unit")),
}
#: The others compile programs of their own.
QUICK = ("scg, shared, full", "lbfgs, own, diag")


def begin(kind: str, chosen: EMOptions, seed: int) -> tuple[dense.Problem, State, Rows]:
    n_kernels = 1 if chosen.shared else SIZES.M
    problem = random_problem(SIZES, [kind] * n_kernels, np.random.default_rng(seed))
    ours = our_problem(problem, BLOCK)
    kernels, Z, beta = ours.mappings
    state = first_state(
        ours.rows, chosen, X=ours.X, Z=Z, S=ours.S, kernels=kernels, beta=beta,
        pseudo_counts=np.ones(SIZES.M), jitter=np.asarray(0.0),
    )  # fmt: skip
    return problem, state, ours.rows


@jax.jit
def latent_part(state: State, rows: Rows, chosen: EMOptions) -> Any:
    """Return what the bound has beside its data term."""
    parameters = state.parameters
    prior = prior_of(state, rows, chosen)
    latent = add_latent(jnp.zeros(()), prior, parameters.X, state.S, x_std=parameters.x_std).bound
    rest = log_prior_of(state, prior, rows, chosen)
    return latent + rest + entropy_of_points(parameters.log_x_std, rows.flat_weight)


def objective(problem: dense.Problem, state: State, rows: Rows, chosen: EMOptions) -> float:
    """Return the bound of a state, its data term with N×N matrices."""
    here = dense_problem(problem.Y, state)
    x_std = np.asarray(state.parameters.x_std)[: SIZES.N]
    data = psi.data_term(here, x_std, *sigma_points(SIZES.Q))
    return data + float(latent_part(state, rows, chosen))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES],
)
def test_no_iteration_lowers_the_bound(case: str) -> None:
    kind, chosen = CASES[case]
    for seed in range(3):
        problem, state, rows = begin(kind, chosen, seed)
        last = first = objective(problem, state, rows, chosen)
        for _ in range(4):
            state, info = em_iteration(state, rows, chosen)
            reached = objective(problem, state, rows, chosen)
            slack = 1e-8 * (1.0 + abs(reached))
            assert float(info.bound) == pytest.approx(reached, rel=1e-7)
            assert float(info.bound_after_e) >= last - slack
            assert float(info.bound) >= float(info.bound_after_e) - slack
            assert bool(info.finite)
            np.testing.assert_allclose(np.asarray(state.S)[: SIZES.N].sum(axis=1), 1.0)
            last = reached
        assert last > first + 1.0
        # Nor does the last E-step.
        S = last_e_step(state, rows, chosen).S
        assert objective(problem, state._replace(S=S), rows, chosen) >= last - slack


def test_spreads_of_padding_rows_stay_where_they_are() -> None:
    """At 0, or the optimizer's course would depend on how much padding there is."""
    kind, chosen = CASES["scg, shared, full"]
    _, state, rows = begin(kind, chosen, 0)
    assert rows.n_padded > SIZES.N
    assert not np.any(state.parameters.log_x_std[SIZES.N :])
    new, _ = em_iteration(state, rows, chosen)
    before, after = (np.asarray(s.parameters.log_x_std) for s in (state, new))
    np.testing.assert_array_equal(after[SIZES.N :], before[SIZES.N :])
    assert np.all(after[: SIZES.N] != before[: SIZES.N])
