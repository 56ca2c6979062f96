"""Mixtures with various covariances, tails, skew and controlled overlap, optionally warped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from judge.priors import (
    Floats,
    Integers,
    Rng,
    draw_labels,
    log_uniform,
    network,
    one_of,
    rotation,
    standardized,
)

#: Factors A of covariances AᵀA, one for each component.
Factors = list[Floats]


def student(rng: Rng, m: int, d: int, lowest: float = 2.0) -> Floats:
    df = rng.uniform(lowest, 10.0)
    return rng.normal(size=(m, d)) / np.sqrt(rng.chisquare(df, size=(m, 1)) / df)


def ball(rng: Rng, m: int, d: int) -> Floats:
    direction = rng.normal(size=(m, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.sqrt(d + 2) * direction * rng.random((m, 1)) ** (1 / d)


def lognormal(rng: Rng, m: int, d: int) -> Floats:
    s = rng.uniform(0.3, 1.0)
    return (np.exp(s * rng.normal(size=(m, d)) - s**2 / 2) - 1) / np.sqrt(np.expm1(s**2))


def gamma(rng: Rng, m: int, d: int) -> Floats:
    shape = log_uniform(rng, 0.7, 6.0)
    return (rng.gamma(shape, size=(m, d)) - shape) / np.sqrt(shape)


#: Noise with mean 0 and covariance I, if finite.
TAILS: dict[str, Callable[[Rng, int, int], Floats]] = {
    "gaussian": lambda rng, m, d: rng.normal(size=(m, d)),
    "gaussian again": lambda rng, m, d: rng.normal(size=(m, d)),
    "student": student,
    "laplace": lambda rng, m, d: rng.laplace(scale=np.sqrt(0.5), size=(m, d)),
    "ball": ball,
    "box": lambda rng, m, d: rng.uniform(-np.sqrt(3), np.sqrt(3), size=(m, d)),
    "lognormal": lognormal,
    "gamma": gamma,
}
#: For one cluster: uniform balls and t(3) are held out for testing.
TAILS_OF_ONE = TAILS | {
    "student": lambda rng, m, d: student(rng, m, d, lowest=5.0),
    "ball": TAILS["box"],
}


def ellipsoid(rng: Rng, d: int, spread: float = 0.7) -> Floats:
    return np.exp(spread * rng.normal(size=d))[:, None] * rotation(rng, d)


def flat(rng: Rng, d: int) -> Floats:
    """Return the factor of a covariance that is nearly low-rank."""
    scales = np.where(np.arange(d) < rng.integers(1, d // 2 + 2), 1.0, rng.uniform(0.03, 0.3))
    return scales[:, None] * rotation(rng, d)


COVARIANCES: dict[str, Callable[[Rng, int, int], Factors]] = {
    "spherical": lambda rng, d, k: [np.eye(d)] * k,
    "scaled": lambda rng, d, k: [np.exp(0.7 * rng.normal()) * np.eye(d) for _ in range(k)],
    "diagonal": lambda rng, d, k: [np.diag(np.exp(0.7 * rng.normal(size=d))) for _ in range(k)],
    "full": lambda rng, d, k: [ellipsoid(rng, d) for _ in range(k)],
    "tied": lambda rng, d, k: [ellipsoid(rng, d)] * k,
    "low rank": lambda rng, d, k: [flat(rng, d) for _ in range(k)],
    "scaled full": lambda rng, d, k: [np.exp(rng.normal()) * ellipsoid(rng, d) for _ in range(k)],
}


def on_a_curve(rng: Rng, d: int, k: int) -> Floats:
    t = np.arange(k)[:, None] + 0.2 * rng.normal(size=(k, 1))
    return t * rng.normal(size=d) + np.sin(t * rng.uniform(0.2, 1.0)) * rng.normal(size=d)


def in_groups(rng: Rng, d: int, k: int) -> Floats:
    groups = rng.integers(max(2, k // 2), size=k)
    return 3.0 * rng.normal(size=(k, d))[groups] + rng.normal(size=(k, d))


CENTERS: dict[str, Callable[[Rng, int, int], Floats]] = {
    "scattered": lambda rng, d, k: rng.normal(size=(k, d)),
    "in a box": lambda rng, d, k: rng.uniform(-1, 1, size=(k, d)),
    "on a curve": on_a_curve,
    "in groups": in_groups,
    "in some features": lambda rng, d, k: rng.normal(size=(k, d)) * (rng.random(d) < 0.5),
}


def draw_error(rng: Rng, hardest: float = 0.35) -> float:
    """Return a Bayes error between 0 and the hardest, small ones more often."""
    return hardest * float(rng.random()) ** 2


def mixture(rng: Rng, component: Integers, y: Integers, d: int, error: float) -> Floats:
    """Return a mixture whose components overlap so that the Bayes error is about this."""
    k = int(component.max()) + 1
    factors = one_of(rng, COVARIANCES)(rng, d, k)
    tails = TAILS if k > 1 else TAILS_OF_ONE
    tail = one_of(rng, tails)
    each_its_own = rng.random() < 0.15
    noise = np.empty((len(y), d))
    for c in range(k):
        rows = component == c
        draw = one_of(rng, tails) if each_its_own else tail
        noise[rows] = draw(rng, int(rows.sum()), d) @ factors[c]
    if k == 1:
        return noise
    centers = one_of(rng, CENTERS)(rng, d, k)
    label_of = np.array([y[component == c][0] for c in range(k)])
    if label_of.max() + 1 < k:  # components of the same class are close together
        centers = centers[label_of] + rng.uniform(0.2, 0.8) * rng.normal(size=(k, d))
    scale = separation(rng, centers, noise, factors, component, label_of, error)
    if error < 0.005:
        scale *= rng.uniform(1.0, 2.5)
    return noise + scale * centers[component]


def separation(
    rng: Rng,
    centers: Floats,
    noise: Floats,
    factors: Factors,
    component: Integers,
    label_of: Integers,
    error: float,
) -> float:
    """Bisect for the scale of the centers at which Gaussian discriminants have this error.

    In half of the problems the discriminant is quadratic, with every covariance known, so that
    centers may be close if covariances differ; in the others it is linear, with the pooled
    covariance, so that the centers alone separate the clusters.
    """
    sample = rng.permutation(len(component))[:500]
    shares = np.bincount(component) / len(component)
    covariances = np.array([A.T @ A for A in factors])
    if rng.random() < 0.5:
        covariances[:] = np.tensordot(shares, covariances, axes=1)
    whitened, offsets, constants = [], [], []
    for c, covariance in enumerate(covariances):
        L = np.linalg.cholesky(covariance)
        whitened.append(solve_triangular(L, noise[sample].T, lower=True))
        moved = (centers[component[sample]] - centers[c]).T
        offsets.append(solve_triangular(L, moved, lower=True))
        constants.append(np.log(shares[c]) - np.log(np.diag(L)).sum())
    E, D, constant = np.stack(whitened), np.stack(offsets), np.array(constants)[:, None]

    def error_at(scale: float) -> float:
        scores = constant - 0.5 * np.sum((E + scale * D) ** 2, axis=1)
        return float(np.mean(label_of[scores.argmax(0)] != label_of[component[sample]]))

    low, high = np.log(0.2), np.log(50.0)
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if error_at(np.exp(middle)) > error else (low, middle)
    return float(np.exp(high))


def with_useless_features(rng: Rng, X: Floats) -> Floats:
    extra = rng.integers(1, X.shape[1] + 1)
    return np.hstack([X, rng.uniform(0.1, 1.0) * X.std() * rng.normal(size=(len(X), extra))])


def with_outliers(rng: Rng, X: Floats) -> Floats:
    rows = rng.random(len(X)) < rng.uniform(0.005, 0.03)
    center = np.median(X, axis=0)
    return np.where(rows[:, None], center + rng.uniform(2, 8) * (X - center), X)


def cloud(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw a mixture in 2 to 60 dimensions, some with uninformative features or outliers."""
    d = int(rng.integers(2, 4)) if rng.random() < 0.35 else int(log_uniform(rng, 2, 60))
    y = draw_labels(rng, n, k)
    X = mixture(rng, y, y, d, draw_error(rng))
    if d > 2 and rng.random() < 0.25:
        X = with_useless_features(rng, X)
    if k > 1 and rng.random() < 0.12:
        X = with_outliers(rng, X)
    return X, y


def warp(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw a mixture in 1 to 8 dimensions and map it by a random network."""
    d = int(rng.integers(1, 9))
    p = int(log_uniform(rng, max(2, d), 100))
    y = draw_labels(rng, n, k)
    Z = mixture(rng, y, y, d, draw_error(rng))
    # A higher gain could split a single cluster.
    X = network(rng, d, p, gain=rng.uniform(0.4, 2.0) if k > 1 else 0.5)(standardized(Z))
    return X + rng.uniform(0.0, 0.3) * X.std() * rng.normal(size=X.shape), y


def subspaces(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw from linear subspaces of 1 to 5 dimensions, like faces under varying illumination."""
    p = int(log_uniform(rng, 12, 120))
    y = draw_labels(rng, n, k)
    X = np.empty((n, p))
    level = rng.uniform(0.0, 2.0)  # distance of the rows from the origin
    for label in range(k):
        d = int(rng.integers(1, 6))
        basis = rng.normal(size=(d, p)) / np.sqrt(p)
        scores = rng.normal(size=(np.sum(y == label), d)) * np.exp(0.5 * rng.normal(size=d))
        scores[:, 0] += level
        X[y == label] = scores @ basis
    return X + rng.uniform(0.02, 0.6) * X.std() * rng.normal(size=X.shape), y
