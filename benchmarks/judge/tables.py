"""Realistic tables: measurements and counts; spectra, images and pen strokes; gene expression."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from judge.clouds import draw_error, mixture
from judge.priors import (
    Floats,
    Integers,
    Rng,
    draw_labels,
    log_uniform,
    network,
    one_of,
    standardized,
)

Marginal = Callable[[Rng, Floats], Floats]


def overdispersed(rng: Rng, rate: Floats, shape: float) -> Floats:
    """Return negative binomial counts."""
    return rng.poisson(rate * rng.gamma(shape, 1 / shape, size=rate.shape)).astype(float)


def counts(rng: Rng, s: Floats) -> Floats:
    rate = np.exp(np.clip(rng.uniform(-0.5, 4) + rng.uniform(0.3, 1.0) * s, -8, 8))
    return overdispersed(rng, rate, log_uniform(rng, 1, 20))


def zero_heap(rng: Rng, s: Floats) -> Floats:
    """Return zero-inflated amounts, such as word frequencies or rainfall."""
    above = np.maximum(s - rng.uniform(-1, 1), 0.0)
    above = np.expm1(above) if rng.random() < 0.5 else above
    return np.where(rng.random(len(s)) < rng.choice([0.0, 0.2]), 0.0, above)


def binary(rng: Rng, s: Floats) -> Floats:
    blurred = s + rng.uniform(0, 0.7) * rng.normal(size=len(s))
    return np.asarray(blurred > rng.uniform(-1.3, 1.3), np.float64)


def ordinal(rng: Rng, s: Floats) -> Floats:
    """Return answers on a Likert scale of three to seven levels."""
    cuts = np.sort(rng.uniform(-1.5, 1.5, rng.integers(2, 7)))
    return np.searchsorted(cuts, s).astype(np.float64) + 1


def heavy(rng: Rng, s: Floats) -> Floats:
    tail = np.sinh(rng.uniform(0.6, 1.3) * s)
    return np.where(rng.random(len(s)) < 0.01, rng.uniform(2, 6) * tail, tail)


def whole_years(rng: Rng, s: Floats) -> Floats:
    return np.clip(np.round(rng.uniform(25, 60) + rng.uniform(4, 16) * s), 0, 100)


#: From a score of mean 0 and variance 1 to a feature.
MARGINALS: dict[str, Marginal] = {
    "normal": lambda rng, s: s,
    "curved": lambda rng, s: s + rng.uniform(-0.3, 0.3) * s**2,
    "lognormal": lambda rng, s: np.exp(rng.uniform(0.3, 1.2) * s),
    # Wilson and Hilferty: the cube root of a gamma variable is nearly normal.
    "gamma": lambda rng, s: np.maximum(1 - 1 / 9 / 2 + s / 3 / np.sqrt(2), 0.0) ** 3,
    "counts": counts,
    "zero heap": zero_heap,
    "bounded": lambda rng, s: expit(rng.uniform(0.7, 2.5) * s + rng.normal()),
    "rounded": lambda rng, s: np.round(s * log_uniform(rng, 1, 10)),
    "binary": binary,
    "ordinal": ordinal,
    "years": whole_years,
    "heavy": heavy,
}

MEASURED = ("normal", "curved", "gamma")
DISCRETE = ("counts", "rounded", "binary", "ordinal", "years")


def subclusters(rng: Rng, y: Integers) -> Integers:
    """Return components: one to three for each class; in half of the tables always one."""
    if y.max() == 0 or rng.random() < 0.5:
        return y
    parts = rng.integers(1, 4, size=y.max() + 1)
    parts = np.where(np.bincount(y) < 15 * parts, 1, parts)
    first = np.concatenate([[0], np.cumsum(parts)[:-1]])
    return first[y] + np.arange(len(y)) % parts[y]


def class_factors(rng: Rng, y: Integers) -> Floats:
    """Return class-dependent factors: a mixture, or one Gaussian cut by nonlinear boundaries."""
    d = min(int(rng.geometric(0.3)), 8)
    if y.max() > 0 and rng.random() < 0.1:
        Z = rng.normal(size=(len(y), d))
        score = standardized(network(rng, d, 1, gain=1.0)(Z))[:, 0]
        blurred = score + log_uniform(rng, 0.05, 1.0) * rng.normal(size=len(y))
        return Z[np.argsort(blurred)]  # labels are sorted: each class gets an interval of scores
    return standardized(mixture(rng, subclusters(rng, y), y, d, draw_error(rng)))


def nuisance(rng: Rng, y: Integers, p: int) -> Floats:
    """Return variation of the features that is independent of the classes."""
    n, total = len(y), np.zeros((len(y), p))
    for _ in range(rng.integers(0, 4)):  # blocks of correlated features
        block = rng.random(p) < rng.uniform(0.1, 0.6)
        total += np.outer(rng.normal(size=n), block * rng.normal(size=p))
    if rng.random() < 0.35:  # size: all features grow together
        total += rng.uniform(0.3, 1.5) * np.outer(rng.normal(size=n), rng.uniform(0.3, 1.0, p))
    if y.max() > 0 and rng.random() < 0.1:
        batch = rng.integers(rng.integers(2, 5), size=n)
        total += rng.uniform(0.2, 1.0) * rng.normal(size=(5, p))[batch]
    return total


def scores(rng: Rng, y: Integers, p: int) -> Floats:
    """Return standardized scores: class factors, nuisance and noise."""
    Z = class_factors(rng, y)
    q = Z.shape[1]
    loadings = rng.normal(size=(q, p)) * (rng.random((q, p)) < rng.uniform(0.2, 1.0))
    useful = rng.permutation(p) >= int(0.8 * p * rng.random() ** 1.5)
    signal = standardized(Z @ loadings) * useful
    own = rng.normal(size=(len(y), p)) * rng.uniform(0.1, 0.8, p)
    if rng.random() < 0.3:  # classes differ in variance, too
        own *= np.exp(0.6 * rng.normal(size=(y.max() + 1, 1)))[y]
    other = nuisance(rng, y, p) * np.where(useful, rng.uniform(0.0, 0.6), 1.0)
    return standardized(signal * log_uniform(rng, 1.2, 10.0) + other + own)


def with_copies(rng: Rng, S: Floats) -> Floats:
    """Append noisy copies and sums of features, like totals and ratios in real tables."""
    p = S.shape[1]
    extra = int(rng.integers(1, min(max(p // 2, 1), 50) + 1))
    mix = np.zeros((p, extra))
    for _ in range(rng.integers(1, 4)):
        mix[rng.integers(p, size=extra), np.arange(extra)] += rng.normal(size=extra)
    return np.hstack([S, standardized(S @ mix + 0.1 * rng.normal(size=(len(S), extra)))])


def with_marginals(rng: Rng, S: Floats) -> Floats:
    """Give every feature a marginal and a unit; most tables have few kinds of marginals."""
    names = list(MARGINALS)
    shares = rng.dirichlet(np.full(len(names), rng.choice([0.1, 0.3, 1.0])))
    only = rng.choice(["mixed", "measured", "discrete"], p=[0.73, 0.15, 0.12])
    if only != "mixed":
        among = [name in (MEASURED if only == "measured" else DISCRETE) for name in names]
        shares = np.array(among) / np.sum(among)
    chosen = rng.choice(names, size=S.shape[1], p=shares)
    columns = [
        MARGINALS[name](rng, np.clip(s, -4.5, 4.5)) for name, s in zip(chosen, S.T, strict=True)
    ]
    return np.stack(columns, axis=1) * np.where(rng.random(S.shape[1]) < 0.5, 1.0, 7.3)


def with_parts_of_a_whole(rng: Rng, S: Floats, X: Floats) -> Floats:
    """Turn some features into a composition: percentages that sum to 100."""
    X, p = X.copy(), X.shape[1]
    block = rng.permutation(p)[: rng.integers(3, max(p // 2, 3) + 1)]
    shares = softmax(rng.uniform(0.5, 1.5) * S[:, block] + rng.normal(size=len(block)), axis=1)
    X[:, block] = 100 * shares
    return X


def with_categories(rng: Rng, S: Floats, X: Floats) -> Floats:
    """Turn some features into a one-hot category."""
    block = rng.permutation(X.shape[1])[: rng.integers(3, 6)]
    category = (S[:, block] + rng.gumbel(size=(len(S), len(block))) * 0.3).argmax(axis=1)
    X = X.copy()
    X[:, block] = category[:, None] == np.arange(len(block))
    return X


def draw_levels(rng: Rng, y: Integers, s: Floats) -> Integers:
    """Draw a category of two to nine levels that depends on a score, or on the classes alone."""
    count = min(1 + int(rng.geometric(0.35)), 8) + int(rng.random() < 0.7)
    if rng.random() < 0.3:
        logits = np.log(rng.dirichlet(np.full(count, rng.uniform(0.3, 3.0)), y.max() + 1) + 1e-9)[y]
    else:
        logits = rng.uniform(0.3, 3.0) * np.outer(s, rng.normal(size=count))
        logits += rng.uniform(0.0, 1.5) * rng.normal(size=count)
    return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(axis=1), np.int64)


def encoded_levels(levels: Integers) -> Floats:
    """Return the indicators of levels, divided by the roots of their shares; rare ones merged."""
    counts = np.bincount(levels)
    common = np.flatnonzero(counts >= max(5, 0.02 * len(levels)))
    merged = np.where(np.isin(levels, common), np.searchsorted(common, levels), len(common))
    shares = np.bincount(merged) / len(merged)
    return np.asarray((np.eye(len(shares)) / np.sqrt(shares))[merged])


def draw_missing(rng: Rng, S: Floats) -> NDArray[np.bool_]:
    """Return which cells are missing: at random, or blocks of columns missing together."""
    n, p = S.shape
    if rng.random() < 0.5:
        missing = rng.random((n, p)) < rng.uniform(0.02, 0.3)
    else:
        missing = np.zeros((n, p), bool)
        for _ in range(rng.integers(1, 4)):
            rows, block = rng.random(n) < rng.uniform(0.05, 0.5), rng.random(p) < 0.4
            missing |= np.outer(rows, block)
    # Every row keeps a cell, and every column some.
    missing[np.arange(n), rng.integers(p, size=n)] = False
    return missing & (rng.random((n, p)) < 0.97)


def table(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw a table with features of different units."""
    p = int(log_uniform(rng, 3, 50)) if rng.random() < 0.9 else int(log_uniform(rng, 50, 150))
    y = draw_labels(rng, n, k)
    S = scores(rng, y, p)
    if rng.random() < 0.15:
        S = with_copies(rng, S)
    X = with_marginals(rng, S)
    if p > 4 and rng.random() < 0.12:
        X = with_parts_of_a_whole(rng, S, X)
    if p > 6 and k > 1 and rng.random() < 0.1:
        X = with_categories(rng, S, X)
    return X, y


def spectra(rng: Rng, y: Integers) -> Floats:
    """Return sums of Gaussian peaks with class-dependent heights, on a drifting baseline."""
    n, p, m = len(y), int(log_uniform(rng, 20, 200)), int(rng.integers(3, 15))
    Z = class_factors(rng, y)
    x = np.linspace(0, 1, p)
    peaks = np.exp(-(((x - rng.random((m, 1))) / rng.uniform(0.01, 0.15, (m, 1))) ** 2) / 2)
    own = rng.uniform(0.05, 0.5) * rng.normal(size=(n, m))
    heights = standardized(Z @ rng.normal(size=(Z.shape[1], m))) + own
    heights = np.exp(rng.uniform(0.2, 0.7) * heights) * rng.gamma(2, size=m)
    drift = rng.normal(size=(n, 3)) @ np.stack([np.ones(p), x, x**2]) * log_uniform(rng, 0.01, 0.4)
    gain = np.exp(rng.uniform(0, 0.2) * rng.normal(size=(n, 1)))
    return gain * (heights @ peaks + drift) + rng.uniform(0.01, 0.2) * rng.normal(size=(n, p))


def images(rng: Rng, y: Integers) -> Floats:
    """Return small images: a few spots for each class, with jitter and noise in every row."""
    component, side, m = subclusters(rng, y), int(rng.integers(5, 14)), int(rng.integers(3, 8))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 2), axis=-1).reshape(-1, 2)
    jitter = log_uniform(rng, 0.01, 0.12)
    templates = rng.uniform(0.15, 0.85, (component.max() + 1, m, 2))
    templates = np.where(rng.random((m, 1)) < rng.uniform(0, 0.6), templates[:1], templates)
    spots = templates[component] + jitter * rng.normal(size=(len(y), 1, 2))
    spots += 0.5 * jitter * rng.normal(size=spots.shape)
    X = np.zeros((len(y), len(grid)))
    width = rng.uniform(0.08, 0.2)
    for j in range(m):
        distance = (spots[:, j, None, 0] - grid[:, 0]) ** 2 + (
            spots[:, j, None, 1] - grid[:, 1]
        ) ** 2
        X += np.exp(-distance / (2 * width**2))
    X = np.maximum(X + rng.uniform(0, 0.2) * rng.normal(size=X.shape), 0)
    return np.round(16 * np.minimum(X, 1)) if rng.random() < 0.4 else X


def pen_strokes(rng: Rng, y: Integers) -> Floats:
    """Return points on a curve for each class, with random affine distortion and jitter."""
    component, points = subclusters(rng, y), int(rng.integers(4, 17))
    n, jitter = len(y), log_uniform(rng, 0.05, 0.4)
    curves = np.cumsum(rng.normal(size=(component.max() + 1, points, 2)), axis=1)
    curves = (curves - curves.mean(1, keepdims=True)) / curves.std((1, 2), keepdims=True)
    slant = np.eye(2) + jitter * rng.normal(size=(n, 2, 2)) * rng.uniform(0.2, 1.0)
    shaken = np.cumsum(rng.normal(size=(n, points, 2)), axis=1) / np.sqrt(points)
    X = (curves[component] @ slant + jitter * shaken).reshape(n, -1)
    return np.round(10 * X) if rng.random() < 0.4 else X


SIGNALS = {"spectra": spectra, "images": images, "pen strokes": pen_strokes}


def signal(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw spectra, images or pen strokes: many features of the same unit."""
    y = draw_labels(rng, n, k)
    return one_of(rng, SIGNALS)(rng, y), y


def expression(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw log gene counts, with many genes relative to the number of rows."""
    n = min(n, int(rng.integers(60, 400)))
    p = int(rng.integers(max(n // 2, 30), 201))
    y = draw_labels(rng, n, k)
    component = subclusters(rng, y)
    markers = rng.random((component.max() + 1, p)) < log_uniform(rng, 0.05, 0.5)
    effects = markers * rng.normal(size=markers.shape) * log_uniform(rng, 0.5, 3.0)
    pathways = rng.normal(size=(n, 4)) @ (rng.normal(size=(4, p)) * (rng.random((4, p)) < 0.3))
    depth = rng.uniform(0.0, 0.6) * rng.normal(size=(n, 1))
    base = rng.uniform(-1, 3) + rng.normal(size=p)
    rate = base + effects[component] + rng.uniform(0, 0.3) * pathways + depth
    return np.log1p(overdispersed(rng, np.exp(np.clip(rate, -6, 8)), log_uniform(rng, 1, 20))), y
