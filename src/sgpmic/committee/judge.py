"""The judge: how good a partition is likely to be, learned from made-up problems.

Thousands of labeled problems were drawn from a documented prior (``benchmarks/judge``), all
members clustered each of them, and small neural networks learned to predict a partition's adjusted
Rand index with the truth from internal validity indices of it and of the other members. No real
data took part. The networks are an ensemble of perceptrons, evaluated here with NumPy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.members import MEMBERS
from sgpmic.committee.validity import INDICES, validity_indices

#: The learned weights, beside this module.
WEIGHTS_FILE = "judge.safetensors"
#: Votes are weighted by exp(sharpness · expected index): chosen on made-up problems.
SHARPNESS = 12.0
#: Standardized inputs are clipped: what lies further out was never learned.
_MOST_DEVIATIONS = 5.0


class Perceptrons(NamedTuple):
    """An ensemble of E multilayer perceptrons with the same inputs."""

    mean: Floats  # (d,) of the inputs
    std: Floats
    weights: tuple[Floats, ...]  # (E, inputs, outputs) of every layer
    biases: tuple[Floats, ...]  # (E, 1, outputs)

    def __call__(self, x: Floats) -> Floats:
        """Return the networks' outputs (E, n, outputs) for inputs (n, d)."""
        bound = _MOST_DEVIATIONS
        hidden = np.clip((x - self.mean) / self.std, -bound, bound)[None]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.tanh(hidden @ weight + bias)
        outputs: Floats = hidden @ self.weights[-1] + self.biases[-1]
        return outputs


class Opinion(NamedTuple):
    """What the judge thinks of the members' partitions."""

    expected: Floats  # (m,) adjusted Rand index with the truth that is expected
    weights: Floats  # (m,) of their votes, adding up to 1
    indices: Floats  # (m, len(INDICES)) validity indices
    agreement: Floats  # (m, m) adjusted Rand indices between members


@cache
def load_networks() -> dict[str, Perceptrons]:
    """Return the learned networks by name, of the file that comes with the package."""
    return parse_networks((files("sgpmic.committee") / WEIGHTS_FILE).read_bytes())


def parse_networks(content: bytes) -> dict[str, Perceptrons]:
    """Return the networks in the bytes of a safetensors file; refuse a damaged one."""
    from safetensors.numpy import load

    try:
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        arrays = load(content)
        if metadata["digest"] != digest(arrays):
            raise ValueError("its digest is another")
        names = sorted({name.partition(".")[0] for name in arrays})
        return {name: _network(arrays, name) for name in names}
    except Exception as error:
        raise ValueError(
            f"The weights of the judge ({WEIGHTS_FILE}) are damaged ({error}): reinstall sgpmic."
        ) from error


def _network(arrays: Mapping[str, Floats], name: str) -> Perceptrons:
    n_layers = sum(key.startswith(f"{name}.weight") for key in arrays)
    layers = range(n_layers)
    network = Perceptrons(
        arrays[f"{name}.mean"].astype(np.float64),
        arrays[f"{name}.std"].astype(np.float64),
        tuple(arrays[f"{name}.weight{i}"].astype(np.float64) for i in layers),
        tuple(arrays[f"{name}.bias{i}"].astype(np.float64)[:, None] for i in layers),
    )
    if not all(np.isfinite(leaf).all() for leaf in (*network.weights, *network.biases)):
        raise ValueError("weights are not finite")
    return network


def digest(arrays: Mapping[str, Floats]) -> str:
    """Return a digest of names, shapes and values, and of what the inputs mean."""
    found = hashlib.sha256(repr((INDICES, tuple(MEMBERS))).encode())
    for name in sorted(arrays):
        found.update(repr((name, arrays[name].shape, str(arrays[name].dtype))).encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def judge(geometry: Geometry, labels: Mapping[str, Ints], k: int) -> Opinion:
    """Return what is expected of partitions, and what their votes should count.

    Parameters
    ----------
    geometry : Geometry
    labels : mapping of str to ndarray of shape (n_samples,)
        Partitions by the names of the members, from 0 to k − 1.
    k : int
        At least 2.
    """
    networks = load_networks()
    indices, agreement = look_at(geometry, labels, k)
    inputs = judge_inputs(list(labels), indices, agreement, geometry.summary, k)
    outputs = networks["judge"](inputs)
    expected = np.clip(outputs[..., 0].mean(axis=0), 0.0, 1.0)
    return Opinion(expected, vote_weights(outputs[..., 1]), indices, agreement)


def vote_weights(expected: Floats) -> Floats:
    """Return what votes count, from the indices (E, m) that each network expects.

    Every network has its own weights, and theirs are averaged: where they disagree, as on data
    unlike any they have seen, more members count.
    """
    weights: Floats = softmax(SHARPNESS * expected, axis=1).mean(axis=0)
    return weights


def look_at(geometry: Geometry, labels: Mapping[str, Ints], k: int) -> tuple[Floats, Floats]:
    """Return the validity indices of partitions (m, …) and how far they agree (m, m)."""
    partitions = list(labels.values())
    return validity_indices(geometry, partitions, k), pairwise_agreement(np.stack(partitions), k)


def pairwise_agreement(labels: Ints, k: int) -> Floats:
    """Return the adjusted Rand indices (m, m) between partitions (m, n) into k clusters."""
    m, n = labels.shape
    members = np.eye(k)[labels].transpose(1, 0, 2).reshape(n, m * k)
    common = (members.T @ members).reshape(m, k, m, k)
    together = np.sum(common * (common - 1.0), axis=(1, 3)) / 2.0
    of_each = np.diag(together)  # pairs of rows that a partition puts together
    expected = np.outer(of_each, of_each) / max(n * (n - 1) / 2.0, 1.0)
    most = (of_each[:, None] + of_each) / 2.0
    alike = most <= expected
    agreement: Floats = np.where(
        alike, 1.0, (together - expected) / np.where(alike, 1.0, most - expected)
    )
    return agreement


def judge_inputs(
    names: Sequence[str],
    indices: Floats,
    agreement: Floats,
    summary: Sequence[float],
    k: int,
) -> Floats:
    """Return what the judge sees of every member (m, d).

    Every index by itself and relative to the other members (standardized, less the largest, and
    as a rank), which member it is, and what kind of problem.
    """
    m = len(names)
    others = agreement[~np.eye(m, dtype=bool)].reshape(m, m - 1) if m > 1 else np.ones((m, 1))
    own = np.column_stack([indices, others.mean(1), others.max(1), np.median(others, axis=1)])
    rank = (own[:, None] > own).sum(axis=1) / max(m - 1, 1)
    relative = (own - own.mean(axis=0)) / (own.std(axis=0) + 1e-6)
    kinds = np.array([[name == each for each in MEMBERS] for name in names], dtype=np.float64)
    by_name = dict(zip(INDICES, indices.T, strict=True))
    problem = [
        *summary,
        np.log(k),
        others.mean(),
        by_name["cut"].min(),
        by_name["silhouette"].max(),
        by_name["full BIC"].max(),
        by_name["reachability tree gap"].max(),
    ]
    return np.column_stack(
        [own, relative, own - own.max(axis=0), rank, kinds, np.tile(problem, (m, 1))]
    )
