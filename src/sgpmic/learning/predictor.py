"""A fitted model in the units of the data: where rows lie, how likely they are, what they could be.

This is what an estimator keeps and a model file holds. It knows arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from sgpmic._runtime import compiled, with_numerics
from sgpmic.kernels import Kernel, unstack
from sgpmic.learning.em import Options, State, last_e_step
from sgpmic.learning.projection import log_evidence, log_evidence_left_out, project
from sgpmic.learning.reference import Reference, make_reference, sample_numbers
from sgpmic.model.mixture import Mixture, factor_mixture, log_densities
from sgpmic.model.prediction import Posterior, mapping_moments
from sgpmic.model.rows import Rows
from sgpmic.parallel.group import ProcessGroup

Floats = NDArray[np.float64]


# Variances, their inverses and a kernel's parameters are squares of what is in the data.
_SMALLEST_DATA, _LARGEST_DATA = 1e-100, 1e100

# Rows that are measured at a time.
_PART = 65_536


class Units(NamedTuple):
    """Data are centred, feature by feature, and divided by one number.

    One number for all features changes nothing in the model but the units of its parameters; it
    saves the numerics when features are in the hundreds.
    """

    offset: Floats  # (P,)
    scale: float

    def reduce(self, Y: Floats) -> Floats:
        """Return rows as the model sees them."""
        return (Y - self.offset) / self.scale

    def restore(self, Y: Floats) -> Floats:
        """Undo :meth:`reduce`."""
        return Y * self.scale + self.offset

    @property
    def log_volume(self) -> float:
        """What one row's log density loses on its way back to the units of the data."""
        return -len(self.offset) * math.log(self.scale)


def measure_units(Y: Floats, group: ProcessGroup) -> Units:
    """Return the units of a table: its means, and the root of its mean feature variance."""
    largest = group.largest(_largest_size(Y))
    if not (largest == 0.0 or _SMALLEST_DATA <= largest <= _LARGEST_DATA):
        raise ValueError(
            f"The largest value of the data is {largest:.3g} in size, too close to the ends of "
            "what float64 can square: multiply the data by a number that brings it near 1."
        )
    offset = group.total(Y.sum(axis=0)) / group.n_rows
    squares = sum(
        (np.sum((part - offset) ** 2, axis=0) for part in _parts(Y)), np.zeros(Y.shape[1])
    )
    scale = float(np.sqrt((group.total(squares) / group.n_rows).mean()))
    # Rows that are all alike leave rounding errors at most: nothing to divide by.
    return Units(offset, 1.0 if scale <= 1e-12 * largest else scale)


def _parts(Y: Floats) -> Iterator[Floats]:
    """Yield some rows at a time, so that what is computed of them stays small."""
    for first in range(0, len(Y), _PART):
        yield Y[first : first + _PART]


def _largest_size(Y: Floats) -> float:
    return max((float(np.abs(part).max()) for part in _parts(Y)), default=0.0)


class Assessment(NamedTuple):
    """Everything a model says about rows.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        The most probable cluster.
    memberships : ndarray of shape (n_samples, n_clusters)
        The probability of every cluster.
    embedding : ndarray of shape (n_samples, n_components)
        Latent points.
    log_density : ndarray of shape (n_samples,)
        Low where a row is unlike anything seen in fit.
    """

    labels: NDArray[np.int64]
    memberships: Floats
    embedding: Floats
    log_density: Floats


@dataclass
class Predictor:
    """A fitted model."""

    units: Units
    posterior: Posterior
    X: Floats  # (N, Q) latent points of the training rows
    S: Floats  # (N, M) their responsibilities
    reference: Reference
    jitter: float = 0.0  # the largest relative jitter that a kernel matrix needed
    A_inverse: Floats | None = None  # (G, U, U); not kept in files

    @with_numerics
    def place(self, Y: Floats) -> tuple[Floats, Floats]:
        """Return latent points (n, Q) and memberships (n, M) of rows in the units of the data."""
        known = self.reference.lookup(Y)
        X, S = self.X[known], self.S[known]
        new = np.flatnonzero(known < 0)
        if len(new):
            starts = self.reference.starts(Y[new])
            found = project(self.posterior, starts, self.units.reduce(Y[new]))
            X[new], S[new] = found.X, found.memberships
        return X, S

    @with_numerics
    def assess(self, Y: Floats) -> Assessment:
        """Return all of the above and below, with every row projected once."""
        reduced = self.units.reduce(Y)
        found = project(self.posterior, self.reference.starts(Y), reduced)
        log_density = log_evidence(self.posterior, found.X, reduced) + self.units.log_volume
        known = self.reference.lookup(Y)
        seen = known >= 0
        X, S = found.X.copy(), found.memberships.copy()
        X[seen], S[seen] = self.X[known[seen]], self.S[known[seen]]
        return Assessment(S.argmax(axis=1), S, X, log_density)

    @with_numerics
    def log_density(self, Y: Floats) -> Floats:
        """Return log p(y) of rows in the units of the data, latent points integrated out."""
        reduced = self.units.reduce(Y)
        # Also for training rows: their fitted points maximise the bound, not this density.
        points = project(self.posterior, self.reference.starts(Y), reduced).X
        return log_evidence(self.posterior, points, reduced) + self.units.log_volume

    @with_numerics
    def left_out_log_density(self, Y: Floats) -> Floats:
        """Return log p(y) of fitted rows, each under the model of all the others.

        For the same parameters: only what the row itself has told the mapping is taken out.
        Right after fitting only; rows that are not known are left out of the result.
        """
        if self.A_inverse is None:
            raise ValueError("A model from a file does not know what each of its rows has told it.")
        known = self.reference.lookup(Y)
        Y, known = Y[known >= 0], known[known >= 0]
        T = self.S[known] if len(self.A_inverse) > 1 else np.ones((len(Y), 1))
        found = log_evidence_left_out(
            self.posterior,
            self.A_inverse,
            self.X[known],
            T,
            self.reference.starts(Y, skip=1),  # the nearest is the row itself
            self.units.reduce(Y),
        )
        return found + self.units.log_volume

    @with_numerics
    def decode(self, X: Floats) -> Floats:
        """Return the expected rows, in the units of the data, at latent points."""
        mean, _ = mapping_moments(self.posterior, jnp.asarray(X))
        prior = factor_mixture(self.posterior.mixture)
        log_p = log_densities(prior, jnp.asarray(X)) + prior.log_weights
        shares = jax.nn.softmax(log_p, axis=1)  # p(m | x)
        if mean.shape[0] == 1:
            return self.units.restore(np.asarray(mean[0]))
        return self.units.restore(np.asarray(jnp.einsum("nm,mnp->np", shares, mean)))

    @with_numerics
    def draw(self, n_samples: int, rng: np.random.RandomState) -> tuple[Floats, NDArray[np.int64]]:
        """Return rows drawn from the model and the clusters they came from, cluster by cluster."""
        mixture = self.posterior.mixture
        weights = np.asarray(mixture.weights, dtype=np.float64)
        counts = rng.multinomial(n_samples, weights / weights.sum())
        labels = np.repeat(np.arange(len(counts)), counts)
        X = np.concatenate(
            [
                rng.multivariate_normal(mean, covariance, count)
                for mean, covariance, count in zip(
                    np.asarray(mixture.means), np.asarray(mixture.covariances), counts, strict=True
                )
            ]
        )
        mean, variance = (np.asarray(a) for a in mapping_moments(self.posterior, jnp.asarray(X)))
        process = np.zeros_like(labels) if len(mean) == 1 else labels
        rows = np.arange(n_samples)
        spread = np.sqrt(variance[process, rows] + 1.0 / float(self.posterior.mappings.beta))
        noise = rng.standard_normal((n_samples, mean.shape[2]))
        return self.units.restore(mean[process, rows] + spread[:, None] * noise), labels

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels in the units of the data."""
        return scale_kernels(unstack(self.posterior.mappings.kernels), self.units.scale**2)

    @property
    def beta(self) -> float:
        """The noise precision in the units of the data."""
        return float(self.posterior.mappings.beta) / self.units.scale**2

    @property
    def mixture(self) -> Mixture:
        """The latent mixture, as NumPy arrays."""
        mixture: Mixture = jax.tree.map(np.asarray, self.posterior.mixture)
        return mixture


def scale_kernels(kernels: list[Kernel], factor: float) -> list[Kernel]:
    """Return kernels whose values are ``factor`` times as large."""
    return [
        replace(
            k,
            variance=k.variance * factor,
            bias=k.bias * factor,
            white=k.white * factor,
        )
        for k in kernels
    ]


@with_numerics
def sort_clusters(state: State, rows: Rows, options: Options) -> State:
    """Return the state with the largest cluster first, so that an empty one comes last.

    Largest by the labels that users will see, which are those of the last E-step.
    """
    last = last_e_step(state, rows, options)
    order = np.lexsort([-np.asarray(last.masses), -np.asarray(last.sizes)])
    parameters = state.parameters

    def sorted_leaf(leaf: Any) -> Any:
        # In NumPy: a handful of JAX operations outside a compiled program are compiled one by one.
        return np.asarray(leaf)[order]

    if not options.shared:
        kernels = jax.tree.map(sorted_leaf, parameters.log_kernels)
        parameters = parameters._replace(log_kernels=kernels)
        state = state._replace(jitter=sorted_leaf(state.jitter))
    mixture = Mixture(*map(sorted_leaf, state.mixture))
    S = _sort_columns(state.S, order)
    return state._replace(parameters=parameters, S=S, mixture=mixture)


@compiled()
def _sort_columns(S: Array, order: Array) -> Array:
    return S[:, order]


class Finished(NamedTuple):
    """A fitted model and this process's rows in it."""

    fitted: Predictor
    X: Floats
    S: Floats


@with_numerics
def finish(
    state: State,
    rows: Rows,
    group: ProcessGroup,
    options: Options,
    Y: Floats,
    units: Units,
    random_state: np.random.RandomState,
) -> Finished:
    """Make the last E-step and keep what predictions need.

    One process remembers all the rows it was trained on. Of several, each keeps to itself what it
    found for its rows, and all remember the same sample of everybody's.

    Parameters
    ----------
    state : State
        At the end of EM.
    rows : Rows
        The data as EM saw them.
    group : ProcessGroup
    options : Options
    Y : ndarray of shape (n_samples, n_features)
        The data of this process, in their own units.
    units : Units
    random_state : RandomState
        For the sample of rows that is remembered when there are very many.
    """
    last = last_e_step(state, rows, options)
    # NumPy arrays, which outlive any device and any precision context.
    posterior = jax.tree.map(np.asarray, last.posterior)
    X, S = (np.array(group.own_rows(a)) for a in (state.parameters.X, last.S))
    known_Y, known_X, known_S = Y, X, S
    if group.n_processes > 1:
        numbers = sample_numbers(group.n_rows, random_state)
        known_Y, known_X, known_S = (group.rows_at(a, numbers) for a in (Y, X, S))
    reference = make_reference(known_Y, known_X, random_state)
    fitted = Predictor(
        units,
        posterior,
        known_X,
        known_S,
        reference,
        float(last.jitter),
        np.asarray(last.A_inverse),
    )
    return Finished(fitted, X, S)
