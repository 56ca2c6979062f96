"""Fitted models in files."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sgpmic.storage.models import StoredModel, load_model, save_model, unreadable

#: What a model file keeps besides the predictor.
_STORED_ATTRIBUTES = ("lower_bound_", "n_iter_", "converged_", "n_features_in_")
#: What a file calls the records of a fit, and the attributes that hold them.
_STORED_RECORDS = {
    "history": "history_",
    "starts": "starts_",
    "committee": "_committee",
    "number_of_clusters": "_number_of_clusters",
    "number_of_dimensions": "number_of_dimensions_",
}


class ModelFilesMixin(BaseEstimator):
    """How :class:`sgpmic.SGPMIC` is written to a file, and read again."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that :meth:`load` reads.

        The file holds arrays and JSON only (safetensors); loading never runs code from it. It
        contains the training rows (20 000 of them, drawn at random, where there are more) and
        fingerprints of all: mind who may read it.

        Parameters
        ----------
        path : str or path-like
        """
        check_is_fitted(self)
        names, support = getattr(self, "feature_names_in_", None), self.cluster_tendency_
        stored = StoredModel(
            predictor=self._predictor,
            parameters=self.get_params(deep=False),
            attributes={name: getattr(self, name) for name in _STORED_ATTRIBUTES},
            feature_names=None if names is None else [str(name) for name in names],
            records={name: getattr(self, held) for name, held in _STORED_RECORDS.items()}
            | {"support": support and asdict(support)},
            encoder=None if self.encoder_ is None else self.encoder_.to_dict(),
            reduction=self._reduction,
            empty_rows=self._empty_rows,
        )
        save_model(path, stored)

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
            model.check_settings()
            model._reduction = stored.reduction
            model.cluster_tendency_ = None
            if stored.records["support"] is not None:
                from sgpmic.committee.tendency import ClusterTendency

                model.cluster_tendency_ = ClusterTendency(**stored.records["support"])
            model.encoder_ = None
            if stored.encoder is not None:
                from sgpmic.tables.encoder import TableEncoder

                model.encoder_ = TableEncoder.from_dict(stored.encoder)
                if len(model.encoder_.source_) != model.n_features_in_:
                    raise ValueError("its table encoder has another number of features")
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(path, error) from error
        predictor = stored.predictor
        model._keep_predictor(
            predictor, predictor.X, predictor.S, predictor.x_std, stored.empty_rows
        )
        if stored.feature_names is not None:
            model.feature_names_in_ = np.asarray(stored.feature_names, dtype=object)
        for name, held in _STORED_RECORDS.items():
            setattr(model, held, stored.records[name])
        model._row_words = {}
        return model
