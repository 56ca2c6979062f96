r"""Tables with gaps: missing cells integrated out.

Given the latent points a missing cell depends on nothing that was observed but through the
functions, so leaving it out of every sum integrates it out exactly. Each feature then has sums of
its own over the rows that have it,

.. math:: \Phi_{md} = \sum_n s_{nm} o_{nd}\, k_n k_n^\top, \qquad
          \Psi_{md} = \sum_n s_{nm} o_{nd}\, k_n y_{nd},

with :math:`o_{nd} = 1` where row n has feature d. Features that are observed in the same rows
share their :math:`\Phi`: what counts is the number C of different columns of o, the *groups*. The
sums of a group are those of a mapping whose rows are weighted by :math:`s_{nm} o_{nc}`, so that
they come from the one pass over the rows; mapping m and group c stand at place m C + c wherever an
axis has an entry for both. With a group's own :math:`P_c`, :math:`A_{mc}` and :math:`W_{mc}` every
other formula of :mod:`sgpmic.model.bound` and :mod:`sgpmic.model.e_step` stands as it is.

**Many groups.** That takes C times as long as a complete table. Beyond a few groups, missing cells
have a posterior instead, :math:`q(y_{nd}) = N(\mu_{nd}, 1/\beta)`, with q(F) held fixed best at
:math:`\mu_{nd} = \sum_m s_{nm} \bar f_{md}(x_n)`. With it a cell adds to the bound what an observed
one of the value :math:`\mu_{nd}` would add, but for its normalizer: its variance and its entropy
cancel :math:`\tfrac12 \log(\beta / 2\pi)`. Every update raises the bound, which lies below the
exact one by half of what is unknown about the functions, in units of the noise, at the missing
cells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

if TYPE_CHECKING:
    from sgpmic.model.rows import Rows


class Groups(NamedTuple):
    """Features that are observed in the same rows."""

    features: Array  # (C, P): 1 for the features of a group
    observed: Array  # (N, C): 1 where a row has them, 0 for padding

    @property
    def sizes(self) -> Array:
        """The number of features of every group."""
        return jnp.sum(self.features, axis=1)


def count_groups(rows: Rows) -> int:
    """Return the number of groups of features; 1 for a table without any."""
    return 1 if rows.groups is None else rows.groups.features.shape[0]


def by_group(tree: Any, n_groups: int) -> Any:
    """Return a tree with an entry for every mapping as one for every mapping and group."""
    if n_groups == 1:
        return tree
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, n_groups, axis=0), tree)


def group_weights(T: Array, rows: Rows) -> Array:
    """Return weights of the rows in the mappings (N, G) as those for every group, (N, G C)."""
    if rows.groups is None:
        return T
    return (T[:, :, None] * rows.groups.observed[:, None, :]).reshape(T.shape[0], -1)


def over_groups(values: Array, rows: Rows) -> Array:
    """Return the sum over the groups that a row has of (N, G C) values, (N, G)."""
    if rows.groups is None:
        return values
    N, C = rows.groups.observed.shape
    return jnp.einsum("ngc,nc->ng", values.reshape(N, -1, C), rows.groups.observed)


def features_by_group(n_mappings: int, rows: Rows) -> Array:
    """Return the number of features of every mapping and group, (G C,)."""
    if rows.groups is None:
        return jnp.full(n_mappings, rows.n_features)
    return jnp.tile(rows.groups.sizes, n_mappings)


def only_own_features(psi: Array, rows: Rows) -> Array:
    """Return Ψ (G, U, P) of all features as that of every mapping and group, (G C, U, P)."""
    if rows.groups is None:
        return psi
    own = psi[:, None] * rows.groups.features[None, :, None, :]
    return own.reshape(-1, *psi.shape[1:])


def with_cells(rows: Rows, cells: Array | None) -> Rows:
    """Return rows whose missing cells have the values ``cells`` (N, P), 0 for all others."""
    if cells is None:
        return rows
    n_blocks, P, size = rows.Y.shape
    Y = rows.Y + cells.reshape(n_blocks, size, P).swapaxes(1, 2)
    return replace(rows, Y=Y, norm2=jnp.sum(Y * Y, axis=1))
