"""Distributions shared by all kinds of problems: rows, clusters, sizes, random networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rng = np.random.Generator
T = TypeVar("T")

N_ROWS = (60, 3000)
N_CLUSTERS = (2, 20)
SMALLEST_SHARE, FEWEST_ROWS = 0.02, 5


def one_of(rng: Rng, options: Mapping[str, T]) -> T:
    """Return one of the options, drawn uniformly."""
    return options[list(options)[rng.integers(len(options))]]


def log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_n_rows(rng: Rng) -> int:
    """Return a number of rows: median about 260, 90 % below 1000."""
    low, high = N_ROWS
    return int(low * (high / low) ** rng.beta(1.2, 1.8))


def draw_n_clusters(rng: Rng, n: int) -> int:
    """Draw k with probability ∝ k^-1.6, limited to at least eight rows per cluster on average."""
    k = np.arange(N_CLUSTERS[0], min(N_CLUSTERS[1], n // 8) + 1)
    return int(rng.choice(k, p=k**-1.6 / np.sum(k**-1.6)))


def draw_weights(rng: Rng, k: int) -> Floats:
    """Return relative cluster sizes: equal to very unequal, sometimes with a majority cluster."""
    if k > 1 and rng.random() < 0.2:
        majority = rng.uniform(0.5, 0.9)
        rest = rng.dirichlet(np.full(k - 1, 3.0))
        return np.concatenate([[majority], (1 - majority) * rest])
    return rng.dirichlet(np.full(k, rng.choice([1.0, 3.0, 10.0, 100.0])))


def sizes_of(weights: Floats, n: int) -> Integers:
    """Return sizes that sum to n, each at least 2 % of n and five rows if n allows it."""
    floor = min(max(SMALLEST_SHARE, FEWEST_ROWS / n), 1 / len(weights))
    shares = floor + (1 - floor * len(weights)) * weights / weights.sum()
    ends = np.round(n * np.cumsum(shares)).astype(np.int64)
    return np.diff(ends, prepend=0)


def draw_labels(rng: Rng, n: int, k: int) -> Integers:
    """Return n labels of k clusters, sorted."""
    return np.repeat(np.arange(k), sizes_of(draw_weights(rng, k), n))


def rotation(rng: Rng, d: int) -> Floats:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def standardized(X: Floats) -> Floats:
    return (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)


def network(rng: Rng, d: int, p: int, gain: float) -> Callable[[Floats], Floats]:
    """Return a random network from d to p dimensions with one or two hidden layers."""
    activations: dict[str, Callable[[Floats], Floats]] = {
        "tanh": np.tanh,
        "sine": np.sin,
        "rectifier": lambda a: np.maximum(a, 0.0),
        "leaky rectifier": lambda a: np.where(a > 0, a, 0.2 * a),
        "softplus": lambda a: np.logaddexp(0.0, a),
        "bump": lambda a: np.exp(-(a**2) / 2),
    }
    activation = one_of(rng, activations)
    widths = [d, *rng.integers(8, 40, size=rng.integers(1, 3)), p]
    layers = [
        (gain * rng.normal(size=(a, b)) / np.sqrt(a), rng.normal(size=b))
        for a, b in pairwise(widths)
    ]
    linear = rng.uniform(0.0, 0.7) * rng.normal(size=(d, p)) / np.sqrt(d)

    def forward(Z: Floats) -> Floats:
        H = Z
        for W, b in layers[:-1]:
            H = activation(H @ W + b)
        return H @ layers[-1][0] + Z @ linear

    return forward
