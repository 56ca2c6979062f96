"""What the optimizers share: the loop, its result and the ``init``/``step`` protocol.

An optimizer is two functions on a state of its own (:mod:`sgpmic.learning.optimizers.scg`,
:mod:`sgpmic.learning.optimizers.lbfgs`): ``init`` makes the first state, ``step`` takes the
objective at the point that the state asked for and returns the next one. The loop calls the
objective at one place only, in the body of one ``lax.while_loop``: a large objective is compiled
once, and no number goes back to the host between iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from sgpmic.learning.optimizers import _trees as trees
from sgpmic.learning.optimizers._trees import PyTree

ValueAndGrad = Callable[[PyTree], tuple[jax.Array, PyTree]]


class OptimizerResult(NamedTuple):
    """Where an optimizer is, and at the end where it stopped."""

    point: PyTree  # the best accepted one; the start itself where no step was accepted
    value: jax.Array  # of the objective at the point
    gradient: PyTree
    start_value: jax.Array
    steps: jax.Array  # accepted and rejected together
    evaluations: jax.Array  # the first one at the start included
    accepted: jax.Array  # steps
    converged: jax.Array  # the gradient's tolerance was met

    @classmethod
    def at(cls, start: PyTree) -> OptimizerResult:
        """Return the result before the first evaluation."""
        zero = jnp.zeros((), trees.common_dtype(start))
        none = jnp.zeros((), jnp.int32)
        no = jnp.zeros((), bool)
        return cls(start, zero, trees.zeros_like(start), zero, none, none, none, no)

    @property
    def here(self) -> Evaluation:
        """The objective at the point."""
        return Evaluation(self.point, self.value, self.gradient)

    def after(
        self, here: Evaluation, *, first: jax.Array, trial: jax.Array, accept: jax.Array
    ) -> OptimizerResult:
        """Return the result after one more evaluation, `converged` still to be decided.

        It was the ``first``, at the start, or a ``trial``, which counts as an iteration.
        """
        return OptimizerResult(
            *here,
            start_value=jnp.where(first, here.value, self.start_value),
            steps=self.steps + trial,
            evaluations=self.evaluations + 1,
            accepted=self.accepted + accept,
            converged=self.converged,
        )


class Evaluation(NamedTuple):
    """The objective at a point."""

    point: PyTree
    value: jax.Array
    gradient: PyTree


class Settings(NamedTuple):
    """What an optimizer knows of the problem beside the objective; see :func:`minimize`."""

    gradient_tolerance: jax.Array
    dimension: jax.Array


class State(Protocol):
    """What the loop reads of an optimizer's state, a NamedTuple with more in it."""

    result: OptimizerResult
    direction: PyTree
    length: jax.Array  # the next evaluation is at result.point + length * direction
    stopped: jax.Array  # whether there is nothing more to do


class Optimizer(NamedTuple):
    """An algorithm: the first state, the one after an evaluation, and the result of the last."""

    init: Callable[[PyTree], Any]
    step: Callable[[Any, Evaluation, Settings], Any]
    finish: Callable[[Any], OptimizerResult]


def minimize(
    optimizer: Optimizer,
    value_and_grad: ValueAndGrad,
    start: PyTree,
    *,
    max_steps: int | jax.Array,
    gradient_tolerance: float | jax.Array = 0.0,
    dimension: int | jax.Array | None = None,
) -> OptimizerResult:
    """Minimize a smooth function; to be called inside ``jax.jit``, also under ``jax.vmap``.

    Values of accepted points never increase. A trial point where the objective or its gradient is
    not finite is rejected and the step shortened; a start that is not finite comes back unchanged.

    Parameters
    ----------
    optimizer : Optimizer
        The algorithm; ``scg.minimize`` and ``lbfgs.minimize`` have theirs already.
    value_and_grad : callable
        Maps a point to the scalar objective and its gradient, a tree like the point.
    start : pytree of floating-point arrays
        The search runs in the precision of these arrays.
    max_steps : int or integer scalar array
        Limit on the number of iterations, rejected ones included. One iteration costs one
        evaluation, and with SCG one more after every accepted step.
    gradient_tolerance : float, default=0.0
        Stop once no element of the gradient is larger than this in absolute value.
    dimension : int or integer scalar array, optional
        The number of real parameters, where others are padding: zeros with gradient zero. The
        course then does not depend on how much padding there is. By default all are real.
    """
    # A weakly typed leaf would change its type on the way round the loop, which makes JAX trace
    # the objective a second time.
    start = trees.like(start, start)
    dtype = trees.common_dtype(start)
    limit = jnp.asarray(max_steps, jnp.int32)
    settings = Settings(
        jnp.asarray(gradient_tolerance, dtype),
        jnp.asarray(trees.number_of_elements(start) if dimension is None else dimension, jnp.int32),
    )

    def unfinished(state: State) -> jax.Array:
        result = state.result
        return (result.evaluations == 0) | (~state.stopped & (result.steps < limit))

    def advance(state: State) -> State:
        point = trees.add_scaled(state.result.point, state.length, state.direction)
        value, gradient = value_and_grad(point)
        found = Evaluation(point, jnp.asarray(value, dtype), trees.like(gradient, point))
        return optimizer.step(state, found, settings)

    return optimizer.finish(lax.while_loop(unfinished, advance, optimizer.init(start)))
