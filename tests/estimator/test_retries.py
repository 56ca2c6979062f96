"""A start that loses a cluster is followed by one of another kind."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

from sgpmic import SGPMIC, Progress, Start
from sgpmic.exceptions import DeadClusterWarning, StartWarning

SETTINGS: dict[str, Any] = {
    "committee": None,
    "n_components": 1,
    "n_inducing": 5,
    "max_iter": 2,
    "em__m_steps": 5,
    "random_state": 0,
}


def two_distinct_rows() -> np.ndarray:
    """Return a table that cannot have three clusters."""
    return np.repeat([[0.0, 1.0, 0.0], [4.0, 0.0, 0.0]], 10, axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_standardized_iris_has_three_clusters(seed: int) -> None:
    """From the first start alone most seeds merge two of the species."""
    with warnings.catch_warnings(action="ignore", category=StartWarning):
        model = SGPMIC(3, committee=None, random_state=seed).fit(scale(load_iris().data))
    assert np.bincount(model.labels_, minlength=3).min() > 20
    kept = next(start for start in model.starts_ if start["kept"])
    assert bool(kept["notes"]) == (len(model.starts_) > 1)


@pytest.mark.parametrize(("retries", "n_starts"), [(0, 1), (2, 3)])
def test_in_vain(retries: int, n_starts: int) -> None:
    model = SGPMIC(3).set_params(start__n_retries=retries, start__embedding="pca", **SETTINGS)
    with pytest.warns(DeadClusterWarning):
        model.fit(two_distinct_rows())
    kinds = {(start["embedding"], start["memberships"]) for start in model.starts_}
    assert len(model.starts_) == len(kinds) == n_starts
    assert model.starts_[0]["kept"], "no start was any better"


def test_interrupted_in_the_further_start(tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(progress: Progress) -> None:
        if (progress.start, progress.iteration) == (1, 2):
            raise Interrupted

    def fit(**others: Any) -> SGPMIC:
        with warnings.catch_warnings(action="ignore"):
            model = SGPMIC(3, tol=0.0).set_params(start__embedding="pca", **SETTINGS, **others)
            return model.fit(two_distinct_rows())

    expected, place = fit(), tmp_path / "fit.ckpt"
    with pytest.raises(Interrupted):
        fit(computation__checkpoint=place, em__callbacks=[interrupt])
    seen: list[tuple[int, int, int]] = []
    told = [lambda p: seen.append((p.start, p.n_starts, p.iteration))]
    again = fit(computation__checkpoint=place, em__callbacks=told)
    assert seen == [(1, 2, 2)]
    np.testing.assert_array_equal(again.memberships_, expected.memberships_)


def test_no_further_start_where_everything_is_given() -> None:
    Y = two_distinct_rows()
    S = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 10, axis=0)
    model = SGPMIC(3, start=Start(embedding=Y[:, :1], memberships=S)).set_params(**SETTINGS)
    with pytest.warns(DeadClusterWarning):
        model.fit(Y)
    assert len(model.starts_) == 1
