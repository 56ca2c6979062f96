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
from sgpmic.model.bound import Mappings, Parts, add_latent, data_from_sums, factorize_all, sums
from sgpmic.model.e_step import expected_log_likelihoods, responsibilities
from sgpmic.model.mixture import Mixture, factor_mixture, log_densities
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
def _one_mapping(
    mapping: Mappings, X: Array, t: Array, rows: Rows, jitter: float
) -> tuple[Array, Array]:
    """Return the data term and the rows' expected log likelihoods of one Gaussian process."""
    phi, psi = sums(mapping, X, t, rows)
    factors = factorize_all(mapping, phi, psi, jitter)
    term = data_from_sums(mapping, phi, psi, t, rows, jitter)
    return term, expected_log_likelihoods(mapping, factors, X, rows)


@compiled
def _latent(data: Array, mixture: Mixture, X: Array, S: Array, rows: Rows) -> tuple[Parts, Array]:
    """Return the terms of the bound, and the part of every row's log p_nm due to the mixture."""
    prior = factor_mixture(mixture)
    return add_latent(data, prior, X, S, rows), log_densities(prior, X) + prior.log_weights


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
        Data, used as given (not centered, not scaled).
    X : array-like of shape (n_samples, n_components)
        Latent rows.
    inducing : array-like of shape (n_inducing, n_components)
        Inducing inputs, shared by all components.
    kernels : sequence of Kernel
        One for each cluster (the paper's model), or a single one for a mapping shared by all
        clusters. They may be of different kinds.
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
    expected: dict[str, tuple[Floats, tuple[int, ...]]] = {
        "X": (X, (N, Q)),
        "inducing": (Z, (Z.shape[0], Q)),
        "S": (S, (N, M)),
        "weights": (pi, (M,)),
        "means": (means, (M, Q)),
        "covariances": (covariances, (M, Q, Q)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but {shape} was expected.")
    if len(kernels) not in (1, M):
        raise ValueError(
            f"{len(kernels)} kernels for {M} clusters: give one for each cluster, or one for all."
        )
    shared = len(kernels) == 1 and M > 1
    rows = make_rows(Y, block)
    X_pad, S_pad = (jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, S))
    T = rows.flat_weight[:, None] if shared else S_pad
    terms, likelihoods = [], []
    for m, kernel in enumerate(kernels):
        one = stack([kernel.for_dimensions(Q)])
        mapping = Mappings(one, jnp.asarray(Z), jnp.asarray(float(beta)))
        term, likelihood = _one_mapping(mapping, X_pad, T[:, m : m + 1], rows, jitter)
        terms.append(term)
        likelihoods.append(likelihood)
    mixture = Mixture(*map(jnp.asarray, (pi, means, covariances)))
    parts, log_p = _latent(sum(terms, jnp.zeros(())), mixture, X_pad, S_pad, rows)
    if not shared:  # a shared mapping is the same for every cluster and cancels
        log_p = log_p + jnp.concatenate(likelihoods, axis=1)

    return Evaluation(
        bound=float(parts.bound),
        parts={name: float(value) for name, value in parts._asdict().items()},
        responsibilities=np.asarray(responsibilities(log_p, rows))[:N],
    )
