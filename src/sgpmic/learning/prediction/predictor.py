"""A fitted model in the units of the data: projection, densities, imputation and sampling.

A training row is recognized by a hash of its values and gets its fitted latent point and
memberships. Any other row starts from the latent points of its nearest neighbors among (a sample
of) the training rows, with missing cells replaced by their expectations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import numerics
from sgpmic._types import Bools, Floats, Ints
from sgpmic.kernels import Kernel, unstack
from sgpmic.learning.gaps import FactorModel, fit_factors, impute_cells
from sgpmic.learning.neighbors import block_rows, in_blocks, padded_count
from sgpmic.learning.prediction import cluster_normals, projection
from sgpmic.learning.preprocessing import Scaler, parts, sample_numbers
from sgpmic.model.mixture import Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.model.rows import pad, pad_rows, padded_features, round_up

#: Fraction of new rows from the training distribution that count as outliers.
OUTLIER_SHARE = 0.005
#: Maximum number of training rows that the threshold is estimated from.
_MOST_ASSESSED = 5_000
#: Scaled values are clipped at this size: the optimizer computes fourth powers.
_FARTHEST = 1e20
#: Number of cells processed at a time.
_PART = 1 << 22
#: Mixtures are padded to at least this many clusters.
_LEAST_CLUSTERS = 8
#: Maximum number of training rows that rows with gaps are compared with.
_MOST_SIMILAR = 1024
#: How fast similar rows outweigh a row's own latent point as more of it is missing, chosen to bring
#: memberships of rows with hidden cells closest to those of the complete rows.
_SOFTNESS = 3.0
#: Rows hashed at a time, so that temporaries stay in the CPU cache.
_KEYS_PART = 8192
#: Squared distances must not overflow.
_FARTHEST_COMPARED = 1e120


def fingerprints(Y: Floats) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row."""
    keys = np.full(len(Y), Y.shape[1], np.uint64)

    def compute(first: int) -> None:
        key = keys[first : first + _KEYS_PART]
        for bits in _canonical(Y[first : first + _KEYS_PART].T).view(np.uint64):
            # Multiplying by an odd constant mixes bits upward, the shift mixes them back down.
            key ^= bits
            key *= np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(32)

    with ThreadPoolExecutor() as threads:
        list(threads.map(compute, range(0, len(Y), _KEYS_PART)))
    return keys


def _digests(Y: Floats) -> NDArray[np.uint64]:
    """Return row hashes as in model files from before version 1.0."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in _canonical(Y))
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _canonical(values: Floats) -> Floats:
    """Return an array in which equal values have equal bits."""
    # Adding 0.0 turns -0.0, which equals 0.0 but has different bits, into 0.0.
    values = np.add(values, 0.0, order="C", dtype=np.float64)
    values[np.isnan(values)] = np.nan  # one bit pattern for all NaNs
    return values


@dataclass
class Reference:
    """Training rows (or a sample of them) with their latent points, and the hashes of all."""

    rows: Floats  # (R, P)
    points: Floats  # (R, Q)
    votes: Floats  # (R, M) the committee's vote shares; all equal without a committee
    keys: NDArray[np.uint64]  # (N,) sorted hashes of all training rows
    order: Ints  # (N,) the training row of each hash
    scale: Floats  # (P,) scales of the features for comparisons

    @cached_property
    def _factors(self) -> FactorModel:
        return fit_factors(self.rows / self.scale)

    @cached_property
    def _center(self) -> Floats:
        return np.median(self._completed(self.rows), axis=0)

    @cached_property
    def _identify(self) -> Callable[[Floats], NDArray[np.uint64]]:
        """The hash function of ``keys``, which include the rows of the reference."""
        mine = fingerprints(self.rows[:1])[0]
        place = min(int(np.searchsorted(self.keys, mine)), len(self.keys) - 1)
        return fingerprints if self.keys[place] == mine else _digests

    def _completed(self, Y: Floats) -> Floats:
        scaled = Y / self.scale
        return self._factors.complete(scaled) if np.isnan(scaled).any() else scaled

    def complete(self, Y: Floats) -> Floats:
        """Return rows for comparison: scaled and centered, with expectations of missing cells."""
        with np.errstate(over="ignore"):
            off_center = self._completed(Y) - self._center
        return np.clip(off_center, -_FARTHEST_COMPARED, _FARTHEST_COMPARED)

    @cached_property
    def _compared(self) -> tuple[Floats, Ints, float]:
        """Padded rows to compare others with, their indices, and the total variance."""
        rows = self.complete(self.rows)
        n_compared = min(len(rows), _MOST_SIMILAR)
        numbers = np.linspace(0, len(rows) - 1, n_compared).astype(np.int64)
        padding = np.full(_MOST_SIMILAR - len(numbers), -2)
        variance = float(rows.var(axis=0).sum()) or 1.0
        return pad_rows(rows[numbers], _MOST_SIMILAR), np.append(numbers, padding), variance

    def soften(
        self, S: Floats, theirs: Floats, completed: Floats, observed: Bools, own: Ints
    ) -> Floats:
        """Soften the memberships S (n, M) at the most probable latent points of rows with gaps.

        Such a point says little if many others are almost as probable. ``theirs`` (R, M) are the
        memberships of this reference, ``own`` (n,) the rows' indices in it, or -1.
        """
        rows, numbers, variance = self._compared
        similar = partial(projection.average_similar, (rows, theirs[numbers], numbers, variance))
        block, known = block_rows(completed.shape[1]), observed.astype(np.float64)
        mean, unknown = in_blocks(similar, block, completed, known, own)
        doubt = 1.0 - (1.0 - unknown[:, None]) ** _SOFTNESS
        return S + doubt * (mean - S)

    def lookup(self, Y: Floats) -> Ints:
        """Return the index of each row among the training rows, −1 for new rows."""
        keys = self._identify(Y)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.order[places], -1)


def sorted_fingerprints(Y: Floats) -> tuple[NDArray[np.uint64], Ints]:
    """Return the sorted row hashes and the rows' indices, by a stable sort."""
    keys = fingerprints(Y)
    # A sort takes at most half the time of an argsort, so the indices replace the low bits of the
    # hashes. The few hashes that differ only there are sorted afterwards.
    n_bits = np.uint64(len(keys).bit_length())
    packed = np.sort(keys >> n_bits << n_bits | np.arange(len(keys), dtype=np.uint64))
    order = (packed & ((np.uint64(1) << n_bits) - np.uint64(1))).astype(np.int64)
    order = order[np.argsort(keys[order], kind="stable")]  # fast, because nearly sorted
    return keys[order], order


def answer_alike(rows: tuple[NDArray[np.uint64], Ints], values: Floats) -> Floats:
    """Average values (N, K) over duplicate rows, given :func:`sorted_fingerprints`."""
    keys, order = rows
    firsts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    if len(firsts) == len(keys):
        return values
    counts = np.diff(firsts, append=len(keys))
    means = np.add.reduceat(values[order], firsts) / counts[:, None]
    answer = np.empty_like(values)
    answer[order] = np.repeat(means, counts, axis=0)
    return answer


class Assessment(NamedTuple):
    """All predictions for rows."""

    labels: Ints  # (n_samples,) the most probable cluster
    memberships: Floats  # (n_samples, n_clusters) the probability of each cluster
    embedding: Floats  # (n_samples, n_components) latent points
    log_density: Floats  # (n_samples,) under the model, low for outliers
    unusual: Bools  # (n_samples,) whether a row is an outlier


class _Densities(NamedTuple):
    """The density besides the mapping's: cluster normals and mixture weight."""

    normals: cluster_normals.ClusterNormals
    mapping_share: float
    left_out: Floats  # held-out log densities of training rows, or of a sample of them


@dataclass
class Predictor:
    """A fitted model, as arrays only: what estimators and model files hold."""

    scaler: Scaler
    posterior: Posterior
    X: Floats  # (N, Q) latent points of the training rows
    S: Floats  # (N, M) their responsibilities
    reference: Reference
    A_inverse: Floats  # (G, U, U), or (G, C, U, U) with C groups of features
    jitter: float  # the largest relative jitter
    prior_weight: float  # of the reference's votes
    x_std: Floats | None  # (N, Q) posterior standard deviations of the latent points
    seen: Bools  # (P,) whether any training row has the feature

    def known_features(self, Y: Floats) -> Floats:
        """Set features that no training row has to NaN."""
        return Y if self.seen.all() else np.where(self.seen, Y, np.nan)

    def _restored(self, Y: Floats) -> Floats:
        """Return rows in the units of the data, NaN for features that no training row has."""
        return self.known_features(self.scaler.inverse_transform(Y))

    @cached_property
    def _model(self) -> projection.Model:
        """The posterior, padded with features and clusters to share compiled programs."""
        posterior = self.posterior
        G, U, P = posterior.mean_weights.shape
        n_features = padded_features(P, 0)
        posterior = posterior._replace(mean_weights=pad(posterior.mean_weights, (G, U, n_features)))
        if posterior.groups is not None:
            groups = pad(posterior.groups, (len(posterior.groups), n_features))
            posterior = posterior._replace(groups=groups)
        if G == 1:
            n_clusters = max(round_up(len(posterior.mixture.weights), 2), _LEAST_CLUSTERS)
            posterior = posterior._replace(mixture=pad_mixture(posterior.mixture, n_clusters))
        weight = np.asarray(self.prior_weight, np.float64)
        return projection.Model(posterior, weight, self.A_inverse)

    @cached_property
    def _sample(self) -> projection.Sample:
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
        return self.S[self.reference.lookup(self.reference.rows)]

    def _scaled(self, Y: Floats) -> Floats:
        """Return scaled rows, NaN for missing cells, clipped so that squares do not overflow."""
        with np.errstate(over="ignore"):
            return np.clip(self.scaler.transform(Y), -_FARTHEST, _FARTHEST)

    def _cells(self, Y: Floats) -> projection.Cells:
        """Return rows scaled and padded like the posterior."""
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
        """Project rows; ``own`` are their indices in the reference, -1 for others."""
        completed = self.reference.complete(Y)
        numbers = np.full(len(Y), -1) if own is None else own
        padded = pad(completed, (len(Y), self._sample.rows.shape[1]))
        cells = self._cells(Y)
        found, S = projection.project(self._model, self._sample, padded, numbers, cells, fitted)
        S = S[:, : self.S.shape[1]]
        observed = ~np.isnan(Y)
        if not observed.all():
            S = self.reference.soften(S, self._reference_S, completed, observed, numbers)
        return found, S

    def _answer(self, rows: Floats, *, densities: bool) -> tuple[Floats, Floats, Floats]:
        """Return latent points, memberships and, optionally, log densities of rows.

        NaN for rows without any value. Rows are processed in parts to limit memory. Complete rows
        are not mixed with others, which need different compiled programs.
        """
        Y = self.known_features(rows)
        missing = np.isnan(Y)
        gaps, empty = missing.any(axis=1), missing.all(axis=1)
        known = self.reference.lookup(Y)
        X, S, log_density = self.X[known], self.S[known], np.full(len(Y), np.nan)
        X[empty] = S[empty] = np.nan
        # For densities, training rows are projected too: their fitted points maximize the bound.
        asked = ((known < 0) | densities) & ~empty
        step = max(1, _PART // self._model.posterior.mean_weights.shape[2])
        for numbers in (np.flatnonzero(asked & ~gaps), np.flatnonzero(asked & gaps)):
            for part in parts(numbers, step):
                found, memberships = self._project(Y[part])
                new = known[part] < 0
                X[part[new]], S[part[new]] = found.X[new], memberships[new]
                if densities:
                    mapping = projection.laplace(self.posterior, found)
                    normals = self._densities.normals.log_density(self._scaled(Y[part]))
                    density = cluster_normals.mixed(mapping, normals, self._densities.mapping_share)
                    log_density[part] = density + self.scaler.log_volumes(Y[part])
        return X, S, log_density

    @numerics()
    def place(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return latent points and memberships of rows, NaN for rows without any value."""
        X, S, _ = self._answer(rows, densities=False)
        return X, S

    @numerics()
    def assess(self, rows: Floats) -> Assessment:
        """Return all predictions for rows, NaN for rows without any value."""
        X, S, log_density = self._answer(rows, densities=True)
        return Assessment(most_probable(S), S, X, log_density, log_density < self.unusual_below)

    @cached_property
    def _densities(self) -> _Densities:
        """The cluster normals, and the weight of the mapping's density beside them."""
        rows, S = self.reference.rows, self._reference_S
        # Rows count for their own cluster only: with a membership of a few percent, distant rows
        # would inflate a cluster's covariance.
        S = np.eye(S.shape[1])[S.argmax(axis=1)]
        reduced = self.scaler.transform(rows)
        factors = self._factors if np.isnan(reduced).any() else None
        chosen = sample_numbers(len(rows), _MOST_ASSESSED)
        # From held-out rows, whose densities would otherwise be too high. Parameters are not
        # refitted: only a row's own contribution to the posterior is removed.
        T = self._reference_S[chosen] if len(self.A_inverse) > 1 else np.ones((len(chosen), 1))
        fitted = projection.Fitted(self.reference.points[chosen], T, self._cells(rows[chosen]))
        found, _ = self._project(rows[chosen], chosen, fitted)
        mapping = projection.laplace(self.posterior, found)
        normals = cluster_normals.left_out_log_density(reduced[chosen], S[chosen], factors)
        share = cluster_normals.best_share(mapping, normals)
        left_out = cluster_normals.mixed(mapping, normals, share)
        left_out += self.scaler.log_volumes(rows[chosen])
        return _Densities(cluster_normals.fit_normals(reduced, S, factors), share, left_out)

    @property
    @numerics()
    def unusual_below(self) -> float:
        """Log density threshold of outliers."""
        return cluster_normals.lower_limit(self._densities.left_out, OUTLIER_SHARE)

    @numerics()
    def decode(self, X: Floats) -> Floats:
        """Return the expected rows at latent points, in the units of the data."""
        mean, shares = projection.means_at(self._model, X)
        mean = mean[:, :, : len(self.scaler.offset)]
        single = mean.shape[1] == 1
        return self._restored(mean[:, 0] if single else np.einsum("nm,nmp->np", shares, mean))

    @numerics()
    def impute(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return rows without gaps, and standard deviations; NaN for rows without any value."""
        Y = self.known_features(rows)
        missing = np.isnan(Y)
        values, std = Y.copy(), np.where(missing, np.nan, 0.0)
        gaps = missing.any(axis=1) & ~missing.all(axis=1)
        if gaps.any():
            sample = self.scaler.transform(self.reference.rows)
            imputed, deviation = impute_cells(self.scaler.transform(Y[gaps]), self._factors, sample)
            values[gaps] = np.where(missing[gaps], self._restored(imputed), Y[gaps])
            std[gaps] = self.known_features(deviation * self.scaler.scale)
        return values, std

    @cached_property
    def _factors(self) -> FactorModel:
        return fit_factors(self.scaler.transform(self.reference.rows))

    @numerics()
    def draw(self, n_samples: int, rng: np.random.RandomState) -> tuple[Floats, Ints]:
        """Draw rows at latent points of training rows; return them, sorted by cluster, and it."""
        # The Gaussians also reach regions without rows, where the mapping has learned nothing.
        clusters = self.S.argmax(axis=1)
        chosen = rng.randint(len(clusters), size=n_samples)
        chosen = chosen[np.argsort(clusters[chosen], kind="stable")]
        noise = rng.standard_normal((n_samples, len(self.scaler.scale))) * self.scaler.scale
        noise /= np.sqrt(float(self.posterior.mappings.beta))
        return self.decode(self.X[chosen]) + noise, clusters[chosen]

    @property
    def kernels(self) -> list[Kernel]:
        """The learned kernels, for scaled features."""
        return unstack(self.posterior.mappings.kernels)


def most_probable(S: Floats) -> Ints:
    """Return the most probable cluster of each row, -1 for NaN."""
    return np.where(np.isnan(S[:, 0]), -1, S.argmax(axis=1))


def pad_mixture(mixture: Mixture, n_clusters: int) -> Mixture:
    """Pad a mixture with clusters of weight 0."""
    M, Q = np.shape(mixture.means)
    covariances: Any = np.broadcast_to(np.eye(Q), (n_clusters, Q, Q)).copy()
    covariances[:M] = mixture.covariances
    return Mixture(
        pad(mixture.weights, (n_clusters,)), pad(mixture.means, (n_clusters, Q)), covariances
    )
