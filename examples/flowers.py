"""Flowers: 150 irises with four measurements each; the three species are not used in the fit."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_iris

from sgpmic import SGPMIC


def main() -> Figure:
    iris = load_iris()
    model = SGPMIC(n_clusters=3, scale="one", random_state=0).fit(iris.data)

    # The majority species of each cluster; rings mark flowers of other species.
    usual = np.array([np.bincount(iris.target[model.labels_ == k]).argmax() for k in range(3)])
    other = iris.target != usual[model.labels_]
    certainty = model.memberships_.max(axis=1)
    print(f"{other.sum()} of 150 flowers are of another species than most of their cluster")
    print(f"certainty of these: mean {certainty[other].mean():.2f}")
    print(f"of the others: mean {certainty[~other].mean():.2f}")

    model.plot_embedding(title="150 irises; rings: another species than most of the cluster")
    axes = plt.gca()
    ring = {"s": 90, "facecolors": "none", "edgecolors": "black", "linewidths": 1.0}
    axes.scatter(*model.view_[other].T, **ring)
    for cluster, species in enumerate(usual):
        mine = model.view_[model.labels_ == cluster]
        below = mine[:, 0].mean(), mine[:, 1].min()
        name = iris.target_names[species]
        axes.annotate(name, below, (0, -20), textcoords="offset points", ha="center", weight="bold")
    axes.set_aspect("auto")  # the clusters are small relative to the distances between them
    axes.margins(0.08, 0.2)
    axes.legend(frameon=False, loc="upper left")
    return axes.figure


if __name__ == "__main__":
    main().savefig("flowers.png", dpi=110)
