"""The latent space as the report draws it: places, density, boundaries and outlines."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtri

from sgpmic._types import Floats
from sgpmic.report.content import RunContent
from sgpmic.report.statistics import log_gaussian, positive

#: Share of a cluster's rows that its outline holds.
OUTLINE_SHARE = 0.9

# Points of a map's grid on its longer side, and the canvas shapes (width / height) that the grid
# must fill at the first view: from a phone held upright to a broad screen.
_GRID_POINTS = 240
_NARROWEST, _BROADEST = 0.7, 2.4

#: Latent dimensions that can be looked at, the widest: every two of them have a map.
MAX_DIMENSIONS = 4


class LatentMap(NamedTuple):
    """Two latent dimensions as they are drawn: places, density, boundaries, outlines."""

    axes: tuple[int, int]  # which dimensions
    points: Floats  # (n_samples, 2)
    home: Floats  # x0, x1, y0, y1 of the first view
    extent: Floats  # x0, x1, y0, y1 of the density's grid
    density: Floats  # (n_y, n_x), at the grid's points
    boundaries: Floats  # (n_segments, 4): x, y, x, y
    outlines: list[Floats]  # a line around 90 % of every cluster's rows
    numbers: Floats  # (n_clusters, 2): where its number is written, on the outline
    plane: bool  # False for one latent dimension, whose vertical axis has no unit


def latent_maps(content: RunContent) -> list[LatentMap]:
    """Return a map of every two of the first latent dimensions, that of the first two first."""
    dimensions = range(min(content.embedding.shape[1], MAX_DIMENSIONS))
    return [latent_map(content, axes) for axes in list(combinations(dimensions, 2)) or [(0, 1)]]


def latent_map(content: RunContent, axes: tuple[int, int] = (0, 1)) -> LatentMap:
    """Return what to draw: the marginal mixture on two latent dimensions.

    One latent dimension is drawn along the horizontal axis, and every point at a fixed random
    height within the density at its place: the cloud then has the shape of the density, and
    rows that would hide each other are spread out. (Height by certainty, the obvious choice,
    puts nearly every row on one line, for nearly all are certain.)
    """
    if content.embedding.shape[1] == 1:
        return _map_line(content)
    points, labels, means = content.embedding[:, axes], content.labels, content.means[:, axes]
    covariances = content.covariances[:, axes][:, :, axes]
    outlines = [
        outline(points[labels == m], means[m], covariances[m]) for m in range(content.n_clusters)
    ]
    present = np.unique(labels)  # an empty cluster must not shrink the picture
    corners = np.concatenate([points, *(outlines[m] for m in present)])
    home = _with_margin(corners.min(axis=0), corners.max(axis=0))
    # The box around it that a canvas with equal axes may show at first, in square cells
    center, (half_x, half_y) = home.reshape(2, 2).mean(axis=1), np.diff(home)[::2] / 2
    half = 1.02 * np.array([max(half_x, _BROADEST * half_y), max(half_y, half_x / _NARROWEST)])
    extent = np.stack([center - half, center + half], axis=1).ravel()
    n_points = np.maximum(np.round(_GRID_POINTS * half / half.max()).astype(int), 16)
    xs, ys = map(np.linspace, extent[::2], extent[1::2], n_points)
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    joint = mixture_log_joint(nodes.reshape(-1, 2), content, axes).reshape(*nodes.shape[:2], -1)
    return LatentMap(
        axes,
        points,
        home,
        extent,
        np.exp(logsumexp(joint, axis=2)),
        boundary_segments(xs, ys, joint),
        outlines,
        np.stack([line[line[:, 1].argmax()] for line in outlines]),
        plane=True,
    )


def mixture_log_joint(points: Floats, content: RunContent, axes: tuple[int, ...]) -> Floats:
    """Return log π_m N(point | m), (n_points, n_clusters), in some of the latent dimensions."""
    q = list(axes)
    mixture = zip(content.means[:, q], content.covariances[:, q][:, :, q], strict=True)
    densities = np.stack([log_gaussian(points, *component) for component in mixture], axis=1)
    with np.errstate(divide="ignore"):  # a weight of 0 never wins
        return np.log(content.weights) + densities


def _map_line(content: RunContent) -> LatentMap:
    x = content.embedding[:, 0]
    ends = np.stack(
        [
            interval(x[content.labels == m], content.means[m, 0], content.covariances[m, 0, 0])
            for m in range(content.n_clusters)
        ]
    )
    present = np.unique(content.labels)
    low, high = min(x.min(), ends[present].min()), max(x.max(), ends[present].max())
    home_x = _with_margin(np.array([low]), np.array([high]))
    xs = np.linspace(home_x[0] - np.ptp(home_x), home_x[1] + np.ptp(home_x), 3 * _GRID_POINTS)
    joint = mixture_log_joint(xs[:, None], content, (0,))
    density = np.exp(logsumexp(joint, axis=1))
    peak = density.max()
    at_points = np.exp(logsumexp(mixture_log_joint(x[:, None], content, (0,)), axis=1))
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
    winner = joint.argmax(axis=1)
    at = np.flatnonzero(winner[1:] != winner[:-1])
    crossings = xs[at] + _crossing_share(joint[at], joint[at + 1]) * (xs[at + 1] - xs[at])
    ends_y = np.broadcast_to(home[2:], (len(crossings), 2))
    return LatentMap(
        (0, 1),
        np.stack([x, height], axis=1),
        home,
        np.array([xs[0], xs[-1], home[2], home[3]]),
        inside**2 * density,  # shown by its square root, see payload.py
        np.stack([crossings, ends_y[:, 0], crossings, ends_y[:, 1]], axis=1),
        outlines,
        np.stack([ends[:, 1], levels], axis=1),
        plane=False,
    )


def _with_margin(low: Floats, high: Floats) -> Floats:
    """Return x0, x1, y0, y1 (or x0, x1) of a box with a margin; never of size 0."""
    span = high - low
    pad = 0.05 * np.maximum(span, 0.02 * span.max()) + (1e-3 if span.max() == 0 else 0.0)
    return np.stack([low - pad, high + pad], axis=1).ravel()


def _crossing_share(here: Floats, there: Floats) -> Floats:
    """Return where, between two grid points, their winners are equally probable.

    The difference of two log densities is quadratic, so within a cell a line follows it closely.
    """
    rows, winner, other = np.arange(len(here)), here.argmax(axis=1), there.argmax(axis=1)
    before = here[rows, winner] - here[rows, other]
    after = there[rows, other] - there[rows, winner]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = before / (before + after)
    return np.where(np.isfinite(share), share, 0.5)


def boundary_segments(xs: Floats, ys: Floats, joint: Floats) -> Floats:
    """Return the lines between the regions of different most probable components.

    Marching squares for several labels: two crossings on a cell's edges are joined; three or
    four, where regions meet, are joined to their mean. ``joint`` is log π_m N at the grid's points,
    (n_y, n_x, n_components).
    """
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    across = _edge_crossings(nodes, joint)
    along = _edge_crossings(nodes.swapaxes(0, 1), joint.swapaxes(0, 1)).swapaxes(0, 1)
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


def _edge_crossings(nodes: Floats, joint: Floats) -> Floats:
    """Return the crossing between every two nodes of a row, (…, 2), NaN where there is none."""
    winner = joint.argmax(axis=2)
    differ = winner[:, :-1] != winner[:, 1:]
    places = np.full((*differ.shape, 2), np.nan)
    low, high = nodes[:, :-1][differ], nodes[:, 1:][differ]
    share = _crossing_share(joint[:, :-1][differ], joint[:, 1:][differ])
    places[differ] = low + share[:, None] * (high - low)
    return places


def outline(rows: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return a line around 90 % of a cluster's rows, of the shape of its Gaussian.

    Learning draws the rows of a cluster closer together than its Gaussian says, so that the
    Gaussian's own 90 % would hold nearly all of them. The size is that of the rows; without any,
    the line holds 90 % of the Gaussian.
    """
    root = np.linalg.cholesky(positive(covariance))
    radius = np.sqrt(-2.0 * np.log(1.0 - OUTLINE_SHARE))  # chi-square, two degrees of freedom
    if len(rows):
        distances = np.linalg.norm(solve_triangular(root, (rows - mean).T, lower=True), axis=0)
        radius = np.quantile(distances, OUTLINE_SHARE, method="higher")
    angle = np.linspace(0.0, 2.0 * np.pi, 100)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return mean + radius * circle @ root.T


def interval(rows: Floats, mean: float, variance: float) -> Floats:
    """Return the ends of :func:`outline` in one dimension."""
    radius = np.sqrt(variance) * ndtri(0.5 + 0.5 * OUTLINE_SHARE)
    if len(rows):
        radius = np.quantile(abs(rows - mean), OUTLINE_SHARE, method="higher")
    return mean + radius * np.array([-1.0, 1.0])
