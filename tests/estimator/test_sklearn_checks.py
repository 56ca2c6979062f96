"""scikit-learn's own checks of an estimator, every one of them; none is expected to fail."""

import warnings
from collections.abc import Callable

from sklearn.utils.estimator_checks import parametrize_with_checks

from sgpmic import EM, SGPMIC


# Few rounds and inducing points: the checks are about conventions, and each of their many table
# shapes is compiled anew.
@parametrize_with_checks([SGPMIC(n_clusters=3, max_iter=2, em=EM(m_steps=3), n_inducing=8)])
def test_sklearn_convention(estimator: SGPMIC, check: Callable[[SGPMIC], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)
