"""A complete fit, from settings and rows to a model, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sgpmic import exceptions
from sgpmic._runtime import announce, numerics
from sgpmic._types import Floats, History, Ints
from sgpmic._words import plural
from sgpmic.committee.dimensions import View, committee_view, count_components
from sgpmic.committee.examination import Structure, examine
from sgpmic.committee.voting import Vote, vote_on
from sgpmic.learning.em import LastEStep, Problem, StartFit, last_e_step, run_em
from sgpmic.learning.gaps import impute_rows, with_gaps
from sgpmic.learning.prediction.predictor import (
    Predictor,
    Reference,
    answer_alike,
    sorted_fingerprints,
)
from sgpmic.learning.preprocessing import (
    AS_GIVEN,
    all_rows_equal,
    canonical_order,
    features_seen,
    fit_scaler,
    sample_numbers,
)
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.starts import Starts, compile_ahead, count_labels, plan_starts
from sgpmic.model.prediction import Posterior
from sgpmic.process_group import ProcessGroup

if TYPE_CHECKING:
    from sgpmic.storage.checkpoints import Checkpoint

#: Relative jitter up to this has no visible effect.
_HARMLESS_JITTER = 1e-4


class Result(NamedTuple):
    """Result of :func:`run`."""

    predictor: Predictor
    X: Floats  # (n_own, Q) latent points of this process's rows
    S: Floats  # (n_own, M) their responsibilities
    sizes: Floats  # (M,) numbers of rows by most probable cluster, over all processes
    fit: StartFit  # the selected one
    history: History  # of all starts
    starts: list[dict[str, Any]]  # their descriptions
    x_std: Floats | None  # (n_own, Q) standard deviations of the latent points
    vote: Vote | None  # shares for this process's rows, members for the rows voted on
    structure: Structure  # cluster tendency, numbers of clusters and of dimensions

    def committee_listing(self) -> list[dict[str, Any]]:
        """Return a description of each member of the committee, by decreasing weight."""
        if self.vote is None:
            return []
        members = sorted(self.vote.members, key=lambda member: -member.weight)
        voted = [{k: v for k, v in m._asdict().items() if k != "labels"} for m in members]
        failures = self.vote.failures.items()
        return voted + [{"name": k, "weight": 0.0, "reason": why} for k, why in failures]


@numerics()  # one BLAS thread, for reproducible results whatever else the machine runs
def run(
    settings: FitSettings,
    Y: Floats,
    group: ProcessGroup,
    random_state: np.random.RandomState,
    *,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Fit a model to the rows ``Y`` (n_own, n_features) of this process, in their own units.

    ``checkpoint`` saves the fits after every iteration and restores saved ones.
    """
    # Order and scale the table; impute it for the steps that need complete rows.
    asked = settings.start
    by_name = isinstance(asked.embedding, str) and isinstance(asked.memberships, str)
    order = canonical_order(Y, group) if settings.committee and by_name else AS_GIVEN
    Y, gaps = order.apply(Y), bool(group.largest(np.array(np.isnan(Y).any())))
    scaler = fit_scaler(Y, group, settings.scale)
    imputed = impute_rows(Y, group, scaler) if gaps else Y

    # Lay out the rows in blocks.
    rows = group.lay_out_rows(Y, settings.computation.block_size, scaler.transform)
    volume, cells = group.n_rows * scaler.log_volume, None
    if gaps:
        rows, cells = with_gaps(rows, Y, imputed, scaler, group)
        volume = float(group.total(scaler.log_volumes(Y).sum()))
    problem = Problem(settings, group, rows, cells, volume, scaler, order)
    compile_ahead(problem)

    # Examine the table, and let the committee vote: the assignment prior.
    vote, committee, view = None, settings.committee, View(imputed, scaler)
    if committee is not None:
        view = committee_view(Y, imputed, scaler, group)
    _, clusters, dimensions = structure = examine(
        view,
        group,
        tendency=committee is not None and settings.n_clusters != 1,
        clusters=settings.n_clusters == "auto",
        dimensions=settings.n_components == "auto",
    )
    n_clusters = settings.n_clusters if clusters is None else clusters.chosen
    n_components = settings.n_components if dimensions is None else dimensions.chosen
    n_components = count_components(n_components, scaler, imputed, group)
    settings = replace(settings, n_clusters=n_clusters, n_components=n_components)
    if all_rows_equal(Y, group, scaler):
        # Without noise or a mapping to learn, the bound is unbounded: the optimizer would diverge.
        settings = replace(settings, em=replace(settings.em, m_steps=0))
    problem = problem._replace(settings=settings)
    compile_ahead(problem)
    if committee is not None and settings.takes_votes(group.n_rows):
        vote = vote_on(view, Y, group, committee, n_clusters)
        prior, weight = problem.lay_out_memberships(vote.shares), np.float64(committee.strength)
        problem = problem._replace(rows=replace(rows, assignment_prior=prior, prior_weight=weight))

    # Run EM from each start.
    starts = Starts(problem, plan_starts(settings, random_state), checkpoint)
    starts.resume()
    n_init = settings.start.n_init
    try:
        for number, start in enumerate(starts.planned):
            if number >= n_init and starts.have_all_clusters(number):
                break
            if number == len(starts.fits):
                which = f"start {number + 1}" if n_init > 1 or number else "start"
                announce(f"{which}: {start}")
                starts.begin(start, Y, view, vote)
            where = {"start": number, "n_starts": max(n_init, number + 1)}
            run_em(starts.fits[number], problem, **where, save=starts.save)
    except KeyboardInterrupt:  # Ctrl-C: keep the fits so far, if any
        # Unless they can be resumed from a checkpoint, or other processes wait for this one.
        can_resume = checkpoint is not None or group.n_processes > 1
        if can_resume or not any(fit.history for fit in starts.fits):
            raise
        for fit in starts.fits:
            fit.interrupted = True

    return finish(starts, problem, Y, vote, structure, random_state)


def finish(
    starts: Starts,
    problem: Problem,
    Y: Floats,
    vote: Vote | None,
    structure: Structure,
    random_state: np.random.RandomState,
) -> Result:
    """Select a fit, run the last E-step, and build the predictor, with the largest cluster first.

    From here on, rows and features are in their original order. A single process stores all of
    its training rows. With several, each keeps the results for its own rows, and all store the
    same sample of the rows of all.
    """
    fit, *_ = selection = starts.select()
    announce("last E-step")
    settings, group, rows, *_, scaler, order = problem
    M, places, features = settings.n_clusters, order.row_places, order.feature_places
    Y = Y[places][:, features]
    scaler = scaler._replace(offset=scaler.offset[features], scale=scaler.scale[features])
    last = last_e_step(fit.state, rows, settings.options)

    # Unpadded NumPy arrays, which do not depend on a device or a precision context.
    def of_rows(array: Any) -> Any:
        return np.array(group.own_rows(array)[places])

    parameters, keys = fit.state.parameters, sorted_fingerprints(Y)
    x_std = None if parameters.log_x_std is None else np.exp(of_rows(parameters.log_x_std))
    X = answer_alike(keys, of_rows(parameters.X))
    S = answer_alike(keys, of_rows(last.S)[:, :M])
    vote = None if vote is None else replace(vote, shares=vote.shares[places])
    votes = np.ones_like(S) if vote is None else vote.shares
    numbers = np.arange(group.n_rows)
    if group.n_processes > 1:
        numbers = sample_numbers(group.n_rows, rng=random_state)
    known = partial(group.rows_at, numbers=numbers)
    known_Y = known(Y)
    known_keys = keys if known_Y is Y else sorted_fingerprints(known_Y)
    some = sample_numbers(len(known_Y), rng=random_state)
    points, shares = known(X)[some], known(votes)[some]
    reference = Reference(known_Y[some], points, shares, *known_keys, scaler.scale)
    seen = np.ones(Y.shape[1], bool)
    if rows.n_observed is not None:  # there are gaps
        seen = features_seen(Y, group)
        S = _softened(S, known(S), Y, keys, reference, group)
    # By counts of the reported labels, so that an empty cluster comes last.
    sizes = count_labels(S.argmax(axis=1), M, group)
    by_size = np.lexsort([-np.asarray(last.masses)[:M], -sizes])
    S, sizes = S[:, by_size], sizes[by_size]

    posterior, A_inverse = _sorted_clusters(last, by_size)
    posterior = posterior._replace(
        mean_weights=posterior.mean_weights[:, :, : len(seen)][:, :, features],
        groups=None if posterior.groups is None else posterior.groups[:, : len(seen)][:, features],
    )
    predictor = Predictor(
        scaler,
        posterior,
        known(X),
        known(S),
        replace(reference, votes=reference.votes[:, by_size]),
        A_inverse,
        float(last.jitter),
        1.0 if rows.prior_weight is None else float(rows.prior_weight),
        None if x_std is None else known(x_std),
        seen,
    )
    return Result(predictor, X, S, sizes, *selection, x_std, vote, structure)


def _sorted_clusters(last: LastEStep, by_size: Ints) -> tuple[Posterior, Any]:
    """Return the posterior and A⁻¹ as NumPy arrays with clusters in this order."""
    of_mappings: Any = slice(None) if len(last.A_inverse) == 1 else by_size

    def sort(tree: Any, order: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[order], tree)

    posterior = jax.tree.map(np.asarray, last.posterior)
    mappings = posterior.mappings
    posterior = posterior._replace(
        mappings=mappings._replace(kernels=sort(mappings.kernels, of_mappings)),
        mean_weights=sort(posterior.mean_weights, of_mappings),
        precision_loss=sort(posterior.precision_loss, of_mappings),
        mixture=sort(posterior.mixture, by_size),
    )
    return posterior, sort(last.A_inverse, of_mappings)


def _softened(
    S: Floats, known_S: Floats, Y: Floats, keys: Any, reference: Reference, group: ProcessGroup
) -> Floats:
    """Return the memberships of this process's rows, softened for rows with gaps."""
    gaps = np.flatnonzero(np.isnan(Y).any(axis=1))
    if not len(gaps):
        return S
    theirs = known_S[reference.lookup(reference.rows)]
    everybody = len(reference.rows) == group.n_rows
    own = gaps + group.first if everybody else np.full(len(gaps), -1)
    S, some = S.copy(), Y[gaps]
    S[gaps] = reference.soften(S[gaps], theirs, reference.complete(some), ~np.isnan(some), own)
    return answer_alike(keys, S)


def advice(
    result: Result, settings: FitSettings, names: Any = None
) -> Iterator[tuple[type[Warning], str]]:
    """Yield the warnings of a fit; ``names`` are the feature names, if any."""
    fit = result.fit
    unseen = np.flatnonzero(~result.predictor.seen)
    if len(unseen):
        shown = ", ".join(str(j) if names is None else repr(str(names[j])) for j in unseen[:5])
        shown += ", …" if len(unseen) > 5 else ""
        without = f"{plural(len(unseen), 'feature')} without any value left out: {shown}."
        yield exceptions.EmptyFeatureWarning, without
    n_seen, n_components = int(result.predictor.seen.sum()), result.X.shape[1]
    # Two dimensions for one feature are the default, and can be plotted.
    if n_components > max(n_seen, 2):
        why = (
            f"{n_components} latent dimensions are more than the table has features ({n_seen}): "
            "the extra ones hold nothing but noise. Use fewer, or let the data decide"
        )
        yield exceptions.DimensionsWarning, exceptions.Advice(why, "n_components='auto'")
    tendency = result.structure.tendency
    if tendency is not None and not tendency.supported and result.S.shape[1] > 1:
        why = (
            f"{tendency.sentence()} The clusters may be arbitrary parts of one cloud: add features "
            "that tell groups apart, or ask for fewer clusters"
        )
        fewer = "n_clusters=1" if settings.n_clusters == "auto" else "n_clusters='auto'"
        yield exceptions.NoStructureWarning, exceptions.Advice(why, fewer)
    for note in fit.notes:
        yield exceptions.StartWarning, note
    if empty_clusters := int(np.sum(result.sizes == 0)):
        why = f"{empty_clusters} of {settings.n_clusters} clusters ended up empty"
        helps: tuple[str, ...] = ("n_clusters", "start__n_init", "em__prior_strength")
        if settings.options.variational:
            why += ": the data do not support so many, and uncertain latent points merge them"
            helps = ("latent='variational'",)
        else:
            why += "; fewer clusters or more starts may suit the data"
        yield exceptions.DeadClusterWarning, exceptions.Advice(why, *helps)
    if result.predictor.jitter > max(settings.em.jitter, _HARMLESS_JITTER):
        why = (
            "A kernel matrix was close to singular: its jitter was raised from "
            f"{settings.em.jitter:g} to {result.predictor.jitter:g}. Fewer inducing points may help"
        )
        yield exceptions.JitterWarning, exceptions.Advice(why, "n_inducing")
    n_iter = len(fit.history)
    if fit.interrupted:
        why = "The fit was interrupted: the model is that of the last complete iteration"
        yield ConvergenceWarning, f"{why}, {n_iter}."
    elif fit.broke_off:
        broken = f"Iteration {n_iter + 1} produced non-finite numbers"
        yield ConvergenceWarning, f"{broken}; the model is that of iteration {n_iter}."
    elif settings.tol > 0 and not fit.converged and n_iter == settings.max_iter:
        why = f"The bound was still rising after {plural(n_iter, 'iteration')}: allow more"
        yield ConvergenceWarning, exceptions.Advice(why, "max_iter", "tol")
