"""The other plots: the right numbers on the right axes."""

import copy
import itertools
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from sklearn.exceptions import NotFittedError

from sgpmic import EM, SGPMIC, Committee, Start
from sgpmic.plots import (
    MembershipsDisplay,
    ProfilesDisplay,
)

METHODS = (
    "plot_embedding",
    "plot_memberships",
    "plot_profiles",
)

MEMBERS = [
    {"name": "Ward", "weight": 0.6, "expected": 0.8, "cut": 0.1, "agreement": 0.9},
    {"name": "k-means", "weight": 0.4, "expected": 0.7, "cut": 0.2, "agreement": -0.1},
    {"name": "subspaces", "weight": 0.0, "reason": "too few features"},
]
NUMBERS: dict[str, Any] = {
    "chosen": 3,
    "candidates": [1, 2, 3],
    "probability": [0.1, 0.2, 0.7],
    "expected": [0.0, 0.5, 0.9],
    "modes": 3,
}
#: As files of the first version have it, in which one cluster had no probability.
OLD_NUMBERS = {"chosen": 1, "candidates": [2, 3, 4], "probability": [0.8, 0.95, 0.7], "modes": 3}


@pytest.fixture(scope="module")
def chosen(model: SGPMIC) -> SGPMIC:
    """Return a model as if a committee had voted, without the time that it takes."""
    found = copy.copy(model)
    found._committee, found._number_of_clusters = MEMBERS, NUMBERS
    return found


def legend_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_profiles(model: SGPMIC, frame: pd.DataFrame) -> None:
    display = model.plot_profiles(n_features=2)
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names[0] == "tells", "the feature that sets the clusters apart comes first"
    assert len(names) == 2
    shown = np.asarray(display.image_.get_array())
    inside, outside = (frame["tells"][model.labels_ == 0], frame["tells"][model.labels_ != 0])
    spread = np.sqrt((len(inside) * inside.var(ddof=0) + len(outside) * outside.var(ddof=0)) / 58)
    assert shown[0, 0] == pytest.approx((inside.mean() - outside.mean()) / spread)
    assert display.ax_.texts[0].get_text().replace("−", "-") == f"{shown[0, 0]:+.1f}"
    given = np.asarray(model.plot_profiles(frame, n_features=2).image_.get_array())
    np.testing.assert_allclose(given, shown)
    own = ProfilesDisplay.from_predictions(frame, model.labels_, n_features=2)
    np.testing.assert_allclose(own.image_.get_array(), shown)


def test_profiles_need_a_table_and_a_name_for_each_feature() -> None:
    rows, labels = np.random.default_rng(0).standard_normal((9, 2)), np.arange(9) % 3
    for names in (["a"], ["id", "a", "b"]):
        with pytest.raises(ValueError, match=f"{len(names)} entries, but there are 2 features"):
            ProfilesDisplay.from_predictions(rows, labels, feature_names=names)
    with pytest.raises(ValueError, match="give a table"):
        ProfilesDisplay.from_predictions(rows[:, 0], labels)


def test_the_numbers_of_profiles_are_apart() -> None:
    rng = np.random.default_rng(0)
    names = ["measurement" * 5] * 3
    display = ProfilesDisplay(5.0 * rng.standard_normal((12, 3)), names).plot()
    display.figure_.canvas.draw()
    for texts in (display.ax_.texts[:12], display.ax_.get_xticklabels()):
        boxes = [text.get_window_extent() for text in texts]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))


def test_the_memberships_stand_in_order_and_add_up(model: SGPMIC) -> None:
    rng = np.random.default_rng(0)
    memberships = rng.dirichlet(np.full(3, 0.4), 50)
    display = MembershipsDisplay.from_predictions(memberships)
    labels, certainty = memberships.argmax(axis=1), memberships.max(axis=1)
    order = display.order
    assert (np.diff(labels[order]) >= 0).all()
    for m in range(3):
        assert (np.diff(certainty[order][labels[order] == m]) <= 0).all()
    heights = (np.arange(1000) + 0.5) / 1000
    places = np.stack(np.meshgrid(np.arange(50) + 0.5, heights), axis=-1).reshape(-1, 2)
    for m, bars in enumerate(display.bars_):
        (path,) = bars.get_paths()
        inside = path.contains_points(places).reshape(1000, 50)
        np.testing.assert_allclose(inside.mean(axis=0), memberships[order, m], atol=2e-3)
        np.testing.assert_array_equal(inside[0], labels[order] == m, "its own cluster is lowest")
    assert len({to_hex(bars.get_facecolor()[0]) for bars in display.bars_}) == 3
    sizes = np.bincount(labels)
    assert legend_of(display.ax_) == [f"cluster {m} ({n} rows)" for m, n in enumerate(sizes)]
    fitted = model.plot_memberships()
    np.testing.assert_array_equal(fitted.memberships, model.memberships_)
    memberships[order[0]] = np.nan  # a row without any value
    display = MembershipsDisplay.from_predictions(memberships)
    np.testing.assert_array_equal(display.order, order[1:])
    assert legend_of(display.ax_)[0] == f"cluster 0 ({sizes[0] - 1} rows)"
    assert display.ax_.get_xlim() == (0, 49)


def test_many_memberships_are_thinned_and_it_is_said() -> None:
    memberships = np.random.default_rng(0).dirichlet(np.full(20, 0.1), 10_000)
    display = MembershipsDisplay.from_predictions(memberships)
    assert len(display.rows_) == 2_000
    assert "one of 5 is drawn" in display.ax_.get_xlabel()
    assert display.ax_.get_xlim() == (0, 10_000)
    assert len(display.ax_.texts) == 20


def test_memberships_of_given_rows(model: SGPMIC, frame: pd.DataFrame) -> None:
    rows = frame.iloc[:7]
    np.testing.assert_allclose(model.plot_memberships(rows).memberships, model.predict_proba(rows))


def test_files_of_an_earlier_version_call_the_probability_certainty(
    model: SGPMIC, tmp_path: Path
) -> None:
    old = copy.copy(model)
    certainty = {"certainty" if k == "probability" else k: v for k, v in OLD_NUMBERS.items()}
    old._number_of_clusters = certainty
    old.save(tmp_path / "model.sgpmic")
    assert SGPMIC.load(tmp_path / "model.sgpmic")._number_of_clusters == OLD_NUMBERS


def test_given_axes_are_drawn_on(chosen: SGPMIC) -> None:
    _, all_axes = plt.subplots(1, 3)
    for name, ax in zip(METHODS, all_axes.flat, strict=True):
        display = getattr(chosen, name)(ax=ax)
        assert display.ax_ is ax
        assert display.figure_ is ax.figure
        assert ax.has_data()
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize("name", METHODS)
def test_a_model_that_is_not_fitted_says_so(name: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(SGPMIC(), name)()


@pytest.mark.parametrize("name", METHODS)
def test_without_matplotlib_one_sentence_says_what_to_install(
    chosen: SGPMIC, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"^Plots need matplotlib: pip install 'sgpmic\[plot\]'"):
        getattr(chosen, name)()


def test_notebooks_show_scikit_learns_diagram(unfitted: SGPMIC, model: SGPMIC) -> None:
    nested = SGPMIC(4, em=EM(m_steps=7), committee=Committee())
    for estimator, is_fitted in ((unfitted, False), (nested, False), (model, True)):
        page = estimator._repr_mimebundle_()["text/html"]
        assert "sk-top-container" in page
        assert "SGPMIC" in page
        assert ("<span>Fitted</span>" in page) == is_fitted
        assert ("<span>Not fitted</span>" in page) == (not is_fitted)
    assert "m_steps=7" in nested._repr_html_()
    given = SGPMIC(start=Start(embedding=np.ones((4, 2))))
    assert "array([[1., 1.]" in given._repr_html_()


def test_a_diagram_computes_nothing(model: SGPMIC) -> None:
    fresh = copy.copy(model)
    fresh._predictor = copy.copy(model._predictor)
    fresh._predictor.__dict__.pop("_densities", None)
    fresh._repr_html_()
    assert "_densities" not in vars(fresh._predictor)
    assert "unusual_below_" not in dir(fresh)
    assert np.isfinite(fresh.unusual_below_)
    assert "unusual_below_" in dir(fresh)
