"""``--standardize``: features of mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: What ``run.json`` remembers: ``means`` and ``scales``, or None where nothing is standardised.
Scaling = dict[str, list[float]] | None


def find_scaling(values: Floats, total: Callable[[Floats], Floats], n_rows: int) -> Scaling:
    """Return the mean and spread of every feature.

    ``total`` adds up over the processes, which have ``n_rows`` rows together.
    """
    means = total(values.sum(axis=0)) / n_rows
    scales = np.sqrt(total(((values - means) ** 2).sum(axis=0)) / n_rows)
    scales = np.where(scales > 0, scales, 1.0)  # a constant feature stays constant
    return {"means": means.tolist(), "scales": scales.tolist()}


def apply_scaling(values: Floats, scaling: Scaling) -> Floats:
    """Return the values, standardised where that was asked for."""
    if scaling is None:
        return values
    scaled: Floats = (values - np.asarray(scaling["means"])) / np.asarray(scaling["scales"])
    return scaled
