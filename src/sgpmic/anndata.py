"""Clustering of the cells of an AnnData object, in the style of scanpy's ``tl.leiden``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from sgpmic.estimator import SGPMIC
from sgpmic.exceptions import SGPMICWarning, warn

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["cluster"]


def cluster(
    adata: AnnData,
    n_clusters: int | str = "auto",
    *,
    use_rep: str | None = None,
    n_pcs: int | None = None,
    key_added: str = "sgpmic",
    copy: bool = False,
    random_state: int | np.random.RandomState | None = 0,
    **parameters: Any,
) -> AnnData | None:
    """Cluster cells, and embed them in a latent space.

    Parameters
    ----------
    adata : AnnData
        Annotated data with cells as rows. Normalize and log-transform counts first.
    n_clusters : int or 'auto', default='auto'
        Number of clusters.
    use_rep : str, optional
        Representation to cluster: a key of ``adata.obsm``, or ``'X'``. By default ``'X_pca'`` if
        present, otherwise ``'X'``, dense or sparse.
    n_pcs : int, optional
        Number of columns of a representation in ``adata.obsm`` to use; all by default.
    key_added : str, default='sgpmic'
        Key under which to store the results.
    copy : bool, default=False
        Whether to return a copy with the results, and leave `adata` unchanged.
    random_state : int, RandomState instance or None, default=0
        Random seed.
    **parameters
        Other parameters of `SGPMIC`. By default principal components are scaled by a common factor
        (``scale='one'``), as the variance of a component reflects its importance.

    Returns
    -------
    AnnData or None
        The copy, or None with ``copy=False``. The following are added:

        - ``.obs[key_added]``: the cluster of each cell, a categorical of ``'0'``, ``'1'``, …;
          ``'0'`` is the largest.
        - ``.obs[key_added + '_certainty']``: the probability of that cluster.
        - ``.obsm[key_added + '_memberships']``: the probability of each cluster.
        - ``.obsm['X_' + key_added]``: the latent points, for ``sc.pl.embedding``.
        - ``.uns[key_added]``: the parameters (``'params'``), the test for cluster tendency
          (``'support'``), the cluster weights, the bound and whether the fit converged.

    Examples
    --------
    >>> from anndata import AnnData
    >>> from sklearn.datasets import load_iris
    >>> from sgpmic.anndata import cluster
    >>> adata = AnnData(load_iris().data)
    >>> cluster(adata, n_clusters=3)
    >>> list(adata.obs["sgpmic"].cat.categories)
    ['0', '1', '2']
    >>> adata.obsm["X_sgpmic"].shape
    (150, 2)
    """
    name, rows = _rows(adata, use_rep, n_pcs)
    if name == "X_pca":
        parameters.setdefault("scale", "one")
    model = SGPMIC(n_clusters=n_clusters, random_state=random_state, **parameters).fit(rows)
    asked = {"n_clusters": n_clusters, "use_rep": name, "n_pcs": n_pcs}
    result = adata.copy() if copy else adata
    _store(model, result, key_added, asked | parameters | {"random_state": random_state})
    return result if copy else None


def _rows(adata: AnnData, use_rep: str | None, n_pcs: int | None) -> tuple[str, Any]:
    """Return the name and the values of the representation to cluster."""
    name = use_rep or ("X_pca" if "X_pca" in adata.obsm else "X")
    if name == "X":
        if n_pcs is not None:
            raise ValueError("n_pcs needs principal components: run sc.pp.pca(adata) first.")
        if adata.isbacked:
            raise ValueError("adata.X is on disk: call adata = adata.to_memory() first.")
        values = adata.X.data if sparse.issparse(adata.X) else np.ravel(adata.X)
        some = np.asarray(values[:100_000])
        if some.size and some.max() > 1 and np.array_equal(some, np.abs(np.round(some))):
            warn(
                "adata.X looks like raw counts: clusters would mostly reflect sequencing depth. "
                "Normalize and log-transform it first (sc.pp.normalize_total, sc.pp.log1p).",
                SGPMICWarning,
            )
        return name, adata.X
    if name not in adata.obsm:
        raise KeyError(f"adata.obsm has no {name!r}, only {list(adata.obsm)}.")
    rows = adata.obsm[name]
    return name, getattr(rows, "iloc", rows)[:, :n_pcs]  # it may be a data frame


def _store(model: SGPMIC, adata: AnnData, key: str, asked: dict[str, Any]) -> None:
    import pandas as pd  # a dependency of anndata

    present = np.unique(model.labels_).astype(str)
    adata.obs[key] = pd.Categorical(model.labels_.astype(str), categories=present)
    adata.obs[f"{key}_certainty"] = model.memberships_.max(axis=1)
    adata.obsm[f"{key}_memberships"] = model.memberships_
    adata.obsm[f"X_{key}"] = model.embedding_
    plain = str | bool | int | float  # types that h5ad files support
    found: dict[str, Any] = {
        "params": {
            k: v if isinstance(v, plain) else repr(v) for k, v in asked.items() if v is not None
        },
        "n_clusters": int(model.n_clusters_),
        "n_components": int(model.n_components_),
        "weights": np.asarray(model.weights_),
        "lower_bound": float(model.lower_bound_),
        "converged": bool(model.converged_),
    }
    if (tendency := model.cluster_tendency_) is not None:
        found["support"] = {
            "sentence": tendency.sentence(),
            "supported": bool(tendency.supported),
            "p_value": float(tendency.p_value),
        }
    adata.uns[key] = found
