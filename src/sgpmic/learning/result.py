"""The result of a fit: the last E-step, what predictions need, and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.committee.examination import Structure
from sgpmic.committee.voting import Vote
from sgpmic.exceptions import (
    Advice,
    ConvergenceWarning,
    DeadClusterWarning,
    DimensionsWarning,
    EmptyFeatureWarning,
    JitterWarning,
    NoStructureWarning,
    StartWarning,
)
from sgpmic.learning.em import LastEStep, State, by_row, last_e_step, with_rows
from sgpmic.learning.gaps import features_seen
from sgpmic.learning.prediction.predictor import (
    Predictor,
    Reference,
    SortedKeys,
    answer_alike,
    make_reference,
    sample_numbers,
    sorted_fingerprints,
)
from sgpmic.learning.preprocessing import Order, Scaler, has_gaps
from sgpmic.learning.progress import announce
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.starts import Selection
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
        """Return a description of every member of the committee, those of most weight first."""
        if self.vote is None:
            return []
        members = sorted(self.vote.members, key=lambda member: -member.weight)
        shown = ("name", "weight", "expected", "agreement", "cut")
        voted = [{field: getattr(member, field) for field in shown} for member in members]
        failures = self.vote.failures.items()
        return voted + [{"name": k, "weight": 0.0, "reason": why} for k, why in failures]


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

    From here on, rows and features are in the order they came in. A process by itself remembers
    all the rows it was trained on. Of several, each keeps to itself what it found for its rows, and
    all remember the same sample of everybody's.
    """
    announce("last E-step")
    Y, places, features = order.undo(Y), order.row_places, order.feature_places
    scaler = scaler._replace(offset=scaler.offset[features], scale=scaler.scale[features])
    state, M = selection.fit.state, settings.n_clusters
    last = last_e_step(state, rows, settings.options)

    # NumPy arrays, which outlive any device and any precision context, without padding.
    def of_rows(array: Any) -> Any:
        return np.array(group.own_rows(array)[places])

    arrays = {k: of_rows(array) for k, array in by_row(state).items() if k != "cells"}
    state, x_std = with_rows(state, arrays), None
    if "log_x_std" in arrays:
        x_std = np.exp(arrays["log_x_std"])
    keys = sorted_fingerprints(Y)
    X_alike, S = answer_alike(keys, arrays["X"], of_rows(last.S)[:, :M])
    vote = None if vote is None else replace(vote, shares=vote.shares[places])
    votes = np.ones_like(S) if vote is None else vote.shares
    numbers = None if group.n_processes == 1 else sample_numbers(group.n_rows, random_state)

    def known(array: Any) -> Any:
        return array if array is None or numbers is None else group.rows_at(array, numbers)

    reference = make_reference(
        known(Y),
        keys if numbers is None else sorted_fingerprints(known(Y)),
        known(X_alike),
        known(votes),
        scaler.scale,
        random_state,
    )
    sizes, masses = np.asarray(last.sizes)[:M], np.asarray(last.masses)[:M]
    if has_gaps(Y, group):
        S = _softened(S, known(S), Y, keys, reference, group)
        sizes = group.total(np.bincount(S.argmax(axis=1), minlength=M).astype(np.float64))
    # Sorted by the labels that users will see, so that an empty cluster comes last.
    by_size = np.lexsort([-masses, -sizes])

    shared = len(last.A_inverse) == 1
    state, posterior, A_inverse = _sorted_clusters(state, last, by_size, shared=shared)
    seen = features_seen(Y, group)
    posterior = posterior._replace(
        mean_weights=posterior.mean_weights[:, :, : len(seen)][:, :, features],
        groups=None if posterior.groups is None else posterior.groups[:, : len(seen)][:, features],
    )
    selection.partitions = [partition[places] for partition in selection.partitions]
    predictor = Predictor(
        scaler,
        posterior,
        known(X_alike),
        known(S)[:, by_size],
        replace(reference, votes=reference.votes[:, by_size]),
        A_inverse,
        float(last.jitter),
        1.0 if rows.prior_weight is None else float(rows.prior_weight),
        known(x_std),
        seen,
    )
    S, sizes = S[:, by_size], sizes[by_size]
    return Result(predictor, X_alike, S, sizes, selection, state, x_std, vote, structure)


def _sorted_clusters(
    state: State, last: LastEStep, by_size: Ints, *, shared: bool
) -> tuple[State, Posterior, Any]:
    """Return a state, the posterior and A⁻¹ with the clusters in this order, as NumPy arrays.

    Without padded ones; a mapping that clusters share has no order.
    """

    def of_clusters(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[by_size], tree)

    def of_mappings(tree: Any) -> Any:
        return jax.tree.map(np.asarray, tree) if shared else of_clusters(tree)

    parameters, conjugate = state.parameters, state.conjugate
    state = state._replace(
        parameters=parameters._replace(log_kernels=of_mappings(parameters.log_kernels)),
        S=state.S[:, by_size],
        mixture=of_clusters(state.mixture),
        conjugate=conjugate._replace(pseudo_counts=of_clusters(conjugate.pseudo_counts)),
        jitter=of_mappings(state.jitter),
        present=of_mappings(state.present),
    )
    posterior = jax.tree.map(np.asarray, last.posterior)
    posterior = posterior._replace(
        mappings=posterior.mappings._replace(kernels=of_mappings(posterior.mappings.kernels)),
        mean_weights=of_mappings(posterior.mean_weights),
        precision_loss=of_mappings(posterior.precision_loss),
        mixture=of_clusters(posterior.mixture),
    )
    return state, posterior, of_mappings(last.A_inverse)


def _softened(
    S: Floats,
    known_S: Floats,
    Y: Floats,
    keys: SortedKeys,
    reference: Reference,
    group: ProcessGroup,
) -> Floats:
    """Return memberships of this process's rows, those of rows with gaps less certain."""
    gaps = np.flatnonzero(np.isnan(Y).any(axis=1))
    if not len(gaps):
        return S
    theirs = known_S[reference.lookup(reference.rows)]
    everybody = len(reference.rows) == group.n_rows
    own = gaps + group.first if everybody else np.full(len(gaps), -1)
    partial = Y[gaps]
    S = S.copy()
    S[gaps] = reference.soften(
        S[gaps], theirs, reference.complete(partial), ~np.isnan(partial), own
    )
    return answer_alike(keys, S)[0]


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
            Advice(
                f"{n_components} latent dimensions are more than the table's {n_seen} features: "
                "what is beyond them holds nothing but noise. Use fewer, or let the data decide",
                "n_components='auto'",
            ),
        )
    support = result.structure.support
    if support is not None and not support.supported and result.S.shape[1] > 1:
        fewer = "n_clusters=1" if settings.n_clusters == "auto" else "n_clusters='auto'"
        yield (
            NoStructureWarning,
            Advice(
                f"{support.sentence()} What is called a cluster may be an arbitrary part of one "
                "cloud: add features that tell groups apart, or let there be fewer clusters",
                fewer,
            ),
        )
    for note in fit.notes:
        yield StartWarning, note
    if empty := int(np.sum(result.sizes == 0)):
        lost = f"{empty} of {settings.n_clusters} clusters ended without rows"
        merging = f"{lost}: the data do not ask for so many, and uncertain latent points merge them"
        surplus = f"{lost}; fewer clusters or more starts may suit the data"
        yield (
            DeadClusterWarning,
            Advice(merging, "latent='variational'")
            if settings.options.variational
            else Advice(surplus, "n_clusters", "start__n_init", "em__prior_strength"),
        )
    if result.predictor.jitter > max(settings.em.jitter, _HARMLESS_JITTER):
        yield (
            JitterWarning,
            Advice(
                "A kernel matrix was close to singular: its jitter was raised from "
                f"{settings.em.jitter:g} to {result.predictor.jitter:g}. Fewer inducing points may "
                "help",
                "n_inducing",
            ),
        )
    rounds = len(fit.history)
    if fit.interrupted:
        yield (
            ConvergenceWarning,
            f"Learning was interrupted: the model is that of the last finished round, {rounds}.",
        )
    elif fit.broke_off:
        yield (
            ConvergenceWarning,
            f"Round {rounds + 1} gave numbers that are not finite; the model is that of round "
            f"{rounds}.",
        )
    elif settings.tol > 0 and not fit.converged and rounds == settings.max_iter:
        yield (
            ConvergenceWarning,
            Advice(
                f"The bound was still rising after {rounds} rounds: allow more of them",
                *("max_iter", "tol"),
            ),
        )
