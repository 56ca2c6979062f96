"""Content of a report on a fitted model, as plain arrays and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from sgpmic._input_rows import words_of_rows
from sgpmic._runtime import on_chosen_device
from sgpmic._types import Floats, Ints
from sgpmic.learning.preprocessing import view_axes
from sgpmic.learning.starts import explain_choice
from sgpmic.tables.columns import Description, Levels, naming_column
from sgpmic.tables.conversions import as_table, column_words
from sgpmic.tables.encoder import describe
from sgpmic.tables.kinds import read_label


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Content of the report on one run, with N rows, M clusters and Q latent dimensions."""

    title: str = ""
    feature_names: tuple[str, ...]  # of the numeric columns
    values: Floats  # (N, n_features): the numeric columns, in their own units, NaN where missing
    embedding: Floats  # (N, Q)
    memberships: Floats  # (N, M)
    means: Floats  # (M, Q), of the latent mixture
    covariances: Floats  # (M, Q, Q)
    weights: Floats  # (M,)
    dates: tuple[str, ...] = ()  # numeric columns that are dates (days since 1970) or times of day
    times_of_day: tuple[str, ...] = ()  # ... without a date: days, above 1 after midnight
    categories: tuple[Levels, ...] = ()  # the categorical columns
    #: Every column of the table and its encoding, see `sgpmic.tables.columns.Column`.
    columns: list[dict[str, Any]] = field(default_factory=list)
    #: First two principal component scores, (N, 2), and their shares of the variance, (2,).
    principal: tuple[Floats, Floats] | None = None
    cluster_names: list[str] = field(default_factory=list)  # empty, or "", for their numbers
    ids: list[str] | None = None  # names of the rows; None for their numbers
    texts: dict[str, list[str]] = field(default_factory=dict)  # more columns to show and search
    given_labels: list[str] | None = None  # a known grouping to compare with
    label_name: str = "given label"  # its column name
    history: dict[str, list[Any]] = field(default_factory=dict)  # as SGPMIC.history_
    starts: list[dict[str, Any]] = field(default_factory=list)  # as SGPMIC.starts_
    choice: str = ""  # why one of several starts was kept
    support: str = ""  # a sentence on whether there are clusters at all
    committee: list[dict[str, Any]] = field(default_factory=list)  # as SGPMIC.committee_
    number_of_clusters: dict[str, Any] | None = None  # as SGPMIC.number_of_clusters_
    settings: dict[str, str | int | float] = field(default_factory=dict)  # parameters
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
        """Number of clusters, including empty ones."""
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
        """Index of the start that was kept; None if unknown."""
        return next((i for i, start in enumerate(self.starts) if start.get("kept")), None)


def content_from_model(model: Any, values: Floats, **more: Any) -> RunContent:
    """Gather the content of a report from a fitted model, its encoded rows, and ``more`` fields."""
    values = np.asarray(values, dtype=np.float64)
    axes, parameters = view_axes(model.embedding_), model.get_params(deep=False)
    found: dict[str, Any] = describe_rows(model, values)._asdict() | {
        "embedding": more.pop("embedding", model.embedding_) @ axes,
        "memberships": model.memberships_,
        "means": model.means_ @ axes,
        "covariances": axes.T @ model.covariances_ @ axes,
        "weights": model.weights_,
        "principal": principal_components(values, model.scaler_),
        "history": model.history_,
        "starts": [{k: v for k, v in s.items() if k != "labels"} for s in model.starts_],
        "choice": explain_choice(model.starts_),
        "support": "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence(),
        "committee": model._committee,
        "number_of_clusters": model._number_of_clusters,
        "settings": {k: v for k, v in parameters.items() if isinstance(v, str | int | float)},
    }
    return RunContent(**(found | more))


@on_chosen_device
def content_of_rows(
    model: Any, X: Any = None, *, labels: Sequence[Any] | None = None, **more: Any
) -> RunContent:
    """Gather the content of a report on rows X, by default those that the model was fitted on."""
    check_is_fitted(model)
    predictor = model._predictor
    if X is None:
        reference, empty = predictor.reference, model._empty_rows
        values, rows = reference.rows, reference.lookup(reference.rows)
        if len(values) == len(predictor.X):
            rows = np.arange(len(values))  # duplicate rows have names of their own
        # Not the estimator's attributes, which include rows without any value.
        embedding, memberships, words = predictor.X[rows], predictor.S[rows], model._row_words
        n_rows = len(predictor.X) + len(empty)
        numbers = np.delete(np.arange(n_rows), empty)[rows]
    else:
        values = predictor.known_features(model._read_rows(X))
        is_empty = np.isnan(values).all(axis=1)
        values, numbers, n_rows = values[~is_empty], np.flatnonzero(~is_empty), len(is_empty)
        (embedding, memberships), words = predictor.place(values), words_of_rows(X, model.encoder_)
    texts = {name: [column[i] for i in numbers] for name, column in words.items()}
    given = None
    if labels is not None:
        given, _ = read_label(column_words(as_table({"label": labels})[0].column(0)))
        if len(given) != n_rows:
            raise ValueError(f"There are {len(given)} labels for {n_rows} rows.")
        given = [given[i] for i in numbers]
    ids = texts.pop(naming_column(texts), None)
    if ids is None and len(numbers) < n_rows:
        ids = [str(i + 1) for i in numbers]  # as in the table
    n_fitted = len(predictor.X)
    sampled = X is None and len(values) < n_fitted
    found: dict[str, Any] = {
        "embedding": embedding,
        "memberships": memberships,
        "given_labels": given,
        "label_name": str(getattr(labels, "name", None) or "label"),
        "warnings": [f"The report shows {len(values)} of the {n_fitted} rows."] * sampled,
    }
    return content_from_model(model, values, ids=ids, texts=texts, **(found | more))


def describe_rows(model: Any, values: Floats) -> Description:
    """Return a model's input rows in the original units and levels of the table."""
    if model.encoder_ is not None:
        described = describe(model.encoder_, values)
        return described._replace(values=_as_written(described.values))
    n = values.shape[1]
    names = getattr(model, "feature_names_in_", ())
    if len(names) != n:
        what = "feature" if n == model.n_features_in_ else "component"  # of a sparse matrix
        names = [f"{what} {j}" for j in range(n)]
    return Description(tuple(map(str, names)), values, (), ())


def _as_written(values: Floats) -> Floats:
    """Round numbers to 14 digits: after scaling and its inverse, 207 may count as under 207."""
    size = np.where(np.isfinite(values) & (values != 0), abs(values), 1.0)
    power = np.maximum(14 - np.ceil(np.log10(size)), 0)
    exact = 10.0 ** np.minimum(power, 22)  # higher powers of ten are not exact
    return np.where(power <= 22, np.round(values * exact) / exact, values)


def principal_components(values: Floats, units: Any) -> tuple[Floats, Floats] | None:
    """Return principal component scores of scaled rows, and the shares of variance; None without.

    Missing cells are imputed by column means.
    """
    if min(values.shape) < 2 or values.shape[1] != len(units.offset):  # scaler of reduced features
        return None
    scaled, analysis = np.nan_to_num(units.transform(values)), PCA(2, random_state=0)
    if not scaled.any():
        return None
    return analysis.fit_transform(scaled), analysis.explained_variance_ratio_
