"""The exponential for arguments at or below zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpmic.kernels import exp_nonpositive

#: Two roundings of the last bit: half a unit each from the product and from the sum before it.
TOLERANCE = 4e-16

compiled = jax.jit(exp_nonpositive)


def exact(x: np.ndarray) -> np.ndarray:
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no extended precision here to compare with")
    return np.exp(x.astype(np.longdouble))


def relative_error(x: np.ndarray) -> float:
    found = np.asarray(compiled(x)).astype(np.longdouble)
    return float(np.max(np.abs(found / exact(x) - 1)))


def test_whole_range() -> None:
    assert relative_error(np.linspace(-708.0, 0.0, 400_001)) < TOLERANCE
    assert relative_error(-np.geomspace(1e-300, 708.0, 400_001)) < TOLERANCE


def test_where_the_range_reduction_changes_its_mind() -> None:
    """Half-way between multiples of log 2 the remainder is largest."""
    middle = -(np.arange(1021) + 0.5) * np.log(2.0)
    x = np.concatenate([np.nextafter(middle, 0.0), middle, np.nextafter(middle, -np.inf)])
    assert relative_error(x) < TOLERANCE


@given(st.floats(-708.0, 0.0))
def test_any_argument(x: float) -> None:
    assert relative_error(np.array([x])) < TOLERANCE


def test_zero_is_exact() -> None:
    assert np.array_equal(compiled(np.array([0.0, -0.0])), [1.0, 1.0])


def test_below_the_range_it_is_tiny_and_finite() -> None:
    found = np.asarray(compiled(np.array([-708.1, -745.0, -1e4, -1e300, -np.inf])))
    assert np.all((found >= 0.0) & (found < 3.4e-308))


def test_nan_stays_nan() -> None:
    assert np.isnan(compiled(np.array([np.nan]))[0])


def test_derivatives_are_the_function_itself() -> None:
    x = np.linspace(-30.0, 0.0, 31)
    first = jax.vmap(jax.grad(exp_nonpositive))
    second = jax.vmap(jax.grad(jax.grad(exp_nonpositive)))
    np.testing.assert_allclose(first(jnp.asarray(x)), np.exp(x), rtol=1e-15)
    np.testing.assert_allclose(second(jnp.asarray(x)), np.exp(x), rtol=1e-15)


def test_single_precision_is_left_to_jax() -> None:
    x = np.linspace(-80.0, 0.0, 100, dtype=np.float32)
    found = exp_nonpositive(jnp.asarray(x))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.exp(x.astype(float)), rtol=1e-5)
