"""``latent='variational'``: no clusters where there are none, and everything a model can do."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC, jobs
from sgpmic.exceptions import DeadClusterWarning

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


@pytest.fixture(scope="module")
def noise() -> SGPMIC:
    Y = np.random.default_rng(0).normal(size=(250, 6))
    with pytest.warns(DeadClusterWarning, match="do not support so many"):
        return SGPMIC(3, latent="variational", committee=None, random_state=0).fit(Y)


def test_noise_has_one_cluster(noise: SGPMIC) -> None:
    assert np.bincount(noise.labels_, minlength=3)[0] == 250
    # Its latent points are as uncertain as the one cluster is wide: nothing is known about them.
    assert noise.embedding_std_.mean() > 5 * noise.embedding_.std()
    spread = np.sqrt(np.diagonal(noise.covariances_[0]))
    np.testing.assert_allclose(noise.embedding_std_.mean(axis=0), spread, rtol=0.1)


def test_overlapping_blobs_stay_three() -> None:
    rng = np.random.default_rng(0)
    centers = np.zeros((3, 6))
    centers[1, 0] = centers[2, 1] = 3.0
    y = np.arange(250) % 3
    Y = 0.6 * rng.normal(size=(250, 6)) + centers[y]
    model = SGPMIC(3, latent="variational", committee=None, scale="one", random_state=0).fit(Y)
    assert adjusted_rand_score(y, model.labels_) >= 0.95
    bounds = np.array([model.history_["bound_after_e"], model.history_["bound"]]).T.ravel()
    assert np.all(np.diff(bounds) >= -1e-7 * np.abs(bounds[1:]))


@pytest.fixture(scope="module")
def model(table: Floats) -> SGPMIC:
    with warnings.catch_warnings(action="ignore"):
        return SGPMIC(
            3, latent="variational", committee=None, n_inducing=10, max_iter=3, random_state=0
        ).fit(table)


def test_a_training_row_gets_its_own_answer(model: SGPMIC, fitted: SGPMIC, table: Floats) -> None:
    assert not hasattr(fitted, "embedding_std_")  # point estimates
    assert model.embedding_std_.shape == model.embedding_.shape
    assert np.all(model.embedding_std_ > 0)
    np.testing.assert_array_equal(model.transform(table), model.embedding_)
    np.testing.assert_array_equal(model.predict_proba(table), model.memberships_)


def test_new_rows(model: SGPMIC, table: Floats) -> None:
    new = table + 0.05
    agreement = np.mean(model.predict(new) == model.labels_)
    assert agreement == 1.0
    proba = model.predict_proba(new)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    # A row far away is less likely than any of these.
    assert model.score_samples(table[:1] + 30.0)[0] < model.score_samples(new).min()
    rows, labels = model.sample(50)
    assert rows.shape == (50, 4)
    assert labels.shape == (50,)


def test_a_model_file_keeps_it(model: SGPMIC, table: Floats, tmp_path: Path) -> None:
    model.save(tmp_path / "m.sgpmic")
    loaded = SGPMIC.load(tmp_path / "m.sgpmic")
    assert loaded.latent == "variational"
    np.testing.assert_array_equal(loaded.embedding_std_, model.embedding_std_)
    np.testing.assert_array_equal(
        loaded.predict_proba(table + 0.1), model.predict_proba(table + 0.1)
    )


@pytest.mark.slow
def test_it_resumes_from_a_checkpoint(table: Floats, quick_fit: Fit, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"latent": "variational", "tol": 0.0}
    straight = quick_fit(table, **settings)

    class Interrupted(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.iteration == 2:
            raise Interrupted

    kept = {"computation__checkpoint": tmp_path / "c"}
    with pytest.raises(Interrupted):
        quick_fit(table, **settings, **kept, em__callbacks=[stop])
    resumed = quick_fit(table, **settings, **kept)
    for name in ("embedding_", "embedding_std_", "memberships_"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(straight, name))
    assert resumed.lower_bound_ == straight.lower_bound_


@pytest.mark.slow
def test_two_devices_find_what_one_does(table: Floats, quick_fit: Fit) -> None:
    settings: dict[str, Any] = {
        "latent": "variational",
        "mapping": "per_cluster",
        "max_iter": 2,
        "em__optimizer": "lbfgs",
        "em__m_steps": 3,
    }
    one = quick_fit(table, **settings)
    shared = jobs.share(table)
    assert shared.group.mesh.size == 2
    two = quick_fit(shared, **settings, computation__block_size=15)
    np.testing.assert_allclose(two.history_["bound"], one.history_["bound"], rtol=1e-6)
    np.testing.assert_allclose(two.embedding_std_, one.embedding_std_, rtol=1e-3)
    assert not np.array_equal(one.embedding_std_, np.full_like(one.embedding_std_, 0.3))


def test_another_latent_is_refused(table: Floats) -> None:
    with pytest.raises(ValueError, match="latent"):
        SGPMIC(3, latent="exact").fit(table)
