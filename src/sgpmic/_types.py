"""Types used throughout the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sgpmic.exceptions import warn_renamed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class History(dict[str, list[float]]):
    """A list per quantity, over all iterations of all starts."""

    def __missing__(self, name: str) -> list[float]:
        if name != "round":
            raise KeyError(name)
        warn_renamed("history_['round']", "history_['iteration']")
        return self["iteration"]
