"""Figure of the latent space: its geometry, and the payload for the page's script.

The script reads base64-encoded arrays in JSON. Sizes, for n rows and p features: coordinates 8n
bytes (up to 16n for more than two latent dimensions, plus 8n for principal components), memberships
(the top three of a row) 9n, values 4np as float32 up to ``FLOAT_BYTES``, 2np quantized to 1/65534
of a column's range up to ``STEP_BYTES``, np quantized to 1/254 beyond. Base64 adds a third.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtri

from sgpmic._types import Floats, Ints
from sgpmic.report.content import RunContent
from sgpmic.report.statistics import Confusion, NumberByCluster, cholesky, clip_limits, log_gaussian
from sgpmic.report.words import day_parts, shorten

#: Smallest width of an outline, relative to the cluster's Gaussian: rows may lie on a line.
_LEAST_WIDTH = 0.01
#: Share of a cluster's rows inside its outline.
OUTLINE_SHARE = 0.9

# Grid points on a map's longer side, and the range of canvas aspect ratios (width / height) that
# the grid must fill in the initial view: from a phone in portrait mode to a wide screen.
_GRID_POINTS, _NARROWEST, _BROADEST = 240, 0.7, 2.4

#: Number of latent dimensions shown, those of largest extent: every pair of them has a map.
MAX_DIMENSIONS = 4

#: More rows than this are drawn as a random sample of this many.
MAX_ROWS = 200_000

#: Maximum bytes of values stored as float32, quantized to 16 bits, and in total.
FLOAT_BYTES, STEP_BYTES, MAX_BYTES = 4_000_000, 20_000_000, 40_000_000

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
    numbers: Floats  # (n_clusters, 2): positions of the cluster numbers, on the outlines
    plane: bool = True  # False for one latent dimension, whose vertical axis has no unit


def latent_maps(content: RunContent) -> list[LatentMap]:
    """Return a map for every pair of the first latent dimensions, starting with the first two."""
    dimensions = range(min(content.embedding.shape[1], MAX_DIMENSIONS))
    return [latent_map(content, axes) for axes in list(combinations(dimensions, 2)) or [(0, 1)]]


def latent_map(content: RunContent, axes: tuple[int, int] = (0, 1)) -> LatentMap:
    """Return the map of the marginal mixture on two latent dimensions, or on a single one."""
    labels, q = content.labels, axes[: content.embedding.shape[1]]
    points, mixture = content.embedding[:, q], _marginals(content, q)
    outlines = [outline(points[labels == m], *normal) for m, normal in enumerate(mixture)]
    # An empty cluster must not shrink the picture.
    corners = np.concatenate([points, *(outlines[m] for m in np.unique(labels))])
    low, high = corners.min(axis=0), corners.max(axis=0)
    span = high - low  # never 0, with the margin
    pad = 0.05 * np.maximum(span, 0.02 * span.max()) + (1e-3 if span.max() == 0 else 0.0)
    home = np.stack([low - pad, high + pad], axis=1).ravel()
    if len(q) == 1:
        return _map_line(content, np.stack(outlines)[:, :, 0], home)
    # The largest box that a canvas with equal aspect may show initially, in square cells
    center, (half_x, half_y) = home.reshape(2, 2).mean(axis=1), np.diff(home)[::2] / 2
    half = 1.02 * np.array([max(half_x, _BROADEST * half_y), max(half_y, half_x / _NARROWEST)])
    extent = np.stack([center - half, center + half], axis=1).ravel()
    n_points = np.maximum(np.round(_GRID_POINTS * half / half.max()).astype(int), 16)
    xs, ys = map(np.linspace, extent[::2], extent[1::2], n_points)
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    joint = mixture_log_joint(nodes.reshape(-1, 2), content, axes).reshape(*nodes.shape[:2], -1)
    density, boundaries = np.exp(logsumexp(joint, axis=2)), boundary_segments(xs, ys, joint)
    numbers = np.stack([line[line[:, 1].argmax()] for line in outlines])
    return LatentMap(axes, points, home, extent, density, boundaries, outlines, numbers)


def mixture_log_joint(points: Floats, content: RunContent, axes: tuple[int, ...]) -> Floats:
    """Return log π_m N(point | m), (n_points, n_clusters), in the given latent dimensions."""
    densities = [log_gaussian(points, *normal) for normal in _marginals(content, axes)]
    with np.errstate(divide="ignore"):  # a weight of 0 never wins
        return np.log(content.weights) + np.stack(densities, axis=1)


def _marginals(content: RunContent, axes: Sequence[int]) -> list[tuple[Floats, Floats]]:
    q = list(axes)
    return [*zip(content.means[:, q], content.covariances[:, q][:, :, q], strict=True)]


def _map_line(content: RunContent, ends: Floats, home_x: Floats) -> LatentMap:
    """Return the map of a single latent dimension: points are jittered within the density.

    With certainty as height, nearly every row would be on one line, since nearly all are certain.
    """
    x = content.embedding[:, 0]
    xs = np.linspace(home_x[0] - np.ptp(home_x), home_x[1] + np.ptp(home_x), 3 * _GRID_POINTS)
    joint = mixture_log_joint(xs[:, None], content, (0,))
    density = np.exp(logsumexp(joint, axis=1))
    peak = density.max()
    at_points = np.exp(logsumexp(mixture_log_joint(x[:, None], content, (0,)), axis=1))
    height = np.random.default_rng(0).uniform(-1.0, 1.0, len(x)) * np.minimum(at_points / peak, 1.0)
    # The clusters' bars are stacked below the cloud.
    levels = -1.15 - 0.12 * np.arange(len(ends))
    outlines = list(np.stack([ends, np.broadcast_to(levels[:, None], ends.shape)], axis=2))
    home = np.array([*home_x, levels[-1] - 0.12, 1.1])
    ys = np.linspace(home[2], home[3], 120)
    # Cells on the edge are partly inside (antialiasing).
    inside = np.clip((density / peak - abs(ys)[:, None]) / (ys[1] - ys[0]) + 0.5, 0.0, 1.0)
    crossings = _crossings(xs[None, :, None], joint[None])
    places = crossings[np.isfinite(crossings)]
    boundaries = np.array([[c, home[2], c, home[3]] for c in places]).reshape(-1, 4)
    points, extent = np.stack([x, height], axis=1), np.array([xs[0], xs[-1], *home[2:]])
    density = inside**2 * density  # shown by its square root, see pack_map
    numbers = np.stack([ends[:, 1], levels], axis=1)
    return LatentMap((0, 1), points, home, extent, density, boundaries, outlines, numbers, False)


def boundary_segments(xs: Floats, ys: Floats, joint: Floats) -> Floats:
    """Return the decision boundaries between most probable components.

    Multi-label marching squares on ``joint``, (n_y, n_x, n_components): two crossings on a cell's
    edges are connected; three or four, where regions meet, are connected to their mean.
    """
    nodes = np.stack(np.meshgrid(xs, ys), axis=-1)
    across = _crossings(nodes, joint)
    along = _crossings(nodes.swapaxes(0, 1), joint.swapaxes(0, 1)).swapaxes(0, 1)
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
    """Return an ellipse, or the ends of an interval, around 90 % of a cluster's rows."""
    # The cluster's Gaussian is wider, as all rows count for it: it serves if there are too few.
    if len(rows) > len(mean):
        own = np.cov(rows.T, bias=True).reshape(covariance.shape)
        mean, covariance = rows.mean(axis=0), own + _LEAST_WIDTH**2 * covariance
    root: NDArray[Any] = np.eye(len(mean))
    if len(mean) == 1:
        directions = np.array([[-1.0], [1.0]])
        radius = np.sqrt(covariance[0, 0]) * ndtri(0.5 + 0.5 * OUTLINE_SHARE)
    else:
        root, angle = cholesky(covariance), np.linspace(0.0, 2.0 * np.pi, 100)
        directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        radius = np.sqrt(-2.0 * np.log(1.0 - OUTLINE_SHARE))  # chi-square, two degrees of freedom
    if len(rows):
        distances = np.linalg.norm(solve_triangular(root, (rows - mean).T, lower=True), axis=0)
        radius = np.quantile(distances, OUTLINE_SHARE, method="higher")
    return mean + radius * directions @ root.T


def pack(array: NDArray[Any], dtype: str) -> dict[str, str]:
    """Encode an array as {type, base64}, little-endian, in C order."""
    data = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"type": dtype, "base64": base64.b64encode(data.tobytes()).decode("ascii")}


class Shown(NamedTuple):
    """Rows and features passed to the script, and their precision."""

    rows: Ints
    features: Ints
    values_type: str  # float32, uint16 or uint8


def choose_shown(content: RunContent, strongest: Ints, must: Ints) -> Shown:
    """Choose the rows to draw, among them those in ``must``, and the strongest features."""
    rows = np.arange(content.n_rows)
    if len(rows) > MAX_ROWS:
        drawn = np.random.default_rng(0).permutation(len(rows))
        drawn = drawn[~np.isin(drawn, must)][: max(MAX_ROWS - len(np.unique(must)), 0)]
        rows = np.union1d(drawn, must)
    features = np.sort(strongest[: max(1, MAX_BYTES // len(rows))])
    numbers = len(rows) * len(features)
    size = abs(content.values[np.ix_(rows, features)])
    size = size[size > 0]  # neither 0 nor missing
    fits_float = size.max(initial=1.0) < 1e37 and size.min(initial=1.0) > 1e-36
    if 4 * numbers <= FLOAT_BYTES and fits_float:
        return Shown(rows, features, "float32")
    return Shown(rows, features, "uint16" if 2 * numbers <= STEP_BYTES else "uint8")


def pack_values(values: Floats, values_type: str) -> dict[str, Any]:
    """Pack a table column by column, with the limits of its color scale.

    Quantized values are low + code · step, and the highest code means missing.
    """
    columns = values.T
    missing = np.isnan(columns)
    columns = np.where(missing.all(axis=1, keepdims=True), 0.0, columns)
    low, high = np.nanmin(columns, axis=1), np.nanmax(columns, axis=1)
    limits = np.nanpercentile(columns, [1, 99], axis=1) if columns.size else np.zeros((2, 0))
    limits = np.where(limits[0] == limits[1], np.stack([low, high]), limits)
    packed: dict[str, Any] = {"range": limits.T.tolist()}
    if values_type == "float32":
        return packed | {"codes": pack(np.where(missing, np.nan, columns), "float32")}
    steps = np.iinfo(values_type).max - 1
    step = high / steps - low / steps  # high - low may overflow
    scale = np.where(step > 0, step, 1.0)[:, None]
    codes = np.clip(np.round(columns / scale - low[:, None] / scale), 0, steps)
    return packed | {
        "codes": pack(np.where(missing, steps + 1, codes), values_type),
        "low": low.tolist(),
        "step": step.tolist(),
        "missing": steps + 1,
    }


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
    kind = "uint8" if memberships.shape[1] <= 256 else "uint16"
    return {
        "top": top,
        "clusters": pack(order, kind),
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
        "numbers": drawn.numbers.tolist(),
        "plane": drawn.plane,
    }


def build_payload(
    content: RunContent, shown: Shown, compared: Confusion | NumberByCluster | None
) -> dict[str, Any]:
    """Return everything the script needs, as JSON-serializable values."""
    rows, features, feature_names = shown.rows, shown.features, content.feature_names
    maps = latent_maps(content)
    places = content.embedding[:, :MAX_DIMENSIONS] if maps[0].plane else maps[0].points
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
        "values": pack_values(values, shown.values_type),
        "usual": [[x if np.isfinite(x) else None for x in ends] for ends in clip_limits(values)],
        "categories": [
            pack_levels(column.name, column.levels, column.codes[rows])
            for column in content.categories[: max(1, MAX_BYTES // len(rows))]
        ],
        "texts": [
            {"name": shorten(name), "words": [shorten(words[i], LONGEST_TEXT) for i in rows]}
            for name, words in list(content.texts.items())[:MOST_TEXTS]
        ],
        "sizes": np.bincount(content.labels, minlength=content.n_clusters).tolist(),
        "given": given,
    }
