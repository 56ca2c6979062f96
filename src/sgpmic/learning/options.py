"""What a round of EM is compiled for, and the numbers it takes as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jax import Array

#: Latent points as point estimates, or with posteriors of their own.
LATENTS = ("point", "variational")


@dataclass(frozen=True)
class Options:
    """What is fixed when a round is compiled; :class:`sgpmic.EM` and the estimator say more."""

    shared: bool  # one mapping for all clusters instead of one for each
    covariance_type: str
    optimizer: str
    settle_mixture: bool
    has_prior: bool  # without a conjugate prior its terms are not even compiled
    latent: str = "point"

    @property
    def variational(self) -> bool:
        """Whether latent points and the mixture's parameters have posteriors."""
        return self.latent == "variational"

    @property
    def fixes_scale(self) -> bool:
        """Whether X is standardized; unit covariances fix the scale of X by themselves.

        So do the priors of the mixture's parameters, where those have posteriors.
        """
        return self.covariance_type != "unit" and not self.variational

    @property
    def sums_out(self) -> bool:
        """Whether S is summed out while the optimizer moves X."""
        return self.variational and self.shared


class Limits(NamedTuple):
    """Numbers that a compiled round takes as they come; :class:`sgpmic.EM` says what they mean."""

    m_steps: Array
    e_steps: Array
    e_tol: Array
    covariance_floor: Array
