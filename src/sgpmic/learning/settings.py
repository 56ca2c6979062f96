"""Settings of a fit as small immutable objects, with constraints on their values.

The less common ones (:class:`Start`, :class:`Committee`, :class:`EM`, :class:`Computation`) are
parameters of :class:`sgpmic.SGPMIC`; nested values are set as in scikit-learn,
``model.set_params(start__n_neighbors=20)``. :class:`FitSettings` combines all settings of a fit.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, Self, get_type_hints

import jax
import numpy as np
from numpy.typing import ArrayLike

from sgpmic._types import Floats
from sgpmic.exceptions import Advice, InvalidParameterError
from sgpmic.kernels import Kernel
from sgpmic.model.mixture import COVARIANCE_TYPES
from sgpmic.model.rows import pad, padded_clusters
from sgpmic.process_group import ProcessGroup

#: Initial embeddings, memberships and inducing points.
EMBEDDINGS = ("isomap", "pca", "ppca", "spectral", "random")
MEMBERSHIPS = ("fcm", "kmeans", "gmm")
INDUCING = ("random", "kmeans")
#: Limit on starts and on retries, far beyond practical use; their seeds are drawn in advance.
MOST_STARTS = 10_000


#: Returns the error text that follows the parameter's name, or None for a valid value.
#: (scikit-learn's constraints are private, and name no remedy.)
Constraint = Callable[[Any], str | None]


def check(name: str, value: Any, constraint: Constraint) -> None:
    """Raise an error if a value violates a constraint."""
    problem = constraint(value)
    if problem is not None:
        raise InvalidParameterError(name, problem)


def one_of(*choices: str, or_array: bool = False) -> Constraint:
    """Constraint: one of ``choices``, or optionally an array."""
    known = ", ".join(map(repr, choices))

    def problem(value: Any) -> str | None:
        if isinstance(value, str):
            return None if value in choices else f"={value!r} is not known; use one of {known}."
        is_array = or_array and value is not None
        return None if is_array else f" must be one of {known}, got {value!r}."

    return problem


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, (bool, np.bool_))


def whole_number(
    least: int, *, or_none: bool = False, word: str | None = None, most: float = math.inf
) -> Constraint:
    """Constraint: an integer from ``least`` to ``most``; optionally None or the string ``word``."""

    def problem(value: Any) -> str | None:
        if (value is None and or_none) or (word is not None and value == word):
            return None
        if not _is_number(value, Integral):
            choice = "" if word is None else f" or {word!r}"
            return f" must be a whole number{choice}, got {value!r}."
        if value < least:
            return f" must be at least {least}, got {value}."
        return None if int(value) <= most else f" must be at most {most}, got {value}."

    return problem


def number(least: float, *, above: bool = False, word: str | None = None) -> Constraint:
    """Constraint: a finite number >= ``least`` (> if ``above``), or the string ``word``."""

    def problem(value: Any) -> str | None:
        if isinstance(value, str) and word is not None:
            return None if value == word else f" must be a number or {word!r}, got {value!r}."
        if not _is_number(value):
            return f" must be a number, got {value!r}."
        enough = float(value) > least if above else float(value) >= least
        if enough and np.isfinite(float(value)):
            return None
        bound = "greater than" if above else "at least"
        return f" must be {bound} {least:g} and finite, got {value}."

    return problem


def _is_count_or_share(value: Any) -> bool:
    if isinstance(value, str):
        return value == "auto"
    if _is_number(value, Integral):
        return bool(value >= 1)
    return _is_number(value) and 0.0 < float(value) < 1.0


def such_that(is_met: Callable[[Any], bool], what: str) -> Constraint:
    """Constraint from a predicate and its description."""
    return lambda value: None if is_met(value) else f" must be {what}, got {value!r}."


COUNT_OR_SHARE = such_that(
    _is_count_or_share,
    "a whole number of at least 1, a share of variance between 0 and 1 (such as 0.95), or 'auto'",
)
FLAG = such_that(lambda value: isinstance(value, (bool, np.bool_)), "True or False")
PATH_OR_NONE = such_that(
    lambda value: value is None or isinstance(value, (str, os.PathLike)), "the path of a folder"
)
CALLBACKS = such_that(
    lambda value: isinstance(value, (list, tuple)) and all(map(callable, value)),
    "a list of functions that take a Progress object",
)


def instance_of(kind: type, *, or_none: bool = False) -> Constraint:
    """Constraint: an instance of ``kind``, or optionally None."""
    return such_that(
        lambda value: isinstance(value, kind) or (or_none and value is None),
        f"a sgpmic.{kind.__name__}, such as {kind.__name__}(){' or None' if or_none else ''}",
    )


#: Default value of deprecated parameters, as in scikit-learn.
DEPRECATED = "deprecated"


class Settings:
    """Base class of all settings: validates the fields and implements ``get_params``.

    A field's annotation holds its constraint, or for a deprecated field the reason.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if isinstance(value, np.generic):  # as in a grid over np.arange; lacks int's methods
                object.__setattr__(self, name, value := value.item())
            (constraint,) = getattr(hint, "__metadata__", (lambda _: None,))
            if callable(constraint):
                check(name, value, constraint)
            elif value != DEPRECATED:
                warnings.warn(
                    f"{name} no longer has any effect and will be removed: {constraint}.",
                    FutureWarning,
                    stacklevel=3,  # past __init__
                )

    def __call__(self, **changes: Any) -> Self:
        """Return a copy with some values changed; scikit-learn wants default objects callable."""
        return replace(self, **changes)  # type: ignore[type-var]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the values by name, without deprecated ones; ``deep`` has no effect."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {k: v for k, v in values.items() if not (isinstance(v, str) and v == DEPRECATED)}


@dataclass(frozen=True)
class Start(Settings):
    """Initialization.

    Parameters
    ----------
    embedding : {'isomap', 'pca', 'ppca', 'spectral', 'random'} or array of shape \
(n_samples, n_components), default='isomap'
        Initial embedding.
    memberships : {'votes', 'fcm', 'kmeans', 'gmm'} or array of shape (n_samples, n_clusters), \
default='votes'
        Initial clustering: the committee's votes (fuzzy c-means without a committee), or fuzzy
        c-means, k-means or a Gaussian mixture of the initial embedding. With an array, the
        committee does not vote.
    n_init : int, default=1
        Number of starts: the one specified and others of different kinds. A consensus needs at
        least three; of two, the first is selected.
    n_neighbors : int, default=12
        Number of neighbors in the graphs of ISOMAP and the spectral embedding.
    pieces : {'join', 'largest'}, default='join'
        What ISOMAP does if its graph is disconnected: join the connected components by their
        shortest links, or embed only the largest and put the other rows at 0.
    unit_variance : bool, default=False
        Whether to scale each dimension of the initial embedding to unit variance. Otherwise all
        are scaled by one factor.
    inducing : {'random', 'kmeans'}, default='random'
        Initial inducing points: the latent points of random rows, or k-means centers.
    kernel_scale : float or 'data', default=0.01
        Factor on the kernel's initial values, for features of mean variance 1. A small factor
        makes the mapping weak at first, so that assignments settle in the latent space before it
        takes effect. 'data' uses the initial values unchanged, in the units of the data (the
        paper); it requires ``scale='one'`` or ``'none'``.
    n_retries : int, default=1
        Number of additional starts of other kinds, tried one after another while every fit so far
        has an empty cluster. Fits without empty clusters are preferred.
    selection : {'consensus', 'bound'}, default='consensus'
        How to select among several starts: the partition that agrees best with all others (highest
        mean adjusted Rand index), or the highest bound. The bound is not a reliable criterion
        between starts of different kinds.
    warm_start : bool, default=False
        Whether to initialize ``fit`` with the previous solution (same number of rows).
    """

    embedding: Annotated[str | ArrayLike, one_of(*EMBEDDINGS, or_array=True)] = "isomap"
    memberships: Annotated[str | ArrayLike, one_of("votes", *MEMBERSHIPS, or_array=True)] = "votes"
    n_init: Annotated[int, whole_number(1, most=MOST_STARTS)] = 1
    n_neighbors: Annotated[int, whole_number(1)] = 12
    pieces: Annotated[str, one_of("join", "largest")] = "join"
    unit_variance: Annotated[bool, FLAG] = False
    inducing: Annotated[str, one_of(*INDUCING)] = "random"
    kernel_scale: Annotated[float | str, number(0.0, above=True, word="data")] = 0.01
    n_retries: Annotated[int, whole_number(0, most=MOST_STARTS)] = 1
    selection: Annotated[str, one_of("consensus", "bound")] = "consensus"
    warm_start: Annotated[bool, FLAG] = False

    def __eq__(self, other: object) -> bool:
        # The generated method raises for arrays; in notebooks scikit-learn compares with defaults.
        return isinstance(other, Start) and all(
            map(np.array_equal, vars(self).values(), vars(other).values())
        )


@dataclass(frozen=True)
class Committee(Settings):
    """Ensemble of clusterings whose votes initialize the fit and serve as its assignment prior.

    k-means, Gaussian mixtures, Ward's method, spectral clustering and others vote on every row's
    cluster, weighted by what a learned judge expects of them (:mod:`sgpmic.committee.voting`). A
    row's calibrated vote shares are the prior of its assignment.
    With a committee, results do not depend on the order of rows and features
    (:mod:`sgpmic.learning.preprocessing`) or on ``random_state``.

    Parameters
    ----------
    strength : float, default=10
        Weight of the votes as a prior: with 1 they are an ordinary prior probability; larger
        values keep memberships closer to the votes.
    own_fits : bool
        Deprecated and without effect: short fits of this model no longer vote.
    max_rows : int, default=3000
        For larger tables, the committee votes on a random sample of this many rows; every other row
        gets the votes of its nearest neighbors in the sample.
    """

    strength: Annotated[float, number(1.0)] = 10.0
    own_fits: Annotated[bool | str, "short fits of the model no longer vote"] = DEPRECATED
    max_rows: Annotated[int, whole_number(10)] = 3000


@dataclass(frozen=True)
class EM(Settings):
    """Settings of EM, besides ``max_iter`` and ``tol``.

    Parameters
    ----------
    optimizer : {'lbfgs', 'scg'}, default='lbfgs'
        Optimizer of the M-step: L-BFGS, or scaled conjugate gradients as in the paper. L-BFGS
        needs half as many evaluations of the bound.
    m_steps : int, default=10
        Optimizer steps per EM iteration.
    e_steps : int, default=20
        Maximum number of E-steps per EM iteration.
    e_tol : float, default=1e-3
        The E-steps of an iteration stop when no responsibility changes by more than this.
    settle_mixture : bool, default=True
        Whether to update the latent mixture between the E-steps of an iteration, so that
        assignments settle in the latent space first.
    prior_strength : float, default=0.3
        Strength of the conjugate prior on the clusters' weights and covariances, as a fraction of
        the mean cluster size. It keeps small clusters from collapsing; 0 is the paper's model.
    covariance_floor : float, default=1e-4
        Minimum variance of a cluster in any latent direction; the overall variance of the latent
        points is 1.
    jitter : float, default=1e-8
        Added to the diagonal of the inducing points' kernel matrix, relative to its mean; raised
        when a factorization fails.
    callbacks : sequence of callables, default=()
        Called after every iteration with a :class:`sgpmic.Progress`; returning True stops the
        current start.
    """

    optimizer: Annotated[str, one_of("lbfgs", "scg")] = "lbfgs"
    m_steps: Annotated[int, whole_number(0)] = 10
    e_steps: Annotated[int, whole_number(1)] = 20
    e_tol: Annotated[float, number(0.0)] = 1e-3
    settle_mixture: Annotated[bool, FLAG] = True
    prior_strength: Annotated[float, number(0.0)] = 0.3
    covariance_floor: Annotated[float, number(0.0, above=True)] = 1e-4
    jitter: Annotated[float, number(0.0)] = 1e-8
    callbacks: Annotated[Sequence[Callable[[Any], object]], CALLBACKS] = ()


@dataclass(frozen=True)
class Computation(Settings):
    """Device, block size and checkpoints.

    Parameters
    ----------
    device : {'auto', 'cpu', 'gpu'}, default='auto'
        Device to compute on; 'auto' is a GPU if JAX finds one.
    block_size : int or None, default=None
        Number of rows per block. It affects speed and memory, and results only through rounding,
        which line searches amplify. By default, tables of similar sizes share compiled programs.
    batch_size : int or None
        Deprecated and without effect: every iteration passes over all rows.
    checkpoint : str, path or None, default=None
        Checkpoint folder. If it has a checkpoint of the same data and settings, ``fit`` resumes
        from it and gives the result of an uninterrupted fit. It is not deleted at the end, and
        another ``fit`` then returns at once: delete it to start over.
    checkpoint_every : int, default=1
        Number of iterations between checkpoints.
    """

    device: Annotated[str, one_of("auto", "cpu", "gpu")] = "auto"
    block_size: Annotated[int | None, whole_number(1, or_none=True)] = None
    batch_size: Annotated[int | str | None, "every iteration passes over all rows"] = DEPRECATED
    checkpoint: Annotated[str | os.PathLike[str] | None, PATH_OR_NONE] = None
    checkpoint_every: Annotated[int, whole_number(1)] = 1


#: A static pytree field: a new value means another compilation.
_static: Any = partial(field, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EMOptions:
    """Options of an EM iteration (:class:`EM`), traced or static."""

    m_steps: Any
    e_steps: Any
    e_tol: Any
    covariance_floor: Any
    shared: bool = _static()  # one mapping for all clusters instead of one for each
    covariance_type: str = _static()
    optimizer: str = _static()
    settle_mixture: bool = _static()
    has_prior: bool = _static()  # otherwise the terms of the conjugate prior are not compiled
    #: Whether latent points and mixture parameters have posteriors.
    variational: bool = _static()

    @property
    def sums_out(self) -> bool:
        """Whether S is marginalized out while the optimizer updates X."""
        return self.variational and self.shared


@dataclass(frozen=True)
class FitSettings(Settings):
    """All settings of a fit; see the parameters of :class:`sgpmic.SGPMIC`."""

    n_clusters: Annotated[Any, whole_number(1, word="auto")]  # an int once chosen
    n_components: Annotated[Any, COUNT_OR_SHARE]  # an int once chosen
    kernel: Kernel
    mapping: Annotated[str, one_of("shared", "per_cluster")]
    covariance_type: Annotated[str, one_of(*COVARIANCE_TYPES)]
    latent: Annotated[str, one_of("point", "variational")]
    n_inducing: Annotated[int, whole_number(1)]
    scale: Annotated[str, one_of("auto", "each", "one", "none")]
    committee: Annotated[Committee | None, instance_of(Committee, or_none=True)]
    max_iter: Annotated[int, whole_number(1)]
    tol: Annotated[float, number(0.0, word="auto")]  # a float once chosen
    start: Annotated[Start, instance_of(Start)]
    em: Annotated[EM, instance_of(EM)]
    computation: Annotated[Computation, instance_of(Computation)]
    verbose: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.computation.checkpoint is not None and self.start.warm_start:
            raise ValueError(
                "checkpoint and warm_start both set where learning starts: use only one of them."
            )
        if self.start.kernel_scale == "data" and self.scale in ("auto", "each"):
            why = (
                "A kernel scale from the data takes one unit for all features, not "
                f"{self.scale!r}: use 'one' or 'none' with it"
            )
            raise ValueError(Advice(why, "start__kernel_scale='data'", "scale='one'"))

    @property
    def options(self) -> EMOptions:
        """Options of an EM iteration."""
        em = self.em
        return EMOptions(
            m_steps=np.asarray(em.m_steps, np.int32),
            e_steps=np.asarray(em.e_steps, np.int32),
            e_tol=np.asarray(em.e_tol),
            covariance_floor=np.asarray(em.covariance_floor),
            shared=self.mapping == "shared",
            covariance_type=self.covariance_type,
            optimizer=em.optimizer,
            settle_mixture=bool(em.settle_mixture),
            has_prior=bool(em.prior_strength > 0),
            variational=self.latent == "variational",
        )

    @property
    def n_mappings(self) -> int:
        """Number of mappings."""
        return 1 if self.mapping == "shared" else self.n_clusters

    def takes_votes(self, n_rows: int) -> bool:
        """Return whether the committee votes on the rows."""
        by_name = isinstance(self.start.memberships, str)
        return self.committee is not None and by_name and 1 < self.n_clusters < n_rows

    def pseudo_counts(self, n_rows: int) -> Any:
        """Return the pseudo-counts of the conjugate prior for each cluster, 0 for padding."""
        strength = n_rows / self.n_clusters * float(self.em.prior_strength)
        if self.latent == "variational":  # a weak prior, so that clusters can merge
            strength = 1.0
        return pad(np.full(self.n_clusters, strength), (self.padded_clusters(n_rows),))

    def padded_clusters(self, n_rows: int) -> int:
        """Return the number of clusters, padded to share compiled programs."""
        if self.mapping != "shared":  # each mapping costs a pass over the rows
            return self.n_clusters
        return padded_clusters(self.n_clusters, n_rows)

    def check_table(self, Y: Floats, group: ProcessGroup) -> None:
        """Raise if these settings do not fit the table; ``Y`` holds the rows of this process."""
        is_empty = np.isnan(Y).all(axis=1)
        n_empty = int(group.total(is_empty.sum()))
        if n_empty:
            empty = np.flatnonzero(is_empty) + group.first
            shown = ", ".join(map(str, empty[:5])) + (", …" if len(empty) > 5 else "")
            names = f" (counted from 0: {shown})" if shown else ""
            what = "1 row has" if n_empty == 1 else f"{n_empty} rows have"
            raise ValueError(f"{what} no value at all{names}: leave out rows without any value.")
        if self.n_clusters != "auto" and group.n_rows < self.n_clusters:
            raise ValueError(
                f"n_samples={group.n_rows} is less than n_clusters={self.n_clusters}: ask for at "
                "most as many clusters as there are rows."
            )
