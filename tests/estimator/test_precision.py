"""``precision="float32"`` from the outside."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC

Floats = NDArray[np.float64]


#: The model whose E-steps also make passes over the rows; one shape, so one compilation.
MAPPING = "per_cluster"


def test_float32_finds_the_blobs(table: Floats, quick_fit: Callable[..., SGPMIC]) -> None:
    model = quick_fit(table, mapping=MAPPING, precision="float32")
    assert adjusted_rand_score(np.repeat([0, 1, 2], 20), model.labels_) == 1.0
    assert np.all(np.diff(model.history_["bound"]) > -1e-3 * len(table))
    # Seen from outside, all is float64, and new rows are placed as before.
    assert model.embedding_.dtype == model.memberships_.dtype == np.float64
    np.testing.assert_array_equal(model.predict(table), model.labels_)


def test_few_distinct_rows(quick_fit: Callable[..., SGPMIC]) -> None:
    table = np.repeat(np.random.default_rng(0).normal(size=(6, 4)), 10, axis=0)
    model = quick_fit(table, mapping=MAPPING, precision="float32", init="pca")
    assert np.isfinite(model.lower_bound_)
    assert np.isfinite(model.embedding_).all()


def test_the_jitter_of_float32_is_no_cause_for_alarm(table: Floats) -> None:
    model = SGPMIC(3, mapping=MAPPING, precision="float32", **QUICK)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(table)
    assert not [w for w in said if "jitter" in str(w.message)]


def test_batches_are_made_in_float64(table: Floats) -> None:
    with pytest.raises(ValueError, match="batch_size works with precision='float64'"):
        SGPMIC(3, precision="float32", n_inducing=10, batch_size=30).fit(table)


def test_other_precisions_are_refused(table: Floats) -> None:
    with pytest.raises(ValueError, match="'float64', 'float32'"):
        SGPMIC(3, precision="float16").fit(table)
