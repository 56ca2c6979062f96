"""Warnings and errors of this package, besides Python's and scikit-learn's."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

__all__ = [
    "Advice",
    "ColumnsWarning",
    "DeadClusterWarning",
    "DimensionsWarning",
    "EmptyFeatureWarning",
    "EmptyRowWarning",
    "InvalidParameterError",
    "JitterWarning",
    "NoStructureWarning",
    "SGPMICWarning",
    "StartWarning",
]


class InvalidParameterError(ValueError, TypeError):
    """Invalid value of a parameter; the message is its name and the problem.

    Like scikit-learn's, it is both a ValueError and a TypeError, because callers expect either.
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(parameter, problem)
        self.parameter = parameter
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.parameter}{self.problem}"


class Advice(str):
    """Message of a warning or an error that ends with the parameters that would help.

    Parameters are names, optionally with a value (``"n_clusters='auto'"``). Interfaces with other
    names for them, such as the command line, build a message from ``sentence`` and ``parameters``.
    """

    sentence: str
    parameters: tuple[str, ...]

    def __new__(cls, sentence: str, *parameters: str) -> Self:
        """Return the message with the estimator's parameter names."""
        named = f" ({', '.join(parameters)})." if parameters else ""
        message = super().__new__(cls, sentence + named)
        message.sentence, message.parameters = sentence, parameters
        return message


class SGPMICWarning(UserWarning):
    """Base class of all warnings of this package."""


class ColumnsWarning(SGPMICWarning):
    """Columns of a table were encoded or dropped, or look as if they should be."""


class DeadClusterWarning(SGPMICWarning):
    """A cluster is empty."""


class DimensionsWarning(SGPMICWarning):
    """There are more latent dimensions than features."""


class EmptyFeatureWarning(SGPMICWarning):
    """A feature has no value in any row."""


class EmptyRowWarning(SGPMICWarning):
    """A row has no value in any feature."""


class JitterWarning(SGPMICWarning):
    """A kernel matrix was close to singular and its jitter was raised."""


class NoStructureWarning(SGPMICWarning):
    """The rows cannot be distinguished from noise without clusters."""


class StartWarning(SGPMICWarning):
    """There is something unusual about the initialization."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the user's line: the first one outside this package and what it is called through."""
    frame, level = sys._getframe(1), 2
    passed = ("sgpmic", "sklearn", "joblib", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in passed:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_renamed(old: str, new: str) -> None:
    """Warn that a public name has changed; the old one still works."""
    said = f"{old} is now called {new}; the old name will be removed in the next release."
    warn(said, FutureWarning)


class FormerNames:
    """Base class of classes with renamed attributes; the old names still work, with a warning."""

    _former: ClassVar[dict[str, str]]

    if not TYPE_CHECKING:  # type checkers would accept any attribute name

        def __getattr__(self, name: str) -> Any:
            if name not in self._former:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_renamed(f"{type(self).__name__}.{name}", self._former[name])
            return getattr(self, self._former[name])


@contextmanager
def collected_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings about the data, in a list filled on exit, and suppress all others."""
    ours: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True, action="always") as caught:
        yield ours
    theirs = sys.modules.get("sklearn.exceptions")  # if not imported, there are no such warnings
    kinds = (SGPMICWarning, getattr(theirs, "ConvergenceWarning", SGPMICWarning))
    ours += [w for w in caught if issubclass(w.category, kinds)]
