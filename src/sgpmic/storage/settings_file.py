"""An estimator's parameters as plain data: in model files, and in the tasks of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgpmic.kernels import KERNELS, Kernel
from sgpmic.learning.settings import EM, Committee, Computation, Settings, Start

#: Settings by name, and what of them no file keeps: functions are code; a checkpoint and a device
#: belong to one machine; earlier versions stored own_fits and batch_size, now without effect.
_SETTINGS: dict[str, type[Settings]] = {
    "Start": Start,
    "Committee": Committee,
    "EM": EM,
    "Computation": Computation,
}
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
