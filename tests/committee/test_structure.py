"""How many clusters and dimensions a table supports, and the axes of its picture."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sgpmic.committee import examination, members
from sgpmic.committee.dimensions import View, choose_dimensions
from sgpmic.committee.examination import (
    Structure,
    choose_number,
    examine,
    gather_evidence,
)
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.tendency import ClusterTendency
from sgpmic.learning.preprocessing import fit_scaler, view_axes
from sgpmic.process_group import ProcessGroup

Floats = NDArray[np.float64]


def blobs(n_clusters: int, n_features: int = 3, seed: int = 0) -> Floats:
    rng = np.random.RandomState(seed)
    centers = 10.0 * rng.standard_normal((n_clusters, n_features))
    return centers[np.arange(180) % n_clusters] + rng.standard_normal((180, n_features))


CLEAR = ClusterTendency(9.0, 1 / 80, "a gap", "Gaussian rows")
NOISE = ClusterTendency(0.0, 0.6, "a gap", "Gaussian rows")


@pytest.mark.parametrize(
    "n_clusters", [4, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 6))]
)
def test_number_of_blobs(n_clusters: int) -> None:
    found = choose_number(blobs(n_clusters), CLEAR)
    assert found.chosen == n_clusters
    assert found.candidates == list(range(1, 13))
    assert found.candidates[int(np.argmax(found.probability))] == n_clusters
    assert sum(found.probability) == pytest.approx(1.0)
    # Different members find separate blobs, and the judge expects that they are right.
    assert found.expected[found.candidates.index(n_clusters)] > 0.8
    assert found.modes == n_clusters


@pytest.mark.slow
def test_a_number_of_which_no_mixture_can_be_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no mixture")

    monkeypatch.setattr(members, "fit_mixture", fails)
    found = choose_number(blobs(3), CLEAR)
    assert np.isfinite(found.probability).all()
    assert found.chosen == 3


@pytest.mark.slow
def test_the_test_of_tendency_weighs_on_one_cluster() -> None:
    Y = blobs(3)
    noise, doubt, clear = (
        choose_number(Y, tendency).probability
        for tendency in (NOISE, replace(NOISE, p_value=0.2), CLEAR)
    )
    assert noise[0] > doubt[0] > clear[0] == 0.0
    for probability in (noise, doubt, clear):
        assert sum(probability) == pytest.approx(1.0)


@pytest.mark.slow
def test_more_modes_than_the_usual_candidates() -> None:
    corners = 12.0 * np.stack(np.meshgrid(*[np.arange(4)] * 2), axis=-1).reshape(-1, 2)
    rng = np.random.RandomState(0)
    Y = np.repeat(corners, 25, axis=0) + rng.standard_normal((400, 2))
    assert choose_number(Y, CLEAR).chosen == 16


@pytest.mark.filterwarnings("error")
def test_evidence_of_few_rows() -> None:
    inputs, _, partitions = gather_evidence(Geometry(blobs(2)[:7], 2), NOISE)
    assert len(inputs) == len(partitions) == 2
    assert np.isfinite(inputs).all()
    for n_rows in (2, 3, 4):
        assert choose_number(blobs(2)[:n_rows], NOISE).chosen == 1


def test_noise_that_looks_the_same_makes_one_cluster_likely_if_there_are_categories() -> None:
    by_p = {p: ClusterTendency(0.0, p, "a gap", "Gaussian rows") for p in (0.1, 0.6)}
    Y = blobs(3)[:90]
    found = choose_number(Y, by_p[0.6], has_categories=True)
    assert found.probability[0] == pytest.approx(0.5)
    assert found.chosen == 1
    assert sum(found.probability) == pytest.approx(1.0)
    assert choose_number(Y, by_p[0.6]).chosen == 3
    assert choose_number(Y, by_p[0.1], has_categories=True).chosen == 3


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_dimensions_of_a_table_of_known_rank(rank: int) -> None:
    rng = np.random.RandomState(0)
    # Dimensions of equal strength: a weak one behind strong ones may be missed.
    loadings = np.linalg.qr(rng.standard_normal((12, rank)))[0].T
    Y = rng.standard_normal((200, rank)) @ loadings
    found = choose_dimensions(Y + 0.1 * rng.standard_normal(Y.shape))
    assert found.chosen == rank
    assert sum(found.variance) == pytest.approx(1.0)
    assert len(found.noise) == 12


def test_noise_has_one_dimension() -> None:
    assert choose_dimensions(np.random.RandomState(0).standard_normal((300, 8))).chosen == 1


def test_only_what_is_asked_is_examined() -> None:
    Y = blobs(3)
    group = ProcessGroup(len(Y))
    view = View(Y, fit_scaler(Y, group, "each"))
    nothing = examine(view, group, tendency=False, clusters=False, dimensions=False)
    assert nothing == Structure(None, None, None)
    found = examine(view, group, tendency=True, clusters=True, dimensions=True)
    assert found.tendency is not None
    assert found.clusters is not None
    assert found.dimensions is not None
    assert found.tendency.supported
    assert found.clusters.chosen == 3


@pytest.mark.parametrize(("n_drawn", "n_clusters"), [(1, 1), (2, 3)])
def test_draws_decide_whether_and_imputed_rows_how_many(n_drawn: int, n_clusters: int) -> None:
    group = ProcessGroup(180)
    drawn, imputed = (View(Y, fit_scaler(Y, group, "each")) for Y in (blobs(n_drawn), blobs(3)))
    view = imputed._replace(drawn=drawn)
    found = examine(view, group, tendency=True, clusters=True, dimensions=False)
    assert found.tendency is not None
    assert found.clusters is not None
    assert (found.tendency.supported, found.clusters.chosen) == (n_drawn > 1, n_clusters)


def test_view_is_a_rotation_to_the_principal_axes() -> None:
    rng = np.random.RandomState(0)
    points = rng.standard_normal((100, 4)) @ np.diag([1.0, 5.0, 0.1, 3.0])
    axes = view_axes(points)
    np.testing.assert_allclose(axes.T @ axes, np.eye(4), atol=1e-12)
    spread = (points @ axes).var(axis=0)
    assert (np.diff(spread) < 0).all()
    np.testing.assert_array_equal(view_axes(points[:, :2]), np.eye(2))


def test_what_was_found_out_about_a_table_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def count(sample: Floats, *, plausible: bool) -> int:
        asked.append(sample)
        return len(asked)

    monkeypatch.setattr(examination, "_found", {})
    monkeypatch.setattr(examination, "_MOST_REMEMBERED", 2)
    one, other, third = (np.full((4, 2), value) for value in (1.0, 2.0, 3.0))

    def find(sample: Floats, plausible: bool = True) -> int:
        return examination._once(count, sample, plausible=plausible)

    assert [find(one), find(one.copy()), find(other)] == [1, 1, 2]
    assert find(one.reshape(2, 4)) == 3, "the same numbers, another table"
    assert find(one) == 4, "only the latest are remembered"
    assert find(one, plausible=False) == 5, "the same table, another question"
    assert find(third) == 6
