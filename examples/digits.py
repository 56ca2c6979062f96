"""Digits: 1797 handwritten digits of 8 × 8 pixels, and the mean image of each cluster."""

import argparse

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from sgpmic import SGPMIC


def main(n_rows: int = 1797) -> Figure:
    pixels, digits = load_digits(return_X_y=True)
    pixels, digits = pixels[:n_rows], digits[:n_rows]
    # Pixels share a unit: scale all by one number, not each by its standard deviation.
    model = SGPMIC(n_clusters=10, scale="one", random_state=0).fit(pixels)
    agreement = adjusted_rand_score(digits, model.labels_)
    print(f"agreement with the digits, which were not used: {agreement:.2f}")

    # The latent space on the left, two columns of mean images on the right.
    figure = plt.figure(figsize=(8.5, 5.6), layout="constrained")
    grid = figure.add_gridspec(5, 3, width_ratios=[5, 1, 1])
    axes = figure.add_subplot(grid[:, 0])
    colors = plt.get_cmap("tab10")
    axes.scatter(*model.view_.T, color=colors(model.labels_), s=9, alpha=0.7, linewidths=0)
    axes.set_title(f"{len(pixels)} digits in ten clusters", loc="left")
    axes.set(xlabel="latent dimension 1", ylabel="latent dimension 2")
    for cluster in range(10):
        mine = model.labels_ == cluster
        small = figure.add_subplot(grid[cluster // 2, 1 + cluster % 2])
        small.imshow(pixels[mine].mean(axis=0).reshape(8, 8), cmap="gray_r")
        small.set(xticks=[], yticks=[])
        small.set_title(f"{mine.sum()} rows", fontsize=8, pad=3)
        small.spines[:].set(color=colors(cluster), linewidth=3)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1797)
    main(parser.parse_args().rows).savefig("digits.png", dpi=110)
