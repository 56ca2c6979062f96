"""The methods that train a projection by minibatches: AE-FCM, VAE-FCM, DEEPC and SDC.

Nearly all of their time is the compiler's, so tests share the shapes of their data.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

pytest.importorskip("equinox", reason="the neural methods need the extra 'paper'")
pytest.importorskip("optax", reason="the neural methods need the extra 'paper'")

import jax
import jax.numpy as jnp

from paper.datasets import load
from paper.methods import METHODS, autoencoder, deepc, sdc, training, vae_fcm
from paper.methods.base import Problem, k_means
from sgpmic._runtime import double_precision

pytestmark = pytest.mark.slow

every_method = pytest.mark.parametrize("name", ["AE-FCM", "VAE-FCM", "DEEPC", "SDC"])

# A constant feature, three distinct rows, fewer rows than a batch has, and values in the thousands.
AWKWARD = np.repeat([[0.0, 7.0, 1.0], [4000.0, 7.0, 2.0], [9000.0, 7.0, 1.0]], 5, axis=0)


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    found = load(name)
    return found.all_features, found.classes


def purity_and_nmi(classes: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Score as the paper does: every cluster takes its most frequent class."""
    counts = contingency_matrix(classes, labels)
    values, places = np.unique(labels, return_inverse=True)
    assert values.size == counts.shape[1]
    mapped = counts.argmax(axis=0)[places]
    nmi = normalized_mutual_info_score(classes, mapped, average_method="geometric")
    return 100.0 * counts.max(axis=0).sum() / classes.size, 100.0 * nmi


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Return three clusters; more rows than the largest batch of SDC, where seeds hardly count."""
    classes = np.repeat(np.arange(3), 45)
    noise = np.random.RandomState(0).standard_normal((135, 5))
    return 10.0 * np.eye(3, 5)[classes] + 0.3 * noise, classes


def same_partition(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((contingency_matrix(one, other) > 0).sum() == np.unique(one).size)


# ----------------------------------------------------------------------------------- all of them


@every_method
def test_equal_seeds_give_equal_results_in_either_precision(name: str) -> None:
    run = METHODS[name].run
    problem = Problem(blobs()[0], n_clusters=3, n_components=2)
    first = run(problem, 3)
    compiled = training._adam_steps._cache_size()
    second = run(problem, 3)
    with double_precision():
        third = run(problem, 3)
    for other in (second, third):
        np.testing.assert_array_equal(first.labels, other.labels)
        np.testing.assert_array_equal(first.embedding, other.embedding)
    assert not np.array_equal(first.embedding, run(problem, 4).embedding)
    assert training._adam_steps._cache_size() == compiled, "another seed compiles nothing"


@every_method
def test_awkward_data_give_finite_results(name: str) -> None:
    found = METHODS[name].run(Problem(AWKWARD, n_clusters=4, n_components=2), 0)
    assert found.labels.shape == (15,)
    assert found.embedding.shape == (15, 2)
    assert set(found.labels) <= set(range(4))
    assert np.isfinite(found.embedding).all()


# ------------------------------------------------------------------------------- the shared parts


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        autoencoder.run(Problem(1e30 * AWKWARD, n_clusters=4, n_components=2), 0)


def test_adam_follows_its_published_formulas() -> None:
    start, rate, decay1, decay2, epsilon = 3.0, 0.1, 0.9, 0.999, 1e-8
    rows = np.array([1.0, -2.0, 0.5])
    batches = np.array([[0, 1], [2, 0], [1, 2], [0, 2]], np.int32)
    with double_precision():
        found = training.minimize(
            _quadratic, jnp.asarray(start), jnp.asarray(rows), batches, learning_rate=rate
        )
    value, first, second = start, 0.0, 0.0
    for step, batch in enumerate(batches, start=1):
        assert float(found.losses[step - 1]) == pytest.approx(np.mean((value - rows[batch]) ** 2))
        slope = 2.0 * np.mean(value - rows[batch])
        first = decay1 * first + (1.0 - decay1) * slope
        second = decay2 * second + (1.0 - decay2) * slope**2
        root = math.sqrt(second / (1.0 - decay2**step))
        value -= rate * first / (1.0 - decay1**step) / (root + epsilon)
    assert float(found.parameters) == pytest.approx(value, rel=1e-12)


def _quadratic(parameter: jax.Array, rows: jax.Array, _: None) -> jax.Array:
    return jnp.mean((parameter - rows) ** 2)


@pytest.mark.parametrize(("n_rows", "batch_size"), [(10, 4), (7, 7), (5, 64)])
def test_batches_are_full_and_use_all_rows_equally(n_rows: int, batch_size: int) -> None:
    batches = training.minibatches(n_rows, batch_size, 6, np.random.RandomState(0))
    size = min(n_rows, batch_size)
    assert batches.shape == (6 * n_rows // size, size)
    uses = np.bincount(batches.ravel(), minlength=n_rows)
    assert uses.max() - uses.min() <= 1


def test_the_encoder_is_rectified_layers_with_a_linear_end() -> None:
    network = autoencoder.Autoencoder(5, 2, np.random.RandomState(0))
    shapes = [weight.shape for weight in (*network.encoder.weights, *network.decoder.weights)]
    assert shapes == [(5, 64), (64, 32), (32, 2), (2, 32), (32, 64), (64, 5)]
    Y = np.random.RandomState(1).standard_normal((9, 5)).astype(np.float32)
    values = Y.astype(np.float64)
    for place, weight in enumerate(network.encoder.weights):
        values = values @ np.asarray(weight, np.float64)
        values = np.maximum(values, 0.0) if place < 2 else values
    np.testing.assert_allclose(autoencoder.encode(network.encoder, Y), values, atol=1e-5)
    assert (values < 0.0).any()


def test_the_autoencoder_beats_principal_components_on_a_curve() -> None:
    rng = np.random.RandomState(0)
    place = rng.uniform(-1.5, 1.5, 200)
    Y = np.stack([np.sin(2.0 * place), np.cos(2.0 * place), place**2], axis=1)
    points = training.one_unit(Y)
    network = autoencoder.trained_autoencoder(points, 1, rng)
    ours = float(autoencoder.reconstruction_loss(network, jnp.asarray(points), None))
    linear = PCA(1).fit(points)
    theirs = np.mean((linear.inverse_transform(linear.transform(points)) - points) ** 2)
    assert ours < 0.5 * theirs


def test_k_means_with_fewer_distinct_points_than_clusters() -> None:
    points = np.repeat([[0.0], [1.0]], 3, axis=0)
    labels, centers = k_means(points, 4, np.random.RandomState(0))
    assert same_partition(labels, points[:, 0])
    assert centers.shape == (4, 1)
    np.testing.assert_allclose(centers[labels], points)


# ----------------------------------------------------------------------------------- one by one


def test_the_loss_of_the_variational_autoencoder() -> None:
    rng = np.random.RandomState(0)
    network = autoencoder.Autoencoder(4, 2, rng, n_outputs=4)
    rows = rng.standard_normal((6, 4)).astype(np.float32)
    noise = rng.standard_normal((6, 2)).astype(np.float32)
    outputs = autoencoder.encode(network.encoder, rows)
    errors, divergences = [], []
    for row, output, draw in zip(rows, outputs, noise, strict=True):
        code = [output[q] + math.exp(0.5 * output[2 + q]) * draw[q] for q in range(2)]
        decoded = autoencoder.encode(network.decoder, np.array([code], np.float32))[0]
        errors.append(sum((decoded[p] - row[p]) ** 2 for p in range(4)))
        # KL(N(m, s²) ‖ N(0, 1)) = −log s + (s² + m²)/2 − 1/2
        divergences += [
            -0.5 * output[2 + q] + (math.exp(output[2 + q]) + output[q] ** 2) / 2.0 - 0.5
            for q in range(2)
        ]
    batch = (jnp.asarray(rows), jnp.asarray(noise))
    for weight in (1.0, 6.0):
        loss = vae_fcm.negative_bound(network, batch, jnp.asarray(weight))
        expected = np.mean(errors) + weight * sum(divergences) / 6.0
        assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_assignments_and_targets_of_deepc_against_loops() -> None:
    rng = np.random.RandomState(0)
    codes, centers = rng.standard_normal((7, 2)), rng.standard_normal((3, 2))
    q = np.zeros((7, 3))
    for i in range(7):
        for j in range(3):
            q[i, j] = 1.0 / (1.0 + sum((codes[i, k] - centers[j, k]) ** 2 for k in range(2)))
        q[i] /= sum(q[i])
    p = np.zeros((7, 3))
    for i in range(7):
        for j in range(3):
            p[i, j] = q[i, j] ** 2 / sum(q[k, j] for k in range(7))
        p[i] /= sum(p[i])
    with double_precision():
        ours = deepc.soft_assignments(jnp.asarray(codes), jnp.asarray(centers))
        np.testing.assert_allclose(ours, q, rtol=1e-12)
        np.testing.assert_allclose(deepc.target_distribution(ours), p, rtol=1e-12)
    encoder = autoencoder.Perceptron((2, 2), rng)  # one layer: linear
    rows = np.linalg.solve(np.asarray(encoder.weights[0], np.float64).T, codes.T).T
    batch = (jnp.asarray(rows, jnp.float32), jnp.asarray(p, jnp.float32))
    divergence = deepc.divergence((encoder, jnp.asarray(centers, jnp.float32)), batch, None)
    loop = sum(p[i, j] * math.log(p[i, j] / q[i, j]) for i in range(7) for j in range(3)) / 7
    assert float(divergence) == pytest.approx(loop, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_deepc_finds_clusters_that_lie_apart(seed: int) -> None:
    Y, classes = blobs()
    found = deepc.run(Problem(Y, n_clusters=3, n_components=2), seed)
    assert same_partition(classes, found.labels)


def test_the_loss_of_sdc_against_a_loop() -> None:
    rng = np.random.RandomState(0)
    rows, W = rng.standard_normal((6, 4)), rng.standard_normal((4, 2))
    labels = np.array([0, 0, 3, 3, 5, 0])  # C = 3 pseudo-classes, not numbered through
    a, b, rho, sigma = 0.8, 0.2, 0.7, 1.9
    top = bottom = 0.0
    for i in range(6):
        for j in range(6):
            similarity = math.exp(-(np.linalg.norm(W.T @ rows[i] - W.T @ rows[j]) ** 2) / sigma**2)
            together = labels[i] == labels[j]
            mask = 1.0 if together else 1.0 / (3 - 1)
            top += mask * (similarity - (a if together else b)) ** 2
            bottom += mask
    skew = sum(
        (sum(W[p, k] * W[p, m] for p in range(4)) - (k == m)) ** 2
        for k in range(2)
        for m in range(2)
    )
    with double_precision():
        loss = sdc.similarity_loss(
            jnp.asarray(W),
            (jnp.asarray(rows), jnp.asarray(labels)),
            sdc.Targets(a, b, rho, sigma**2),
        )
    expected = (2.0 - rho) * top / bottom + rho * skew / (2.0 * 2**2)
    assert float(loss) == pytest.approx(expected, rel=1e-12)


def test_sdc_does_not_depend_on_the_unit_of_the_data() -> None:
    Y, _ = blobs()
    one = sdc.run(Problem(Y, n_clusters=3, n_components=2), 0)
    other = sdc.run(Problem(1000.0 * Y + 5.0, n_clusters=3, n_components=2), 0)
    np.testing.assert_allclose(other.embedding, 1000.0 * one.embedding, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------------------- the paper


@pytest.mark.parametrize(
    ("name", "n_components", "published"),
    [
        ("Iris", 1, (90.67, 78.57)),
        ("Iris", 2, (89.33, 75.82)),
        ("Wine", 2, (70.22, 42.88)),
        ("WDBC", 1, (85.41, 46.72)),
        ("BC", 7, (96.05, 74.92)),
        ("Sonar", 17, (55.77, 1.05)),
    ],
)
def test_sdc_gives_the_published_numbers(
    name: str, n_components: int, published: tuple[float, float]
) -> None:
    Y, classes = data(name)
    problem = Problem(Y, n_clusters=np.unique(classes).size, n_components=n_components)
    scores = purity_and_nmi(classes, sdc.run(problem, 0).labels)
    assert scores == pytest.approx(published, abs=0.006)


def test_networks_on_wine_come_near_the_published_numbers() -> None:
    # Table 2: 69.04 ± 0.18 and 70.28 ± 0.16. (70.22 is k-means on all 13 features.)
    Y, classes = data("Wine")
    problem = Problem(Y, n_clusters=3, n_components=2)
    assert purity_and_nmi(classes, autoencoder.run(problem, 0).labels)[0] == pytest.approx(
        69.04, abs=1
    )
    assert purity_and_nmi(classes, deepc.run(problem, 0).labels)[0] == pytest.approx(70.28, abs=1)


def test_deepc_improves_on_k_means_on_iris() -> None:
    # Table 2: 96.66 ± 0.84, where k-means on the data has 89.33.
    Y, classes = data("Iris")
    plain = KMeans(3, n_init=10, random_state=0).fit_predict(Y)
    found = deepc.run(Problem(Y, n_clusters=3, n_components=1), 0)
    accuracy = purity_and_nmi(classes, found.labels)[0]
    assert accuracy > purity_and_nmi(classes, plain)[0] + 3.0
    assert accuracy == pytest.approx(96.66, abs=2.0)


def test_the_variational_autoencoder_collapses_as_in_the_paper_if_it_slips() -> None:
    # Table 2: 65.01 ± 0.00 and 0.00 ± 0.00, the share of the larger class.
    Y, classes = data("BC")
    problem = Problem(Y, n_clusters=2, n_components=1)
    slipped = vae_fcm.run(problem, 0, slips=True)
    assert purity_and_nmi(classes, slipped.labels) == pytest.approx((65.01, 0.0), abs=0.006)
    # As it is meant it is no worse than principal components (95.75).
    meant = vae_fcm.run(problem, 0)
    assert purity_and_nmi(classes, meant.labels)[0] > 94.0
