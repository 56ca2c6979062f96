"""Iterations of EM: the objective only rises, and it is the one the dense evaluation gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sgpmic.learning.em import IterationInfo, State, em_iteration, first_state, last_e_step
from sgpmic.learning.settings import EMOptions
from support import dense, mixtures
from support.random_problems import Sizes, dense_problem, our_problem, random_problem

SIZES = Sizes(N=18, P=3, Q=2, M=2, U=4)
BLOCK = 7  # three blocks of six rows
ITERATIONS = 4
FLOOR = 0.05

BASE = EMOptions(
    m_steps=np.int32(6),
    e_steps=np.int32(3),
    e_tol=np.asarray(1e-6),
    covariance_floor=np.asarray(FLOOR),
    shared=False,
    covariance_type="full",
    optimizer="scg",
    has_prior=False,
    variational=False,
)


def options(**changes: Any) -> EMOptions:
    return EMOptions(**{**BASE.__dict__, **changes})


#: Kernel, options and strength of the prior; every one of them is a program to compile.
CASES = {
    "scg, own, full": ("rbf", BASE, 0.0),
    "lbfgs, own, spherical, mixture left alone": (
        "linear",
        options(optimizer="lbfgs", covariance_type="spherical"),
        0.0,
    ),
    "lbfgs, shared, tied, prior": (
        "rbf",
        options(optimizer="lbfgs", shared=True, covariance_type="tied", has_prior=True),
        0.8,
    ),
    "scg, shared, unit": ("matern52", options(shared=True, covariance_type="unit"), 0.0),
}


def begin(kind: str, chosen: EMOptions, strength: float, seed: int) -> tuple[dense.Problem, State]:
    """Return a random problem and the state that starts from it."""
    n_kernels = 1 if chosen.shared else SIZES.M
    problem = random_problem(SIZES, [kind] * n_kernels, np.random.default_rng(seed))
    ours = our_problem(problem, BLOCK)
    counts = np.full(SIZES.M, strength * SIZES.N / SIZES.M)
    kernels, Z, beta = ours.mappings
    state = first_state(
        ours.rows, chosen, X=3.0 * ours.X + 1.0, Z=Z, S=ours.S, kernels=kernels, beta=beta,
        pseudo_counts=counts, jitter=np.asarray(0.0),
    )  # fmt: skip
    return problem, state


def objective(problem: dense.Problem, state: State) -> float:
    """Return bound plus log prior of a state, with N×N matrices."""
    here = dense_problem(problem.Y, state)
    mixture = (here.weights, here.means, here.covariances)
    nu, omega = float(state.conjugate.pseudo_counts[0]), np.asarray(state.conjugate.scale)
    return dense.bound(here) + mixtures.log_conjugate(mixture, nu, omega)


def assert_sound(state: State, info: IterationInfo, chosen: EMOptions) -> None:
    X = np.asarray(state.parameters.X)[: SIZES.N]
    S = np.asarray(state.S)[: SIZES.N]
    np.testing.assert_allclose(S.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(info.cluster_sizes, S.sum(axis=0), rtol=1e-12)
    # The iteration ends at the closed forms of the X and S it leaves behind.
    np.testing.assert_allclose(
        state.mixture.means, S.T @ X / S.sum(axis=0)[:, None], rtol=1e-9, atol=1e-12
    )
    values = np.linalg.eigvalsh(np.asarray(state.mixture.covariances))
    if chosen.covariance_type == "unit":
        np.testing.assert_allclose(values, 1.0, rtol=1e-14)
    else:
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
        assert np.mean(X**2) == pytest.approx(1.0, rel=1e-12)
        assert values.min() >= FLOOR * (1 - 1e-12)
    assert 1 <= int(info.e_steps) <= int(chosen.e_steps)
    assert 1 <= int(info.m_steps) <= int(chosen.m_steps)


def compilations() -> int:
    programs: Any = em_iteration  # declared as the function that it compiles
    return len(programs)


@pytest.mark.parametrize("case", CASES)
def test_no_iteration_lowers_the_objective(case: str) -> None:
    kind, chosen, strength = CASES[case]
    before = compilations()
    for seed in range(4):
        problem, state = begin(kind, chosen, strength, seed)
        rows = our_problem(problem, BLOCK).rows
        last = first = objective(problem, state)
        for _ in range(ITERATIONS):
            state, info = em_iteration(state, rows, chosen)
            reached = objective(problem, state)
            slack = 1e-8 * (1.0 + abs(reached))
            assert float(info.bound) == pytest.approx(reached, rel=1e-7)
            assert float(info.bound_after_e) >= last - slack
            assert float(info.bound) >= float(info.bound_after_e) - slack
            assert_sound(state, info, chosen)
            last = reached
        assert last > first + 1.0  # it has learned something
    # Neither another iteration nor another start of the same shape compiles anything again.
    assert compilations() == before + 1


def test_a_raised_jitter_stays_and_is_the_objective_s() -> None:
    """What an earlier iteration had to add to K_uu is added in this one too, from the start."""
    raised = 1e-3
    problem, state = begin("rbf", BASE, 0.0, 0)
    rows = our_problem(problem, BLOCK).rows
    new, info = em_iteration(state._replace(jitter=np.full(SIZES.M, raised)), rows, BASE)
    assert float(info.jitter) == raised
    np.testing.assert_array_equal(new.jitter, raised)
    here = dense_problem(problem.Y, new)
    # A stationary kernel's diagonal is constant, so jitter is the same as more white noise.
    whiter = tuple(
        replace(k, white=k.white + raised * (k.variance + k.bias + k.white)) for k in here.kernels
    )
    with_jitter = dense.bound(replace(here, kernels=whiter))
    assert float(info.bound) == pytest.approx(with_jitter, rel=1e-9)
    assert abs(dense.bound(here) - with_jitter) > 1e-6 * abs(with_jitter)


def test_the_last_e_step_is_the_dense_one() -> None:
    """It may not lower the objective either."""
    problem, state = begin("rbf", BASE, 0.0, 0)
    rows = our_problem(problem, BLOCK).rows
    last = last_e_step(state, rows, BASE)
    S = last.S
    expected = dense.responsibilities(dense_problem(problem.Y, state))
    np.testing.assert_allclose(S[: SIZES.N], expected, rtol=1e-8, atol=1e-12)
    before = objective(problem, state)
    assert objective(problem, state._replace(S=S)) >= before - 1e-9 * abs(before)
    assert np.all(np.isfinite(last.posterior.mean_weights))
    assert float(last.jitter) == 0.0


def test_the_first_state_moves_inducing_points_with_the_rows() -> None:
    """The same shift and factor for X and Z; distances between them keep their proportions."""
    problem, state = begin("rbf", BASE, 0.5, 1)
    X, Z = 3.0 * problem.X + 1.0, problem.Z
    shift, scale = X.mean(axis=0), np.sqrt(np.mean((X - X.mean(axis=0)) ** 2))
    np.testing.assert_allclose(state.parameters.X[: SIZES.N], (X - shift) / scale, atol=1e-12)
    np.testing.assert_allclose(state.parameters.Z, (Z - shift) / scale, atol=1e-12)
    np.testing.assert_allclose(state.conjugate.pseudo_counts, 0.5 * SIZES.N / SIZES.M)
