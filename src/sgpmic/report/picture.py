"""Figure of the latent space: its geometry, and the payload for the page's script.

The script reads base64-encoded arrays in JSON. Sizes, for n rows and p features: coordinates 8n
bytes (up to 16n for more than two latent dimensions, plus 8n for principal components), memberships
(the top three of a row) 12n, values 4np. Base64 adds a third.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sgpmic._types import Floats, Ints
from sgpmic.report.content import RunContent
from sgpmic.report.statistics import (
    Confusion,
    NumberByCluster,
    clip_limits,
    log_gaussian,
    square_root,
)
from sgpmic.report.words import day_parts, shorten

# Smallest variance in an outline, relative to the cluster's Gaussian: rows may lie on a line.
_LEAST_WIDTH = 1e-4

# Standard deviation of the random heights of a single latent dimension, relative to its range.
_RANDOM_WIDTH = 0.05

#: Share of a cluster's rows inside its outline.
OUTLINE_SHARE = 0.9

# Grid points on a map's longer side, and the range of canvas aspect ratios (width / height) that
# the grid must fill in the initial view: from a phone in portrait mode to a wide screen.
_GRID_POINTS, _NARROWEST, _BROADEST = 240, 0.7, 2.4

#: Number of latent dimensions shown, those of largest extent: every pair of them has a map.
MAX_DIMENSIONS = 4

#: More rows than this are drawn as a random sample of this many.
MAX_ROWS = 200_000

#: Maximum number of values, and of category codes.
MAX_NUMBERS = 10_000_000

#: Maximum number of text columns, and of characters per cell.
MOST_TEXTS, LONGEST_TEXT = 5, 200

#: Number of highest memberships stored per row.
TOP_CLUSTERS = 3


class LatentMap(NamedTuple):
    """Geometry of a plot of two latent dimensions: points, density, boundaries, outlines."""

    axes: tuple[int, int]  # which dimensions
    points: Floats  # (n_samples, 2)
    home: Floats  # x0, x1, y0, y1 of the initial view
    extent: Floats  # x0, x1, y0, y1 of the density's grid
    density: Floats  # (n_y, n_x), at the grid's points
    boundaries: Floats  # (n_segments, 4): x, y, x, y
    outlines: list[Floats]  # an ellipse around 90 % of every cluster's rows


def widen(points: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats, Floats]:
    """Add a random dimension to a single latent one, so that rows do not hide each other."""
    if points.shape[1] > 1:
        return points, means, covariances
    width = _RANDOM_WIDTH * (np.nanmax(points) - np.nanmin(points) or 1.0)
    heights = np.random.default_rng(0).normal(0.0, width, len(points))
    wider = np.tile(np.diag([0.0, width**2]), (len(means), 1, 1))
    wider[:, :1, :1] = covariances
    return np.column_stack([points, heights]), np.pad(means, ((0, 0), (0, 1))), wider


def latent_maps(content: RunContent) -> list[LatentMap]:
    """Return a map for every pair of the first latent dimensions, starting with the first two."""
    points, means, covariances = widen(content.embedding, content.means, content.covariances)
    content = replace(content, embedding=points, means=means, covariances=covariances)
    dimensions = range(min(points.shape[1], MAX_DIMENSIONS))
    return [latent_map(content, axes) for axes in combinations(dimensions, 2)]


def latent_map(content: RunContent, axes: tuple[int, int] = (0, 1)) -> LatentMap:
    """Return the map of the marginal mixture on two latent dimensions."""
    labels, q = content.labels, list(axes)
    points = content.embedding[:, q]
    mixture = [*zip(content.means[:, q], content.covariances[:, q][:, :, q], strict=True)]
    outlines = [outline(points[labels == m], *normal) for m, normal in enumerate(mixture)]
    # An empty cluster must not shrink the picture.
    corners = np.concatenate([points, *(outlines[m] for m in np.unique(labels))])
    low, high = corners.min(axis=0), corners.max(axis=0)
    span = high - low
    pad = 0.05 * np.maximum(span, 0.02 * (span.max() or 1.0))
    home = np.stack([low - pad, high + pad], axis=1).ravel()
    # The largest box that a canvas with equal aspect may show initially, in square cells
    center, (half_x, half_y) = home.reshape(2, 2).mean(axis=1), np.diff(home)[::2] / 2
    half = 1.02 * np.array([max(half_x, _BROADEST * half_y), max(half_y, half_x / _NARROWEST)])
    extent = np.stack([center - half, center + half], axis=1).ravel()
    n_points = np.maximum(np.round(_GRID_POINTS * half / half.max()).astype(int), 16)
    xs, ys = map(np.linspace, extent[::2], extent[1::2], n_points)
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    joint = mixture_log_joint(nodes.reshape(-1, 2), content.weights, mixture)
    joint = joint.reshape(*nodes.shape[:2], -1)
    density, boundaries = np.exp(logsumexp(joint, axis=2)), boundary_segments(xs, ys, joint)
    return LatentMap(axes, points, home, extent, density, boundaries, outlines)


def mixture_log_joint(
    points: Floats, weights: Floats, mixture: Sequence[tuple[Floats, Floats]]
) -> Floats:
    """Return log π_m N(point | m), (n_points, n_clusters), from means and covariances."""
    densities = [log_gaussian(points, *normal) for normal in mixture]
    with np.errstate(divide="ignore"):  # a weight of 0 never wins
        return np.log(weights) + np.stack(densities, axis=1)


def boundary_segments(xs: Floats, ys: Floats, joint: Floats) -> Floats:
    """Return the decision boundaries between most probable components.

    Multi-label marching squares on ``joint``, (n_y, n_x, n_components): the crossings on a cell's
    edges are connected to their mean.
    """
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    across = _crossings(nodes, joint)
    along = _crossings(nodes.swapaxes(0, 1), joint.swapaxes(0, 1)).swapaxes(0, 1)
    # The four edges of every cell: bottom, top, left, right; NaN where nothing crosses.
    edges = np.stack([across[:-1], across[1:], along[:, :-1], along[:, 1:]], axis=2)
    edges = edges.reshape(-1, 4, 2)
    crossed = np.isfinite(edges[:, :, 0])
    edges, crossed = edges[crossed.any(axis=1)], crossed[crossed.any(axis=1)]
    middle = np.broadcast_to(np.nanmean(edges, axis=1, keepdims=True), edges.shape)
    return np.concatenate([edges, middle], axis=2)[crossed]


def _crossings(nodes: Floats, joint: Floats) -> Floats:
    """Return where, between adjacent nodes of a row, the most probable component changes, or NaN.

    The difference of two log densities is quadratic, so linear interpolation is accurate enough.
    """
    winner = joint.argmax(axis=2)
    differ = winner[:, :-1] != winner[:, 1:]
    here, there, low, high = (
        part[differ] for whole in (joint, nodes) for part in (whole[:, :-1], whole[:, 1:])
    )
    rows, mine, other = np.arange(len(here)), here.argmax(axis=1), there.argmax(axis=1)
    before = here[rows, mine] - here[rows, other]
    after = there[rows, other] - there[rows, mine]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = before / (before + after)
    share = np.where(np.isfinite(share), share, 0.5)
    places = np.full((*differ.shape, nodes.shape[2]), np.nan)
    places[differ] = low + share[:, None] * (high - low)
    return places


def outline(rows: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return an ellipse around 90 % of a cluster's rows."""
    # The cluster's Gaussian is wider, as all rows count for it: it serves if there are too few.
    if len(rows) > 2:
        mean, covariance = rows.mean(axis=0), np.cov(rows.T, bias=True) + _LEAST_WIDTH * covariance
    root, angle = square_root(covariance), np.linspace(0.0, 2.0 * np.pi, 100)
    radius = np.sqrt(-2.0 * np.log(1.0 - OUTLINE_SHARE))  # chi-square, two degrees of freedom
    if len(rows):
        distances = np.linalg.norm(np.linalg.solve(root, (rows - mean).T), axis=0)
        radius = np.quantile(distances, OUTLINE_SHARE, method="higher")
    return mean + radius * np.column_stack([np.cos(angle), np.sin(angle)]) @ root.T


def pack(array: NDArray[Any], dtype: str) -> dict[str, str]:
    """Encode an array as {type, base64}, little-endian, in C order."""
    data = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"type": dtype, "base64": base64.b64encode(data.tobytes()).decode("ascii")}


def choose_shown(content: RunContent, strongest: Ints, must: Ints) -> tuple[Ints, Ints]:
    """Choose the rows to draw, among them those in ``must``, and the strongest features."""
    rows = np.arange(content.n_rows)
    if len(rows) > MAX_ROWS:
        drawn = np.random.default_rng(0).permutation(len(rows))
        drawn = drawn[~np.isin(drawn, must)][: max(MAX_ROWS - len(np.unique(must)), 0)]
        rows = np.union1d(drawn, must)
    return rows, np.sort(strongest[: max(1, MAX_NUMBERS // len(rows))])


def pack_values(values: Floats) -> dict[str, Any]:
    """Pack a table column by column, with the limits of its color scale."""
    columns = values.T
    known = np.where(np.isnan(columns).all(axis=1, keepdims=True), 0.0, columns)
    ends = np.nanpercentile(known, [0, 1, 99, 100], axis=1) if known.size else np.zeros((4, 0))
    limits = np.where(ends[1] == ends[2], ends[[0, 3]], ends[[1, 2]])
    largest = np.finfo(np.float32).max
    codes = np.clip(columns, -largest, largest)
    return {"range": limits.T.tolist(), "codes": pack(codes, "float32")}


def pack_levels(name: str, names: Sequence[str], codes: Ints) -> dict[str, Any]:
    """Pack a categorical column: levels by frequency, "missing" last, and every row's code."""
    order = np.argsort(-np.bincount(codes[codes >= 0], minlength=len(names)), kind="stable")
    places = np.append(np.argsort(order), len(names))  # the last one for -1
    gaps = ["(missing)"] if (codes < 0).any() else []
    kind = "uint8" if len(names) < 256 else "uint32"
    return {
        "name": shorten(name),
        "names": [*(shorten(names[k]) for k in order), *gaps],
        "codes": pack(places[codes], kind),
    }


def pack_memberships(memberships: Floats) -> dict[str, Any]:
    """Pack the highest memberships of every row: cluster numbers and 16-bit probabilities."""
    top = min(TOP_CLUSTERS, memberships.shape[1])
    order = np.argsort(-memberships, axis=1, kind="stable")[:, :top]
    chances = np.take_along_axis(memberships, order, axis=1)
    return {
        "top": top,
        "clusters": pack(order, "uint16"),
        "chances": pack(np.round(65535 * np.clip(chances, 0, 1)), "uint16"),
    }


def pack_map(drawn: LatentMap) -> dict[str, Any]:
    """Pack a latent map for the script; the square root of the density as bytes."""
    peak = drawn.density.max()
    # Without the root, a tight cluster would leave the others without visible shading.
    shade = np.sqrt(drawn.density / peak) if peak > 0 else drawn.density
    return {
        "axes": list(drawn.axes),
        "home": drawn.home.tolist(),
        "extent": drawn.extent.tolist(),
        "shape": list(drawn.density.shape),
        "density": pack(np.round(255 * shade), "uint8"),
        "boundaries": pack(drawn.boundaries, "float32"),
        "outlines": [np.round(line, 6).tolist() for line in drawn.outlines],
    }


def build_payload(
    content: RunContent, rows: Ints, features: Ints, compared: Confusion | NumberByCluster | None
) -> dict[str, Any]:
    """Return what the script needs of these rows and features, as JSON-serializable values."""
    feature_names = content.feature_names
    maps = latent_maps(content)
    places = np.column_stack([maps[0].points, content.embedding[:, 2:MAX_DIMENSIONS]])
    names = [shorten(feature_names[j]) for j in features]
    values = content.values[np.ix_(rows, features)]
    dates = [place for place, j in enumerate(features) if feature_names[j] in content.dates]
    # Since the first day: single precision would be too coarse for times since 1970.
    origins = np.floor(np.nanmin(values[:, dates], axis=0, initial=1e6))
    values[:, dates] -= origins
    given = principal = None
    title = shorten(content.label_name) or "given label"
    if isinstance(compared, Confusion):
        given = pack_levels(title, compared.names, compared.codes[rows])
    elif compared is not None:  # it has a color scale, like features
        names, values = [*names, title], np.column_stack([values, compared.values[rows]])
    if content.principal is not None:
        points, shares = content.principal
        principal = {"places": pack(points[rows].T, "float32"), "shares": shares.tolist()}
    return {
        "n": len(rows),
        "nClusters": content.n_clusters,
        "rows": None if len(rows) == content.n_rows else pack(rows, "uint32"),
        "ids": None if content.ids is None else [shorten(content.ids[i]) for i in rows],
        "title": shorten(content.title, 60),
        "oneDimension": content.embedding.shape[1] == 1,
        "places": pack(places[rows].T, "float32"),
        "maps": [pack_map(drawn) for drawn in maps],
        "principal": principal,
        "memberships": pack_memberships(content.memberships[rows]),
        "features": names,
        "dates": dates,
        "timesOfDay": [
            place for place in dates if feature_names[features[place]] in content.times_of_day
        ],
        "origins": origins.tolist(),
        "dayParts": [day_parts(values[:, j]) for j in dates],
        "values": pack_values(values),
        "usual": [[x if np.isfinite(x) else None for x in ends] for ends in clip_limits(values)],
        "categories": [
            pack_levels(column.name, column.levels, column.codes[rows])
            for column in content.categories[: max(1, MAX_NUMBERS // len(rows))]
        ],
        "texts": [
            {"name": shorten(name), "words": [shorten(words[i], LONGEST_TEXT) for i in rows]}
            for name, words in list(content.texts.items())[:MOST_TEXTS]
        ],
        "sizes": np.bincount(content.labels, minlength=content.n_clusters).tolist(),
        "given": given,
    }
