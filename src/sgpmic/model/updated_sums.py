r"""The sums Φ and Ψ for kernels and inducing points that have changed since they were made.

The sums Φ = Σ s k kᵀ and Ψ = Σ s k yᵀ were made with the kernels and inducing points of their
time. When those change, what the rows said about the functions' values u = f(Z) has not: a row
sees them through the weights :math:`a_n = K_{uu}^{-1} k_n` by which its value is interpolated
between them. Keeping :math:`a_n` (the dual parameters of Adam, Chang, Khan and Solin, 2021, and
of other sparse approximations with sites) its new kernel vector is

.. math:: k_n' \approx K'(Z', Z) K_{uu}^{-1} k_n = T k_n, \qquad
          \Phi' = T \Phi T^\top, \quad \Psi' = T \Psi .

A kernel that only changes its variance, and inducing points that do not move, make this exact.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

from sgpmic.kernels import Kernel, cross
from sgpmic.model.bound import Mappings

#: Added to both matrices' diagonals, relative to their means. Directions in which K_uu has less
#: than this are left as they were: there T would only magnify rounding errors.
RIDGE = 1e-4


def updated_sums(before: Mappings, after: Mappings, phi: Array, psi: Array) -> tuple[Array, Array]:
    """Return Φ and Ψ, made for the mappings ``before``, as those of ``after``."""
    eye = jnp.eye(before.Z.shape[0], dtype=phi.dtype)

    def ridged(K: Array) -> Array:
        return K + RIDGE * jnp.mean(jnp.diagonal(K)) * eye

    def one(component: tuple[Kernel, Kernel, Array, Array]) -> tuple[Array, Array]:
        old, new, phi_m, psi_m = component
        factor = lax.linalg.cholesky(ridged(old.gram(before.Z)), symmetrize_input=False)
        L_inverse = solve_triangular(factor, eye, lower=True)
        # The white part belongs to an inducing point, wherever that moves.
        K = ridged(cross(new, after.Z, before.Z) + new.white * eye)
        T = (K @ L_inverse.T) @ L_inverse
        moved = T @ phi_m @ T.T
        return 0.5 * (moved + moved.T), T @ psi_m

    return lax.map(one, (before.kernels, after.kernels, phi, psi))
