"""The states that EM starts from: new, of an earlier result, or of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from sgpmic._runtime import double_precision, with_numerics
from sgpmic._types import Floats
from sgpmic.kernels import Kernel, stack
from sgpmic.learning.em import StartArrays, State, first_state
from sgpmic.learning.prediction.predictor import Predictor, pad_mixture, scale_kernels
from sgpmic.learning.preparation.categories import View
from sgpmic.learning.preparation.scaling import Scaler
from sgpmic.learning.rounds import Loop
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.snapshots import (
    CheckpointWriter,
    Outcome,
    by_row,
    state_template,
    with_rows,
)
from sgpmic.learning.start.start_values import start_values
from sgpmic.learning.start.starts import PlannedStart
from sgpmic.model.mixture import Conjugate
from sgpmic.model.rows import pad
from sgpmic.process_group import ProcessGroup


@dataclass(frozen=True)
class InitialStates:
    """Makes the states that EM starts from."""

    settings: FitSettings
    Y: Floats
    whole: Floats  # Y with expectations of missing cells
    view: View  # what the start is made from
    units: Scaler
    loop: Loop
    previous: State | None
    votes: Floats | None = None

    def with_votes(self, votes: Floats) -> InitialStates:
        """Return the same with a committee's votes on this process's rows."""
        committee = self.settings.committee
        assert committee is not None  # for the type checker: there are votes
        with double_precision():
            rows = replace(
                self.loop.rows,
                votes=self._lay_out_memberships(votes),
                strength=np.float64(committee.strength),
            )
        return replace(self, loop=replace(self.loop, rows=rows), votes=votes)

    @property
    def _kernel(self) -> Kernel:
        return self.settings.kernel.for_dimensions(self.settings.n_components)

    def _lay_out(self, own: Any) -> Any:
        """Return an array of this process's rows laid out among those of all."""
        return self.loop.group.lay_out(np.asarray(own), self.loop.rows)

    def _lay_out_memberships(self, S: Any) -> Any:
        """Return the same of an array of rows and clusters, which are padded."""
        n_clusters = self.settings.padded_clusters(self.loop.group.n_rows)
        return self._lay_out(pad(np.asarray(S), (len(S), n_clusters)))

    def _lay_out_state(self, state: State) -> State:
        laid_out = {name: self._lay_out(array) for name, array in by_row(state).items()}
        return with_rows(state, laid_out)

    def make(self, start: PlannedStart) -> tuple[State, tuple[str, ...]]:
        """Return a start's state, and what is unusual about it."""
        if self.previous is not None:
            return self._continue(self.previous), ()
        settings, group = self.settings, self.loop.group
        units = self.view.units
        values = start_values(
            self.view.rows,
            group,
            start,
            settings.start,
            votes=self.votes,
            scale=units.scale if units.kind == "each" else None,
            n_clusters=settings.n_clusters,
            n_components=settings.n_components,
            n_inducing=min(settings.n_inducing, group.n_rows),
        )
        scale = settings.start.kernel_scale
        factor = self.units.kernel_factor
        if not isinstance(scale, str):
            factor = float(scale) * self.units.mean_variance
        kernels = stack(scale_kernels([self._kernel] * settings.n_mappings, factor))
        # The paper's start, β = (½ √mean(var(Y)))⁻².
        beta = 4.0 / self.units.mean_variance
        return self._first_state(values.X, values.Z, values.S, kernels, beta), values.notes

    @with_numerics
    def _first_state(self, X: Floats, Z: Floats, S: Floats, kernels: Kernel, beta: float) -> State:
        loop, n_rows = self.loop, self.loop.group.n_rows
        n_clusters = self.settings.padded_clusters(n_rows)
        arrays = StartArrays(
            self._lay_out(X),
            # As NumPy arrays, small ones may go to any device.
            pad(Z, Z.shape),
            self._lay_out_memberships(S),
            kernels,
            pad(beta, ()),
            pad(self.settings.pseudo_counts(n_rows), (n_clusters,)),
            pad(self.settings.em.jitter, ()),
            self._cells(),
        )
        return first_state(arrays, loop.rows, loop.limits, loop.options)

    def _cells(self) -> Any:
        """Return the first values of missing cells, laid out, where these have a posterior."""
        rows = self.loop.rows
        if rows.missing is None:
            return None
        values = pad(self.units.transform(self.whole), (len(self.Y), rows.Y.shape[1]))
        return self._lay_out(values) * rows.missing

    @with_numerics
    def _continue(self, state: State) -> State:
        """Return an earlier result's state, laid out and padded as now."""
        settings, n_rows = self.settings, self.loop.group.n_rows
        n_clusters = settings.padded_clusters(n_rows)
        pseudo_counts = pad(settings.pseudo_counts(n_rows), (n_clusters,))
        padded = state._replace(S=pad(np.asarray(state.S), (len(state.S), n_clusters)))
        return self._lay_out_state(padded)._replace(
            mixture=pad_mixture(state.mixture, n_clusters),
            conjugate=Conjugate(pseudo_counts, state.conjugate.scale),
            jitter=pad(np.full(settings.n_mappings, settings.em.jitter), (settings.n_mappings,)),
            cells=self._cells(),
        )

    def resume(
        self, starts: list[PlannedStart], checkpoint: CheckpointWriter | None
    ) -> tuple[list[PlannedStart], list[Outcome]]:
        """Return the starts, with the seeds they had, and what was made of them before."""
        if checkpoint is None:
            return starts, []
        template = state_template(
            self._kernel,
            self.settings.n_mappings,
            variational=self.loop.options.variational,
            cells=self.loop.rows.missing is not None,
        )
        snapshot = checkpoint.load(template)
        if snapshot is None:
            return starts, []
        for outcome in snapshot.outcomes:
            with double_precision():
                outcome.state = self._lay_out_state(outcome.state)
        seeded = [s._replace(seed=seed) for s, seed in zip(starts, snapshot.seeds, strict=True)]
        return seeded, snapshot.outcomes


def can_continue(
    state: State, predictor: Predictor, settings: FitSettings, Y: Floats, group: ProcessGroup
) -> bool:
    """Return whether another fit, of the rows ``Y``, can start from the state of an earlier one.

    ``predictor`` is of that earlier fit, ``settings`` of the one to come.
    """
    (n_rows, n_components), n_clusters = state.parameters.X.shape, state.S.shape[1]
    kernels, kernel = predictor.kernels, settings.kernel.for_dimensions(n_components)
    asked = settings.n_components
    return (
        Y.shape == (n_rows, len(predictor.units.offset))
        and (asked == n_components or not isinstance(asked, Integral))
        and settings.n_clusters in ("auto", n_clusters)
        and len(state.parameters.Z) == min(settings.n_inducing, group.n_rows)
        and len(kernels) == settings.n_mappings
        and type(kernels[0]) is type(kernel)
        and kernels[0].ard == kernel.ard
        and (state.parameters.log_x_std is not None) == settings.options.variational
    )
