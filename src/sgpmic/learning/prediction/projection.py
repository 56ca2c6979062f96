r"""Projection of new rows to latent points, a block of rows at a time.

The latent point of a new row y maximizes log p(y, x) (:mod:`sgpmic.model.prediction`). It starts
from the best of the latent points of the nearest training rows and takes Newton steps in its own
trust region. Converged rows are removed, and the others are regrouped into blocks.

For a given model and kind of device, blocks have a fixed size (the last is padded) and convergence
is checked after fixed numbers of steps, so that the result for a row does not depend on the rest
of the batch.

The density of y with x integrated out is by Laplace's approximation,

.. math:: \log p(y) \approx \log p(y, \hat x) + \tfrac Q2 \log 2\pi
          - \tfrac12 \log|-\nabla^2 \log p(y, \hat x)| .
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sgpmic._runtime import default_device
from sgpmic._types import Floats, Ints
from sgpmic.compile_cache import compiled, keepable
from sgpmic.learning.neighbors import block_rows, in_blocks, inverse_weights, nearest, smallest
from sgpmic.model.mixture import factor_mixture, log_densities
from sgpmic.model.prediction import LeftOut, Posterior, left_out, log_joints, mapping_moments

#: Number of neighbors whose latent points are candidate starts, and whose votes are averaged.
NEIGHBORS = 5
#: The distance to this many rows sets the bandwidth for similar rows.
SIMILAR_ROWS = 15
#: By kind of device: numbers of steps after which converged rows are removed. A CPU is fastest if
#: they are removed at once, a GPU with few transfers of blocks.
_STEPS = {"cpu": (4, *[1] * 36), "gpu": (10, 10, 20)}
#: Convergence: absolute and relative tolerance on the predicted gain of log density.
_SETTLED, _SETTLED_RELATIVE = 1e-10, 1e-14
#: Initial radius of the trust region; latent points have variance 1.
_RADIUS = 0.1


# Arrays are NumPy's outside of compiled programs and JAX's inside.


class Model(NamedTuple):
    """The padded model."""

    posterior: Posterior
    prior_weight: Any  # of the votes
    A_inverse: Any  # to leave rows out


class Cells(NamedTuple):
    """Rows (B, P), centered and scaled like the posterior's, and their observed cells."""

    values: Any  # 0 for missing cells
    observed: Any = None  # 1 for observed cells; None if all are observed


class Sample(NamedTuple):
    """Padded training rows to compare new ones with: scaled, without gaps."""

    rows: Any  # (R, P)
    points: Any  # (R, Q) their latent points
    votes: Any  # (R, M) vote shares
    count: Any  # number of rows without padding


class Fitted(NamedTuple):
    """The fit of training rows, to leave them out."""

    X: Any  # (B, Q)
    S: Any  # (B, G) their weights in each mapping
    Y: Cells


@keepable
class Course(NamedTuple):
    """State of the trust-region Newton method for the rows of a block."""

    X: Any  # (B, Q)
    log_joints: Any  # (B, M): log summands of p(y, x)
    value: Any  # (B,): −log p(y, x), followed by its derivatives
    gradient: Any  # (B, Q)
    curvature: Any  # (B, Q, Q)
    radius: Any  # (B,) of the trust region
    step: Any  # (B, Q) the next step
    promised: Any  # (B,) predicted decrease of the value
    settled: Any  # (B,) whether the row has converged


@compiled
def _start_block(
    model: Model, sample: Sample, completed: Array, own: Array, Y: Cells, fitted: Fitted | None
) -> tuple[Course, Array]:
    """Start at the most probable of the neighbors' latent points; return mean votes (B, M) too."""
    numbers, squares = nearest(sample.rows, sample.count, completed, own, NEIGHBORS)
    log_joints_at = _log_joints_of(model, Y, fitted)
    candidates = jnp.swapaxes(sample.points[numbers], 0, 1)  # (k, B, Q)
    values = lax.map(lambda X: jax.nn.logsumexp(log_joints_at(X), axis=1), candidates)
    values = jnp.where(jnp.isfinite(squares.T), values, -jnp.inf)
    best = jnp.argmax(values, axis=0)
    X = jnp.take_along_axis(candidates, best[None, :, None], axis=0)[0]
    weights = inverse_weights(jnp.sqrt(squares))
    votes = jnp.sum(weights[:, :, None] * sample.votes[numbers], axis=1)
    # The first step has length 0 and only evaluates. Types are those of later steps, so that one
    # program serves all.
    n, Q = X.shape
    joints, curvature, still = jnp.zeros_like(votes), jnp.zeros((n, Q, Q)), jnp.zeros_like(X)
    value, radius = jnp.full(n, jnp.inf, X.dtype), jnp.full(n, _RADIUS, X.dtype)
    promised, settled = jnp.zeros(n), jnp.zeros(n, bool)
    return Course(X, joints, value, still, curvature, radius, still, promised, settled), votes


def _log_joints_of(model: Model, Y: Cells, fitted: Fitted | None) -> Callable[[Array], Array]:
    prior, without = factor_mixture(model.posterior.mixture), _without(model, fitted)
    return lambda X: log_joints(model.posterior, prior, X, *Y, without)


def _expand(log_joints_at: Callable[[Array], Array], X: Array) -> tuple[Array, Array, Array, Array]:
    """Return log joints (B, M), and value, gradient and Hessian of −log p(y, x) for each row."""

    # Rows are independent: the gradient of the sum contains the gradient of each row.
    # Reverse over reverse, because the kernels' hand-written rules are VJPs.
    def total(X: Array) -> tuple[Array, tuple[Array, Array]]:
        joints = log_joints_at(X)
        values = -jax.nn.logsumexp(joints, axis=1)
        return jnp.sum(values), (joints, values)

    gradient, pull_back, (joints, values) = jax.vjp(jax.grad(total, has_aux=True), X, has_aux=True)
    basis = jnp.broadcast_to(jnp.eye(X.shape[1])[:, None, :], (X.shape[1], *X.shape))
    (curvature,) = jax.vmap(pull_back)(basis)
    return joints, values, gradient, jnp.swapaxes(curvature, 0, 1)


def _solve(matrices: Array, right: Array) -> tuple[Array, Array]:
    """Solve for symmetric matrices (Q, Q, B); also return which are positive definite.

    Gaussian elimination without pivoting, vectorized over rows. By the absolute values of the
    pivots, as in a modified Cholesky factorization, the step is always a descent direction.
    """
    Q = len(right)
    table = jnp.concatenate([matrices, right[:, None]], axis=1)  # (Q, Q + 1, B)
    positive = jnp.ones(right.shape[1:], bool)
    least = 1e-6 * jnp.max(jnp.abs(matrices), axis=(0, 1)) + 1e-9
    for j in range(Q):
        pivot = table[j, j]
        positive &= pivot > 0.0
        line = (table[j] / jnp.maximum(jnp.abs(pivot), least)).at[j].set(1.0)
        table = (table - table[:, j, None] * line).at[j].set(line)
    return table[:, Q], positive


def _plan_step(course: Course) -> Course:
    """Set the next Newton step, at most as long as the radius, and its predicted decrease."""
    # Rows on the last axis, for vectorization.
    gradient, H = course.gradient.T, jnp.transpose(course.curvature, (1, 2, 0))
    step, positive = _solve(H, -gradient)
    length = jnp.sqrt(jnp.sum(step * step, axis=0))
    step = step * jnp.minimum(1.0, course.radius / jnp.where(length > 0.0, length, 1.0))
    linear = -jnp.sum(step * gradient, axis=0)
    curved = jnp.sum(step * jnp.sum(H * step, axis=1), axis=0)
    promised = linear - 0.5 * curved
    # The curvature along the step may be positive even if the matrix is not positive definite.
    promised = jnp.where(positive, promised, jnp.maximum(promised, 0.5 * linear))
    settled = promised <= _SETTLED + _SETTLED_RELATIVE * jnp.abs(course.value)
    return course._replace(step=step.T, promised=promised, settled=settled)


@compiled
def _newton_block(
    model: Model, n_steps: Array, course: Course, votes: Array, Y: Cells, fitted: Fitted | None
) -> tuple[Course, Array]:
    """Take some Newton steps for all rows of a block; return memberships (B, M) too."""
    log_joints_at = _log_joints_of(model, Y, fitted)

    def go_on(carry: tuple[Array, Course]) -> Array:
        return (carry[0] < n_steps) & ~jnp.all(carry[1].settled)

    def one_step(carry: tuple[Array, Course]) -> tuple[Array, Course]:
        number, here = carry
        X = here.X + here.step
        there = Course(X, *_expand(log_joints_at, X), *here[5:])
        gained = here.value - there.value
        accepted = gained >= 1e-4 * here.promised  # False for NaN
        length = jnp.sqrt(jnp.sum(here.step**2, axis=1))
        wider = jnp.where(gained > 0.75 * here.promised, 2.0 * length, 0.0)
        radius = jnp.where(accepted, jnp.maximum(here.radius, wider), 0.25 * length)
        best = _plan_step(_where(accepted, there, here)._replace(radius=radius))
        return number + 1, _where(here.settled, here, best)

    _, course = lax.while_loop(go_on, one_step, (jnp.zeros((), jnp.int32), course))
    # The E-step with votes as prior; equal votes of strength 1 have no effect.
    memberships = jax.nn.softmax(jnp.log(votes) + course.log_joints / model.prior_weight, axis=1)
    return course, memberships


def _where(which: Array, first: Course, second: Course) -> Course:
    """Select rows of the first where ``which`` (B,) is true, else of the second."""
    return jax.tree.map(
        lambda a, b: jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b), first, second
    )


def _without(model: Model, fitted: Fitted | None) -> LeftOut | None:
    if fitted is None:
        return None
    return left_out(model.posterior, model.A_inverse, fitted.X, fitted.S, *fitted.Y)


@compiled
def _means_block(model: Model, X: Array, fitted: Fitted | None) -> tuple[Array, Array]:
    """Return the mean of each mapping at X, and the cluster probabilities p(m | x)."""
    prior = factor_mixture(model.posterior.mixture)
    shares = jax.nn.softmax(log_densities(prior, X) + prior.log_weights, axis=1)
    mean, _ = mapping_moments(model.posterior, X, _without(model, fitted))
    return jnp.swapaxes(mean, 0, 1), shares


@compiled
def average_similar(
    similar: Any, completed: Array, observed: Array, own: Array
) -> tuple[Array, Array]:
    """Return the mean memberships of similar rows, and the fraction of unexplained variance.

    Rows are similar in a row's observed cells; the unexplained variance is theirs in its missing
    cells. ``similar`` are training rows (K, P) without gaps, their memberships (K, M), their
    indices (K,), -2 for padding, and the total variance; ``own`` are the rows' indices, or -1.
    """
    rows, S, numbers, variance = similar
    squares = observed @ (rows**2).T - 2.0 * (observed * completed) @ rows.T
    squares += jnp.sum(observed * completed**2, axis=1, keepdims=True)
    # Rounding must not decide between rows with equal observed cells.
    squares = jnp.maximum(squares, 1e-9 * variance)
    squares = jnp.where((numbers == own[:, None]) | (numbers == -2), jnp.inf, squares)
    near = jnp.take_along_axis(squares, smallest(squares, SIMILAR_ROWS), axis=1)
    radius = jnp.max(jnp.where(jnp.isfinite(near), near, 0.0), axis=1, keepdims=True)
    weights = jnp.exp(-2.0 * squares / radius)
    weights /= jnp.sum(weights, axis=1, keepdims=True)
    differences = weights @ rows**2 - (weights @ rows) ** 2
    unknown = jnp.sum((1.0 - observed) * differences, axis=1) / variance
    return weights @ S, jnp.clip(unknown, 0.0, 1.0)


def project(
    model: Model, sample: Sample, completed: Floats, own: Ints, Y: Cells, fitted: Fitted | None
) -> tuple[Course, Floats]:
    """Project rows to latent points and memberships.

    ``completed`` are the rows with expectations of missing cells, ``own`` their indices in the
    sample, or -1: no row is its own neighbor. With ``fitted``, each row is left out of the model.
    """
    model, sample = jax.device_put((model, sample))
    block = block_rows(Y.values.shape[1])
    first, *later = _STEPS["cpu" if default_device().platform == "cpu" else "gpu"]

    def first_steps(completed: Any, own: Any, Y: Cells, fitted: Any) -> tuple[Any, Array]:
        course, votes = _start_block(model, sample, completed, own, Y, fitted)
        return _newton_block(model, np.int32(first), course, votes, Y, fitted), votes

    found, votes = in_blocks(first_steps, block, completed, own, Y, fitted)
    rows = np.flatnonzero(~found[0].settled)
    for n_steps in later:
        if not len(rows):
            break
        asked = jax.tree.map(lambda array, rows=rows: array[rows], (found[0], votes, Y, fitted))
        part = in_blocks(partial(_newton_block, model, np.int32(n_steps)), block, *asked)
        for of_all, of_some in zip(jax.tree.leaves(found), jax.tree.leaves(part), strict=True):
            of_all[rows] = of_some
        rows = rows[~part[0].settled]
    return found


def means_at(model: Model, X: Floats, fitted: Fitted | None = None) -> tuple[Floats, Floats]:
    """Return the mappings' means (N, G, P) and p(m | x) (N, M) at latent points."""
    block = block_rows(model.posterior.mean_weights.shape[2])
    return in_blocks(partial(_means_block, model), block, X, fitted)


def laplace(posterior: Posterior, course: Course) -> Floats:
    """Return log p(y) from log p(y, x) and its curvature at the mode."""
    mixture = posterior.mixture
    covariances = np.asarray(mixture.covariances)[np.asarray(mixture.weights) > 0]
    # A row adds information to the prior, so its curvature is at least the prior's; if x is not
    # quite at the mode, the computed one may be smaller.
    least = 1.0 / np.linalg.eigvalsh(covariances).max()
    eigenvalues = np.maximum(np.linalg.eigvalsh(course.curvature), least)
    log_det = np.log(eigenvalues).sum(axis=1)
    return -course.value + 0.5 * (eigenvalues.shape[1] * math.log(2.0 * math.pi) - log_det)
