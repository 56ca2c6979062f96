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
          \partial L/\partial s_n = k_n^\top G_\Phi k_n + k_n^\top G_\Psi y_n,

block by block on a CPU (:mod:`sgpmic.model.row_pass.processor`), many rows at once on a GPU
(:mod:`sgpmic.model.row_pass.gpu`). Where the rows lie on several devices, each makes
the pass over its own, and one all-reduce forwards and one backwards adds up what is small: what
has one entry a row never leaves its device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from sgpmic.kernels import Kernel
from sgpmic.model.row_pass import gpu, processor

#: The mesh's one axis.
ROWS = "rows"


def on_own_rows(function: Any, mesh: Mesh | None, *, by_row: tuple[bool, ...], results: Any) -> Any:
    """Return ``function`` as every device applies it to the rows it has.

    Parameters
    ----------
    function : callable
    mesh : Mesh or None
        None where all rows are on one device: the function itself is returned.
    by_row : tuple of bool
        Which arguments have one entry a row, and so a part on every device; the others are small
        and whole everywhere.
    results : pytree of bool
        The same of what the function returns. Small results must be equal on all devices, as
        :func:`added_up` makes them.
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
    phi, psi, _ = _sums(kernels, Z, X, T, Y, mesh, gpu_memory, keep=False)
    return phi, psi


def _sums(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    mesh: Mesh | None,
    gpu_memory: int,
    *,
    keep: bool,
) -> tuple[Array, Array, Any]:
    """Return the sums of all rows, and what each device keeps of its own for the way back."""

    def of_own_rows(kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array) -> Any:
        if gpu_memory == 0:
            return *added_up(processor.sums(kernels, Z, X, T, Y), mesh), None
        phi, psi, kept = gpu.sums(kernels, Z, X, T, Y, gpu_memory, keep=keep)
        # An axis of length 1, of which every device has its part.
        return *added_up((phi, psi), mesh), None if kept is None else kept[None]

    everywhere = on_own_rows(
        of_own_rows, mesh, by_row=(False, False, True, True, True), results=(False, False, True)
    )
    result: tuple[Array, Array, Any] = everywhere(kernels, Z, X, T, Y)
    return result


def _forward(
    kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, mesh: Mesh | None, gpu_memory: int
) -> tuple[Any, Any]:
    phi, psi, kept = _sums(kernels, Z, X, T, Y, mesh, gpu_memory, keep=True)
    return (phi, psi), (kernels, Z, X, T, Y, kept)


def _reverse(
    mesh: Mesh | None, gpu_memory: int, residuals: Any, cotangents: tuple[Array, Array]
) -> Any:
    def of_own_rows(
        kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, kept: Any, *by_sums: Any
    ) -> Any:
        G_phi, G_psi = by_sums
        if gpu_memory == 0:
            d_kernels, dZ, dX, dT = processor.reverse(kernels, Z, X, T, Y, G_phi, G_psi)
        else:
            kept = None if kept is None else kept[0]
            d_kernels, dZ, dX, dT = gpu.reverse(kernels, Z, X, T, Y, kept, G_phi, G_psi, gpu_memory)
        d_kernels, dZ = added_up((d_kernels, dZ), mesh)
        return d_kernels, dZ, dX, dT

    everywhere = on_own_rows(
        of_own_rows,
        mesh,
        by_row=(False, False, True, True, True, True, False, False),
        results=(False, False, True, True),
    )
    return *everywhere(*residuals, *cotangents), jnp.zeros_like(residuals[4])


statistics.defvjp(_forward, _reverse)
