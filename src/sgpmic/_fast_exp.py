"""A float64 exponential for arguments at or below zero that vectorises on the CPU.

XLA's own float64 ``exp`` is the biggest single cost of a pass over the rows on a CPU. Kernels only
need it for arguments in (−∞, 0], where neither overflow nor NaN has to be caught, and a range
reduction with a polynomial is faster: alone by little, but inside the loop over blocks, where XLA
stops vectorising its own, by a factor of three to four. On other devices, and in other
precisions, it is ``jnp.exp``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

_LOG2_E = 1.4426950408889634
# log 2 in two pieces: the first has trailing zero bits, so that n * _LN2_HIGH is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# exp(-708) is still a normal number; anything smaller is 3e-308 at most and as good as zero.
_SMALLEST = -708.0
# Added to an integer, it leaves that integer in the last bits of the sum. (A conversion to an
# integer type would do, but before AVX-512 there is no vector instruction for it.)
_SHIFTER = 1.5 * 2.0**52
# The Taylor series, economised (its Chebyshev expansion on |r| <= log(2)/2, cut off): the error
# is below 2e-17, for which the series itself needs two more terms.
_COEFFICIENTS = (
    1.0,
    1.0,
    0.5000000000000019,
    0.16666666666666702,
    0.04166666666648808,
    0.008333333333309526,
    0.0013888888952318045,
    0.00019841269909219843,
    2.480148547921643e-05,
    2.755722495611072e-06,
    2.7632640675430235e-07,
    2.5114870219497476e-08,
)


def _polynomial_exp(x: Array) -> Array:
    # Not jnp.maximum, which spends two instructions more on NaN; here NaN passes through as it is.
    x = jnp.where(x < _SMALLEST, _SMALLEST, x)
    n = jnp.round(x * _LOG2_E)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    # Horner's chain of dependent multiply-adds; the vector units stay busy with other elements.
    p = jnp.full_like(r, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        p = p * r + coefficient
    # Times 2^n by adding n to the exponent bits.
    exponent = lax.shift_left(lax.bitcast_convert_type(n + _SHIFTER, jnp.int64), jnp.int64(52))
    return lax.bitcast_convert_type(lax.bitcast_convert_type(p, jnp.int64) + exponent, jnp.float64)


@jax.custom_vjp
def exp_nonpositive(x: Array) -> Array:
    """Return exp(x) for x <= 0, to about one unit in the last place."""
    if x.dtype != jnp.float64:
        return jnp.exp(x)
    return lax.platform_dependent(x, cpu=_polynomial_exp, default=jnp.exp)


def _forward(x: Array) -> tuple[Array, Array]:
    y = exp_nonpositive(x)
    return y, y


# A reverse rule, though a forward one would be the natural choice: JAX (0.10.1) forgets a
# custom_jvp inside a custom_vjp inside a loop when it differentiates twice, and the derivative of
# _polynomial_exp by itself is that of its bits: nonsense.
exp_nonpositive.defvjp(_forward, lambda y, dy: (y * dy,))
