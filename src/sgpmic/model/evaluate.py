"""The bound as a function of plain arrays, for independent verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from sgpmic._runtime import numerics
from sgpmic._types import Floats
from sgpmic.compile_cache import compiled
from sgpmic.kernels import Kernel, stack
from sgpmic.model.bound import Mappings, Parts, add_latent, data_term, mapping_weights
from sgpmic.model.e_step import e_step
from sgpmic.model.mixture import Mixture, factor_mixture
from sgpmic.model.rows import Rows, make_rows, pad_rows


@dataclass(frozen=True)
class Evaluation:
    """Result of :func:`evaluate`.

    Attributes
    ----------
    bound : float
        The KL-corrected bound.
    parts : dict of str to float
        ``data``, ``latent_prior``, ``weights`` and ``entropy``; they add up to the bound.
    responsibilities : ndarray of shape (n_samples, n_clusters)
        Result of one exact E-step from the given S.
    """

    bound: float
    parts: dict[str, float]
    responsibilities: Floats


@compiled
def _evaluate(
    mappings: Mappings,
    mixture: Mixture,
    X: Array,
    S: Array,
    rows: Rows,
    jitter: Array,
    shared: bool,
) -> tuple[Parts, Array]:
    """Return the terms of the bound and the responsibilities after an E-step."""
    prior = factor_mixture(mixture)
    T = mapping_weights(S, rows, shared=shared)
    parts = add_latent(data_term(mappings, X, T, rows, jitter), prior, X, S, rows)
    return parts, e_step(mappings, prior, X, S, rows, shared=shared, jitter=jitter)[0]


@numerics()
def evaluate(
    Y: ArrayLike,
    X: ArrayLike,
    inducing: ArrayLike,
    kernels: Sequence[Kernel],
    beta: float,
    S: ArrayLike,
    weights: ArrayLike,
    means: ArrayLike,
    covariances: ArrayLike,
    jitter: float = 0.0,
    *,
    block: int | None = None,
) -> Evaluation:
    """Evaluate the KL-corrected bound and one exact E-step for given parameters.

    Parameters
    ----------
    Y : array-like of shape (n_samples, n_features)
        Data, used as given (not centered, not scaled); NaN is a missing value.
    X : array-like of shape (n_samples, n_components)
        Latent rows.
    inducing : array-like of shape (n_inducing, n_components)
        Inducing inputs, shared by all mappings.
    kernels : sequence of Kernel
        One for each cluster (the paper's model), all of the same kind, or a single one for a
        mapping shared by all clusters.
    beta : float
        Noise precision.
    S : array-like of shape (n_samples, n_clusters)
        Responsibilities; exact zeros are fine. Rows need not sum to one.
    weights : array-like of shape (n_clusters,)
    means : array-like of shape (n_clusters, n_components)
    covariances : array-like of shape (n_clusters, n_components, n_components)
    jitter : float, default=0.0
        Added to the diagonal of K_uu, relative to its mean; raised where a factorization fails.
    block : int or None
        Rows processed at a time; does not change the result beyond rounding.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import numpy as np
    >>> from sgpmic.kernels import RBF
    >>> from sgpmic.model import evaluate
    >>> rng = np.random.default_rng(0)
    >>> result = evaluate(
    ...     Y=rng.normal(size=(10, 3)), X=rng.normal(size=(10, 2)),
    ...     inducing=rng.normal(size=(4, 2)), kernels=[RBF(), RBF(gamma=0.5)], beta=2.0,
    ...     S=np.full((10, 2), 0.5), weights=[0.5, 0.5], means=np.zeros((2, 2)),
    ...     covariances=np.stack([np.eye(2)] * 2))
    >>> bool(np.isclose(sum(result.parts.values()), result.bound))
    True
    """
    Y, X, Z, S, pi, means, covariances = (
        np.asarray(a, dtype=np.float64) for a in (Y, X, inducing, S, weights, means, covariances)
    )
    N, Q, M = Y.shape[0], X.shape[-1], S.shape[-1]
    for name, array, shape in (
        ("X", X, (N, Q)),
        ("inducing", Z, (Z.shape[0], Q)),
        ("S", S, (N, M)),
        ("weights", pi, (M,)),
        ("means", means, (M, Q)),
        ("covariances", covariances, (M, Q, Q)),
    ):
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but {shape} was expected.")
    if len(kernels) not in (1, M):
        raise ValueError(
            f"{len(kernels)} kernels for {M} clusters: give one for each cluster, or one for all."
        )
    shared = len(kernels) == 1 and M > 1
    rows = make_rows(Y, block)
    stacked = stack([kernel.for_dimensions(Q) for kernel in kernels])
    parts, responsibilities = _evaluate(
        Mappings(stacked, jnp.asarray(Z), jnp.asarray(float(beta))),
        Mixture(*map(jnp.asarray, (pi, means, covariances))),
        *(jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, S)),
        rows,
        jnp.full(len(kernels), float(jitter)),
        shared,
    )
    return Evaluation(
        bound=float(parts.bound),
        parts={name: float(value) for name, value in parts._asdict().items()},
        responsibilities=np.asarray(responsibilities)[:N],
    )
