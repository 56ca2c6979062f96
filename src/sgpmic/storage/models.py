"""Saving and loading fitted estimators: the layout of arrays and header in model files.

Everything that predictions depend on is stored exactly, so a loaded model gives bitwise identical
predictions. Checksums show that a file is unchanged, not that it holds a valid model: it may be
forged, or written by a faulty program. A file that passes the checks here can be used for
prediction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

import sgpmic
from sgpmic._types import Floats, History, Ints
from sgpmic.kernels import KERNELS, Kernel, like
from sgpmic.learning.prediction.cluster_normals import ClusterNormals
from sgpmic.learning.prediction.predictor import Predictor, Reference, _Densities
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.settings import EM, Committee, Computation, Settings, Start
from sgpmic.model.bound import Mappings
from sgpmic.model.mixture import Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.storage.model_file import NUMBER, ModelFileError, check_kinds, read_model, write_model

Arrays = Mapping[str, np.ndarray]
_Table = dict[str, tuple[str, ...]]

_KIND = "SGPMIC"
#: The arrays of a predictor: attribute path, dimensions, and constraints on the values (_RULES).
#: N are the rows of the embedding, R the rows of the reference, P features, Q latent dimensions,
#: M clusters, U inducing points, G mappings and C groups of features.
_ARRAYS: _Table = {
    "offset": ("scaler.offset", "P"),
    "scale": ("scaler.scale", "P", "positive"),
    "mean_variance": ("scaler.mean_variance", "", "positive"),
    "embedding": ("X", "NQ"),
    "memberships": ("S", "NM", "shares of one"),
    "inducing": ("posterior.mappings.Z", "UQ"),
    "beta": ("posterior.mappings.beta", "", "positive"),
    "mean_weights": ("posterior.mean_weights", "GUP"),
    "precision_loss": ("posterior.precision_loss", "GUU"),
    "A_inverse": ("A_inverse", "GUU"),
    "jitter": ("jitter", "", "at least 0"),
    "weights": ("posterior.mixture.weights", "M", "shares of one"),
    "means": ("posterior.mixture.means", "MQ"),
    "covariances": ("posterior.mixture.covariances", "MQQ"),
    "reference.rows": ("reference.rows", "RP", "rows with values"),
    "reference.points": ("reference.points", "RQ"),
    "reference.votes": ("reference.votes", "RM", "votes"),
    "strength": ("prior_weight", "", "at least 0"),
    "reference.keys": ("reference.keys", "N", "in order"),
    "reference.order": ("reference.order", "N", "a permutation"),
    "features_seen": ("seen", "P"),
}
#: Optional arrays, by the one whose presence implies the others. Densities take longer to compute
#: than a prediction; r are the axes of the normal distributions, L the left-out rows.
_OPTIONAL: dict[str, _Table] = {
    "embedding_std": {"embedding_std": ("x_std", "NQ", "positive")},
    "groups": {
        "groups": ("posterior.groups", "CP", "parts of the features"),
        "precision_loss": ("posterior.precision_loss", "GCUU"),
        "A_inverse": ("A_inverse", "GCUU"),
    },
    "left_out_log_density": {
        "normals.weights": ("_densities.normals.weights", "M", "shares of one"),
        "normals.means": ("_densities.normals.means", "MP"),
        "normals.axes": ("_densities.normals.axes", "Pr"),
        "normals.roots": ("_densities.normals.roots", "Mrr"),
        "normals.noise": ("_densities.normals.noise", "P", "positive"),
        "mapping_share": ("_densities.mapping_share", "", "between 0 and 1"),
        "left_out_log_density": ("_densities.left_out", "L"),
    },
}
#: Attributes that are Python floats instead of 0-d arrays.
_NUMBERS = ("scaler.mean_variance", "jitter", "prior_weight", "_densities.mapping_share")
#: Constructors of a predictor's nested parts, innermost first.
_PARTS: dict[str, Callable[..., Any]] = {
    "scaler": Scaler,
    "posterior.mappings": Mappings,
    "posterior.mixture": Mixture,
    "posterior": Posterior,
    "reference": Reference,
    "_densities.normals": ClusterNormals,
    "_densities": _Densities,
}


def _table(kernel: Kernel, known: Collection[str]) -> _Table:
    """Return the layout of a predictor's arrays; of the optional ones, those in ``known``."""
    table = dict(_ARRAYS)
    for name, optional in _OPTIONAL.items():
        table |= optional if name in known else {}
    for name in kernel.parameters():
        dimensions = "GQ" if kernel.ard and name == kernel.dimension_field else "G"
        table[f"kernel.{name}"] = (f"posterior.mappings.kernels.{name}", dimensions)
    return table


class StoredModel(NamedTuple):
    """The contents of a model file."""

    predictor: Predictor
    #: The entries parameters, starts, and all of _HEADER.
    header: dict[str, Any]
    reduction: Floats | None  # of a sparse matrix: Vᵀ (n_kept, n_features)
    empty_rows: Ints  # indices of rows without any value, which were left out of the fit


def save_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Write a model to ``path``."""
    predictor, said, reduction, empty_rows = model
    optional = {
        "embedding_std": predictor.x_std is not None,
        "groups": predictor.posterior.groups is not None,
        "left_out_log_density": "_densities" in vars(predictor),
    }
    kernel = predictor.kernels[0]
    table = _table(kernel, [name for name, known in optional.items() if known])
    arrays = {name: np.asarray(attrgetter(place)(predictor)) for name, (place, *_) in table.items()}
    parameters, parameter_arrays = encode_parameters(said["parameters"])
    arrays |= parameter_arrays
    if reduction is not None:
        arrays["reduction"] = reduction
    if len(empty_rows):
        arrays["empty_rows"] = empty_rows
    starts = [dict(start) for start in said["starts"]]
    arrays |= {f"start.{i}.labels": np.asarray(s.pop("labels")) for i, s in enumerate(starts)}
    header = {
        "package": sgpmic.__version__,
        "estimator": _KIND,
        "parameters": parameters,
        "kernel": _kernel_to_json(kernel),
        "scaling": predictor.scaler.kind,
        "starts": starts,
        **{name: said[name] for name in _HEADER},
    }
    # Converts NumPy scalars to Python numbers.
    plain = json.loads(json.dumps(header, default=lambda number: number.item()))
    write_model(path, plain, arrays)


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model from ``path``."""
    header, arrays = read_model(path)
    try:
        if header["estimator"] != _KIND:
            raise ValueError(f"it holds a {header['estimator']}")
        kernel = KERNELS[header["kernel"]["name"]](ard=bool(header["kernel"]["ard"]))
        table = _table(kernel, arrays)
        _check_arrays(arrays, table, kernel)
        _check_header(header, arrays)
        said = {name: header[name] for name in _HEADER}
        history = dict(header["history"])
        if "round" in history:  # its name in 1.0.0rc1
            history["iteration"] = history.pop("round")
        said["history"] = History(history)
        said["parameters"] = decode_parameters(header["parameters"], arrays)
        said["starts"] = [
            start | {"labels": arrays[f"start.{i}.labels"]}
            for i, start in enumerate(header["starts"])
        ]
        return StoredModel(
            _make_predictor(arrays, table, kernel, header["scaling"]),
            said,
            arrays.get("reduction"),
            arrays.get("empty_rows", np.zeros(0, np.int64)),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str | os.PathLike[str], reason: object) -> ModelFileError:
    """Return the error for an intact model file with invalid contents."""
    return ModelFileError(
        f"{os.fspath(path)} is a model file, but not one of an SGPMIC that this version can read "
        f"({reason}); fit and save the model again."
    )


def _make_predictor(arrays: Arrays, table: _Table, kernel: Kernel, scaling: str) -> Predictor:
    fields: dict[str, Any] = {place: arrays[name] for name, (place, *_) in table.items()}
    fields |= {place: float(fields[place]) for place in _NUMBERS if place in fields}
    fields |= {
        "scaler.kind": scaling,
        "posterior.n_features": np.array(float(arrays["offset"].size)),
        "reference.scale": arrays["scale"],
    }
    kernels: Any = partial(like, kernel)
    for place, kind in {"posterior.mappings.kernels": kernels, **_PARTS}.items():
        own = [name for name in fields if name.startswith(f"{place}.")]
        if own:
            fields[place] = kind(**{name.rpartition(".")[2]: fields.pop(name) for name in own})
    densities = fields.pop("_densities", None)
    predictor = Predictor(**{"x_std": None} | fields)
    if densities is not None:
        predictor._densities = densities
    return predictor


#: Settings classes by name, and parameters that are not stored: callbacks are code; a checkpoint
#: and a device belong to one machine; the others are of earlier versions and have no effect.
_SETTINGS = {kind.__name__: kind for kind in (Start, Committee, EM, Computation)}
NOT_STORED = (
    *("callbacks", "checkpoint", "device"),
    *("own_fits", "batch_size", "inducing", "selection", "settle_mixture", "warm_start"),
)
#: Kinds of starts in earlier versions, instead of which the default is read.
_FORMER_STARTS = ("ppca", "spectral", "random", "kmeans", "gmm")


def encode_parameters(
    parameters: Mapping[str, Any], place: str = "parameter"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return parameters as JSON values, and the arrays; a RandomState has no seed to store."""
    encoded: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in parameters.items():
        if name in NOT_STORED or isinstance(value, np.random.RandomState):
            continue
        if isinstance(value, Settings):
            values, own = encode_parameters(value.get_params(), f"{place}.{name}")
            encoded[name] = {"settings": type(value).__name__, "values": values}
            arrays |= own
        elif isinstance(value, Kernel):
            encoded[name] = {"kernel": _kernel_to_json(value)}
        elif value is None or isinstance(value, (str, bool, int, float, np.generic)):
            encoded[name] = value.item() if isinstance(value, np.generic) else value
        else:
            encoded[name] = {"array": f"{place}.{name}"}
            arrays[f"{place}.{name}"] = np.asarray(value)
    return encoded, arrays


def decode_parameters(encoded: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Inverse of :func:`encode_parameters`."""

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "settings" in value:
            kept = {
                name: kept
                for name, kept in value["values"].items()
                if name not in NOT_STORED and kept not in _FORMER_STARTS
            }
            return _SETTINGS[value["settings"]](**decode_parameters(kept, arrays))
        if "array" in value:
            return arrays[value["array"]]
        kernel = value["kernel"]
        numbers = kernel["parameters"].items()
        fields = {k: np.asarray(v) if isinstance(v, list) else v for k, v in numbers}
        return KERNELS[kernel["name"]](ard=bool(kernel["ard"]), **fields)

    return {name: decode(value) for name, value in encoded.items()}


def _kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    parameters = {k: np.asarray(v).tolist() for k, v in kernel.parameters().items()}
    return {"name": kernel.name, "ard": bool(kernel.ard), "parameters": parameters}


#: The dtypes of arrays that are not float64.
_TYPES: dict[str, type[np.generic]] = {
    "reference.keys": np.uint64,
    "reference.order": np.int64,
    "features_seen": np.bool_,
    "empty_rows": np.int64,
}


#: Constraints on array values, by name.
_RULES: dict[str, Callable[[Any], Any]] = {
    "positive": lambda array: (array > 0).all(),
    "at least 0": lambda number: number >= 0,
    "between 0 and 1": lambda number: 0 < number < 1,
    "shares of one": lambda S: (S >= 0).all() and (np.abs(S.sum(axis=-1) - 1.0) <= 1e-6).all(),
    "votes": lambda votes: (votes >= 0).all() and (votes.sum(axis=1) > 0).all(),
    "rows with values": lambda rows: not np.isnan(rows).all(axis=1).any(),
    "parts of the features": lambda C: np.isin(C, (0, 1)).all() and (C.sum(axis=0) <= 1).all(),
    "in order": lambda keys: (keys[1:] >= keys[:-1]).all(),
    "a permutation": lambda order: np.array_equal(np.sort(order), np.arange(len(order))),
}


def _check_arrays(arrays: Arrays, table: _Table, kernel: Kernel) -> None:
    """Raise a ValueError unless the arrays are valid for a predictor with this kind of kernel."""
    sizes: dict[str, int] = {}
    optional = {"empty_rows": ("", "E"), "reduction": ("", "PF")}
    optional = {name: shape for name, shape in optional.items() if name in arrays}
    for name, (_, letters, *rules) in (table | optional).items():
        array = arrays[name]
        if array.ndim == len(letters):
            sizes = dict(zip(letters, array.shape, strict=True)) | sizes
        shape = tuple(sizes.get(letter) for letter in letters)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        if array.dtype != _TYPES.get(name, np.float64):
            raise ValueError(f"{name} has the type {array.dtype}")
        # Training rows may have missing values (NaN).
        sound = ~np.isinf(array) if name == "reference.rows" else np.isfinite(array)
        if not sound.all():
            raise ValueError(f"{name} has values that are not finite numbers")
        for rule in rules:
            if not _RULES[rule](array):
                raise ValueError(f"{name} has values that are not {rule}")
    if min(sizes.get(d, 1) for d in "NQMPURL") < 1 or sizes["G"] not in (1, sizes["M"]):
        raise ValueError(f"sizes {sizes} are inconsistent")
    for g in range(sizes["G"]):
        parameters = {name: arrays[f"kernel.{name}"][g] for name in kernel.parameters()}
        type(kernel)(ard=kernel.ard, **parameters)
    for covariance in arrays["covariances"][arrays["weights"] > 0]:
        if (np.abs(covariance - covariance.T) > 1e-9 * np.abs(covariance).max()).any():
            raise ValueError("covariances are not symmetric")
        if not (np.linalg.eigvalsh(covariance) > 0).all():
            raise ValueError("covariances are not positive definite")
    empty = arrays.get("empty_rows", np.zeros(0, np.int64))
    n_all = sizes["N"] + len(empty)
    if (np.diff(empty) <= 0).any() or ((empty < 0) | (empty >= n_all)).any():
        raise ValueError("empty_rows are not numbers of rows in their order")


_ATTRIBUTES = {"lower_bound_": NUMBER, "n_iter_": int, "converged_": bool, "n_features_in_": int}
#: Schema of the header entries that are stored unchanged.
_HEADER: dict[str, Any] = {
    "attributes": _ATTRIBUTES,
    "feature_names": (None, [str]),
    "history": {Any: [(*NUMBER, bool)]},
    "committee": [dict],
    "support": (None, {"statistic": NUMBER, "p_value": NUMBER, "part": str, "noise": str}),
    "number_of_clusters": (None, dict),
    "number_of_dimensions": (None, dict),
    "encoder": (None, dict),
}


def _check_header(header: Mapping[str, Any], arrays: Arrays) -> None:
    check_kinds(header, _HEADER | {"starts": [dict]})
    n_features = header["attributes"]["n_features_in_"]
    P = arrays["reduction"].shape[1] if "reduction" in arrays else arrays["offset"].size
    if n_features != P:
        raise ValueError(f"n_features_in_ is {n_features}, not {P}")
    if header["scaling"] not in ("each", "one", "none"):
        raise ValueError("its scaling is not known")
    names = header["feature_names"]
    if names is not None and not len(set(names)) == len(names) == n_features:
        raise ValueError(f"it does not name {n_features} features")
    for i in range(len(header["starts"])):
        # Labels of the writing process's rows; the embedding may be a sample of all rows.
        labels = arrays[f"start.{i}.labels"]
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(f"the labels of start {i} are not whole numbers")
