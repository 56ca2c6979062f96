"""A float64 exponential for arguments at or below zero that vectorises on the CPU.

XLA's own float64 ``exp`` is the biggest single cost of a pass over the rows on a CPU. Kernels only
need it for arguments in (−∞, 0], where neither overflow nor NaN has to be caught, and a range
reduction with a polynomial is faster: alone by little, but inside the loop over blocks, where XLA
stops vectorising its own, by a factor of three to four. On other devices, and in other
precisions, it is ``jnp.exp``.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

_LOG2_E = 1.4426950408889634
# log 2 in two pieces: the first has trailing zero bits, so that n * _LN2_HIGH is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# exp(-708) is still a normal number; anything smaller is 3e-308 at most and as good as zero.
_SMALLEST = -708.0
# |r| <= log(2)/2 after the reduction, where the Taylor remainder of this degree is below 2e-17.
_DEGREE = 13
_COEFFICIENTS = tuple(1.0 / math.factorial(i) for i in range(_DEGREE + 1))


def _polynomial_exp(x: Array) -> Array:
    x = jnp.maximum(x, _SMALLEST)
    n = jnp.round(x * _LOG2_E)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    # Horner's chain of dependent multiply-adds; the vector units stay busy with other elements.
    p = jnp.full_like(r, _COEFFICIENTS[_DEGREE])
    for coefficient in _COEFFICIENTS[_DEGREE - 1 :: -1]:
        p = p * r + coefficient
    # 2^n by writing n into the exponent bits.
    exponent = lax.shift_left(n.astype(jnp.int64) + 1023, jnp.asarray(52, jnp.int64))
    return p * lax.bitcast_convert_type(exponent, jnp.float64)


@jax.custom_jvp
def exp_nonpositive(x: Array) -> Array:
    """Return exp(x) for x <= 0, to about one unit in the last place."""
    if x.dtype != jnp.float64:
        return jnp.exp(x)
    result: Array = lax.platform_dependent(x, cpu=_polynomial_exp, default=jnp.exp)
    return result


@exp_nonpositive.defjvp
def _exp_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = exp_nonpositive(primals[0])
    return y, y * tangents[0]
