"""Settings of a fit as small immutable objects, with constraints on their values.

The less common ones (:class:`Start`, :class:`Committee`, :class:`EM`, :class:`Computation`) are
parameters of :class:`sgpmic.SGPMIC`; nested values are set as in scikit-learn,
``model.set_params(start__n_neighbors=20)``. :class:`FitSettings` combines all settings of a fit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, Self, get_type_hints

import jax
import numpy as np
from numpy.typing import ArrayLike

from sgpmic.exceptions import Advice, InvalidParameterError, warn
from sgpmic.kernels import Kernel
from sgpmic.model.mixture import COVARIANCE_TYPES
from sgpmic.model.rows import pad, padded_clusters


class Constraint(NamedTuple):
    """Some of the values that a parameter may have, and their description.

    (scikit-learn's constraints are private, and slow to import.)
    """

    allows: Callable[[Any], bool]
    words: str


def check(name: str, value: Any, *constraints: Constraint) -> None:
    """Raise an error unless a value meets one of the constraints."""
    if not any(constraint.allows(value) for constraint in constraints):
        words = " or ".join(constraint.words for constraint in constraints)
        raise InvalidParameterError(name, f" must be {words}, got {value!r}.")


def one_of(*choices: str) -> Constraint:
    """Constraint: one of some words."""
    words = "one of " * (len(choices) > 1) + ", ".join(map(repr, choices))
    return Constraint(lambda value: isinstance(value, str) and value in choices, words)


def number(least: float, *, above: bool = False, kind: type = Real) -> Constraint:
    """Constraint: a finite number >= ``least`` (> if ``above``) of a kind."""

    def allows(value: Any) -> bool:
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        return is_number and (least < value < math.inf or (value == least and not above))

    name = "whole number" if kind is Integral else "finite number"
    return Constraint(allows, f"a {name} {'above' if above else 'of at least'} {least:g}")


def instance_of(kind: type) -> Constraint:
    """Constraint: an instance of a class of settings."""
    name = kind.__name__
    return Constraint(lambda value: isinstance(value, kind), f"a sgpmic.{name}, such as {name}()")


whole_number = partial(number, kind=Integral)
NONE = Constraint(lambda value: value is None, "None")
FLAG = Constraint(lambda value: isinstance(value, bool), "True or False")
ARRAY = Constraint(lambda value: value is not None and not isinstance(value, str), "an array")
PATH = Constraint(lambda value: isinstance(value, (str, os.PathLike)), "the path of a folder")
SHARE = Constraint(
    lambda value: isinstance(value, Real) and 0.0 < float(value) < 1.0,
    "a share of variance between 0 and 1 (such as 0.95)",
)
CALLBACKS = Constraint(
    lambda value: isinstance(value, (list, tuple)) and all(map(callable, value)),
    "a list of functions that take a Progress object",
)

#: Default value of deprecated parameters, as in scikit-learn.
DEPRECATED = "deprecated"


class Settings:
    """Base class of all settings: validates the fields and implements ``get_params``.

    A field's annotation holds its constraints, or for a deprecated field the reason.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if isinstance(value, np.generic):  # as in a grid over np.arange; lacks int's methods
                object.__setattr__(self, name, value := value.item())
            match getattr(hint, "__metadata__", ()):
                case (str(reason),):
                    if value != DEPRECATED:
                        why = f"{name} no longer has any effect and will be removed: {reason}."
                        warn(why, FutureWarning)
                case (_, *_) as constraints:
                    check(name, value, *constraints)

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
    embedding : {'isomap', 'pca'} or array of shape (n_samples, n_components), default='isomap'
        Initial embedding.
    memberships : {'votes', 'fcm'} or array of shape (n_samples, n_clusters), default='votes'
        Initial clustering: the committee's votes (fuzzy c-means without a committee), or fuzzy
        c-means of the initial embedding. With an array, the committee does not vote.
    n_init : int, default=1
        Number of starts: the one specified and others of different kinds. The partition that
        agrees best with all others is selected (highest mean adjusted Rand index): the bound is
        not a reliable criterion between starts of different kinds. Of two, the first is selected.
    n_neighbors : int, default=12
        Number of neighbors in ISOMAP's graph.
    pieces : {'join', 'largest'}, default='join'
        What ISOMAP does if its graph is disconnected: join the connected components by their
        shortest links, or embed only the largest and put the other rows at 0.
    unit_variance : bool, default=False
        Whether to scale each dimension of the initial embedding to unit variance. Otherwise all
        are scaled by one factor.
    inducing, selection, warm_start : str or bool
        Deprecated and without effect.
    kernel_scale : float or 'data', default=0.01
        Factor on the kernel's initial values, for features of mean variance 1. A small factor
        makes the mapping weak at first, so that assignments settle in the latent space before it
        takes effect. 'data' uses the initial values unchanged, in the units of the data (the
        paper); it requires ``scale='one'`` or ``'none'``.
    n_retries : int, default=1
        Number of additional starts of other kinds, tried one after another while every fit so far
        has an empty cluster. Fits without empty clusters are preferred.
    """

    embedding: Annotated[str | ArrayLike, one_of("isomap", "pca"), ARRAY] = "isomap"
    memberships: Annotated[str | ArrayLike, one_of("votes", "fcm"), ARRAY] = "votes"
    n_init: Annotated[int, whole_number(1)] = 1
    n_neighbors: Annotated[int, whole_number(1)] = 12
    pieces: Annotated[str, one_of("join", "largest")] = "join"
    unit_variance: Annotated[bool, FLAG] = False
    inducing: Annotated[str, "inducing points are the latent points of random rows"] = DEPRECATED
    kernel_scale: Annotated[float | str, number(0.0, above=True), one_of("data")] = 0.01
    n_retries: Annotated[int, whole_number(0)] = 1
    selection: Annotated[str, "the fit that agrees best with the others is kept"] = DEPRECATED
    warm_start: Annotated[bool | str, "every fit starts anew"] = DEPRECATED

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
    settle_mixture : bool
        Deprecated and without effect.
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
    settle_mixture: Annotated[bool | str, "E-steps always update the mixture"] = DEPRECATED
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
    block_size: Annotated[int | None, whole_number(1), NONE] = None
    batch_size: Annotated[int | str | None, "every iteration passes over all rows"] = DEPRECATED
    checkpoint: Annotated[str | os.PathLike[str] | None, PATH, NONE] = None
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

    n_clusters: Annotated[Any, whole_number(1), one_of("auto")]  # an int once chosen
    n_components: Annotated[Any, whole_number(1), SHARE, one_of("auto")]  # an int once chosen
    kernel: Kernel
    mapping: Annotated[str, one_of("shared", "per_cluster")]
    covariance_type: Annotated[str, one_of(*COVARIANCE_TYPES)]
    latent: Annotated[str, one_of("point", "variational")]
    n_inducing: Annotated[int, whole_number(1)]
    scale: Annotated[str, one_of("auto", "each", "one", "none")]
    committee: Annotated[Committee | None, instance_of(Committee), NONE]
    max_iter: Annotated[int, whole_number(1)]
    tol: Annotated[float, number(0.0), one_of("auto")]  # a float once chosen
    start: Annotated[Start, instance_of(Start)]
    em: Annotated[EM, instance_of(EM)]
    computation: Annotated[Computation, instance_of(Computation)]
    verbose: int

    def __post_init__(self) -> None:
        super().__post_init__()
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
