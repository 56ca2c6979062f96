"""The state of EM, what its programs are compiled for, and what a checkpoint keeps of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sgpmic.compile_cache import keepable
from sgpmic.kernels import Kernel, stack
from sgpmic.model.bound import Mappings
from sgpmic.model.mixture import Conjugate, Mixture

#: Latent points as point estimates, or with posteriors of their own.
LATENTS = ("point", "variational")


@dataclass(frozen=True)
class EMOptions:
    """Static options of an EM iteration: each combination is compiled by itself."""

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


class EMLimits(NamedTuple):
    """Traced numbers of an EM iteration; :class:`sgpmic.EM` says what they mean."""

    m_steps: Array
    e_steps: Array
    e_tol: Array
    covariance_floor: Array


@keepable
class Parameters(NamedTuple):
    """What the optimizer moves."""

    X: Array  # (N, Q)
    Z: Array  # (U, Q)
    log_kernels: Kernel  # logarithms of the stacked kernels' parameters
    log_beta: Array
    log_x_std: Array | None = None  # (N, Q) log σ of uncertain latent points

    @property
    def x_std(self) -> Array | None:
        """The standard deviations of uncertain latent points."""
        return None if self.log_x_std is None else jnp.exp(self.log_x_std)


@keepable
class State(NamedTuple):
    """Everything an EM iteration starts from and leaves behind."""

    parameters: Parameters
    S: Array  # (N, M)
    mixture: Mixture
    conjugate: Conjugate
    #: (G,) The relative jitter of every mapping's K_uu. Where it has to be raised it stays raised:
    #: a bound with now more and now less jitter would be two functions, and could fall.
    jitter: Array
    #: 1 for each of the kernels' parameters, 0 for a bias or white part that is left out.
    present: Kernel
    cells: Array | None = None  # (N, P) posterior means of missing cells, 0 for observed ones

    @property
    def mappings(self) -> Mappings:
        """The Gaussian processes in their natural parameters."""
        return mappings_of(self.parameters, self.present)


def mappings_of(parameters: Parameters, present: Kernel) -> Mappings:
    """Return the Gaussian processes in their natural parameters."""
    return Mappings(
        jax.tree.map(lambda log, there: there * jnp.exp(log), parameters.log_kernels, present),
        parameters.Z,
        jnp.exp(parameters.log_beta),
    )


def state_template(
    kernel: Kernel, n_mappings: int, *, variational: bool = False, cells: bool = False
) -> State:
    """Return a state of empty arrays, for its tree structure.

    With ``variational`` latent points are uncertain; with ``cells`` missing cells have posteriors.
    """
    nothing: Any = np.zeros(0)
    log_x_std = nothing if variational else None
    parameters = Parameters(nothing, nothing, stack([kernel] * n_mappings), nothing, log_x_std)
    mixture, conjugate = Mixture(nothing, nothing, nothing), Conjugate(nothing, nothing)
    present = parameters.log_kernels
    means = nothing if cells else None
    return State(parameters, nothing, mixture, conjugate, nothing, present, means)


def by_row(state: State) -> dict[str, Any]:
    """Return the arrays of a state that have an entry for each row."""
    arrays = {"X": state.parameters.X, "S": state.S}
    if state.parameters.log_x_std is not None:
        arrays["log_x_std"] = state.parameters.log_x_std
    if state.cells is not None:
        arrays["cells"] = state.cells
    return arrays


def with_rows(state: State, arrays: Mapping[str, Any]) -> State:
    """Return a state with other arrays for what :func:`by_row` names."""
    parameters = state.parameters._replace(X=arrays["X"], log_x_std=arrays.get("log_x_std"))
    return state._replace(parameters=parameters, S=arrays["S"], cells=arrays.get("cells"))


@dataclass
class StartFit:
    """The fit from one start, finished or not."""

    state: State
    bound: float = float("nan")
    converged: bool = False
    history: list[dict[str, float]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    broke_off: bool = False  # an iteration gave non-finite numbers; the one before is kept
    ended: bool = False  # no more iterations are to be made
    interrupted: bool = False  # learning was interrupted: the last finished iteration is kept


class Snapshot(NamedTuple):
    """All fits at the end of an iteration: enough to resume, to the very same result."""

    seeds: list[int]  # of all planned starts: a fit without a fixed seed can resume too
    fits: list[StartFit]  # from the starts so far; the last may not have ended


class CheckpointWriter(Protocol):
    """Where snapshots go and come from."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""

    def load(self, template: State, n_starts: int) -> Snapshot | None:
        """Return the snapshot that was kept of so many starts, None if there is none."""
