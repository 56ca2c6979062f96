"""scikit-learn's own checks of an estimator, every one of them."""

import warnings
from collections.abc import Callable

from sklearn.utils.estimator_checks import parametrize_with_checks

from sgpmic import EM, SGPMIC

# They ask every estimator with predict_proba for the tags of a classifier, which a clustering has
# not. What else they look at is in test_sparse.py.
FAILING = dict.fromkeys(
    ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "predict_proba of sparse rows is expected of classifiers only",
)


# Few iterations and inducing points, tables padded to few shapes: the checks are
# about conventions.
@parametrize_with_checks(
    [SGPMIC(n_clusters=3, max_iter=2, n_inducing=10, em=EM(m_steps=3))],
    expected_failed_checks=lambda estimator: FAILING,
)
def test_sklearn_convention(estimator: SGPMIC, check: Callable[[SGPMIC], None]) -> None:
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        check(estimator)
