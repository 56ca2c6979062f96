"""The judge: its weights are worth something, and a damaged file is refused."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy.special import softmax
from sklearn.metrics import adjusted_rand_score

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from judge.observe import matches, scaled
from judge.problems import make_problem
from sgpmic.committee import judge as judging
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.judge import (
    INDICES,
    SHARPNESS,
    SMALL,
    Opinion,
    Perceptrons,
    judge,
    load_networks,
    parse_networks,
    penalize_small,
    vote_weights,
)
from sgpmic.committee.members import cluster_all
from sgpmic.committee.voting import calibrated, consensus, take_vote

CONTENT = (files("sgpmic.committee") / judging.WEIGHTS_FILE).read_bytes()
#: Problems that nothing was learned from.
FIRST_SEED, N_PROBLEMS = 7_000_000, 20


def test_the_weights_are_small_and_there() -> None:
    assert len(CONTENT) < 500_000
    assert set(load_networks()) == {"judge", "calibration", "number of clusters"}


def test_networks_neuron_by_neuron() -> None:
    rng = np.random.RandomState(0)
    network = Perceptrons(
        mean=np.array([1.0, -1.0]),
        std=np.array([2.0, 0.5]),
        weights=(rng.standard_normal((2, 2, 3)), rng.standard_normal((2, 3, 1))),
        biases=(rng.standard_normal((2, 1, 3)), rng.standard_normal((2, 1, 1))),
    )
    x = np.array([2.0, 100.0])  # the second is clipped at five standard deviations
    for e in range(2):
        inputs = [(2.0 - 1.0) / 2.0, 5.0]
        hidden = [
            np.tanh(
                sum(inputs[i] * network.weights[0][e, i, h] for i in range(2))
                + network.biases[0][e, 0, h]
            )
            for h in range(3)
        ]
        expected = sum(hidden[h] * network.weights[1][e, h, 0] for h in range(3))
        assert network(x[None])[e, 0, 0] == pytest.approx(expected + network.biases[1][e, 0, 0])


def test_weights_of_votes_are_the_mean_of_every_network_s() -> None:
    expected = np.array([[0.5, 0.2], [0.1, 0.2]])
    by_hand = (softmax(SHARPNESS * expected[0]) + softmax(SHARPNESS * expected[1])) / 2
    np.testing.assert_allclose(vote_weights(expected), by_hand)


def test_partitions_with_a_small_cluster_count_less() -> None:
    def weights(smallest: list[float]) -> np.ndarray:
        indices = np.zeros((3, len(INDICES)))
        indices[:, INDICES.index("smallest size")] = smallest
        opinion = Opinion(np.zeros(3), np.array([0.5, 0.25, 0.25]), indices, np.eye(3))
        return penalize_small(opinion).weights

    found = weights([SMALL, 0.9, 0.5 * SMALL])
    assert found.sum() == pytest.approx(1.0)
    assert found[0] == pytest.approx(2 * found[1])
    assert found[2] == pytest.approx(found[1] * np.exp(-2.0))
    np.testing.assert_allclose(weights([0.0, 0.0, 0.0]), [0.5, 0.25, 0.25])


def test_the_vote_counts_them_less() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(c, 1.0, (n, 2)) for c, n in ((0, 60), (6, 60), (40, 3))])
    vote = take_vote(Geometry(rows, 3), 3)
    opinion = judge(Geometry(rows, 3), {each.name: each.labels for each in vote.members}, 3)
    sizes = np.array([np.bincount(each.labels, minlength=3).min() for each in vote.members])
    small = sizes < SMALL * len(rows) / 3
    assert 0 < small.sum() < len(small)
    ratio = np.array([each.weight for each in vote.members]) / opinion.weights
    np.testing.assert_allclose(ratio[small], ratio[~small][0] * np.exp(-2.0))
    np.testing.assert_allclose(ratio[~small], ratio[~small][0])


@pytest.fixture(scope="module")
def problems() -> list[tuple[Geometry, np.ndarray, dict[str, np.ndarray], int]]:
    """Return small synthetic problems with what the members make of them."""
    found = []
    seed = FIRST_SEED
    while len(found) < N_PROBLEMS:
        problem = make_problem(seed)
        k = int(problem.y.max()) + 1
        if k > 1 and len(problem.y) <= 400:
            geometry = Geometry(scaled(problem), k)
            found.append((geometry, problem.y, cluster_all(geometry, k)[0], k))
        seed += 1
    return found


def mean_index(problems: list[tuple[Geometry, np.ndarray, dict[str, np.ndarray], int]]) -> float:
    scores = []
    for geometry, y, labels, k in problems:
        shares = consensus(list(labels.values()), judge(geometry, labels, k).weights, k)
        scores.append(adjusted_rand_score(y, shares.argmax(axis=1)))
    return float(np.mean(scores))


@pytest.mark.slow
def test_a_judge_with_shuffled_weights_does_worse(
    problems: list[tuple[Geometry, np.ndarray, dict[str, np.ndarray], int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = mean_index(problems)
    every = [
        float(np.mean([adjusted_rand_score(y, each) for each in labels.values()]))
        for _, y, labels, _ in problems
    ]
    assert learned > np.mean(every) + 0.05
    rng = np.random.RandomState(0)
    network = load_networks()["judge"]
    shuffled = network._replace(
        weights=tuple(rng.permutation(w.ravel()).reshape(w.shape) for w in network.weights)
    )
    monkeypatch.setattr(judging, "load_networks", lambda: {"judge": shuffled})
    assert mean_index(problems) < learned - 0.05


@pytest.mark.slow
def test_calibrated_shares_are_nearer_to_how_often_they_are_right(
    problems: list[tuple[Geometry, np.ndarray, dict[str, np.ndarray], int]],
) -> None:
    gaps = []
    for geometry, y, labels, k in problems:
        opinion = judge(geometry, labels, k)
        shares = consensus(list(labels.values()), opinion.weights, k)
        honest = calibrated(geometry, shares, opinion)
        np.testing.assert_allclose(honest.sum(axis=1), 1.0)
        np.testing.assert_array_equal(honest.argmax(axis=1), shares.argmax(axis=1))
        right = matches(y, shares.argmax(axis=1)).mean()
        gaps.append([abs(each.max(axis=1).mean() - right) for each in (shares, honest)])
    raw, learned = np.mean(gaps, axis=0)
    assert learned < 0.75 * raw


def test_the_winner_of_a_vote_keeps_some_of_its_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    geometry, labels = Geometry(rng.normal(size=(60, 2)), 2), np.arange(60) % 2
    shares = np.where(np.eye(2)[labels] > 0, 0.9, 0.1)
    opinion = judge(geometry, {"Ward": labels, "k-means": labels}, 2)
    monkeypatch.setattr(
        judging, "load_networks", lambda: {"calibration": lambda x: np.full((4, len(x), 1), -9.0)}
    )
    found = calibrated(geometry, shares, opinion)
    np.testing.assert_allclose(found[np.arange(60), labels], 0.5 + 0.2 * 0.4)


def resaved(**changes: np.ndarray) -> bytes:
    length = int.from_bytes(CONTENT[:8], "little")
    metadata = json.loads(CONTENT[8 : 8 + length])["__metadata__"]
    return save({**load(CONTENT), **changes}, metadata=metadata)


def test_a_damaged_file_is_refused() -> None:
    assert set(parse_networks(resaved())) == set(load_networks())
    flipped = bytearray(CONTENT)
    flipped[-100] ^= 1
    first = load(CONTENT)["judge.weight0"]
    for damaged in (
        bytes(flipped),
        CONTENT[:-4],
        CONTENT[:3],
        b"",
        resaved(**{"judge.weight0": first[::-1]}),
        resaved(**{"judge.weight0": np.full_like(first, np.nan)}),
        resaved(**{"one more": first}),
    ):
        with pytest.raises(ValueError, match=r"judge\.safetensors\) are damaged .*: reinstall"):
            parse_networks(damaged)


def test_weights_of_other_indices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was learned with other inputs would give nonsense, not an error."""
    monkeypatch.setattr(judging, "INDICES", judging.INDICES[::-1])
    with pytest.raises(ValueError, match="damaged"):
        parse_networks(CONTENT)


@pytest.mark.slow
def test_learning_again_gives_the_same_bits(tmp_path: Path) -> None:
    from judge import learn
    from judge.observe import observe_all, observe_members, read_all

    files = []
    for name in ("one", "two"):
        paths = observe_all(observe_members, range(40), tmp_path / name, "members", jobs=1)
        observed = [each for _, each in read_all(paths)]
        assert len(observed) == 40
        network = learn.learn_judge(observed, epochs=2, batch=16)
        learn.save_networks(tmp_path / f"{name}.safetensors", {"judge": network})
        files.append((tmp_path / f"{name}.safetensors").read_bytes())
    assert files[0] == files[1]
    assert set(parse_networks(files[0])) == {"judge"}


def test_numbers_of_clusters_are_learned_from_what_speaks_for_them() -> None:
    from judge import learn

    rng = np.random.default_rng(0)
    candidates = np.arange(1, 8)

    def draw() -> dict[str, Any]:
        true = rng.integers(1, 7)
        far = np.abs(candidates - true)
        inputs = np.column_stack([far + 0.1 * rng.normal(size=7), rng.normal(size=(7, 3))])
        ari = np.maximum(1.0 - 0.3 * far, 0.0)
        return {"candidates": candidates, "inputs": inputs, "ari": ari, "k": np.array(true)}

    seen, unseen = ([draw() for _ in range(count)] for count in (300, 50))
    seen[0]["k"] = np.array(9)  # more than are tried
    network = learn.learn_number(seen, epochs=100, n_networks=2, hidden=(8,))
    logits, expected = np.moveaxis([network(each["inputs"]).mean(axis=0) for each in unseen], 2, 0)
    true = np.array([each["k"] for each in unseen])
    assert np.mean(candidates[logits.argmax(axis=1)] == true) > 0.8
    assert np.mean(candidates[expected.argmax(axis=1)] == true) > 0.8
    assert expected.max(axis=1).mean() == pytest.approx(1.0, abs=0.1)
