"""Tables with missing values: fit, answers for rows, files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from tests.estimator.conftest import QUICK
from tests.estimator.test_checkpoint import Interrupted, same, stop_at

from sgpmic import SGPMIC, Committee, TableEncoder, jobs
from sgpmic.exceptions import EmptyFeatureWarning, EmptyRowWarning
from sgpmic.learning import gaps

Floats = np.ndarray
TRUTH = np.repeat([0, 1, 2], 20)

#: Few groups of features, or posteriors of cells.
slow = partial(pytest.param, marks=pytest.mark.slow)
both_ways = pytest.mark.parametrize("most_groups", [100, 0], ids=["exact", "posteriors"])


@pytest.fixture(scope="module")
def holes() -> Floats:
    """Return three blobs in four dimensions with a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0, 0, 0], [6, 0, 6, 0], [0, 7, 0, 7]])
    Y = np.concatenate([rng.normal(c, 1.0, size=(20, 4)) for c in centers])
    missing = rng.random(Y.shape) < 0.2
    missing[missing.all(axis=1), 0] = False
    return np.where(missing, np.nan, Y)


@pytest.mark.parametrize(
    ("settings", "most_groups"),
    [
        ({}, 100),
        slow({"mapping": "per_cluster"}, 100),
        slow({"latent": "variational", "n_components": 1}, 100),
        slow({"mapping": "per_cluster"}, 0),
        slow({"latent": "variational", "n_components": 1}, 0),
    ],
)
def test_clusters_are_found_and_the_bound_rises(
    holes: Floats,
    settings: dict[str, Any],
    most_groups: int,
    quick_fit: Callable[..., SGPMIC],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "MOST_GROUPS", most_groups)
    model = quick_fit(holes, tol=0.0, **settings)
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.9
    assert min(model.history_["m_steps"]) > 0
    bounds = np.stack([model.history_["bound_after_e"], model.history_["bound"]], axis=1)
    assert (np.diff(bounds.ravel()) >= -1e-6).all()
    np.testing.assert_array_equal(model.predict(holes), model.labels_)
    np.testing.assert_array_equal(model.transform(holes), model.embedding_)


def test_the_committee_votes_on_rows_with_gaps(holes: Floats) -> None:
    settings = QUICK | {"committee": Committee()}
    model = SGPMIC(3).set_params(**settings).fit(holes)
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.9
    assert len(model.committee_) > 4
    assert np.isfinite(model.memberships_).all()


def test_new_rows_may_have_gaps_whatever_was_fitted(fitted: SGPMIC, table: Floats) -> None:
    rows = table[::7] + 0.1
    rows[:, 2] = np.nan
    labels = fitted.predict(rows)
    assert adjusted_rand_score(TRUTH[::7], labels) > 0.9
    for answer in (fitted.transform(rows), fitted.score_samples(rows), *fitted.assess(rows)):
        assert np.isfinite(answer).all()
    # One by one they get the same answers.
    alone = np.concatenate([fitted.transform(row[None]) for row in rows])
    np.testing.assert_array_equal(alone, fitted.transform(rows))


def test_a_density_of_part_of_a_row_is_its_own(fitted: SGPMIC, table: Floats) -> None:
    """Integrating over the missing value gives the density of what is there."""
    row = table[3] + 0.05
    part = row.copy()
    part[1] = np.nan
    grid = np.linspace(row[1] - 15.0, row[1] + 15.0, 600)
    rows = np.tile(row, (len(grid), 1))
    rows[:, 1] = grid
    integral = np.trapezoid(np.exp(fitted.score_samples(rows)), grid)
    # Latent points are integrated out by Laplace's approximation, for every row by itself.
    assert fitted.score_samples(part[None])[0] == pytest.approx(np.log(integral), abs=0.5)


@pytest.mark.slow
@both_ways
def test_imputed_values_and_their_uncertainty(
    holes: Floats, most_groups: int, quick_fit: Callable[..., SGPMIC], monkeypatch: Any
) -> None:
    monkeypatch.setattr(gaps, "MOST_GROUPS", most_groups)
    model = quick_fit(holes)
    values, std = model.impute(holes)
    missing = np.isnan(holes)
    np.testing.assert_array_equal(values[~missing], holes[~missing])
    assert np.isfinite(values).all()
    assert (std[missing] > 0).all()
    assert not std[~missing].any()
    # Against the means of the blobs, which nobody told; rows with one value left are hard.
    means = np.array([np.nanmean(holes[k == TRUTH], axis=0) for k in range(3)])[TRUTH]
    error = np.mean((values - means)[missing] ** 2)
    assert error < 0.3 * np.mean((np.nanmean(holes, axis=0) - means)[missing] ** 2)
    assert 0.5 < std[missing].mean() < 2.5
    whole = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(model.impute(whole).values, whole)


def test_units_do_not_matter_to_imputed_values(
    holes: Floats, quick_fit: Callable[..., SGPMIC]
) -> None:
    units = np.array([1.0, 1024.0, 1.0 / 64, 1.0])
    first = quick_fit(holes, scale="each").impute(holes)
    second = quick_fit(holes * units, scale="each").impute(holes * units)
    np.testing.assert_allclose(second.values, first.values * units, rtol=1e-6)
    np.testing.assert_allclose(second.std, first.std * units, rtol=1e-6)


def test_a_file_holds_a_model_of_a_table_with_gaps(
    holes: Floats, tmp_path: Path, quick_fit: Callable[..., SGPMIC]
) -> None:
    model = quick_fit(holes)
    model.save(tmp_path / "m.sgpmic")
    loaded = SGPMIC.load(tmp_path / "m.sgpmic")
    rows = np.where(np.arange(4) == 1, np.nan, holes[:9] + 0.2)
    rows = rows[~np.isnan(rows).all(axis=1)]
    for name in ("predict_proba", "transform", "score_samples"):
        np.testing.assert_array_equal(getattr(loaded, name)(rows), getattr(model, name)(rows))
    np.testing.assert_array_equal(loaded.impute(rows).values, model.impute(rows).values)
    assert loaded.unusual_below_ == model.unusual_below_


@both_ways
def test_an_interrupted_fit_resumes_to_the_same(
    holes: Floats, most_groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "MOST_GROUPS", most_groups)
    settings = QUICK | {"max_iter": 4, "tol": 0.0, "n_clusters": 3}
    straight = SGPMIC().set_params(**settings).fit(holes)
    settings |= {"computation__checkpoint": tmp_path / "c"}
    with pytest.raises(Interrupted):
        SGPMIC().set_params(**settings, em__callbacks=[stop_at(0, 2)]).fit(holes)
    same(straight, SGPMIC().set_params(**settings).fit(holes))


@pytest.mark.slow
@both_ways
def test_two_devices_find_what_one_does(
    holes: Floats, most_groups: int, quick_fit: Callable[..., SGPMIC], monkeypatch: Any
) -> None:
    monkeypatch.setattr(gaps, "MOST_GROUPS", most_groups)
    settings = {"max_iter": 2, "em__m_steps": 3}
    one = quick_fit(holes, **settings)
    shared = jobs.share(holes)
    assert shared.group.mesh.size == 2
    two = quick_fit(shared, **settings, computation__block_size=15)
    np.testing.assert_allclose(two.history_["bound"], one.history_["bound"], rtol=1e-6)
    np.testing.assert_allclose(two.embedding_, one.embedding_, atol=1e-4)


def test_rows_without_any_value_are_set_aside(
    fitted: SGPMIC, table: Floats, quick_fit: Callable[..., SGPMIC], tmp_path: Path
) -> None:
    empty = np.zeros(len(table) + 2, bool)
    empty[[4, 17]] = True
    Y = np.full((len(empty), table.shape[1]), np.nan)
    Y[~empty] = table
    with pytest.warns(EmptyRowWarning, match=r"2 rows without any value .*4, 17"):
        SGPMIC(3, committee=None, max_iter=1, random_state=0).fit(Y)
    model, whole = quick_fit(Y, max_iter=2), quick_fit(table, max_iter=2)
    model.save(tmp_path / "m.sgpmic")
    for found in (model, SGPMIC.load(tmp_path / "m.sgpmic")):
        assert (found.labels_ == -1).tolist() == empty.tolist()
        for name in ("labels_", "memberships_", "embedding_", "view_"):
            np.testing.assert_array_equal(getattr(found, name)[~empty], getattr(whole, name))
            assert name == "labels_" or np.isnan(getattr(found, name)[empty]).all()
        np.testing.assert_array_equal(found.predict(Y), found.labels_)
        assert np.isfinite(found.score(Y))
    said = fitted.assess(Y)
    assert (said.labels == -1).tolist() == np.isnan(said.log_density).tolist() == empty.tolist()
    assert not said.unusual[empty].any()
    assert fitted.predict(Y[empty]).tolist() == [-1, -1]
    assert np.isnan(fitted.impute(Y).values[empty]).all()


@pytest.mark.parametrize("n_components", [2, 3])
def test_what_is_said_of_clusters_leaves_out_rows_without_any_value(
    table: Floats,
    quick_fit: Callable[..., SGPMIC],
    n_components: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = quick_fit(np.insert(table, 4, np.nan, axis=0), n_components=n_components)
    model.summary()
    said = capsys.readouterr().out
    assert "60 rows in 3 clusters" in said
    assert [line.split("│")[2].strip() for line in said.splitlines() if "│" in line] == ["20"] * 3
    assert "–" not in said  # no mean certainty is unknown


def test_a_feature_without_any_value_is_left_out(table: Floats, tmp_path: Path) -> None:
    three = table[:, :3]
    more = np.insert(three, 2, np.nan, axis=1)
    with pytest.warns(EmptyFeatureWarning, match=r"^1 feature without any value left out: 2\.$"):
        model = SGPMIC(3).set_params(**QUICK).fit(more)
    assert adjusted_rand_score(TRUTH, model.labels_) > 0.9
    # Values that it never saw make no difference.
    rows = np.insert(three[::9] + 0.1, 2, 7.0, axis=1)
    without = np.where(np.arange(4) == 2, np.nan, rows)
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(without))
    drawn = model.inverse_transform(model.embedding_[:3])
    assert np.isnan(drawn[:, 2]).all()
    assert np.isfinite(np.delete(drawn, 2, axis=1)).all()
    model.save(tmp_path / "m.sgpmic")
    loaded = SGPMIC.load(tmp_path / "m.sgpmic")
    np.testing.assert_array_equal(loaded.score_samples(rows), model.score_samples(rows))


@pytest.mark.parametrize("value", [np.nan, 0.1])
def test_the_committee_does_not_count_constant_features(table: Floats, value: float) -> None:
    settings = QUICK | {"committee": Committee(), "max_iter": 1}
    with warnings.catch_warnings(action="ignore"):
        three = SGPMIC(3).set_params(**settings).fit(table[:, :3])
        four = SGPMIC(3).set_params(**settings).fit(np.insert(table[:, :3], 2, value, axis=1))
    assert four.cluster_tendency_ == three.cluster_tendency_
    pd.testing.assert_frame_equal(four.committee_, three.committee_)


@pytest.mark.slow
def test_rows_of_few_cells_are_not_certain() -> None:
    """Their labels are right as often as their memberships say, about."""
    rng = np.random.default_rng(3)
    centers = 2.0 * rng.normal(size=(4, 8))
    labels = rng.integers(4, size=1200)
    rows = centers[labels] + rng.normal(size=(1200, 8))
    model = SGPMIC(4, committee=None, random_state=0).fit(rows[:400])
    names = [np.bincount(labels[:400][model.labels_ == m]).argmax() for m in range(4)]
    for n_cells in (1, 2, 8):
        hidden = rng.permuted(np.tile(np.arange(8), (800, 1)), axis=1) >= n_cells
        found = model.predict_proba(np.where(hidden, np.nan, rows[400:]))
        right = np.mean(np.asarray(names)[found.argmax(axis=1)] == labels[400:])
        assert found.max(axis=1).mean() == pytest.approx(right, abs=0.1)
    # Of a cell that says nothing, what is left are the clusters' weights.
    nothing = np.full((1, 8), np.nan)
    nothing[0, 0] = 0.0
    assert model.predict_proba(nothing).max() < 0.9


def test_a_row_of_one_cell_is_as_certain_as_that_cell_makes_it(
    quick_fit: Callable[..., SGPMIC],
) -> None:
    rng = np.random.default_rng(0)
    Y = np.repeat([[0.0, 0.0, 0.0, 0.0], [9.0, 9.0, 9.0, 0.0]], [40, 20], axis=0)
    Y[:, :3] += rng.normal(size=(60, 3))
    Y[20:, 3] = 4.0  # the other half of the first cluster, and all of the second
    rows_of_one_cell = np.array([[np.nan, np.nan, np.nan, x] for x in (4.0, 0.0)])
    model = quick_fit(np.concatenate([Y, rows_of_one_cell]), 2)
    assert adjusted_rand_score(np.repeat([0, 1], [40, 20]), model.labels_[:60]) == 1.0
    new = model.predict_proba(rows_of_one_cell + 1e-3)
    for half, whole in (model.memberships_[60:], new):
        assert abs(half[0] - 0.5) < 0.05  # 20 of the 40 rows with this cell
        assert whole[0] > 0.99  # 20 of 20
    np.testing.assert_array_equal(model.predict_proba(rows_of_one_cell), model.memberships_[60:])


def test_imputed_cells_are_in_the_columns_of_the_table() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 30)
    table: dict[str, list[Any]] = {
        "size": list(10.0 * group + rng.normal(size=60)),
        "color": [["red", "blue"][g] for g in group],
        "weight": list(5.0 * group + rng.normal(size=60)),
    }
    table["size"][3], table["color"][40] = None, None
    encoder = TableEncoder().fit(table)
    model = SGPMIC(2).set_params(**QUICK).fit(encoder.transform(table))
    model.encoder_ = encoder
    values, std = model.impute(table)
    assert list(values) == ["size", "color", "weight"]
    assert values["color"].tolist() == [["red", "blue"][g] for g in group]
    assert values["size"][3] == pytest.approx(0.0, abs=3.0)
    np.testing.assert_allclose(values["weight"], table["weight"])
    assert list(std) == ["size", "weight"]
    assert 0.1 < std["size"][3] < 6.0
    np.testing.assert_allclose(np.delete(std["size"], 3), 0.0, atol=1e-12)
