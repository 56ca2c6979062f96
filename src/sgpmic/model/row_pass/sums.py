r"""The one pass over the rows: everything of size N goes through here.

The bound needs the data only through two small sums for each Gaussian process m,

.. math:: \Phi_m = \sum_n s_{nm} k_n k_n^\top \;(U \times U), \qquad
          \Psi_m = \sum_n s_{nm} k_n y_n^\top \;(U \times P),

with :math:`k_n = K_{uf}[:, n]`; then :math:`A_m = K_{uu} + \beta\Phi_m` and
:math:`W_m = \beta\Psi_m`. They add up over blocks of rows, over devices and over machines, in
:math:`O(N U (U + P))`.

The reverse rule is written by hand. With :math:`G_\Phi, G_\Psi` the derivatives of the bound by
the sums,

.. math:: \partial L/\partial K_{uf} = [(G_\Phi + G_\Phi^\top) K_{uf} + G_\Psi Y^\top]\,
          \mathrm{diag}(s), \qquad
          \partial L/\partial s_n = k_n^\top G_\Phi k_n + k_n^\top G_\Psi y_n .

The rows go through in parts, one after the other. What is done with a part is a body of its own
for processors (:mod:`sgpmic.model.row_pass.processor`: a part is one block, for the caches) and
one for GPUs (:mod:`sgpmic.model.row_pass.gpu`: as many blocks at once as memory allows). Where the
rows lie on several devices, each makes the pass over its own, and one all-reduce forwards and one
backwards adds up what is small: what has one entry for each row never leaves its device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from sgpmic._runtime import map_components
from sgpmic.kernels import Kernel, cross
from sgpmic.model.row_pass import gpu, processor
from sgpmic.model.row_pass.parts import Part, first_part, in_parts

#: The mesh's one axis.
ROWS = "rows"


def on_own_rows(function: Any, mesh: Mesh | None, *, by_row: tuple[bool, ...], results: Any) -> Any:
    """Return ``function`` as every device applies it to the rows it has; itself where there is one.

    ``by_row`` says which arguments have one entry a row, and so a part on every device; the others
    are small and whole everywhere. ``results`` says the same of what the function returns. Small
    results must be equal on all devices, as :func:`added_up` makes them.
    """
    if mesh is None:
        return function
    spec = {True: PartitionSpec(ROWS), False: PartitionSpec()}
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=tuple(spec[each] for each in by_row),
        out_specs=jax.tree.map(spec.__getitem__, results),
        check_vma=False,
    )


def added_up(tree: Any, mesh: Mesh | None) -> Any:
    """Return the sum over all devices of a tree of small arrays, in one all-reduce."""
    if mesh is None:
        return tree
    packed, unpack = ravel_pytree(tree)
    return unpack(jax.lax.psum(packed, ROWS))


def _split(X: Array, T: Array, Y: Array, U: int, gpu_memory: int) -> tuple[Any, Part]:
    """Return the body that suits the device, and the rows at hand in the parts that it takes."""
    if gpu_memory == 0:
        return processor, in_parts(X, T, Y, Y.shape[0])
    n_blocks, P, size = Y.shape
    return gpu, in_parts(X, T, Y, gpu.count_parts(n_blocks, P, size, U, T.shape[1], gpu_memory))


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def statistics(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    mesh: Mesh | None = None,
    gpu_memory: int = 0,
) -> tuple[Array, Array]:
    """Return the sums Φ and Ψ of every Gaussian process.

    Parameters
    ----------
    kernels : Kernel
        Stacked: every parameter with a leading axis of length G.
    Z : array of shape (U, Q)
        Inducing inputs, shared by all.
    X : array of shape (N, Q)
        Latent rows; N is the number of blocks times their size.
    T : array of shape (N, G)
        The weight of every row in every Gaussian process; 0 for padding.
    Y : array of shape (n_blocks, P, block)
        The data, as in :class:`sgpmic.model.rows.Rows`. A constant: it has no derivative.
    mesh : Mesh or None
        The devices that the rows are spread over; None for one device.
    gpu_memory : int
        As in :class:`sgpmic.model.rows.Rows`.

    Returns
    -------
    phi : array of shape (G, U, U)
    psi : array of shape (G, U, P)
    """
    return _sums(kernels, Z, X, T, Y, mesh, gpu_memory)[0]


def _sums(
    kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, mesh: Mesh | None, gpu_memory: int
) -> tuple[tuple[Array, Array], Any]:
    """Return the sums of all rows, and what a GPU can keep of its own for the way back."""
    U = Z.shape[0]

    def of_own_rows(kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array) -> Any:
        body, parts = _split(X, T, Y, U, gpu_memory)

        def add(carry: Any, part: Part) -> Any:
            total, scratch = carry
            found, scratch, kept = body.sums(kernels, Z, part, scratch)
            return (total + found, scratch), kept

        zero = jnp.zeros((T.shape[1], U, U + Y.shape[1]), Z.dtype)
        start = (zero, body.scratch(Z, Y))
        if len(parts.x) == 1:
            (total, _), kept = add(start, first_part(parts))
        else:
            (total, _), kept = lax.scan(lambda c, part: (add(c, part)[0], None), start, parts)
        # An axis of length 1, of which every device has its part.
        return added_up(total, mesh), None if kept is None else kept[None]

    everywhere = on_own_rows(
        of_own_rows, mesh, by_row=(False, False, True, True, True), results=(False, True)
    )
    sums, kept = everywhere(kernels, Z, X, T, Y)
    return (sums[:, :, :U], sums[:, :, U:]), kept


def _forward(
    kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, mesh: Mesh | None, gpu_memory: int
) -> tuple[Any, Any]:
    sums, kept = _sums(kernels, Z, X, T, Y, mesh, gpu_memory)
    return sums, (kernels, Z, X, T, Y, kept)


def _reverse(
    mesh: Mesh | None, gpu_memory: int, residuals: Any, cotangents: tuple[Array, Array]
) -> Any:
    def of_own_rows(
        kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, kept: Any, *by_sums: Any
    ) -> Any:
        G_phi, G_psi = by_sums
        by_both = jnp.concatenate([G_phi + G_phi.transpose(0, 2, 1), G_psi], axis=2)
        body, parts = _split(X, T, Y, Z.shape[0], gpu_memory)

        def add(carry: Any, part: Part) -> Any:
            total, scratch = carry
            own = None if kept is None else kept[0]
            *small, dx, scratch = body.reverse(kernels, Z, part, by_both, scratch, own)
            return (jax.tree.map(jnp.add, total, tuple(small)), scratch), dx

        start = (jax.tree.map(jnp.zeros_like, (kernels, Z)), body.scratch(Z, Y))
        if len(parts.x) == 1:
            (small, _), dX = add(start, first_part(parts))
        else:
            (small, _), dX = lax.scan(add, start, parts)
        d_kernels, dZ = added_up(small, mesh)
        # The derivative by T is a pass of its own; XLA drops it where nobody asks for it.
        dT = _by_weights(kernels, Z, parts, G_phi, G_psi)
        return d_kernels, dZ, dX.reshape(X.shape), dT

    everywhere = on_own_rows(
        of_own_rows,
        mesh,
        by_row=(False, False, True, True, True, True, False, False),
        results=(False, False, True, True),
    )
    return *everywhere(*residuals, *cotangents), jnp.zeros_like(residuals[4])


statistics.defvjp(_forward, _reverse)


def _by_weights(kernels: Kernel, Z: Array, parts: Part, G_phi: Array, G_psi: Array) -> Array:
    """Return the derivative by T (N, G): kᵀ G_Φ k + kᵀ G_Ψ y."""

    def of_one(component: tuple[Kernel, Array, Array], x: Array, y: Array) -> Array:
        kernel, by_phi, by_psi = component
        K = cross(kernel, Z, x)  # without the weights, whose root has no derivative at s = 0
        return jnp.sum(K * (by_phi @ K + by_psi @ y), axis=0)

    return _of_parts(of_one, (kernels, G_phi, G_psi), parts)


def squares(
    kernels: Kernel,
    weights: Array,
    Z: Array,
    X: Array,
    Y: Array,
    mesh: Mesh | None = None,
    gpu_memory: int = 0,
) -> Array:
    """Return |W_m [k_n; y_n]|² of every row and mapping, (N, G), for W (G, U + P, U + P)."""

    def of_own_rows(kernels: Kernel, weights: Array, Z: Array, X: Array, Y: Array) -> Array:
        no_weights = jnp.ones((len(X), len(weights)), X.dtype)
        body, parts = _split(X, no_weights, Y, len(Z), gpu_memory)
        if len(parts.x) == 1:
            return body.squares(kernels, Z, first_part(parts), weights)
        values = lax.map(lambda part: body.squares(kernels, Z, part, weights), parts)
        return values.reshape(len(X), -1)

    everywhere = on_own_rows(
        of_own_rows, mesh, by_row=(False, False, False, True, True), results=True
    )
    return everywhere(kernels, weights, Z, X, Y)


def of_rows(
    function: Callable[..., Array],
    components: Any,
    Z: Array,
    X: Array,
    Y: Array,
    mesh: Mesh | None = None,
    gpu_memory: int = 0,
) -> Array:
    """Return something of every row and component, (N, G), in the same parts as the sums.

    ``function`` is of one component, latent rows x (n, Q), data y (P, n) and Z; it returns (n,).
    """

    def of_own_rows(components: Any, Z: Array, X: Array, Y: Array) -> Array:
        G = jax.tree.leaves(components)[0].shape[0]
        no_weights = jnp.zeros((X.shape[0], G), X.dtype)
        _, parts = _split(X, no_weights, Y, Z.shape[0], gpu_memory)
        return _of_parts(partial(function, Z=Z), components, parts)

    everywhere = on_own_rows(of_own_rows, mesh, by_row=(False, False, True, True), results=True)
    return everywhere(components, Z, X, Y)


def fitted_values(
    kernels: Kernel,
    weights: Array,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    mesh: Mesh | None = None,
    gpu_memory: int = 0,
) -> Array:
    """Return Σ_m t_nm f̄_m(x_n) of every row, (N, P), in the same parts as the sums.

    ``weights`` (G, U, P) are A⁻¹W of every mapping; of Y only the shape counts.
    """

    def of_own_rows(
        kernels: Kernel, weights: Array, Z: Array, X: Array, T: Array, Y: Array
    ) -> Array:
        def of_part(part: Part) -> Array:
            def add(total: Array, component: tuple[Kernel, Array, Array]) -> tuple[Array, None]:
                kernel, own, t = component
                return total + t[:, None] * (cross(kernel, part.x, Z) @ own), None

            zero = jnp.zeros((len(part.x), weights.shape[2]), X.dtype)
            return lax.scan(add, zero, (kernels, weights, part.T.T))[0]

        values: Array = lax.map(of_part, _split(X, T, Y, Z.shape[0], gpu_memory)[1])
        return values.reshape(-1, values.shape[-1])

    everywhere = on_own_rows(
        of_own_rows, mesh, by_row=(False, False, False, True, True, True), results=True
    )
    return everywhere(kernels, weights, Z, X, T, Y)


def _of_parts(function: Callable[..., Array], components: Any, parts: Part) -> Array:
    def of_part(part: Part) -> Array:
        y = part.Y.transpose(1, 0, 2).reshape(part.Y.shape[1], len(part.x))
        return map_components(lambda component: function(component, part.x, y), components).T

    if len(parts.x) == 1:
        return of_part(first_part(parts))
    values: Array = lax.map(of_part, parts)
    return values.reshape(-1, values.shape[-1])
