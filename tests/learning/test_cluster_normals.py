"""Densities by the clusters' own normal distributions, and how much they count."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal

from sgpmic.learning.gaps import fit_factors
from sgpmic.learning.prediction import cluster_normals
from sgpmic.learning.prediction.cluster_normals import (
    ClusterNormals,
    best_share,
    fit_normals,
    left_out_log_density,
    lower_limit,
    mixed,
)


def two_clouds(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = np.array([[1.0, 0.0, 0.0], [0.9, 0.3, 0.0], [0.0, 0.5, 1.0]])
    labels = rng.integers(2, size=n_rows)
    return rng.normal(size=(n_rows, 3)) @ root.T + 8.0 * labels[:, None], np.eye(2)[labels]


def covariances(normals: ClusterNormals) -> np.ndarray:
    loadings = normals.axes @ normals.roots
    found: np.ndarray = loadings @ loadings.swapaxes(1, 2) + np.diag(normals.noise)
    return found


@pytest.mark.parametrize("most_axes", [100, 2])
def test_densities_are_those_of_scipy_also_of_parts_of_rows(
    most_axes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_normals, "_MOST_AXES", most_axes)
    Y, S = two_clouds(50)
    normals = fit_normals(Y, S, None)
    assert normals.roots.shape == (2, min(most_axes, 3), min(most_axes, 3))
    rows = Y[:9].copy()
    rows[3:6, 1] = np.nan
    rows[6:, [0, 2]] = np.nan
    for row, found in zip(rows, normals.log_density(rows), strict=True):
        has = ~np.isnan(row)
        terms = [
            weight * multivariate_normal.pdf(row[has], mean[has], covariance[np.ix_(has, has)])
            for weight, mean, covariance in zip(
                normals.weights, normals.means, covariances(normals), strict=True
            )
        ]
        assert found == pytest.approx(np.log(sum(terms)), rel=1e-9)


def test_moments_are_found_with_and_without_gaps() -> None:
    Y, S = two_clouds(4000)
    missing = np.random.default_rng(1).random(Y.shape) < 0.2
    missing[missing.all(axis=1)] = False
    with_gaps = np.where(missing, np.nan, Y)
    for rows, factors in ((Y, None), (with_gaps, fit_factors(with_gaps))):
        normals = fit_normals(rows, S, factors)
        for m in range(2):
            own = Y[S[:, m] > 0]
            np.testing.assert_allclose(normals.means[m], own.mean(axis=0), atol=0.3)
            np.testing.assert_allclose(covariances(normals)[m], np.cov(own.T), atol=0.6)


def test_rows_that_are_left_out_are_less_likely() -> None:
    Y, S = two_clouds(40)
    fitted = fit_normals(Y, S, None).log_density(Y).mean()
    new = fit_normals(Y, S, None).log_density(two_clouds(4000, seed=5)[0]).mean()
    left = left_out_log_density(Y, S, None).mean()
    assert left < fitted
    assert abs(left - new) < abs(fitted - new)


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.ones((40, 1)), np.eye(12, 30)])
def test_degenerate_rows_have_finite_densities(rows: np.ndarray) -> None:
    S = np.eye(2)[np.arange(len(rows)) % 2]
    assert np.isfinite(left_out_log_density(rows, S, None)).all()


def test_a_cluster_without_rows_adds_nothing() -> None:
    Y, S = two_clouds(30)
    more = np.column_stack([S, np.zeros(len(S))])
    found = fit_normals(Y, more, None)
    assert isinstance(found, ClusterNormals)
    np.testing.assert_allclose(
        found.log_density(Y), fit_normals(Y, S, None).log_density(Y), rtol=1e-12
    )


def test_the_share_is_the_one_that_fits_best() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 200))
    share = best_share(first, second)
    grid = np.linspace(0.001, 0.999, 999)
    fits = [mixed(first, second, each).sum() for each in grid]
    assert share == pytest.approx(grid[int(np.argmax(fits))], abs=0.01)
    assert best_share(first, first - 900.0) > 0.99
    assert best_share(first - 900.0, first) < 0.01


def test_many_features_cost_no_matrix_of_features_by_features() -> None:
    """A matrix of 20 000 by 20 000 would take 3.2 GB, and minutes to factorize."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    Y = rng.normal(size=(60, 20_000)) + 2.0 * labels[:, None]
    tracemalloc.start()
    normals = fit_normals(Y, np.eye(2)[labels], None)
    densities = normals.log_density(np.concatenate([Y, Y + 5.0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * Y.nbytes
    assert max(array.size for array in normals) <= 20_000 * 15
    assert densities[60:].max() < densities[:60].min()


@pytest.mark.parametrize("n", [60, 250, 1000])
def test_new_values_are_below_the_limit_as_often_as_it_says(n: int) -> None:
    """Chi-squared values have known probabilities; the mean over tables is unbiased."""
    rng = np.random.default_rng(0)
    found = [chi2.sf(-lower_limit(-rng.chisquare(5, size=n), 0.005), 5) for _ in range(400)]
    # Of n values with a share p below, the number below has the variance np(1 − p) ≈ np.
    error = np.sqrt(0.005 / n / 400)
    assert np.mean(found) == pytest.approx(0.005, abs=3.0 * error + (0.0005 if n < 200 else 0.0))
