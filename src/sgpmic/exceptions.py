"""Warnings and errors of our own; everything else uses Python's and scikit-learn's."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sklearn.exceptions import ConvergenceWarning, NotFittedError

__all__ = [
    "Advice",
    "ColumnsWarning",
    "ConvergenceWarning",
    "DeadClusterWarning",
    "DimensionsWarning",
    "EmptyFeatureWarning",
    "EmptyRowWarning",
    "InvalidParameterError",
    "JitterWarning",
    "NoStructureWarning",
    "NotFittedError",
    "SGPMICWarning",
    "StartWarning",
]


def __getattr__(name: str) -> Any:
    # Importing scikit-learn takes more than a second, and `sgpmic predict` should not.
    if name not in ("ConvergenceWarning", "NotFittedError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn import exceptions

    return getattr(exceptions, name)


class InvalidParameterError(ValueError, TypeError):
    """A parameter has a value that cannot be used; its name and the problem are the message.

    Like scikit-learn's, it is an error of value and of type, because callers expect either.
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(parameter, problem)
        self.parameter = parameter
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.parameter}{self.problem}"


class Advice(str):
    """The message of a warning or an error, with the parameters that would help.

    These are names, perhaps with a value (``"n_clusters='auto'"``), and end the sentence. Whoever
    has other names for them, such as the command line, makes a message of ``sentence`` and
    ``parameters``.
    """

    sentence: str
    parameters: tuple[str, ...]

    def __new__(cls, sentence: str, *parameters: str) -> Self:
        """Return the message in the words of the estimator."""
        named = f" ({', '.join(parameters)})." if parameters else ""
        message = super().__new__(cls, sentence + named)
        message.sentence, message.parameters = sentence, parameters
        return message


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
    theirs = sys.modules.get("sklearn.exceptions")  # not imported: no warning of theirs
    kinds = (SGPMICWarning, getattr(theirs, "ConvergenceWarning", SGPMICWarning))
    ours += [w for w in caught if issubclass(w.category, kinds)]
