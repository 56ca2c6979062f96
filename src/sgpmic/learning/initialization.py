"""The state that EM starts from: new, of an earlier result, or of a checkpoint.

A new one has an embedding (:mod:`sgpmic.learning.embeddings`), memberships and inducing points. Of
very many rows a sample is embedded and clustered, and every other row gets weighted means over its
nearest rows in the sample. What each process does to its own rows is the same however many
processes there are.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sgpmic._types import Floats, Ints
from sgpmic.kernels import stack
from sgpmic.learning.categories import View
from sgpmic.learning.em import (
    CheckpointWriter,
    StartFit,
    State,
    by_row,
    first_state,
    state_template,
    with_rows,
)
from sgpmic.learning.embeddings import PLACED_BETWEEN, SAMPLED_ROWS, embed
from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.points import (
    distinct_rows,
    given_array,
    inverse_weights,
    k_means,
    origin_and_unit,
)
from sgpmic.learning.prediction.predictor import Predictor, pad_mixture, scale_kernels
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.starts import PlannedStart
from sgpmic.model.mixture import Conjugate
from sgpmic.model.rows import Rows, pad
from sgpmic.process_group import ProcessGroup

#: Of more rows than this, a start is made from a sample.
MOST_START_ROWS = 20_000
#: Of fuzzy c-means: starts, the most iterations of each, and the largest change of a membership
#: that ends one.
_N_INIT, _MAX_ITER, _TOL = 5, 300, 1e-6
#: k-means centers for inducing points are of at most this many rows.
_SAMPLE_ROWS = 10_000
#: Size of the shifts that tell repeated inducing points apart, relative to the deviation of X.
_JITTER = 1e-3


class StartValues(NamedTuple):
    """Arrays a start begins with."""

    X: Floats  # (n_own, Q)
    Z: Floats  # (U, Q)
    S: Floats  # (n_own, M)
    notes: tuple[str, ...]


def start_values(
    view: View,
    group: ProcessGroup,
    start: PlannedStart,
    settings: FitSettings,
    votes: Floats | None,
) -> StartValues:
    """Return the embedding and memberships of this process's rows, and the inducing points.

    ``view`` is the table that the start is made from; ``votes`` (n_own, n_clusters) are the
    committee's, None without one.
    """
    Y, n_clusters = view.rows, settings.n_clusters
    # One factor for all features changes no start but by rounding.
    scale = view.scaler.scale if view.scaler.kind == "each" else None
    rng = np.random.RandomState(start.seed)
    memberships = start.memberships
    if isinstance(memberships, str) and memberships == "votes":
        memberships = "fcm" if votes is None else votes
    numbers = np.arange(group.n_rows)
    sampled = group.n_rows > MOST_START_ROWS
    if sampled:
        numbers = np.sort(rng.choice(group.n_rows, SAMPLED_ROWS, replace=False))
    sample = _scaled(group.rows_at(Y, numbers), scale)
    embedding = embed(
        sample,
        settings.n_components,
        _of_sample(start.embedding, group, numbers),
        n_neighbors=settings.start.n_neighbors,
        pieces=settings.start.pieces,
        random_state=rng,
    )
    X = embedding.coordinates
    deviations = np.ones(X.shape[1])
    if settings.start.unit_variance:
        deviations = X.std(axis=0)
        deviations = np.where(deviations > 0, deviations, 1.0)
    X = X / deviations
    S = initial_memberships(X, n_clusters, _of_sample(memberships, group, numbers), rng)
    Z = choose_inducing(X, min(settings.n_inducing, group.n_rows), settings.start.inducing, rng)
    # Processors of different makes round differently, and all have to start from one state.
    X, Z, S = group.agree((X, Z, S))
    if not sampled:
        own = slice(group.first, group.first + group.n_own)
        return StartValues(X[own], Z, S[own], embedding.notes)
    note = (
        f"The start was made from {len(numbers)} of the {group.n_rows} rows, drawn at random; the "
        "others were placed between their nearest rows among them."
    )
    sample = view.scaler.transform(group.rows_at(Y, numbers))
    known = np.hstack([X, S])
    scaling = {"offset": view.scaler.offset, "scale": view.scaler.scale}
    found = interpolate(sample, known, Y, PLACED_BETWEEN, **scaling)
    X_own, S_own = found[:, : X.shape[1]], found[:, X.shape[1] :]
    if not isinstance(start.embedding, str):
        X_own = np.asarray(start.embedding, np.float64) / deviations
    if not isinstance(memberships, str):
        S_own = initial_memberships(X_own, n_clusters, memberships, rng)
    return StartValues(X_own, Z, S_own, (note, *embedding.notes))


def _scaled(Y: Floats, scale: Floats | None) -> Floats:
    return Y if scale is None else Y / scale


def _of_sample(given: Any, group: ProcessGroup, numbers: Ints) -> Any:
    """Return a method's name as it is, and of an array the rows of the sample."""
    if isinstance(given, str) or len(given) != group.n_own:  # what is wrong with it is said later
        return given
    return group.rows_at(np.asarray(given, np.float64), numbers)


def initial_memberships(
    X: Floats, n_clusters: int, method: str | ArrayLike, random_state: np.random.RandomState
) -> Floats:
    """Return starting memberships (N, M), rows that sum to one, of points (N, Q).

    By fuzzy c-means, as one-hot k-means labels, or as the responsibilities of a mixture of
    full-covariance Gaussians; an array of weights is divided by its row sums. There may be more
    clusters than distinct points: some then start empty or as copies of each other.
    """
    if not isinstance(method, str):
        return _checked_memberships(method, (len(X), n_clusters))
    if method == "fcm":
        return fuzzy_c_means(X, n_clusters, random_state)
    found = _mixture_memberships(X, n_clusters, random_state) if method == "gmm" else None
    if found is None:
        labels, _ = k_means(X, n_clusters, 10, random_state)
        found = np.eye(n_clusters)[labels]
    return found


def _checked_memberships(memberships: ArrayLike, shape: tuple[int, int]) -> Floats:
    """Return the given memberships with rows that sum to one."""
    array = given_array("memberships", memberships, shape, "rows, clusters")
    if (array < 0.0).any():
        raise ValueError("The given memberships contain negative values.")
    # Dividing by the largest entry first keeps the sum of huge weights finite.
    largest = array.max(axis=1, keepdims=True)
    if (largest == 0.0).any():
        raise ValueError("Every row of the given memberships needs at least one positive value.")
    array /= largest
    return array / array.sum(axis=1, keepdims=True)


def fuzzy_c_means(X: Floats, n_clusters: int, random_state: np.random.RandomState) -> Floats:
    """Return memberships (N, M) by Euclidean fuzzy c-means, the best of several starts.

    It minimizes Σₙₘ uₙₘ² ‖xₙ − vₘ‖² over memberships u, whose rows sum to one, and centers v
    (Bezdek, 1981). A row that lies exactly on a center belongs to it alone; centers that coincide
    share such a row equally.
    """
    # Memberships do not depend on the position and unit of the points; squares of them might
    # overflow or cancel.
    origin, unit = origin_and_unit(X)
    points = (X - origin) / unit
    starts = (_kmeans_plus_plus(points, n_clusters, random_state) for _ in range(_N_INIT))
    return min((_fuzzy_iterations(points, start) for start in starts), key=lambda run: run[1])[0]


def _kmeans_plus_plus(points: Floats, n_clusters: int, rng: np.random.RandomState) -> Floats:
    """Draw rows as centers by k-means++; scikit-learn's own refuses more clusters than rows."""
    n_points = points.shape[0]
    chosen = [int(rng.randint(n_points))]
    squares = np.full(n_points, np.inf)
    while len(chosen) < n_clusters:
        squares = np.minimum(squares, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
        total = squares.sum()
        chosen.append(int(rng.choice(n_points, p=squares / total if total > 0.0 else None)))
    return points[chosen]


def _fuzzy_iterations(points: Floats, centers: Floats) -> tuple[Floats, float]:
    """Alternate memberships and centers until they settle; return memberships and objective."""
    squared = cdist(points, centers, "sqeuclidean")
    memberships = inverse_weights(squared)
    for _ in range(_MAX_ITER):
        weights = memberships**2
        mass = weights.sum(axis=0)
        # A center that no row belongs to has no mean; it stays where it is.
        used = mass > 0.0
        centers = centers.copy()
        centers[used] = (weights[:, used].T @ points) / mass[used, None]
        previous = memberships
        squared = cdist(points, centers, "sqeuclidean")
        memberships = inverse_weights(squared)
        if np.abs(memberships - previous).max() <= _TOL:
            break
    return memberships, float(np.sum(memberships**2 * squared))


def _mixture_memberships(
    points: Floats, n_clusters: int, random_state: np.random.RandomState
) -> Floats | None:
    """Return the responsibilities of a Gaussian mixture, or None where none fits."""
    if len(np.unique(points, axis=0)) < max(2, n_clusters):
        return None
    origin, unit = origin_and_unit(points)
    scaled = (points - origin) / unit
    mixture = GaussianMixture(
        n_clusters,
        # Enough to keep every covariance invertible, too little to blur the clusters.
        reg_covar=1e-6 * float(scaled.var(axis=0).mean()),
        # Tighter than scikit-learn's own, which stops while overlapping clusters still move.
        tol=1e-5,
        max_iter=300,
        n_init=3,
        random_state=random_state,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            found: Floats = mixture.fit(scaled).predict_proba(scaled)
        except (ValueError, np.linalg.LinAlgError):
            return None
    return found / found.sum(axis=1, keepdims=True) if np.isfinite(found).all() else None


def choose_inducing(
    X: Floats, n_inducing: int, method: str, random_state: np.random.RandomState
) -> Floats:
    """Return distinct inducing points: random rows of X, or k-means centers.

    Where X has too few distinct rows, the missing points are rows with small random shifts: equal
    points would make the kernel matrix singular.
    """
    if method == "kmeans":
        points = X
        if len(X) > _SAMPLE_ROWS:
            points = X[random_state.choice(len(X), _SAMPLE_ROWS, replace=False)]
        chosen = distinct_rows(k_means(points, n_inducing, 1, random_state)[1])[0]
    else:
        shuffled = X[random_state.permutation(len(X))]
        # Most tables have hardly any repeated rows, so a short stretch usually holds enough.
        chosen = distinct_rows(shuffled[: 2 * n_inducing])[0]
        if len(chosen) < n_inducing:
            chosen = distinct_rows(shuffled)[0]
        chosen = chosen[:n_inducing]
    scale = _largest_deviation(X)
    while len(chosen) < n_inducing:
        rows = X[random_state.randint(len(X), size=n_inducing - len(chosen))]
        shifts = _JITTER * scale * random_state.standard_normal(rows.shape)
        chosen = distinct_rows(np.vstack([chosen, rows + shifts]))[0]
    return chosen


def _largest_deviation(points: Floats) -> float:
    """Return the largest standard deviation of a column; the size of entries where it is 0."""
    size = float(np.abs(points).max())
    origin, unit = origin_and_unit(points)
    if (points == origin).all():
        return max(size, 1.0)
    # A shift must survive being added to the entries, however close together they are.
    smallest = max(1e6 * float(np.finfo(np.float64).eps) * size, 1e-280)
    return max(unit * float(((points - origin) / unit).std(axis=0).max()), smallest)


def initial_state(
    values: StartValues,
    settings: FitSettings,
    scaler: Scaler,
    rows: Rows,
    cells: Any,
    group: ProcessGroup,
) -> State:
    """Return the state of a new fit, laid out as ``rows`` are; ``cells`` fill their gaps."""
    factor = scaler.kernel_factor
    if not isinstance(settings.start.kernel_scale, str):
        factor = float(settings.start.kernel_scale) * scaler.mean_variance
    kernel = settings.kernel.for_dimensions(settings.n_components)
    # As NumPy arrays, small ones may go to any device.
    return first_state(
        rows,
        settings.options,
        X=group.lay_out(values.X, rows),
        Z=np.asarray(values.Z),
        S=lay_out_memberships(values.S, settings, rows, group),
        kernels=stack(scale_kernels([kernel] * settings.n_mappings, factor)),
        # The paper's start, β = (½ √mean(var(Y)))⁻².
        beta=np.asarray(4.0 / scaler.mean_variance),
        pseudo_counts=_pseudo_counts(settings, group),
        jitter=np.asarray(settings.em.jitter),
        cells=cells,
    )


def continued_state(
    previous: State, settings: FitSettings, rows: Rows, cells: Any, group: ProcessGroup
) -> State:
    """Return the state of an earlier result, laid out as ``rows`` are."""
    n_clusters, n_mappings = settings.padded_clusters(group.n_rows), settings.n_mappings
    padded = previous._replace(S=pad(np.asarray(previous.S), (len(previous.S), n_clusters)))
    return _lay_out_state(padded, rows, group)._replace(
        mixture=pad_mixture(previous.mixture, n_clusters),
        conjugate=Conjugate(_pseudo_counts(settings, group), previous.conjugate.scale),
        jitter=pad(np.full(n_mappings, settings.em.jitter), (n_mappings,)),
        cells=cells,
    )


def resume(
    checkpoint: CheckpointWriter | None,
    starts: list[PlannedStart],
    settings: FitSettings,
    rows: Rows,
    group: ProcessGroup,
) -> tuple[list[PlannedStart], list[StartFit]]:
    """Return the starts, with the seeds that a checkpoint has, and its fits laid out."""
    if checkpoint is None:
        return starts, []
    snapshot = checkpoint.load(state_template(settings, cells=rows.missing is not None))
    if snapshot is None:
        return starts, []
    for fit in snapshot.fits:
        fit.state = _lay_out_state(fit.state, rows, group)
    seeded = [s._replace(seed=seed) for s, seed in zip(starts, snapshot.seeds, strict=True)]
    return seeded, snapshot.fits


def lay_out_memberships(S: Any, settings: FitSettings, rows: Rows, group: ProcessGroup) -> Any:
    """Return an array of this process's rows and clusters laid out, with clusters padded."""
    shape = (len(S), settings.padded_clusters(group.n_rows))
    return group.lay_out(pad(np.asarray(S), shape), rows)


def _lay_out_state(state: State, rows: Rows, group: ProcessGroup) -> State:
    arrays = by_row(state).items()
    return with_rows(state, {k: group.lay_out(np.asarray(array), rows) for k, array in arrays})


def _pseudo_counts(settings: FitSettings, group: ProcessGroup) -> Any:
    n_clusters = settings.padded_clusters(group.n_rows)
    return pad(settings.pseudo_counts(group.n_rows), (n_clusters,))


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
