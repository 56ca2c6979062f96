"""A committee's votes on a table: what should not matter to them."""

from __future__ import annotations

import numpy as np

from sgpmic.committee.dimensions import View
from sgpmic.committee.voting import Vote, vote_on
from sgpmic.learning.preprocessing import fit_scaler
from sgpmic.learning.settings import Committee
from sgpmic.process_group import ProcessGroup


def votes(Y: np.ndarray) -> Vote:
    group = ProcessGroup(len(Y))
    vote = vote_on(View(Y, fit_scaler(Y, group, "each")), Y, group, Committee(), 4)
    assert vote is not None
    return vote


def test_rounding_does_not_decide_between_equal_distances() -> None:
    """Ward's method merges the nearest; of whole numbers, many pairs are equally near."""
    rng = np.random.RandomState(0)
    Y = rng.randint(5, size=(300, 4)).astype(float)
    noisy = Y * (1.0 + 1e-13 * rng.standard_normal(Y.shape))
    np.testing.assert_array_equal(votes(noisy).shares, votes(Y).shares)
    np.testing.assert_array_equal(votes(10.0 * Y).shares, votes(Y).shares)


def test_groups_that_one_feature_separates_widely_are_certain() -> None:
    rng = np.random.default_rng(0)
    Y = np.c_[np.repeat([-1.0, 1.0], 100) + 0.1 * rng.normal(size=200), rng.normal(size=(200, 2))]
    group = ProcessGroup(200)
    vote = vote_on(View(Y, fit_scaler(Y, group, "each")), Y, group, Committee(), 2)
    assert vote.shares.max(axis=1).mean() > 0.9
