"""A million rows: six clusters on a curved surface in ten features.

Six spherical Gaussians in a plane are mapped to ten features by sine waves of random directions,
and noise is added. The clusters are then not linearly separable.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def make_rows(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of ten features and the Gaussian that each was drawn from."""
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0], [4, 0], [2, 3.5], [-2, 3.5], [-4, 0], [0, -3.5]])
    cloud = rng.integers(6, size=n_rows)
    plane = centers[cloud] + rng.normal(scale=0.6, size=(n_rows, 2))
    waves = np.sin(plane @ rng.normal(scale=0.5, size=(2, 10)) + rng.uniform(0, 6, size=10))
    return waves + rng.normal(scale=0.05, size=waves.shape), cloud


def main(n_rows: int = 1_000_000) -> Figure:
    rows, cloud = make_rows(n_rows)
    begin = time.perf_counter()
    model = SGPMIC(n_clusters=6, max_iter=2, random_state=0).fit(rows)
    seconds = time.perf_counter() - begin
    agreement = adjusted_rand_score(cloud, model.labels_)
    print(f"{n_rows:,} rows in {seconds:.0f} s; agreement with the clouds {agreement:.3f}")

    # Overplotting would hide points: the shade of a hexagon is its number of rows, on a log scale.
    figure, axes = plt.subplots(figsize=(7, 5.5), layout="constrained")
    x, y = model.view_.T
    extent = (x.min(), x.max(), y.min(), y.max())
    for cluster, color in enumerate(COLORS):
        mine = model.labels_ == cluster
        shades = LinearSegmentedColormap.from_list(color, ["white", color])
        axes.hexbin(x[mine], y[mine], gridsize=90, extent=extent, mincnt=1, bins="log", cmap=shades)
        axes.text(
            x[mine].mean(), y[mine].mean(), f"cluster {cluster}\n{mine.sum():,} rows", ha="center"
        )
    axes.set(title=f"{n_rows:,} rows", xlabel="latent dimension 1", ylabel="latent dimension 2")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows).savefig("million.png", dpi=110)
