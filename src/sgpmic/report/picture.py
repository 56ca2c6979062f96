"""Pictures of a fitted model (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sgpmic.report.content import Floats, Ints
from sgpmic.report.latent_map import outline
from sgpmic.report.statistics import cluster_profiles, level_shares
from sgpmic.tables.description import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgpmic.tables.encoder import TableEncoder

# Okabe and Ito's colours, which colour-blind readers can tell apart, with a marker for each so
# that the picture survives a black-and-white printer.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw_embedding(model: Any, title: str | None, axes: Axes | None) -> Axes:
    """Draw latent points and Gaussians; of one latent dimension, points against their certainty."""
    embedding, memberships = model.view_, model.memberships_
    certainty = memberships.max(axis=1)
    flat = embedding.shape[1] == 1
    axes = axes or _new_axes(7.5, _height(embedding, flat))
    vertical = certainty if flat else embedding[:, 1]
    for m in range(memberships.shape[1]):
        mine = memberships.argmax(axis=1) == m
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
            line = outline(embedding[mine, :2], model.means_[m, :2], model.covariances_[m, :2, :2])
            axes.plot(*line.T, color=colour, linewidth=1.4, alpha=0.9)
    _finish(axes, "latent dimension 1", "certainty" if flat else "latent dimension 2", "best")
    if not flat:
        axes.set_aspect("equal", adjustable="datalim")
    if title:
        axes.set_title(title, loc="left")
    return axes


def _height(embedding: Floats, flat: bool) -> float:
    """Return a height for a figure 7.5 inches wide that equal axes fill well."""
    if flat:
        return 4.0
    width, height = np.maximum(np.ptp(embedding[:, :2], axis=0), 1e-9)
    return float(np.clip(7.5 * height / width + 1.5, 3.5, 7.0))


def draw_bound(model: Any, axes: Axes | None) -> Axes:
    """Draw the bound after every E-step and M-step of every start."""
    history, starts = model.history_, model.starts_
    axes = axes or _new_axes(6.5, 3.6)
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
    _finish(axes, "round of EM (half rounds: after the E-steps)", "bound", "lower right")
    return axes


def profile_table(
    encoder: TableEncoder | None,
    values: Floats,
    labels: Ints,
    names: Sequence[str],
    n_clusters: int,
) -> tuple[Floats, list[str]]:
    """Return effect sizes of numbers and levels, (n_clusters, number of them), and their names."""
    if encoder is None:
        effects = cluster_profiles(values, labels, n_clusters).effects
        return effects, [str(name) for name in names]
    described = describe(encoder, values)
    tables = [cluster_profiles(described.numbers, labels, n_clusters).effects]
    found = list(described.names)
    for column in described.categories:
        shares = level_shares(column.codes, len(column.levels), labels, n_clusters)
        # Of two levels one says it all.
        first = 1 if len(column.levels) == 2 else 0
        tables.append(shares.effects[:, first:])
        found += [f"{column.name}: {level}" for level in column.levels[first:]]
    return np.concatenate(tables, axis=1), found


def draw_profiles(
    effects: Floats, names: Sequence[str], n_features: int, axes: Axes | None
) -> Axes:
    """Draw how far every cluster is from all other rows: effect sizes, a row for each feature."""
    n_clusters = len(effects)
    shown = np.argsort(-np.abs(effects).max(axis=0), kind="stable")[:n_features]
    table = effects[:, shown].T
    axes = axes or _new_axes(2.6 + 0.75 * n_clusters, 1.3 + 0.32 * len(shown))
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


def _new_axes(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def _finish(axes: Axes, x_name: str, y_name: str, legend: Literal["best", "lower right"]) -> None:
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc=legend)
