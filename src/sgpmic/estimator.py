"""The scikit-learn estimator."""

from __future__ import annotations

from dataclasses import asdict, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
from sgpmic._words import plural
from sgpmic.compile_cache import release_programs
from sgpmic.exceptions import EmptyRowWarning, FormerNames, warn
from sgpmic.kernels import Kernel, get_kernel
from sgpmic.learning.prediction.predictor import Predictor
from sgpmic.learning.preprocessing import dense_rows, fit_reduction, view_axes
from sgpmic.learning.settings import EM, Committee, Computation, FitSettings, Settings, Start
from sgpmic.process_group import ProcessGroup, SharedTable

# Fit-only imports are deferred: import time dominates a prediction in a new process.
if TYPE_CHECKING:
    from sgpmic.learning.run import Result
    from sgpmic.tables.encoder import TableEncoder

#: ``tol='auto'``, by ``latent``.
_TOLERANCES = {"point": 1e-2, "variational": 1e-4}


class SGPMIC(PlotsMixin, PredictionsMixin, ClusterMixin, BaseEstimator, FormerNames):
    """Joint clustering and nonlinear dimensionality reduction.

    Sparse Gaussian processes map a low-dimensional latent space to the data; the latent points are
    the embedding, and a Gaussian mixture on them is the clustering. Fitted by EM on the
    KL-corrected variational bound. The defaults are chosen for good results without labels;
    :meth:`as_published` reproduces the settings of the paper.

    Parameters
    ----------
    n_clusters : int or 'auto', default='auto'
        Number of clusters. 'auto' chooses the number expected to agree best with the true
        clusters, or 1 if the rows look like noise (:mod:`sgpmic.committee.examination`). The choice
        is in ``n_clusters_``, the probability of every candidate in ``number_of_clusters_``.
    n_components : int, float or 'auto', default=2
        Number of latent dimensions. A float between 0 and 1 selects as many as the principal
        components needed to explain that fraction of variance, 'auto' as many as those with more
        variance than expected by chance (``number_of_dimensions_``). A number above 2 and above the
        number of features triggers a :class:`sgpmic.exceptions.DimensionsWarning`.
    kernel : str or Kernel, default='rbf'
        'rbf', 'linear', 'matern32', 'matern52', 'rational_quadratic', or a kernel object from
        :mod:`sgpmic.kernels`, whose parameters are the initial values.
    mapping : {'shared', 'per_cluster'}, default='shared'
        One Gaussian process for all clusters, which then differ only in their position in latent
        space, or one for each cluster (the paper's model).
    covariance_type : {'full', 'tied', 'diag', 'spherical', 'unit'}, default='full'
        Covariance structure of the clusters in the latent space, as in
        :class:`sklearn.mixture.GaussianMixture`; 'unit' fixes the covariances to the identity.
    latent : {'point', 'variational'}, default='point'
        Point estimates of the latent points, or a normal posterior for each, in which case the
        mixture parameters have posteriors too. With 'variational', surplus clusters end up empty,
        memberships reflect the uncertainty of a row, and an iteration takes about 2
        ``n_components`` times as long. ``em__prior_strength`` applies to 'point' only; the priors
        of 'variational' are weak.
    n_inducing : int, default=50
        Number of inducing points, capped at the number of rows.
    scale : {'auto', 'each', 'one', 'none'}, default='auto'
        Scaling of the centered features: each by its own standard deviation, all by one common
        factor, or not at all. 'auto' is 'each', unless many features of one number type and
        similar ranges seem to share a unit (pixels, spectra, expression values); see
        :mod:`sgpmic.learning.preprocessing` for the rule and ``scaler_`` for its decision.
    committee : Committee or None, default=Committee()
        Ensemble of other clustering methods that vote on every row's cluster; the votes are the
        initialization and the prior of the fit. None fits the model alone.
    max_iter : int, default=20
        Maximum number of EM iterations.
    tol : float or 'auto', default='auto'
        Convergence threshold: EM stops when the bound changes by less than this, relative to the
        larger of its magnitude (for the scaled data) and the number of rows. 0 always runs
        ``max_iter`` iterations. 'auto' is 1e-2 for point estimates: much smaller values raise the
        bound further but do not improve the clusters. It is 1e-4 for ``latent='variational'``:
        clusters take a while to merge.
    start : Start, default=Start()
        Initialization: embedding, memberships, number of starts, retries.
    em : EM, default=EM()
        EM: optimizer, numbers of steps, strength of the prior, callbacks.
    computation : Computation, default=Computation()
        Computation: device, block size, checkpoints.
    random_state : int, RandomState instance or None, default=None
        Random seed. With a committee, it affects only the reduction of sparse matrices.
    verbose : int, default=0
        1 prints a line after every iteration.

    Attributes
    ----------
    view_ : ndarray of shape (n_samples, 2)
        The embedding as plotted; with more than two dimensions, its first two principal axes.
    labels_ : ndarray of shape (n_samples,)
        The most probable cluster of each row; cluster 0 is the largest.
    memberships_ : ndarray of shape (n_samples, n_clusters)
        Responsibilities q(S): the probability of each cluster for each row.
    embedding_ : ndarray of shape (n_samples, n_components_)
        The latent points; with ``latent='variational'`` their means.
    embedding_std_ : ndarray of shape (n_samples, n_components_)
        Their standard deviations, with ``latent='variational'`` only.
    lower_bound_ : float
        The final objective, in the units of the data: the KL-corrected bound plus the log density
        of the conjugate prior; with ``latent='variational'``, the variational bound.
    history_ : dict of str to list
        One entry per iteration of every start: 'start', 'iteration', 'bound_after_e', 'bound', ...
    starts_ : list of dict
        For each start: its kind, outcome and labels, and whether it was selected.
    n_clusters_ : int
        Number of clusters, as given or chosen by 'auto', including empty ones.
    cluster_tendency_ : ClusterTendency or None
        Test of the rows against noise without clusters: ``cluster_tendency_.supported``,
        ``p_value``, ``statistic`` and ``sentence()``. None without a committee.
    number_of_clusters_ : DataFrame, dict of lists, or None
        How ``n_clusters='auto'`` chose: the 'candidates', the 'probability' of each, its 'expected'
        adjusted Rand index with the true clusters, and which one was 'chosen'. Otherwise None.
    number_of_dimensions_ : dict or None
        How ``n_components='auto'`` chose: the number 'chosen', and the 'variance' it is based on.
    committee_ : DataFrame or dict of lists
        The members of the committee by decreasing weight: 'name', 'weight' (the weights sum to 1),
        'expected' and 'agreement' (its adjusted Rand indices with the true clusters, as the judge
        predicts it, and with the committee's labels), 'cut' (the fraction of a row's neighbors that
        it puts into another cluster) and 'reason' (why a member could not vote).
    profiles_ : DataFrame or dict of lists
        Description of each cluster: 'cluster', 'rows', 'name', 'sentence', and a 'rule' of at most
        three conditions with its 'precision' and 'coverage'. Computed on first access, from a
        random sample of 20 000 rows if there are more; 'described' counts those of the cluster.
    n_iter_ : int
        Number of EM iterations of the selected start.
    converged_ : bool
        Whether the selected start converged.
    n_components_ : int
        Number of latent dimensions.
    weights_, means_, covariances_ : ndarrays of shape (n_clusters,), (n_clusters, \
n_components_) and (n_clusters, n_components_, n_components_)
        The latent mixture.
    kernels_ : list of Kernel
        Learned kernels, for scaled features: one, or one for each cluster.
    beta_ : float
        Noise precision, for scaled features.
    inducing_ : ndarray of shape (n_inducing, n_components_)
        Inducing points in the latent space.
    scaler_ : Scaler
        Centering and scaling of the features: a named tuple of ``offset`` and ``scale``, both of
        shape (n_features,) after encoding, ``kind`` ('each', 'one' or 'none') and
        ``mean_variance``.
    encoder_ : TableEncoder or None
        Encoder that every method applies to its input rows if ``fit`` was given a table of more
        than plain numbers.
    n_features_in_ : int
        Number of columns of ``X``, before encoding.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Their names, when all are strings.

    Notes
    -----
    Data frames among the attributes are pandas, or polars if only that is installed; without
    either they are dicts of lists.

    A training row keeps its fitted latent point and memberships in ``transform`` and
    ``predict_proba`` (duplicate rows share one result); any other row is projected
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

    _former: ClassVar = {
        "units_": "scaler_",
        "support_": "cluster_tendency_",
        "unusual": "is_outlier",
    }

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
        """Return an estimator with the settings of the paper.

        What the paper leaves open (numbers of iterations and steps, number of E-steps per
        iteration, covariance structure) is the same for all data sets; ``docs/paper.md`` says how
        it was found.

        Parameters
        ----------
        n_clusters, n_components
            See :class:`SGPMIC`.
        **parameters
            Any other parameters, to deviate from the paper, including nested ones such as
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
            scale="one",  # for the numerics only: the kernel starts in the units of the data
            committee=None,
            max_iter=2,
            tol=0.0,
            start=Start(
                embedding="isomap",
                memberships="fcm",
                n_neighbors=12,
                pieces="largest",
                unit_variance=True,
                kernel_scale="data",
                n_retries=0,
            ),
            em=EM(
                optimizer="scg",
                m_steps=20,
                e_steps=4,
                e_tol=0.0,
                prior_strength=0.0,
            ),
        )
        return published.set_params(**parameters)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including those of settings and kernels (``em__m_steps=5``).

        Settings are immutable, so the estimator gets new objects.
        """
        nested: dict[str, dict[str, Any]] = {}
        for name in tuple(params):
            owner, separator, field = name.partition("__")
            holder = getattr(self, owner, None)
            if separator and isinstance(holder, (Settings, Kernel)):
                if field not in vars(holder):
                    has = f"{type(holder).__name__} has {', '.join(holder.get_params())}"
                    raise ValueError(f"Invalid parameter {name!r}: {has}.")
                nested.setdefault(owner, {})[field] = params.pop(name)
        super().set_params(**params)
        for owner, values in nested.items():
            setattr(self, owner, replace(getattr(self, owner), **values))
        return self

    def check_settings(self) -> FitSettings:
        """Validate the parameters and return them as settings of a fit."""
        parameters = self.get_params(deep=False) | {"kernel": get_kernel(self.kernel)}
        del parameters["random_state"]
        settings = FitSettings(**parameters)
        if self.tol == "auto":
            settings = replace(settings, tol=_TOLERANCES[self.latent])
        return settings

    @on_chosen_device
    def fit(self, X: ArrayLike | SharedTable, y: object = None) -> Self:
        """Fit the embedding and the clustering to the rows of ``X``.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            The data (the paper's Y), in their own units. NaN is a missing value, which is
            integrated out. A row without any value is excluded with a warning: its label is -1, its
            latent point and memberships are NaN. A feature without any value is dropped with a
            warning. A data frame (pandas, polars, pyarrow) with text, categories or dates is
            encoded by a :class:`sgpmic.TableEncoder` (``encoder_``), with a one-line warning; if it
            has categories, the encoded features share a unit, and ``scale='auto'`` is 'one'. A
            sparse matrix with more than 100 features is first reduced to 100 by truncated SVD,
            which is part of the model (:mod:`sgpmic.learning.preprocessing`); 'auto' is then 'one'.
        y : Ignored
            Present for API consistency.

        Returns
        -------
        self : SGPMIC

        Notes
        -----
        If interrupted (Ctrl-C) after the first iteration, ``fit`` warns and keeps the last finished
        iteration; with a checkpoint it stops, and can be resumed from there.
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
                warn(sentence, category)
        except BaseException:  # a failed fit changes nothing, not even attributes set by validation
            self.__dict__ = before
            raise
        self.encoder_, self._reduction = encoder, reduction
        if encoder is not None:
            self.n_features_in_ = encoder.n_features_in_
            if hasattr(encoder, "feature_names_in_"):
                self.feature_names_in_ = encoder.feature_names_in_
        self._row_words = _input_rows.words_of_rows(X, encoder)
        self._keep_predictor(result.predictor, result.X, result.S, result.x_std, empty)
        self._committee = result.committee_listing()
        self.cluster_tendency_, number, dimensions = result.structure
        self._number_of_clusters = None if number is None else asdict(number)
        self.number_of_dimensions_ = None if dimensions is None else asdict(dimensions)
        self.history_, self.starts_ = result.history, result.starts
        self.lower_bound_, self.n_iter_ = result.fit.bound, len(result.fit.history)
        self.converged_ = result.fit.converged
        return self

    def _learn(
        self, X: Any, encoder: TableEncoder | None
    ) -> tuple[FitSettings, Result, Floats | None, Ints]:
        """Return settings, result, reduction of a sparse matrix, and indices of empty rows."""
        settings = self.check_settings()
        release_programs()
        table, group = X if isinstance(X, SharedTable) else (X, None)
        least = 2 if group is None or group.n_processes == 1 else 1  # other processes have more
        Y = _input_rows.read_rows(self, table, ensure_min_samples=least)
        reduction = None
        if issparse(Y):
            if group is not None and group.n_processes > 1:
                raise ValueError(
                    "Several processes cannot share a sparse matrix: give each a dense array."
                )
            reduction = fit_reduction(Y, check_random_state(self.random_state))
            Y = dense_rows(Y, reduction)
        # An encoder has already brought categories and all other columns to one unit; the variance
        # of a singular vector reflects its importance.
        has_one_unit = reduction is not None if encoder is None else encoder.has_categories_
        if has_one_unit and settings.scale == "auto":
            settings = replace(settings, scale="one")
        names = getattr(self, "feature_names_in_", None) if reduction is None else None
        _input_rows.refuse_huge_cells(Y, names)
        if names is not None:
            _input_rows.warn_of_columns(Y, names)
        Y, empty = _without_empty_rows(Y, group)
        group = ProcessGroup(len(Y)) if group is None else group
        if settings.n_clusters != "auto" and group.n_rows < settings.n_clusters:
            raise ValueError(
                f"n_samples={group.n_rows} is less than n_clusters={settings.n_clusters}: ask for "
                "at most as many clusters as there are rows."
            )
        rng = check_random_state(self.random_state)
        if group.n_processes > 1 and not isinstance(self.random_state, Integral):
            rng = np.random.RandomState(group.agree(rng.randint(2**31 - 1, size=1)))
        checkpoint = None
        if settings.computation.checkpoint is not None:
            from sgpmic.storage.checkpoints import Checkpoint

            parameters = self.get_params(deep=False)
            checkpoint = Checkpoint(settings.computation, Y, group, parameters)
        from sgpmic.learning.run import run

        result = run(settings, Y, group, rng, checkpoint=checkpoint)
        return settings, result, reduction, empty

    def _keep_predictor(
        self, predictor: Predictor, X: Floats, S: Floats, x_std: Floats | None, empty: Ints
    ) -> None:
        """Set the fitted attributes; ``empty`` are the indices of excluded rows without values."""
        self._predictor, self._explained, self._empty_rows = predictor, None, empty
        # Insertion points of the empty rows. np.insert copies, so that changes by a user do not
        # reach the model.
        places = empty - np.arange(len(empty))
        self.embedding_ = np.insert(X, places, np.nan, axis=0)
        if x_std is not None:
            self.embedding_std_ = np.insert(x_std, places, np.nan, axis=0)
        elif hasattr(self, "embedding_std_"):  # of an earlier fit
            del self.embedding_std_
        self.memberships_ = np.insert(S, places, np.nan, axis=0)
        self.labels_ = np.insert(S.argmax(axis=1), places, -1)
        self.scaler_ = predictor.scaler
        self.weights_, self.means_, self.covariances_ = predictor.posterior.mixture
        self.kernels_ = predictor.kernels
        self.beta_ = float(predictor.posterior.mappings.beta)
        self.inducing_ = np.asarray(predictor.posterior.mappings.Z)
        self.n_components_ = predictor.X.shape[1]
        self.n_clusters_ = S.shape[1]

    @property
    def view_(self) -> Floats:
        """The embedding as plotted, of shape (n_samples, 2) or (n_samples, 1)."""
        check_is_fitted(self)
        return self.embedding_ @ view_axes(self._predictor.X)[:, :2]

    def fit_transform(self, X: ArrayLike, y: object = None) -> Floats:
        """Fit the model to the rows of ``X`` and return ``embedding_``."""
        return self.fit(X).embedding_.copy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _without_empty_rows(Y: Floats, group: ProcessGroup | None) -> tuple[Floats, Ints]:
    """Drop rows without any value, with a warning; return the others and the dropped indices."""
    is_empty = np.isnan(Y).all(axis=1)
    empty = np.flatnonzero(is_empty)
    n_empty = len(empty) if group is None else int(group.total(is_empty.sum()))
    if not n_empty:
        return Y, empty
    shown = ", ".join(map(str, empty[:5] + (0 if group is None else group.first)))
    shown += ", …" if len(empty) > 5 else ""
    said = f"{plural(n_empty, 'row')} without any value (counted from 0: {shown or 'elsewhere'})"
    if group is not None or n_empty == len(Y):
        raise ValueError(f"{said}: leave out rows without any value.")
    warn(f"{said}: the label is -1.", EmptyRowWarning)
    return Y[~is_empty], empty
