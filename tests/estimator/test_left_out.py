"""Densities of fitted rows under the model of all the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import betabinom
from sklearn.datasets import load_iris, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import scale
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC
from sgpmic._runtime import numerics
from sgpmic.model.bound import factorize_all, sums
from sgpmic.model.prediction import left_out, make_posterior, mapping_moments
from sgpmic.model.rows import Rows, make_rows

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def few_shapes() -> None:
    """Leave features without padding, to compare posteriors."""


moments = jax.jit(mapping_moments)


def moments_without(predictor: Any, points: Floats, n: int, S: Floats, Y: Floats) -> Any:
    """Return the moments at points of the mappings without row n."""
    repeated = [np.repeat(a[[n]], len(points), axis=0) for a in (predictor.X, S, Y)]
    without = jax.jit(left_out)(predictor.posterior, predictor.A_inverse, *repeated, None)
    return moments(predictor.posterior, points, without)


@pytest.mark.parametrize("mapping", ["shared", "per_cluster"])
def test_the_posterior_without_a_row_is_that_of_the_other_rows(table: Floats, mapping: str) -> None:
    model = SGPMIC(3, mapping=mapping).set_params(**QUICK).fit(table)
    predictor: Any = model._predictor
    Y, posterior = predictor.scaler.transform(table), predictor.posterior
    S = predictor.S if mapping == "per_cluster" else np.ones((len(Y), 1))

    @jax.jit
    def posterior_of(weights: Any, rows: Rows) -> Any:
        mappings = jax.tree.map(jnp.asarray, posterior.mappings)
        phi, psi = sums(mappings, jnp.asarray(predictor.X), weights, rows)
        factors = factorize_all(mappings, phi, psi, predictor.jitter)
        return make_posterior(mappings, factors, posterior.mixture, rows)

    with numerics():
        rows = make_rows(Y, len(Y))
        for n in (0, 31, 59):
            without = S.copy()
            without[n] = 0.0
            expected = posterior_of(without, rows)
            points = np.random.default_rng(n).normal(size=(7, 2))
            found = moments_without(predictor, points, n, S, Y)
            for ours, theirs in zip(found, moments(expected, points, None), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


def test_new_rows_look_like_rows_that_were_left_out() -> None:
    """And not like rows that were fitted, which have shaped the model."""
    Y = scale(load_wine().data)
    is_new = np.arange(len(Y)) % 5 == 0
    model = SGPMIC(3, random_state=0).fit(Y[~is_new])
    new = np.median(model.score_samples(Y[is_new]))
    seen = np.median(model.score_samples(Y[~is_new]))
    left = np.median(model._predictor._densities.left_out)
    assert new < seen
    assert abs(new - left) < abs(new - seen)


def test_a_model_from_a_file_knows_what_is_unusual(table: Floats, tmp_path: Path) -> None:
    model = SGPMIC(3).set_params(**QUICK).fit(table)
    model.save(tmp_path / "model.sgpmic")
    loaded = SGPMIC.load(tmp_path / "model.sgpmic")
    assert loaded.unusual_below_ == model.unusual_below_
    rows = np.concatenate([table[:5] + 0.1, table[:5] + 40.0])
    np.testing.assert_array_equal(loaded.is_outlier(rows), np.repeat([False, True], 5))
    np.testing.assert_array_equal(loaded.assess(rows).unusual, loaded.is_outlier(rows))


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_densities_of_new_rows_are_no_worse_than_a_mixture_s(load: Any) -> None:
    Y = load().data
    ours, theirs = [], []
    for fold in range(4):
        is_new = np.arange(len(Y)) % 4 == fold
        model = SGPMIC(3, random_state=0).fit(Y[~is_new])
        mixture = GaussianMixture(3, n_init=5, random_state=0).fit(Y[~is_new])
        ours.append(model.score(Y[is_new]))
        theirs.append(mixture.score(Y[is_new]))
    assert np.mean(ours) > np.mean(theirs) - 0.1


def draw(kind: str, n_rows: int, seed: int) -> Floats:
    """Return rows of clusters that are normal, have heavy tails, or are bent."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n_rows)[:, None]
    if kind == "normal":
        return 6.0 * label + rng.normal(size=(n_rows, 5)) * [1.0, 0.5, 1.0, 2.0, 1.0]
    if kind == "heavy":
        return 12.0 * label + rng.standard_t(5, size=(n_rows, 4))
    angle = rng.uniform(0.0, 3.0, size=(n_rows, 1))
    moons = np.hstack([np.cos(angle) + label, np.sin(angle) * (1 - 2 * label) + label / 2.0])
    axes = np.random.default_rng(7).normal(size=(2, 6))
    return moons @ axes + 0.1 * rng.normal(size=(n_rows, 6))


@pytest.mark.parametrize("kind", ["normal", "heavy", "bent"])
def test_outliers_among_new_rows_are_as_many_as_it_says(kind: str) -> None:
    model = SGPMIC(2, committee=None, random_state=0).fit(draw(kind, 1000, 0))
    found = np.mean(model.is_outlier(draw(kind, 10_000, 1)))
    # The limit is the fifth lowest of 1000: the share below it is distributed as Beta(5, 996), and
    # its number among new rows binomially. So 99 % of the shares are between these.
    low, high = betabinom(10_000, 5, 996).ppf([0.005, 0.995]) / 10_000
    assert low <= found <= high


def test_unusual_is_the_old_name_of_is_outlier(fitted: SGPMIC, table: Floats) -> None:
    rows = np.concatenate([table, table[:5] + 40.0])
    with pytest.warns(FutureWarning, match="is_outlier"):
        np.testing.assert_array_equal(fitted.unusual(rows), fitted.is_outlier(rows))
