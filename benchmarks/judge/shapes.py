"""Shapes in two and three dimensions, composed of strokes, blobs, boxes and balls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from judge.clouds import ball, ellipsoid
from judge.priors import (
    N_ROWS,
    Floats,
    Integers,
    Rng,
    draw_weights,
    log_uniform,
    one_of,
    rotation,
    sizes_of,
)


class Part(NamedTuple):
    """One cluster: its sampler, and its relative size if all have the same density."""

    size: float
    draw: Callable[[int], Floats]


def thickness(rng: Rng) -> float:
    """Return the standard deviation across a stroke, relative to a spacing of about 1."""
    return log_uniform(rng, 0.015, 0.14)


def stroke(rng: Rng, vertices: Floats, width: float, density: float = 1.0) -> Part:
    """Return a polyline with Gaussian or uniform noise around it."""
    ends = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(vertices, axis=0), axis=1))])
    across = rng.normal if rng.random() < 0.6 else lambda size: rng.uniform(-1.7, 1.7, size)

    def draw(m: int) -> Floats:
        along = rng.uniform(0.0, ends[-1], m)
        line = np.stack([np.interp(along, ends, column) for column in vertices.T], axis=1)
        return line + width * across(size=line.shape)

    return Part(density * ends[-1] * 4 * max(width, 0.05), draw)


def blob(rng: Rng, center: Sequence[float] | Floats, scale: float | Floats) -> Part:
    """Return a Gaussian; the scale is a number or a factor of its covariance."""
    A = scale * np.eye(len(center)) if np.ndim(scale) == 0 else np.asarray(scale)
    area = 4 * np.pi * np.abs(np.linalg.det(A)) ** (2 / len(A))
    return Part(area, lambda m: np.asarray(center) + rng.normal(size=(m, len(A))) @ A)


def disc(rng: Rng, center: Sequence[float] | Floats, radius: float) -> Part:
    d = len(center)
    return Part(
        np.pi * radius**2,
        lambda m: np.asarray(center) + radius / np.sqrt(d + 2) * ball(rng, m, d),
    )


def box(rng: Rng, low: Sequence[float] | Floats, high: Sequence[float] | Floats) -> Part:
    a, b = np.asarray(low, float), np.asarray(high, float)
    return Part(float(np.prod(b - a)), lambda m: rng.uniform(a, b, (m, len(a))))


def shell(rng: Rng, radius: float, width: float) -> Part:
    def draw(m: int) -> Floats:
        Z = rng.normal(size=(m, 3))
        Z /= np.linalg.norm(Z, axis=1, keepdims=True)
        return (radius + width * rng.normal(size=(m, 1))) * Z

    return Part(3 * radius, draw)


def joined(rng: Rng, parts: Sequence[Part]) -> Part:
    """Merge several parts into one cluster."""
    sizes = np.array([part.size for part in parts])

    def draw(m: int) -> Floats:
        counts = rng.multinomial(m, sizes / sizes.sum())
        return np.concatenate([part.draw(c) for part, c in zip(parts, counts, strict=True)])

    return Part(float(sizes.sum()), draw)


def arc(
    center: Sequence[float] | Floats, radius: float, start: float = 0.0, end: float = 2.0
) -> Floats:
    """Return the vertices of an arc; angles in multiples of π."""
    a = np.pi * np.linspace(start, end, 80)
    return np.asarray(center) + radius * np.c_[np.cos(a), np.sin(a)]


LETTERS = {
    "L": [(0, 1), (0, 0), (0.7, 0)],
    "T": [(0, 1), (0.8, 1), (0.4, 1), (0.4, 0)],
    "Z": [(0, 1), (0.7, 1), (0, 0), (0.7, 0)],
    "U": [(0, 1), (0.1, 0), (0.6, 0), (0.7, 1)],
    "V": [(0, 1), (0.4, 0), (0.8, 1)],
    "X": [(0, 1), (0.7, 0), (0.35, 0.5), (0, 0), (0.7, 1)],
    "I": [(0.3, 1), (0.3, 0)],
    "N": [(0, 0), (0, 1), (0.7, 0), (0.7, 1)],
    "C": [(0.7, 0.9), (0.2, 1), (0, 0.5), (0.2, 0), (0.7, 0.1)],
}


def cells(rng: Rng, k: int) -> Iterator[Floats]:
    """Yield the corners of k cells of a grid, in random order."""
    columns = int(np.ceil(np.sqrt(k)))
    for cell in rng.permutation(columns * -(-k // columns))[:k]:
        yield np.array([cell % columns, cell // columns], float)


def rings(rng: Rng, k: int) -> list[Part]:
    radii, width = np.cumsum(rng.uniform(0.8, 1.4, min(k, 5))), thickness(rng)
    first = blob(rng, (0, 0), rng.uniform(0.1, 0.35)) if rng.random() < 0.4 else None
    parts = [stroke(rng, arc((0, 0), r), width) for r in radii]
    return [first or parts[0], *parts[1:]]


def crossing_rings(rng: Rng, k: int) -> list[Part]:
    width, gap = thickness(rng) / 2, rng.uniform(1.3, 2.3)
    return [stroke(rng, arc((gap * j, 0.6 * (j % 2)), 1.0), width) for j in range(min(k, 5))]


def chain(rng: Rng, k: int) -> list[Part]:
    """Return rings in three dimensions, linked like a chain."""
    width, parts = thickness(rng), []
    for j in range(min(k, 5)):
        flat = np.c_[arc((1.1 * j, 0), 1.0), np.zeros(80)]
        parts.append(stroke(rng, flat if j % 2 else flat[:, [0, 2, 1]], width))
    return parts


def spirals(rng: Rng, k: int) -> list[Part]:
    arms, turns, start = min(k, 4), rng.uniform(0.6, 3.0) / min(k, 4) + 0.3, rng.uniform(0.2, 0.8)
    angle = 2 * np.pi * np.linspace(0, turns, 150)
    radius = start + arms * angle / (2 * np.pi)  # the arms are 1 apart
    width = thickness(rng)
    return [
        stroke(rng, np.c_[np.cos(angle + shift), np.sin(angle + shift)] * radius[:, None], width)
        for shift in 2 * np.pi * np.arange(arms) / arms
    ]


def moons(rng: Rng, k: int) -> list[Part]:
    width, drop, parts = thickness(rng), rng.uniform(0.0, 0.6), []
    for j in range(min(k, 6)):
        half = (0.0, 1.0) if j % 2 == 0 else (1.0, 2.0)
        parts.append(stroke(rng, arc((j, drop * (j % 2)), 1.0, *half), width))
    return parts


def half_rings(rng: Rng, k: int) -> list[Part]:
    """Return two half rings, one several times as dense as the other."""
    width, drop = 1.5 * thickness(rng), rng.uniform(0.2, 0.7)
    return [
        stroke(rng, arc((0, 0), 1.4, 0, 1), width, density=rng.uniform(0.1, 0.5)),
        stroke(rng, arc((1.2, drop), 1.4, 1, 2), width, density=1.0),
    ]


def bands(rng: Rng, k: int) -> list[Part]:
    """Return waves, one above the other."""
    width, amplitude, frequency = thickness(rng), rng.uniform(0, 0.8), rng.uniform(0.5, 2.0)
    phase, parts = rng.uniform(0, 0.3), []
    for j in range(min(k, 8)):
        t = np.linspace(0, rng.uniform(4, 6), 80) + rng.uniform(-0.5, 0.5)
        wave = amplitude * np.sin(frequency * t + phase * j) + j
        parts.append(stroke(rng, np.c_[t, wave], width, density=log_uniform(rng, 0.3, 3)))
    return parts


def stripes(rng: Rng, k: int) -> list[Part]:
    """Return parallel straight bands of uniform density, sometimes nearly touching."""
    length, gap = rng.uniform(2, 8), log_uniform(rng, 0.03, 0.8)
    heights = rng.uniform(0.4, 1.0, min(k, 8))
    bottoms = np.concatenate([[0], np.cumsum(heights + gap)[:-1]])
    starts = rng.uniform(0, 0.3 * length, len(heights))
    return [
        box(rng, (s, b), (s + length * rng.uniform(0.5, 1), b + h))
        for s, b, h in zip(starts, bottoms, heights, strict=True)
    ]


def cross(rng: Rng, k: int) -> list[Part]:
    """Return bands that cross at one point."""
    k, width, turn = min(k, 4), thickness(rng), rng.uniform(-0.3, 0.3)
    angles = np.pi * (np.arange(k) + turn * (np.arange(k) > 0)) / k
    return [
        stroke(rng, np.array([(-1, 0), (1, 0)]) @ turned(a) * rng.uniform(1.5, 3), width)
        for a in angles
    ]


def turned(angle: float) -> Floats:
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def star(rng: Rng, k: int) -> list[Part]:
    """Return arms radiating from a common center."""
    k, hole, width = max(min(k, 8), 3), rng.uniform(0.1, 0.8), 0.7 * thickness(rng)
    angles = 2 * np.pi * (np.arange(k) + rng.uniform(-0.15, 0.15, k)) / k
    return [
        stroke(rng, np.array([(hole, 0), (hole + rng.uniform(1.5, 3), 0)]) @ turned(a), width)
        for a in angles
    ]


def letters(rng: Rng, k: int) -> list[Part]:
    width, gap = 0.5 * thickness(rng), rng.uniform(0.9, 1.4)
    return [
        stroke(rng, gap * corner + np.array(one_of(rng, LETTERS)), width)
        for corner in cells(rng, k)
    ]


def zigzags(rng: Rng, k: int) -> list[Part]:
    width, height, teeth = thickness(rng), rng.uniform(0.5, 2.0), int(rng.integers(3, 9))
    line = np.c_[np.arange(teeth), height * (np.arange(teeth) % 2)]
    return [
        stroke(
            rng,
            line + np.array([rng.uniform(-0.1, 0.1), j]),
            width,
            density=log_uniform(rng, 0.4, 2.5),
        )
        for j in range(min(k, 6))
    ]


def lines(rng: Rng, k: int) -> list[Part]:
    """Return straight segments in all directions, of different density."""
    width, parts = 0.4 * thickness(rng), []
    for corner in cells(rng, min(k, 10)):
        half = rng.uniform(0.3, 0.9) * turned(rng.uniform(0, np.pi))[0]
        center = corner + rng.uniform(-0.2, 0.2, 2)
        ends = np.stack([center - half, center + half])
        parts.append(stroke(rng, ends, width, density=log_uniform(rng, 0.2, 5)))
    return parts


def curves(rng: Rng, k: int) -> list[Part]:
    """Return smooth random curves, which may cross."""
    t, width, parts = np.linspace(0, 1, 100), 0.7 * thickness(rng), []
    waves = np.array([np.sin(np.pi * f * t) for f in range(1, 6)]).T / np.arange(1, 6)
    for _ in range(min(k, 6)):
        path = waves @ rng.normal(size=(5, 2)) + np.outer(t, rng.normal(size=2)) * 3
        parts.append(stroke(rng, path + rng.uniform(-3, 3, 2), width))
    return parts


def many_blobs(rng: Rng, k: int) -> list[Part]:
    """Return 8 to 20 equal blobs, arranged on rings, a line or a grid."""
    k, order = int(rng.integers(8, 21)), rng.integers(3)
    scale = rng.uniform(0.06, 0.3)
    if order == 0:
        inner = k // 3 if rng.random() < 0.5 else 0
        angles = np.pi * np.concatenate([np.arange(m) * 2 / m for m in (inner, k - inner) if m])
        radii = np.where(np.arange(k) < inner, inner, k - inner) / 6
        centers = np.c_[np.cos(angles), np.sin(angles)] * radii[:, None]
    elif order == 1:
        centers = np.c_[np.arange(k), np.sin(np.arange(k) * rng.uniform(0, 1))]
    else:
        centers = np.array(list(cells(rng, k)))
    centers = centers + 0.1 * rng.normal(size=centers.shape)
    make = disc if rng.random() < 0.3 else blob
    return [make(rng, center, scale) for center in centers]


def scattered_blobs(rng: Rng, k: int) -> list[Part]:
    """Return blobs at random positions, with equal or different covariances; may overlap."""
    spread = rng.uniform(1.0, 4.0) * np.sqrt(k)
    same = rng.random() < 0.5
    return [
        blob(rng, rng.uniform(-spread, spread, 2), 0.6 * (np.eye(2) if same else ellipsoid(rng, 2)))
        for _ in range(k)
    ]


def dense_and_sparse(rng: Rng, k: int) -> list[Part]:
    """Return a few dense blobs and many sparse ones."""
    dense = max(k // 3, 1)
    scales = np.where(np.arange(k) < dense, rng.uniform(0.05, 0.15), rng.uniform(0.2, 0.4))
    parts = [blob(rng, c, s) for c, s in zip(cells(rng, k), scales, strict=True)]
    return [Part(20.0 if j < dense else 1.0, part.draw) for j, part in enumerate(parts)]


def splashes(rng: Rng, k: int) -> list[Part]:
    """Return a wide blob with small dense ones inside or beside it."""
    ratio, inside = rng.uniform(0.08, 0.35), rng.uniform(0.0, 1.8)
    large = blob(rng, (0, 0), ellipsoid(rng, 2, 0.3))
    small = [
        blob(rng, inside * turned(a)[0], ratio * ellipsoid(rng, 2, 0.3))
        for a in 2 * np.pi * (np.arange(min(k, 5) - 1) / (min(k, 5) - 1) + rng.random())
    ]
    return [Part(2.0, large.draw), *(Part(1.0, part.draw) for part in small)]


def target(rng: Rng, k: int) -> list[Part]:
    """Return a blob in a ring and, for a larger k, small groups far outside."""
    width, reach = thickness(rng), rng.uniform(1.8, 3.0)
    far = [blob(rng, reach * turned(np.pi * (0.25 + j / 2))[0], 0.08) for j in range(min(k - 2, 4))]
    inner = blob(rng, (0, 0), rng.uniform(0.1, 0.35))
    return [inner, stroke(rng, arc((0, 0), 1.2), width), *(Part(0.1, f.draw) for f in far)]


def bridges(rng: Rng, k: int) -> list[Part]:
    """Return blobs in a row with thin bridges between them."""
    k, scale = min(k, 5), rng.uniform(0.12, 0.25)
    centers = np.c_[np.arange(k), 0.4 * rng.normal(size=k)]
    make, parts = (disc if rng.random() < 0.4 else blob), []
    for j, center in enumerate(centers):
        arms = [
            stroke(rng, np.stack([center, (center + centers[i]) / 2]), 0.02, density=0.4)
            for i in (j - 1, j + 1)
            if 0 <= i < k
        ]
        parts.append(joined(rng, [make(rng, center, scale), *arms]))
    return parts


def squares(rng: Rng, k: int) -> list[Part]:
    """Return squares or diamonds whose corners touch or nearly touch."""
    k, side = min(k, 6), rng.uniform(0.85, 1.0)
    up = np.arange(k) if rng.random() < 0.5 else np.arange(k) % 2
    return [box(rng, (j, up[j]), (j + side, up[j] + side)) for j in range(k)]


def gradients(rng: Rng, k: int) -> list[Part]:
    """Return rectangles whose density increases toward one side."""
    gap, power, k = rng.uniform(0.02, 0.3), rng.uniform(1.5, 3), min(k, 4)

    def draw(j: int, m: int) -> Floats:
        x, y = rng.random(m) ** power, rng.random(m)
        return np.c_[(1 - x if j % 2 else x) + 0.3 * j, 0.6 * y + (0.6 + gap) * j]

    return [Part(1.0, partial(draw, j)) for j in range(k)]


def boxes_and_disc(rng: Rng, k: int) -> list[Part]:
    """Return two bars at a right angle and a disc, close together."""
    gap = rng.uniform(0.05, 0.5)
    bars = [box(rng, (0, 0), (1, 4)), box(rng, (1 + gap, 0), (4.5, 1))]
    radius = rng.uniform(0.6, 1.1)
    return [*bars, disc(rng, (1 + gap + radius, 1 + gap + radius), radius)]


def face(rng: Rng, k: int) -> list[Part]:
    width, size = 0.5 * thickness(rng), rng.uniform(0.06, 0.13)
    eyes = [blob(rng, (x, 0.35), size) for x in (-0.4, 0.4)]
    mouth = stroke(rng, arc((0, 0.05), 0.55, 1.2, 1.8), width)
    return [stroke(rng, arc((0, 0), 1.1), width), *eyes, mouth]


def brackets(rng: Rng, k: int) -> list[Part]:
    """Return nested angles or brackets."""
    width, closed = thickness(rng), rng.random() < 0.5
    parts = []
    for j in range(1, min(k, 5) + 1):
        corners = [(-j, 0.5), (-j, -j), (j, -j), (j, 0.5)] if closed else [(j, 0), (j, j), (0, j)]
        parts.append(stroke(rng, np.array(corners, float), width))
    return parts


def bananas(rng: Rng, k: int) -> list[Part]:
    """Return two thick arcs on either side of a blob."""
    width, apart = rng.uniform(0.05, 0.2), rng.uniform(0.7, 1.1)
    outer = [stroke(rng, arc((0, 0), apart, s, s + 0.7), width) for s in (0.15, 1.15)]
    return [*outer, blob(rng, (0, 0), rng.uniform(0.1, 0.25))][: max(k, 2)]


def simplex(rng: Rng, k: int) -> list[Part]:
    """Return nearly touching balls at the corners of a tetrahedron, or around a central one."""
    corners = np.array([(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)], float)
    if rng.random() < 0.5:
        corners = np.concatenate([np.zeros((1, 3)), 2 * np.eye(3), -2 * np.eye(3)])
    make, scale = (disc, 1.35) if rng.random() < 0.4 else (blob, 0.55)
    return [make(rng, c, scale * rng.uniform(0.5, 1.05)) for c in corners]


def shells(rng: Rng, k: int) -> list[Part]:
    """Return a core and shells around it."""
    width = thickness(rng)
    around = [shell(rng, 1.2 + 1.2 * j, width) for j in range(min(k, 4) - 1)]
    return [disc(rng, (0, 0, 0), rng.uniform(0.15, 0.6)), *around]


def medley(rng: Rng, k: int) -> list[Part]:
    """Return different shapes side by side, some nested."""
    width, gap, parts = 0.3 * thickness(rng), rng.uniform(1.0, 1.4), []
    for corner in cells(rng, k):
        c = gap * corner
        figures: dict[str, Callable[[Floats], list[Part]]] = {
            "blob": lambda c: [blob(rng, c, 0.2 * ellipsoid(rng, 2, 0.4))],
            "dense": lambda c: [blob(rng, c, 0.08)],
            "disc": lambda c: [disc(rng, c, rng.uniform(0.2, 0.5))],
            "box": lambda c: [box(rng, c - rng.uniform(0.1, 0.5, 2), c + rng.uniform(0.1, 0.5, 2))],
            "arc": lambda c: [
                stroke(rng, arc(c, 0.45, *(rng.random() + np.array([0, 1.3]))), width)
            ],
            "letter": lambda c: [
                stroke(rng, c - 0.4 + np.array(one_of(rng, LETTERS)) * 0.8, width)
            ],
            "ring and blob": lambda c: [
                stroke(rng, arc(c, 0.45), width),
                blob(rng, c, rng.uniform(0.05, 0.15)),
            ],
        }
        parts += one_of(rng, figures)(c)
    return parts[: max(k, 2)]


SHAPES: dict[str, Callable[[Rng, int], list[Part]]] = {
    function.__name__: function
    for function in (
        *(rings, crossing_rings, chain, spirals, moons, half_rings, bands, stripes, cross, star),
        *(letters, zigzags, lines, curves, many_blobs, scattered_blobs, dense_and_sparse),
        *(splashes, target, bridges, squares, gradients, boxes_and_disc, face, brackets),
        *(bananas, simplex, shells, medley),
    )
}


def with_background(rng: Rng, X: Floats, y: Integers) -> tuple[Floats, Integers]:
    """Replace some points by uniform noise, labeled as the nearest other point."""
    noise = rng.random(len(X)) < log_uniform(rng, 0.01, 0.15)
    low, high = X.min(0), X.max(0)
    margin = 0.1 * (high - low)
    anywhere = rng.uniform(low - margin, high + margin, X.shape)
    nearest = cKDTree(X[~noise]).query(anywhere)[1]
    return np.where(noise[:, None], anywhere, X), np.where(noise, y[~noise][nearest], y)


def moved(rng: Rng, X: Floats) -> Floats:
    """Rotate, and sometimes stretch, shear or embed in more dimensions with noise."""
    d = X.shape[1]
    if rng.random() < 0.5:
        X = (
            X
            * np.exp(0.3 * rng.normal(size=d))
            @ (np.eye(d) + np.triu(rng.normal(size=(d, d)), 1) * 0.2)
        )
    X = X @ rotation(rng, d) / X.std()
    fate = rng.random()
    if fate < 0.1:
        p = int(rng.integers(d + 1, 12))
        return X @ rng.normal(size=(d, p)) + log_uniform(rng, 0.005, 0.1) * rng.normal(
            size=(len(X), p)
        )
    if fate < 0.2:
        extra = rng.normal(size=(len(X), rng.integers(1, 4)))
        return np.hstack([X, log_uniform(rng, 0.03, 0.4) * extra])
    return X


def shape(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw one of the shapes, with clusters of equal density or of random sizes."""
    if k == 1:
        path = arc((0, 0), 1.0, 0, rng.uniform(0.3, 2))
        parts = [stroke(rng, path, log_uniform(rng, 0.05, 0.3))]
    else:
        parts = one_of(rng, SHAPES)(rng, k)
    # Curves need more points than blobs to be recognizable.
    n = min(max(2 * n, 40 * len(parts)), N_ROWS[1])
    even = np.array([part.size for part in parts]) * np.exp(0.2 * rng.normal(size=len(parts)))
    sizes = sizes_of(even if rng.random() < 0.6 else draw_weights(rng, len(parts)), n)
    X = np.concatenate([part.draw(m) for part, m in zip(parts, sizes, strict=True)])
    y = np.repeat(np.arange(len(parts)), sizes)
    if rng.random() < 0.15:
        X, y = with_background(rng, X, y)
    return moved(rng, X), y
