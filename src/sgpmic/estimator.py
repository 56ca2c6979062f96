"""The scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sgpmic._runtime import double_precision, on_chosen_device, release_programs
from sgpmic._validation import check_parameters, check_whole_number, count_components
from sgpmic.kernels import Kernel, get_kernel
from sgpmic.learning.advice import advice
from sgpmic.learning.em import Options, State
from sgpmic.learning.multistart import StartSettings, Stopping, learn
from sgpmic.learning.predictor import (
    Assessment,
    Predictor,
    Units,
    finish,
    measure_units,
    sort_clusters,
)
from sgpmic.learning.rounds import Callback, Progress
from sgpmic.learning.snapshots import CheckpointWriter
from sgpmic.learning.starts import Start, plan_starts
from sgpmic.model.rows import Rows
from sgpmic.parallel.group import ProcessGroup, SharedTable
from sgpmic.report.estimator_plots import PlotsMixin
from sgpmic.storage.checkpoints import Checkpoint, fit_marks
from sgpmic.storage.models import StoredModel, load_model, save_model, unreadable

Floats = NDArray[np.float64]

#: What a model file keeps besides the fitted model itself.
_STORED_ATTRIBUTES = ("lower_bound_", "n_iter_", "converged_", "n_features_in_")


class SGPMIC(
    PlotsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """Clustering and non-linear dimensionality reduction, learned together.

    Sparse Gaussian processes map a low-dimensional latent space to the data; a mixture of
    Gaussians on the latent space makes the latent points an embedding and their responsibilities
    a clustering. Learned by EM on the KL-corrected variational bound. The defaults are chosen
    for good results without labels; :meth:`as_published` sets every choice as in the paper.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of clusters.
    n_components : int or float, default=2
        Number of latent dimensions; or, between 0 and 1, the share of variance: as many
        dimensions as principal components are needed for it.
    kernel : str or Kernel, default='rbf'
        'rbf', 'linear', 'matern32', 'matern52', 'rational_quadratic', or an object of
        :mod:`sgpmic.kernels`, whose parameters are start values.
    mapping : {'shared', 'per_cluster'}, default='shared'
        One Gaussian process for all clusters, which then differ by their place in the latent
        space only, or one for each cluster (the paper's model).
    covariance_type : {'full', 'tied', 'diag', 'spherical', 'unit'}, default='full'
        Shape of the clusters in the latent space, as in
        :class:`sklearn.mixture.GaussianMixture`; 'unit' fixes them to the identity.
    prior_strength : float, default=0.3
        Strength of the conjugate prior on the clusters' weights and covariances, as a share of
        the mean cluster size. It keeps small clusters from collapsing; 0 is the paper's model.
    n_inducing : int, default=50
        Number of inducing points; at most the number of rows is used.
    inducing : {'random', 'kmeans'}, default='random'
        Where inducing points start: at latent points of random rows or at k-means centres.
    init : {'isomap', 'pca', 'ppca', 'spectral', 'random'} or array of shape \
(n_samples, n_components), default='isomap'
        The embedding that learning starts from.
    init_memberships : {'fcm', 'kmeans', 'gmm'} or array of shape (n_samples, n_clusters), \
default='fcm'
        The clustering of that embedding that learning starts from: fuzzy c-means, k-means, or a
        Gaussian mixture.
    n_neighbors : int, default=12
        Neighbours in ISOMAP's and the spectral embedding's graph.
    isomap_pieces : {'join', 'largest'}, default='join'
        What ISOMAP does when its graph falls apart: join the pieces by their shortest links, or
        embed the largest only and put the other rows at 0.
    unit_variance : bool, default=False
        Whether every dimension of the starting embedding is scaled to unit variance. Otherwise
        one factor scales them all.
    kernel_scale : float or 'data', default=0.01
        The kernel's start values are multiplied by this times the mean variance of the features.
        A small number makes the mapping weak at the start, so that assignments settle in the
        latent space before it joins in. 'data' takes the start values as they are, in the units
        of the data (the paper).
    optimizer : {'scg', 'lbfgs'}, default='scg'
        Scaled conjugate gradients or limited-memory BFGS in the M-steps.
    max_iter : int, default=20
        Most rounds of EM.
    m_steps : int, default=20
        Steps of the optimizer in a round.
    e_steps : int, default=20
        Most E-steps in a round.
    e_tol : float, default=1e-3
        E-steps of a round end when no responsibility changes by more than this.
    settle_mixture : bool, default=True
        Whether the latent mixture is updated between the E-steps of a round, so that assignments
        settle in the latent space first.
    tol : float, default=1e-2
        Learning ends when a round raises the bound by less than this, relative to the larger of
        its magnitude (for the scaled data) and the number of rows. 0 makes all ``max_iter``
        rounds. Much smaller values raise the bound further but not the quality of the clusters:
        latent points that are free to move end by smoothing clusters away.
    n_init : int, default=1
        Number of starts: the one asked for and others of different kinds. A consensus takes
        three or more; of two, the first is kept.
    n_retries : int, default=1
        Number of further starts, of other kinds, that are made one after the other where all
        have ended with a cluster that no row belongs to. Of fits with and without such a
        cluster, one without is kept.
    selection : {'consensus', 'bound'}, default='consensus'
        Which start is kept: the one whose partition agrees best with those of all others
        (highest mean adjusted Rand index), or the one with the highest bound. The bound is not a
        safe judge between starts of different kinds.
    covariance_floor : float, default=1e-4
        Smallest variance of a cluster in any latent direction; the overall variance of the
        latent points is 1.
    jitter : float, default=1e-8
        Added to the diagonal of the inducing points' kernel matrix, relative to its mean; raised
        when a factorisation fails.
    block_size : int or None, default=None
        Rows handled at a time. It changes speed and memory, and results by rounding alone, which
        line searches amplify.
    device : {'auto', 'cpu', 'gpu'}, default='auto'
        Where to compute: a GPU where JAX finds one, or as told.
    batch_size : int or None, default=None
        Rows in a batch, for tables where rounds over all rows are too slow: a round is then an
        epoch over random batches, and the bound may now and then fall from one to the next. Some
        thousand rows, at least ``n_inducing``. None makes rounds of full EM.
    warm_start : bool, default=False
        Whether another call of ``fit`` goes on from the last solution (same number of rows).
    checkpoint : str, path or None, default=None
        A folder to keep learning in. Where it exists, and belongs to the same data and settings,
        ``fit`` goes on from it, to the result it would have had without the interruption. It
        stays when learning has ended, and another ``fit`` then returns at once: delete it to learn
        anew.
    checkpoint_every : int, default=1
        Rounds between two checkpoints.
    random_state : int, RandomState instance or None, default=None
        Seed of everything random.
    verbose : int, default=0
        1 prints a line a round.
    callbacks : list of callables or None, default=None
        Each is called after every round with a :class:`sgpmic.Progress`; returning True ends
        that start.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The most probable cluster of every row; cluster 0 is the largest.
    memberships_ : ndarray of shape (n_samples, n_clusters)
        q(S): the probability of every row being in every cluster.
    embedding_ : ndarray of shape (n_samples, n_components_)
        The latent points.
    lower_bound_ : float
        The objective at the end, in the units of the data: the KL-corrected bound plus the log
        of the conjugate prior (0 at ``prior_strength=0``).
    history_ : dict of str to list
        One entry a round of every start: 'start', 'round', 'bound_after_e', 'bound', ...
    starts_ : list of dict
        Every start: its kind, bound, agreement with the others, rounds, labels, whether it was
        kept.
    n_iter_ : int
        Rounds of the start that was kept.
    converged_ : bool
        Whether it ended because the bound had settled.
    n_components_ : int
        Number of latent dimensions.
    weights_, means_, covariances_ : ndarrays of shape (n_clusters,), (n_clusters, \
n_components_) and (n_clusters, n_components_, n_components_)
        The latent mixture.
    kernels_ : list of Kernel
        Learned kernels in the units of the data: one, or one a cluster.
    inducing_ : ndarray of shape (n_inducing, n_components_)
        Inducing points in the latent space.
    beta_ : float
        Noise precision in the units of the data.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, when all are strings.

    Notes
    -----
    A row that was trained on keeps its fitted latent point and memberships in ``transform`` and
    ``predict_proba`` (of equal training rows, that of the first); any other row is placed by
    itself, so the answer for a row never depends on the rest of the batch.

    References
    ----------
    *Clustering based on Mixtures of Sparse Gaussian Processes*.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sgpmic import SGPMIC
    >>> Y = load_iris().data
    >>> model = SGPMIC(n_clusters=3, random_state=0).fit(Y)
    >>> model.embedding_.shape, model.memberships_.shape
    ((150, 2), (150, 3))
    """

    def __init__(
        self,
        n_clusters: int = 3,
        n_components: int | float = 2,
        *,
        kernel: str | Kernel = "rbf",
        mapping: str = "shared",
        covariance_type: str = "full",
        prior_strength: float = 0.3,
        n_inducing: int = 50,
        inducing: str = "random",
        init: str | ArrayLike = "isomap",
        init_memberships: str | ArrayLike = "fcm",
        n_neighbors: int = 12,
        isomap_pieces: str = "join",
        unit_variance: bool = False,
        kernel_scale: float | str = 0.01,
        optimizer: str = "scg",
        max_iter: int = 20,
        m_steps: int = 20,
        e_steps: int = 20,
        e_tol: float = 1e-3,
        settle_mixture: bool = True,
        tol: float = 1e-2,
        n_init: int = 1,
        n_retries: int = 1,
        selection: str = "consensus",
        covariance_floor: float = 1e-4,
        jitter: float = 1e-8,
        block_size: int | None = None,
        device: str = "auto",
        batch_size: int | None = None,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.kernel = kernel
        self.mapping = mapping
        self.covariance_type = covariance_type
        self.prior_strength = prior_strength
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.init = init
        self.init_memberships = init_memberships
        self.n_neighbors = n_neighbors
        self.isomap_pieces = isomap_pieces
        self.unit_variance = unit_variance
        self.kernel_scale = kernel_scale
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.m_steps = m_steps
        self.e_steps = e_steps
        self.e_tol = e_tol
        self.settle_mixture = settle_mixture
        self.tol = tol
        self.n_init = n_init
        self.n_retries = n_retries
        self.selection = selection
        self.covariance_floor = covariance_floor
        self.jitter = jitter
        self.block_size = block_size
        self.device = device
        self.batch_size = batch_size
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @classmethod
    def as_published(
        cls, n_clusters: int = 3, n_components: int | float = 2, **parameters: Any
    ) -> Self:
        """Return an estimator with every choice as in the paper.

        One Gaussian process a cluster, ISOMAP with 12 neighbours and fuzzy c-means as start,
        random inducing points, scaled conjugate gradients, no prior, data centred but not
        scaled, a fixed number of rounds. What the paper leaves open (number of rounds and steps,
        how often the E-step is repeated, the shape of the covariances) is one setting for all
        data sets; ``docs/as-published.md`` says how it was found.

        Parameters
        ----------
        n_clusters, n_components
            See :class:`SGPMIC`.
        **parameters
            Any other parameter, to deviate from the paper.
        """
        published: dict[str, Any] = {
            "mapping": "per_cluster",
            "covariance_type": "full",
            "prior_strength": 0.0,
            "init": "isomap",
            "isomap_pieces": "largest",
            "unit_variance": True,
            "init_memberships": "fcm",
            "n_inducing": 50,
            "inducing": "random",
            "kernel_scale": "data",
            "optimizer": "scg",
            "max_iter": 2,
            "m_steps": 20,
            "e_steps": 4,
            "e_tol": 0.0,
            "settle_mixture": True,
            "tol": 0.0,
            "n_retries": 0,
        }
        return cls(n_clusters, n_components, **(published | parameters))

    @on_chosen_device
    def fit(self, X: ArrayLike | SharedTable, y: object = None) -> Self:
        """Learn embedding and clustering of the rows of ``X``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data (the paper's Y). Raw features: they are centred, and divided by one common
            number, but not scaled one by one; use :class:`sklearn.preprocessing.StandardScaler`
            first where they have different units.
        y : Ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        self : SGPMIC
        """
        check_parameters(self.get_params(deep=False))
        release_programs()
        kernel = get_kernel(self.kernel)
        # Row by row in memory: sums in another order would round differently.
        table, group = X if isinstance(X, SharedTable) else (X, None)
        least = 2 if group is None or group.n_processes == 1 else 1  # others have more
        Y = validate_data(self, table, dtype=np.float64, order="C", ensure_min_samples=least)
        group = ProcessGroup(len(Y)) if group is None else group
        if group.n_rows < self.n_clusters:
            raise ValueError(
                f"n_samples={group.n_rows} is less than n_clusters={self.n_clusters}: ask for at "
                "most as many clusters as there are rows."
            )
        if self.batch_size is not None and (group.mesh is not None or group.n_processes > 1):
            raise ValueError(
                "batch_size works on one device in one process: leave it out (None) where rows "
                "are spread over several."
            )
        rng = check_random_state(self.random_state)
        if group.n_processes > 1 and not isinstance(self.random_state, Integral):
            rng = np.random.RandomState(group.agree(rng.randint(2**31 - 1, size=1)))
        units = measure_units(Y, group)
        with double_precision():
            rows = group.lay_out_rows(Y, self.block_size, units.reduce)
        n_components = count_components(self.n_components, Y, group)
        options = self._options()
        going_on = self._last_state(rows, group, n_components, kernel) if self.warm_start else None
        starts, n_retries = [Start("last fit", "last fit", 0)], 0
        if going_on is None:
            if isinstance(self.init, str) or isinstance(self.init_memberships, str):
                n_retries = self.n_retries
            starts = plan_starts(self.init, self.init_memberships, self.n_init + n_retries, rng)
        learned = learn(
            Y,
            group,
            rows,
            units,
            options,
            starts,
            self._start_settings(kernel, n_components, units),
            self._stopping(),
            self.selection,
            going_on,
            self._checkpoint_writer(Y, group),
            n_retries,
        )
        self._state = sort_clusters(learned.outcome.state, rows, options)
        self._adopt(*finish(self._state, rows, group, options, Y, units, rng))
        self.starts_ = learned.listing()
        self.history_ = learned.history
        self.lower_bound_ = learned.outcome.bound
        self.n_iter_ = len(learned.outcome.history)
        self.converged_ = learned.outcome.converged
        sizes = group.total(np.bincount(self.labels_, minlength=self.n_clusters) + 0.0)
        empty = int(np.sum(sizes == 0))
        for category, sentence in advice(
            learned.outcome,
            empty,
            self._fitted.jitter,
            n_clusters=self.n_clusters,
            jitter=self._least_jitter(),
            tol=self.tol,
            max_iter=self.max_iter,
        ):
            # Past the method that chooses the device, to the line of the user's that called it.
            warnings.warn(sentence, category, stacklevel=3)
        return self

    def _options(self) -> Options:
        return Options(
            shared=self.mapping == "shared",
            covariance_type=self.covariance_type,
            covariance_floor=float(self.covariance_floor),
            optimiser=self.optimizer,
            m_steps=int(self.m_steps),
            e_steps=int(self.e_steps),
            e_tolerance=float(self.e_tol),
            settle_mixture=bool(self.settle_mixture),
            jitter=self._least_jitter(),
            has_prior=self.prior_strength > 0,
            batch_size=None if self.batch_size is None else int(self.batch_size),
        )

    def _least_jitter(self) -> float:
        """Return the jitter that learning starts with."""
        return float(self.jitter)

    def _start_settings(self, kernel: Kernel, n_components: int, units: Units) -> StartSettings:
        return StartSettings(
            n_clusters=int(self.n_clusters),
            n_components=n_components,
            n_inducing=int(self.n_inducing),
            inducing=self.inducing,
            n_neighbors=int(self.n_neighbors),
            isomap_pieces=self.isomap_pieces,
            unit_variance=bool(self.unit_variance),
            kernel=kernel,
            # The model sees data of mean variance 1. Data in their own units with a kernel of
            # variance v are data divided by ``scale`` with a kernel of variance v / scale².
            kernel_factor=(
                units.scale**-2 if isinstance(self.kernel_scale, str) else float(self.kernel_scale)
            ),
            prior_strength=float(self.prior_strength),
        )

    def _stopping(self) -> Stopping:
        callbacks = list(self.callbacks or ())
        if self.verbose:
            callbacks.append(_print_progress)
        return Stopping(int(self.max_iter), float(self.tol), callbacks)

    def _checkpoint_writer(self, Y: Floats, group: ProcessGroup) -> CheckpointWriter | None:
        if self.checkpoint is None:
            return None
        marks = fit_marks(Y, group, self.get_params(deep=False))
        return Checkpoint(self.checkpoint, group, marks, int(self.checkpoint_every))

    def _last_state(
        self, rows: Rows, group: ProcessGroup, n_components: int, kernel: Kernel
    ) -> State | None:
        """Return the state to go on from, None before the first fit."""
        state: State | None = getattr(self, "_state", None)
        if state is None:
            if hasattr(self, "_fitted"):
                raise ValueError(
                    "warm_start=True cannot go on from a model that was loaded from a file: call "
                    "set_params(warm_start=False) first."
                )
            return None
        n_samples = group.n_rows
        n_processes = 1 if self.mapping == "shared" else self.n_clusters
        fits = (
            self.embedding_.shape == (group.n_own, n_components)
            and self.memberships_.shape == (group.n_own, self.n_clusters)
            and len(self.inducing_) == min(self.n_inducing, n_samples)
            and len(self.kernels_) == n_processes
            and type(self.kernels_[0]) is type(kernel)
            and self.kernels_[0].ard == kernel.for_dimensions(n_components).ard
        )
        if not fits:
            raise ValueError(
                "warm_start=True goes on from the last fit, which had another number of rows, "
                "clusters, components or inducing points, or another kernel: call "
                "set_params(warm_start=False) first, or make a new estimator."
            )
        # Blocks and the prior's strength may have changed since.
        with double_precision():
            X, S = (group.lay_out(group.own_rows(a), rows) for a in (state.parameters.X, state.S))
        jitter: Any = np.full(n_processes, self._least_jitter())
        pseudo_counts: Any = np.asarray(n_samples / self.n_clusters * float(self.prior_strength))
        return state._replace(
            parameters=state.parameters._replace(X=X),
            S=S,
            conjugate=state.conjugate._replace(pseudo_counts=pseudo_counts),
            jitter=jitter,
        )

    def _adopt(self, fitted: Predictor, X: Floats, S: Floats) -> None:
        """Set the attributes that a fitted model and the rows it was fitted to determine."""
        self._fitted = fitted
        # Copies: what a user does to them must not reach the model.
        self.embedding_ = X.copy()
        self.memberships_ = S.copy()
        self.labels_ = S.argmax(axis=1)
        mixture = fitted.mixture
        self.weights_: Floats = np.asarray(mixture.weights)
        self.means_: Floats = np.asarray(mixture.means)
        self.covariances_: Floats = np.asarray(mixture.covariances)
        self.kernels_ = fitted.kernels
        self.beta_ = fitted.beta
        self.inducing_ = np.asarray(fitted.posterior.mappings.Z)
        self.n_components_ = fitted.X.shape[1]

    def fit_transform(self, X: ArrayLike, y: object = None) -> Floats:
        """Learn, and return the embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components_)
        """
        return self.fit(X).embedding_.copy()

    def _check_rows(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        Y: Floats = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return Y

    @on_chosen_device
    def transform(self, X: ArrayLike) -> Floats:
        """Return the latent points of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components_)
        """
        Y = self._check_rows(X)
        return self._fitted.place(Y)[0]

    @on_chosen_device
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of every cluster for every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : ndarray of shape (n_samples, n_clusters)
        """
        Y = self._check_rows(X)
        return self._fitted.place(Y)[1]

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable cluster of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        labels: NDArray[np.int64] = self.predict_proba(X).argmax(axis=1)
        return labels

    @on_chosen_device
    def assess(self, X: ArrayLike) -> Assessment:
        """Return labels, memberships, latent points and log densities of rows at once.

        The same as ``predict``, ``predict_proba``, ``transform`` and ``score_samples``, for the
        cost of the last.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        assessment : Assessment
            A tuple with the fields ``labels``, ``memberships``, ``embedding``, ``log_density``.
        """
        Y = self._check_rows(X)
        return self._fitted.assess(Y)

    @on_chosen_device
    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Return the rows that latent points stand for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Latent points.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features_in_)
            Expected rows, in the units of the data.
        """
        check_is_fitted(self)
        points = check_array(X, dtype=np.float64, input_name="X")
        if points.shape[1] != self.n_components_:
            raise ValueError(
                f"X has {points.shape[1]} columns, but the latent space has "
                f"{self.n_components_} dimensions."
            )
        return self._fitted.decode(points)

    @on_chosen_device
    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log density of every row under the model.

        The latent point of a row is integrated out by Laplace's approximation. Low values mark
        rows that are unlike anything seen in fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        Y = self._check_rows(X)
        return self._fitted.log_density(Y)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean log density of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        score : float
        """
        return float(self.score_samples(X).mean())

    @on_chosen_device
    def sample(self, n_samples: int = 1) -> tuple[Floats, NDArray[np.int64]]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_in_)
        labels : ndarray of shape (n_samples,)
            The cluster each was drawn from; rows are sorted by it.
        """
        check_is_fitted(self)
        check_whole_number("n_samples", n_samples, 1)
        return self._fitted.draw(int(n_samples), check_random_state(self.random_state))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :meth:`load` reads.

        The file holds arrays and JSON only (safetensors); loading never runs code from it. It
        contains the training rows (20 000 of them, drawn at random, where there are more) and
        fingerprints of all: mind who may read it.

        Parameters
        ----------
        path : str or path-like
        """
        from sgpmic import __version__

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        stored = StoredModel(
            fitted=self._fitted,
            # Where it was fitted says nothing about where it will be used.
            parameters=self.get_params(deep=False) | {"device": "auto"},
            attributes={name: getattr(self, name) for name in _STORED_ATTRIBUTES},
            feature_names=None if names is None else [str(name) for name in names],
            history=self.history_,
            starts=self.starts_,
        )
        save_model(path, stored, __version__)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        model : SGPMIC
        """
        stored = load_model(path)
        try:
            model = cls(**stored.parameters)
            for name in _STORED_ATTRIBUTES:
                setattr(model, name, stored.attributes[name])
        except (KeyError, TypeError) as error:
            raise unreadable(path, error) from error
        model._adopt(stored.fitted, stored.fitted.X, stored.fitted.S)
        if stored.feature_names is not None:
            model.feature_names_in_ = np.asarray(stored.feature_names, dtype=object)
        model.history_ = stored.history
        model.starts_ = stored.starts
        return model


def _print_progress(progress: Progress) -> None:
    sizes = " ".join(f"{size:.0f}" for size in progress.cluster_sizes)
    print(
        f"start {progress.start + 1}/{progress.n_starts}  round {progress.round}"
        f"/{progress.max_rounds}  bound {progress.bound:.4f}  change {progress.change:.1e}  "
        f"clusters {sizes}  {progress.seconds:.1f} s",
        flush=True,
    )
