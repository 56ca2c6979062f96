"""What a report says about a fitted model: plain arrays and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from sgpmic._types import Floats, Ints
from sgpmic.learning.preprocessing import view_axes
from sgpmic.learning.starts import explain_choice
from sgpmic.tables.columns import Description, Levels, naming_column
from sgpmic.tables.encoder import describe


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Everything that the page of one run needs, of N rows, M clusters and Q latent dimensions."""

    title: str
    feature_names: tuple[str, ...]  # of the columns of numbers
    values: Floats  # (N, n_features): the columns of numbers, in their own units, NaN where missing
    embedding: Floats  # (N, Q)
    memberships: Floats  # (N, M)
    means: Floats  # (M, Q), of the latent mixture
    covariances: Floats  # (M, Q, Q)
    weights: Floats  # (M,)
    dates: tuple[str, ...] = ()  # columns of numbers that are dates: days since 1970
    categories: tuple[Levels, ...] = ()  # the columns of words
    #: Every column of the table and what became of it (`sgpmic.tables.columns.Column`);
    #: ``n_missing`` is None where it was not looked at.
    columns: list[dict[str, Any]] = field(default_factory=list)
    #: Rows on their first two principal components, (N, 2), drawn beside the learned picture; and
    #: the components' shares of the variance, (2,).
    principal: tuple[Floats, Floats] | None = None
    cluster_names: list[str] = field(default_factory=list)  # none, or "", for their numbers
    ids: list[str] | None = None  # names of the rows; None for their numbers
    texts: dict[str, list[str]] = field(default_factory=dict)  # more columns to read and search
    given_labels: list[str] | None = None  # a known grouping to compare with
    label_name: str = "given label"  # what it is called
    history: dict[str, list[Any]] = field(default_factory=dict)  # as SGPMIC.history_
    starts: list[dict[str, Any]] = field(default_factory=list)  # as SGPMIC.starts_
    choice: str = ""  # why one of several starts was kept
    support: str = ""  # a sentence on whether there are clusters at all
    committee: list[dict[str, Any]] = field(default_factory=list)  # as SGPMIC.committee_
    number_of_clusters: dict[str, Any] | None = None  # as SGPMIC.number_of_clusters_
    settings: dict[str, str | int | float] = field(default_factory=dict)  # what was asked for
    warnings: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)  # in seconds
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.values):
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


def content_from_model(model: Any, values: Floats, **more: Any) -> RunContent:
    """Gather the content of a report from a fitted :class:`sgpmic.SGPMIC`.

    ``values`` are what it was fitted on; where it has an encoder, what that made of the table.
    ``more`` are other fields of :class:`RunContent`: title, ids, given_labels, warnings, …
    """
    values = np.asarray(values, dtype=np.float64)
    described, parameters = describe_rows(model, values), model.get_params(deep=False)
    axes = view_axes(model.embedding_)
    found: dict[str, Any] = {
        "feature_names": described.names,
        "values": described.numbers,
        "embedding": model.embedding_ @ axes,
        "memberships": model.memberships_,
        "means": model.means_ @ axes,
        "covariances": axes.T @ model.covariances_ @ axes,
        "weights": model.weights_,
        "principal": principal_components(values, model.scaler_),
        "categories": described.categories,
        "dates": described.dates,
        "history": model.history_,
        "starts": [{k: v for k, v in s.items() if k != "labels"} for s in model.starts_],
        "choice": explain_choice(model.starts_, model.start.selection),
        "support": "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence(),
        "committee": model._committee,
        "number_of_clusters": model._number_of_clusters,
        "settings": {k: v for k, v in parameters.items() if isinstance(v, str | int | float)},
    }
    return RunContent(**(found | more))


def content_of_rows(
    model: Any, X: Any = None, *, labels: Sequence[Any] | None = None, **more: Any
) -> RunContent:
    """Gather the content of a report on some rows: by default those that the model was fitted on.

    ``labels`` are a known grouping of them.
    """
    values, embedding, memberships, texts = model._rows_to_draw(X)
    given = None if labels is None else [str(label) for label in labels]
    if given is not None and len(given) != len(values):
        raise ValueError(f"There are {len(given)} labels for {len(values)} rows.")
    ids = texts.pop(naming_column(texts), None)
    found: dict[str, Any] = {
        "embedding": embedding @ view_axes(model.embedding_),
        "memberships": memberships,
        "given_labels": given,
        "label_name": str(getattr(labels, "name", None) or "label"),
    }
    return content_from_model(model, values, ids=ids, texts=texts, **(found | more))


def describe_rows(model: Any, values: Floats) -> Description:
    """Return rows as a fitted model takes them in the words of the table they come from."""
    if model.encoder_ is not None:
        described = describe(model.encoder_, values)
        return described._replace(numbers=_as_written(described.numbers))
    n = values.shape[1]
    names = getattr(model, "feature_names_in_", ())
    if len(names) != n:
        what = "feature" if n == model.n_features_in_ else "component"  # of a sparse matrix
        names = [f"{what} {j}" for j in range(n)]
    return Description(tuple(map(str, names)), values, (), ())


def _as_written(values: Floats) -> Floats:
    """Return numbers without what scaling and its inverse have rounded: 14 digits are kept.

    Else 207 may count as under 207.
    """
    size = np.where(np.isfinite(values) & (values != 0), abs(values), 1.0)
    power = np.maximum(14 - np.ceil(np.log10(size)), 0)
    exact = 10.0 ** np.minimum(power, 22)  # higher powers are not
    return np.where(power <= 22, np.round(values * exact) / exact, values)


def principal_components(values: Floats, units: Any) -> tuple[Floats, Floats] | None:
    """Return the principal components of rows in a model's units; None of fewer than two.

    A missing cell counts as the mean of its column.
    """
    p = values.shape[1]
    if min(values.shape) < 2 or p != len(units.offset):  # of reduced features, units are others
        return None
    scaled, analysis = np.nan_to_num(units.transform(values)), PCA(2, random_state=0)
    if not scaled.any():
        return None
    return analysis.fit_transform(scaled), analysis.explained_variance_ratio_
