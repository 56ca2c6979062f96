"""The committee's vote: consensus, calibration, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from sgpmic.committee.dimensions import MOST_EXAMINED, committee_view
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.members import MEMBERS
from sgpmic.committee.voting import Vote, consensus, explain_vote, take_vote
from sgpmic.learning.preprocessing import fit_scaler, sample_numbers
from sgpmic.process_group import ProcessGroup

Ints = NDArray[np.int64]


def blobs(n_each: int = 50, distance: float = 8.0, seed: int = 0) -> tuple[np.ndarray, Ints]:
    rng = np.random.RandomState(seed)
    labels = np.repeat(np.arange(3), n_each)
    centers = distance * np.eye(3)
    return centers[labels] + rng.standard_normal((len(labels), 3)), labels


def vote_on(Y: np.ndarray, n_clusters: int, **others: Any) -> Vote:
    vote = take_vote(Geometry(Y, n_clusters), n_clusters, **others)
    assert vote is not None
    return vote


def test_features_are_left_out_if_constant_in_all_rows_not_in_a_sample() -> None:
    rows = np.full((5000, 3), 7.0)
    rows[:, 0] = np.random.default_rng(0).normal(size=5000)
    elsewhere = np.setdiff1d(np.arange(5000), sample_numbers(5000, MOST_EXAMINED))
    rows[elsewhere[0], 2] = 8.0
    group = ProcessGroup(5000)
    view = committee_view(rows, rows, fit_scaler(rows, group, "each"), group)
    np.testing.assert_array_equal(view.rows, rows[:, [0, 2]])


def test_separate_clusters_are_found_and_sure() -> None:
    Y, labels = blobs()
    vote = vote_on(Y, 3)
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) == 1.0
    assert sum(member.weight for member in vote.members) == pytest.approx(1.0)
    assert vote.shares.max(axis=1).mean() > 0.9
    np.testing.assert_allclose(vote.shares.sum(axis=1), 1.0)
    assert vote.shares.min() > 0
    assert sum(member.weight * member.expected for member in vote.members) > 0.9
    assert list(vote.failures) == ["subspaces"]


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_members_that_follow_shapes_win_where_there_are_shapes(make: Any) -> None:
    """k-means and most mixtures cut both; the vote must not."""
    options = {"factor": 0.4} if make is make_circles else {}
    Y, labels = make(300, noise=0.05, random_state=0, **options)
    vote = vote_on(Y, 2)
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) > 0.97
    by_name = {member.name: member for member in vote.members}
    assert by_name["k-means"].weight < by_name["Genie, 0.3"].weight / 3
    assert by_name["k-means"].expected < by_name["Genie, 0.3"].expected
    assert by_name["k-means"].agreement < 0.6


def test_noise_is_not_sure_of_itself() -> None:
    for seed in range(3):
        Y = np.random.RandomState(seed).standard_normal((300, 6))
        vote = vote_on(Y, 3)
        assert vote.shares.max(axis=1).mean() < 0.7
        assert sum(member.weight * member.expected for member in vote.members) < 0.3


def test_consensus_of_known_partitions() -> None:
    one = np.array([0, 0, 0, 1, 1, 1])
    renamed = 1 - one
    other = np.array([0, 0, 1, 1, 1, 1])
    shares = consensus([one, renamed, other], np.array([0.5, 0.3, 0.2]), 2)
    expected = [[1, 0], [1, 0], [0.8, 0.2], [0, 1], [0, 1], [0, 1]]
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_units_and_the_last_digits_do_not_matter() -> None:
    Y = scale(load_wine().data)
    expected = vote_on(Y, 3).shares.argmax(axis=1)
    noisy = Y + 1e-12 * np.random.RandomState(1).standard_normal(Y.shape)
    assert adjusted_rand_score(expected, vote_on(noisy, 3).shares.argmax(axis=1)) > 0.98


def test_clusters_that_are_levels_of_a_category_do_not_count() -> None:
    Y, labels = blobs()
    vote = vote_on(Y, 3, known=[labels])
    # All members find just these; with nobody left, all vote.
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) == 1.0
    moons, halves = make_moons(200, noise=0.05, random_state=0)
    vote = vote_on(moons, 2, known=[halves.astype(np.int64)])
    assert vote.failures["Genie, 0.3"] == "its clusters are the levels of one category"
    assert adjusted_rand_score(halves, vote.shares.argmax(axis=1)) < 0.9


@pytest.mark.parametrize("n_rows", [3, 4, 8])
def test_few_rows(n_rows: int) -> None:
    vote = vote_on(np.random.RandomState(0).rand(n_rows, 2), 2)
    assert vote.shares.shape == (n_rows, 2)
    assert np.isfinite(vote.shares).all()


def test_rows_that_are_all_equal() -> None:
    vote = take_vote(Geometry(np.zeros((20, 3)), 2), 2)
    assert vote is None or np.isfinite(vote.shares).all()


def test_agreement_is_the_adjusted_rand_index() -> None:
    vote = vote_on(scale(load_wine().data), 3)
    expected = [
        adjusted_rand_score(vote.shares.argmax(axis=1), member.labels) for member in vote.members
    ]
    assert [member.agreement for member in vote.members] == pytest.approx(expected, rel=1e-12)
    assert len(set(expected)) > 3, "members differ"


def test_why_a_vote_went_as_it_did() -> None:
    assert explain_vote([]) == ""
    genie = [{"name": "Genie, 0.3", "weight": 0.5}, {"name": "modes of the density", "weight": 0.2}]
    others = [{"name": "k-means", "weight": 0.3}, {"name": "Ward", "weight": 0.0, "reason": "…"}]
    sentence = explain_vote(genie + others)
    assert sentence.startswith("Spectral clustering, Genie and modes of the density count most")
    assert "70 %" in sentence
    assert "gaps" in sentence
    for name in MEMBERS:  # every member is of one kind
        assert "(100 %)" in explain_vote([{"name": name, "weight": 1.0}]), name
    equal = [{"name": name, "weight": 0.25} for name in ("k-means", "Genie, 0.3", "subspaces")]
    assert "No kind" in explain_vote([*equal, {"name": "Gaussian mixture, full", "weight": 0.25}])
