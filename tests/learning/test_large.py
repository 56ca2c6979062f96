"""Starts for more rows than a square table of distances could hold."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC
from sgpmic.learning import initialization, starts
from sgpmic.learning.initialization import embed, initial_memberships


def groups(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    labels = rng.randint(3, size=n_rows)
    return rng.standard_normal((n_rows, 4)) + 8.0 * np.eye(3, 4)[labels], labels


def test_rows_outside_the_sample_lie_among_their_like(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_GRAPH_ROWS", "SAMPLED_ROWS"):
        monkeypatch.setattr(initialization, name, 300)
    Y, labels = groups(2000)
    found, _ = embed(Y, 2, random_state=np.random.RandomState(1))
    shares = initial_memberships(found, 3, "fcm", np.random.RandomState(0))
    assert adjusted_rand_score(labels, shares.argmax(axis=1)) > 0.99


def test_rows_of_the_sample_keep_their_own_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    Y, _ = groups(400)
    whole = embed(Y, 2, random_state=np.random.RandomState(1))[0]
    # A sample of all rows but one: the graph hardly changes, so neither do the positions.
    for name in ("MOST_GRAPH_ROWS", "SAMPLED_ROWS"):
        monkeypatch.setattr(initialization, name, 399)
    sampled = embed(Y, 2, random_state=np.random.RandomState(1))[0]
    moved = np.linalg.norm(sampled - whole, axis=1) / whole.std()
    assert np.median(moved) < 0.05
    assert np.isfinite(sampled).all()


def test_equal_rows_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_GRAPH_ROWS", "SAMPLED_ROWS"):
        monkeypatch.setattr(initialization, name, 50)
    Y = np.repeat(groups(60)[0], 3, axis=0)
    found = embed(Y, 2, random_state=np.random.RandomState(0))[0]
    np.testing.assert_array_equal(found[::3], found[1::3])


@pytest.mark.filterwarnings("ignore")
class TestLearningFromTheSampleFirst:
    """Of a table so large that its start is made from a sample."""

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(starts, "MOST_START_ROWS", 500)
        monkeypatch.setattr(initialization, "SAMPLED_ROWS", 200)

    @pytest.fixture
    def learned(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many rows were learned from before all of them."""
        counts: list[int] = []
        learn = starts.Starts._learn

        def counted(self: Any, Y: Any, *others: Any) -> Any:
            counts.append(len(Y))
            return learn(self, Y, *others)

        monkeypatch.setattr(starts.Starts, "_learn", counted)
        return counts

    @pytest.mark.slow
    def test_all_rows_begin_at_a_higher_bound(
        self, learned: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        iterations: list[int] = []
        model = SGPMIC(3, max_iter=2, n_inducing=20, random_state=0)
        model.set_params(start__n_retries=0)  # a cluster may be empty after so few iterations
        model.set_params(em__callbacks=[lambda progress: iterations.append(progress.iteration)])
        Y, _ = groups(600)
        found = model.fit(np.sin(Y)).history_["bound"]
        assert (learned, iterations) == ([200], [1, 2])
        assert len(model.history_["bound"]) == 2
        monkeypatch.setattr(
            starts.Starts, "_learn", lambda self, Y, X, S, mappings, votes: (X, mappings)
        )
        assert found[0] > model.fit(np.sin(Y)).history_["bound"][0] + 100.0

    @pytest.mark.slow
    def test_nothing_is_learned_where_latent_points_are_given_or_cells_are_missing(
        self, learned: list[int]
    ) -> None:
        Y, _ = groups(600)
        model = SGPMIC(3, max_iter=1, n_inducing=20, random_state=0)
        gaps = np.where(np.random.RandomState(0).uniform(size=Y.shape) < 0.05, np.nan, Y)
        model.fit(gaps)
        model.set_params(start__embedding=Y[:, :2]).fit(Y)
        assert learned == []
