"""One device's share of the pass over the rows in float32; why it is as it is stands in
:mod:`sgpmic.model.single_precision`.

Products of many numbers are made in float32 and added up in float64: over a block of rows where
blocks go through one by one, as on a CPU, and over pieces of :data:`PIECE` rows where many go
through at once, as on a GPU (:attr:`sgpmic.model.rows.Rows.room`). Processes take turns.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

from sgpmic.kernels import Kernel, cross
from sgpmic.model.collapsed import Factors

SINGLE = jnp.float32
DOUBLE = jnp.float64

#: Most rows that go through at once: their sums for the kernel and Z are made in float32.
MOST_ROWS = 2**16
#: Rows in a piece, at most.
PIECE = 512
#: Numbers for every row and inducing point or feature that a pass has at a time.
_COPIES = 8

#: A GPU would otherwise multiply float32 matrices with 10 bits.
_exactly = partial(jax.default_matmul_precision, "highest")


def rounded(kernels: Kernel, Z: Array) -> tuple[Kernel, Array]:
    """Return kernels and inducing inputs in float32; positive numbers stay positive."""
    smallest = float(jnp.finfo(SINGLE).tiny)
    kernels = jax.tree.map(lambda p: jnp.maximum(p, smallest).astype(SINGLE), kernels)
    return kernels, Z.astype(SINGLE)


def doubled(tree: Any) -> Any:
    """Return a tree of arrays in float64."""
    return jax.tree.map(lambda leaf: leaf.astype(DOUBLE), tree)


class _Part(NamedTuple):
    """Rows that go through together: latent points (c, Q), data (n, P, b), n · b = c."""

    x: Array
    Y: Array

    @property
    def rows(self) -> tuple[Array, Array]:
        """Latent points, and data (P, c), in float32."""
        P = self.Y.shape[1]
        return self.x.astype(SINGLE), self.Y.transpose(1, 0, 2).reshape(P, -1)


def _parts(X: Array, Y: Array, U: int, room: int) -> _Part:
    """Return the rows in parts, all of the same size, along a leading axis."""
    n, P, b = Y.shape
    most = 1
    if room > 0:
        most = max(1, min(MOST_ROWS // b, room // (4 * _COPIES * (U + P) * b)))
    together = next(size for size in range(min(most, n), 0, -1) if n % size == 0)
    return _Part(
        X.reshape(n // together, together * b, -1), Y.reshape(n // together, together, P, b)
    )


def _weights(T: Array, parts: _Part) -> Array:
    """Return T (N, G) as (G, number of parts, c)."""
    return T.T.reshape(T.shape[1], *parts.x.shape[:2])


def _product(left: Array, right: Array) -> Array:
    """Return ``left @ right.T`` for (k, c) and (l, c), added up in float64 over pieces of c."""
    c = left.shape[1]
    pieces = next(n for n in range(-(-c // PIECE), c + 1) if c % n == 0)
    # Not for the sake of a few rows more in the only block, or with a prime number of them.
    if c < 2 * PIECE or pieces > 2 * c // PIECE:
        return (left @ right.T).astype(DOUBLE)
    left, right = (each.reshape(each.shape[0], pieces, -1) for each in (left, right))
    products = jnp.einsum("kpc,lpc->pkl", left, right)
    return jnp.sum(products.astype(DOUBLE), axis=0)


# --------------------------------------------------------------------------------------- forwards


def sums(
    kernels: Kernel, Z: Array, W: Array, X: Array, T: Array, Y: Array, *, room: int
) -> tuple[Array, Array]:
    """Return Φ_w and Ψ_w of the rows at hand."""
    U, P = Z.shape[0], Y.shape[1]
    parts = _parts(X, Y, U, room)

    def one(component: tuple[Kernel, Array, Array]) -> Array:
        kernel, W_m, s_m = component

        def add_part(so_far: Array, part: tuple[_Part, Array]) -> Any:
            (x, y), t = part[0].rows, jnp.sqrt(part[1]).astype(SINGLE)
            V = W_m @ kernel.forward(Z, x, t)[0]
            return so_far + _product(V, jnp.concatenate([V, y * t])), None

        return lax.scan(add_part, jnp.zeros((U, U + P), DOUBLE), (parts, s_m))[0]

    with _exactly():
        found: Array = lax.map(one, (kernels, W, _weights(T, parts)))
    return found[:, :, :U], found[:, :, U:]


class Residuals(NamedTuple):
    """Sums over the rows that tell what the rounding of Φ_w and Ψ_w has done; float64."""

    data: Array  # (G,) Σ s |y|²
    error: Array  # (G,) Σ s |e|²
    spread: Array  # (G,) Σ s |L_B⁻¹v|²
    cross: Array  # (G, U, P) Σ s v eᵀ


def residuals(
    kernels: Kernel,
    Z: Array,
    W: Array,
    alpha: Array,
    L_B_inverse: Array,
    X: Array,
    T: Array,
    Y: Array,
    *,
    room: int,
) -> Residuals:
    """Return the sums of the residuals of the rows at hand for α_w and L_B⁻¹ in float32."""
    U, P = Z.shape[0], Y.shape[1]
    parts = _parts(X, Y, U, room)

    def one(component: Any) -> Residuals:
        kernel, W_m, alpha_m, L_B_inverse_m, s_m = component
        to_rows = jnp.concatenate([L_B_inverse_m, alpha_m.T])

        def add_part(so_far: Residuals, part: tuple[_Part, Array]) -> Any:
            (x, y), s = part[0].rows, part[1]
            V = W_m @ cross(kernel, Z, x)
            found = to_rows @ V
            e = y - found[U:]
            new = Residuals(
                jnp.sum(s * jnp.sum(doubled(y) ** 2, axis=0)),
                jnp.sum(s * jnp.sum(doubled(e) ** 2, axis=0)),
                jnp.sum(s * doubled(jnp.sum(found[:U] ** 2, axis=0))),
                _product(V, e * s.astype(SINGLE)),
            )
            return jax.tree.map(jnp.add, so_far, new), None

        zero = jnp.zeros((), DOUBLE)
        start = Residuals(zero, zero, zero, jnp.zeros((U, P), DOUBLE))
        return lax.scan(add_part, start, (parts, s_m))[0]

    with _exactly():
        result: Residuals = lax.map(one, (kernels, W, alpha, L_B_inverse, _weights(T, parts)))
    return result


# -------------------------------------------------------------------------------------- backwards


def reverse(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    W: Array,
    H: Array,
    alpha: Array,
    L_B_inverse: Array,
    *,
    room: int,
) -> tuple[Kernel, Array, Array, Array]:
    """Return the derivatives by kernels, Z, X, and by T but for a factor of β."""
    U, P = Z.shape[0], Y.shape[1]
    parts = _parts(X, Y, U, room)

    def one(so_far: tuple[Array, Array], component: Any) -> Any:
        kernel, W_m, H_m, alpha_m, L_B_inverse_m, s_m = component

        def add_part(carry: Any, part: tuple[_Part, Array]) -> Any:
            (x, y), t = part[0].rows, jnp.sqrt(part[1]).astype(SINGLE)
            K, saved = kernel.forward(Z, x, t)
            V = W_m @ K
            V_and_E = jnp.concatenate([V, y * t - alpha_m.T @ V])
            by_kernel = kernel.backward(Z, x, t, K, saved, H_m @ V_and_E)
            *small, dx = doubled(by_kernel)
            # By s: β [f̄ᵀ(y − f̄/2) − P/2 vᵀB⁻¹v], without the weights, whose root has no
            # derivative at s = 0. Where nobody asks for it, XLA drops it.
            V = W_m @ cross(kernel, Z, x)
            f = alpha_m.T @ V
            ds = jnp.sum(f * (y - 0.5 * f), axis=0)
            ds = ds - 0.5 * P * jnp.sum((L_B_inverse_m @ V) ** 2, axis=0)
            return jax.tree.map(jnp.add, carry, tuple(small)), (dx, doubled(ds))

        zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, DOUBLE), (kernel, Z))
        (d_kernel, dZ), (dX, ds) = lax.scan(add_part, zero, (parts, s_m))
        return (so_far[0] + dZ, so_far[1] + dX), (d_kernel, ds)

    with _exactly():
        (dZ, dX), (d_kernels, dT) = lax.scan(
            one,
            (jnp.zeros(Z.shape, DOUBLE), jnp.zeros(parts.x.shape, DOUBLE)),
            (kernels, W, H, alpha, L_B_inverse, _weights(T, parts)),
        )
    return d_kernels, dZ, dX.reshape(X.shape), dT.reshape(T.shape[1], -1).T


# ------------------------------------------------------------------------------------- the E-step


def log_likelihoods(
    kernels: Kernel, Z: Array, beta: Array, factors: Factors, X: Array, Y: Array, *, room: int
) -> Array:
    """Return ⟨log p(y_n | f_n)⟩ of the rows at hand, (N, G): −β/2 (|e_n|² + P |L_B⁻¹v_n|²) + c."""
    kernels, Z = rounded(kernels, Z)
    U, P = Z.shape[0], Y.shape[1]
    parts = _parts(X, Y, U, room)
    normaliser = 0.5 * P * jnp.log(beta / (2.0 * math.pi))

    def one(component: tuple[Kernel, Factors]) -> Array:
        kernel, f = component
        W = f.L_inverse.astype(SINGLE)
        # Lᵀα = α_w and (R⁻¹L)ᵀ = L_B⁻ᵀ
        both = jnp.concatenate([f.R_inverse.T, f.alpha], axis=1)
        to_rows = solve_triangular(doubled(W), both, trans=1, lower=True).T.astype(SINGLE)

        def of_part(part: _Part) -> Array:
            x, y = part.rows
            found = to_rows @ (W @ cross(kernel, Z, x))
            spread = jnp.sum((y - found[U:]) ** 2, axis=0) + P * jnp.sum(found[:U] ** 2, axis=0)
            return normaliser - 0.5 * beta * doubled(spread)

        return lax.map(of_part, parts).reshape(-1)

    with _exactly():
        result: Array = lax.map(one, (kernels, factors))
    return result.T
