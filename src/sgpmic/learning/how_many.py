"""How many clusters: the number that the committee is surest about, and the density's modes.

For every number of clusters k the committee votes (:mod:`sgpmic.learning.committee`), without fits
of the model. The mean of the rows' largest shares, the **certainty**, is high where different
clusterings agree and cut few links between neighbours. Several numbers may be nearly as sure, most
often where clusters come in groups; the number of **modes** of the density, counted by their
prominence (:mod:`sgpmic.learning.modes`), then decides:

    score(k) = certainty(k) − 0.06 |log(k / modes)|.

One cluster is the answer where the rows look like noise (:mod:`sgpmic.learning.support`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpmic.learning.committee import nearest_others, take_vote
from sgpmic.learning.modes import find_hills
from sgpmic.learning.progress import announce, listening

Floats = NDArray[np.float64]

#: Numbers of clusters that are tried, at least; more where the density has more modes.
MOST_CLUSTERS = 12
#: A mode's density is so much higher than at its pass, in logarithms: a chance peak of an estimate
#: from ten neighbours seldom is.
_PROMINENT = 1.6
_MODES_COUNT = 0.06


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
    score : tuple of float
        What the choice goes by; the chosen number has the highest, unless the table does not
        stand out from noise.
    modes : int
        Modes of the density.
    """

    chosen: int
    candidates: tuple[int, ...]
    certainty: tuple[float, ...]
    score: tuple[float, ...]
    modes: int

    def listing(self) -> dict[str, Any]:
        """Return it as plain numbers and lists."""
        return {
            "chosen": self.chosen,
            "candidates": list(self.candidates),
            "certainty": list(self.certainty),
            "score": list(self.score),
            "modes": self.modes,
        }


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


def choose_number(Y: Floats, *, plausible: bool) -> NumberOfClusters:
    """Return the number of clusters of rows.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
        Scaled rows.
    plausible : bool
        Whether there may be more than one.
    """
    modes = count_modes(Y)
    most = min(max(MOST_CLUSTERS, modes + 2), len(Y) - 1)
    certainty: dict[int, float] = {}
    for k in range(2, most + 1):
        announce(f"trying {k} of {most} clusters")
        with listening(None):
            vote = take_vote(Y, k)
        if vote is not None:
            certainty[k] = float(vote.shares.max(axis=1).mean())
    score = {k: sure - _MODES_COUNT * abs(np.log(k / modes)) for k, sure in certainty.items()}
    chosen = max(score, key=lambda k: score[k]) if plausible and score else 1
    return NumberOfClusters(
        chosen,
        tuple(certainty),
        tuple(certainty.values()),
        tuple(map(float, score.values())),
        modes,
    )
