r"""Covariance functions k(a, b), each with a hand-written VJP.

A kernel is an immutable object whose fields are its parameters. It is a JAX pytree: log
parameters are ``jax.tree.map(jnp.log, kernel)``, and M kernels are one kernel object whose
parameters have a leading axis of length M (:func:`stack`).

All kernels have two additive terms: ``bias``, a constant, and ``white``, on the diagonal of
:math:`K_{uu}` only (a constant in the paper as printed, but on the diagonal in the toolbox its
authors started from). The initial values are the paper's:
:math:`\theta = \gamma = 1`, :math:`\theta_{bias} = \theta_{white} = e^{-2}`.

The VJPs are written by hand because :func:`cross` is evaluated for every row and inducing point,
forward and backward, and its derivative reduces to two thin matrix products once
:math:`\partial L/\partial r^2` is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export, lax

from sgpmic.exceptions import InvalidParameterError

__all__ = [
    "KERNELS",
    "RBF",
    "Kernel",
    "Linear",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "cross",
    "get_kernel",
    "like",
    "stack",
    "unstack",
]

_START_NOISE = math.exp(-2.0)
_K = TypeVar("_K", bound="Kernel")


@dataclass(frozen=True, eq=False)
class Kernel:
    """Base class of all kernels.

    Parameters
    ----------
    variance : float or array of shape (n_components,)
        Signal variance (the paper's theta_rbf or theta_lin).
    bias : float
        Constant added to all entries; 0 removes the term.
    white : float
        Added to the diagonal of the inducing points' kernel matrix; 0 removes the term.
    ard : bool
        Automatic relevance determination: a separate length scale for each latent dimension.
    """

    variance: Any = 1.0
    bias: Any = _START_NOISE
    white: Any = _START_NOISE
    ard: bool = False

    name: ClassVar[str] = ""
    #: The field with one entry per latent dimension under ``ard``.
    dimension_field: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, value in self.parameters().items():
            array, must = np.asarray(value), f"{type(self).__name__}: {name} must be"
            if array.dtype.kind not in "fiu":
                raise TypeError(f"{must} a number or an array of numbers, got {value!r}.")
            may_be_zero = name in ("bias", "white")
            allowed = array >= 0 if may_be_zero else array > 0
            if not np.all(allowed & np.isfinite(array)):
                least = "at least 0" if may_be_zero else "positive"
                raise ValueError(f"{must} {least} and finite, got {value!r}.")
            if array.ndim > 1 or (array.ndim == 1 and name != self.dimension_field):
                raise ValueError(f"{must} a single number, got an array of shape {array.shape}.")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: value for name, value in self.get_params().items() if name != "ard"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all fields by name, as scikit-learn's kernels do; ``deep`` has no effect."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kernel) or type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.get_params(), other.get_params()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    def __hash__(self) -> int:
        return hash((type(self), self.ard))

    def for_dimensions(self, n_components: int) -> Self:
        """Return the kernel with ARD parameters broadcast to ``n_components`` dimensions."""
        value = np.asarray(getattr(self, self.dimension_field), dtype=np.float64)
        if value.ndim == 0 and not self.ard:
            return self
        if value.ndim == 1 and len(value) != n_components:
            raise ValueError(
                f"{type(self).__name__}: {self.dimension_field} has {len(value)} entries "
                f"but the latent space has {n_components} dimensions."
            )
        spread: dict[str, Any] = {self.dimension_field: np.full(n_components, value)}
        return replace(self, ard=True, **spread)

    # The methods that define a kernel; A is (a, Q), B is (b, Q), results are (a, b).
    # Column j of the matrix is multiplied by t_j: the statistics need K_uf diag(√s), and fusing
    # the product keeps the compiler from computing the exponential twice.
    def forward(self, A: Array, B: Array, t: Array | float = 1.0) -> tuple[Array, Any]:
        """Return k(a_i, b_j) t_j and the residuals for :meth:`backward`."""
        raise NotImplementedError

    def backward(
        self, A: Array, B: Array, t: Array | float, K: Array, saved: Any, dK: Array
    ) -> tuple[Self, Array, Array]:
        """Return the gradients with respect to the parameters, A and B.

        ``K`` is the output of :meth:`forward`, ``dK`` its cotangent.
        """
        raise NotImplementedError

    def diagonal(self, X: Array) -> Array:
        """Return k(x, x) for every row of ``X``, without the white term."""
        raise NotImplementedError

    def gram(self, Z: Array) -> Array:
        """Return K_uu, with the white term on its diagonal."""
        return cross(self, Z, Z) + self.white * jnp.eye(Z.shape[0], dtype=Z.dtype)


def like(kernel: _K, **values: Any) -> _K:
    """Return the kernel with new values, not validated: tracers, logarithms, gradients, stacks."""
    new = object.__new__(type(kernel))
    vars(new).update(vars(kernel) | values)
    return new


@jax.custom_vjp
def cross(kernel: Kernel, A: Array, B: Array) -> Array:
    """Return the matrix k(a_i, b_j), without the white term, shape (a, b)."""
    return kernel.forward(A, B)[0]


def _cross_forward(kernel: Kernel, A: Array, B: Array) -> tuple[Array, Any]:
    K, saved = kernel.forward(A, B)
    return K, (kernel, A, B, K, saved)


def _cross_backward(residuals: Any, dK: Array) -> tuple[Kernel, Array, Array]:
    kernel, A, B, K, saved = residuals
    return kernel.backward(A, B, 1.0, K, saved, dK)


cross.defvjp(_cross_forward, _cross_backward)


def _with_ones(A: Array) -> Array:
    """Append a column of ones to A, so that a product also gives the sums."""
    return jnp.concatenate([A, jnp.ones((A.shape[0], 1), A.dtype)], axis=1)


class DistanceSums(NamedTuple):
    """Sums of E = ∂L/∂r² and of ∂L/∂K for the gradients of a stationary kernel."""

    over_a: Array  # (b,): Σ_i E_ij
    a_over_a: Any  # Q arrays (b,): Σ_i E_ij a_i
    over_b: Array  # (a,): Σ_j E_ij
    b_over_b: Array  # (a, Q): Σ_j E_ij b_j
    dK_t: Array  # Σ_ij ∂L/∂K_ij t_j


@dataclass(frozen=True, eq=False)
class Stationary(Kernel):
    """Kernels of the scaled squared distance only: k = variance · c(r²) + bias.

    Here r² = Σ_q γ_q (a_q − b_q)².
    """

    gamma: Any = 1.0
    dimension_field: ClassVar[str] = "gamma"

    def _correlation(self, r2: Array) -> Array:
        """Return c(r²), with c(0) = 1."""
        raise NotImplementedError

    def _slope(self, r2: Array) -> Array:
        """Return dc/dr²."""
        raise NotImplementedError

    def _gradients(
        self, t: Array | float, K: Array, r2: Array, dK: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Return ∂L/∂r² and the gradients of the parameters of variance · c(r²)."""
        variance = jnp.sum((K - self.bias * t) * dK) / self.variance
        return self.variance * self._slope(r2) * (t * dK), {"variance": variance}

    def forward(self, A: Array, B: Array, t: Array | float = 1.0) -> tuple[Array, Any]:
        root = jnp.sqrt(self.gamma)
        r2 = _squared_distances(A * root, B * root)
        return (self.variance * self._correlation(r2) + self.bias) * t, r2

    def backward(
        self, A: Array, B: Array, t: Array | float, K: Array, saved: Any, dK: Array
    ) -> tuple[Self, Array, Array]:
        E, of_shape = self._gradients(t, K, saved, dK)
        over_b = E @ _with_ones(B)
        over_a = _with_ones(A).T @ E  # (Q + 1, b): faster with long rows
        # Σ_ij ∂L/∂K_ij t_j as a product needs no temporary of the size of dK.
        dK_t = jnp.sum(dK @ t) if isinstance(t, Array) else jnp.sum(dK) * t
        sums = DistanceSums(over_a[-1], over_a[:-1], over_b[:, -1], over_b[:, :-1], dK_t)
        return self.gradient(A, B, sums, **of_shape)

    def gradient(
        self, A: Array, B: Array, sums: DistanceSums, **of_shape: Array
    ) -> tuple[Self, Array, Array]:
        """Return the gradients with respect to the parameters, A and B from the sums.

        With r² = Σ_q γ_q (a_q − b_q)²: ∂L/∂a_i = 2γ (a_i Σ_j E_ij − Σ_j E_ij b_j), likewise b.
        """
        by_a = sums.over_b[:, None] * A - sums.b_over_b
        by_b = sums.over_a * B.T - jnp.stack(list(sums.a_over_a))  # (Q, b)
        d_gamma = jnp.sum(by_a * A, axis=0) + jnp.sum(by_b * B.T, axis=1)
        if jnp.ndim(self.gamma) == 0:
            d_gamma = jnp.sum(d_gamma)
        zero = jnp.zeros_like(sums.dK_t)
        parameters = like(self, gamma=d_gamma, bias=sums.dK_t, white=zero, **of_shape)
        return parameters, 2.0 * self.gamma * by_a, 2.0 * self.gamma * by_b.T

    def diagonal(self, X: Array) -> Array:
        return jnp.full(X.shape[:1], 1.0, X.dtype) * (self.variance + self.bias)


def _squared_distances(A: Array, B: Array) -> Array:
    """Return |a_i − b_j|², clipped at 0.

    Uses a matrix product even in few dimensions: inside a loop over blocks, XLA vectorizes the
    exponential that follows only if its argument is the result of a product. The rounding error
    is about 1e-16 |a||b|, too small to affect a kernel.
    """
    r2 = jnp.sum(A * A, axis=1)[:, None] + jnp.sum(B * B, axis=1)[None, :] - 2.0 * (A @ B.T)
    return jnp.maximum(r2, 0.0)


def _root(r2: Array) -> Array:
    """Return √r², with derivative 0 at 0, where the factor it is multiplied by vanishes faster."""
    apart = r2 > 0.0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, r2, 1.0)), 0.0)


@dataclass(frozen=True, eq=False)
class RBF(Stationary):
    """Squared exponential: k = variance · exp(−½ Σ_q γ_q (a_q − b_q)²) + bias.

    Parameters
    ----------
    variance, bias, white, ard
        See :class:`Kernel`.
    gamma : float or array of shape (n_components,)
        Inverse squared length scale.
    """

    name: ClassVar[str] = "rbf"

    def forward(self, A: Array, B: Array, t: Array | float = 1.0) -> tuple[Array, Any]:
        # −½ r² = aᵀb − ½|a|² − ½|b|² as one product, which leaves only the exponential as an
        # elementwise operation. The rounding error is that of _squared_distances.
        root = jnp.sqrt(self.gamma)
        scaled_A, scaled_B = A * root, B * root
        norm_A = -0.5 * jnp.sum(scaled_A * scaled_A, axis=1, keepdims=True)
        norm_B = -0.5 * jnp.sum(scaled_B * scaled_B, axis=1, keepdims=True)
        left = jnp.concatenate([scaled_A, norm_A, jnp.ones_like(norm_A)], axis=1)
        right = jnp.concatenate([scaled_B, jnp.ones_like(norm_B), norm_B], axis=1)
        exponent = left @ right.T
        exponent = jnp.where(exponent > 0.0, 0.0, exponent)  # NaN stays NaN
        return (self.variance * exp_nonpositive(exponent) + self.bias) * t, ()

    # dc/dr² = −½ c, and variance · c · t = K − bias · t is known: no second exponential.
    def _gradients(
        self, t: Array | float, K: Array, r2: Array, dK: Array
    ) -> tuple[Array, dict[str, Array]]:
        return -0.5 * (K - self.bias * t) * dK, {}

    def gradient(
        self, A: Array, B: Array, sums: DistanceSums, **of_shape: Array
    ) -> tuple[Self, Array, Array]:
        variance = -2.0 * jnp.sum(sums.over_b) / self.variance
        return super().gradient(A, B, sums, variance=variance)


@dataclass(frozen=True, eq=False)
class Matern32(Stationary):
    """Matérn 3/2: k = variance · (1 + √3 r) exp(−√3 r) + bias, r² = Σ_q γ_q (a_q − b_q)²."""

    name: ClassVar[str] = "matern32"

    def _correlation(self, r2: Array) -> Array:
        t = _root(3.0 * r2)
        return (1.0 + t) * exp_nonpositive(-t)

    def _slope(self, r2: Array) -> Array:
        return -1.5 * exp_nonpositive(-_root(3.0 * r2))  # finite at r = 0


@dataclass(frozen=True, eq=False)
class Matern52(Stationary):
    """Matérn 5/2: k = variance · (1 + √5 r + 5/3 r²) exp(−√5 r) + bias."""

    name: ClassVar[str] = "matern52"

    def _correlation(self, r2: Array) -> Array:
        t = _root(5.0 * r2)
        return (1.0 + t + t * t / 3.0) * exp_nonpositive(-t)

    def _slope(self, r2: Array) -> Array:
        t = _root(5.0 * r2)
        return -(5.0 / 6.0) * (1.0 + t) * exp_nonpositive(-t)


@dataclass(frozen=True, eq=False)
class RationalQuadratic(Stationary):
    """Rational quadratic: k = variance · (1 + r²/(2α))^(−α) + bias; α → ∞ is the RBF."""

    alpha: Any = 1.0
    name: ClassVar[str] = "rational_quadratic"

    def _correlation(self, r2: Array) -> Array:
        return jnp.exp(-self.alpha * jnp.log1p(r2 / (2.0 * self.alpha)))

    def _slope(self, r2: Array) -> Array:
        return -0.5 * jnp.exp(-(self.alpha + 1.0) * jnp.log1p(r2 / (2.0 * self.alpha)))

    def _gradients(
        self, t: Array | float, K: Array, r2: Array, dK: Array
    ) -> tuple[Array, dict[str, Array]]:
        E, of_shape = super()._gradients(t, K, r2, dK)
        u = r2 / (2.0 * self.alpha)
        dc, c = self.variance * (t * dK), self._correlation(r2)
        alpha = jnp.sum(dc * c * (u / (1.0 + u) - jnp.log1p(u)))
        return E, {**of_shape, "alpha": alpha}


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """Linear: k = Σ_q variance_q a_q b_q + bias.

    Parameters
    ----------
    variance : float or array of shape (n_components,)
        The paper's theta_lin; one per latent dimension with ``ard``.
    bias, white, ard
        See :class:`Kernel`.
    """

    name: ClassVar[str] = "linear"
    dimension_field: ClassVar[str] = "variance"

    def forward(self, A: Array, B: Array, t: Array | float = 1.0) -> tuple[Array, Any]:
        return ((A * self.variance) @ B.T + self.bias) * t, ()

    def backward(
        self, A: Array, B: Array, t: Array | float, K: Array, saved: Any, dK: Array
    ) -> tuple[Self, Array, Array]:
        dK = t * dK
        dK_B = dK @ B
        d_variance = jnp.sum(A * dK_B, axis=0)
        if jnp.ndim(self.variance) == 0:
            d_variance = jnp.sum(d_variance)
        zero = jnp.zeros_like(dK, shape=())
        gradient = like(self, variance=d_variance, bias=jnp.sum(dK), white=zero)
        return gradient, dK_B * self.variance, (dK.T @ A) * self.variance

    def diagonal(self, X: Array) -> Array:
        return jnp.asarray(jnp.sum(self.variance * X * X, axis=1) + self.bias)


#: Kernel classes by name.
KERNELS: dict[str, type[Kernel]] = {
    kernel.name: kernel for kernel in (Linear, RBF, Matern32, Matern52, RationalQuadratic)
}


def _register(kernel_type: type[Kernel]) -> None:
    pattern = kernel_type()
    names = list(pattern.parameters())

    def flatten_with_keys(kernel: Kernel) -> tuple[list[tuple[Any, Any]], bool]:
        return [(jax.tree_util.GetAttrKey(n), getattr(kernel, n)) for n in names], kernel.ard

    def unflatten(ard: bool, leaves: Iterable[Any]) -> Kernel:
        return like(pattern, ard=ard, **dict(zip(names, leaves, strict=True)))

    jax.tree_util.register_pytree_with_keys(kernel_type, flatten_with_keys, unflatten)
    # For cached exports (compile_cache): ARD is a kernel's only auxiliary data.
    export.register_pytree_node_serialization(
        kernel_type,
        serialized_name=f"{kernel_type.__module__}.{kernel_type.__qualname__}",
        serialize_auxdata=lambda ard: bytes([ard]),
        deserialize_auxdata=lambda ard: ard == b"\1",
    )


for _kernel_type in KERNELS.values():
    _register(_kernel_type)


def get_kernel(kernel: str | Kernel) -> Kernel:
    """Return ``kernel`` itself, or the kernel of that name with the paper's initial values."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    names = ", ".join(sorted(KERNELS))
    problem = f"={kernel!r} is not known; use one of {names}."
    raise InvalidParameterError("kernel", problem)


def stack(kernels: Sequence[Kernel]) -> Kernel:
    """Stack kernels of one class into one object whose parameters have a leading axis."""
    if len({(type(k), k.ard) for k in kernels}) != 1:
        raise ValueError("All kernels that are stacked must be of the same kind.")
    return jax.tree.map(
        lambda *leaves: np.stack([np.asarray(x, dtype=np.float64) for x in leaves]), *kernels
    )


def unstack(kernel: Kernel) -> list[Kernel]:
    """Undo :func:`stack`."""
    return [
        jax.tree.map(
            lambda leaf, m=m: float(leaf[m]) if np.ndim(leaf) == 1 else np.asarray(leaf[m]), kernel
        )
        for m in range(len(kernel.variance))
    ]


_LOG2_E = 1.4426950408889634
# log 2 in two pieces: the first has trailing zero bits, so that n * _LN2_HIGH is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# exp(-708) = 3e-308 is still a normal number; anything smaller is effectively zero.
_SMALLEST = -708.0
# Adding this to an integer-valued float puts the integer into the low bits of the mantissa.
# (Before AVX-512 there is no vector instruction to convert to an integer type.)
_SHIFTER = 1.5 * 2.0**52
# Economized Taylor series (truncated Chebyshev expansion on |r| <= log(2)/2): the error is below
# 2e-17, for which the Taylor series itself needs two more terms.
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
    # jnp.maximum would spend two more instructions on NaN; here NaN passes through unchanged.
    x = jnp.where(x < _SMALLEST, _SMALLEST, x)
    n = jnp.round(x * _LOG2_E)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    # Horner's scheme is a chain of dependent FMAs; other elements keep the vector units busy.
    p = jnp.full_like(r, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        p = p * r + coefficient
    # Multiply by 2^n by adding n to the exponent bits.
    exponent = lax.shift_left(lax.bitcast_convert_type(n + _SHIFTER, jnp.int64), jnp.int64(52))
    return lax.bitcast_convert_type(lax.bitcast_convert_type(p, jnp.int64) + exponent, jnp.float64)


@jax.custom_vjp
def exp_nonpositive(x: Array) -> Array:
    """Return exp(x) for x <= 0, to about 1 ulp.

    XLA's float64 ``exp`` is the largest single cost of a pass over the rows on a CPU. Kernels need
    it only on (−∞, 0], without checks for overflow and NaN, where range reduction and a polynomial
    are faster: only slightly in isolation, but by a factor of three to four inside the loop over
    blocks, where XLA does not vectorize its own. On other devices, and in other precisions, this
    is ``jnp.exp``.
    """
    if x.dtype != jnp.float64:
        return jnp.exp(x)
    return lax.platform_dependent(x, cpu=_polynomial_exp, default=jnp.exp)


# A custom_vjp, although a custom_jvp would be natural: JAX (0.10.1) drops a custom_jvp inside a
# custom_vjp inside a loop when differentiating twice, and differentiating the bit manipulation in
# _polynomial_exp gives nonsense.
exp_nonpositive.defvjp(lambda x: (exp_nonpositive(x),) * 2, lambda y, dy: (y * dy,))
