"""Faces: 165 photographs of 15 people, 32 × 32 pixels, and the mean face of every cluster.

The photographs are the Yale Face Database, which no Python package brings along: give a folder
with your copy, as for ``sgpmic paper table --folder``.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC
from sgpmic.paper.datasets import load


def main(pixels: np.ndarray, people: np.ndarray, n_clusters: int = 15) -> Figure:
    model = SGPMIC(n_clusters=n_clusters, n_components=5, scale="one", random_state=0).fit(pixels)
    agreement = adjusted_rand_score(people, model.labels_)
    print(f"agreement with the people, who were not named: {agreement:.2f}")

    side = round(pixels.shape[1] ** 0.5)
    figure, grid = plt.subplots(-(-n_clusters // 5), 5, figsize=(8, 6), layout="constrained")
    for cluster, axes in enumerate(grid.flat):
        axes.axis("off")
        mine = model.labels_ == cluster
        if mine.any():
            mean_face = pixels[mine].mean(axis=0).reshape(side, side)
            axes.imshow(mean_face, cmap="gray")
            n_people = len(np.unique(people[mine]))
            named = "1 person" if n_people == 1 else f"{n_people} people"
            axes.set_title(f"{mine.sum()} photos, {named}", fontsize=9)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where yale_uncropped.csv is")
    faces = load("Yale", parser.parse_args().folder)
    main(faces.Y, faces.classes).savefig("faces.png", dpi=110)
