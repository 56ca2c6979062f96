"""Expectations of missing cells: the factor model, and what users are given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons

from sgpmic.learning import gaps
from sgpmic.learning.gaps import FactorModel, fill_from_nearest, fit_factors, impute_cells


def low_rank(n_rows: int = 300, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scores, loadings = rng.normal(size=(n_rows, 2)), rng.normal(size=(2, 8))
    return scores @ loadings + noise * rng.normal(size=(n_rows, 8)) + rng.normal(size=8)


def holes(Y: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    missing = np.random.default_rng(seed).random(Y.shape) < share
    missing[missing.all(axis=1), 0] = False
    return np.where(missing, np.nan, Y)


def test_expectations_are_those_of_a_conditional_normal_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "_PART", 100)  # several parts
    rng = np.random.default_rng(0)
    model = FactorModel(rng.normal(size=5), rng.normal(size=(5, 2)), rng.uniform(0.2, 1.0, 5))
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    Y = holes(rng.normal(size=(40, 5)), 0.4)
    mean, variance = model.expected(Y)
    for row, row_mean, row_variance in zip(Y, mean, variance, strict=True):
        has = ~np.isnan(row)
        gain = np.linalg.solve(covariance[np.ix_(has, has)], covariance[np.ix_(has, ~has)]).T
        expected = model.mean[~has] + gain @ (row[has] - model.mean[has])
        left = covariance[np.ix_(~has, ~has)] - gain @ covariance[np.ix_(has, ~has)]
        np.testing.assert_allclose(row_mean[~has], expected, atol=1e-12)
        np.testing.assert_allclose(row_variance[~has], np.diag(left), atol=1e-12)


def test_draws_have_the_conditional_normal_distribution() -> None:
    rng = np.random.default_rng(0)
    model = FactorModel(rng.normal(size=4), rng.normal(size=(4, 2)), rng.uniform(0.2, 1.0, 4))
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    row = np.array([np.nan, 1.0, np.nan, -1.0])
    has = ~np.isnan(row)
    gain = np.linalg.solve(covariance[np.ix_(has, has)], covariance[np.ix_(has, ~has)]).T
    expected = model.mean[~has] + gain @ (row[has] - model.mean[has])
    left = covariance[np.ix_(~has, ~has)] - gain @ covariance[np.ix_(has, ~has)]
    drawn = model.draw(np.tile(row, (100_000, 1)), rng)
    assert (drawn[:, has] == row[has]).all()
    np.testing.assert_allclose(drawn[:, ~has].mean(axis=0), expected, atol=0.01)
    np.testing.assert_allclose(np.cov(drawn[:, ~has].T), left, atol=0.02)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_cells_of_a_table_with_two_factors_are_found(share: float) -> None:
    Y = low_rank()
    with_holes = holes(Y, share)
    model = fit_factors(with_holes)
    completed = model.complete(with_holes)
    missing = np.isnan(with_holes)
    np.testing.assert_array_equal(completed[~missing], Y[~missing])
    error = np.sqrt(np.mean((completed - Y)[missing] ** 2))
    # With half of the cells gone, some rows have too few left to tell both scores.
    assert error < (0.2 if share < 0.3 else 0.7)
    _, variance = model.expected(with_holes)
    standard = ((completed - Y) / np.sqrt(variance))[missing]
    assert np.mean(np.abs(standard) < 1.645) == pytest.approx(0.9, abs=0.05)


def test_noise_is_not_taken_for_factors() -> None:
    """Cells of noise are best guessed by their means, however few rows there are."""
    noise = np.random.default_rng(0).normal(size=(60, 10))
    Y = holes(noise, 0.3)
    missing = np.isnan(Y)
    by_mean = np.mean((np.nanmean(Y, axis=0) - noise)[missing] ** 2)
    by_factors = np.mean((fit_factors(Y).complete(Y) - noise)[missing] ** 2)
    assert by_factors < 1.15 * by_mean


def test_odd_tables_have_expectations_too() -> None:
    empty = np.full((5, 2), np.nan)
    empty[:, 0] = np.arange(5.0)
    for Y in (np.zeros((4, 3)), np.arange(4.0)[:, None], empty, np.full((3, 2), np.nan)):
        model = fit_factors(Y)
        assert np.isfinite(model.complete(Y)).all()


def test_more_rows_than_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "MOST_ROWS", 100)
    Y = low_rank()
    with_holes = holes(Y, 0.2)
    error = (fit_factors(with_holes).complete(with_holes) - Y)[np.isnan(with_holes)]
    assert np.sqrt(np.mean(error**2)) < 0.3


def test_cells_of_curved_clusters_come_from_the_nearest_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "_PART", 5000)  # several parts
    X, _ = make_moons(400, noise=0.05, random_state=0)
    rng = np.random.default_rng(2)
    Y = np.cos(X @ rng.normal(size=(2, 8)) + rng.normal(size=8))
    with_holes = holes(Y, 0.3)
    missing = np.isnan(with_holes)
    expected = fit_factors(with_holes).complete(with_holes)
    filled = fill_from_nearest(with_holes, expected, with_holes, expected)
    np.testing.assert_array_equal(filled[~missing], Y[~missing])
    errors = [np.sqrt(np.mean((found - Y)[missing] ** 2)) for found in (expected, filled)]
    assert errors[1] < 0.8 * errors[0]
    # One cell by hand: the first five of the nearest rows that have it.
    row, cell = np.argwhere(missing)[0]
    nearest = np.argsort(np.sum((expected - expected[row]) ** 2, axis=1), kind="stable")
    have = [number for number in nearest if not missing[number, cell]][:5]
    assert filled[row, cell] == pytest.approx(Y[have, cell].mean())


def test_a_cell_that_no_near_row_has_keeps_its_expectation() -> None:
    Y = np.array([[0.0, np.nan, 1.0], [1.0, np.nan, np.nan]])
    filled = fill_from_nearest(Y, np.nan_to_num(Y, nan=7.0), Y, np.nan_to_num(Y, nan=7.0))
    np.testing.assert_array_equal(filled, [[0.0, 7.0, 1.0], [1.0, 7.0, 1.0]])


def test_imputed_cells_are_means_of_both_predictions() -> None:
    """On a curve, cells are not linear in each other, and near rows know more."""
    t = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
    Y = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t), np.sin(2 * t), np.cos(3 * t)])
    with_holes = holes(Y, 0.2)
    missing, factors = np.isnan(with_holes), fit_factors(with_holes)
    values, std = impute_cells(with_holes, factors, with_holes)
    linear = factors.complete(with_holes)
    nearest = fill_from_nearest(with_holes, linear, with_holes, linear)
    np.testing.assert_allclose(values, (linear + nearest) / 2.0)
    np.testing.assert_array_equal(values[~missing], Y[~missing])
    assert np.mean((values - Y)[missing] ** 2) < 0.75 * np.mean((linear - Y)[missing] ** 2)
    assert not std[~missing].any()
    assert np.mean(np.abs(values - Y)[missing] < 1.645 * std[missing]) > 0.85
