"""What a report says about a fitted model: plain arrays and words, and the numbers made of them.

Everything here is a pure function of arrays, so that a report can be made from a fresh fit or
from the files of an old one, and every number can be checked without a browser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri, xlogy
from sklearn.metrics import adjusted_rand_score

from sgpmic.report.picture import ellipse

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Effect sizes end here: a feature that is constant inside and outside a cluster would be infinite.
LARGEST_EFFECT = 100.0

#: Share of a Gaussian that its outline holds.
OUTLINE_SHARE = 0.9

# Points of a map's grid on its longer side, and the canvas shapes (width / height) that the grid
# must fill at the first view: from a phone held upright to a wide screen.
_GRID_POINTS = 240
_NARROWEST, _WIDEST = 0.7, 2.4

# Numbers handled at a time where a whole copy of the table would be too much.
_BLOCK = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Everything that the page of one run needs.

    Parameters
    ----------
    title : str
    feature_names : tuple of str, one a column of ``values``
    values : ndarray of shape (n_samples, n_features)
        The table, in its own units.
    embedding : ndarray of shape (n_samples, n_components)
    memberships : ndarray of shape (n_samples, n_clusters)
    means, covariances, weights : ndarrays
        The latent mixture: (n_clusters, n_components), (n_clusters, n_components, n_components)
        and (n_clusters,).
    ids : list of str or None
        Names of the rows; None for their numbers.
    given_labels : list of str or None
        A known grouping to compare with, and ``label_name``, what it is called.
    history : dict of str to list
        As ``SGPMIC.history_``.
    starts : list of dict
        As ``SGPMIC.starts_``, with or without the labels.
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
    ids: list[str] | None = None
    given_labels: list[str] | None = None
    label_name: str = "given label"
    history: dict[str, list[Any]] = field(default_factory=dict)
    starts: list[dict[str, Any]] = field(default_factory=list)
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
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} has entries that are not finite.")
        for name in ("ids", "given_labels"):
            words = getattr(self, name)
            if words is not None and len(words) != n:
                raise ValueError(f"{name} has {len(words)} entries for {n} rows.")
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
        What it was fitted on.
    title : str
    feature_names : tuple of str or None
        None for those the model has seen, or "feature 0", ….
    **more
        Other fields of :class:`RunContent`: ids, given_labels, warnings, times, …
    """
    values = np.asarray(values, dtype=np.float64)
    if feature_names is None:
        seen = getattr(model, "feature_names_in_", None)
        seen = [f"feature {j}" for j in range(values.shape[1])] if seen is None else seen
        feature_names = tuple(map(str, seen))
    plain = {
        k: v for k, v in model.get_params(deep=False).items() if isinstance(v, str | int | float)
    }
    found: dict[str, Any] = {
        "embedding": model.embedding_,
        "memberships": model.memberships_,
        "means": model.means_,
        "covariances": model.covariances_,
        "weights": model.weights_,
        "history": model.history_,
        "starts": [{k: v for k, v in s.items() if k != "labels"} for s in model.starts_],
        "settings": plain,
    }
    return RunContent(title=title, feature_names=feature_names, values=values, **(found | more))


class Sizes(NamedTuple):
    """Rows, their share, and their mean certainty (NaN without rows), for every cluster."""

    counts: Ints
    shares: Floats
    certainty: Floats


def cluster_sizes(memberships: Floats) -> Sizes:
    """Count the rows of every cluster and average their certainty."""
    M = memberships.shape[1]
    labels = memberships.argmax(axis=1)
    counts = np.bincount(labels, minlength=M)
    sums = np.bincount(labels, weights=memberships.max(axis=1), minlength=M)
    mean = np.full(M, np.nan)
    np.divide(sums, counts, out=mean, where=counts > 0)
    return Sizes(counts, counts / len(labels), mean)


class Profiles(NamedTuple):
    """How clusters differ from the rest of the rows, feature by feature; all (M, p)."""

    means: Floats  # NaN for clusters without rows
    outside: Floats  # mean of all other rows; NaN where there are none
    effects: Floats  # Cohen's d, always finite
    order: Ints  # features by falling |d|


def cluster_profiles(values: Floats, labels: Ints, n_clusters: int) -> Profiles:
    r"""Compare every cluster with all other rows.

    The effect size is Cohen's :math:`d = (\bar y_{in} - \bar y_{out}) / s`, with the pooled
    standard deviation :math:`s^2 = (\sum_{in}(y - \bar y_{in})^2 + \sum_{out}(y -
    \bar y_{out})^2) / (n - 2)`. It is 0 for constant features and where one side has no rows, and
    never beyond ±:data:`LARGEST_EFFECT`.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
    n_clusters : int
    """
    n, p = values.shape
    width = max(1, _BLOCK // max(n, 1))
    parts = [
        _profile_columns(values[:, first : first + width], labels, n_clusters)
        for first in range(0, p, width)
    ]
    empty = np.zeros((n_clusters, 0))
    means, outside, effects = (
        np.concatenate([part[k] for part in parts], axis=1) if parts else empty for k in range(3)
    )
    return Profiles(means, outside, effects, np.argsort(-abs(effects), axis=1, kind="stable"))


def _profile_columns(
    values: Floats, labels: Ints, n_clusters: int
) -> tuple[Floats, Floats, Floats]:
    """Return means inside, means outside and effect sizes for a few columns."""
    # d does not depend on units. Columns are mapped to [0, 1], by halves so that no range
    # overflows, which makes constant columns exactly 0 and rounding errors comparable.
    half = 0.5 * values
    low = half.min(axis=0)
    span = half.max(axis=0) - low
    scaled = (half - low) / np.where(span > 0, span, 1.0)
    inside = np.zeros((len(values), n_clusters))
    inside[np.arange(len(values)), labels] = 1.0
    counts = inside.sum(axis=0)[:, None]
    rest = len(values) - counts
    # Moments about the column's mean: its size must not drown its spread.
    centre = scaled.mean(axis=0)
    scaled -= centre
    sums = inside.T @ scaled
    squares = inside.T @ (scaled * scaled)
    mean_in = sums / np.maximum(counts, 1)
    mean_out = (sums.sum(axis=0) - sums) / np.maximum(rest, 1)
    scatter = squares.sum(axis=0) - counts * mean_in**2 - rest * mean_out**2
    deviation = np.sqrt(np.maximum(scatter, 0.0) / max(len(values) - 2, 1))
    # The floor, a billionth of the range, keeps d finite and lets rounding errors count as 0.
    effects = (mean_in - mean_out) / np.maximum(deviation, 1e-9)
    effects[np.broadcast_to((counts == 0) | (rest == 0), effects.shape)] = 0.0

    def in_units(means: Floats, counts: Floats) -> Floats:
        return np.where(counts > 0, 2.0 * (low + span * (means + centre)), np.nan)

    return (
        in_units(mean_in, counts),
        in_units(mean_out, rest),
        np.clip(effects, -LARGEST_EFFECT, LARGEST_EFFECT),
    )


def entropies(memberships: Floats) -> Floats:
    """Return −Σ_m s log s of every row, with 0 log 0 = 0."""
    result: Floats = -xlogy(memberships, memberships).sum(axis=1)
    return result


def doubtful_rows(memberships: Floats, count: int) -> Ints:
    """Return the rows of lowest certainty; of equal ones, those of highest entropy first."""
    certainty = memberships.max(axis=1)
    if count < len(certainty):  # sort only what can be among them
        worst = np.partition(certainty, count - 1)[count - 1] if count > 0 else -np.inf
        candidates = np.flatnonzero(certainty <= worst)
    else:
        candidates = np.arange(len(certainty))
    entropy = entropies(memberships[candidates])
    return candidates[np.lexsort((candidates, -entropy, certainty[candidates]))][:count]


def typical_rows(
    embedding: Floats, memberships: Floats, means: Floats, covariances: Floats, count: int
) -> list[Ints]:
    r"""Return, for every cluster, its rows of highest :math:`s_{nm} N(x_n|\bar x_m, C_m)`.

    Those lie deepest in the cluster's Gaussian and hardly belong anywhere else. Only rows whose
    most probable cluster it is are considered; of equal ones the first rows are taken.
    """
    labels = memberships.argmax(axis=1)
    found = []
    for m in range(memberships.shape[1]):
        mine = np.flatnonzero(labels == m)
        score = log_gaussian(embedding[mine], means[m], covariances[m])
        score = score + np.log(memberships[mine, m])
        found.append(mine[np.argsort(-score, kind="stable")[:count]])
    return found


def log_gaussian(points: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return log N(point | mean, covariance) of every point."""
    factor = np.linalg.cholesky(_positive(covariance))
    standard = np.linalg.solve(factor, (points - mean).T)
    log_det = 2.0 * np.log(np.diagonal(factor)).sum()
    result: Floats = -0.5 * (
        (standard * standard).sum(axis=0) + log_det + len(mean) * np.log(2.0 * np.pi)
    )
    return result


def _positive(covariance: Floats) -> Floats:
    """Return the covariance, its eigenvalues raised where it has no Cholesky factor."""
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        # Files may hold rounded covariances; a report should still be drawn.
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        floor = max(1e-9 * abs(values).max(), 1e-12)
        raised: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
        return raised
    return covariance


class Confusion(NamedTuple):
    """Clusters against given labels."""

    names: list[str]  # given labels, the most frequent first
    table: Ints  # (n_clusters, number of names)
    ari: float  # adjusted Rand index
    purity: float  # share of rows whose given label is the commonest of their cluster


def confusion(labels: Ints, given: list[str], n_clusters: int) -> Confusion:
    """Count how clusters and given labels go together."""
    names, codes, counts = np.unique(
        np.asarray(given, dtype=object), return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    place = np.argsort(order)
    table = np.zeros((n_clusters, len(names)), dtype=np.int64)
    np.add.at(table, (labels, place[codes]), 1)
    return Confusion(
        [str(names[i]) for i in order],
        table,
        float(adjusted_rand_score(codes, labels)),
        float(table.max(axis=1).sum() / len(labels)),
    )


class LatentMap(NamedTuple):
    """The latent space as it is drawn: places in a plane, density, boundaries, outlines."""

    points: Floats  # (n_samples, 2)
    home: Floats  # x0, x1, y0, y1 of the first view
    extent: Floats  # x0, x1, y0, y1 of the density's grid
    density: Floats  # (n_y, n_x), at the grid's points
    boundaries: Floats  # (n_segments, 4): x, y, x, y
    outlines: list[Floats]  # a line for every cluster's Gaussian
    numbers: Floats  # (n_clusters, 2): where its number is written, on the outline
    plane: bool  # False for one latent dimension, whose vertical axis has no unit


def latent_map(content: RunContent) -> LatentMap:
    """Return what to draw: the marginal mixture on the first two latent dimensions.

    One latent dimension is drawn along the horizontal axis, and every point at a fixed random
    height within the density at its place: the cloud then has the shape of the density, and
    rows that would hide each other are spread out. (Height by certainty, the obvious choice,
    puts nearly every row on one line, for nearly all are certain.)
    """
    return _map_line(content) if content.embedding.shape[1] == 1 else _map_plane(content)


def mixture_log_joint(points: Floats, content: RunContent) -> Floats:
    """Return log π_m N(point | m), (n_points, n_clusters), in the points' first dimensions."""
    q = points.shape[1]
    with np.errstate(divide="ignore"):  # a weight of 0 never wins
        log_weights = np.log(content.weights)
    columns = [
        log_weight + log_gaussian(points, mean[:q], covariance[:q, :q])
        for log_weight, mean, covariance in zip(
            log_weights, content.means, content.covariances, strict=True
        )
    ]
    return np.stack(columns, axis=1)


def _map_plane(content: RunContent) -> LatentMap:
    points = content.embedding[:, :2]
    outlines = [
        ellipse(mean[:2], _positive(covariance[:2, :2]), OUTLINE_SHARE)
        for mean, covariance in zip(content.means, content.covariances, strict=True)
    ]
    present = np.unique(content.labels)  # an empty cluster must not shrink the picture
    corners = np.concatenate([points, *(outlines[m] for m in present)])
    home = _widen(corners.min(axis=0), corners.max(axis=0))
    extent = _fill_canvas(home)
    xs, ys = _grid(extent)
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    joint = mixture_log_joint(nodes.reshape(-1, 2), content).reshape(*nodes.shape[:2], -1)
    return LatentMap(
        points,
        home,
        extent,
        np.exp(logsumexp(joint, axis=2)),
        boundary_segments(xs, ys, joint),
        outlines,
        np.stack([line[line[:, 1].argmax()] for line in outlines]),
        plane=True,
    )


def _map_line(content: RunContent) -> LatentMap:
    x = content.embedding[:, 0]
    radius = ndtri(0.5 + 0.5 * OUTLINE_SHARE)
    deviations = np.sqrt(content.covariances[:, 0, 0])
    ends = content.means[:, :1] + radius * deviations[:, None] * np.array([-1.0, 1.0])
    present = np.unique(content.labels)
    low, high = min(x.min(), ends[present].min()), max(x.max(), ends[present].max())
    home_x = _widen(np.array([low]), np.array([high]))
    xs = np.linspace(home_x[0] - np.ptp(home_x), home_x[1] + np.ptp(home_x), 3 * _GRID_POINTS)
    joint = mixture_log_joint(xs[:, None], content)
    density = np.exp(logsumexp(joint, axis=1))
    peak = density.max()
    at_points = np.exp(logsumexp(mixture_log_joint(x[:, None], content), axis=1))
    height = np.random.default_rng(0).uniform(-1.0, 1.0, len(x)) * np.minimum(at_points / peak, 1.0)
    # The Gaussians' bars lie under the cloud, one below the other.
    levels = -1.15 - 0.12 * np.arange(len(ends))
    outlines = [
        np.stack([end, np.full(2, level)], axis=1) for end, level in zip(ends, levels, strict=True)
    ]
    home = np.array([*home_x, levels[-1] - 0.12, 1.1])
    ys = np.linspace(home[2], home[3], 120)
    # A cell on the edge is partly inside: a soft edge, not stairs.
    inside = np.clip((density / peak - abs(ys)[:, None]) / (ys[1] - ys[0]) + 0.5, 0.0, 1.0)
    crossings = _crossings_on_line(xs, joint)
    ends_y = np.broadcast_to(home[2:], (len(crossings), 2))
    return LatentMap(
        np.stack([x, height], axis=1),
        home,
        np.array([xs[0], xs[-1], home[2], home[3]]),
        inside**2 * density,  # shown by its square root, see payload.py
        np.stack([crossings, ends_y[:, 0], crossings, ends_y[:, 1]], axis=1),
        outlines,
        np.stack([ends[:, 1], levels], axis=1),
        plane=False,
    )


def _widen(low: Floats, high: Floats, margin: float = 0.05) -> Floats:
    """Return x0, x1, y0, y1 (or x0, x1) of a box with a margin; never of size 0."""
    span = high - low
    pad = margin * np.maximum(span, 0.02 * span.max()) + (1e-3 if span.max() == 0 else 0.0)
    return np.stack([low - pad, high + pad], axis=1).ravel()


def _fill_canvas(home: Floats) -> Floats:
    """Return the box around ``home`` that a canvas with equal axes may show at first."""
    centre = home.reshape(2, 2).mean(axis=1)
    half_x, half_y = np.diff(home.reshape(2, 2), axis=1)[:, 0] / 2
    half = 1.02 * np.array([max(half_x, _WIDEST * half_y), max(half_y, half_x / _NARROWEST)])
    return np.stack([centre - half, centre + half], axis=1).ravel()


def _grid(extent: Floats) -> tuple[Floats, Floats]:
    """Return the grid's coordinates, square cells, ``_GRID_POINTS`` on the longer side."""
    sides = np.diff(extent.reshape(2, 2), axis=1)[:, 0]
    n_x, n_y = np.maximum(np.round(_GRID_POINTS * sides / sides.max()).astype(int), 16)
    x0, x1, y0, y1 = extent
    return np.linspace(x0, x1, int(n_x)), np.linspace(y0, y1, int(n_y))


def _crossings_on_line(xs: Floats, joint: Floats) -> Floats:
    """Return the places where the most probable component changes."""
    winner = joint.argmax(axis=1)
    at = np.flatnonzero(winner[1:] != winner[:-1])
    share = _crossing_share(joint[at], joint[at + 1], winner[at], winner[at + 1])
    result: Floats = xs[at] + share * (xs[at + 1] - xs[at])
    return result


def _crossing_share(here: Floats, there: Floats, winner: Ints, other: Ints) -> Floats:
    """Return where, between two grid points, their winners are equally probable.

    The difference of two log densities is quadratic, so within a cell a line follows it closely.
    """
    rows = np.arange(len(here))
    before = here[rows, winner] - here[rows, other]
    after = there[rows, other] - there[rows, winner]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = before / (before + after)
    return np.where(np.isfinite(share), share, 0.5)


def boundary_segments(xs: Floats, ys: Floats, joint: Floats) -> Floats:
    """Return the lines between the regions of different most probable components.

    Marching squares for several labels: two crossings on a cell's edges are joined; three or
    four, where regions meet, are joined to their mean.

    Parameters
    ----------
    xs, ys : ndarrays of shape (n_x,), (n_y,)
    joint : ndarray of shape (n_y, n_x, n_components)
        log π_m N at the grid's points.

    Returns
    -------
    segments : ndarray of shape (n_segments, 4)
    """
    winner = joint.argmax(axis=2)
    X, Y = np.meshgrid(xs, ys)
    across = _edge_crossings(X, Y, joint, winner, axis=1)
    along = _edge_crossings(X, Y, joint, winner, axis=0)
    # The four edges of every cell: bottom, top, left, right; NaN where nothing crosses.
    edges = np.stack([across[:-1], across[1:], along[:, :-1], along[:, 1:]], axis=2)
    edges = edges.reshape(-1, 4, 2)
    crossed = np.isfinite(edges[:, :, 0])
    count = crossed.sum(axis=1)
    simple = edges[count == 2][crossed[count == 2]].reshape(-1, 4)
    meeting, here = edges[count > 2], crossed[count > 2]
    middle = np.where(here[:, :, None], meeting, 0.0).sum(axis=1) / here.sum(axis=1)[:, None]
    spokes = np.concatenate([meeting, np.broadcast_to(middle[:, None], meeting.shape)], axis=2)
    return np.concatenate([simple, spokes[here]])


def _edge_crossings(X: Floats, Y: Floats, joint: Floats, winner: Ints, axis: int) -> Floats:
    """Return the crossing on every grid edge along an axis, (…, 2), NaN where there is none."""
    first = (slice(None), slice(None, -1)) if axis == 1 else (slice(None, -1), slice(None))
    second = (slice(None), slice(1, None)) if axis == 1 else (slice(1, None), slice(None))
    a, b = winner[first], winner[second]
    places = np.full((*a.shape, 2), np.nan)
    differ = a != b
    share = _crossing_share(joint[first][differ], joint[second][differ], a[differ], b[differ])
    for k, C in enumerate((X, Y)):
        low, high = C[first][differ], C[second][differ]
        places[differ, k] = low + share * (high - low)
    return places
