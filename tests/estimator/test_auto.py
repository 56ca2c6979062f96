"""n_clusters='auto', n_components='auto', cluster_tendency_ and view_."""

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from sgpmic import SGPMIC, Committee
from sgpmic.committee.examination import Structure
from sgpmic.committee.tendency import ClusterTendency
from sgpmic.exceptions import NoStructureWarning
from sgpmic.learning.em import StartFit
from sgpmic.learning.run import advice

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


@pytest.fixture(scope="module")
def four_blobs() -> Floats:
    rng = np.random.RandomState(0)
    centers = 8.0 * rng.standard_normal((4, 4))
    return centers[np.arange(120) % 4] + rng.standard_normal((120, 4))


def test_everything_is_found(four_blobs: Floats, quick_fit: Fit, tmp_path: Path) -> None:
    model = quick_fit(four_blobs, "auto", n_components="auto", committee=Committee())
    assert model.n_clusters_ == 4
    found = model.number_of_clusters_
    assert found["candidates"][found["chosen"]].tolist() == [4]
    assert found["probability"].sum() == pytest.approx(1.0)
    assert model.n_components_ == model.number_of_dimensions_["chosen"]
    assert model.cluster_tendency_ is not None
    assert model.cluster_tendency_.supported
    assert "There are clusters" in model.cluster_tendency_.sentence()
    model.save(tmp_path / "model.sgpmic")
    loaded = SGPMIC.load(tmp_path / "model.sgpmic")
    assert loaded.n_clusters == "auto"
    assert loaded.cluster_tendency_ == model.cluster_tendency_
    pd.testing.assert_frame_equal(loaded.number_of_clusters_, found)
    assert loaded.number_of_dimensions_ == model.number_of_dimensions_
    np.testing.assert_array_equal(loaded.predict(four_blobs + 0.1), model.predict(four_blobs + 0.1))


def test_noise_is_one_cluster_and_more_are_warned_of(quick_fit: Fit) -> None:
    Y = np.random.RandomState(1).standard_normal((120, 4))
    assert quick_fit(Y, "auto", committee=Committee()).n_clusters_ == 1
    with pytest.warns(NoStructureWarning, match="n_clusters='auto'"):
        model = SGPMIC(3, n_inducing=10, max_iter=1, random_state=0).fit(Y)
    assert not model.cluster_tendency_.supported
    assert model.memberships_.max(axis=1).mean() < 0.7


@pytest.mark.parametrize("seed", [0, 1])
def test_missing_cells_do_not_make_clusters(seed: int, quick_fit: Fit) -> None:
    """Imputed cells vary too little: rows that lack the same features look like a cluster."""
    Y = np.random.default_rng(seed).standard_normal((150, 6))
    Y[:60, :3] = np.nan
    assert quick_fit(Y, "auto", committee=Committee(), max_iter=1).n_clusters_ == 1


def test_clusters_are_counted_with_missing_cells(four_blobs: Floats, quick_fit: Fit) -> None:
    holes = np.random.default_rng(0).random(four_blobs.shape) < 0.2
    model = quick_fit(np.where(holes, np.nan, four_blobs), "auto", committee=Committee())
    assert (model.n_clusters_, model.cluster_tendency_.supported) == (4, True)


def test_auto_is_not_advised_to_those_who_asked_for_it(quick_fit: Fit, table: Floats) -> None:
    model = quick_fit(table, committee=Committee())
    doubt = ClusterTendency(1.0, 0.1, "a gap", "an elliptical cloud")
    no_state: Any = None
    for asked, expected in (("auto", "(n_clusters=1)."), (3, "(n_clusters='auto').")):
        settings = model.set_params(n_clusters=asked).check_settings()
        result = SimpleNamespace(
            fit=StartFit(no_state, history=[{}]),
            predictor=model._predictor,
            X=model.embedding_,
            S=model.memberships_,
            sizes=np.bincount(model.labels_),
            structure=Structure(doubt, None, None),
        )
        given: Any = result
        said = [words for kind, words in advice(given, settings) if kind is NoStructureWarning]
        assert len(said) == 1
        assert expected in said[0]


def test_no_committee_no_test(table: Floats, quick_fit: Fit) -> None:
    model = quick_fit(table)
    assert model.cluster_tendency_ is None
    assert model.number_of_clusters_ is None
    assert len(model.committee_) == 0
    assert model.n_clusters_ == 3


def test_former_name_of_cluster_tendency(table: Floats, quick_fit: Fit) -> None:
    model = quick_fit(table, committee=Committee())
    with pytest.warns(FutureWarning, match="cluster_tendency_"):
        assert model.support_ is model.cluster_tendency_


def test_clusters_give_no_warning(four_blobs: Floats) -> None:
    with warnings.catch_warnings(action="error", category=NoStructureWarning):
        model = SGPMIC(4, n_inducing=10, max_iter=1, random_state=0).fit(four_blobs)
    assert model.cluster_tendency_ is not None
    assert model.cluster_tendency_.supported


def test_view_of_more_than_two_dimensions(table: Floats, quick_fit: Fit) -> None:
    flat = quick_fit(table)
    np.testing.assert_array_equal(flat.view_, flat.embedding_)
    deep = quick_fit(table, n_components=3)
    assert deep.view_.shape == (60, 2)
    spread = deep.view_.var(axis=0)
    # No pair of the learned dimensions shows more.
    assert spread.sum() >= np.sort(deep.embedding_.var(axis=0))[1:].sum() - 1e-12


@pytest.mark.parametrize("name", ["n_clusters", "n_components"])
def test_other_words_are_refused(table: Floats, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}.*'auto'"):
        SGPMIC().set_params(**{name: "some"}).fit(table)
