"""An estimator's parameters as plain data: in model files, and in files of their own for jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgpmic.kernels import KERNELS, Kernel
from sgpmic.storage.model_file import ModelFileError, read_model, write_model

_KIND = "settings"

#: Functions are code, and no code goes into a file; a checkpoint belongs to a place.
_NOT_STORED = ("callbacks", "checkpoint")


def write_settings(path: str | os.PathLike[str], parameters: Mapping[str, Any]) -> None:
    """Write parameters to a file, wholly or not at all."""
    header, arrays = encode_parameters(parameters)
    write_model(path, {"kind": _KIND, "parameters": header}, arrays)


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the parameters that :func:`write_settings` wrote."""
    header, arrays = read_model(path)
    if header.get("kind") != _KIND:
        raise ModelFileError(f"{os.fspath(path)} is not a settings file.")
    return decode_parameters(header["parameters"], arrays)


def encode_parameters(
    parameters: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return parameters as what JSON can hold, and the arrays that go beside it.

    ``callbacks`` and ``checkpoint`` are left out; so is a RandomState, which holds no seed that
    could be written down.
    """
    encoded: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in parameters.items():
        if name in _NOT_STORED or isinstance(value, np.random.RandomState):
            continue
        if isinstance(value, Kernel):
            encoded[name] = {"kernel": kernel_to_json(value)}
        elif isinstance(value, (str, bool, int, float, type(None))):
            encoded[name] = value
        elif isinstance(value, np.generic):
            encoded[name] = value.item()
        else:
            arrays[f"parameter.{name}"] = np.asarray(value)
            encoded[name] = {"array": f"parameter.{name}"}
    return encoded, arrays


def decode_parameters(
    encoded: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return the parameters that :func:`encode_parameters` encoded."""
    return {name: _decode(value, arrays) for name, value in encoded.items()}


def _decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "kernel" in value:
        return kernel_from_json(value["kernel"])
    return arrays[value["array"]]


def kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel's name and numbers."""
    parameters = {k: np.asarray(v).tolist() for k, v in kernel.parameters().items()}
    return {"name": kernel.name, "ard": bool(kernel.ard), "parameters": parameters}


def kernel_from_json(value: Mapping[str, Any]) -> Kernel:
    """Return the kernel that :func:`kernel_to_json` described."""
    parameters = {
        k: np.asarray(v) if isinstance(v, list) else v for k, v in value["parameters"].items()
    }
    return KERNELS[value["name"]](ard=bool(value["ard"]), **parameters)
