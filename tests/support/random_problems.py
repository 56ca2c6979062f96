"""Random problems, and the same problems in the package's own terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgpmic.kernels import KERNELS, Kernel, stack, unstack
from sgpmic.learning.em import State
from sgpmic.model.bound import Mappings
from sgpmic.model.mixture import Mixture
from sgpmic.model.rows import Rows, make_rows, pad_rows
from support.dense import DenseKernel, Problem


class Sizes(NamedTuple):
    """N rows, P features, Q latent dimensions, M clusters, U inducing points."""

    N: int
    P: int
    Q: int
    M: int
    U: int


def random_kernel(
    kind: str, rng: np.random.Generator, n_components: int, *, ard: bool = False
) -> DenseKernel:
    """Return a kernel whose K_uu is well enough conditioned to compare eight digits."""
    shape = n_components if ard else None
    values: dict[str, Any] = {
        "variance": rng.uniform(0.5, 2.0, shape if kind == "linear" else None),
        "bias": rng.uniform(0.05, 0.5),
        "white": rng.uniform(0.02, 0.3),
        "gamma": rng.uniform(0.3, 2.0, shape),
        "alpha": rng.uniform(0.5, 3.0),
    }
    return DenseKernel(kind, **values)


def random_memberships(rng: np.random.Generator, N: int, M: int) -> np.ndarray:
    """Return responsibilities: some rows soft, some hard, with exact zeros and ones."""
    soft = rng.dirichlet(np.ones(M), N)
    hard = np.eye(M)[rng.integers(M, size=N)]
    some_zero = soft * (rng.uniform(size=(N, M)) < 0.6) + 1e-3 * hard
    some_zero /= some_zero.sum(axis=1, keepdims=True)
    which = rng.integers(3, size=N)
    return np.choose(which[:, None], [soft, hard, some_zero])


def random_covariances(rng: np.random.Generator, M: int, Q: int) -> np.ndarray:
    roots = rng.normal(size=(M, Q, Q))
    return roots @ roots.transpose(0, 2, 1) / Q + 0.2 * np.eye(Q)


def random_problem(
    sizes: Sizes,
    kinds: Sequence[str],
    rng: np.random.Generator,
    *,
    ard: bool = False,
) -> Problem:
    """Return a random problem with one kernel for each of ``kinds``."""
    N, P, Q, M, U = sizes
    return Problem(
        Y=rng.normal(size=(N, P)) + rng.normal(size=P),
        X=rng.normal(size=(N, Q)),
        Z=rng.normal(size=(U, Q)),
        kernels=tuple(random_kernel(kind, rng, Q, ard=ard) for kind in kinds),
        beta=rng.uniform(0.5, 4.0),
        S=random_memberships(rng, N, M),
        weights=rng.dirichlet(np.full(M, 3.0)),
        means=rng.normal(size=(M, Q)),
        covariances=random_covariances(rng, M, Q),
    )


def our_kernel(kernel: DenseKernel) -> Kernel:
    """Return the package's kernel with the same parameters."""
    kind = KERNELS[kernel.kind]
    names = kind().parameters()
    values = {name: getattr(kernel, name) for name in names}
    return kind(**values, ard=np.ndim(values[kind.dimension_field]) == 1)


class Ours(NamedTuple):
    """A problem as the package's functions want it."""

    mappings: Mappings
    mixture: Mixture
    X: Any
    S: Any
    rows: Rows


def our_problem(problem: Problem, block: int | None = None) -> Ours:
    """Return ``problem`` padded and in blocks; its kernels must be of one kind."""
    rows = make_rows(problem.Y, block)
    return Ours(
        Mappings(
            stack([our_kernel(kernel) for kernel in problem.kernels]),
            jnp.asarray(problem.Z),
            jnp.asarray(problem.beta),
        ),
        Mixture(*map(jnp.asarray, (problem.weights, problem.means, problem.covariances))),
        jnp.asarray(pad_rows(problem.X, rows.n_padded)),
        jnp.asarray(pad_rows(problem.S, rows.n_padded)),
        rows,
    )


def dense_problem(Y: np.ndarray, state: State) -> Problem:
    """Return the state of a fit as a problem of the dense evaluation."""
    state = jax.tree.map(np.asarray, state)
    kernels: list[Kernel] = unstack(state.mappings.kernels)
    return Problem(
        Y=Y,
        X=state.parameters.X[: len(Y)],
        Z=state.mappings.Z,
        kernels=tuple(DenseKernel(each.name, **each.parameters()) for each in kernels),
        beta=float(state.mappings.beta),
        S=state.S[: len(Y)],
        weights=state.mixture.weights,
        means=state.mixture.means,
        covariances=state.mixture.covariances,
    )


def assert_trees_close(found: Any, expected: Any) -> None:
    """Compare two trees, every leaf relative to its largest entry."""
    leaves, others = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(leaves) == len(others)
    for ours, theirs in zip(leaves, others, strict=True):
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11 * np.abs(theirs).max())
