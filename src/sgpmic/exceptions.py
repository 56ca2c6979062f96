"""Warnings and errors of our own; everything else uses Python's and scikit-learn's."""

from sklearn.exceptions import ConvergenceWarning, NotFittedError

__all__ = [
    "ConvergenceWarning",
    "DeadClusterWarning",
    "DimensionsWarning",
    "EmptyFeatureWarning",
    "JitterWarning",
    "NoStructureWarning",
    "NotFittedError",
    "SGPMICWarning",
    "StartWarning",
]


class SGPMICWarning(UserWarning):
    """Base of all warnings of this package."""


class DeadClusterWarning(SGPMICWarning):
    """A cluster has lost all its rows."""


class DimensionsWarning(SGPMICWarning):
    """There are more latent dimensions than features."""


class EmptyFeatureWarning(SGPMICWarning):
    """A feature has no value in any row."""


class JitterWarning(SGPMICWarning):
    """A kernel matrix was close to singular and had to be strengthened."""


class NoStructureWarning(SGPMICWarning):
    """The rows do not stand out from noise without clusters."""


class StartWarning(SGPMICWarning):
    """Something about the starting embedding is out of the ordinary."""
