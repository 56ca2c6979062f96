"""Checks of the estimator's parameters: one sentence that says what to do."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import DEVICES
from sgpmic.learning import embeddings, inducing, memberships, starts
from sgpmic.model.mixture import COVARIANCE_TYPES
from sgpmic.parallel.group import ProcessGroup

# Rows whose singular values are found directly; of more, by way of their products.
_MOST_DECOMPOSED = 100_000

MAPPINGS = ("shared", "per_cluster")
OPTIMIZERS = ("scg", "lbfgs")

_CHOICES: dict[str, tuple[str, ...]] = {
    "mapping": MAPPINGS,
    "covariance_type": COVARIANCE_TYPES,
    "init": embeddings.METHODS,
    "init_memberships": memberships.METHODS,
    "inducing": inducing.METHODS,
    "isomap_pieces": embeddings.PIECES,
    "optimizer": OPTIMIZERS,
    "selection": starts.SELECTIONS,
    "device": DEVICES,
}
_MAY_BE_ARRAY = ("init", "init_memberships")
_WHOLE_NUMBERS = {
    "n_clusters": 1,
    "n_inducing": 1,
    "n_init": 1,
    "n_retries": 0,
    "n_neighbors": 1,
    "max_iter": 1,
    "m_steps": 0,
    "e_steps": 1,
    "checkpoint_every": 1,
}
_NUMBERS = {"tol": 0.0, "prior_strength": 0.0, "jitter": 0.0, "e_tol": 0.0}


def check_parameters(parameters: dict[str, Any]) -> None:
    """Raise a TypeError or ValueError for the first parameter that cannot be used."""
    for name, least in _WHOLE_NUMBERS.items():
        check_whole_number(name, parameters[name], least)
    for name, smallest in _NUMBERS.items():
        _check_number(name, parameters[name], smallest)
    _check_number("covariance_floor", parameters["covariance_floor"], 0.0, open_interval=True)
    if parameters["block_size"] is not None:
        check_whole_number("block_size", parameters["block_size"], 1)
    _check_batch_size(parameters["batch_size"], parameters["n_inducing"])
    for name, choices in _CHOICES.items():
        value = parameters[name]
        if isinstance(value, str):
            if value not in choices:
                raise ValueError(
                    f"{name}={value!r} is not known; use one of {', '.join(map(repr, choices))}."
                )
        elif name not in _MAY_BE_ARRAY or value is None:
            raise TypeError(
                f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}."
            )
    _check_components(parameters["n_components"])
    _check_kernel_scale(parameters["kernel_scale"])
    _check_checkpoint(parameters["checkpoint"], parameters["warm_start"])
    callbacks = parameters["callbacks"]
    if callbacks is not None and not (
        isinstance(callbacks, (list, tuple)) and all(callable(c) for c in callbacks)
    ):
        raise TypeError("callbacks must be a list of functions that take a Progress object.")


def check_whole_number(name: str, value: Any, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def _check_number(name: str, value: Any, smallest: float, open_interval: bool = False) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    too_small = number <= smallest if open_interval else number < smallest
    if too_small or not np.isfinite(number):
        relation = "greater than" if open_interval else "at least"
        raise ValueError(f"{name} must be {relation} {smallest:g} and finite, got {value}.")


def _check_batch_size(value: Any, n_inducing: int) -> None:
    if value is None:
        return
    check_whole_number("batch_size", value, 1)
    if value < n_inducing:
        raise ValueError(
            f"batch_size={value} is less than n_inducing={n_inducing}: a batch of so few rows "
            "says too little about the mapping; use some thousand rows, or None for all at once."
        )


def _check_checkpoint(value: Any, warm_start: Any) -> None:
    if value is None:
        return
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be the path of a file, got {value!r}.")
    if warm_start:
        raise ValueError(
            "checkpoint and warm_start both say where learning goes on from: use one of them."
        )


def _check_kernel_scale(value: Any) -> None:
    if isinstance(value, str):
        if value != "data":
            raise ValueError(f"kernel_scale must be a number or 'data', got {value!r}.")
    else:
        _check_number("kernel_scale", value, 0.0, open_interval=True)


def _check_components(value: Any) -> None:
    message = (
        "n_components must be a whole number of at least 1, or a share of variance between 0 "
        f"and 1 (such as 0.95), got {value!r}."
    )
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(message)
    if isinstance(value, Integral):
        if value < 1:
            raise ValueError(message)
    elif not 0.0 < float(value) < 1.0:
        raise ValueError(message)


def count_components(
    n_components: Any, Y: NDArray[np.float64], group: ProcessGroup | None = None
) -> int:
    """Return the number of latent dimensions: as given, or enough for that share of variance.

    As in scikit-learn's PCA: the smallest number of principal components whose explained variance
    exceeds the share.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    squares = _principal_squares(Y, ProcessGroup(len(Y)) if group is None else group)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))


def _principal_squares(Y: NDArray[np.float64], group: ProcessGroup) -> NDArray[np.float64]:
    """Return the squared singular values of the centred table of all processes."""
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        return np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    offset = group.total(Y.sum(axis=0)) / group.n_rows
    products = np.zeros((Y.shape[1], Y.shape[1]))
    for first in range(0, len(Y), _MOST_DECOMPOSED):
        part = Y[first : first + _MOST_DECOMPOSED] - offset
        products += part.T @ part
    values = np.linalg.eigvalsh(group.total(products))[::-1]
    return np.maximum(values, 0.0)
