"""What a table supports, before anything is fitted to it: clusters at all, how many, dimensions."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sgpmic._types import Floats
from sgpmic.committee.geometry import sample_rows
from sgpmic.committee.how_many import NumberOfClusters, choose_number
from sgpmic.committee.outcome import Support
from sgpmic.committee.reference_noise import MixedTable
from sgpmic.committee.support import structure_support
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.progress import announce
from sgpmic.process_group import ProcessGroup

#: At most this many rows are looked at.
MOST_ROWS = 1000
#: Latent dimensions that are chosen, at most.
MOST_DIMENSIONS = 10
#: Tables of noise that variances are compared with, and which of them counts.
_SHUFFLED, _QUANTILE = 20, 0.95
# Rows whose singular values are found directly; of more, by way of their products.
_MOST_DECOMPOSED = 100_000

#: What was found out about tables, the latest last: a grid search fits the same rows many times.
_found: dict[Any, Any] = {}
_MOST_REMEMBERED = 64
_remembering = threading.Lock()
_R = TypeVar("_R")


@dataclass(frozen=True)
class NumberOfDimensions:
    """How the number of latent dimensions was chosen.

    Attributes
    ----------
    chosen : int
        Principal components with more variance than noise has, at least one.
    variance : tuple of float
        Shares of the variance of the principal components.
    noise : tuple of float
        The same of rows whose features were shuffled, each by itself: what chance gives.
    """

    chosen: int
    variance: tuple[float, ...]
    noise: tuple[float, ...]

    def listing(self) -> dict[str, Any]:
        """Return it as plain numbers and lists."""
        return {
            "chosen": self.chosen,
            "variance": list(self.variance),
            "noise": list(self.noise),
        }


class Structure(NamedTuple):
    """What was found out about a table; None for what was not asked."""

    support: Support | None
    clusters: NumberOfClusters | None
    dimensions: NumberOfDimensions | None


def examine(
    Y: Floats,
    group: ProcessGroup,
    scaler: Scaler,
    *,
    support: bool,
    clusters: bool,
    dimensions: bool,
    mixed: MixedTable | None = None,
) -> Structure:
    """Return what the table of all processes supports.

    Parameters
    ----------
    Y : ndarray of shape (n_own, n_features)
        The rows of this process, in their own scaler.
    group : ProcessGroup
    scaler : Scaler
    support, clusters, dimensions : bool
        What to find out. The number of clusters needs the support.
    mixed : MixedTable or None
        A sample of the table with its categories, if ``Y`` has their factors.
    """
    if not (support or clusters or dimensions):
        return Structure(None, None, None)
    numbers = sample_rows(group.n_rows, MOST_ROWS)
    # All processes see the same numbers, to the last bit.
    sample = group.agree(scaler.transform(group.rows_at(Y, numbers)))
    found = number = None
    if support or clusters:
        announce("looking for clusters at all")
        found = _once(structure_support, sample, mixed=mixed)
    if clusters and found is not None:
        number = _once(choose_number, sample, support=found)
    return Structure(found, number, _once(choose_dimensions, sample) if dimensions else None)


def _once(find: Callable[..., _R], sample: Floats, **options: Any) -> _R:
    """Return what there is to find out about a table; what was found out lately is remembered."""
    digest = hashlib.sha256(sample.tobytes()).hexdigest()
    # Factors tell the table with categories that they were made of.
    known = {name: value for name, value in options.items() if name != "mixed"}
    key = (find.__name__, sample.shape, digest, *known.items())
    with _remembering:
        found: _R | None = _found.get(key)
    if found is None:
        found = find(sample, **options)  # several threads may find out the same, none waits
        with _remembering:
            _found[key] = found
            while len(_found) > _MOST_REMEMBERED:
                del _found[next(iter(_found))]
    return found


def choose_dimensions(
    Y: Floats, together: Sequence[tuple[int, int]] | None = None
) -> NumberOfDimensions:
    """Return the number of latent dimensions, by Horn's parallel analysis.

    A dimension counts as long as its principal component, and all before it, have more variance
    than 95 % of tables with the same features without correlations. A weak dimension behind
    strong ones may be missed.

    ``together`` are first and last, that one not included, of features that are shuffled as one;
    by default every feature by itself.
    """
    rng = np.random.RandomState(0)
    parts = [(j, j + 1) for j in range(Y.shape[1])] if together is None else together
    shuffled = [
        _variances(np.column_stack([rng.permutation(Y[:, first:last]) for first, last in parts]))
        for _ in range(_SHUFFLED)
    ]
    variance, noise = _variances(Y), np.quantile(shuffled, _QUANTILE, axis=0)
    above = variance > noise
    first_below = len(above) if above.all() else int(np.argmin(above))
    chosen = min(max(first_below, 1), MOST_DIMENSIONS)
    return NumberOfDimensions(chosen, tuple(map(float, variance)), tuple(map(float, noise)))


def _variances(Y: Floats) -> Floats:
    squares: Floats = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    return squares / max(float(squares.sum()), np.finfo(float).tiny)


def count_components(n_components: Any, scaler: Scaler, Y: Floats, group: ProcessGroup) -> int:
    """Return the number of latent dimensions: as given, or enough for that share of variance.

    As in scikit-learn's PCA of the scaled features: the smallest number of principal components
    whose explained variance exceeds the share.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    squares = _principal_squares(scaler, Y, group)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))


def _principal_squares(scaler: Scaler, Y: Floats, group: ProcessGroup) -> Floats:
    """Return the squared singular values of the centered, scaled table of all processes."""
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        return np.asarray(np.linalg.svd(scaler.transform(Y), compute_uv=False) ** 2, np.float64)
    products = np.zeros((Y.shape[1], Y.shape[1]))
    for first in range(0, len(Y), _MOST_DECOMPOSED):
        part = scaler.transform(Y[first : first + _MOST_DECOMPOSED])
        products += part.T @ part
    values = np.linalg.eigvalsh(group.total(products))[::-1]
    squares: Floats = np.maximum(values, 0.0)
    return squares
