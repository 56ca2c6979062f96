"""Training of the committee's networks with JAX; the library evaluates them with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from judge.observe import Arrays
from sgpmic.committee.judge import Perceptrons, judge_inputs
from sgpmic.committee.members import MEMBERS

Params = list[tuple[jax.Array, jax.Array]]
#: Loss of one network, from its outputs for a batch and the batch's targets.
Loss = Callable[[jax.Array, dict[str, jax.Array]], jax.Array]

_HIDDEN = (48, 24)
_RATE, _DECAY = 2e-3, 1e-3


def train(
    inputs: np.ndarray[Any, Any],
    targets: Mapping[str, np.ndarray[Any, Any]],
    mask: np.ndarray[Any, Any],
    loss: Loss,
    *,
    n_outputs: int,
    n_networks: int = 8,
    epochs: int = 40,
    batch: int = 64,
    hidden: Sequence[int] = _HIDDEN,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
) -> Perceptrons:
    """Train an ensemble of perceptrons with AdamW.

    If examples have kinds, each network is trained without one of them, so that the ensemble
    disagrees on out-of-distribution problems.

    Parameters
    ----------
    inputs : ndarray of shape (n_examples, n_items, d)
        An example has several items (members, numbers of clusters) that share one loss term.
    targets : mapping of str to ndarray of shape (n_examples, ...)
    mask : ndarray of shape (n_examples, n_items)
        Which items exist; the others are padding.
    loss : callable
        Takes outputs (batch, n_items, n_outputs) and the batch's targets, including 'mask'.
    """
    present = inputs[mask]
    mean, std = present.mean(axis=0), present.std(axis=0) + 1e-6
    x = jnp.asarray(np.clip((inputs - mean) / std, -5.0, 5.0) * mask[..., None], jnp.float32)
    y = {name: jnp.asarray(value) for name, value in {**targets, "mask": mask}.items()}
    sizes = [inputs.shape[-1], *hidden, n_outputs]
    params = [_initial(jax.random.key(seed * 1000 + i), sizes) for i in range(n_networks)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    seen = [np.arange(len(inputs))] * n_networks
    if kinds is not None:
        names = sorted(set(kinds))
        seen = [np.flatnonzero(np.array(kinds) != names[i % len(names)]) for i in range(n_networks)]
    batch = min(batch, *map(len, seen))
    n_batches = min(map(len, seen)) // batch
    steps = epochs * n_batches
    optimizer = optax.adamw(optax.cosine_decay_schedule(_RATE, steps), weight_decay=_DECAY)

    def apply(params: Params, x: jax.Array) -> jax.Array:
        for weight, bias in params[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return x @ params[-1][0] + params[-1][1]

    def objective(params: Params, rows: jax.Array) -> jax.Array:
        return loss(apply(params, x[rows]), {name: value[rows] for name, value in y.items()})

    @jax.jit
    def epoch(params: Params, state: Any, orders: jax.Array) -> tuple[Params, Any]:
        def step(carry: Any, rows: jax.Array) -> Any:
            params, state = carry
            gradients = jax.vmap(jax.grad(objective))(params, rows)
            updates, state = optimizer.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), orders)[0]

    state = optimizer.init(stacked)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        # Each network sees the examples in a different order.
        order = np.stack([rng.permutation(each)[: n_batches * batch] for each in seen])
        orders = order.reshape(n_networks, n_batches, batch).swapaxes(0, 1)
        stacked, state = epoch(stacked, state, jnp.asarray(orders))
    weights = tuple(np.asarray(weight, np.float64) for weight, _ in stacked)
    biases = tuple(np.asarray(bias, np.float64)[:, None] for _, bias in stacked)
    return Perceptrons(mean, std, weights, biases)


def _initial(key: jax.Array, sizes: Sequence[int]) -> Params:
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(key, (a, b)) / np.sqrt(a), jnp.zeros(b))
        for key, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


class Examples(NamedTuple):
    """Training examples of the judge, padded to the number of all members."""

    kinds: list[str]

    inputs: np.ndarray[Any, Any]  # (n, m, d)
    ari: np.ndarray[Any, Any]  # (n, m)
    mask: np.ndarray[Any, Any]


def judge_examples(observed: Sequence[Arrays], seed: int = 0) -> Examples:
    """Return two examples per problem: with all members, and with a random subset of them."""
    rng = np.random.default_rng(seed)
    names = list(MEMBERS)
    found: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    kinds = []
    for each in observed:
        every = np.arange(len(each["ari"]))
        some = rng.permutation(every)[: max(4, round(len(every) * rng.uniform(0.4, 1.0)))]
        for kept in (every, np.sort(some)):
            inputs = judge_inputs(
                [names[i] for i in each["members"][kept]],
                each["indices"][kept],
                each["agreement"][np.ix_(kept, kept)],
                each["summary"].tolist(),
                int(each["k"][0]),
            )
            found.append((inputs.astype(np.float32), each["ari"][kept]))
            kinds.append(str(each["kind"]))
    m, d = len(names), found[0][0].shape[1]
    examples = Examples(
        kinds,
        np.zeros((len(found), m, d), np.float32),
        np.zeros((len(found), m), np.float32),
        np.zeros((len(found), m), bool),
    )
    for i, (inputs, ari) in enumerate(found):
        examples.inputs[i, : len(ari)], examples.ari[i, : len(ari)] = inputs, ari
        examples.mask[i, : len(ari)] = True
    return examples


def judge_loss(outputs: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the loss of the judge.

    The squared errors of the adjusted Rand index (ARI) and of its difference from the members'
    mean, plus a listwise term: minus the expected difference of a member drawn by vote weight.
    """
    mask, ari = batch["mask"], batch["ari"]
    count = mask.sum(axis=1)
    relative = ari - (jnp.where(mask, ari, 0).sum(axis=1) / count)[:, None]
    errors = (outputs[..., 0] - ari) ** 2 + (outputs[..., 1] - relative) ** 2
    squared = jnp.where(mask, errors, 0).sum(axis=1) / count
    weights = jax.nn.softmax(jnp.where(mask, 12.0 * outputs[..., 1], -jnp.inf), axis=1)
    lost = -jnp.sum(weights * jnp.where(mask, relative, 0), axis=1)
    return jnp.mean(squared + LISTWISE * lost)


#: Weight of the listwise term relative to the squared errors.
LISTWISE = 1.0


def calibration_loss(outputs: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the binary cross-entropy of whether rows are right."""
    right = batch["right"].astype(outputs.dtype)
    errors = optax.sigmoid_binary_cross_entropy(outputs[..., 0], right)
    return jnp.sum(jnp.where(batch["mask"], errors, 0)) / jnp.sum(batch["mask"])


def number_loss(outputs: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """Return the loss for the number of clusters.

    The cross-entropy of the true number, the squared errors of the ARI of the vote for each number,
    and a listwise term: minus the mean ARI under a softmax of the predicted ARIs. (For one cluster,
    the library uses its probability in place of a predicted ARI.)
    """
    mask, ari = batch["mask"], batch["ari"]
    scores = jnp.where(mask, outputs[..., 0], -jnp.inf)
    entropy = -jax.nn.log_softmax(scores)[jnp.arange(len(scores)), batch["number"]]
    squared = jnp.where(mask, (outputs[..., 1] - ari) ** 2, 0).sum(axis=1) / mask.sum(axis=1)
    weights = jax.nn.softmax(jnp.where(mask, 12.0 * outputs[..., 1], -jnp.inf), axis=1)
    lost = -jnp.sum(weights * jnp.where(mask, ari, 0), axis=1)
    # In a few problems the true number is no candidate: these have no cross-entropy.
    return jnp.mean(jnp.where(batch["number"] < 0, 0, entropy) + squared + 3.0 * lost)


def learn_judge(observed: Sequence[Arrays], **options: Any) -> Perceptrons:
    """Return networks that predict a member's ARI, and its difference from the members' mean."""
    examples = judge_examples(observed)
    targets = {"ari": examples.ari}
    options = {"kinds": examples.kinds} | options
    return train(examples.inputs, targets, examples.mask, judge_loss, n_outputs=2, **options)


def learn_calibration(observed: Sequence[Arrays], **changes: Any) -> Perceptrons:
    """Return networks that predict the logit of a row being right."""
    inputs = np.concatenate([each["inputs"] for each in observed])[:, None]
    right = np.concatenate([each["right"] for each in observed])[:, None]
    options: dict[str, Any] = {
        "n_networks": 4,
        "epochs": 15,
        "batch": 256,
        "hidden": (32, 16),
    } | changes
    mask = np.ones(right.shape, dtype=bool)
    return train(inputs, {"right": right}, mask, calibration_loss, n_outputs=1, **options)


def learn_number(observed: Sequence[Arrays], **changes: Any) -> Perceptrons:
    """Return networks that predict, for each number of clusters, its logit and its ARI."""
    most = max(len(each["candidates"]) for each in observed)
    inputs = np.zeros((len(observed), most, observed[0]["inputs"].shape[1]), np.float32)
    mask, ari = np.zeros((len(observed), most), dtype=bool), np.zeros((len(observed), most))
    number = np.full(len(observed), -1)
    for i, each in enumerate(observed):
        count = len(each["candidates"])
        inputs[i, :count], ari[i, :count], mask[i, :count] = each["inputs"], each["ari"], True
        if each["k"] in each["candidates"]:
            number[i] = np.flatnonzero(each["candidates"] == each["k"])[0]
    options: dict[str, Any] = {"n_networks": 12, "epochs": 25, "hidden": (24,)}
    targets = {"number": number, "ari": ari.astype(np.float32)}
    learned = train(inputs, targets, mask, number_loss, n_outputs=2, **(options | changes))
    # The largest of several predictions is biased upward, the more so as the listwise term spreads
    # them: a linear recalibration removes the bias and keeps the order. One cluster's is not used.
    expected = learned(inputs.reshape(-1, inputs.shape[-1]))[..., 1].mean(axis=0)
    expected = np.where(mask, expected.reshape(mask.shape), -np.inf)[:, 1:]
    rows, best = np.arange(len(observed)), expected.argmax(axis=1)
    slope, start = np.polyfit(expected[rows, best], ari[rows, best + 1], 1)
    learned.weights[-1][..., 1] *= slope
    learned.biases[-1][..., 1] = slope * learned.biases[-1][..., 1] + start
    return learned


def save_networks(path: Path, networks: Mapping[str, Perceptrons]) -> None:
    """Write networks in the format that the library reads."""
    from safetensors.numpy import save_file

    from sgpmic.committee.judge import digest

    arrays = {}
    for name, network in networks.items():
        arrays[f"{name}.mean"], arrays[f"{name}.std"] = network.mean, network.std
        for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            arrays[f"{name}.weight{i}"], arrays[f"{name}.bias{i}"] = weight, bias[:, 0]
    # Weights need few digits, unlike the means and deviations of the inputs.
    kinds = {name: np.float16 if ".weight" in name else np.float32 for name in arrays}
    arrays = {name: np.ascontiguousarray(value, kinds[name]) for name, value in arrays.items()}
    # A single entry: the order in which safetensors writes several is not deterministic.
    save_file(arrays, path, metadata={"digest": digest(arrays)})
