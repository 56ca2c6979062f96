"""A learned model in the units of the data: where rows lie, how likely they are, what could be.

This is what an estimator keeps and a model file holds. It knows arrays only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import with_numerics
from sgpmic._types import Bools, Floats, Ints
from sgpmic.kernels import Kernel, unstack
from sgpmic.learning.gaps import fit_factors
from sgpmic.learning.neighbors import padded_count
from sgpmic.learning.prediction import projection
from sgpmic.learning.prediction.cluster_normals import (
    ClusterNormals,
    best_share,
    fit_normals,
    left_out_log_density,
    lower_limit,
    mixed,
)
from sgpmic.learning.prediction.imputation import Imputation, Imputer, learn_imputer
from sgpmic.learning.prediction.reference import Reference
from sgpmic.learning.preprocessing import Scaler
from sgpmic.model.mixture import Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.model.rows import pad, pad_rows, padded_features, round_up

_T = TypeVar("_T", bound=NDArray[Any])

#: A row is unusual where its density is lower than that of all but this share of the rows that
#: the model was learned from.
OUTLIER_SHARE = 0.005
#: So many of those rows are looked at for that, at most.
_MOST_ASSESSED = 5_000
#: Rows are looked at no farther away than this many spreads of the data: the optimizer takes fourth
#: powers.
_FARTHEST = 1e20
#: Cells of the rows that are answered for at a time.
_PART = 1 << 22
#: A row is drawn between a training row and one of this many of its neighbors.
_DRAWN_BETWEEN = 5
#: A mixture is padded to so many clusters at least.
_LEAST_CLUSTERS = 8


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
    unusual : ndarray of bool, shape (n_samples,)
        Whether it is so low that a row counts as unusual.
    """

    labels: Ints
    memberships: Floats
    embedding: Floats
    log_density: Floats
    unusual: Bools


class _Densities(NamedTuple):
    """What densities are made of besides the mapping."""

    normals: ClusterNormals
    mapping_share: float
    left_out: Floats  # log densities of training rows, each left out


@dataclass
class Predictor:
    """What a learned model answers with."""

    units: Scaler
    posterior: Posterior
    X: Floats  # (N, Q) latent points of the training rows
    S: Floats  # (N, M) their responsibilities
    reference: Reference
    A_inverse: Floats  # (G, U, U), or (G, C, U, U) of C groups of features
    jitter: float = 0.0  # the largest relative jitter that a kernel matrix needed
    strength: float = 1.0  # of the reference's votes
    spread: Floats | None = None  # (N, Q) standard deviations of uncertain latent points
    seen: Any = None  # (P,) whether any training row had the feature; None for all

    def __post_init__(self) -> None:
        if self.seen is None:
            self.seen = np.ones(len(self.units.offset), dtype=bool)

    def known_features(self, Y: Floats) -> Floats:
        """Return rows without the features that no training row had."""
        return Y if self.seen.all() else np.where(self.seen, Y, np.nan)

    def known_rows(self, rows: Floats) -> tuple[Floats, Bools]:
        """Return rows without unknown features, and which of them then have no value at all.

        Training rows stand in for those, of which nothing is said (:func:`blanked`).
        """
        Y = self.known_features(rows)
        empty: Bools = np.asarray(np.isnan(Y).all(axis=1))
        return (np.where(empty[:, None], self.reference.rows[0], Y) if empty.any() else Y), empty

    def _restored(self, Y: Floats) -> Floats:
        """Return rows in the units of the data, NaN where nothing is known of a feature."""
        return self.known_features(self.units.inverse_transform(Y))

    @cached_property
    def _model(self) -> projection.Model:
        """The posterior in a shape that it shares with other models, compiled programs too."""
        strength = np.asarray(self.strength, np.float64)
        return projection.Model(pad_posterior(self.posterior), strength, self.A_inverse)

    @cached_property
    def _sample(self) -> projection.Sample:
        """The reference in such a shape."""
        reference, posterior = self.reference, self._model.posterior
        R = padded_count(len(reference.rows))
        return projection.Sample(
            pad(reference.complete(reference.rows), (R, posterior.mean_weights.shape[2])),
            pad_rows(reference.points, R),
            pad(reference.votes, (R, len(posterior.mixture.weights))),
            np.asarray(len(reference.rows)),
        )

    @cached_property
    def _reference_S(self) -> Floats:
        """The memberships of the reference's rows."""
        return self.S[self.reference.lookup(self.reference.rows)]

    def _scaled(self, Y: Floats) -> Floats:
        """Return scaled rows, NaN for missing cells, so near that squares do not overflow."""
        with np.errstate(over="ignore"):
            return np.clip(self.units.transform(Y), -_FARTHEST, _FARTHEST)

    def _cells(self, Y: Floats) -> projection.Cells:
        """Return rows as the padded posterior sees them."""
        values = self._scaled(Y)
        shape = (len(Y), self._model.posterior.mean_weights.shape[2])
        observed = ~np.isnan(values)
        if observed.all():
            return projection.Cells(pad(values, shape))
        filled = np.where(observed, values, 0.0)
        return projection.Cells(pad(filled, shape), pad(observed.astype(np.float64), shape))

    def _project(
        self, Y: Floats, own: Ints | None = None, fitted: projection.Fitted | None = None
    ) -> tuple[projection.Course, Floats]:
        """Return where rows lie, and memberships; rows ``own`` of the reference without it."""
        whole = self.reference.complete(Y)
        numbers = np.full(len(Y), -1) if own is None else own
        search = projection.Search(pad(whole, (len(Y), self._sample.rows.shape[1])), numbers)
        found, S = projection.project(self._model, self._sample, search, self._cells(Y), fitted)
        S = S[:, : self.S.shape[1]]
        observed = ~np.isnan(Y)
        if not observed.all():
            S = self.reference.soften(S, self._reference_S, whole, observed, numbers)
        return found, S

    def _in_parts(self, Y: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Yield the numbers of some rows at a time, and the rows.

        So what is computed of them stays small. Complete rows are not mixed with others, for which
        other programs compute.
        """
        step = max(1, _PART // self._model.posterior.mean_weights.shape[2])
        gaps = np.isnan(Y).any(axis=1)
        for rows in (np.flatnonzero(~gaps), np.flatnonzero(gaps)):
            for first in range(0, len(rows), step):
                part = rows[first : first + step]
                yield part, Y[part]

    @with_numerics
    def place(self, Y: Floats) -> tuple[Floats, Floats]:
        """Return latent points (n, Q) and memberships (n, M) of rows in the units of the data."""
        known = self.reference.lookup(Y)
        X, S = self.X[known], self.S[known]
        new = np.flatnonzero(known < 0)
        for part, rows in self._in_parts(Y[new]):
            found, S[new[part]] = self._project(rows)
            X[new[part]] = found.X
        return X, S

    @with_numerics
    def assess(self, Y: Floats) -> Assessment:
        """Return everything there is to say about rows, with every row projected once."""
        known = self.reference.lookup(Y)
        X, S, log_density = self.X[known], self.S[known], np.empty(len(Y))
        new = known < 0
        for part, rows in self._in_parts(Y):
            found, memberships = self._project(rows)
            # Also of training rows: their fitted points maximize the bound, not this density.
            log_density[part] = self._log_density_at(rows, found)
            own = new[part]
            X[part[own]], S[part[own]] = found.X[own], memberships[own]
        return Assessment(S.argmax(axis=1), S, X, log_density, log_density < self.unusual_below)

    def assess_rows(self, rows: Floats) -> Assessment:
        """Return everything there is to say about rows, of which some may be empty."""
        Y, empty = self.known_rows(rows)
        blanks = {"labels": -1, "unusual": False}
        found = self.assess(Y)._asdict().items()
        return Assessment(**{k: blanked(v, empty, blanks.get(k, np.nan)) for k, v in found})

    def log_density(self, Y: Floats) -> Floats:
        """Return log p(y) of rows in the units of the data, latent points integrated out."""
        return self.assess(Y).log_density

    def _log_density_at(self, Y: Floats, found: projection.Course) -> Floats:
        mapping = projection.laplace(self.posterior, found)
        normals = self._densities.normals.log_density(self._scaled(Y))
        density = mixed(mapping, normals, self._densities.mapping_share)
        return density + self.units.log_volumes(Y)

    @cached_property
    def _densities(self) -> _Densities:
        """What the mapping and the clusters' normal distributions are worth beside each other.

        Of training rows, each left out of both: with it in, it looks too ordinary.
        """
        rows, S = self.reference.rows, self._reference_S
        reduced = self.units.transform(rows)
        factors = fit_factors(reduced) if np.isnan(reduced).any() else None
        chosen = np.arange(len(rows))
        if len(rows) > _MOST_ASSESSED:
            chosen = np.random.RandomState(0).choice(len(rows), _MOST_ASSESSED, replace=False)
            chosen.sort()
        mapping = self._left_out_by_mapping(chosen)
        normals = left_out_log_density(reduced[chosen], S[chosen], factors)
        share = best_share(mapping, normals)
        left_out = mixed(mapping, normals, share) + self.units.log_volumes(rows[chosen])
        return _Densities(fit_normals(reduced, S, factors), share, left_out)

    def _left_out_by_mapping(self, numbers: Ints) -> Floats:
        """Return log p(y) of the reference's rows by the mapping of all the others, scaled.

        For the same parameters: only what the row itself has told the mapping is taken out.
        """
        rows = self.reference.rows[numbers]
        found, _ = self._project(rows, numbers, self._fitted(numbers))
        return projection.laplace(self.posterior, found)

    def _fitted(self, numbers: Ints) -> projection.Fitted:
        """Return how rows of the reference were fitted."""
        T = self._reference_S[numbers] if len(self.A_inverse) > 1 else np.ones((len(numbers), 1))
        points, rows = self.reference.points[numbers], self.reference.rows[numbers]
        return projection.Fitted(points, T, self._cells(rows))

    @property
    @with_numerics
    def left_out_log_density(self) -> Floats:
        """Log densities of training rows, or a sample of them, each left out."""
        return self._densities.left_out

    @property
    def knows_densities(self) -> bool:
        """Whether what :attr:`unusual_below` takes its time for has been done."""
        return "_densities" in self.__dict__

    @property
    def unusual_below(self) -> float:
        """The log density under which a row is unlike anything seen in fit."""
        return lower_limit(self.left_out_log_density, OUTLIER_SHARE)

    @with_numerics
    def decode(self, X: Floats) -> Floats:
        """Return the expected rows, in the units of the data, at latent points."""
        return self._restored(self._mapped(X))

    def _mapped(self, X: Floats, fitted: projection.Fitted | None = None) -> Floats:
        """Return what the mappings say at latent points, scaled."""
        mean, _, shares = projection.moments_at(self._model, X, fitted)
        mean = mean[:, :, : len(self.units.offset)]
        if mean.shape[1] == 1:
            return mean[:, 0]
        return np.einsum("nm,nmp->np", shares, mean)

    @with_numerics
    def impute(self, Y: Floats) -> Imputation:
        """Return rows with expectations of their missing cells, and how sure they are."""
        missing = np.isnan(Y)
        values, std = Y.copy(), np.zeros_like(Y)
        rows = np.flatnonzero(missing.any(axis=1))
        if not len(rows):
            return Imputation(values, std)
        reduced = self.units.transform(Y[rows])
        mean, deviation = self._imputer.expected(reduced, self._mapped(self.place(Y[rows])[0]))
        values[rows] = np.where(missing[rows], self._restored(mean), Y[rows])
        deviation = self.known_features(deviation * self.units.scale)
        std[rows] = np.where(missing[rows], deviation, 0.0)
        return Imputation(values, std)

    @cached_property
    def _imputer(self) -> Imputer:
        rows = self.reference.rows

        def left_out_means(numbers: Ints, shown: Floats) -> Floats:
            fitted = self._fitted(numbers)
            found, _ = self._project(self.units.inverse_transform(shown), numbers, fitted)
            return self._mapped(found.X, fitted)

        return learn_imputer(self.units.transform(rows), left_out_means)

    @with_numerics
    def draw(self, n_samples: int, rng: np.random.RandomState) -> tuple[Floats, Ints]:
        """Return rows drawn from the model and the clusters they came from, cluster by cluster.

        Latent points are drawn where those of the training rows are, on the way from one to a
        neighbor in the same cluster: a Gaussian around a cluster's mean would also reach where
        there are no rows, and where the mapping has learned nothing.
        """
        mixture = self.mixture
        counts = rng.multinomial(n_samples, mixture.weights / np.sum(mixture.weights))
        labels = np.repeat(np.arange(len(counts)), counts)
        X = np.concatenate([self._draw_points(m, count, rng) for m, count in enumerate(counts)])
        mean, _, _ = projection.moments_at(self._model, X)
        mapping = np.zeros_like(labels) if mean.shape[1] == 1 else labels
        noise = rng.standard_normal((n_samples, len(self.units.offset)))
        drawn = mean[np.arange(n_samples), mapping, : noise.shape[1]]
        drawn = drawn + noise / np.sqrt(float(self.posterior.mappings.beta))
        return self._restored(drawn), labels

    def _draw_points(self, cluster: int, count: int, rng: np.random.RandomState) -> Floats:
        """Return latent points of a cluster, drawn between those of its training rows."""
        from scipy.spatial import KDTree  # a tenth of a second that other answers do not need

        own = self.X[self.S.argmax(axis=1) == cluster]
        if len(own) < 2:
            mixture = self.mixture
            return rng.multivariate_normal(
                mixture.means[cluster], mixture.covariances[cluster], count
            )
        chosen = rng.randint(len(own), size=count)
        k = min(_DRAWN_BETWEEN, len(own) - 1)
        _, nearest = KDTree(own).query(own[chosen], k=np.arange(2, k + 2))
        other = own[nearest[np.arange(count), rng.randint(k, size=count)]]
        share = rng.uniform(size=(count, 1))
        return (1.0 - share) * own[chosen] + share * other

    @property
    def kernels(self) -> list[Kernel]:
        """The learned kernels, for features divided by their scales."""
        return unstack(self.posterior.mappings.kernels)

    @property
    def mixture(self) -> Any:
        """The latent mixture (:class:`sgpmic.model.mixture.Mixture`), as NumPy arrays."""
        return jax.tree.map(np.asarray, self.posterior.mixture)


def blanked(values: _T, empty: Bools, blank: float = np.nan) -> _T:
    """Return values of rows with others for those that are empty."""
    if empty.any():
        values = values.copy()
        values[empty] = blank
    return values


def pad_posterior(posterior: Posterior) -> Posterior:
    """Return a posterior for more features and clusters, none of which make a difference."""
    G, U, P = posterior.mean_weights.shape
    mean_weights = pad(posterior.mean_weights, (G, U, padded_features(P, 0)))
    groups = posterior.groups
    if groups is not None:
        groups = pad(groups, (len(groups), mean_weights.shape[2]))
    mixture = posterior.mixture
    if G == 1:
        mixture = pad_mixture(mixture, max(round_up(len(mixture.weights), 2), _LEAST_CLUSTERS))
    return posterior._replace(mean_weights=mean_weights, mixture=mixture, groups=groups)


def pad_mixture(mixture: Mixture, n_clusters: int) -> Mixture:
    """Return a mixture with clusters of weight 0 added."""
    M, Q = np.shape(mixture.means)
    covariances: Any = np.broadcast_to(np.eye(Q), (n_clusters, Q, Q)).copy()
    covariances[:M] = mixture.covariances
    return Mixture(
        pad(mixture.weights, (n_clusters,)), pad(mixture.means, (n_clusters, Q)), covariances
    )


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
