"""Single cells: 700 blood cells from scanpy's datasets; contingency table of types and clusters."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC


def main(n_cells: int = 700) -> Figure:
    cells = scanpy.datasets.pbmc68k_reduced()[:n_cells]
    # The variance of a component is its importance: scale all by one number.
    model = SGPMIC(n_clusters=8, scale="one", random_state=0).fit(cells.obsm["X_pca"][:, :10])
    kinds = cells.obs["bulk_labels"].astype(str).to_numpy()
    agreement = adjusted_rand_score(kinds, model.labels_)
    print(f"agreement with the kinds, which were not used: {agreement:.2f}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.8), layout="constrained")
    colors = plt.get_cmap("tab10")
    certainty = model.memberships_.max(axis=1)
    for cluster in np.unique(model.labels_):
        mine = model.labels_ == cluster
        size, faded = {"s": 16, "linewidths": 0}, certainty[mine]
        left.scatter(*model.view_[mine].T, color=colors(cluster), alpha=faded, **size)
        left.annotate(str(cluster), np.median(model.view_[mine], axis=0), weight="bold")
    left.set(xlabel="latent dimension 1", ylabel="latent dimension 2")
    left.set_title(f"{n_cells} blood cells in eight clusters", loc="left")

    table = pd.crosstab(kinds, model.labels_)
    table = table.loc[table.idxmax(axis=1).sort_values().index]  # group types by cluster
    right.imshow(table, cmap="Blues", aspect="auto", vmax=2 * table.to_numpy().max())
    for (row, column), count in np.ndenumerate(table.to_numpy()):
        if count:
            right.text(column, row, str(count), ha="center", va="center", fontsize=8)
    right.set_xticks(range(table.shape[1]), table.columns)
    right.set_yticks(range(len(table)), table.index)
    right.set(xlabel="cluster", title="cells of every kind")
    return figure


if __name__ == "__main__":
    main().savefig("cells.png", dpi=110)
