"""The plot of latent points: marks, colors, legends, outlines and texts."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.path import Path
from sklearn.decomposition import PCA

from sgpmic import SGPMIC
from sgpmic.plots import EmbeddingDisplay


def places(display: EmbeddingDisplay) -> np.ndarray:
    points = np.vstack([np.asarray(marks.get_offsets()) for marks in display.scatters_])
    return points[np.lexsort(points.T)]


def entries(display: EmbeddingDisplay) -> list[str]:
    assert display.legend_ is not None
    return [text.get_text() for text in display.legend_.get_texts()]


def blobs(n_clusters: int, n_each: int = 5) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.arange(n_clusters), n_each)
    side = int(np.ceil(n_clusters**0.5))
    centers = 10.0 * np.stack([labels % side, labels // side], axis=1)
    return centers + np.random.default_rng(0).normal(size=(len(labels), 2)), labels


def test_every_row_has_a_mark_at_its_latent_point(model: SGPMIC) -> None:
    display = model.plot_embedding(title="mine")
    expected = model.view_[np.lexsort(model.view_.T)]
    np.testing.assert_allclose(places(display), expected)
    assert display.ax_.get_title(loc="left") == "mine"
    assert display.figure_ is display.ax_.figure
    sizes = [len(marks.get_offsets()) for marks in display.scatters_]
    assert sizes == np.bincount(model.labels_).tolist()
    assert entries(display) == [f"cluster {m} ({size} rows)" for m, size in enumerate(sizes)]
    assert display.ax_.get_aspect() == 1.0


def test_rows_without_any_value_are_not_drawn() -> None:
    points, labels = blobs(13)
    memberships = np.eye(13)[labels]
    memberships[9, :2] = 0.3, 0.45
    points[0], memberships[0] = np.nan, np.nan
    everywhere = EmbeddingDisplay.from_predictions(
        points, memberships, color_by="certainty", labels=["text"] * 65, size=np.arange(1, 66)
    )
    assert len(everywhere.numbers_) == 13
    assert everywhere.scatters_[-1].get_clim() == (0.45, 1.0)
    assert len(everywhere.texts_) > 10
    assert np.isfinite([text.get_position() for text in everywhere.texts_]).all()
    by_cluster = EmbeddingDisplay.from_predictions(points, memberships)
    assert entries(by_cluster)[0] == "cluster 0 (4 rows)"
    assert entries(by_cluster)[-1] == "missing (1 row)"
    assert np.isfinite(by_cluster.ax_.dataLim.bounds).all()
    labels[0] = -1  # as a model labels them
    by_label = EmbeddingDisplay.from_predictions(points, labels)
    np.testing.assert_array_equal(by_label.labels, labels)
    points[5, 0] = np.nan  # half a point is a mistake
    with pytest.raises(ValueError, match="finite numbers"):
        EmbeddingDisplay.from_predictions(points, memberships)


def test_rows_in_doubt_are_paler() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    memberships = np.array([[0.95, 0.05], [0.55, 0.45], [0.1, 0.9]])
    display = EmbeddingDisplay.from_predictions(points, memberships)
    alpha = display.scatters_[0].get_facecolors()[:, 3]
    assert alpha[0] > alpha[1]


def test_more_than_two_dimensions_are_turned_together_with_their_outlines(deep: SGPMIC) -> None:
    display = deep.plot_embedding()
    assert deep.embedding_.shape[1] == 3
    np.testing.assert_allclose(places(display), deep.view_[np.lexsort(deep.view_.T)])
    # By scikit-learn: the same axes, but for their signs.
    turned = PCA(2).fit(deep.embedding_).transform(deep.embedding_)
    np.testing.assert_allclose(np.abs(deep.view_ - deep.view_.mean(axis=0)), np.abs(turned))
    for m, line in enumerate(display.outlines_):
        outline, rows = np.asarray(line.get_xydata()), deep.view_[deep.labels_ == m]
        # The line goes around evenly: its middle is the mean, and its spread has the covariance's
        # axes and their proportions.
        np.testing.assert_allclose(outline[:-1].mean(axis=0), rows.mean(axis=0), atol=1e-8)
        spread, expected = np.cov(outline[:-1].T), np.cov(rows.T)
        shape = spread / np.trace(spread)
        np.testing.assert_allclose(shape, expected / np.trace(expected), atol=0.01)
        inside = Path(outline).contains_points(rows, radius=1e-9).mean()
        assert 0.8 <= inside <= 0.95, "an outline holds 90 % of the rows of its cluster"


def test_one_dimension_has_random_heights() -> None:
    points, labels = blobs(3)
    display = EmbeddingDisplay.from_predictions(
        points[:, :1], labels, means=np.zeros((3, 1)), covariances=np.ones((3, 1, 1))
    )
    for m, marks in enumerate(display.scatters_):
        offsets = np.asarray(marks.get_offsets())
        np.testing.assert_allclose(offsets[:, 0], points[labels == m, 0])
        assert np.unique(offsets[:, 1]).size == len(offsets)
    assert len(display.outlines_) == 3
    assert display.ax_.get_ylabel() == "random height"


@pytest.mark.parametrize("n_clusters", [12, 30, 200])
def test_many_clusters_are_told_apart(n_clusters: int) -> None:
    points, labels = blobs(n_clusters, n_each=3)
    display = EmbeddingDisplay.from_predictions(points, labels)
    styles = {
        (to_hex(marks.get_facecolors()[0]), marks.get_paths()[0].vertices.tobytes())
        for marks in display.scatters_
    }
    assert len(styles) == n_clusters
    assert [text.get_text() for text in display.numbers_] == [str(m) for m in range(n_clusters)]
    middle = np.median(points[labels == 7], axis=0)
    np.testing.assert_allclose(display.numbers_[7].xy, middle)
    if n_clusters <= 60:
        display.figure_.canvas.draw()
        assert len(entries(display)) == n_clusters
        legend, axes = display.legend_.get_window_extent(), display.ax_.get_window_extent()
        assert legend.x0 >= axes.x1, "it stands beside the axes"
        assert legend.x1 <= display.figure_.bbox.x1, "and within the figure"
    else:
        assert display.legend_ is None, "nobody finds a cluster among two hundred lines"


def test_points_fill_the_axes() -> None:
    points, labels = blobs(25)
    _, ax = plt.subplots(figsize=(9, 7), layout="constrained")
    display = EmbeddingDisplay.from_predictions(points, labels, ax=ax)  # with a broad legend
    display.figure_.canvas.draw()
    limits = np.array([display.ax_.get_xlim(), display.ax_.get_ylim()])
    assert (np.ptp(points, axis=0) / np.ptp(limits, axis=1)).max() > 0.85


def test_few_clusters_have_no_numbers(model: SGPMIC) -> None:
    assert model.plot_embedding().numbers_ == []


def test_certainty_has_a_scale_up_to_one(model: SGPMIC) -> None:
    display = model.plot_embedding(color_by="certainty")
    (marks,) = display.scatters_
    np.testing.assert_allclose(marks.get_array(), model.memberships_.max(axis=1))
    assert display.colorbar_ is not None
    assert display.colorbar_.ax.get_ylabel() == "certainty"
    assert marks.get_clim()[1] == 1.0
    assert marks.get_clim()[0] <= 0.5


def test_numbers_have_a_color_bar_and_missing_ones_are_grey(model: SGPMIC) -> None:
    numbers = np.arange(60.0)
    numbers[[3, 50]] = np.nan
    display = model.plot_embedding(color_by=pd.Series(numbers, name="age"))
    missing, seen = display.scatters_
    np.testing.assert_allclose(seen.get_array(), numbers[np.isfinite(numbers)])
    np.testing.assert_allclose(seen.get_offsets(), model.view_[np.isfinite(numbers)])
    np.testing.assert_allclose(missing.get_offsets(), model.view_[[3, 50]])
    assert entries(display) == ["missing (2 rows)"]
    red, green, blue, _ = missing.get_facecolors()[0]
    assert red == green == blue
    assert display.colorbar_ is not None
    assert display.colorbar_.ax.get_ylabel() == "age"


@pytest.mark.parametrize("zone", [None, "Europe/Oslo"])
def test_dates_have_a_color_bar_with_dates(model: SGPMIC, zone: str | None) -> None:
    dates = pd.Series(pd.date_range("2023-01-15", periods=60, freq="MS", tz=zone), name="since")
    display = model.plot_embedding(color_by=dates.mask(dates.index == 3))
    assert entries(display) == ["missing (1 row)"]
    assert display.colorbar_ is not None
    display.figure_.canvas.draw()
    ticks = {text.get_text() for text in display.colorbar_.ax.get_yticklabels()}
    assert {"2024", "2025", "2026", "2027"} <= ticks


def test_a_column_of_a_table_with_missing_cells(model: SGPMIC, frame: pd.DataFrame) -> None:
    words = np.array(["b"] * 30 + ["a"] * 25 + ["$c$"] * 5, dtype=object)
    words[::20] = None
    display = model.plot_embedding(color_by="kind", X=frame.assign(kind=words))
    assert entries(display) == ["b (28 rows)", "a (24 rows)", r"\$c\$ (5 rows)", "missing (3 rows)"]
    np.testing.assert_allclose(display.scatters_[1].get_offsets(), model.view_[words == "a"])
    colors = {to_hex(marks.get_facecolors()[0]) for marks in display.scatters_}
    assert len(colors) == 4
    assert display.legend_ is not None
    assert display.legend_.get_title().get_text() == "kind"
    assert display.colorbar_ is None
    assert len(display.numbers_) == 3, "whose outline is whose, colors do not say here"


def test_what_counts_as_labels(model: SGPMIC, frame: pd.DataFrame) -> None:
    ordered = pd.Categorical(["low", "high", "mid"] * 20, ["low", "mid", "high"], ordered=True)
    cases: list[tuple[Any, list[str]]] = [
        (pd.Series(ordered), ["low", "mid", "high"]),
        (np.arange(60) % 3, ["0", "1", "2"]),
        (np.arange(60) % 3.0, ["0", "1", "2"]),
        (np.arange(60) % 2 == 0, ["false", "true"]),
        (pd.array([1, 0, None] * 20, dtype="Int64"), ["0", "1", "missing"]),
        (["x", "y"] * 30, ["x", "y"]),
        *[
            (np.ma.masked_array(np.arange(60) % 3, np.arange(60) < 2).astype(kind), expected)
            for kind, expected in (
                (int, ["0", "1", "2", "missing"]),
                (bool, ["false", "true", "missing"]),
            )
        ],
    ]
    for given, expected in cases:
        found = [entry.split(" (")[0] for entry in entries(model.plot_embedding(color_by=given))]
        assert found == expected
    for numbers in (np.arange(60), np.arange(60) / 7, pd.array(range(60), dtype="Int64")):
        assert model.plot_embedding(color_by=numbers).colorbar_ is not None
    named = model.plot_embedding(color_by="noise", X=frame)
    np.testing.assert_allclose(named.scatters_[0].get_array(), frame["noise"])


def test_more_labels_than_can_be_told_apart_are_joined() -> None:
    points, _ = blobs(60, n_each=2)
    words = [f"word {i // 2}" for i in range(119)] + ["word 0"]
    display = EmbeddingDisplay.from_predictions(points, np.zeros(120, int), color_by=words)
    assert entries(display)[0] == "word 0 (3 rows)"
    assert entries(display)[-1] == "21 others (41 rows)"
    assert sum(len(marks.get_offsets()) for marks in display.scatters_) == 120


def test_sizes(model: SGPMIC) -> None:
    for size in (5, np.arange(1.0, 61.0)):
        display = model.plot_embedding(size=size, color_by=np.zeros(60, int))
        np.testing.assert_array_equal(display.scatters_[0].get_sizes(), np.broadcast_to(size, 60))


def test_texts(model: SGPMIC) -> None:
    chosen = model.plot_embedding(labels={4: "four $", 59: "last"}).texts_
    assert [text.get_text() for text in chosen] == ["four $", "last"]
    np.testing.assert_allclose([text.xy for text in chosen], model.view_[[4, 59]])
    sparse = model.plot_embedding(labels=[None] * 59 + ["last"]).texts_
    assert [text.get_text() for text in sparse] == ["last"]


def test_dark_ground_has_light_marks(model: SGPMIC) -> None:
    light = model.plot_embedding().scatters_
    with plt.style.context("dark_background"):
        dark = model.plot_embedding()
        numbers = model.plot_embedding(color_by="certainty", labels={0: "first"})
    assert to_hex(dark.scatters_[0].get_facecolors()[0]) != to_hex(light[0].get_facecolors()[0])
    assert dark.scatters_[0].get_edgecolors()[0, :3].max() == 0.0
    assert to_hex(numbers.texts_[0].get_color()) == "#ffffff"


def test_points_of_ones_own(model: SGPMIC, frame: pd.DataFrame) -> None:
    rows = frame.iloc[:5]
    points, shares = model.transform(rows), model.predict_proba(rows)
    display = EmbeddingDisplay.from_predictions(points, shares)
    np.testing.assert_allclose(places(display), points[np.lexsort(points.T)])
    assert display.outlines_ == []


def test_a_display_can_be_drawn_again_in_other_colors(model: SGPMIC) -> None:
    display = model.plot_embedding()
    _, ax = plt.subplots()
    assert display.plot(color_by="certainty", ax=ax) is display
    assert display.ax_ is ax
    assert display.colorbar_ is not None
    assert len(display.scatters_) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"color_by": "age"}, "pass the table as X"),
        ({"color_by": "age", "X": pd.DataFrame({"b": [0] * 60})}, "not a column of X, which has b"),
        ({"color_by": [1, 2]}, r"shape \(2,\), but there are 60 rows"),
        ({"size": [1, 2]}, "one for each of 60 rows"),
        ({"size": -1}, "size must be above 0"),
        ({"labels": ["a"]}, "1 label for 60 rows"),
        ({"labels": {60: "a"}}, "row 60, but rows are 0 to 59"),
    ],
)
def test_wrong_arguments_are_named(model: SGPMIC, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        model.plot_embedding(**wrong)
