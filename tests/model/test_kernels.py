"""Kernels against scikit-learn's, closed forms, and derivatives by complex steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.gaussian_process.kernels as theirs

from sgpmic.kernels import (
    KERNELS,
    RBF,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    RationalQuadratic,
    cross,
    get_kernel,
    stack,
    unstack,
)
from support.dense import KINDS, DenseKernel
from support.random_problems import our_kernel, random_kernel

every_kind = pytest.mark.parametrize("kind", KINDS)
with_and_without_ard = pytest.mark.parametrize("ard", [False, True], ids=["one", "ard"])


def points(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return two sets of points; some of the first are also in the second, one of them twice."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    B[:3] = A[[0, 1, 1]]
    return A, B


def scikit_learn(kernel: DenseKernel, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the matrix of scikit-learn's kernel, its inputs scaled by us where it has no ARD."""
    if kernel.kind == "linear":
        root = np.sqrt(kernel.variance)
        product = theirs.DotProduct(sigma_0=math.sqrt(kernel.bias))
        return np.asarray(product(A * root, B * root))
    root = np.sqrt(kernel.gamma)
    correlation = {
        "rbf": theirs.RBF(1.0),
        "matern32": theirs.Matern(1.0, nu=1.5),
        "matern52": theirs.Matern(1.0, nu=2.5),
        "rational_quadratic": theirs.RationalQuadratic(1.0, alpha=kernel.alpha),
    }[kernel.kind]
    return kernel.variance * np.asarray(correlation(A * root, B * root)) + kernel.bias


# ---------------------------------------------------------------------------------------- values


@every_kind
@with_and_without_ard
def test_values_are_those_of_scikit_learn(kind: str, ard: bool) -> None:
    A, B = points()
    kernel = random_kernel(kind, np.random.default_rng(1), 3, ard=ard)
    expected = scikit_learn(kernel, A, B)
    ours = our_kernel(kernel)
    np.testing.assert_allclose(cross(ours, A, B), expected, rtol=1e-12)
    # The reference that other tests lean on is itself held to scikit-learn.
    np.testing.assert_allclose(kernel.matrix(A, B), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", [RBF, Matern32, Matern52])
def test_length_scale_is_one_over_the_root_of_gamma(kernel: Any) -> None:
    A, B = points()
    length = np.array([0.5, 1.5, 3.0])
    other = {
        RBF: theirs.RBF(length),
        Matern32: theirs.Matern(length, nu=1.5),
        Matern52: theirs.Matern(length, nu=2.5),
    }[kernel]
    ours = kernel(gamma=1.0 / length**2, bias=1e-300, ard=True)
    np.testing.assert_allclose(cross(ours, A, B), other(A, B), rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # At distance 2 with variance 3, bias ½ and unit length scale, by hand.
        (RBF(3.0, 0.5), 3.0 * math.exp(-2.0) + 0.5),
        (Matern32(3.0, 0.5), 3.0 * (1 + 2 * math.sqrt(3)) * math.exp(-2 * math.sqrt(3)) + 0.5),
        (
            Matern52(3.0, 0.5),
            3.0 * (1 + 2 * math.sqrt(5) + 20 / 3) * math.exp(-2 * math.sqrt(5)) + 0.5,
        ),
        (RationalQuadratic(3.0, 0.5, alpha=2.0), 3.0 / 4.0 + 0.5),
        (Linear(3.0, 0.5), 3.0 * (-1.0) + 0.5),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else "",
)
def test_closed_forms(kernel: Kernel, expected: float) -> None:
    found = cross(kernel, jnp.array([[1.0]]), jnp.array([[-1.0]]))
    assert float(found[0, 0]) == pytest.approx(expected, rel=1e-14)


def test_rational_quadratic_tends_to_the_rbf() -> None:
    A, B = points()
    limit = cross(RationalQuadratic(alpha=1e9), A, B)
    np.testing.assert_allclose(limit, scikit_learn(DenseKernel("rbf", bias=RBF().bias), A, B), 1e-7)


@every_kind
def test_the_paper_s_start_values(kind: str) -> None:
    values = get_kernel(kind).parameters()
    for name in ("bias", "white"):
        assert values.pop(name) == pytest.approx(math.exp(-2.0), rel=1e-15)
    assert set(values.values()) == {1.0}


@every_kind
@with_and_without_ard
def test_gram_is_symmetric_and_white_stands_on_its_diagonal_only(kind: str, ard: bool) -> None:
    _, Z = points()  # two of them coincide: without white the matrix would be singular
    kernel = random_kernel(kind, np.random.default_rng(2), 3, ard=ard)
    K = np.asarray(our_kernel(kernel).gram(jnp.asarray(Z)))
    np.testing.assert_allclose(K, K.T, rtol=1e-14)
    np.testing.assert_allclose(K - scikit_learn(kernel, Z, Z), kernel.white * np.eye(5), atol=1e-14)
    assert np.linalg.eigvalsh(K).min() > kernel.white - 1e-12


@every_kind
@with_and_without_ard
def test_diagonal(kind: str, ard: bool) -> None:
    X, _ = points()
    kernel = random_kernel(kind, np.random.default_rng(3), 3, ard=ard)
    expected = np.diag(scikit_learn(kernel, X, X))
    np.testing.assert_allclose(our_kernel(kernel).diagonal(jnp.asarray(X)), expected, rtol=1e-14)


@every_kind
def test_far_points(kind: str) -> None:
    A, B = points()
    K = cross(get_kernel(kind), 1e6 * A, -1e6 * B)
    assert np.all(np.isfinite(K))


# ----------------------------------------------------------------------------------- derivatives


def complex_step(kernel: DenseKernel, A: np.ndarray, B: np.ndarray, dK: np.ndarray) -> Any:
    """Return the derivatives of Σ dK ∘ k(A, B) by parameters, A and B, exact to rounding.

    The dense formulas are analytic also at r = 0, where the step leaves r² = −h².
    """
    h = 1e-30

    def by_entries(value: Any, rebuilt: Any) -> np.ndarray:
        value = np.asarray(value, dtype=complex)
        gradient = np.zeros(value.shape)
        for index in np.ndindex(value.shape):
            moved = value.copy()
            moved[index] += 1j * h
            gradient[index] = np.sum(dK * rebuilt(moved)).imag / h
        return gradient

    by_parameter = {
        name: by_entries(
            getattr(kernel, name), lambda v, n=name: replace(kernel, **{n: v}).matrix(A, B)
        )
        for name in KERNELS[kernel.kind]().parameters()
    }
    by_A = by_entries(A, lambda moved: kernel.matrix(moved, B))
    by_B = by_entries(B, lambda moved: kernel.matrix(A, moved))
    return by_parameter, by_A, by_B


def assert_gradients(found: Any, expected: Any) -> None:
    by_kernel, *by_points = found
    assert by_kernel.parameters().keys() == expected[0].keys()
    for name, value in by_kernel.parameters().items():
        assert np.shape(value) == expected[0][name].shape, name
        np.testing.assert_allclose(value, expected[0][name], rtol=1e-11, atol=1e-12, err_msg=name)
    for ours, exact in zip(by_points, expected[1:], strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-11, atol=1e-12)


@every_kind
@with_and_without_ard
def test_derivatives_of_cross(kind: str, ard: bool) -> None:
    A, B = points()
    rng = np.random.default_rng(4)
    kernel = random_kernel(kind, rng, 3, ard=ard)
    dK = rng.normal(size=(4, 5))

    @jax.jit
    def pulled_back(ours: Kernel, A: jax.Array, B: jax.Array) -> Any:
        return jax.vjp(cross, ours, A, B)[1](jnp.asarray(dK))

    assert_gradients(pulled_back(our_kernel(kernel), A, B), complex_step(kernel, A, B, dK))


@every_kind
@with_and_without_ard
def test_derivatives_with_columns_weighted(kind: str, ard: bool) -> None:
    A, B = points()
    rng = np.random.default_rng(5)
    kernel = random_kernel(kind, rng, 3, ard=ard)
    t = rng.uniform(0.1, 2.0, size=5)
    t[1] = 0.0
    dK = rng.normal(size=(4, 5))

    @jax.jit
    def both_ways(ours: Kernel, A: jax.Array, B: jax.Array, t: jax.Array) -> Any:
        K, saved = ours.forward(A, B, t)
        return K, ours.backward(A, B, t, K, saved, jnp.asarray(dK))

    K, found = both_ways(our_kernel(kernel), A, B, t)
    np.testing.assert_allclose(K, kernel.matrix(A, B) * t, rtol=1e-12)
    assert_gradients(found, complex_step(kernel, A, B, dK * t))


@every_kind
def test_derivative_of_the_gram_matrix(kind: str) -> None:
    """Z enters twice, and white only here."""
    Z, _ = points()
    kernel = random_kernel(kind, np.random.default_rng(6), 3)
    dK = np.random.default_rng(7).normal(size=(4, 4))
    by_parameter, by_A, by_B = complex_step(kernel, Z, Z, dK)

    def value(ours: Kernel, Z: jax.Array) -> jax.Array:
        return jnp.sum(dK * ours.gram(Z))

    by_kernel, by_Z = jax.jit(jax.grad(value, argnums=(0, 1)))(our_kernel(kernel), Z)
    assert_gradients(
        (by_kernel, by_Z), ({**by_parameter, "white": np.asarray(np.trace(dK))}, by_A + by_B)
    )


@every_kind
@with_and_without_ard
def test_second_derivatives_in_a_loop(kind: str, ard: bool) -> None:
    """The curvature that densities are made of; every mapping in turn, as predictions do it."""
    A, B = points()
    rng = np.random.default_rng(8)
    dK = rng.normal(size=(4, 5))
    kernels = stack([our_kernel(random_kernel(kind, rng, 3, ard=ard)) for _ in range(2)])
    start = np.concatenate([A, B])

    def value(both: jax.Array) -> jax.Array:
        pair = (both[: len(A)], both[len(A) :])
        return jnp.sum(jax.lax.map(lambda k: jnp.sum(dK * cross(k, *pair) ** 2), kernels))

    found = np.asarray(jax.jit(jax.jacrev(jax.grad(value)))(start))
    gradient, h = jax.jit(jax.grad(value)), 1e-5
    for index in np.ndindex(start.shape):
        step = np.zeros(start.shape)
        step[index] = h
        differences = np.subtract(gradient(start + step), gradient(start - step)) / (2.0 * h)
        # Matérn 3/2 has no third derivative where points coincide, hence h itself.
        np.testing.assert_allclose(found[index], differences, rtol=1e-6, atol=100 * h)


# ------------------------------------------------------------------------------------ validation


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, [1.0, -1.0]])
def test_parameters_must_be_positive_and_finite(value: Any) -> None:
    with pytest.raises(ValueError, match="RBF: gamma must be positive and finite"):
        RBF(gamma=value)


@pytest.mark.parametrize("value", ["one", None, 1j, True])
def test_parameters_must_be_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="Linear: bias must be a number"):
        Linear(bias=value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (RBF, {"variance": [1.0, 2.0]}),
        (RBF, {"gamma": [[1.0, 2.0]]}),
        (Linear, {"white": [1.0]}),
        (RationalQuadratic, {"alpha": [1.0, 2.0]}),
    ],
)
def test_only_one_field_may_have_an_entry_a_dimension(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a single number"):
        kind(**values)


def test_spreading_over_dimensions() -> None:
    assert RBF(gamma=2.0).for_dimensions(3).gamma == 2.0
    spread = RBF(gamma=2.0, ard=True).for_dimensions(3)
    assert np.array_equal(spread.gamma, [2.0, 2.0, 2.0])
    given = Linear(variance=[1.0, 2.0]).for_dimensions(2)
    assert given.ard
    assert np.array_equal(given.variance, [1.0, 2.0])
    with pytest.raises(ValueError, match="gamma has 2 entries but the latent space has 3"):
        RBF(gamma=[1.0, 2.0]).for_dimensions(3)


def test_names() -> None:
    assert set(KERNELS) == set(KINDS)
    for kind in KINDS:
        assert type(get_kernel(kind)) is KERNELS[kind]
    kernel = RBF(gamma=0.5)
    assert get_kernel(kernel) is kernel
    with pytest.raises(ValueError, match="'cubic' is not known; use one of linear, matern32"):
        get_kernel("cubic")
    with pytest.raises(TypeError, match="kernel=3 is not known"):
        get_kernel(3)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------- trees, stacks


@every_kind
@with_and_without_ard
def test_stack_and_back(kind: str, ard: bool) -> None:
    rng = np.random.default_rng(8)
    kernels = [our_kernel(random_kernel(kind, rng, 3, ard=ard)) for _ in range(4)]
    stacked = stack(kernels)
    for leaf in jax.tree.leaves(stacked):
        assert leaf.shape[0] == 4
        assert leaf.dtype == np.float64
    assert unstack(stacked) == kernels


def test_only_one_kind_can_be_stacked() -> None:
    for kernels in ([RBF(), Linear()], [RBF(), RBF(ard=True)], []):
        with pytest.raises(ValueError, match="same kind"):
            stack(kernels)


def test_equality() -> None:
    assert RBF() == RBF()
    assert hash(RBF()) == hash(RBF())
    assert RBF() != RBF(gamma=2.0)
    assert RBF() != RBF(ard=True)
    assert RBF() != Matern32()
    assert Linear(variance=[1.0, 2.0]) == Linear(variance=np.array([1.0, 2.0]))


@every_kind
def test_kernels_are_trees_of_their_parameters(kind: str) -> None:
    kernel = our_kernel(random_kernel(kind, np.random.default_rng(9), 2))
    leaves = {
        jax.tree_util.keystr(path, simple=True): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(kernel)
    }
    assert leaves == kernel.parameters()
    logs = jax.tree.map(np.log, kernel)  # mostly negative: trees are not checked
    back = jax.tree.map(np.exp, logs)
    assert type(back) is type(kernel)
    for name, value in kernel.parameters().items():
        assert back.parameters()[name] == pytest.approx(value, rel=1e-14)


def test_ard_is_part_of_the_structure() -> None:
    one: Any = jax.tree.structure(RBF())
    assert one != jax.tree.structure(RBF(ard=True))
    mapped = jax.tree.map(lambda x: x, RBF(gamma=[1.0, 2.0], ard=True))
    assert mapped.ard


def test_kernels_pass_through_compiled_functions() -> None:
    A, B = points()
    compiled: Any = jax.jit(cross)
    for variance in (1.0, 2.0):
        found = compiled(RBF(variance=variance), A, B)
        expected = scikit_learn(DenseKernel("rbf", variance, RBF().bias), A, B)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert compiled._cache_size() == 1  # parameters are values, not constants
