"""Data frames as people have them, and in Python what the command line shows."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC, Progress, TableEncoder
from sgpmic._input_rows import warn_of_columns
from sgpmic.exceptions import ColumnsWarning, SGPMICWarning
from sgpmic.report.content import content_of_rows
from sgpmic.report.explanations import print_summary
from sgpmic.report.statistics import NumberByCluster, compare_labels

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


@pytest.fixture(scope="module")
def frame(table: Floats) -> pd.DataFrame:
    """Return the blobs with gaps, a category, dates, and names for the rows."""
    found = pd.DataFrame(table.copy(), columns=["length", "width", "height", "depth"])
    found.loc[3, "width"] = np.nan
    found["color"] = pd.Categorical(np.tile(["red", "green", "blue"], 20))
    found["sold"] = pd.date_range("2020-03-01", periods=60, freq="7D")
    found["item"] = [f"item {chr(97 + i % 26)}{i}" for i in range(60)]
    found["remark"] = [f"a longer remark on the item with number {i}, " * 3 for i in range(60)]
    return found


@pytest.fixture(scope="module")
def mixed(frame: pd.DataFrame) -> SGPMIC:
    with warnings.catch_warnings(action="ignore"):
        return SGPMIC(3).set_params(**QUICK).fit(frame)


def test_frames_are_encoded(frame: pd.DataFrame, mixed: SGPMIC, quick_fit: Fit) -> None:
    encoded = TableEncoder().fit_transform(frame)
    by_hand = quick_fit(encoded, scale="one")
    np.testing.assert_array_equal(mixed.memberships_, by_hand.memberships_)
    np.testing.assert_array_equal(mixed.predict_proba(frame), mixed.memberships_)
    assert mixed.encoder_ is not None
    for other in (pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(quick_fit(other).labels_, mixed.labels_)


@pytest.mark.filterwarnings("error")
def test_names_of_columns(frame: pd.DataFrame, mixed: SGPMIC, tmp_path: Path) -> None:
    mixed.save(tmp_path / "model.sgpmic")
    for model in (mixed, SGPMIC.load(tmp_path / "model.sgpmic")):
        assert list(model.feature_names_in_) == list(frame)
        reordered = model.predict_proba(frame[frame.columns[::-1]])
        np.testing.assert_array_equal(reordered, mixed.memberships_)


def test_columns_are_counted_before_encoding(frame: pd.DataFrame, tmp_path: Path) -> None:
    model = SGPMIC(3).set_params(**QUICK | {"max_iter": 1}).fit(frame[["length", "width", "color"]])
    model.save(tmp_path / "model.sgpmic")
    for each in (model, SGPMIC.load(tmp_path / "model.sgpmic")):
        assert (each.n_features_in_, len(each.scaler_.offset)) == (3, 5)


def test_what_was_done_is_said_in_one_line(frame: pd.DataFrame) -> None:
    plan = np.repeat(["free", "basic", "pro"], 20)
    with pytest.warns(ColumnsWarning) as said:
        SGPMIC(3).set_params(**QUICK | {"max_iter": 1}).fit(frame.assign(plan=plan))
    words = [str(w.message) for w in said if w.category is ColumnsWarning]
    assert words == [
        "TableEncoder encoded 4 number columns, 1 category column, 1 date column; left out: "
        "item (free text), remark (free text), plan (looks like a label); see encoder_.columns_ "
        "for details."
    ]
    assert said[0].filename == __file__


def test_numbers_are_left_as_they_are(table: Floats, fitted: SGPMIC, quick_fit: Fit) -> None:
    names = [f"row {i}" for i in range(60)]
    model = quick_fit(pd.DataFrame(table, columns=list("abcd"), index=names))
    assert model.encoder_ is None
    np.testing.assert_array_equal(model.memberships_, fitted.memberships_)
    again = quick_fit(table)
    assert again.encoder_ is None


def test_ids_and_codes_among_plain_numbers_are_warned_of(table: Floats) -> None:
    """The command line, and a frame with one text column, leave them out or read them as gaps."""
    frame = pd.DataFrame(table.copy(), columns=["size", "height", "depth", "weight"])
    frame["customer_id"] = np.arange(60) + 7001
    frame.loc[::9, "height"] = -999.0
    with pytest.warns(ColumnsWarning) as said:
        model = SGPMIC(3).set_params(**QUICK | {"max_iter": 1}).fit(frame)
    words = [str(w.message) for w in said if w.category is ColumnsWarning]
    assert words == [
        "Used as plain numbers: height (-999 for missing?), customer_id (an id?). To have such "
        "columns left out or read, fit make_pipeline(TableEncoder(), SGPMIC())."
    ]
    assert said[0].filename == __file__
    assert (model.encoder_, model.n_features_in_) == (None, 5)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_ordinary_numbers_are_not_warned_of(load: Callable[..., Any]) -> None:
    frame = load(as_frame=True).data.assign(month=lambda X: np.arange(len(X)))
    with warnings.catch_warnings(action="error"):
        warn_of_columns(frame.to_numpy(dtype=np.float64), list(frame))


def test_warnings_point_at_the_line_of_the_user(frame: pd.DataFrame, mixed: SGPMIC) -> None:
    """Also past scikit-learn, which wraps methods and calls others."""
    short = SGPMIC(3).set_params(**QUICK | {"max_iter": 1})
    calls: list[Callable[[], Any]] = [
        lambda: mixed.predict(frame.assign(color="new")),
        lambda: mixed.transform(frame.drop(columns="color")),
        lambda: short.fit_transform(frame),
        lambda: make_pipeline(TableEncoder(), short).fit_predict(frame),
    ]
    for call in calls:
        with pytest.warns((SGPMICWarning, ConvergenceWarning)) as said:
            call()
        assert {w.filename for w in said} == {__file__}


def test_a_failed_fit_of_a_frame_changes_nothing(frame: pd.DataFrame) -> None:
    model = SGPMIC(3)
    with pytest.raises(ValueError, match="no column is left"):
        model.fit(frame[["item", "remark"]])
    assert vars(model) == vars(SGPMIC(3))


def test_the_report_names_rows(frame: pd.DataFrame, mixed: SGPMIC, tmp_path: Path) -> None:
    mixed.report(tmp_path / "kept.html", labels=frame["color"], title="Blobs")
    page = (tmp_path / "kept.html").read_text(encoding="utf-8")
    for words in ("<bdi>Blobs</bdi>", "item a0", "with number 59", "left out", "Adjusted Rand"):
        assert words in page
    mixed.save(tmp_path / "model.sgpmic")
    loaded = SGPMIC.load(tmp_path / "model.sgpmic")
    loaded.report(tmp_path / "loaded.html")
    assert "with number 59" not in (tmp_path / "loaded.html").read_text(encoding="utf-8")
    loaded.report(tmp_path / "given.html", frame, labels=frame["color"], title="Blobs")
    assert (tmp_path / "given.html").read_text(encoding="utf-8") == page


def test_an_index_names_rows(table: Floats, quick_fit: Fit, tmp_path: Path) -> None:
    names = pd.Index([f"state {chr(97 + i % 26)}{i}" for i in range(60)], name="state")
    quick_fit(pd.DataFrame(table, columns=list("abcd"), index=names)).report(tmp_path / "x.html")
    assert "state a0" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_labels_are_given_for_all_rows(table: Floats, quick_fit: Fit) -> None:
    """Rows without any value are not shown; the others keep their numbers and labels."""
    Y = np.insert(table, 4, np.nan, axis=0)
    model = quick_fit(Y)
    sizes: list[float | None] = [*map(float, range(61))]
    for X in (None, Y):
        found = content_of_rows(model, X, labels=sizes, title="")
        assert found.given_labels == [str(i) for i in range(61) if i != 4]
        assert found.ids == [str(i + 1) for i in range(61) if i != 4]
    with pytest.raises(ValueError, match="60 labels for 61 rows"):
        content_of_rows(model, labels=sizes[1:], title="")
    for gap in (None, np.nan):  # a missing label is not a class
        found = content_of_rows(model, labels=pd.Series([gap, *sizes[1:]]), title="")
        assert found.given_labels is not None
        assert found.given_labels[0] == ""
        compared = compare_labels(found.labels, found.given_labels, 3)
        assert isinstance(compared, NumberByCluster)
        assert np.isnan(compared.values[0])


def test_what_is_said_of_a_sample_says_so(
    table: Floats,
    quick_fit: Fit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "sgpmic.learning.run.sample_numbers", lambda n_rows, rng: np.arange(0, n_rows, 2)
    )
    model = quick_fit(table)
    model.summary()
    said = capsys.readouterr().out
    assert "60 rows in 3 clusters" in said
    assert "a random sample of 30 rows" in said
    profiles: Any = model.profiles_
    assert profiles["rows"].tolist() == np.bincount(model.labels_).tolist()
    assert profiles["described"].tolist() == np.bincount(model.labels_[::2]).tolist()
    model.report(tmp_path / "x.html", labels=np.arange(60) % 7)
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "The report shows 30 of the 60 rows." in page
    found = content_of_rows(model, labels=np.arange(60) % 7, title="")
    assert found.given_labels == [str(i % 7) for i in range(0, 60, 2)]
    assert found.ids == [str(i + 1) for i in range(0, 60, 2)]
    assert not content_of_rows(model, table, title="").warnings


def test_profiles(frame: pd.DataFrame, mixed: SGPMIC) -> None:
    assert "profiles_" not in dir(quick_copy(mixed))
    profiles = mixed.profiles_
    assert profiles["rows"].tolist() == np.bincount(mixed.labels_).tolist()
    assert profiles["name"].is_unique
    assert profiles[["precision", "coverage"]].stack().between(0.0, 1.0).all()
    for m, rule in enumerate(profiles["rule"]):
        if rule.startswith("color is ") and " and " not in rule:
            held = frame["color"] == rule.removeprefix("color is ")
            assert profiles["precision"][m] == (mixed.labels_[held] == m).mean()


def quick_copy(model: SGPMIC) -> SGPMIC:
    made = SGPMIC(3)
    made.__dict__.update(vars(model) | {"_explained": None})
    return made


@pytest.mark.parametrize("missing", [("pandas",), ("pandas", "polars")])
def test_without_pandas(
    mixed: SGPMIC, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    profiles: Any = mixed.profiles_
    assert isinstance(profiles, dict if len(missing) == 2 else pl.DataFrame)
    assert list(profiles["cluster"]) == [0, 1, 2]


def test_summary(mixed: SGPMIC, capsys: pytest.CaptureFixture[str]) -> None:
    mixed.summary()
    said = " ".join(capsys.readouterr().out.split())
    assert "60 rows in 3 clusters" in said
    for name in mixed.profiles_["name"]:
        assert name[1:] in said  # the first letter is large
    assert "Columns were put on one scale" in said
    assert print_summary.__module__ == "sgpmic.report.explanations"


def interrupt(progress: Progress) -> None:
    if progress.start == 1 or (progress.n_starts == 1 and progress.iteration == 2):
        raise KeyboardInterrupt


@pytest.mark.parametrize("n_init", [1, 2])
def test_an_interrupted_fit_keeps_finished_iterations(
    table: Floats, quick_fit: Fit, n_init: int
) -> None:
    model = SGPMIC(3).set_params(
        **QUICK | {"tol": 0.0}, start__n_init=n_init, em__callbacks=[interrupt]
    )
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(table)
    iterations = 2 if n_init == 1 else model.starts_[0]["n_iter"]
    if n_init == 1:
        same = quick_fit(table, tol=0.0, max_iter=iterations)
        assert model.n_iter_ == iterations
        assert not model.converged_
        np.testing.assert_array_equal(model.memberships_, same.memberships_)
    else:
        assert model.starts_[0]["n_iter"] == QUICK["max_iter"]


def test_an_interrupt_before_the_first_iteration_changes_nothing(
    table: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sgpmic.learning.run.run_em", stop)
    model = SGPMIC(3).set_params(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(table)
    assert not hasattr(model, "labels_")
