"""Rows that are unlike those that were fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

#: A new row is flagged when its density is lower than that of all but this share of the rows
#: that were fitted.
_SHARE = 0.005
_MOST_ASSESSED = 5_000


def density_threshold(model: SGPMIC, values: NDArray[np.float64]) -> float:
    """Return the log density under which a row is called unusual.

    From fitted rows, each taken out of the model first: with it, it looks too ordinary.
    """
    if len(values) > _MOST_ASSESSED:
        chosen = np.random.RandomState(0).choice(len(values), _MOST_ASSESSED, replace=False)
        values = values[np.sort(chosen)]
    densities = model._fitted.left_out_log_density(values)
    if len(densities) < len(values):
        # Several processes do not remember each of very many rows; and among so many one alone
        # makes no difference.
        densities = model.score_samples(values)
    return float(np.quantile(densities, _SHARE))
