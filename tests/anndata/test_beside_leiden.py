"""Seven hundred blood cells that scanpy brings along, beside Leiden."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from sklearn.metrics import adjusted_rand_score

from sgpmic.anndata import cluster

scanpy = pytest.importorskip("scanpy")
pytest.importorskip("igraph")


@pytest.mark.slow
@pytest.mark.usefixtures("as_shipped")
def test_kinds_of_blood_cells_are_found_as_well_as_by_leiden(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.pbmc68k_reduced()
        scanpy.tl.leiden(adata, resolution=0.5, flavor="igraph", n_iterations=2, directed=False)
        cluster(adata, n_clusters=8, n_pcs=10)
    kinds = adata.obs["bulk_labels"]
    leiden = adjusted_rand_score(kinds, adata.obs["leiden"])
    ours = adjusted_rand_score(kinds, adata.obs["sgpmic"])
    print(f"agreement with the kinds of cells: Leiden {leiden:.2f}, SGPMIC {ours:.2f}")
    # Half of all pairs right is what graph clusterings reach on this set of overlapping kinds.
    assert leiden > 0.35
    assert ours > 0.45
    adata.write_h5ad(tmp_path / "cells.h5ad")
    support = scanpy.read_h5ad(tmp_path / "cells.h5ad").uns["sgpmic"]["support"]
    assert support["supported"]
    assert support["p_value"] < 0.05
    assert support["sentence"].startswith("There are clusters")
    # What scanpy does with clusters works with ours: a categorical is all it asks for.
    scanpy.tl.rank_genes_groups(adata, "sgpmic", method="t-test", use_raw=False)
    assert len(adata.uns["rank_genes_groups"]["names"].dtype) == adata.obs["sgpmic"].nunique()
