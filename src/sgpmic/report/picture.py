"""The latent space as a picture (matplotlib)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

# Okabe and Ito's colours, which colour-blind readers can tell apart, with a marker for each so
# that the picture survives a black-and-white printer.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw_embedding(
    embedding: Floats,
    memberships: Floats,
    means: Floats,
    covariances: Floats,
    *,
    title: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw latent points, coloured by cluster and faded by doubt, with the clusters' Gaussians.

    Parameters
    ----------
    embedding : ndarray of shape (n_samples, n_components)
        Its first two dimensions are shown; a single one is shown against the certainty.
    memberships : ndarray of shape (n_samples, n_clusters)
    means, covariances : ndarrays
        The latent mixture; every ellipse holds 90 % of its Gaussian.
    title : str or None
    axes : matplotlib Axes or None
        Where to draw; None for a new figure.

    Returns
    -------
    axes : matplotlib Axes
    """
    import matplotlib.pyplot as plt

    labels = memberships.argmax(axis=1)
    certainty = memberships.max(axis=1)
    flat = embedding.shape[1] == 1
    if axes is None:
        _, axes = plt.subplots(figsize=(7.5, _height(embedding, flat)), layout="constrained")
    vertical = certainty if flat else embedding[:, 1]
    for m in range(memberships.shape[1]):
        mine = labels == m
        colour, marker = COLOURS[m % len(COLOURS)], MARKERS[m % len(MARKERS)]
        axes.scatter(
            embedding[mine, 0],
            vertical[mine],
            s=32,
            c=colour,
            marker=marker,
            alpha=0.25 + 0.75 * certainty[mine],
            linewidths=0.5,
            edgecolors="white",
            label=f"cluster {m} ({mine.sum()} rows)",
        )
        if not flat:
            outline = ellipse(means[m, :2], covariances[m, :2, :2])
            axes.plot(*outline.T, color=colour, linewidth=1.4, alpha=0.9)
    axes.set_xlabel("latent dimension 1")
    axes.set_ylabel("certainty" if flat else "latent dimension 2")
    if not flat:
        axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="best")
    if title:
        axes.set_title(title, loc="left")
    return axes


def _height(embedding: Floats, flat: bool) -> float:
    """Return a height for a figure 7.5 inches wide that equal axes fill well."""
    if flat:
        return 4.0
    width, height = np.maximum(np.ptp(embedding[:, :2], axis=0), 1e-9)
    return float(np.clip(7.5 * height / width + 1.5, 3.5, 7.0))


def ellipse(mean: Floats, covariance: Floats, share: float = 0.9, n_points: int = 100) -> Floats:
    """Return the outline, (n_points, 2), that holds ``share`` of a two-dimensional Gaussian."""
    radius = np.sqrt(-2.0 * np.log(1.0 - share))  # chi-square with two degrees of freedom
    angle = np.linspace(0.0, 2.0 * np.pi, n_points)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outline: Floats = mean + radius * circle @ np.linalg.cholesky(covariance).T
    return outline


def as_png(axes: Axes) -> bytes:
    """Return the figure of ``axes`` as PNG."""
    buffer = io.BytesIO()
    figure: Any = axes.figure
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
