"""``precision="float32"`` from the outside."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC

Floats = NDArray[np.float64]

#: The model whose E-steps also make passes over the rows; one shape, so one compilation.
MAPPING = "per_cluster"
N = 2001


class Fit(NamedTuple):
    """A fit of well-separated clusters, and what was said about it."""

    Y: Floats
    classes: NDArray[np.int64]
    model: SGPMIC
    said: list[str]


@pytest.fixture(scope="module")
def separated() -> Fit:
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(3), N // 3)
    Y = rng.normal(size=(N, 4)) + 6.0 * np.eye(3, 4)[classes]
    model = SGPMIC(3, mapping=MAPPING, precision="float32", **QUICK)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(Y)
    return Fit(Y, classes, model, [str(w.message) for w in said])


def test_labels_of_well_separated_clusters(separated: Fit) -> None:
    # In pairs of rows: 0.997 is about one row in a thousand.
    assert adjusted_rand_score(separated.classes, separated.model.labels_) > 0.997


def test_the_bound_rises(separated: Fit) -> None:
    assert np.all(np.diff(separated.model.history_["bound"]) > -1e-3 * N)


def test_all_is_float64_from_outside(separated: Fit) -> None:
    model = separated.model
    assert model.embedding_.dtype == model.memberships_.dtype == np.float64
    np.testing.assert_array_equal(model.predict(separated.Y[:200]), model.labels_[:200])


def test_its_jitter_is_no_cause_for_alarm(separated: Fit) -> None:
    assert not [sentence for sentence in separated.said if "jitter" in sentence]


def test_few_distinct_rows(quick_fit: Callable[..., SGPMIC]) -> None:
    table = np.repeat(np.random.default_rng(0).normal(size=(6, 4)), 10, axis=0)
    model = quick_fit(table, mapping=MAPPING, precision="float32", init="pca")
    assert np.isfinite(model.lower_bound_)
    assert np.isfinite(model.embedding_).all()


def test_batches_are_made_in_float64(table: Floats) -> None:
    with pytest.raises(ValueError, match="batch_size works with precision='float64'"):
        SGPMIC(3, precision="float32", n_inducing=10, batch_size=30).fit(table)


def test_other_precisions_are_refused(table: Floats) -> None:
    with pytest.raises(ValueError, match="'float64', 'float32'"):
        SGPMIC(3, precision="float16").fit(table)
