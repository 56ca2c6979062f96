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
from sgpmic.learning.preprocessing import fit_scaler
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


def test_auto_tells_one_unit_from_many() -> None:
    assert kind_of(load_iris().data) == "one"  # centimetres
    assert kind_of(load_digits().data) == "one"  # pixels, some of which never change
    counts = np.random.default_rng(0).poisson(np.linspace(1, 5, 40), size=(300, 40))
    assert kind_of(counts) == "one"
    assert kind_of(load_wine().data) == "each"
    assert kind_of(load_breast_cancer().data) == "each"
    people = np.random.default_rng(0).normal([170, 70, 35_000], [10, 12, 9_000], size=(200, 3))
    assert kind_of(people) == "each"
    assert kind_of(people[:, :1]) == "one"  # one feature is of one unit
    assert kind_of(np.zeros((5, 3))) == "one"


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


def test_wine_needs_no_scaler_any_more() -> None:
    Y, classes = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        auto = SGPMIC(3, committee=None, random_state=0).fit(Y)
        one = SGPMIC(3, scale="one", committee=None, random_state=0).fit(Y)
    assert adjusted_rand_score(classes, auto.labels_) > 0.75
    assert adjusted_rand_score(classes, one.labels_) < 0.5


def test_a_kernel_in_the_units_of_the_data_wants_one_unit() -> None:
    model = SGPMIC.as_published(3, scale="each")
    with pytest.raises(ValueError, match="scale='one'"):
        model.fit(load_iris().data)
