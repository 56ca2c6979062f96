"""Prediction, imputation, sampling and serialization of a fitted model."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from sgpmic._input_rows import read_rows
from sgpmic._runtime import on_chosen_device, on_device
from sgpmic._types import Bools, Floats, Ints
from sgpmic.learning.gaps import Imputation
from sgpmic.learning.prediction.predictor import Assessment, Predictor, most_probable
from sgpmic.learning.preprocessing import dense_rows, restored_rows
from sgpmic.learning.settings import check, whole_number
from sgpmic.storage.models import StoredModel, load_model, save_model, unreadable

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

#: Attributes stored in a model file besides the predictor.
_STORED_ATTRIBUTES = ("lower_bound_", "n_iter_", "converged_")
#: Records of a fit: their names in a model file, and the attributes that hold them.
_STORED_RECORDS = {
    "history": "history_",
    "starts": "starts_",
    "committee": "_committee",
    "number_of_clusters": "_number_of_clusters",
    "number_of_dimensions": "number_of_dimensions_",
}


class PredictionsMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The methods of :class:`sgpmic.SGPMIC` that need a fitted model.

    They delegate to its predictor, after the same preprocessing as in ``fit``.
    """

    _predictor: Predictor
    _reduction: Floats | None
    encoder_: TableEncoder | None
    n_components_: int

    def _read_rows(self, X: ArrayLike) -> Floats:
        """Return the preprocessed rows; raise NotFittedError before there is a predictor."""
        check_is_fitted(self)
        if self.encoder_ is not None:  # it has matched the names; features have others
            rows = self.encoder_.transform(X)
            return check_array(rows, ensure_all_finite="allow-nan", input_name="X", estimator=self)
        return dense_rows(read_rows(self, X, reset=False), self._reduction)

    @on_chosen_device
    def transform(self, X: ArrayLike) -> Floats:
        """Return the latent point of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_components_)
            NaN for rows without any value.
        """
        Y = self._read_rows(X)
        return self._predictor.place(Y)[0]

    @on_chosen_device
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each cluster for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : ndarray of shape (n_samples, n_clusters)
            NaN for rows without any value.
        """
        Y = self._read_rows(X)
        return self._predictor.place(Y)[1]

    def predict(self, X: ArrayLike) -> Ints:
        """Return the most probable cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            -1 for rows without any value.
        """
        return most_probable(self.predict_proba(X))

    @on_chosen_device
    def assess(self, X: ArrayLike) -> Assessment:
        """Return labels, memberships, latent points, log densities and outliers in one call.

        Same as ``predict``, ``predict_proba``, ``transform``, ``score_samples`` and
        ``is_outlier``, at the cost of the last alone.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        assessment : Assessment
            Named tuple of ``labels``, ``memberships``, ``embedding``, ``log_density`` and
            ``unusual``. Rows without any value have the label -1 and NaN, and are not unusual.
        """
        Y = self._read_rows(X)
        return self._predictor.assess(Y)

    @on_chosen_device
    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Map latent points to expected rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Latent points.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
            Expected rows, in the units of the data. If the model has an encoder, they are encoded:
            :meth:`sgpmic.TableEncoder.inverse_transform` decodes them.
        """
        check_is_fitted(self)
        points = check_array(X, dtype=np.float64, input_name="X")
        if points.shape[1] != self.n_components_:
            raise ValueError(
                f"X has {points.shape[1]} columns, but the latent space has "
                f"{self.n_components_} dimensions."
            )
        return restored_rows(self._predictor.decode(points), self._reduction)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log density of each row under the model.

        A mixture of the mapping's density, with the latent point integrated out by Laplace's
        approximation, and a normal distribution per cluster
        (:mod:`sgpmic.learning.prediction.cluster_normals`). Low values mark outliers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            NaN for rows without any value.
        """
        return self.assess(X).log_density

    def is_outlier(self, X: ArrayLike) -> Bools:
        """Return which rows are outliers: their log density is below :attr:`unusual_below_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        is_outlier : ndarray of bool, shape (n_samples,)
        """
        return self.score_samples(X) < self.unusual_below_

    @property
    def unusual_below_(self) -> float:
        """Log density threshold of outliers, computed on first access.

        A new row from the same distribution falls below it with a probability of half a percent,
        as estimated from held-out training rows.
        """
        check_is_fitted(self)
        with on_device(self.computation.device):
            return self._predictor.unusual_below

    def __dir__(self) -> list[str]:
        """Return attribute names, without expensive ones that are not computed yet."""
        hidden = set()  # scikit-learn's HTML diagram reads all that are listed
        if "_densities" not in vars(getattr(self, "_predictor", self)):
            hidden.add("unusual_below_")
        if getattr(self, "_explained", None) is None:
            hidden.add("profiles_")
        return [name for name in set(object.__dir__(self)) - hidden if hasattr(self, name)]

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        score : float
        """
        return float(np.nanmean(self.score_samples(X)))

    @on_chosen_device
    def sample(self, n_samples: int = 1) -> tuple[Floats, Ints]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Encoded, if the model has an encoder.
        labels : ndarray of shape (n_samples,)
            The cluster each row was drawn from; rows are sorted by it.
        """
        check_is_fitted(self)
        check("n_samples", n_samples, whole_number(1))
        rng = check_random_state(self.random_state)
        rows, labels = self._predictor.draw(int(n_samples), rng)
        return restored_rows(rows, self._reduction), labels

    @on_chosen_device
    def impute(self, X: ArrayLike) -> Imputation:
        """Impute missing values by their expectations, with standard deviations.

        The mean of two predictions: from the row's other values by a factor model, and from the
        nearest training rows (:mod:`sgpmic.learning.gaps`).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN for missing values.

        Returns
        -------
        imputation : Imputation
            Named tuple of ``values``, the completed rows, and ``std``, their standard deviations,
            0 for observed ones. NaN for a feature without any value in ``fit``. If the model has an
            encoder, both are dicts of the original columns, ``std`` of the numeric ones only.

        """
        check_is_fitted(self)
        if self._reduction is not None:
            raise ValueError(
                "This model was fitted to a sparse matrix, whose cells without an entry are zeros "
                "and not missing: there is nothing to impute."
            )
        Y = self._read_rows(X)
        values, std = self._predictor.impute(Y)
        if self.encoder_ is None:
            return Imputation(values, std)
        low, high = (self.encoder_.inverse_transform(values + sign * std) for sign in (-1.0, 1.0))
        numbers = (name for name in low if low[name].dtype == float)
        deviations = {name: (high[name] - low[name]) / 2.0 for name in numbers}
        return Imputation(self.encoder_.inverse_transform(values), deviations)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_predictor")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :meth:`load` reads.

        The file holds only arrays and JSON (safetensors); loading never executes code from it. It
        contains the training rows (a random sample of 20 000 if there are more) and hashes of all
        of them: take care whom you share it with.

        Parameters
        ----------
        path : str or path-like
        """
        check_is_fitted(self)
        names, encoder = getattr(self, "feature_names_in_", None), self.encoder_
        support = self.cluster_tendency_
        attributes = {name: getattr(self, name) for name in _STORED_ATTRIBUTES}
        # After encoding; the encoder stores the number of columns itself.
        attributes["n_features_in_"] = len(encoder.source_) if encoder else self.n_features_in_
        header = {name: getattr(self, held) for name, held in _STORED_RECORDS.items()} | {
            "parameters": self.get_params(deep=False),
            "attributes": attributes,
            "feature_names": None if names is None or encoder else [str(name) for name in names],
            "support": support and asdict(support),
            "encoder": encoder and encoder.to_dict(),
        }
        save_model(path, StoredModel(self._predictor, header, self._reduction, self._empty_rows))

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
        predictor, header, reduction, empty_rows = load_model(path)
        try:
            model = cls(**header["parameters"])
            for name in _STORED_ATTRIBUTES:
                setattr(model, name, header["attributes"][name])
            model.check_settings()
            model.encoder_ = model.cluster_tendency_ = None
            if header["support"] is not None:
                from sgpmic.committee.tendency import ClusterTendency

                model.cluster_tendency_ = ClusterTendency(**header["support"])
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(path, error) from error
        if header["encoder"] is not None:
            from sgpmic.tables.dataset import stored_encoder

            model.encoder_ = stored_encoder(path, header)
        model._keep_predictor(predictor, predictor.X, predictor.S, predictor.x_std, empty_rows)
        n_features = header["attributes"]["n_features_in_"]
        model.n_features_in_ = getattr(model.encoder_, "n_features_in_", n_features)
        names = getattr(model.encoder_, "feature_names_in_", header["feature_names"])
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        for name, held in _STORED_RECORDS.items():
            setattr(model, held, header[name])
        number = model._number_of_clusters
        if number is not None and "certainty" in number:  # as 1.0.0rc1 named it
            number["probability"] = number.pop("certainty")
        model._reduction, model._row_words = reduction, {}
        return model
