"""What every method of the comparison takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """One row of the table, as a method sees it: never the classes.

    Attributes
    ----------
    Y : ndarray of shape (n_samples, n_features)
        The raw data.
    n_clusters : int
        Number of clusters, M.
    n_components : int
        Number of latent dimensions, Q.
    n_inducing : int
        Inducing points of the Gaussian-process methods, N′.
    images : bool
        Whether the rows are images; one rival has other constants for them.
    """

    Y: Floats
    n_clusters: int
    n_components: int
    n_inducing: int = 50
    images: bool = False


class Clustering(NamedTuple):
    """What a method found.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
    embedding : ndarray of shape (n_samples, n_components)
    bound : float or None
        The lower bound, of the methods that have one.
    """

    labels: Ints
    embedding: Floats
    bound: float | None = None


@dataclass(frozen=True)
class Method:
    """A column of the table.

    Attributes
    ----------
    name : str
        As printed in the paper.
    run : callable
        ``run(problem, seed, **setting)`` returns a :class:`Clustering`.
    settings : tuple of mappings
        The tuning grid; the table shows the setting with the best mean accuracy of the row, as
        the paper did. One empty setting where there is nothing to tune.
    all_features : bool
        Whether the paper's numbers of this method come from all 13 features of Wine.
    least_components : int
        The method is not defined for fewer latent dimensions.
    """

    name: str
    run: Callable[..., Clustering]
    settings: tuple[Mapping[str, float], ...] = ({},)
    all_features: bool = False
    least_components: int = 1
