"""SGP-MIC, the paper's method, with every choice as published."""

from __future__ import annotations

import warnings

from sgpmic.estimator import SGPMIC
from sgpmic.paper.methods.base import Clustering, Method, Problem


def run(problem: Problem, seed: int) -> Clustering:
    """Fit the published model."""
    model = SGPMIC.as_published(
        problem.n_clusters,
        problem.n_components,
        n_inducing=problem.n_inducing,
        random_state=seed,
    )
    return fit_quietly(model, problem)


def fit_quietly(model: SGPMIC, problem: Problem) -> Clustering:
    """Fit without the advice a user would get: the protocol is fixed, nobody is there to act."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(problem.Y)
    return Clustering(model.labels_, model.embedding_, float(model.lower_bound_))


METHOD = Method(name="SGP-MIC", run=run)
