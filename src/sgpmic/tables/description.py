"""A table in its user's words: numbers in their own units, categories by their levels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Levels(NamedTuple):
    """A column of words.

    Attributes
    ----------
    name : str
    levels : tuple of str
    codes : ndarray of int, shape (n_rows,)
        The place of every row's level among them, -1 where it is missing.
    """

    name: str
    levels: tuple[str, ...]
    codes: NDArray[np.int64]
