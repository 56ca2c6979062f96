"""What a committee does to a fit: labels, memberships, new rows, files, and several starts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC, Committee
from sgpmic.committee.members import MEMBERS
from sgpmic.committee.voting import Vote
from sgpmic.learning.preprocessing import AS_GIVEN

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


@pytest.fixture(scope="module")
def wine() -> SGPMIC:
    """Return a fit that has everything."""
    return SGPMIC(3, max_iter=3, random_state=0).fit(load_wine().data)


def test_wine(wine: SGPMIC) -> None:
    """Near k-means of the standardized features, which has 0.90."""
    assert adjusted_rand_score(load_wine().target, wine.labels_) > 0.85
    np.testing.assert_allclose(wine.memberships_.sum(axis=1), 1.0)
    np.testing.assert_array_equal(wine.memberships_.argmax(axis=1), wine.labels_)
    certainty = wine.memberships_.max(axis=1)
    right = wine.labels_ == np.array([1, 0, 2])[load_wine().target]
    assert certainty[right].mean() > certainty[~right].mean() + 0.1


def test_every_member_is_listed(wine: SGPMIC) -> None:
    members = wine.committee_
    assert set(members["name"]) == set(MEMBERS)
    assert members["reason"].isna().all()
    assert members["weight"].sum() == pytest.approx(1.0)
    assert members["weight"].is_monotonic_decreasing
    assert members[["expected", "agreement"]].stack().between(-0.5, 1.0).all()


def test_who_cannot_vote_says_why(table: Floats, quick_fit: Fit) -> None:
    """Subspaces are not looked for in so few features."""
    members = quick_fit(table, committee=Committee()).committee_
    silent = members.iloc[-1]
    assert members["reason"][:-1].isna().all()
    assert silent["weight"] == 0.0
    assert "features" in silent["reason"]


@pytest.mark.slow
def test_bound_rises_with_votes(table: Floats, quick_fit: Fit) -> None:
    for mapping in ("shared", "per_cluster"):
        model = quick_fit(table, mapping=mapping, committee=Committee(), max_iter=4, tol=0.0)
        history = model.history_
        course = np.ravel(np.column_stack([history["bound_after_e"], history["bound"]]))
        assert (np.diff(course) > -1e-9 * np.abs(course[1:])).all()


def test_strength_decides_how_far_the_model_moves_the_votes(quick_fit: Fit) -> None:
    """Of overlapping blobs, where votes differ."""
    rng = np.random.RandomState(0)
    Y = np.repeat([0.0, 2.5], 60)[:, None] + rng.standard_normal((120, 3))
    spread = [
        quick_fit(Y, 2, committee=Committee(strength=s)).memberships_.max(axis=1)
        for s in (1.0, 10.0, 1e6)
    ]
    assert spread[0].mean() > spread[1].mean() > spread[2].mean()
    strong = quick_fit(Y, 2, committee=Committee(strength=1e9))
    votes = strong._predictor.reference.votes
    np.testing.assert_allclose(strong.memberships_, votes, atol=1e-6)


def test_equal_votes_of_strength_one_are_no_votes(
    table: Floats, quick_fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bayes' rule with a uniform prior: the plain model from the same start."""
    start = np.full((60, 3), 0.2) + 0.4 * np.eye(3)[np.repeat(np.arange(3), 20)]
    plain = quick_fit(table, start__memberships=start)

    even = Vote(np.full((60, 3), 1.0 / 3.0), (), {})
    monkeypatch.setattr("sgpmic.learning.run.vote_on", lambda *_: even)
    # A start that is given is in the order of the table, and so is the fit.
    monkeypatch.setattr("sgpmic.learning.run.canonical_order", lambda *_: AS_GIVEN)
    monkeypatch.setattr(
        "sgpmic.learning.initialization.initial_memberships", lambda X, k, method, rng: start
    )
    voted = quick_fit(table, committee=Committee(strength=1.0))
    np.testing.assert_allclose(voted.memberships_, plain.memberships_, atol=1e-6)
    np.testing.assert_allclose(voted.embedding_, plain.embedding_, atol=1e-5)
    # The bound has lost the uniform prior's constant, a logarithm of 3 for every row.
    assert voted.lower_bound_ == pytest.approx(plain.lower_bound_ - 60 * np.log(3.0), rel=1e-7)


def test_new_rows_agree_with_training_rows_beside_them(wine: SGPMIC) -> None:
    Y = load_wine().data
    np.testing.assert_array_equal(wine.predict_proba(Y), wine.memberships_)
    moved = wine.predict_proba(Y * (1.0 + 1e-6))
    assert np.mean(moved.argmax(axis=1) == wine.labels_) > 0.98
    np.testing.assert_allclose(moved, wine.memberships_, atol=0.15)


def test_a_file_keeps_votes(wine: SGPMIC, tmp_path: Path) -> None:
    wine.save(tmp_path / "wine.sgpmic")
    loaded = SGPMIC.load(tmp_path / "wine.sgpmic")
    new = load_wine().data * 1.01
    np.testing.assert_array_equal(loaded.predict_proba(new), wine.predict_proba(new))
    assert loaded.committee == wine.committee
    assert loaded.committee_.equals(wine.committee_)


def test_a_sample_votes_for_many_rows(quick_fit: Fit) -> None:
    rng = np.random.RandomState(0)
    labels = rng.randint(3, size=250)
    Y = 6.0 * np.eye(3)[labels] + rng.standard_normal((250, 3))
    few = Committee(max_rows=100)
    model = quick_fit(Y, committee=few)
    assert adjusted_rand_score(labels, model.labels_) > 0.98


def test_the_same_result_whatever_the_order_and_the_units(wine: SGPMIC) -> None:
    Y = load_wine().data
    rng = np.random.RandomState(3)
    rows, features = rng.permutation(len(Y)), rng.permutation(Y.shape[1])
    again = SGPMIC(3, max_iter=3, random_state=0).fit(8.0 * Y[rows][:, features])
    np.testing.assert_array_equal(again.labels_, wine.labels_[rows])
    np.testing.assert_array_equal(again.embedding_, wine.embedding_[rows])
    np.testing.assert_array_equal(again.starts_[0]["labels"], wine.starts_[0]["labels"][rows])
    # What is said of new rows is computed in the order they come in, and rounds in that order.
    new = Y[:20] + 0.1
    np.testing.assert_allclose(
        again.predict_proba(8.0 * new[:, features]), wine.predict_proba(new), atol=1e-6
    )
    mean = wine.inverse_transform(wine.embedding_)
    np.testing.assert_allclose(
        again.inverse_transform(again.embedding_), 8.0 * mean[rows][:, features], rtol=1e-9
    )


def test_noise_in_the_last_digits_and_another_seed(wine: SGPMIC) -> None:
    Y = load_wine().data
    noise = np.random.RandomState(3).standard_normal(Y.shape)
    for changed, seed in ((Y * (1.0 + 1e-12 * noise), 0), (Y, 1)):
        again = SGPMIC(3, max_iter=3, random_state=seed).fit(changed)
        assert adjusted_rand_score(wine.labels_, again.labels_) > 0.98
