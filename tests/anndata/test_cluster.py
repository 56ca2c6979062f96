"""AnnData: what is read from it, what is written to it, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("anndata")
from anndata import AnnData, read_h5ad
from sgpmic import SGPMIC, Start
from sgpmic.anndata import cluster
from sgpmic.exceptions import SGPMICWarning

QUICK: dict[str, Any] = {"committee": None, "max_iter": 2}


def table(n: int = 20, n_features: int = 4) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(2 * n, n_features))
    return noise + np.repeat([0.0, 9.0], n)[:, None]


def cells() -> AnnData:
    """Two kinds of cells by X; by X_pca they are split in another way."""
    adata = AnnData(table())
    adata.obs_names = [f"cell {i}" for i in range(adata.n_obs)]
    adata.obsm["X_pca"] = table()[np.random.default_rng(1).permutation(40)]
    return adata


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="sgpmic", category=UserWarning)
        yield


@pytest.fixture(scope="module")
def clustered() -> AnnData:
    with warnings.catch_warnings(action="ignore"):
        result = cluster(cells(), 2, copy=True, start=Start(embedding="pca"), **QUICK)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def model() -> SGPMIC:
    with warnings.catch_warnings(action="ignore"):
        asked = SGPMIC(2, scale="one", start=Start(embedding="pca"), random_state=0, **QUICK)
        return asked.fit(cells().obsm["X_pca"])


def test_what_is_written_is_what_the_estimator_finds(clustered: AnnData, model: SGPMIC) -> None:
    labels = clustered.obs["sgpmic"]
    assert labels.dtype == "category"
    assert list(labels.cat.categories) == ["0", "1"]
    np.testing.assert_array_equal(labels.astype(int), model.labels_)
    np.testing.assert_array_equal(clustered.obsm["sgpmic_memberships"], model.memberships_)
    np.testing.assert_array_equal(clustered.obsm["X_sgpmic"], model.embedding_)
    np.testing.assert_array_equal(clustered.obs["sgpmic_certainty"], model.memberships_.max(axis=1))
    assert list(clustered.obs_names) == list(cells().obs_names)


def test_a_file_keeps_all_of_it(clustered: AnnData, model: SGPMIC, tmp_path: Path) -> None:
    clustered.write_h5ad(tmp_path / "cells.h5ad")
    back = read_h5ad(tmp_path / "cells.h5ad")
    assert list(back.obs["sgpmic"]) == list(clustered.obs["sgpmic"])
    np.testing.assert_array_equal(back.obsm["X_sgpmic"], model.embedding_)
    found = back.uns["sgpmic"]
    assert found["params"]["use_rep"] == "X_pca"
    assert found["params"]["scale"] == "one", "components are not scaled each by its own spread"
    assert found["params"]["n_clusters"] == 2
    assert found["params"]["random_state"] == 0
    assert "n_pcs" not in found["params"], "what was not asked for is not written"
    assert "embedding='pca'" in found["params"]["start"]
    assert found["n_clusters"] == 2
    assert found["n_components"] == 2
    assert found["lower_bound"] == model.lower_bound_
    np.testing.assert_array_equal(found["weights"], model.weights_)
    assert "support" not in found, "no committee, no test for clusters"


def test_in_place_or_a_copy() -> None:
    adata = cells()
    result = cluster(adata, 2, copy=True, key_added="mine", **QUICK)
    assert result is not None
    assert "mine" in result.obs
    assert not list(adata.obs)
    assert not adata.uns
    assert cluster(adata, 2, key_added="mine", **QUICK) is None
    assert {"mine", "mine_certainty"} == set(adata.obs)
    assert {"X_pca", "X_mine", "mine_memberships"} == set(adata.obsm)
    assert list(adata.obs["mine"]) == list(result.obs["mine"])


def test_more_than_ten_clusters_are_in_natural_order() -> None:
    class Found(SGPMIC):
        """A fit that found twelve clusters."""

        def fit(self, Y: Any, *_: Any, **__: Any) -> Any:
            super().fit(Y)
            self.labels_ = np.arange(len(Y)) % 12
            return self

    adata = cells()
    with mock.patch("sgpmic.anndata.SGPMIC", Found):
        cluster(adata, 2, **QUICK)
    assert list(adata.obs["sgpmic"].cat.categories) == [str(i) for i in range(12)]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_without_principal_components_x_is_clustered(kind: Any) -> None:
    adata = AnnData(kind(table().astype(np.float32)))
    cluster(adata, 2, **QUICK)
    assert adata.uns["sgpmic"]["params"]["use_rep"] == "X"
    assert "scale" not in adata.uns["sgpmic"]["params"]
    assert list(adata.obs["sgpmic"].astype(int).groupby(np.arange(40) // 20).nunique()) == [1, 1]


def test_the_representation_is_chosen() -> None:
    def labels(**which: Any) -> list[str]:
        adata = cells()
        cluster(adata, 2, **which, **QUICK)
        return list(adata.obs["sgpmic"])

    by_default, by_x = labels(), labels(use_rep="X")
    assert by_default != by_x
    assert len(set(by_x[:20])) == 1, "X has the first twenty in one cluster"
    assert labels(use_rep="X_pca") == by_default
    three = cells()
    three.obsm["X_pca"] = three.obsm["X_pca"][:, :3]
    cluster(three, 2, **QUICK)
    assert labels(n_pcs=3) == list(three.obs["sgpmic"])


def test_a_representation_may_be_a_frame() -> None:
    import pandas as pd

    adata = cells()
    adata.obsm["factors"] = pd.DataFrame(table(), index=adata.obs_names, columns=list("abcd"))
    cluster(adata, 2, use_rep="factors", n_pcs=2, **QUICK)
    assert len(set(adata.obs["sgpmic"][:20])) == 1


def test_counts_get_a_warning() -> None:
    adata = AnnData(sparse.csr_matrix(np.random.default_rng(0).poisson(3.0, (40, 4)).astype(float)))
    with pytest.warns(SGPMICWarning, match="raw counts") as caught:
        cluster(adata, 2, **QUICK)
    assert caught[0].filename == __file__, "the warning points at the caller"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"use_rep": "X_umap"}, KeyError, r"no 'X_umap', only \['X_pca'\]"),
        ({"n_pcs": 2, "use_rep": "X"}, ValueError, "needs principal components"),
        ({"n_clusters": 50}, ValueError, "n_clusters"),
        ({"resolution": 1.0}, TypeError, "resolution"),
    ],
)
def test_one_sentence_says_what_is_wrong(options: dict[str, Any], error: Any, words: str) -> None:
    adata = cells()
    with pytest.raises(error, match=words):
        cluster(adata, **{"n_clusters": 2, **QUICK, **options})
    assert not list(adata.obs), "nothing is half written"


def test_values_on_disk_are_refused(tmp_path: Path) -> None:
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match="to_memory"):
        cluster(backed, 2, use_rep="X", **QUICK)
