"""Warnings and errors of our own; everything else uses Python's and scikit-learn's."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.exceptions import ConvergenceWarning, NotFittedError

__all__ = [
    "ColumnsWarning",
    "ConvergenceWarning",
    "DeadClusterWarning",
    "DimensionsWarning",
    "EmptyFeatureWarning",
    "EmptyRowWarning",
    "JitterWarning",
    "NoStructureWarning",
    "NotFittedError",
    "SGPMICWarning",
    "StartWarning",
]


class SGPMICWarning(UserWarning):
    """Base of all warnings of this package."""


class ColumnsWarning(SGPMICWarning):
    """Columns of a table were encoded, or left out."""


class DeadClusterWarning(SGPMICWarning):
    """A cluster has lost all its rows."""


class DimensionsWarning(SGPMICWarning):
    """There are more latent dimensions than features."""


class EmptyFeatureWarning(SGPMICWarning):
    """A feature has no value in any row."""


class EmptyRowWarning(SGPMICWarning):
    """A row has no value in any feature."""


class JitterWarning(SGPMICWarning):
    """A kernel matrix was close to singular and had to be strengthened."""


class NoStructureWarning(SGPMICWarning):
    """The rows do not stand out from noise without clusters."""


class StartWarning(SGPMICWarning):
    """Something about the starting embedding is out of the ordinary."""


@contextmanager
def collected_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings instead of showing them; at the end the list has those of this package.

    Others say nothing about the data.
    """
    ours: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield ours
    ours += [w for w in caught if issubclass(w.category, SGPMICWarning | ConvergenceWarning)]
