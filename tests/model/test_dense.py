"""``evaluate`` against the dense evaluation with N×N matrices, on random problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpmic.model import Evaluation, evaluate
from support import dense
from support.random_problems import Sizes, our_kernel, random_memberships, random_problem

TOLERANCE = 1e-8


class Layout(NamedTuple):
    """Sizes, block and ARD go together, because every combination is a compilation."""

    sizes: Sizes
    block: int | None
    ard: bool
    kinds: tuple[str, ...] = dense.KINDS


LAYOUTS = (
    Layout(Sizes(N=10, P=2, Q=2, M=3, U=4), block=4, ard=False),  # the last block is ragged
    Layout(Sizes(N=7, P=3, Q=3, M=2, U=5), block=2, ard=True),
    # More inducing points than rows, and one of everything else.
    Layout(Sizes(N=3, P=1, Q=1, M=2, U=6), block=None, ard=False, kinds=("linear", "matern32")),
)


def run(problem: dense.Problem, block: int | None, jitter: float = 0.0) -> Evaluation:
    return evaluate(
        problem.Y, problem.X, problem.Z, [our_kernel(k) for k in problem.kernels], problem.beta,
        problem.S, problem.weights, problem.means, problem.covariances, jitter, block=block,
    )  # fmt: skip


def agrees(problem: dense.Problem, found: Evaluation) -> None:
    expected = dense.parts(problem)
    # A part may be small beside the sums it comes from, so all are held to the largest one.
    scale = max(abs(value) for value in expected.values()) + 1.0
    assert found.parts.keys() == expected.keys()
    for name, value in expected.items():
        assert found.parts[name] == pytest.approx(value, rel=TOLERANCE, abs=1e-10 * scale), name
    assert found.bound == pytest.approx(sum(expected.values()), rel=TOLERANCE, abs=1e-10 * scale)
    np.testing.assert_allclose(
        found.responsibilities, dense.responsibilities(problem), rtol=TOLERANCE, atol=1e-12
    )


def memberships(draw: Any, rng: np.random.Generator, N: int, M: int) -> np.ndarray:
    kind = draw(st.sampled_from(["mixed", "hard", "one cluster", "equal"]))
    if kind == "hard":
        return np.eye(M)[rng.integers(M, size=N)]
    if kind == "one cluster":  # the others have no rows at all
        return np.eye(M)[np.zeros(N, dtype=int)]
    if kind == "equal":
        return np.full((N, M), 1.0 / M)
    return random_memberships(rng, N, M)


@st.composite
def problems(draw: Any) -> tuple[dense.Problem, int | None]:
    layout = draw(st.sampled_from(LAYOUTS))
    M = 1 if draw(st.booleans()) else layout.sizes.M  # one kernel: shared by all the clusters
    kind = draw(st.sampled_from(layout.kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    problem = random_problem(layout.sizes, [kind] * M, rng, ard=layout.ard)
    S = memberships(draw, rng, layout.sizes.N, layout.sizes.M)
    beta = 10.0 ** draw(st.floats(-2.0, 2.0))
    return replace(problem, S=S, beta=beta), layout.block


@given(problems())
@settings(max_examples=100)
def test_everything_equals_the_dense_evaluation(drawn: tuple[dense.Problem, int | None]) -> None:
    problem, block = drawn
    agrees(problem, run(problem, block))


@pytest.mark.parametrize(
    ("layout", "kind"), [(layout, kind) for layout in LAYOUTS for kind in layout.kinds]
)
def test_every_kernel_at_least_once(layout: Layout, kind: str) -> None:
    """The same shapes and kernels as above, where chance may have left one out."""
    rng = np.random.default_rng(1)
    problem = random_problem(layout.sizes, [kind] * layout.sizes.M, rng, ard=layout.ard)
    agrees(problem, run(problem, layout.block))


@pytest.mark.parametrize("block", [1, 6, 10, 1000])
def test_any_size_of_blocks(block: int) -> None:
    rng = np.random.default_rng(2)
    problem = random_problem(Sizes(N=10, P=2, Q=2, M=2, U=4), ["rbf", "rbf"], rng)
    agrees(problem, run(problem, block))


def test_jitter_is_relative_to_the_mean_diagonal() -> None:
    """A stationary kernel's diagonal is constant, so jitter is the same as more white noise."""
    layout = LAYOUTS[0]
    problem = random_problem(layout.sizes, ["rbf"] * 3, np.random.default_rng(3))
    jitter = 0.01
    found = run(problem, layout.block, jitter)
    whiter = [
        replace(k, white=k.white + jitter * (k.variance + k.bias + k.white))
        for k in problem.kernels
    ]
    agrees(replace(problem, kernels=tuple(whiter)), found)


def test_responsibilities_need_not_sum_to_one() -> None:
    layout = LAYOUTS[0]
    rng = np.random.default_rng(4)
    problem = random_problem(layout.sizes, ["rbf"] * 3, rng)
    S = problem.S * rng.uniform(0.1, 2.0, problem.S.shape)
    problem = replace(problem, S=S)
    agrees(problem, run(problem, layout.block))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("X", (9, 2)), ("Z", (4, 3)), ("S", (9, 3)), ("weights", (2,)), ("means", (3, 1)),
     ("covariances", (3, 2))],
)  # fmt: skip
def test_wrong_shapes_are_named(name: str, shape: tuple[int, ...]) -> None:
    problem = random_problem(LAYOUTS[0].sizes, ["rbf"] * 3, np.random.default_rng(5))
    reported = {"Z": "inducing"}.get(name, name)
    wrong: Any = {name: np.ones(shape)}
    with pytest.raises(ValueError, match=f"{reported} has shape"):
        run(replace(problem, **wrong), None)


def test_wrong_number_of_kernels() -> None:
    problem = random_problem(LAYOUTS[0].sizes, ["rbf"] * 2, np.random.default_rng(6))
    with pytest.raises(ValueError, match="2 kernels for 3 clusters"):
        run(problem, None)
