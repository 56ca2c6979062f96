"""How many clusters: what a committee, the density and mixtures say of every number.

For every number of clusters k the committee (:mod:`sgpmic.committee.voting`) votes. Five figures
speak for a number:

- the **certainty**, the mean of the rows' largest shares: high where different clusterings agree
  and cut few links between neighbours;
- how far the certainty falls with one cluster more;
- how much more of the neighbour graph is cut with one cluster more (the logarithm of the ratio):
  where all clusters have been told apart, the next cut goes through the midst of one;
- how near k is to the number of **modes** of the density, counted by their prominence
  (:mod:`sgpmic.committee.modes`): −|log(k / modes)|;
- how near a Gaussian mixture of k components comes to the lowest BIC: minus the logarithm of the
  difference.

Their weights were learned by a multinomial logit on problems whose number is known
(``benchmarks/how_many.py --learn``). So what comes out is a **probability** of every number, given
that there is more than one cluster. One is the answer where the rows look like noise
(:mod:`sgpmic.committee.support`).
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from sgpmic._types import Floats, Ints
from sgpmic.committee.modes import find_hills
from sgpmic.committee.voting import (
    LEAST_CUT,
    MIXTURES,
    Vote,
    fit_mixture,
    nearest_others,
    principal_components,
    take_vote,
)
from sgpmic.learning.progress import announce, listening

#: Numbers of clusters that are tried, at least; more where the density has more modes.
MOST_CLUSTERS = 12
#: A mode's density is so much higher than at its pass, in logarithms: a chance peak of an estimate
#: from ten neighbours seldom is.
_PROMINENT = 1.6
#: What each of the five figures counts.
WEIGHTS = (4.7, 3.5, 0.55, 1.95, 0.23)
#: Differences of the BIC per row that are too small to matter, and the one that counts where no
#: mixture could be fitted.
_LEAST_BIC, _MOST_BIC = 0.005, 10.0


@dataclass(frozen=True)
class NumberOfClusters:
    """How the number of clusters was chosen.

    Attributes
    ----------
    chosen : int
    candidates : tuple of int
        The numbers that were tried.
    certainty : tuple of float
        How sure the committee is of each.
    probability : tuple of float
        Of each, if there is more than one cluster. The chosen number has the highest, unless the
        table does not stand out from noise.
    modes : int
        Modes of the density.
    """

    chosen: int
    candidates: tuple[int, ...]
    certainty: tuple[float, ...]
    probability: tuple[float, ...]
    modes: int

    def listing(self) -> dict[str, Any]:
        """Return it as plain numbers and lists."""
        return {
            "chosen": self.chosen,
            "candidates": list(self.candidates),
            "certainty": list(self.certainty),
            "probability": list(self.probability),
            "modes": self.modes,
        }


class Evidence(NamedTuple):
    """What speaks for every number of clusters.

    Attributes
    ----------
    figures : dict of int to tuple of float
        By the number of clusters: those of the module's docstring, in their order.
    modes : int
        Modes of the density.
    """

    figures: dict[int, tuple[float, ...]]
    modes: int


def choose_number(Y: Floats, *, plausible: bool) -> NumberOfClusters:
    """Return the number of clusters of rows.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
        Scaled rows.
    plausible : bool
        Whether there may be more than one.
    """
    found = gather_evidence(Y)
    candidates = tuple(found.figures)
    if not candidates:
        return NumberOfClusters(1, (), (), (), found.modes)
    figures = np.array(list(found.figures.values()))
    probability = softmax(figures @ WEIGHTS)
    return NumberOfClusters(
        candidates[int(probability.argmax())] if plausible else 1,
        candidates,
        tuple(figures[:, 0].tolist()),
        tuple(probability.tolist()),
        found.modes,
    )


def gather_evidence(Y: Floats) -> Evidence:
    """Return what speaks for every number of clusters of scaled rows."""
    modes = count_modes(Y)
    most = min(max(MOST_CLUSTERS, modes + 2), len(Y) - 1)
    Z = principal_components(Y)
    votes: dict[int, Vote] = {}
    bic: dict[int, float] = {}
    for k in range(2, most + 1):
        announce(f"trying {k} of {most} clusters")
        with listening(None):
            vote = take_vote(Y, k)
        if vote is not None:
            votes[k], bic[k] = vote, _lowest_bic(Z, vote.labels)
    lowest = min(bic.values(), default=0.0)
    figures: dict[int, tuple[float, ...]] = {}
    for k, vote in votes.items():
        following = votes.get(k + 1, vote)
        excess = min(bic[k] - lowest, _MOST_BIC) if np.isfinite(bic[k]) else _MOST_BIC
        figures[k] = (
            vote.certainty,
            vote.certainty - following.certainty,
            float(np.log((following.cut + LEAST_CUT) / (vote.cut + LEAST_CUT))),
            -abs(float(np.log(k / modes))),
            -float(np.log(excess + _LEAST_BIC)),
        )
    return Evidence(figures, modes)


def count_modes(Y: Floats) -> int:
    """Return the number of prominent modes of the rows' density."""
    distances, neighbours = nearest_others(Y)
    prominence = find_hills(distances, neighbours).prominence
    # Heights are logarithms of squared distances; those of a density have the dimension before
    # them, here the intrinsic one (Levina and Bickel's estimate).
    return max(int(np.sum(0.5 * _intrinsic_dimension(distances) * prominence > _PROMINENT)), 1)


def _intrinsic_dimension(distances: Floats) -> float:
    logs = np.log(np.maximum(distances, np.finfo(float).tiny))
    rise = float(np.mean(logs[:, -1:] - logs[:, :-1]))
    return 1.0 / rise if rise > 0 else 1.0


def _lowest_bic(Z: Floats, labels: Ints) -> float:
    """Return the lowest BIC per row of mixtures that start from clusters."""
    labels = np.unique(labels, return_inverse=True)[1]
    found = [np.inf]
    for shape in MIXTURES:
        with warnings.catch_warnings(), suppress(ValueError, np.linalg.LinAlgError):
            warnings.simplefilter("ignore")  # of a mixture that did not settle
            found.append(float(fit_mixture(Z, labels, shape).bic(Z)) / len(Z))
    return min(found)
