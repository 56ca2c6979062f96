"""Rows that are entered several times."""

from __future__ import annotations

import numpy as np
import pytest

from sgpmic import Committee
from sgpmic.committee.dimensions import View, committee_view
from sgpmic.committee.examination import distinct_sample, examine
from sgpmic.committee.geometry import without_copies
from sgpmic.committee.voting import vote_on
from sgpmic.learning.preprocessing import fit_scaler
from sgpmic.process_group import ProcessGroup


def view_of(Y: np.ndarray) -> tuple[View, ProcessGroup]:
    group = ProcessGroup(len(Y))
    return View(Y, fit_scaler(Y, group, "one")), group


def test_noise_that_is_entered_three_times_has_no_clusters() -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(120, 4)), 3, axis=0)
    found = examine(*view_of(rows), tendency=True, clusters=True, dimensions=False)
    assert found.tendency is not None
    assert found.clusters is not None
    assert not found.tendency.supported
    assert found.clusters.chosen == 1


def test_copies_get_the_votes_of_the_row_that_they_copy() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 3)) + 2.0 * np.eye(3)[rng.integers(3, size=90)]
    view, group = view_of(np.vstack([rows, rows]))
    found = vote_on(view, view.rows, group, Committee(), 3).shares
    once = vote_on(view._replace(rows=rows), rows, ProcessGroup(90), Committee(), 3).shares
    np.testing.assert_array_equal(found, np.vstack([once, once]))


def test_copies_of_mixed_rows_do_not_add_factors() -> None:
    rng = np.random.default_rng(2)
    levels = [np.eye(n)[rng.integers(n, size=150)] for n in (3, 4)]
    rows = np.hstack([rng.normal(size=(150, 3)), *levels])
    once, thrice = (
        committee_view(Y, Y, fit_scaler(Y, group, "each"), group)
        for Y, group in ((rows, ProcessGroup(150)), (np.repeat(rows, 3, axis=0), ProcessGroup(450)))
    )
    assert once.mixed is not None
    assert thrice.mixed is not None
    assert thrice.mixed.n_factors == once.mixed.n_factors


def test_rows_of_the_same_categories_are_kept() -> None:
    """Few values make them agree, though their factors have many."""
    levels = np.random.default_rng(0).integers(3, size=(200, 4))
    Y = np.hstack([np.eye(3)[column] for column in levels.T])
    group = ProcessGroup(200)
    view = committee_view(Y, Y, fit_scaler(Y, group, "one"), group)
    assert len(np.unique(Y, axis=0)) < 81
    assert len(distinct_sample(view, group)[0]) == 200
    assert len(vote_on(view, Y, group, Committee(), 2).members[0].labels) == 200


def test_measurements_beside_a_category_are_no_factors() -> None:
    """The table has two factors, but a single indicator is replaced by only one."""
    one, other = np.random.default_rng(0).normal(size=(200, 2)).T
    rows = np.column_stack([one + other, one - other, one > 0])
    Y, group = np.repeat(rows, 3, axis=0), ProcessGroup(600)
    view = committee_view(Y, Y, fit_scaler(Y, group, "each"), group)
    assert view.mixed is not None
    assert view.mixed.n_factors == 2
    assert view.n_factors == view.rows.shape[1] - 2 == 1
    assert len(distinct_sample(view, group)[0]) == 200


@pytest.mark.parametrize("decimals", [0, 1])
def test_rows_that_agree_by_chance_are_kept(decimals: int) -> None:
    rng = np.random.default_rng(0)
    answers = rng.integers(1, 6, size=(500, 3))
    measured = rng.normal(scale=2.0, size=(3000, 2)).round(decimals)
    for rows in (answers, measured):
        assert len(np.unique(rows, axis=0)) < 0.9 * len(rows)
        assert len(without_copies(rows)[0]) == len(rows)
