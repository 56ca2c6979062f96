"""The result of a fit: the last E-step, what predictions need, and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.committee.examination import Structure
from sgpmic.committee.voting import Vote
from sgpmic.exceptions import (
    ConvergenceWarning,
    DeadClusterWarning,
    DimensionsWarning,
    EmptyFeatureWarning,
    JitterWarning,
    NoStructureWarning,
    StartWarning,
)
from sgpmic.learning.canonical_order import Order
from sgpmic.learning.em import last_e_step
from sgpmic.learning.gaps import features_seen
from sgpmic.learning.prediction.predictor import Predictor
from sgpmic.learning.prediction.reference import (
    answer_alike,
    fingerprints,
    make_reference,
    sample_numbers,
)
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.progress import announce
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.starts import Selection
from sgpmic.learning.state import State
from sgpmic.model.mixture import Conjugate, Mixture
from sgpmic.model.prediction import Posterior
from sgpmic.model.rows import Rows
from sgpmic.process_group import ProcessGroup


class Result(NamedTuple):
    """What :func:`run` returns."""

    predictor: Predictor
    X: Floats  # (n_own, Q) latent points of this process's rows
    S: Floats  # (n_own, M) their responsibilities
    sizes: Floats  # (M,) rows of all processes that have each as their most probable cluster
    selection: Selection
    state: State  # to start another fit from: of this process's rows, without padding
    x_std: Floats | None  # (n_own, Q) standard deviations of uncertain latent points
    vote: Vote | None  # shares are of this process's rows, members of the rows voted on
    structure: Structure  # what the table supports

    def committee_listing(self) -> list[dict[str, Any]]:
        """Return a description of every member of the committee, the weightiest first."""
        if self.vote is None:
            return []
        voted = [
            {
                "name": m.name,
                "weight": m.weight,
                "expected": m.expected,
                "agreement": m.agreement,
                "cut": m.cut,
            }
            for m in sorted(self.vote.members, key=lambda member: -member.weight)
        ]
        failed = [
            {"name": name, "weight": 0.0, "reason": reason}
            for name, reason in self.vote.failures.items()
        ]
        return voted + failed


@dataclass(frozen=True)
class _ClusterOrder:
    """Sorts whatever has an entry for each cluster."""

    order: Ints
    shared: bool  # one mapping for all clusters: nothing to sort

    def clusters(self, leaf: Any) -> Any:
        """Return an array with the clusters along its first axis."""
        return np.asarray(leaf)[self.order]

    def mixture(self, mixture: Mixture) -> Mixture:
        return Mixture(*map(self.clusters, mixture))

    def mappings(self, tree: Any) -> Any:
        """Return arrays with the mappings along their first axes."""
        return jax.tree.map(np.asarray if self.shared else self.clusters, tree)

    def posterior(self, posterior: Posterior, n_features: int) -> Posterior:
        """Return a posterior without the padding of clusters and features."""
        mappings, groups = posterior.mappings, posterior.groups
        return posterior._replace(
            mappings=mappings._replace(kernels=self.mappings(mappings.kernels)),
            mean_weights=self.mappings(posterior.mean_weights)[:, :, :n_features],
            precision_loss=self.mappings(posterior.precision_loss),
            mixture=self.mixture(posterior.mixture),
            groups=None if groups is None else groups[:, :n_features],
        )

    def state(self, state: State, X: Any, S: Any, log_x_std: Any) -> State:
        """Return a state without padding: of this process's rows, which are given."""
        parameters = state.parameters
        return State(
            parameters._replace(
                X=X, log_kernels=self.mappings(parameters.log_kernels), log_x_std=log_x_std
            ),
            S[:, self.order],
            self.mixture(state.mixture),
            Conjugate(self.clusters(state.conjugate.pseudo_counts), state.conjugate.scale),
            self.mappings(state.jitter),
            self.mappings(state.present),
        )


def finish(
    selection: Selection,
    settings: FitSettings,
    Y: Floats,
    rows: Rows,
    group: ProcessGroup,
    random_state: np.random.RandomState,
    *,
    scaler: Scaler,
    order: Order,
    vote: Vote | None,
    structure: Structure,
) -> Result:
    """Make the last E-step and keep what predictions need, the largest cluster first.

    From here on, rows and features are in the order they came in.

    A process by itself remembers all the rows it was trained on. Of several, each keeps to itself
    what it found for its rows, and all remember the same sample of everybody's.
    """
    announce("last E-step")
    Y, scaler, places = order.undo(Y), order.undo_scaler(scaler), order.row_places
    state, options, M = selection.fit.state, settings.options, settings.n_clusters
    last = last_e_step(state, rows, options)
    # NumPy arrays, which outlive any device and any precision context.
    posterior = jax.tree.map(np.asarray, last.posterior)
    # Sorted by the labels that users will see, so that an empty cluster comes last.
    by_size = np.lexsort([-np.asarray(last.masses)[:M], -np.asarray(last.sizes)[:M]])
    sort = _ClusterOrder(by_size, options.shared)
    X = np.array(group.own_rows(state.parameters.X)[places])
    log_x_std: Any = state.parameters.log_x_std
    if log_x_std is not None:
        log_x_std = np.array(group.own_rows(log_x_std)[places])
    state = sort.state(state, X, group.own_rows(state.S)[places], log_x_std)
    keys = fingerprints(Y)
    points, S = answer_alike(keys, X, np.array(group.own_rows(last.S)[places][:, by_size]))
    selection.partitions = [partition[places] for partition in selection.partitions]
    votes = np.ones_like(S)
    if vote is not None:
        vote = replace(vote, shares=vote.shares[places])
        votes = vote.shares[:, by_size]
    x_std = None if log_x_std is None else np.exp(log_x_std)
    known: Any = (Y, points, S, votes, x_std)
    if group.n_processes > 1:
        numbers = sample_numbers(group.n_rows, random_state)
        known = tuple(None if a is None else group.rows_at(a, numbers) for a in known)
        keys = fingerprints(known[0])
    known_Y, known_X, known_S, known_votes, known_x_std = known
    predictor = Predictor(
        scaler,
        order.undo_posterior(sort.posterior(posterior, Y.shape[1])),
        known_X,
        known_S,
        make_reference(known_Y, keys, known_X, known_votes, scaler.scale, random_state),
        sort.mappings(last.A_inverse),
        float(last.jitter),
        1.0 if rows.strength is None else float(rows.strength),
        known_x_std,
        features_seen(Y, group),
    )
    sizes = sort.clusters(last.sizes)
    return Result(predictor, points, S, sizes, selection, state, x_std, vote, structure)


#: Relative jitter up to here changes nothing that anybody sees.
_HARMLESS_JITTER = 1e-4


def advice(
    result: Result, settings: FitSettings, names: Any = None
) -> Iterator[tuple[type[Warning], str]]:
    """Yield the warnings that a fit deserves; ``names`` are those of the features, if any."""
    fit = result.selection.fit
    unseen = np.flatnonzero(~result.predictor.seen)
    if len(unseen):
        shown = ", ".join(str(j) if names is None else repr(str(names[j])) for j in unseen[:5])
        more = ", …" if len(unseen) > 5 else ""
        yield (
            EmptyFeatureWarning,
            f"{len(unseen)} of the features have no value in any row and were left out: {shown}"
            f"{more}.",
        )
    n_seen, n_components = int(result.predictor.seen.sum()), result.X.shape[1]
    # Two of one feature are the default, and make a plot.
    if n_components > max(n_seen, 2):
        yield (
            DimensionsWarning,
            f"n_components={n_components} is more than the table's {n_seen} features: what is "
            "beyond them holds nothing but noise. Use fewer, or n_components='auto'.",
        )
    support = result.structure.support
    if support is not None and not support.supported and result.S.shape[1] > 1:
        yield (
            NoStructureWarning,
            f"{support.sentence()} What is called a cluster may be an arbitrary part of one cloud: "
            "use n_clusters='auto' or n_clusters=1, or add features that tell groups apart.",
        )
    for note in fit.notes:
        yield StartWarning, note
    empty = int(np.sum(result.sizes == 0))
    if empty and settings.options.variational:
        yield (
            DeadClusterWarning,
            f"{empty} of {settings.n_clusters} clusters ended without rows: the data do not ask "
            "for so many (latent='variational' lets clusters merge).",
        )
    elif empty:
        yield (
            DeadClusterWarning,
            f"{empty} of {settings.n_clusters} clusters ended without rows; fewer clusters "
            "(n_clusters) or more starts (start__n_init) may suit the data, or a stronger prior "
            "(em__prior_strength).",
        )
    if result.predictor.jitter > max(settings.em.jitter, _HARMLESS_JITTER):
        yield (
            JitterWarning,
            "A kernel matrix was close to singular: its jitter was raised from "
            f"{settings.em.jitter:g} to {result.predictor.jitter:g}. Fewer inducing points "
            "(n_inducing) may help.",
        )
    rounds = len(fit.history)
    if fit.broke_off:
        yield (
            ConvergenceWarning,
            f"Round {rounds + 1} gave numbers that are not finite; the model is that of round "
            f"{rounds}.",
        )
    elif settings.tol > 0 and not fit.converged and rounds == settings.max_iter:
        yield (
            ConvergenceWarning,
            f"The bound was still rising after {rounds} rounds: raise max_iter, or tol if that "
            "is good enough.",
        )
