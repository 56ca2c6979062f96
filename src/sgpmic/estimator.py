"""The scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from sgpmic import _input_rows
from sgpmic._plots import PlotsMixin
from sgpmic._predictions import PredictionsMixin
from sgpmic._runtime import on_chosen_device
from sgpmic._types import Floats, Ints
from sgpmic.compile_cache import release_programs
from sgpmic.exceptions import EmptyRowWarning
from sgpmic.kernels import Kernel, get_kernel
from sgpmic.learning.prediction.predictor import Predictor
from sgpmic.learning.preprocessing import Reduction, dense_rows, fit_reduction, view_axes
from sgpmic.learning.settings import EM, Committee, Computation, FitSettings, Settings, Start
from sgpmic.process_group import ProcessGroup, SharedTable

# What only a fit needs is imported there: a prediction in a new process takes as long as imports.
if TYPE_CHECKING:
    from sgpmic.learning.em import State
    from sgpmic.learning.run import Result
    from sgpmic.tables.encoder import TableEncoder

#: Attributes by the names that they had up to version 1.0.0rc1.
_RENAMED = {"units_": "scaler_", "support_": "cluster_tendency_"}

#: What ``tol='auto'`` stands for.
_TOLERANCES = {"point": 1e-2, "variational": 1e-4}


class SGPMIC(PlotsMixin, PredictionsMixin, ClusterMixin, BaseEstimator):
    """Clustering and non-linear dimensionality reduction, learned together.

    Sparse Gaussian processes map a low-dimensional latent space to the data; the latent points are
    an embedding, and a mixture of Gaussians on them is a clustering. Learned by EM on the
    KL-corrected variational bound. The defaults are chosen for good results without labels;
    :meth:`as_published` sets every choice as in the paper.

    Parameters
    ----------
    n_clusters : int or 'auto', default='auto'
        Number of clusters. 'auto' takes the number expected to agree best with the true clusters,
        which is one where the rows look like noise (:mod:`sgpmic.committee.examination`);
        ``n_clusters_`` is that number, ``number_of_clusters_`` the probability of every number.
    n_components : int, float or 'auto', default=2
        Number of latent dimensions; or, between 0 and 1, the share of variance that as many
        principal components must explain. 'auto' takes as many as there are principal components
        with more variance than expected by chance (``number_of_dimensions_``). More than two, and
        more than there are features, give a warning
        (:class:`sgpmic.exceptions.DimensionsWarning`).
    kernel : str or Kernel, default='rbf'
        'rbf', 'linear', 'matern32', 'matern52', 'rational_quadratic', or an object of
        :mod:`sgpmic.kernels`, whose parameters are start values.
    mapping : {'shared', 'per_cluster'}, default='shared'
        One Gaussian process for all clusters, which then differ only by their position in the
        latent space, or one for each cluster (the paper's model).
    covariance_type : {'full', 'tied', 'diag', 'spherical', 'unit'}, default='full'
        Shape of the clusters in the latent space, as in
        :class:`sklearn.mixture.GaussianMixture`; 'unit' fixes them to the identity.
    latent : {'point', 'variational'}, default='point'
        Latent points as point estimates, or with a posterior of their own, a normal distribution
        for each row; the mixture's parameters then have posteriors too. Surplus clusters end up
        empty, and memberships say how uncertain a row is. A round takes about 2 ``n_components``
        times as long. ``em__prior_strength`` applies to 'point' only; the priors of 'variational'
        are weak.
    n_inducing : int, default=50
        Number of inducing points; at most the number of rows is used.
    scale : {'auto', 'each', 'one', 'none'}, default='auto'
        How features are brought to one unit, after they are centered: every feature is divided by
        its own standard deviation, all are divided by one number, or none is. 'auto' divides each
        by its own unless many features of one number type and similar ranges look like one unit
        (pixels, spectra, expression values); :mod:`sgpmic.learning.preprocessing` has the rule,
        ``scaler_`` what it decided.
    committee : Committee or None, default=Committee()
        Different clusterings that vote on every row's cluster; their votes are the start and the
        prior of the fit. None for the model by itself.
    max_iter : int, default=20
        Maximum number of EM rounds.
    tol : float or 'auto', default='auto'
        Learning ends when a round raises the bound by less than this, relative to the larger of
        its magnitude (for the scaled data) and the number of rows. With 0, all ``max_iter`` rounds
        are made. 'auto' is 1e-2 for point estimates: much smaller values raise the bound further
        but not the quality of the clusters, as freely moving latent points eventually smooth
        clusters away. For ``latent='variational'`` it is 1e-4: clusters take a while to merge.
    start : Start, default=Start()
        How the start is made: embedding, memberships, inducing points, retries, warm start.
    em : EM, default=EM()
        How EM runs: optimizer, numbers of steps, the strength of the prior, callbacks.
    computation : Computation, default=Computation()
        How it is computed: device, blocks, checkpoints.
    random_state : int, RandomState instance or None, default=None
        Random seed. The committee's votes do not depend on it.
    verbose : int, default=0
        1 prints a line for every round.

    Attributes
    ----------
    view_ : ndarray of shape (n_samples, 2)
        The embedding as pictures show it: where it has more than two dimensions, their two
        principal axes.
    labels_ : ndarray of shape (n_samples,)
        The most probable cluster of every row; cluster 0 is the largest.
    memberships_ : ndarray of shape (n_samples, n_clusters)
        q(S): the probability of every row being in every cluster.
    embedding_ : ndarray of shape (n_samples, n_components_)
        The latent points; with ``latent='variational'`` their means.
    embedding_std_ : ndarray of shape (n_samples, n_components_)
        Their standard deviations, with ``latent='variational'`` only.
    lower_bound_ : float
        The objective at the end, in the units of the data: the KL-corrected bound plus the log
        of the conjugate prior (0 without one); with ``latent='variational'`` the variational
        bound.
    history_ : dict of str to list
        One entry for every round of every start: 'start', 'round', 'bound_after_e', 'bound', ...
    starts_ : list of dict
        Every start: its kind, bound, agreement with the others, rounds, labels, whether it was
        kept.
    n_clusters_ : int
        Number of clusters, those without rows included: the one asked for, or the one that 'auto'
        chose.
    cluster_tendency_ : Support or None
        Whether the rows stand out from noise without clusters: ``cluster_tendency_.supported``,
        ``p_value``, ``statistic`` and ``sentence()``. None without a committee.
    number_of_clusters_ : DataFrame, dict of lists, or None
        How 'auto' chose: the 'probability' of every number of 'candidates', the 'expected'
        adjusted Rand index with the true clusters, and which one was 'chosen'. None where
        ``n_clusters`` is a number.
    number_of_dimensions_ : dict or None
        How ``n_components='auto'`` chose: what was 'chosen', and the 'variance' it goes by.
    committee_ : DataFrame or dict of lists
        Every member of the committee, the one with the highest weight first: 'name', 'weight'
        (all add up to 1), 'expected' (the adjusted Rand index with the true clusters that the
        judge expects of it), 'agreement' (the same index with the labels that the committee
        arrived at), 'cut' (the share of a row's neighbors that it puts into another cluster) and
        'reason' (why a member could not vote). Empty without a committee.
    profiles_ : DataFrame or dict of lists
        What every cluster is: 'cluster', 'rows', 'name', 'sentence', and a 'rule' of at most three
        conditions with its 'precision' and 'coverage'. Made when first asked for.
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
        Learned kernels, for features divided by their scales: one, or one for each cluster.
    inducing_ : ndarray of shape (n_inducing, n_components_)
        Inducing points in the latent space.
    beta_ : float
        Noise precision, for features divided by their scales.
    scaler_ : Scaler
        How features were centered and scaled: a tuple with the fields ``offset`` and ``scale``,
        both of shape (n_features_in_,), ``kind`` ('each', 'one' or 'none') and ``mean_variance``.
    encoder_ : TableEncoder or None
        What turns rows of a user's table into features, in every method that takes rows, where
        the table is more than plain numbers.
    n_features_in_ : int
        Number of features seen in fit; of a table with an encoder, of those that it made.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, when all are strings.

    Notes
    -----
    Data frames among the attributes are of pandas, or of polars where that alone is installed;
    without either they are dicts of lists.

    A training row keeps its fitted latent point and memberships in ``transform`` and
    ``predict_proba`` (equal training rows, those of the first); any other row is placed
    independently, so the result for a row never depends on the rest of the batch.

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
        n_clusters: int | str = "auto",
        n_components: int | float | str = 2,
        *,
        kernel: str | Kernel = "rbf",
        mapping: str = "shared",
        covariance_type: str = "full",
        latent: str = "point",
        n_inducing: int = 50,
        scale: str = "auto",
        committee: Committee | None = Committee(),  # noqa: B008  (immutable)
        max_iter: int = 20,
        tol: float | str = "auto",
        start: Start = Start(),  # noqa: B008
        em: EM = EM(),  # noqa: B008
        computation: Computation = Computation(),  # noqa: B008
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.kernel = kernel
        self.mapping = mapping
        self.covariance_type = covariance_type
        self.latent = latent
        self.n_inducing = n_inducing
        self.scale = scale
        self.committee = committee
        self.max_iter = max_iter
        self.tol = tol
        self.start = start
        self.em = em
        self.computation = computation
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def as_published(
        cls, n_clusters: int = 3, n_components: int | float = 2, **parameters: Any
    ) -> Self:
        """Return an estimator with every choice as in the paper.

        A Gaussian process for each cluster, ISOMAP with 12 neighbors and fuzzy c-means as start,
        random inducing points, scaled conjugate gradients, no prior, data centered but not
        scaled, a fixed number of rounds. What the paper leaves open (number of rounds and steps,
        how often the E-step is repeated, the shape of the covariances) is one setting for all
        data sets; ``docs/paper.md`` says how it was found.

        Parameters
        ----------
        n_clusters, n_components
            See :class:`SGPMIC`.
        **parameters
            Any other parameter, to deviate from the paper; also those of the settings, such as
            ``em__m_steps=5``.
        """
        published = cls(
            n_clusters,
            n_components,
            kernel="rbf",
            mapping="per_cluster",
            covariance_type="full",
            latent="point",
            n_inducing=50,
            scale="one",  # of the numerics alone: the kernel starts in the units of the data
            committee=None,
            max_iter=2,
            tol=0.0,
            start=Start(
                embedding="isomap",
                memberships="fcm",
                n_neighbors=12,
                pieces="largest",
                unit_variance=True,
                inducing="random",
                kernel_scale="data",
                n_retries=0,
            ),
            em=EM(
                optimizer="scg",
                m_steps=20,
                e_steps=4,
                e_tol=0.0,
                settle_mixture=True,
                prior_strength=0.0,
            ),
        )
        return published.set_params(**parameters)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of settings and kernels (``em__m_steps=5``).

        Settings are immutable: the estimator gets new ones.

        Parameters
        ----------
        **params
            By name.

        Returns
        -------
        self : SGPMIC
        """
        nested: dict[str, dict[str, Any]] = {}
        flat = {}
        for name, value in params.items():
            owner, separator, field = name.partition("__")
            holder = getattr(self, owner, None)
            if not (separator and isinstance(holder, (Settings, Kernel))):
                flat[name] = value
                continue
            if field not in vars(holder):
                has = f"{type(holder).__name__} has {', '.join(holder.get_params())}"
                raise ValueError(f"Invalid parameter {name!r}: {has}.")
            nested.setdefault(owner, {})[field] = value
        super().set_params(**flat)
        for owner, values in nested.items():
            setattr(self, owner, replace(getattr(self, owner), **values))
        return self

    def check_settings(self) -> FitSettings:
        """Raise for parameters that cannot be used; return them as learning takes them."""
        parameters = self.get_params(deep=False) | {"kernel": get_kernel(self.kernel)}
        del parameters["random_state"]
        settings = FitSettings(**parameters)
        if self.tol == "auto":
            settings = replace(settings, tol=_TOLERANCES[self.latent])
        return settings

    @on_chosen_device
    def fit(self, X: ArrayLike | SharedTable, y: object = None) -> Self:
        """Learn embedding and clustering of the rows of ``X``.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            The data (the paper's Y), in their own units. NaN stands for a missing value, which is
            integrated out. A row without any value is set aside, with a warning: its label is -1,
            and its latent point and memberships are NaN. A feature without any is left out, with
            a warning. A data frame (pandas, polars, pyarrow) with words, categories or dates goes
            through :class:`sgpmic.TableEncoder`, ``encoder_``, which a warning says in one line;
            with ``scale='auto'`` its features are all scaled by one number where there are
            categories, as they are of one unit then. A sparse matrix of more than 100 features is
            reduced to 100 by a truncated singular value decomposition first, which is part of the
            model (:mod:`sgpmic.learning.preprocessing`); 'auto' then scales all by one number.
        y : Ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        self : SGPMIC

        Notes
        -----
        Interrupted (Ctrl-C) after the first round, it warns and keeps the last finished round;
        with a checkpoint it stops, to be resumed from there.
        """
        from sgpmic.learning.run import advice

        before = self.__dict__.copy()
        try:
            encoder, table, notes = _input_rows.encode(X)
            settings, result, reduction, empty = self._learn(table, encoder)
            names = getattr(self, "feature_names_in_", None)
            if encoder is not None:
                names = encoder.get_feature_names_out()
            for category, sentence in (*notes, *advice(result, settings, names)):
                # Past the method that chooses the device, to the line of the user's that called it.
                warnings.warn(sentence, category, stacklevel=3)
        except BaseException:  # a failed fit changes nothing, not even what validation has set
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self.encoder_, self._reduction = encoder, reduction
        words = _input_rows.words_of_rows(X, encoder).items()
        self._row_words = {name: np.delete(each, empty).tolist() for name, each in words}
        self._keep(result, empty)
        return self

    def _learn(
        self, X: Any, encoder: TableEncoder | None
    ) -> tuple[FitSettings, Result, Reduction | None, Ints]:
        """Return the settings and the result of a fit.

        And how a sparse matrix was reduced, and the rows that have no value.
        """
        settings = self.check_settings()
        release_programs()
        table, group = X if isinstance(X, SharedTable) else (X, None)
        least = 2 if group is None or group.n_processes == 1 else 1  # others have more
        Y = _input_rows.read_rows(self, table, ensure_min_samples=least)
        reduction = None
        if issparse(Y):
            if group is not None and group.n_processes > 1:
                raise ValueError(
                    "Several processes cannot share a sparse matrix: give each an array."
                )
            reduction = fit_reduction(Y, check_random_state(self.random_state))
            Y = dense_rows(Y, reduction)
        # An encoder has brought categories and all other columns to one unit already; how much a
        # singular vector varies says how much it matters.
        has_one_unit = reduction is not None if encoder is None else encoder.has_categories_
        if has_one_unit and settings.scale == "auto":
            settings = replace(settings, scale="one")
        names = getattr(self, "feature_names_in_", None) if reduction is None else None
        _input_rows.refuse_huge_cells(Y, names)
        empty = np.zeros(0, np.int64)
        if group is None:
            Y, empty = _without_empty_rows(Y)
            group = ProcessGroup(len(Y))
        settings.check_table(Y, group)
        rng = check_random_state(self.random_state)
        if group.n_processes > 1 and not isinstance(self.random_state, Integral):
            rng = np.random.RandomState(group.agree(rng.randint(2**31 - 1, size=1)))
        checkpoint = None
        if settings.computation.checkpoint is not None:
            from sgpmic.storage.checkpoints import Checkpoint

            parameters = self.get_params(deep=False)
            checkpoint = Checkpoint(settings.computation, Y, group, parameters)
        previous = self._previous_state(settings, Y, group) if self.start.warm_start else None
        from sgpmic.learning.run import run

        result = run(settings, Y, group, rng, checkpoint=checkpoint, previous=previous)
        return settings, result, reduction, empty

    def _previous_state(
        self, settings: FitSettings, Y: Floats, group: ProcessGroup
    ) -> State | None:
        """Return the state to start from, None before the first fit."""
        state: State | None = getattr(self, "_state", None)
        if state is None:
            if hasattr(self, "_predictor"):
                raise ValueError(
                    "start__warm_start=True cannot start from a model that was loaded from a file: "
                    "call set_params(start__warm_start=False) first."
                )
            return None
        from sgpmic.learning.starts import can_continue

        if not can_continue(state, self._predictor, settings, Y, group):
            raise ValueError(
                "start__warm_start=True starts from the last fit, which had another number of "
                "rows, clusters, components or inducing points, or another kernel or latent: call "
                "set_params(start__warm_start=False) first, or make a new estimator."
            )
        return state

    def _keep(self, result: Result, empty: Ints) -> None:
        self._state = result.state
        self._keep_predictor(result.predictor, result.X, result.S, result.x_std, empty)
        self._committee = result.committee_listing()
        self.cluster_tendency_, number, dimensions = result.structure
        self._number_of_clusters = None if number is None else asdict(number)
        self.number_of_dimensions_ = None if dimensions is None else asdict(dimensions)
        self.starts_ = result.selection.listing()
        self.history_ = result.selection.history
        fit = result.selection.fit
        self.lower_bound_, self.n_iter_ = fit.bound, len(fit.history)
        self.converged_ = fit.converged

    def _keep_predictor(
        self, predictor: Predictor, X: Floats, S: Floats, x_std: Floats | None, empty: Ints
    ) -> None:
        """Set the attributes that a predictor and the rows it was learned from determine.

        The rows ``empty``, counted from 0, were not learned from.
        """
        self._predictor, self._explained, self._empty_rows = predictor, None, empty
        # Where they are inserted into arrays of the others. np.insert makes copies: what a user
        # does to them must not reach the model.
        places = empty - np.arange(len(empty))
        self.embedding_ = np.insert(X, places, np.nan, axis=0)
        if x_std is not None:
            self.embedding_std_ = np.insert(x_std, places, np.nan, axis=0)
        elif hasattr(self, "embedding_std_"):  # of an earlier fit
            del self.embedding_std_
        self.memberships_ = np.insert(S, places, np.nan, axis=0)
        self.labels_ = np.insert(S.argmax(axis=1), places, -1)
        self.scaler_ = predictor.scaler
        self.weights_, self.means_, self.covariances_ = predictor.mixture
        self.kernels_ = predictor.kernels
        self.beta_ = float(predictor.posterior.mappings.beta)
        self.inducing_ = np.asarray(predictor.posterior.mappings.Z)
        self.n_components_ = predictor.X.shape[1]
        self.n_clusters_ = S.shape[1]

    @property
    def view_(self) -> Floats:
        """The embedding as pictures show it, of shape (n_samples, 2) or (n_samples, 1)."""
        check_is_fitted(self)
        return self.embedding_ @ view_axes(self._predictor.X)[:, :2]

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

    if not TYPE_CHECKING:  # which would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Return an attribute by its former name."""
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(
                f"{name} is now called {_RENAMED[name]}; the old name will be removed.",
                FutureWarning,
                stacklevel=2,
            )
            return getattr(self, _RENAMED[name])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _without_empty_rows(Y: Floats) -> tuple[Floats, Ints]:
    """Return the rows that have a value, and the numbers of the others, with a warning."""
    is_empty = np.isnan(Y).all(axis=1)
    empty = np.flatnonzero(is_empty)
    if not len(empty) or len(empty) == len(Y):
        return Y, empty[:0]  # of a table without any value others complain
    shown = ", ".join(map(str, empty[:5])) + (", …" if len(empty) > 5 else "")
    have = "1 row has" if len(empty) == 1 else f"{len(empty)} rows have"
    warnings.warn(
        f"{have} no value at all (counted from 0: {shown}); the label is -1.",
        EmptyRowWarning,
        stacklevel=5,
    )
    return Y[~is_empty], empty
