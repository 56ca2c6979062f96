"""What a report says about a fitted model: plain arrays and words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from sgpmic.learning.points import view_axes
from sgpmic.learning.starts import explain_choice
from sgpmic.tables.description import Levels, describe

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Principal(NamedTuple):
    """Rows on their first two principal components."""

    points: Floats  # (n_samples, 2)
    shares: Floats  # (2,), of the variance


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Everything that the page of one run needs.

    Parameters
    ----------
    title : str
    feature_names : tuple of str, one a column of ``values``
    values : ndarray of shape (n_samples, n_features)
        The columns of numbers, in their own units; NaN where missing.
    dates : tuple of str
        Those of the columns of numbers that are dates: days since 1970.
    categories : tuple of Levels
        The columns of words.
    columns : list of dict
        Every column of the table and what became of it: ``name``, ``kind``, ``summary``,
        ``n_missing`` (None where it was not looked at), ``n_rows``, ``becomes`` and ``warning``.
    embedding : ndarray of shape (n_samples, n_components)
    memberships : ndarray of shape (n_samples, n_clusters)
    means, covariances, weights : ndarrays
        The latent mixture: (n_clusters, n_components), (n_clusters, n_components, n_components)
        and (n_clusters,).
    principal : Principal or None
        The rows as a principal component analysis shows them, beside the learned picture.
    ids : list of str or None
        Names of the rows; None for their numbers.
    given_labels : list of str or None
        A known grouping to compare with, and ``label_name``, what it is called.
    cluster_names : list of str
        What clusters are called; empty, or an empty one, for their numbers.
    history : dict of str to list
        As ``SGPMIC.history_``.
    starts : list of dict
        As ``SGPMIC.starts_``, with or without the labels.
    choice : str
        Why one of several starts was kept.
    support : str
        A sentence on whether there are clusters at all.
    committee : list of dict
        As ``SGPMIC.committee_``.
    number_of_clusters : dict or None
        As ``SGPMIC.number_of_clusters_``.
    settings : dict
        What was asked for.
    warnings : list of str
    times : dict of str to float
        Seconds.
    versions : dict of str to str
    """

    title: str
    feature_names: tuple[str, ...]
    values: Floats
    embedding: Floats
    memberships: Floats
    means: Floats
    covariances: Floats
    weights: Floats
    dates: tuple[str, ...] = ()
    categories: tuple[Levels, ...] = ()
    columns: list[dict[str, Any]] = field(default_factory=list)
    principal: Principal | None = None
    cluster_names: list[str] = field(default_factory=list)
    ids: list[str] | None = None
    given_labels: list[str] | None = None
    label_name: str = "given label"
    history: dict[str, list[Any]] = field(default_factory=dict)
    starts: list[dict[str, Any]] = field(default_factory=list)
    choice: str = ""
    support: str = ""
    committee: list[dict[str, Any]] = field(default_factory=list)
    number_of_clusters: dict[str, Any] | None = None
    settings: dict[str, str | int | float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, M, Q = len(self.values), self.memberships.shape[1], self.embedding.shape[1]
        expected: dict[str, tuple[int, ...]] = {
            "values": (n, len(self.feature_names)),
            "embedding": (n, Q),
            "memberships": (n, M),
            "means": (M, Q),
            "covariances": (M, Q, Q),
            "weights": (M,),
        }
        for name, shape in expected.items():
            found = np.shape(getattr(self, name))
            if found != shape:
                raise ValueError(f"{name} has shape {found}, but {shape} fits the other arrays.")
            numbers = getattr(self, name)
            if name == "values":  # NaN is a missing cell
                numbers = np.nan_to_num(numbers, nan=0.0, posinf=np.inf, neginf=-np.inf)
            if not np.isfinite(numbers).all():
                raise ValueError(f"{name} has entries that are not finite.")
        for name in ("ids", "given_labels"):
            words = getattr(self, name)
            if words is not None and len(words) != n:
                raise ValueError(f"{name} has {len(words)} entries for {n} rows.")
        for levels in self.categories:
            if len(levels.codes) != n:
                raise ValueError(f"{levels.name} has {len(levels.codes)} entries for {n} rows.")
        if n == 0:
            raise ValueError("A report needs at least one row.")

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, empty ones too."""
        return self.memberships.shape[1]

    @property
    def labels(self) -> Ints:
        """The most probable cluster of every row."""
        return self.memberships.argmax(axis=1)

    @property
    def certainty(self) -> Floats:
        """The probability of every row's most probable cluster."""
        return self.memberships.max(axis=1)

    @property
    def kept_start(self) -> int | None:
        """Which of ``starts`` was kept; None where that is not known."""
        return next((i for i, start in enumerate(self.starts) if start.get("kept")), None)


def content_from_model(
    model: Any,
    values: Floats,
    *,
    title: str,
    feature_names: tuple[str, ...] | None = None,
    **more: Any,
) -> RunContent:
    """Gather the content of a report from a fitted :class:`sgpmic.SGPMIC`.

    Parameters
    ----------
    model : SGPMIC
    values : ndarray of shape (n_samples, n_features)
        What it was fitted on; where the model has an encoder, what that made of the table.
    title : str
    feature_names : tuple of str or None
        None for those the model has seen, or "feature 0", ….
    **more
        Other fields of :class:`RunContent`: ids, given_labels, warnings, times, …
    """
    values = np.asarray(values, dtype=np.float64)
    principal = principal_components(values, model.units_)
    if model.encoder_ is not None:
        described = describe(model.encoder_, values)
        feature_names, values = described.names, described.numbers
        more = {"categories": described.categories, "dates": described.dates} | more
    if feature_names is None:
        seen = getattr(model, "feature_names_in_", None)
        seen = [f"feature {j}" for j in range(values.shape[1])] if seen is None else seen
        feature_names = tuple(map(str, seen))
    plain = {
        k: v for k, v in model.get_params(deep=False).items() if isinstance(v, str | int | float)
    }
    axes = view_axes(model.embedding_)
    found: dict[str, Any] = {
        "embedding": model.embedding_ @ axes,
        "memberships": model.memberships_,
        "means": model.means_ @ axes,
        "covariances": axes.T @ model.covariances_ @ axes,
        "weights": model.weights_,
        "principal": principal,
        "history": model.history_,
        "starts": [{k: v for k, v in s.items() if k != "labels"} for s in model.starts_],
        "choice": explain_choice(model.starts_, model.start.selection),
        "support": "" if model.support_ is None else model.support_.sentence(),
        "committee": model.committee_,
        "number_of_clusters": model.number_of_clusters_,
        "settings": plain,
    }
    return RunContent(title=title, feature_names=feature_names, values=values, **(found | more))


def principal_components(values: Floats, units: Any) -> Principal | None:
    """Return the principal components of rows in a model's units; None of fewer than two.

    A missing cell counts as the mean of its column.
    """
    n, p = values.shape
    if min(n, p) < 2 or p != len(units.offset):  # a model of reduced features has other units
        return None
    scaled = np.nan_to_num(units.reduce(values))
    if not scaled.any():
        return None
    analysis = PCA(2, random_state=0)
    points = analysis.fit_transform(scaled)
    return Principal(points, analysis.explained_variance_ratio_)
