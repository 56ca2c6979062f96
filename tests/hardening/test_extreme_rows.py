"""Rows at the ends of what a number can be, and rows that are equal: finite and consistent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cli.helpers import values

from sgpmic import SGPMIC
from sgpmic.learning.prediction.predictor import answer_alike, sorted_fingerprints

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

QUICK: dict[str, Any] = {
    "committee": None,
    "max_iter": 2,
    "n_inducing": 10,
    "random_state": 0,
}


def fitted(Y: np.ndarray, n_clusters: int, **more: Any) -> SGPMIC:
    return SGPMIC(n_clusters).set_params(**(QUICK | more)).fit(Y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_rows_as_far_away_as_can_be() -> None:
    model = fitted(values(), 3)
    sizes = [1e18, 1e77, 1e100, 1e153, 1e154, 1e155, 1e300, np.finfo(float).max]
    far = np.array([[sign * size, 2.0, 3.0] for size in sizes for sign in (1.0, -1.0)])
    rows = np.vstack([values()[:1] + 0.1, far])
    found = model.assess(rows)
    for array in (found.memberships, found.embedding, found.log_density):
        assert np.isfinite(array).all()
    np.testing.assert_allclose(found.memberships.sum(axis=1), 1.0)
    assert found.unusual[1:].all()
    assert not found.unusual[0]
    # Farther away is never more likely.
    assert (np.diff(found.log_density[1::2]) <= 0).all()
    # However far the others are, an ordinary row gets its own answer.
    np.testing.assert_array_equal(model.predict_proba(rows[:1]), found.memberships[:1])
    np.testing.assert_array_equal(model.predict(rows), found.labels)
    assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize(
    ("Y", "n_clusters"),
    [
        pytest.param(np.ones((2, 3)), 2, marks=pytest.mark.slow),
        (np.full((30, 3), 5.0), 3),
        (np.full((30, 3), 0.1), 3),
    ],
    ids=["two", "thirty", "thirty that round"],
)
def test_rows_that_are_all_equal(Y: np.ndarray, n_clusters: int) -> None:
    model = fitted(Y, n_clusters)
    assert len(set(model.labels_)) == 1
    np.testing.assert_array_equal(model.predict(Y), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(Y), model.memberships_)
    assert np.isfinite(model.score_samples(Y)).all()
    assert np.isfinite(model.score_samples(Y + 1.0)).all()
    assert np.isfinite(model.embedding_).all()


def test_equal_rows_among_others_get_one_answer() -> None:
    Y = np.vstack([values(), values()[::7], values()[3:4].repeat(5, axis=0)])
    model = fitted(Y, 3, max_iter=1)
    _, place = np.unique(Y, axis=0, return_inverse=True)
    for array in (model.labels_, model.memberships_, model.embedding_):
        for group in range(place.max() + 1):
            own = array[place.reshape(-1) == group]
            assert (own == own[0]).all()
    np.testing.assert_array_equal(model.predict(Y), model.labels_)
    np.testing.assert_array_equal(model.transform(Y), model.embedding_)


def test_equal_rows_have_the_mean_of_what_was_found() -> None:
    Y = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [-0.0, 1.0], [7.0, 7.0]])
    S = np.array([[1.0, 0.0], [0.2, 0.8], [0.5, 0.5], [0.4, 0.6], [0.3, 0.7]])
    found = answer_alike(sorted_fingerprints(Y), S)
    expected = [[0.75, 0.25], [0.3, 0.7], [0.75, 0.25], [0.3, 0.7], [0.3, 0.7]]
    np.testing.assert_allclose(found, expected)
    assert (found[4] == S[4]).all()
    assert S[0, 0] == 1.0, "what was given is left alone"
