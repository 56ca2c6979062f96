"""The methods of the comparison, found by their names in the table."""

from __future__ import annotations

from importlib import import_module

from paper.methods.base import Clustering, Method, Problem

__all__ = ["METHOD_NAMES", "Clustering", "Method", "Problem", "get_method"]

# Imported when asked for: the neural ones need packages that few users have.
_MODULES = {
    "PCA-FCM": "reduce_then_cluster",
    "ISOMAP-FCM": "reduce_then_cluster",
    "PPCA-FCM": "reduce_then_cluster",
    "FGPLVM-FCM": "gaussian_process",
    "AE-FCM": "autoencoder",
    "VAE-FCM": "vae_fcm",
    "AML": "projections",
    "UNCA": "unca",
    "DEC": "projections",
    "SDC": "sdc",
    "DEEPC": "deepc",
    "SGP-MIC": "gaussian_process",
    "defaults": "gaussian_process",
}

#: The columns of the table: the paper's twelve, and our own defaults.
METHOD_NAMES = tuple(_MODULES)


def get_method(name: str) -> Method:
    """Return the method of that name, or raise an ImportError that names what to install for it."""
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sgpmic"):
            raise
        raise ImportError(
            f"{name} needs {error.name}, which is not installed: pip install 'sgpmic[paper]'."
        ) from None
    return module.METHODS[name]
