"""Synthetic tables with a known number of clusters, for ``how_many.py``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

Floats = NDArray[np.float64]
Rng = np.random.RandomState
#: Clusters of one table.
Clusters = list[Floats]


def blobs(seed: int) -> Clusters:
    """Return 1 to 9 round clouds that may overlap, with equal or different spreads."""
    rng, number = Rng(seed), seed % 1000
    k, n_features = 1 + number % 9, (2, 3, 5, 10, 20)[number % 5]
    n, spread = rng.randint(150, 800), rng.uniform(0.6, 1.6)
    spreads = rng.uniform(0.5, 1.5, k) * spread if number % 2 else np.full(k, spread)
    X, y = make_blobs(n, n_features, centers=k, cluster_std=spreads, random_state=seed + 1000)
    return [X[y == cluster] for cluster in range(k)]


def shape(number: int) -> Clusters:
    """Return clusters of one of many shapes; every number is another table."""
    makers: tuple[Callable[[Rng, int, int], Clusters], ...] = (
        _clouds,
        _stretched,
        _of_different_spread,
        _of_different_size,
        _in_many_dimensions,
        _on_a_grid,
        _boxes,
        _discs,
        _moons,
        _rings,
        _spirals,
        _strips,
        _ring_around_cloud,
        _linked_rings,
        _shells,
        _several_shapes,
    )
    kind, variant = number % len(makers), number // len(makers)
    rng = Rng(1000 + number)
    return makers[kind](rng, int(rng.uniform(200, 1000)), variant)


def with_categories(number: int) -> tuple[Floats, int]:
    """Return numbers and encoded categories, and k: even numbers are noise, the others clouds."""
    rng = Rng(2000 + number)
    clusters = _noise_or_clouds(rng, number, rng.randint(2, 7))
    n_levels = rng.randint(2, 7, rng.randint(1, 6))
    numbers = np.concatenate(clusters)
    encoded = [(numbers - numbers.mean(axis=0)) / numbers.std(axis=0)]
    for count in n_levels:
        # In noise there is nothing that levels could tell apart, so their shares differ less.
        shares = rng.dirichlet(np.full(count, 2.0 if len(clusters) == 1 else 0.5), len(clusters))
        levels = [rng.choice(count, len(c), p=p) for c, p in zip(clusters, shares, strict=True)]
        found = np.eye(count)[np.concatenate(levels)]
        found = found[:, found.any(axis=0)]
        encoded.append(found / np.sqrt(found.mean(axis=0)))
    return np.hstack(encoded), len(clusters)


def with_missing_cells(number: int) -> tuple[Floats, int]:
    """Return a table with missing cells, and k: even numbers are noise, the others clouds.

    Missing are 30 % of the cells, or the first half of the features in 40 % of the rows.
    """
    rng = Rng(3000 + number)
    clusters = _noise_or_clouds(rng, number, rng.randint(4, 13))
    Y = np.concatenate(clusters)
    missing = rng.random_sample(Y.shape) < 0.3
    if number // 2 % 2:
        rows, half = rng.random_sample(len(Y)) < 0.4, np.arange(Y.shape[1]) < Y.shape[1] // 2
        missing = np.outer(rows, half)
    missing[:, -1] &= ~missing[:, :-1].all(axis=1)  # every row keeps a cell
    return np.where(missing, np.nan, Y), len(clusters)


def _noise_or_clouds(rng: Rng, number: int, p: int) -> Clusters:
    n = rng.randint(150, 500)
    if number % 2:
        k, centers = rng.randint(2, 7), []
        for center in _apart(rng, k, p, rng.uniform(3.0, 6.0)):
            turn = np.linalg.qr(rng.standard_normal((p, p)))[0] * rng.uniform(0.5, 1.4, p)
            centers.append(center + rng.standard_normal((rng.randint(n // 2, n) // k, p)) @ turn.T)
        return centers
    makers: tuple[Callable[[], Floats], ...] = (
        lambda: rng.standard_normal((n, p)),
        lambda: rng.standard_normal((n, p)) @ rng.standard_normal((p, p)),
        lambda: rng.standard_t(3, (n, p)),
        lambda: rng.random_sample((n, p)),
        lambda: np.exp(0.7 * rng.standard_normal((n, p))),
        lambda: (
            rng.standard_normal((n, 2)) @ rng.standard_normal((2, p))
            + 0.5 * rng.standard_normal((n, p))
        ),
    )
    return [makers[number // 2 % len(makers)]()]


def _apart(rng: Rng, k: int, n_features: int, distance: float) -> Floats:
    """Return centers with at least a distance between any two."""
    side = 1.5 * distance * k ** (1 / n_features)
    centers: list[Floats] = []
    while len(centers) < k:
        center = rng.uniform(0, side, n_features)
        if all(np.linalg.norm(center - other) >= distance for other in centers):
            centers.append(center)
        side *= 1.001  # so that there is room in the end
    return np.array(centers)


def _circle(rng: Rng, n: int, radius: float, noise: float) -> Floats:
    angle = rng.uniform(0, 2 * np.pi, n)
    circle: Floats = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    return circle + noise * rng.standard_normal((n, 2))


def _clouds(rng: Rng, n: int, variant: int) -> Clusters:
    k, n_features = rng.randint(2, 10), rng.choice([2, 2, 3])
    centers = _apart(rng, k, n_features, rng.uniform(4, 6.5))
    return [center + rng.standard_normal((n // k, n_features)) for center in centers]


def _stretched(rng: Rng, n: int, variant: int) -> Clusters:
    k, n_features = rng.randint(2, 8), rng.choice([2, 3, 5])
    found = []
    for center in _apart(rng, k, n_features, rng.uniform(4.5, 6.5)):
        turn = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
        widths = rng.uniform(0.3, 1.4, n_features)
        found.append(center + rng.standard_normal((n // k, n_features)) * widths @ turn)
    return found


def _of_different_spread(rng: Rng, n: int, variant: int) -> Clusters:
    k = rng.randint(2, 9)
    centers = _apart(rng, k, 2, rng.uniform(4, 6))
    return [c + rng.uniform(0.3, 1.4) * rng.standard_normal((n // k, 2)) for c in centers]


def _of_different_size(rng: Rng, n: int, variant: int) -> Clusters:
    k = rng.randint(2, 9)
    sizes = np.maximum(rng.dirichlet(np.full(k, 3.0)) * n, 20).astype(int)
    centers = _apart(rng, k, 2, rng.uniform(4, 6))
    return [c + rng.standard_normal((size, 2)) for c, size in zip(centers, sizes, strict=True)]


def _in_many_dimensions(rng: Rng, n: int, variant: int) -> Clusters:
    k, n_features = rng.randint(2, 8), rng.choice([8, 15, 30])
    centers = np.zeros((k, n_features))
    centers[:, :4] = _apart(rng, k, 4, rng.uniform(4.5, 6))
    return [center + rng.standard_normal((n // k, n_features)) for center in centers]


def _on_a_grid(rng: Rng, n: int, variant: int) -> Clusters:
    across, up = 2 + variant % 3, 2 + variant % 2
    places = [(3.0 * a, 3.0 * b) for a in range(across) for b in range(up)]
    size = n // len(places) + 10
    return [np.array(place) + 0.55 * rng.standard_normal((size, 2)) for place in places]


def _boxes(rng: Rng, n: int, variant: int) -> Clusters:
    k = rng.randint(3, 9)
    centers = _apart(rng, k, 2, rng.uniform(2.8, 3.6))
    return [c + rng.uniform(-1, 1, (n // k, 2)) * rng.uniform(0.5, 1.0, 2) for c in centers]


def _discs(rng: Rng, n: int, variant: int) -> Clusters:
    k = rng.randint(3, 9)
    found = []
    for center in _apart(rng, k, 2, rng.uniform(2.4, 3.2)):
        rim = _circle(rng, n // k, 1.0, 0.0)
        found.append(center + rim * np.sqrt(rng.random_sample((n // k, 1))))
    return found


def _moons(rng: Rng, n: int, variant: int) -> Clusters:
    noise, pairs = rng.uniform(0.05, 0.11), 1 + variant % 2
    found = []
    for pair in range(pairs):
        for sign in (1, -1):
            angle = np.pi * rng.random_sample(n // (2 * pairs))
            arc = np.column_stack([np.cos(angle), np.sin(angle) - 0.25])
            found.append(sign * arc + [sign * -0.5 + 4 * pair, 0.0])
    return [arc + noise * rng.standard_normal(arc.shape) for arc in found]


def _rings(rng: Rng, n: int, variant: int) -> Clusters:
    k = 2 + variant % 3
    return [_circle(rng, n // k, 1 + 1.2 * j, rng.uniform(0.08, 0.15)) for j in range(k)]


def _spirals(rng: Rng, n: int, variant: int) -> Clusters:
    k = 2 + variant % 2
    found = []
    for arm in range(k):
        way = np.sqrt(rng.uniform(0.05, 1, n // k))
        angle = 2.5 * np.pi * way + 2 * np.pi * arm / k
        spiral = 3 * way[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        found.append(spiral + 0.05 * rng.standard_normal(spiral.shape))
    return found


def _strips(rng: Rng, n: int, variant: int) -> Clusters:
    k = 2 + variant % 4
    size = n // (k + 1)
    found = [
        np.column_stack([rng.uniform(-5, 5, size), rng.normal(2.2 * j, 0.3, size)])
        for j in range(k)
    ]
    return [*found, [8.0, 1.0] + 0.6 * rng.standard_normal((size, 2))]


def _ring_around_cloud(rng: Rng, n: int, variant: int) -> Clusters:
    found = [_circle(rng, n // 2, 3, 0.25), 0.5 * rng.standard_normal((n // 3, 2))]
    if variant % 3 > 0:
        found.append([6.0, 0.0] + 0.5 * rng.standard_normal((n // 4, 2)))
    if variant % 3 > 1:
        found.append(_circle(rng, n // 2, 2, 0.2) + np.array([0.0, 8.0]))
    return found


def _linked_rings(rng: Rng, n: int, variant: int) -> Clusters:
    flat = np.zeros(n // 2)
    one, other = _circle(rng, n // 2, 1, 0), _circle(rng, n // 2, 1, 0)
    rings = [
        np.column_stack([one[:, 0], one[:, 1], flat]),
        np.column_stack([other[:, 0] + 1, flat, other[:, 1]]),
    ]
    return [ring + rng.uniform(0.04, 0.12) * rng.standard_normal(ring.shape) for ring in rings]


def _shells(rng: Rng, n: int, variant: int) -> Clusters:
    found = []
    for number in range(2 + variant % 2):
        directions = rng.standard_normal((n // 2, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        radius = 0.5 + 1.5 * number
        found.append(radius * directions + 0.1 * rng.standard_normal(directions.shape))
    return found


def _several_shapes(rng: Rng, n: int, variant: int) -> Clusters:
    angle = np.pi * rng.random_sample(n // 3)
    arc = 3 * np.column_stack([np.cos(angle), np.sin(angle)])
    found = [
        arc + 0.2 * rng.standard_normal(arc.shape),
        [0.0, 0.3] + 0.5 * rng.standard_normal((n // 4, 2)),
        [6.0, 2.0] + 0.7 * rng.standard_normal((n // 5, 2)),
        np.column_stack([rng.uniform(-3, 6, n // 4), rng.normal(-3, 0.25, n // 4)]),
    ]
    return found[: 3 + variant % 2]
