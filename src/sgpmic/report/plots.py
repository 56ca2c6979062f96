"""The bound and the clusters' profiles as pictures (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgpmic.report.content import cluster_profiles
from sgpmic.report.picture import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


def draw_bound(
    history: Mapping[str, Sequence[float]],
    starts: Sequence[Mapping[str, Any]],
    *,
    axes: Axes | None = None,
) -> Axes:
    """Draw the bound after every E-step and M-step of every start.

    Parameters
    ----------
    history, starts
        ``history_`` and ``starts_`` of a fitted model.
    axes : matplotlib Axes or None
        Where to draw; None for a new figure.

    Returns
    -------
    axes : matplotlib Axes
    """
    import matplotlib.pyplot as plt

    if axes is None:
        _, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    numbers = np.asarray(history["start"])
    for place, (number, start) in enumerate(zip(np.unique(numbers), starts, strict=True)):
        mine = numbers == number
        rounds = np.asarray(history["round"])[mine]
        both = np.stack([np.asarray(history[k])[mine] for k in ("bound_after_e", "bound")], axis=1)
        steps = np.stack([rounds - 0.5, rounds], axis=1)
        kept = bool(start["kept"])
        name = f"{start['embedding']} + {start['memberships']}"
        axes.plot(
            steps.ravel(),
            both.ravel(),
            color=COLOURS[place % len(COLOURS)],
            linewidth=2.2 if kept else 1.0,
            linestyle="-" if kept else "--",
            marker="o" if kept else None,
            markersize=3,
            label=f"{name} (kept)" if kept and len(starts) > 1 else name,
        )
    axes.set_xlabel("round of EM (half rounds: after the E-steps)")
    axes.set_ylabel("bound")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="lower right")
    return axes


def draw_profiles(
    values: Floats,
    labels: NDArray[np.int64],
    names: Sequence[str],
    n_clusters: int,
    *,
    n_features: int = 10,
    axes: Axes | None = None,
) -> Axes:
    """Draw how far every cluster is from all other rows, feature by feature.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
    names : sequence of str
    n_clusters : int
    n_features : int, default=10
        The features that set clusters apart most are shown, at most this many.
    axes : matplotlib Axes or None
        Where to draw; None for a new figure.

    Returns
    -------
    axes : matplotlib Axes
        Rows are features, columns clusters; the numbers are effect sizes (Cohen's d).
    """
    import matplotlib.pyplot as plt

    effects = cluster_profiles(values, labels, n_clusters).effects
    shown = np.argsort(-np.abs(effects).max(axis=0), kind="stable")[:n_features]
    table = effects[:, shown].T
    if axes is None:
        size = (2.6 + 0.75 * n_clusters, 1.3 + 0.32 * len(shown))
        _, axes = plt.subplots(figsize=size, layout="constrained")
    limit = max(1.0, float(np.quantile(np.abs(table), 0.95)))
    image = axes.imshow(table, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        colour = "white" if abs(value) > 0.7 * limit else "black"
        words = f"{value:+.1f}".replace("-", "−")
        axes.text(column, row, words, ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(n_clusters), [f"cluster {m}" for m in range(n_clusters)])
    axes.set_yticks(range(len(shown)), [str(names[i]) for i in shown])
    axes.tick_params(length=0)
    axes.figure.colorbar(image, ax=axes, label="effect size against all other rows")
    return axes
