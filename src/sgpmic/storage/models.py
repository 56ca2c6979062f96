"""Estimators in model files: which array and which word means what.

Everything that decides a prediction is stored as it is, so a model that was saved and loaded
gives the same answers to the last bit. Checksums say that a file is as it was written, not that a
model was written to it: a file may be forged, or come from a program with an error. Whatever
passes the checks here can be predicted with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

import sgpmic
from sgpmic._types import Ints
from sgpmic.kernels import KERNELS, Kernel, like
from sgpmic.learning.prediction.cluster_normals import ClusterNormals
from sgpmic.learning.prediction.predictor import Predictor, Reference, _Densities
from sgpmic.learning.preprocessing import Reduction, Scaler
from sgpmic.learning.settings import EM, Committee, Computation, Settings, Start
from sgpmic.model.bound import Mappings
from sgpmic.model.mixture import Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.storage.model_file import NUMBER, ModelFileError, check_kinds, read_model, write_model

Arrays = Mapping[str, np.ndarray]

_KIND = "SGPMIC"
#: The arrays of a predictor: where it has them, and their dimensions. There are N rows in the
#: embedding and R in the reference, P features, Q latent dimensions, M clusters, U inducing points,
#: G mappings and C groups of features.
_ARRAYS = {
    "offset": ("scaler.offset", "P"),
    "scale": ("scaler.scale", "P"),
    "mean_variance": ("scaler.mean_variance", ""),
    "embedding": ("X", "NQ"),
    "memberships": ("S", "NM"),
    "inducing": ("posterior.mappings.Z", "UQ"),
    "beta": ("posterior.mappings.beta", ""),
    "mean_weights": ("posterior.mean_weights", "GUP"),
    "precision_loss": ("posterior.precision_loss", "GUU"),
    "A_inverse": ("A_inverse", "GUU"),
    "jitter": ("jitter", ""),
    "weights": ("posterior.mixture.weights", "M"),
    "means": ("posterior.mixture.means", "MQ"),
    "covariances": ("posterior.mixture.covariances", "MQQ"),
    "reference.rows": ("reference.rows", "RP"),
    "reference.points": ("reference.points", "RQ"),
    "reference.votes": ("reference.votes", "RM"),
    "strength": ("prior_weight", ""),
    "reference.keys": ("reference.keys", "N"),
    "reference.order": ("reference.order", "N"),
    "features_seen": ("seen", "P"),
}
_OPTIONAL = {"embedding_std": ("x_std", "NQ"), "groups": ("posterior.groups", "CP")}
#: What densities are made of, where they are known: they take longer than a prediction. There are
#: r axes of the normal distributions and L rows that were left out.
_DENSITIES = {
    "normals.weights": ("_densities.normals.weights", "M"),
    "normals.means": ("_densities.normals.means", "MP"),
    "normals.axes": ("_densities.normals.axes", "Pr"),
    "normals.roots": ("_densities.normals.roots", "Mrr"),
    "normals.noise": ("_densities.normals.noise", "P"),
    "mapping_share": ("_densities.mapping_share", ""),
    "left_out_log_density": ("_densities.left_out", "L"),
}
#: Places that have a number instead of an array without dimensions.
_NUMBERS = ("scaler.mean_variance", "jitter", "prior_weight", "_densities.mapping_share")
_Table = dict[str, tuple[str, str]]


def _table(kernel: Kernel, known: Collection[str]) -> _Table:
    """Return places and dimensions of all arrays of a predictor with this kind of kernel.

    Of those that not every predictor has, it has the ones in ``known``.
    """
    table = _ARRAYS | {name: entry for name, entry in _OPTIONAL.items() if name in known}
    if "groups" in known:
        for name in ("precision_loss", "A_inverse"):
            table[name] = (table[name][0], "GCUU")
    for name in kernel.parameters():
        dimensions = "GQ" if kernel.ard and name == kernel.dimension_field else "G"
        table[f"kernel.{name}"] = (f"posterior.mappings.kernels.{name}", dimensions)
    return table | (_DENSITIES if "left_out_log_density" in known else {})


class StoredModel(NamedTuple):
    """What a model file holds of an estimator."""

    predictor: Predictor
    #: By name: parameters, attributes (numbers and truth values), feature_names, the state of the
    #: encoder that makes rows of a user's table, and records of the fit (those of _HEADER).
    header: dict[str, Any]
    reduction: Reduction | None  # of sparse matrices
    empty_rows: Ints  # the numbers of rows without any value, which were not learned from


def save_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Write a model to ``path``."""
    predictor, said, reduction, empty_rows = model
    optional = {
        "embedding_std": predictor.x_std is not None,
        "groups": predictor.posterior.groups is not None,
        "left_out_log_density": predictor.knows_densities,
    }
    table = _table(predictor.kernels[0], [name for name, known in optional.items() if known])
    arrays = {name: np.asarray(attrgetter(place)(predictor)) for name, (place, _) in table.items()}
    parameters, parameter_arrays = encode_parameters(said["parameters"])
    arrays |= parameter_arrays
    if reduction is not None:
        arrays["reduction"] = reduction.components
    if len(empty_rows):
        arrays["empty_rows"] = empty_rows
    starts = []
    for i, start in enumerate(said["starts"]):
        arrays[f"start.{i}.labels"] = np.asarray(start["labels"])
        starts.append({name: value for name, value in start.items() if name != "labels"})
    header = {
        "package": sgpmic.__version__,
        "estimator": _KIND,
        "parameters": parameters,
        "kernel": kernel_to_json(predictor.kernels[0]),
        "scaling": predictor.scaler.kind,
        "starts": starts,
        **{name: said[name] for name in _AS_IT_IS},
    }
    write_model(path, _plain(header), arrays)


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model from ``path``."""
    header, arrays = read_model(path)
    try:
        if header["estimator"] != _KIND:
            raise ValueError(f"it holds a {header['estimator']}")
        kernel = KERNELS[header["kernel"]["name"]](ard=bool(header["kernel"]["ard"]))
        table = _table(kernel, arrays)
        check_arrays(arrays, table, kernel)
        check_header(header, arrays)
        said = {name: header[name] for name in _AS_IT_IS}
        said["parameters"] = decode_parameters(header["parameters"], arrays)
        said["starts"] = [
            start | {"labels": arrays[f"start.{i}.labels"]}
            for i, start in enumerate(header["starts"])
        ]
        return StoredModel(
            _make_predictor(arrays, table, kernel, header["scaling"]),
            said,
            Reduction(arrays["reduction"]) if "reduction" in arrays else None,
            arrays.get("empty_rows", np.zeros(0, np.int64)),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str | os.PathLike[str], reason: object) -> ModelFileError:
    """Return the error for a sound model file with contents that cannot be used."""
    return ModelFileError(
        f"{os.fspath(path)} is a model file, but not one of an SGPMIC that this version can read "
        f"({reason}); fit and save the model again."
    )


def _make_predictor(arrays: Arrays, table: _Table, kernel: Kernel, scaling: str) -> Predictor:
    fields: dict[str, Any] = {place: arrays[name] for name, (place, _) in table.items()}
    fields |= {place: float(fields[place]) for place in _NUMBERS if place in fields}
    fields |= {
        "scaler.kind": scaling,
        "posterior.n_features": np.array(float(arrays["offset"].size)),
        "reference.scale": arrays["scale"],
    }
    parts: dict[str, Callable[..., Any]] = {  # the innermost first
        "scaler": Scaler,
        "posterior.mappings.kernels": partial(like, kernel),
        "posterior.mappings": Mappings,
        "posterior.mixture": Mixture,
        "posterior": Posterior,
        "reference": Reference,
        "_densities.normals": ClusterNormals,
        "_densities": _Densities,
    }
    for place, kind in parts.items():
        own = [name for name in fields if name.startswith(f"{place}.")]
        if own:
            fields[place] = kind(**{name.rpartition(".")[2]: fields.pop(name) for name in own})
    densities = fields.pop("_densities", None)
    predictor = Predictor(**{"x_std": None} | fields)
    if densities is not None:
        predictor._densities = densities
    return predictor


def _plain(value: Any) -> Any:
    """Return a value of a header with Python's numbers in the place of NumPy's."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


#: Settings by name, and what of them no file keeps: functions are code; a checkpoint and a device
#: belong to one machine; earlier versions stored own_fits and batch_size, now without effect.
_SETTINGS = {kind.__name__: kind for kind in (Start, Committee, EM, Computation)}
_NOT_STORED = ("callbacks", "checkpoint", "device", "own_fits", "batch_size")


def encode_parameters(
    parameters: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return parameters as what JSON can hold, and the arrays that go beside it.

    A RandomState is left out: it holds no seed that could be written down.
    """
    arrays: dict[str, np.ndarray] = {}
    encoded = {
        name: _encode(value, f"parameter.{name}", arrays)
        for name, value in parameters.items()
        if not isinstance(value, np.random.RandomState)
    }
    return encoded, arrays


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a parameter as JSON; an array goes beside it under ``name``."""
    if isinstance(value, Settings):
        fields = value.get_params().items()
        kept = {k: _encode(v, f"{name}.{k}", arrays) for k, v in fields if k not in _NOT_STORED}
        return {"settings": type(value).__name__, "values": kept}
    if isinstance(value, Kernel):
        return {"kernel": kernel_to_json(value)}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    arrays[name] = np.asarray(value)
    return {"array": name}


def decode_parameters(
    encoded: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return the parameters that :func:`encode_parameters` encoded."""
    return {name: _decode(value, arrays) for name, value in encoded.items()}


def _decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "settings" in value:
        values = value["values"].items()
        kept = {k: _decode(v, arrays) for k, v in values if k not in _NOT_STORED}
        return _SETTINGS[value["settings"]](**kept)
    if "kernel" in value:
        kernel = value["kernel"]
        numbers = kernel["parameters"].items()
        fields = {k: np.asarray(v) if isinstance(v, list) else v for k, v in numbers}
        return KERNELS[kernel["name"]](ard=bool(kernel["ard"]), **fields)
    return arrays[value["array"]]


def kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel's name and numbers."""
    parameters = {k: np.asarray(v).tolist() for k, v in kernel.parameters().items()}
    return {"name": kernel.name, "ard": bool(kernel.ard), "parameters": parameters}


#: How far shares may be from adding up to one.
_ROUNDING = 1e-6
#: The types of arrays that are not float64.
_KINDS: dict[str, type[np.generic]] = {
    "reference.keys": np.uint64,
    "reference.order": np.int64,
    "features_seen": np.bool_,
    "empty_rows": np.int64,
}


def check_arrays(arrays: Arrays, table: _Table, kernel: Kernel) -> None:
    """Raise a ValueError unless the arrays are those of a predictor with this kind of kernel."""
    sizes = _check_each(arrays, table)
    if min(sizes[d] for d in "NQMPUR") < 1 or sizes["G"] not in (1, sizes["M"]):
        raise ValueError(f"sizes {sizes} do not go together")
    for g in range(sizes["G"]):
        parameters = {name: arrays[f"kernel.{name}"][g] for name in kernel.parameters()}
        type(kernel)(ard=kernel.ard, **parameters)
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
    empty = arrays.get("empty_rows", np.zeros(0, np.int64))
    n_all = len(arrays["embedding"]) + len(empty)
    if (np.diff(empty) <= 0).any() or ((empty < 0) | (empty >= n_all)).any():
        raise ValueError("empty_rows are not numbers of rows in their order")
    keys, order = arrays["reference.keys"], arrays["reference.order"]
    if (keys[1:] < keys[:-1]).any() or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError("reference.keys or reference.order are not in order")


def _check_each(arrays: Arrays, table: _Table) -> dict[str, int]:
    """Check every array's type and values, and that their shapes agree; return the sizes."""
    sizes: dict[str, int] = {}
    dimensions = {name: letters for name, (_, letters) in table.items()}
    if "empty_rows" in arrays:
        dimensions["empty_rows"] = "E"
    for name, letters in dimensions.items():
        array = arrays[name]
        if array.ndim == len(letters):
            sizes = dict(zip(letters, array.shape, strict=True)) | sizes
        shape = tuple(sizes.get(letter) for letter in letters)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        if array.dtype != _KINDS.get(name, np.float64):
            raise ValueError(f"{name} has the type {array.dtype}")
        # Training rows may have gaps.
        sound = ~np.isinf(array) if name == "reference.rows" else np.isfinite(array)
        if not sound.all():
            raise ValueError(f"{name} has values that are not finite numbers")
    return sizes


def _check_covariances(covariances: np.ndarray, weights: np.ndarray) -> None:
    # Of a cluster without weight nothing is asked.
    for covariance in covariances[weights > 0]:
        largest = np.abs(covariance).max()
        if (np.abs(covariance - covariance.T) > 1e-9 * largest).any():
            raise ValueError("covariances are not symmetric")
        if not (np.linalg.eigvalsh(covariance) > 0).all():
            raise ValueError("covariances are not positive definite")


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
#: What a header holds of an estimator as it is.
_AS_IT_IS = (
    *("attributes", "feature_names", "history", "committee", "support", "number_of_clusters"),
    *("number_of_dimensions", "encoder"),
)


def check_header(header: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise a ValueError unless a header's entries are of the kinds that the package reads."""
    check_kinds(header, _HEADER)
    P, n_features = arrays["offset"].size, header["attributes"]["n_features_in_"]
    if "reduction" in arrays and arrays["reduction"].shape != (P, n_features):
        raise ValueError(f"reduction has shape {arrays['reduction'].shape}, not {(P, n_features)}")
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
