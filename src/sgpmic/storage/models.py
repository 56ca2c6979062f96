"""Estimators in model files: which array and which word means what.

Everything that decides a prediction is stored as it is, so a model that was saved and loaded
gives the same answers to the last bit.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import sgpmic
from sgpmic._types import Ints
from sgpmic.committee.outcome import Support
from sgpmic.kernels import KERNELS, stacked_like
from sgpmic.learning.prediction.cluster_normals import ClusterNormals
from sgpmic.learning.prediction.predictor import Predictor, Reference, _Densities
from sgpmic.learning.preprocessing import Reduction, Scaler
from sgpmic.model.bound import Mappings
from sgpmic.model.mixture import Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.model.rows import pad
from sgpmic.storage.model_checks import check_arrays, check_header
from sgpmic.storage.model_file import ModelFileError, read_model, write_model
from sgpmic.storage.settings_file import decode_parameters, encode_parameters, kernel_to_json

_KIND = "SGPMIC"
#: What a header holds of a model as it is.
_PLAIN = (
    *("attributes", "feature_names", "history", "committee", "number_of_clusters"),
    *("number_of_dimensions", "encoder"),
)


@dataclass
class StoredModel:
    """What a model file holds of an estimator."""

    predictor: Predictor
    parameters: dict[str, Any]
    attributes: dict[str, Any]  # numbers and truth values by name
    feature_names: list[str] | None
    history: dict[str, list[float]]
    starts: list[dict[str, Any]]
    committee: list[dict[str, Any]]
    support: Support | None
    number_of_clusters: dict[str, Any] | None
    number_of_dimensions: dict[str, Any] | None
    encoder: dict[str, Any] | None  # the state of what makes rows of a user's table
    reduction: Reduction | None  # of sparse matrices
    empty_rows: Ints  # the numbers of rows without any value, which were not learned from


def save_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Write a model to ``path``."""
    arrays = _predictor_arrays(model.predictor)
    parameters, parameter_arrays = encode_parameters(model.parameters)
    arrays |= parameter_arrays
    if model.reduction is not None:
        arrays["reduction"] = model.reduction.components
    if len(model.empty_rows):
        arrays["empty_rows"] = model.empty_rows
    starts = []
    for i, start in enumerate(model.starts):
        arrays[f"start.{i}.labels"] = np.asarray(start["labels"])
        starts.append({name: value for name, value in start.items() if name != "labels"})
    header = {
        "package": sgpmic.__version__,
        "estimator": _KIND,
        "parameters": parameters,
        "kernel": kernel_to_json(model.predictor.kernels[0]),
        "scaling": model.predictor.scaler.kind,
        "starts": starts,
        "support": None if model.support is None else asdict(model.support),
        **{name: getattr(model, name) for name in _PLAIN},
    }
    write_model(path, _plain(header), arrays)


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model from ``path``."""
    header, arrays = read_model(path)
    try:
        if header["estimator"] != _KIND:
            raise ValueError(f"it holds a {header['estimator']}")
        check_arrays(arrays, header["kernel"])
        check_header(header, arrays)
        return StoredModel(
            predictor=_predictor_from_arrays(header["kernel"], header["scaling"], arrays),
            parameters=decode_parameters(header["parameters"], arrays),
            starts=[
                start | {"labels": arrays[f"start.{i}.labels"]}
                for i, start in enumerate(header["starts"])
            ],
            support=None if header["support"] is None else Support(**header["support"]),
            reduction=_reduction(arrays, int(header["attributes"]["n_features_in_"])),
            empty_rows=arrays.get("empty_rows", np.zeros(0, np.int64)),
            **{name: header[name] for name in _PLAIN},
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise unreadable(path, error) from error


def _reduction(arrays: dict[str, Any], n_features: int) -> Reduction | None:
    if "reduction" not in arrays:
        return None
    components = arrays["reduction"]
    expected = (len(arrays["offset"]), n_features)
    if components.shape != expected:
        raise ValueError(f"reduction has shape {components.shape}, not {expected}")
    return Reduction(components)


def unreadable(path: str | os.PathLike[str], reason: object) -> ModelFileError:
    """Return the error for a sound model file with contents that cannot be used."""
    return ModelFileError(
        f"{os.fspath(path)} is a model file, but not one of an SGPMIC that this version can read "
        f"({reason}); fit and save the model again."
    )


def _predictor_arrays(predictor: Predictor) -> dict[str, np.ndarray]:
    posterior, reference = predictor.posterior, predictor.reference
    arrays: dict[str, Any] = {
        "offset": predictor.scaler.offset,
        "scale": predictor.scaler.scale,
        "mean_variance": predictor.scaler.mean_variance,
        "embedding": predictor.X,
        "memberships": predictor.S,
        "inducing": posterior.mappings.Z,
        "beta": posterior.mappings.beta,
        "mean_weights": posterior.mean_weights,
        "precision_loss": posterior.precision_loss,
        "A_inverse": predictor.A_inverse,
        "jitter": predictor.jitter,
        "weights": posterior.mixture.weights,
        "means": posterior.mixture.means,
        "covariances": posterior.mixture.covariances,
        "reference.rows": reference.rows,
        "reference.points": reference.points,
        "reference.votes": reference.votes,
        "strength": predictor.prior_weight,
        "reference.keys": reference.keys,
        "reference.order": reference.order,
        "features_seen": predictor.seen,
    }
    if predictor.x_std is not None:
        arrays["embedding_std"] = predictor.x_std
    if posterior.groups is not None:
        arrays["groups"] = posterior.groups
    for name, value in posterior.mappings.kernels.parameters().items():
        arrays[f"kernel.{name}"] = value
    if predictor.knows_densities:  # they take longer than a prediction
        normals, share, left_out = predictor._densities
        arrays |= {f"normals.{name}": value for name, value in normals._asdict().items()}
        arrays |= {"mapping_share": share, "left_out_log_density": left_out}
    return {name: np.asarray(array) for name, array in arrays.items()}


def _predictor_from_arrays(
    kernel: dict[str, Any], scaling: str, arrays: dict[str, Any]
) -> Predictor:
    P = len(arrays["offset"])
    kernel_type = KERNELS[kernel["name"]]
    pattern = kernel_type(ard=bool(kernel["ard"]))
    stacked = stacked_like(pattern, {n: arrays[f"kernel.{n}"] for n in pattern.parameters()})
    predictor = Predictor(
        Scaler(arrays["offset"], arrays["scale"], scaling, float(arrays["mean_variance"])),
        Posterior(
            Mappings(stacked, arrays["inducing"], arrays["beta"]),
            arrays["mean_weights"],
            arrays["precision_loss"],
            Mixture(arrays["weights"], arrays["means"], arrays["covariances"]),
            pad(float(P), ()),
            arrays.get("groups"),
        ),
        arrays["embedding"],
        arrays["memberships"],
        Reference(
            arrays["reference.rows"],
            arrays["reference.points"],
            arrays["reference.votes"],
            arrays["reference.keys"],
            arrays["reference.order"],
            arrays["scale"],
        ),
        arrays["A_inverse"],
        float(arrays["jitter"]),
        float(arrays["strength"]),
        arrays.get("embedding_std"),
        arrays["features_seen"].astype(bool),
    )
    if "left_out_log_density" in arrays:
        predictor._densities = _Densities(
            ClusterNormals(**{name: arrays[f"normals.{name}"] for name in ClusterNormals._fields}),
            float(arrays["mapping_share"]),
            arrays["left_out_log_density"],
        )
    return predictor


def _plain(value: Any) -> Any:
    """Return a value of a header with Python's numbers in the place of NumPy's."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
