"""What the arrays and words of a model file must be for a model to be made of them.

Checksums say that a file is as it was written, not that a model was written to it: a file may be
forged, or come from a program with an error. Whatever passes here can be predicted with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgpmic.kernels import KERNELS
from sgpmic.storage.json_kinds import NUMBER, check_kinds

Arrays = Mapping[str, np.ndarray]

#: How far shares may be from adding up to one.
_ROUNDING = 1e-6
#: The types of arrays that are not float64.
_KINDS: dict[str, type[np.generic]] = {
    "reference.keys": np.uint64,
    "reference.order": np.int64,
    "features_seen": np.bool_,
    "empty_rows": np.int64,
}


def check_arrays(arrays: Arrays, kernel: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the arrays are those of a predictor with this kind of kernel."""
    for name, shape in _shapes(arrays).items():
        array = arrays[name]
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        if array.dtype != _KINDS.get(name, np.float64):
            raise ValueError(f"{name} has the type {array.dtype}")
        # Training rows may have gaps.
        sound = ~np.isinf(array) if name == "reference.rows" else np.isfinite(array)
        if not sound.all():
            raise ValueError(f"{name} has values that are not finite numbers")
    for name in ("scale", "mean_variance", "beta", "embedding_std", "normals.noise"):
        if name in arrays and not (arrays[name] > 0).all():
            raise ValueError(f"{name} has values that are not positive")
    groups = arrays.get("groups", np.zeros((1, 1)))
    if not np.isin(groups, (0.0, 1.0)).all() or (groups.sum(axis=0) > 1).any():
        raise ValueError("groups do not divide the features")
    for name in ("jitter", "strength"):
        if arrays[name] < 0:
            raise ValueError(f"{name} is negative")
    if np.isnan(arrays["reference.rows"]).all(axis=1).any():
        raise ValueError("reference.rows have a row without values")
    votes = arrays["reference.votes"]  # in any proportion
    if (votes < 0).any() or not (votes.sum(axis=1) > 0).all():
        raise ValueError("reference.votes are not shares")
    shares = ["weights", "memberships"]
    if "left_out_log_density" in arrays:
        shares.append("normals.weights")
        if not 0.0 < arrays["mapping_share"] < 1.0 or not arrays["left_out_log_density"].size:
            raise ValueError("mapping_share or left_out_log_density are not those of densities")
    for name in shares:
        total = arrays[name].sum(axis=-1)
        if (arrays[name] < 0).any() or (np.abs(total - 1.0) > _ROUNDING).any():
            raise ValueError(f"{name} are not shares of one")
    _check_covariances(arrays["covariances"], arrays["weights"])
    _check_kernels(arrays, kernel)
    empty = arrays.get("empty_rows", np.zeros(0, np.int64))
    n_all = len(arrays["embedding"]) + len(empty)
    if (np.diff(empty) <= 0).any() or ((empty < 0) | (empty >= n_all)).any():
        raise ValueError("empty_rows are not numbers of rows in their order")
    keys, order = arrays["reference.keys"], arrays["reference.order"]
    if (keys[1:] < keys[:-1]).any() or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError("reference.keys or reference.order are not in order")


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shape that every array of a predictor must have."""
    N, Q = arrays["embedding"].shape
    M, P = arrays["weights"].size, arrays["offset"].size
    U, R = len(arrays["inducing"]), len(arrays["reference.rows"])
    G = arrays["kernel.variance"].size
    if min(N, Q, M, P, U, R) < 1 or G not in (1, M):
        raise ValueError(f"sizes {N}, {Q}, {M}, {P}, {U}, {R} and {G} do not go together")
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (N, Q),
        "memberships": (N, M),
        "inducing": (U, Q),
        "mean_weights": (G, U, P),
        "precision_loss": (G, U, U),
        "A_inverse": (G, U, U),
        "weights": (M,),
        "means": (M, Q),
        "covariances": (M, Q, Q),
        "reference.rows": (R, P),
        "reference.points": (R, Q),
        "reference.votes": (R, M),
        "strength": (),
        "reference.keys": (N,),
        "reference.order": (N,),
        "offset": (P,),
        "scale": (P,),
        "features_seen": (P,),
        "mean_variance": (),
        "beta": (),
        "jitter": (),
    }
    if "embedding_std" in arrays:
        shapes["embedding_std"] = (N, Q)
    if "empty_rows" in arrays:
        shapes["empty_rows"] = (arrays["empty_rows"].size,)
    if "left_out_log_density" in arrays:
        r = arrays["normals.axes"].shape[-1]
        shapes["left_out_log_density"] = (arrays["left_out_log_density"].size,)
        shapes |= {"mapping_share": (), "normals.weights": (M,), "normals.means": (M, P)}
        shapes |= {"normals.axes": (P, r), "normals.roots": (M, r, r), "normals.noise": (P,)}
    if "groups" in arrays:
        C = len(arrays["groups"])
        shapes |= {"groups": (C, P), "precision_loss": (G, C, U, U), "A_inverse": (G, C, U, U)}
    return shapes


def _check_covariances(covariances: np.ndarray, weights: np.ndarray) -> None:
    # Of a cluster without weight nothing is asked.
    for covariance in covariances[weights > 0]:
        largest = np.abs(covariance).max()
        if (np.abs(covariance - covariance.T) > 1e-9 * largest).any():
            raise ValueError("covariances are not symmetric")
        if not (np.linalg.eigvalsh(covariance) > 0).all():
            raise ValueError("covariances are not positive definite")


def _check_kernels(arrays: Arrays, described: Mapping[str, Any]) -> None:
    kind, ard = KERNELS[described["name"]], bool(described["ard"])
    Q, G = arrays["embedding"].shape[1], arrays["kernel.variance"].size
    parameters = {name: arrays[f"kernel.{name}"] for name in kind().parameters()}
    for name, values in parameters.items():
        shape = (G, Q) if ard and name == kind.dimension_field else (G,)
        if values.shape != shape or values.dtype != np.float64:
            raise ValueError(f"kernel.{name} has shape {values.shape}, not {shape}")
    for g in range(G):
        kind(ard=ard, **{name: values[g] for name, values in parameters.items()})


_HEADER = {
    "scaling": str,
    "feature_names": (None, [str]),
    "attributes": {
        "lower_bound_": NUMBER,
        "n_iter_": int,
        "converged_": bool,
        "n_features_in_": int,
    },
    "history": {Any: [(*NUMBER, bool)]},
    "starts": [dict],
    "committee": [dict],
    "support": (None, {"statistic": NUMBER, "p_value": NUMBER, "part": str, "noise": str}),
    "number_of_clusters": (None, dict),
    "number_of_dimensions": (None, dict),
}


def check_header(header: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise a ValueError unless a header's entries are of the kinds that the package reads."""
    check_kinds(header, _HEADER)
    P, n_features = arrays["offset"].size, header["attributes"]["n_features_in_"]
    # Of a sparse matrix it is checked with its reduction.
    if n_features != P and "reduction" not in arrays:
        raise ValueError(f"n_features_in_ is {n_features}, not {P}")
    if header["scaling"] not in ("each", "one", "none"):
        raise ValueError("its scaling is not known")
    names = header["feature_names"]
    if names is not None and not len(set(names)) == len(names) == n_features:
        raise ValueError(f"it does not name {n_features} features")
    for i in range(len(header["starts"])):
        # Those of the process that wrote the file; the embedding may be of a sample of all rows.
        labels = arrays[f"start.{i}.labels"]
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(f"the labels of start {i} are not whole numbers")
