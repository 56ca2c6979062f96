"""How often clusters are reported: on noise, and on two blobs that move apart.

    python benchmarks/structure.py [--quick] [--part noise|power|shapes] [--tables 25]
        [--first-seed 1000] [--rows 200 500] [--features 2 10]

Beside our test: Hartigan's dip of the first principal component and of all distances (p-values
from uniform samples, as usual), and the gap statistic (50 reference tables in the box of the
principal axes; more than one cluster by its own rule). Shares of tables at a level of 5 %.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterator

from sgpmic._types import Floats

if __name__ == "__main__":
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = "1"

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs, make_circles, make_moons

from sgpmic.committee.dimensions import committee_view
from sgpmic.committee.tendency import ClusterTendency, cluster_tendency, dip
from sgpmic.learning.preprocessing import fit_scaler
from sgpmic.process_group import ProcessGroup

Generator = np.random.Generator
Maker = Callable[[Generator], Floats]

NOISE: dict[str, Callable[[Generator, int, int], Floats]] = {
    "Gaussian": lambda rng, n, p: rng.normal(size=(n, p)),
    "Gaussian, correlated": lambda rng, n, p: rng.normal(size=(n, p)) @ rng.normal(size=(p, p)),
    "uniform, cube": lambda rng, n, p: rng.random((n, p)),
    "uniform, slanted": lambda rng, n, p: rng.random((n, p)) @ rng.normal(size=(p, p)),
    "uniform, ball": lambda rng, n, p: _on_sphere(rng, n, p) * rng.random((n, 1)) ** (1 / p),
    "t2, elliptical": lambda rng, n, p: (
        rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)
    ),
    "t3, elliptical": lambda rng, n, p: (
        rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)
    ),
    "t2, each feature": lambda rng, n, p: rng.standard_t(2, (n, p)),
    "t3, each feature": lambda rng, n, p: rng.standard_t(3, (n, p)),
    "lognormal": lambda rng, n, p: np.exp(rng.normal(size=(n, p))),
    "exponential": lambda rng, n, p: rng.exponential(size=(n, p)),
    "Laplace": lambda rng, n, p: rng.laplace(size=(n, p)),
    "beta(2, 2)": lambda rng, n, p: rng.beta(2, 2, (n, p)),
    "Poisson counts": lambda rng, n, p: rng.poisson(3.0, (n, p)).astype(float),
    "categories, one-hot": lambda rng, n, p: np.hstack(
        [np.eye(3)[rng.integers(3, size=n)] for _ in range(p)]
    ),
    "Gaussian, with two categories": lambda rng, n, p: np.hstack(
        [rng.normal(size=(n, p)), *(np.eye(3)[rng.integers(3, size=n)] for _ in range(2))]
    ),
}
SHARES = (0.5, 0.8)
DISTANCES = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)


def _on_sphere(rng: Generator, n: int, p: int) -> Floats:
    directions = rng.normal(size=(n, p))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def scaled(X: Floats, each: bool) -> Floats:
    X = X - X.mean(axis=0)
    X = X[:, X.std(axis=0) > 0]
    return X / (X.std(axis=0) if each else np.sqrt(np.mean(X**2)))


def two_blobs(rng: Generator, n: int, p: int, distance: float, share: float, turn: bool) -> Floats:
    """Return unit Gaussians; turned: other axes of other widths, and all of them rotated."""
    X = rng.normal(size=(n, p))
    X[: round(n * share), 0] += distance
    if turn:
        X[:, 1:] *= rng.uniform(0.3, 1.5, p - 1)
        X = X @ np.linalg.qr(rng.normal(size=(p, p)))[0]
    return scaled(X, each=False)


@functools.cache
def _uniform_dips(n: int) -> Floats:
    rng = np.random.default_rng(0)
    return np.array([dip(rng.random(n)) for _ in range(1000)]) * np.sqrt(n)


def dip_finds(values: Floats) -> bool:
    n = len(values)
    usual = _uniform_dips(min(n, 1000))  # √n dip hardly changes beyond
    return (1 + np.sum(usual >= dip(values) * np.sqrt(n))) / (1 + len(usual)) <= 0.05


def component_dip_finds(Y: Floats) -> bool:
    Y = Y - Y.mean(axis=0)
    return dip_finds(Y @ np.linalg.svd(Y, full_matrices=False)[2][0])


def gap_finds(Y: Floats, rng: Generator, references: int = 50) -> bool:
    """Return whether the gap statistic prefers two clusters to one (Tibshirani et al., 2001)."""
    Y = Y - Y.mean(axis=0)
    Z = Y @ np.linalg.svd(Y, full_matrices=False)[2].T
    low, high = Z.min(axis=0), Z.max(axis=0)

    def dispersions(Z: Floats) -> list[float]:
        one = float(np.sum((Z - Z.mean(axis=0)) ** 2))
        two = KMeans(2, n_init=3, random_state=0).fit(Z).inertia_
        return [np.log(one), np.log(two)]

    drawn = np.array([dispersions(rng.uniform(low, high, Z.shape)) for _ in range(references)])
    gaps = drawn.mean(axis=0) - dispersions(Z)
    return bool(gaps[0] < gaps[1] - drawn[:, 1].std() * np.sqrt(1 + 1 / references))


def _tendency(Y: Floats, seed: int) -> ClusterTendency:
    group = ProcessGroup(len(Y))
    view = committee_view(Y, Y, fit_scaler(Y, group, "none"), group)
    return cluster_tendency(view.scaler.transform(view.rows), seed, mixed=view.mixed)


def compare(make: Maker, seeds: range, peers: bool) -> tuple[Floats, float]:
    """Return the share of tables that each test calls clustered, and our seconds per table."""
    found, seconds = [], 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        Y = make(rng)
        start = time.perf_counter()
        row = [_tendency(Y, seed).supported]
        seconds += time.perf_counter() - start
        if peers:
            row += [component_dip_finds(Y), dip_finds(pdist(Y[:500])), gap_finds(Y, rng)]
        found.append(row)
    return np.mean(found, axis=0), seconds / len(seeds)


def noise_tables(n: int, p: int) -> Iterator[tuple[str, Maker]]:
    for name, draw in NOISE.items():
        yield name, functools.partial(_noise, draw=draw, n=n, p=p)


def blob_tables(n: int, p: int, distances: tuple[float, ...]) -> Iterator[tuple[str, Maker]]:
    for turn in (False, True):
        for share in SHARES:
            for distance in distances:
                name = f"{share:.0%} and {1 - share:.0%}, {distance} apart{', turned' * turn}"
                yield (
                    name,
                    functools.partial(
                        two_blobs, n=n, p=p, distance=distance, share=share, turn=turn
                    ),
                )


def _noise(rng: Generator, draw: Callable[[Generator, int, int], Floats], n: int, p: int) -> Floats:
    return scaled(draw(rng, n, p), each=True)


def other_tables() -> Iterator[tuple[str, Maker]]:
    def seed(rng: Generator) -> int:
        return int(rng.integers(1 << 31))

    def rows(X: Floats, rng: Generator) -> Floats:
        return X[rng.permutation(len(X))[: int(0.8 * len(X))]]

    def blobs(rng: Generator, k: int) -> Floats:
        return scaled(make_blobs(400, 2, centers=k, random_state=seed(rng))[0], False)

    for k in (3, 5, 8):
        yield f"{k} blobs in the plane, N = 400", functools.partial(blobs, k=k)
    yield (
        "moons, noise .1, N = 300",
        lambda rng: scaled(make_moons(300, noise=0.1, random_state=seed(rng))[0], False),
    )
    yield (
        "rings, noise .07, N = 300",
        lambda rng: scaled(
            make_circles(300, noise=0.07, factor=0.4, random_state=seed(rng))[0], False
        ),
    )
    yield "Iris, 80 % of rows", lambda rng: scaled(rows(load_iris().data, rng), False)
    yield "Wine, 80 % of rows", lambda rng: scaled(rows(load_wine().data, rng), True)
    yield "digits, 80 % of rows", lambda rng: scaled(rows(load_digits().data, rng), False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few tables of one small size")
    parser.add_argument("--part", choices=["noise", "power", "shapes"])
    parser.add_argument("--tables", type=int, default=25, help="tables of each kind and size")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 500])
    parser.add_argument("--features", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--distances", type=float, nargs="+", default=list(DISTANCES))
    parser.add_argument("--ours-only", action="store_true", help="leave out dips and gap")
    options = parser.parse_args()
    tables = 5 if options.quick else options.tables
    sizes = [(n, p) for n in options.rows for p in options.features]
    if options.quick:
        sizes = [(200, 2)]
    seeds = range(options.first_seed, options.first_seed + tables)
    kinds: list[tuple[str, Maker]] = []
    for n, p in sizes:
        if options.part in (None, "noise"):
            kinds += [(f"N = {n}, P = {p}: {name}", m) for name, m in noise_tables(n, p)]
        if options.part in (None, "power"):
            blobs = blob_tables(n, p, tuple(options.distances))
            kinds += [(f"N = {n}, P = {p}: {name}", m) for name, m in blobs]
    if options.part in (None, "shapes"):
        kinds += list(other_tables())
    print(f"{'':58} {'ours':>6} {'dip PC1':>8} {'dip dist':>8} {'gap':>6} {'s':>6}")
    for name, make in kinds:
        shares, seconds = compare(make, seeds, not options.ours_only)
        shares = np.append(shares, [np.nan] * (4 - len(shares)))
        ours, component, distance, gap = shares
        print(
            f"{name:58} {ours:6.2f} {component:8.2f} {distance:8.2f} {gap:6.2f} {seconds:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
