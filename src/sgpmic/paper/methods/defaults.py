"""SGPMIC as a user gets it: our defaults, on the same protocol as every other column."""

from __future__ import annotations

from sgpmic.estimator import SGPMIC
from sgpmic.paper.methods.base import Clustering, Method, Problem
from sgpmic.paper.methods.sgp_mic import fit_quietly


def run(problem: Problem, seed: int) -> Clustering:
    """Fit with the defaults; only the two sizes are given."""
    model = SGPMIC(problem.n_clusters, problem.n_components, random_state=seed)
    return fit_quietly(model, problem)


METHOD = Method(name="defaults", run=run)
