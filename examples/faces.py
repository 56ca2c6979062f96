"""Faces: 165 photographs of 15 people, 32 × 32 pixels; contingency table of people and clusters.

The photographs are the Yale Face Database, which no Python package includes: pass a folder with
your copy as yale_uncropped.csv (a header; then, for each photograph, its pixels and its person).
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC


def read(folder: str) -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(Path(folder) / "yale_uncropped.csv", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def main(pixels: np.ndarray, people: np.ndarray, n_clusters: int = 15) -> Figure:
    model = SGPMIC(n_clusters=n_clusters, n_components=5, scale="one", random_state=0).fit(pixels)
    agreement = adjusted_rand_score(people, model.labels_)
    print(f"agreement with the people, who were not named: {agreement:.2f}")

    counts = np.zeros((len(np.unique(people)), n_clusters), dtype=int)
    np.add.at(counts, (np.unique(people, return_inverse=True)[1], model.labels_), 1)
    # Reorder so that the optimal assignment of people to clusters is on the diagonal.
    person, cluster = linear_sum_assignment(-counts)
    counts = counts[np.ix_(person, cluster)]
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    axes.imshow(counts, cmap="Blues", vmax=1.3 * counts.max())
    for (row, column), count in np.ndenumerate(counts):
        if count:
            axes.text(column, row, str(count), ha="center", va="center")
    axes.set_xticks(range(len(cluster)), [str(m) for m in cluster])
    axes.set_yticks(range(len(person)), [f"person {k + 1}" for k in person])
    axes.set(xlabel="cluster", title=f"{len(pixels)} photographs")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where yale_uncropped.csv is")
    main(*read(parser.parse_args().folder)).savefig("faces.png", dpi=110)
