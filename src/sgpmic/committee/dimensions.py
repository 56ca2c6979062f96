"""Principal components: the number of dimensions, and factors that represent categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.committee.geometry import without_copies
from sgpmic.committee.reference_noise import MixedTable
from sgpmic.learning.gaps import fit_factors
from sgpmic.learning.preprocessing import (
    Scaler,
    find_categories,
    fit_scaler,
    parts,
    sample_numbers,
    usual_range,
)
from sgpmic.process_group import ProcessGroup

#: Maximum number of rows sampled.
MOST_EXAMINED = 1000
#: Categories that are a smaller fraction of the columns hardly matter and stay as they are.
_FEW = 0.02
#: Maximum number of latent dimensions chosen.
MOST_DIMENSIONS = 10
#: Number of shuffled tables in parallel analysis, and the quantile to exceed.
_SHUFFLED, _QUANTILE = 20, 0.95
# Tables with more rows are decomposed by way of their Gram matrix instead of an SVD.
_MOST_DECOMPOSED = 100_000


@dataclass(frozen=True)
class NumberOfDimensions:
    """How the number of latent dimensions was chosen."""

    chosen: int  # principal components with more variance than noise, at least one
    variance: list[float]  # explained variance ratios of the principal components
    noise: list[float]  # the same for independently shuffled features


class View(NamedTuple):
    """The representation of a table that the committee and the initialization use.

    With one-hot encoded categories, the levels of a single one look like perfect clusters in a
    neighbor graph, but a cluster should be shared by several columns. So numbers stay as they are,
    and categories are replaced by what they share with other columns
    (:meth:`~sgpmic.committee.reference_noise.MixedTable.factors`); and committee members whose
    clusters are the levels of one category do not vote. Outliers are clipped, lest they set the
    scale of a feature or make up clusters.
    """

    rows: Floats  # (n_own, r) rows of this process
    scaler: Scaler
    mixed: MixedTable | None = None  # a sample from all processes, with its categories
    drawn: View | None = None  # a sample with its missing cells drawn, if there are any

    @property
    def n_factors(self) -> int:
        """Number of factors, the last features, that replace categories; 0 if there are none."""
        return 0 if self.mixed is None else min(self.mixed.n_factors, len(self.mixed.indicators))


def sampled(own: Floats, group: ProcessGroup) -> Floats:
    """Return the rows that are examined, bitwise identical on all processes."""
    return group.agree(group.rows_at(own, sample_numbers(group.n_rows, MOST_EXAMINED)))


def committee_view(Y: Floats, Y_imputed: Floats, scaler: Scaler, group: ProcessGroup) -> View:
    """Return the committee's view of a table; ``Y_imputed`` is ``Y`` if no cells are missing."""
    has_gaps = Y_imputed is not Y
    sample = sampled(Y_imputed, group)
    varies = (sample != sample[0]).any(axis=0)
    if not varies.all():  # the judge and the test for clusters would count constants as features
        others = (Y_imputed[:, ~varies] != sample[0, ~varies]).any(axis=0)
        varies[~varies] = group.largest(others)
        Y, Y_imputed = Y[:, varies], Y_imputed[:, varies]
        scaler = scaler._replace(offset=scaler.offset[varies], scale=scaler.scale[varies])
    view = _without_categories(Y, Y_imputed, scaler, group)
    if not has_gaps:
        return view
    # Imputed cells have too little variance, and many of them can look like clusters. These are
    # drawn from a factor model, which has no clusters, given the other cells of their row.
    distinct, _ = without_copies(scaler.transform(sampled(Y_imputed, group)))
    sample = sampled(Y, group)[distinct]
    scaled = scaler.transform(sample)
    drawn = scaler.inverse_transform(fit_factors(scaled).draw(scaled, np.random.default_rng(0)))
    drawn = np.where(np.isnan(sample), drawn, sample)
    alone = ProcessGroup(len(sample), alone=True)
    return view._replace(drawn=_without_categories(sample, drawn, scaler, alone))


def _without_categories(Y: Floats, Y_imputed: Floats, scaler: Scaler, group: ProcessGroup) -> View:
    """Return the table without outliers and with factors in place of categories."""
    low, high = group.agree(usual_range(sampled(Y, group)))
    below = Y_imputed.min(axis=0, initial=np.inf) < low
    above = Y_imputed.max(axis=0, initial=-np.inf) > high
    if group.largest(np.array((below | above).any())):
        Y_imputed = np.clip(Y_imputed, low, high)
        scaler = fit_scaler(Y_imputed, group, scaler.kind)
    categories = find_categories(sampled(Y, group))
    if not categories:
        return View(Y_imputed, scaler)
    sample = scaler.transform(sampled(Y_imputed, group))
    sample = sample[without_copies(sample)[0]]
    spans = [range(each.first, each.first + each.n_features) for each in categories]
    # Start and end of every original column among the features.
    begins = np.delete(np.arange(Y.shape[1]), [j for span in spans for j in span[1:]]).tolist()
    columns = list(zip(begins, [*begins[1:], Y.shape[1]], strict=True))
    few = len(categories) < _FEW * len(columns)
    if few or len(categories) == Y.shape[1]:  # binary features only, such as bits, are numbers
        return View(Y_imputed, scaler, MixedTable(sample, columns, np.zeros(0, np.int64), 0))
    n_factors = int(group.agree(np.array(choose_dimensions(sample, columns).chosen)))
    if len(categories) == len(columns):  # a picture has two dimensions
        n_factors = max(n_factors, 2)
    mixed = MixedTable(sample, columns, np.concatenate(spans), n_factors)
    factors = group.agree(mixed.factors(sample - sample.mean(axis=0)))
    scaled = map(scaler.transform, parts(Y_imputed))
    rows = np.concatenate([mixed.represent(part, factors) for part in scaled])
    unscaled = Scaler(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), "none", 1.0)
    return View(rows, unscaled, mixed)


def choose_dimensions(
    Y: Floats, together: Sequence[tuple[int, int]] | None = None
) -> NumberOfDimensions:
    """Choose the number of latent dimensions by Horn's parallel analysis.

    Principal components are counted up to the first whose variance does not exceed that in 95 % of
    tables with shuffled features. A weak dimension behind strong ones may be missed. ``together``
    are half-open ranges of features that are shuffled as one, by default every feature.
    """
    rng = np.random.RandomState(0)
    parts = [(j, j + 1) for j in range(Y.shape[1])] if together is None else together
    shuffled = [
        _variances(np.column_stack([rng.permutation(Y[:, first:last]) for first, last in parts]))
        for _ in range(_SHUFFLED)
    ]
    variance, noise = _variances(Y), np.quantile(shuffled, _QUANTILE, axis=0)
    first_below = int(np.argmin(np.append(variance > noise, False)))
    chosen = min(max(first_below, 1), MOST_DIMENSIONS)
    return NumberOfDimensions(chosen, variance.tolist(), noise.tolist())


def _variances(Y: Floats) -> Floats:
    squares: Floats = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    return squares / max(float(squares.sum()), np.finfo(float).tiny)


def count_components(n_components: Any, scaler: Scaler, Y: Floats, group: ProcessGroup) -> int:
    """Return the number of latent dimensions: as given, or for that fraction of the variance.

    As in scikit-learn's PCA, a fraction selects the smallest number of principal components of the
    scaled features whose explained variance exceeds it.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        squares = np.linalg.svd(scaler.transform(Y), compute_uv=False) ** 2
    else:
        products = np.zeros((Y.shape[1], Y.shape[1]))
        for part in map(scaler.transform, parts(Y, _MOST_DECOMPOSED)):
            products += part.T @ part
        squares = np.maximum(np.linalg.eigvalsh(group.total(products))[::-1], 0.0)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))
