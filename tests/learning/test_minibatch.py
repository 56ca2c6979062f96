"""Learning in batches: every step against a dense or exact one, and the whole against full EM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix

from sgpmic import SGPMIC, Progress
from sgpmic._runtime import numerics
from sgpmic.kernels import stacked_like, unstack
from sgpmic.learning.minibatch import draw_batches, place_rows
from sgpmic.model import evaluate
from sgpmic.model.bound import Mappings, factorize_all, mapping_weights, sums
from sgpmic.model.mixture import (
    Conjugate,
    factor_mixture,
    mixture_of_moments,
    moments,
    update_mixture,
)
from sgpmic.model.updated_sums import updated_sums
from sgpmic.process_group import ProcessGroup, SharedTable
from support import dense
from support.random_problems import Ours, Sizes, our_problem, random_problem

SIZES = Sizes(N=19, P=3, Q=2, M=2, U=4)


# ------------------------------------------------------------------------------- its steps


@pytest.mark.parametrize(("n_rows", "batch_size"), [(3000, 600), (1003, 1000), (10, 50)])
def test_an_epoch_visits_every_row_once(n_rows: int, batch_size: int) -> None:
    batches = draw_batches(n_rows, batch_size, 4000, seed=5, epoch=1)
    sizes = [int(np.sum(batch < 4000)) for batch in batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.sort(batches[batches < 4000]), np.arange(n_rows))
    again = draw_batches(n_rows, batch_size, 4000, seed=5, epoch=1)
    np.testing.assert_array_equal(batches, again)
    assert np.any(batches != draw_batches(n_rows, batch_size, 4000, seed=5, epoch=2))


def test_memberships_of_the_whole_table_are_those_of_the_dense_e_step() -> None:
    problem = random_problem(SIZES, ["rbf"] * SIZES.M, np.random.default_rng(3))

    @jax.jit
    def place(ours: Ours) -> Any:
        T = mapping_weights(ours.S, ours.rows, shared=False)
        factors = factorize_all(ours.mappings, *sums(ours.mappings, ours.X, T, ours.rows), 0.0)
        mixture, pull = factor_mixture(ours.mixture), jnp.zeros_like(ours.X)
        return place_rows(
            ours.mappings, factors, mixture, ours.X, ours.S, pull, ours.rows,
            optimizer="scg", m_steps=jnp.asarray(0), keep_S=jnp.asarray(False),
        )  # fmt: skip

    with numerics():
        ours = our_problem(problem, 7)  # blocks that do not divide the rows
        placed = place(ours)
    expected = dense.responsibilities(problem)
    np.testing.assert_allclose(placed.S[: SIZES.N], expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(placed.S[SIZES.N :], 0.0)
    np.testing.assert_array_equal(placed.X, ours.X)


def test_the_mixture_of_moments_is_that_of_the_rows() -> None:
    problem = random_problem(SIZES, ["rbf"], np.random.default_rng(0))

    @jax.jit
    def both_ways(ours: Ours) -> Any:
        given: Any = {
            "conjugate": Conjugate(jnp.full(SIZES.M, 0.7), jnp.eye(SIZES.Q)),
            "floor": 1e-3,
        }
        totals = moments(ours.X, ours.S)
        return [
            (
                mixture_of_moments(ours.mixture, totals, kind=kind, **given),
                update_mixture(ours.mixture, ours.X, ours.S, kind=kind, **given),
            )
            for kind in ("full", "tied")
        ]

    with numerics():
        for found, exact in both_ways(our_problem(problem)):
            for ours, theirs in zip(found, exact, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_what_is_known_moves_with_the_kernels() -> None:
    """A kernel three times as large: exactly the sums that a pass over the rows would give."""
    problem = random_problem(SIZES, ["rbf"] * SIZES.M, np.random.default_rng(1))

    @jax.jit
    def sums_of(mappings: Mappings) -> Any:
        return sums(mappings, ours.X, ours.S, ours.rows)

    with numerics():
        ours = our_problem(problem)
        before = ours.mappings
        names = ("variance", "bias", "white")
        larger = {name: 3.0 * np.asarray(getattr(before.kernels, name)) for name in names}
        after = before._replace(kernels=stacked_like(before.kernels, larger))
        moved = jax.jit(updated_sums)(before, after, *sums_of(before))
        for found, exact in zip(moved, sums_of(after), strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-9)


# ------------------------------------------------------------------------------- the whole

N_ROWS = 3001  # batches of 751, 750, 750 and 750 rows
EPOCHS = 6


def toy() -> tuple[np.ndarray, np.ndarray]:
    """Return three clusters on a curved surface in six dimensions."""
    rng = np.random.RandomState(0)
    labels = rng.randint(3, size=N_ROWS)
    centers = np.array([[-2.5, 0.0], [2.5, 0.0], [0.0, 3.0]])
    X = centers[labels] + rng.standard_normal((N_ROWS, 2)) * [0.6, 0.5]
    bent = np.sin(X @ rng.standard_normal((2, 6)) * 0.5 + rng.uniform(0, 6, 6))
    Y = bent + 0.3 * X @ rng.standard_normal((2, 6))
    return Y + 0.05 * rng.standard_normal(Y.shape), labels


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "n_clusters": 3,
        "committee": None,
        "n_inducing": 25,
        "start__embedding": "pca",
        "computation__batch_size": 800,
        "max_iter": EPOCHS,
        "tol": 0.0,
        "random_state": 0,
    } | changes


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Return the share of rows in the same cluster, clusters matched."""
    table = contingency_matrix(first, second)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(first))


@pytest.fixture(scope="module")
def in_batches() -> SGPMIC:
    return SGPMIC().set_params(**settings()).fit(toy()[0])


@pytest.mark.slow
def test_batches_end_where_full_em_does(in_batches: SGPMIC) -> None:
    """For the same number of passes over the rows: an epoch makes about as many as a round."""
    Y, labels = toy()
    full = SGPMIC().set_params(**settings(computation__batch_size=None)).fit(Y)
    passes = [sum(model.history_["evaluations"]) for model in (in_batches, full)]
    assert passes[0] < 1.2 * passes[1]
    # In nats a row; from the first round to the last full EM gains far more.
    gained = full.lower_bound_ - full.history_["bound"][0]
    assert in_batches.lower_bound_ > full.lower_bound_ - 0.5 * N_ROWS > full.lower_bound_ - gained
    assert agreement(in_batches.labels_, full.labels_) >= 0.99
    assert agreement(in_batches.labels_, labels) >= 0.99


class Interrupted(Exception):
    pass


def test_an_interrupted_fit_ends_the_same(in_batches: SGPMIC, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.round == 3:
            raise Interrupted

    Y = toy()[0]
    place = {"computation__checkpoint": tmp_path / "fit.ckpt"}
    with pytest.raises(Interrupted):
        SGPMIC().set_params(**settings(em__callbacks=[interrupt], **place)).fit(Y)
    again = SGPMIC().set_params(**settings(**place)).fit(Y)
    for name in ("labels_", "memberships_", "embedding_", "means_", "inducing_"):
        np.testing.assert_array_equal(getattr(in_batches, name), getattr(again, name))
    assert in_batches.history_["bound"] == again.history_["bound"]


@pytest.mark.slow
def test_the_bound_in_the_history_is_that_of_all_rows() -> None:
    """And the paper's model, with a mapping of its own for every cluster, finds the clusters."""
    Y, labels = toy()
    model = SGPMIC().set_params(**settings(mapping="per_cluster", em__prior_strength=0.0)).fit(Y)
    assert agreement(model.labels_, labels) >= 0.99
    state, scaler = model._state, model.scaler_
    X, S = np.asarray(state.parameters.X)[:N_ROWS], np.asarray(state.S)[:N_ROWS]
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    assert np.mean(X**2) == pytest.approx(1.0)
    found = evaluate(
        scaler.transform(Y), X, model.inducing_,
        unstack(model._predictor.posterior.mappings.kernels),
        float(np.exp(state.parameters.log_beta)), S, model.weights_, model.means_,
        model.covariances_, jitter=model._predictor.jitter,
    )  # fmt: skip
    bound = found.bound + N_ROWS * scaler.log_volume
    assert model.lower_bound_ == pytest.approx(bound, rel=1e-9)
    assert model.history_["bound"][-1] == model.lower_bound_
    assert np.all(np.diff(model.history_["bound"][:3]) > 0)


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0, ValueError, "batch_size"),
        (100.0, TypeError, "batch_size"),
        (24, ValueError, "less than n_inducing"),
    ],
)
def test_batch_sizes_that_cannot_be(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SGPMIC().set_params(**settings(computation__batch_size=value)).fit(np.zeros((60, 3)))


def test_rows_on_several_devices_are_refused() -> None:
    Y = np.random.RandomState(0).standard_normal((60, 3))
    group = ProcessGroup(60, jax.devices()[:2])
    with pytest.raises(ValueError, match="one device"):
        SGPMIC().set_params(**settings()).fit(SharedTable(Y, group))
