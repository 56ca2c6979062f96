r"""The pass over the rows: everything of size N is processed here.

The bound depends on the data only through two small statistics for each Gaussian process m,

.. math:: \Phi_m = \sum_n s_{nm} k_n k_n^\top \;(U \times U), \qquad
          \Psi_m = \sum_n s_{nm} k_n y_n^\top \;(U \times P),

with :math:`k_n = K_{uf}[:, n]`; then :math:`A_m = K_{uu} + \beta\Phi_m` and
:math:`W_m = \beta\Psi_m`. They add up over blocks of rows, over devices and over machines, in
:math:`O(N U (U + P))`.

The VJP is written by hand. With :math:`G_\Phi, G_\Psi` the derivatives of the bound with respect
to the sums,

.. math:: \partial L/\partial K_{uf} = [(G_\Phi + G_\Phi^\top) K_{uf} + G_\Psi Y^\top]\,
          \mathrm{diag}(s), \qquad
          \partial L/\partial s_n = k_n^\top G_\Phi k_n + k_n^\top G_\Psi y_n .

The rows are processed in parts, in sequence. The loop body is different for CPUs
(:mod:`sgpmic.model.row_pass.processor`: a part is one block, for the caches) and for GPUs
(:mod:`sgpmic.model.row_pass.gpu`: as many blocks at once as memory allows). If the rows are sharded
over several devices, each processes its own, and one all-reduce forward and one backward add up the
small arrays: arrays with one entry per row never leave their device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from sgpmic._runtime import loop_components, map_components, scan
from sgpmic.kernels import Kernel, cross
from sgpmic.model.row_pass import gpu, processor
from sgpmic.model.row_pass.processor import Part
from sgpmic.model.rows import Rows
from sgpmic.model.uncertain import mean_over_points, sigma_points

#: The only mesh axis.
ROWS = "rows"


def on_own_rows(
    function: Any, mesh: Mesh | None, small: tuple[Any, ...], by_row: tuple[Any, ...], results: Any
) -> Any:
    """Apply ``function(*small, *by_row)`` on every device to its own rows (``shard_map``).

    ``by_row`` are arrays sharded by row, ``small`` are replicated. ``results`` is a pytree of
    booleans: True for outputs sharded by row. Small outputs must be equal on all devices, as after
    :func:`added_up`.
    """
    if mesh is None:
        return function(*small, *by_row)
    spec = {True: PartitionSpec(ROWS), False: PartitionSpec()}
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(spec[False],) * len(small) + (spec[True],) * len(by_row),
        out_specs=jax.tree.map(spec.__getitem__, results),
        check_vma=False,
    )(*small, *by_row)


def added_up(tree: Any, mesh: Mesh | None) -> Any:
    """Sum a pytree of small arrays over all devices in one all-reduce."""
    if mesh is None:
        return tree
    packed, unpack = ravel_pytree(tree)
    return unpack(jax.lax.psum(packed, ROWS))


def _split(X: Array, T: Array, Y: Array, U: int, gpu_memory: int) -> tuple[Any, Part]:
    """Return the loop body for the device, and the local rows split into parts."""
    body: Any = gpu if gpu_memory else processor
    n_parts = gpu.count_parts(Y.shape, U, T.shape[1], gpu_memory) if gpu_memory else len(Y)
    return body, Part(*(a.reshape(n_parts, len(a) // n_parts, *a.shape[1:]) for a in (X, T, Y)))


def _of_parts(function: Any, parts: Part) -> Array:
    """Apply a function to every part and concatenate the results by row, (N, ...)."""
    values: Array = loop_components(function, parts)
    return values.reshape(-1, values.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def statistics(
    kernels: Kernel,  # stacked: every parameter with a leading axis of length G
    Z: Array,  # (U, Q): inducing inputs, shared by all Gaussian processes
    X: Array,  # (N, Q): latent rows; N is the number of blocks times their size
    T: Array,  # (N, G): the weight of every row in every Gaussian process; 0 for padding
    Y: Array,  # (n_blocks, P, block): the data; not differentiated
    mesh: Mesh | None = None,
    gpu_memory: int = 0,
    x_std: Array | None = None,  # (N, Q)
) -> tuple[Array, Array]:
    """Return the statistics Φ (G, U, U) and Ψ (G, U, P) of every Gaussian process.

    ``Y``, ``mesh`` and ``gpu_memory`` are as in :class:`sgpmic.model.rows.Rows`. With ``x_std``,
    the results are expectations over uncertain latent points (:mod:`sgpmic.model.uncertain`), with
    a pass for each set of sigma points.
    """
    return _forward(kernels, Z, X, T, Y, mesh, gpu_memory, x_std)[0]


# Each device makes the passes for all sigma points over its own rows, followed by a single
# all-reduce. With an all-reduce in every iteration, devices could deadlock, one in the loop and one
# at another all-reduce of the same program.


def _forward(*arguments: Any) -> tuple[tuple[Array, Array], Any]:
    kernels, Z, X, T, Y, mesh, gpu_memory, x_std = arguments
    U = Z.shape[0]

    def of_own_rows(
        kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, x_std: Array | None
    ) -> Any:
        def of_points(X: Array) -> tuple[Array, Any]:
            body, parts = _split(X, T, Y, U, gpu_memory)

            def add(carry: Any, part: Part) -> Any:
                total, scratch = carry
                found, scratch, kept = body.sums(kernels, Z, part, scratch)
                return (total + found, scratch), kept if len(parts.x) == 1 else None

            zero = jnp.zeros((T.shape[1], U, U + Y.shape[1]), Z.dtype)
            (total, _), kept = scan(add, (zero, body.scratch(Z, Y)), parts)
            return total, kept

        if x_std is None:
            total, kept = of_points(X)
        else:
            total, kept = mean_over_points(lambda X: of_points(X)[0], X, x_std), None
        return added_up(total, mesh), kept  # its leading axis, of length 1, is sharded

    by_row = (X, T, Y, x_std)
    sums, kept = on_own_rows(of_own_rows, mesh, (kernels, Z), by_row, results=(False, True))
    return (sums[:, :, :U], sums[:, :, U:]), (kernels, Z, *by_row, kept)


def _reverse(
    mesh: Mesh | None, gpu_memory: int, residuals: Any, cotangents: tuple[Array, Array]
) -> Any:
    kernels, Z, *by_row = residuals

    def of_own_rows(kernels: Kernel, Z: Array, *others: Any) -> Any:
        *by_sums, X, T, Y, x_std, kept = others

        def of_points(X: Array, G_phi: Array, G_psi: Array) -> Any:
            by_both = jnp.concatenate([G_phi + G_phi.transpose(0, 2, 1), G_psi], axis=2)
            body, parts = _split(X, T, Y, Z.shape[0], gpu_memory)

            def add(carry: Any, part: Part) -> Any:
                total, scratch = carry
                own = None if kept is None else kept[0]
                *small, dx, scratch = body.reverse(kernels, Z, part, by_both, scratch, own)
                return (jax.tree.map(jnp.add, total, tuple(small)), scratch), dx

            def by_weights(component: tuple[Kernel, Array, Array], x: Array, y: Array) -> Array:
                kernel, by_phi, by_psi = component
                K = cross(kernel, Z, x)  # unweighted: √t has no derivative at 0
                return jnp.sum(K * (by_phi @ K + by_psi @ y), axis=0)

            start = (jax.tree.map(jnp.zeros_like, (kernels, Z)), body.scratch(Z, Y))
            (small, _), dX = scan(add, start, parts)
            # The derivative with respect to T, kᵀ G_Φ k + kᵀ G_Ψ y, is a separate pass, which XLA
            # removes if it is not used.
            dT = _of_parts(partial(_of_components, by_weights, (kernels, G_phi, G_psi)), parts)
            return *small, dX.reshape(X.shape), dT

        def add_points(total: Any, point: tuple[Array, Array]) -> tuple[Any, None]:
            place, share = point
            scaled = tuple(share * by for by in by_sums)
            *small, d_points, dT = of_points(X + x_std * place, *scaled)
            found = (*small, d_points, dT, d_points * place)
            return jax.tree.map(jnp.add, total, found), None

        if x_std is None:
            found = (*of_points(X, *by_sums), None)
        else:
            zero = jax.tree.map(jnp.zeros_like, (kernels, Z, X, T, x_std))
            points: Any = sigma_points(X.shape[1])
            found = lax.scan(add_points, zero, points)[0]
        return *added_up(found[:2], mesh), *found[2:]

    small, results = (kernels, Z, *cotangents), (False, False, True, True, True)
    *found, d_std = on_own_rows(of_own_rows, mesh, small, tuple(by_row), results)
    return *found, jnp.zeros_like(residuals[4]), d_std


statistics.defvjp(_forward, _reverse)


def _of_components(function: Any, components: Any, part: Part) -> Array:
    """Apply a function to every component and the rows of a part, x (n, Q) and y (P, n)."""
    y = part.Y.transpose(1, 0, 2).reshape(part.Y.shape[1], len(part.x))
    return map_components(lambda component: function(component, part.x, y), components).T


def _by_row(
    function: Any, components: Any, Z: Array, X: Array, rows: Rows, T: Array | None = None
) -> Array:
    """Compute values for every row, (N, ...), part by part.

    ``function`` takes the loop body for the device, the components, Z and a part.
    """
    if T is None:
        T = jnp.ones((len(X), len(jax.tree.leaves(components)[0])), X.dtype)

    def of_own_rows(components: Any, Z: Array, X: Array, T: Array, Y: Array) -> Array:
        body, parts = _split(X, T, Y, len(Z), rows.gpu_memory)
        return _of_parts(partial(function, body, components, Z), parts)

    return on_own_rows(of_own_rows, rows.mesh, (components, Z), (X, T, rows.Y), results=True)


def squares(kernels: Kernel, weights: tuple[Array, Array], Z: Array, X: Array, rows: Rows) -> Array:
    """Return |V_m k_n|² + |u_m ∘ y_n − W_m k_n|² for every row and mapping, (N, G).

    ``weights`` are [V; W] (G, U + P, U) and u (G, P), which is 1 for the features that count.
    """

    def of_part(body: Any, components: Any, Z: Array, part: Part) -> Array:
        return body.squares(components[0], Z, part, components[1])

    return _by_row(of_part, (kernels, weights), Z, X, rows)


def of_rows(function: Any, components: Any, Z: Array, X: Array, rows: Rows) -> Array:
    """Compute values for every row and component, (N, G), part by part.

    ``function`` takes one component, latent rows x (n, Q), data y (P, n) and Z, and returns (n,).
    """

    def of_part(body: Any, components: Any, Z: Array, part: Part) -> Array:
        return _of_components(partial(function, Z=Z), components, part)

    return _by_row(of_part, components, Z, X, rows)


def fitted_values(
    kernels: Kernel, weights: Array, Z: Array, X: Array, T: Array, rows: Rows
) -> Array:
    """Return Σ_m t_nm f̄_m(x_n) for every row, (N, P), part by part.

    ``weights`` (G, U, P) are A⁻¹W of every mapping; only the shape of the data is used.
    """

    def of_part(body: Any, components: tuple[Kernel, Array], Z: Array, part: Part) -> Array:
        def add(total: Array, component: tuple[Kernel, Array, Array]) -> tuple[Array, None]:
            kernel, own, t = component
            return total + t[:, None] * (cross(kernel, part.x, Z) @ own), None

        zero = jnp.zeros((len(part.x), weights.shape[2]), X.dtype)
        return lax.scan(add, zero, (*components, part.T.T))[0]

    return _by_row(of_part, (kernels, weights), Z, X, rows, T)
