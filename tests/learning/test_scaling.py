"""How features are brought to one unit."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from sgpmic import EM, SGPMIC
from sgpmic.learning.preprocessing import fit_scaler, of_one_unit
from sgpmic.process_group import ProcessGroup

SETTINGS: dict[str, Any] = {
    "committee": None,
    "max_iter": 2,
    "em": EM(m_steps=5),
    "random_state": 0,
}


def kind_of(Y: Any) -> str:
    Y = np.asarray(Y, dtype=float)
    return fit_scaler(Y, ProcessGroup(len(Y)), "auto").kind


def test_auto_divides_each_feature_unless_one_unit_is_evident() -> None:
    rng = np.random.default_rng(0)
    assert kind_of(load_digits().data) == "one"  # pixels, some of which never change
    counts = rng.poisson(np.linspace(1, 5, 40), size=(300, 40))
    assert kind_of(counts) == "one"
    wavelengths = np.linspace(0, 1, 120)
    peaks = np.exp(-(((wavelengths - rng.uniform(0.2, 0.8, size=(90, 1))) / 0.1) ** 2))
    assert kind_of(peaks + 0.05 * rng.normal(size=(90, 120))) == "one"
    expression = np.log1p(rng.poisson(rng.gamma(1.0, 20.0, size=500), size=(80, 500)))
    assert kind_of(expression) == "one"
    assert kind_of(load_iris().data) == "each"
    assert kind_of(load_wine().data) == "each"
    assert kind_of(load_breast_cancer().data) == "each"
    assert kind_of(np.hstack([counts, rng.normal(size=(300, 40))])) == "each", "two number types"
    assert kind_of(np.hstack([counts, 1000 * counts])) == "each"
    assert kind_of(np.zeros((5, 3))) == "each"


# Lowest and highest values of the columns of numbers, as R's data sets package (USArrests), ISLR
# (College, Auto) and palmerpenguins have them, and whether all are whole.
RANGES = {
    "USArrests": "0.8 17.4 n, 45 337 y, 32 91 y, 7.3 46 n",
    "penguins": "32.1 59.6 n, 13.1 21.5 n, 172 231 y, 2700 6300 y",
    "Auto": "9 46.6 n, 3 8 y, 68 455 n, 46 230 y, 1613 5140 y, 8 24.8 n, 70 82 y",
    "College": "81 48094 y, 72 26330 y, 35 6392 y, 1 96 y, 9 100 y, 139 31643 y, 1 21836 y, "
    "2340 21700 y, 1780 8124 y, 96 2340 y, 250 6800 y, 8 103 y, 24 100 y, 2.5 39.8 n, 0 64 y, "
    "3186 56233 y, 10 118 y",
}


@pytest.mark.parametrize("name", RANGES)
def test_a_few_measurements_of_different_things_are_not_of_one_unit(name: str) -> None:
    columns = [column.split() for column in RANGES[name].split(", ")]
    ranges = np.array([float(high) - float(low) for low, high, _ in columns])
    assert not of_one_unit(ranges, np.array([whole == "y" for *_, whole in columns]))


@pytest.mark.parametrize("scale", ["each", "one", "none"])
def test_scaling_is_undone(scale: str) -> None:
    Y = load_wine().data
    scaler = fit_scaler(Y, ProcessGroup(len(Y)), scale)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(Y)), Y, rtol=1e-12)
    deviations = scaler.transform(Y).std(axis=0)
    if scale == "each":
        np.testing.assert_allclose(deviations, 1.0)
    elif scale == "one":
        assert np.mean(deviations**2) == pytest.approx(1.0)
    else:
        np.testing.assert_allclose(deviations, Y.std(axis=0))
    assert scaler.mean_variance == pytest.approx(np.mean(deviations**2))
    assert scaler.log_volume == pytest.approx(-np.log(scaler.scale).sum())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_each_is_what_a_standard_scaler_in_front_would_do(tmp_path: Path) -> None:
    """Labels and places are the same, densities differ by the change of units; in files too."""
    Y = load_wine().data
    scaler = StandardScaler().fit(Y)
    inside = SGPMIC(3, scale="each", **SETTINGS).fit(Y)
    outside = SGPMIC(3, scale="one", **SETTINGS).fit(scaler.transform(Y))
    np.testing.assert_array_equal(inside.labels_, outside.labels_)
    # The same numbers but for rounding, which line searches amplify.
    np.testing.assert_allclose(inside.embedding_, outside.embedding_, atol=0.05)
    new = Y[:20] * 1.01
    inside.save(tmp_path / "model.sgpmic")
    for model in (inside, SGPMIC.load(tmp_path / "model.sgpmic")):
        np.testing.assert_allclose(
            model.score_samples(new),
            outside.score_samples(scaler.transform(new)) - np.log(scaler.scale_).sum(),
            atol=0.1,
        )
        np.testing.assert_allclose(
            model.inverse_transform(outside.embedding_[:5]),
            scaler.inverse_transform(outside.inverse_transform(outside.embedding_[:5])),
            rtol=1e-2,
        )
        assert model.scaler_.kind == "each"
    drawn = inside.sample(500)[0]
    assert np.all(np.abs(np.median(drawn, axis=0) - np.median(Y, axis=0)) < 2 * Y.std(axis=0))


@pytest.mark.slow
def test_wine_needs_no_scaler_any_more() -> None:
    Y, classes = load_wine(return_X_y=True)
    with warnings.catch_warnings(action="ignore"):
        auto = SGPMIC(3, committee=None, random_state=0).fit(Y)
        one = SGPMIC(3, scale="one", committee=None, random_state=0).fit(Y)
    assert adjusted_rand_score(classes, auto.labels_) > 0.75
    assert adjusted_rand_score(classes, one.labels_) < 0.5


def test_a_kernel_in_the_units_of_the_data_wants_one_unit() -> None:
    model = SGPMIC.as_published(3, scale="each")
    with pytest.raises(ValueError, match="scale='one'"):
        model.fit(load_iris().data)
