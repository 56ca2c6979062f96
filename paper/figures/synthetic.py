"""The two synthetic data sets: a spiral in space, and arcs of five circles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Drawing
from scipy.stats import spearmanr

from paper.datasets import DataSet, five_arcs, spiral
from paper.figures.base import Figure, scatter_classes, set_title
from paper.methods import Problem
from paper.methods.gaussian_process import run_defaults
from paper.metrics import scores
from paper.results import Record


def _draw(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    drawing = plt.figure(figsize=(7.6, 7.0))
    _draw_spiral(drawing)
    _draw_arcs(drawing)
    set_title(drawing, "Curved data: the order and the groups are found")
    return drawing


def _draw_spiral(drawing: Drawing) -> None:
    coil, position = spiral(random_state=0)
    # One cluster: the question is whether the curve is recovered, not how to divide it.
    unrolled = run_defaults(Problem(coil, 1, 2), 0).embedding
    order = abs(spearmanr(unrolled[:, 0], position).statistic)
    space: Any = drawing.add_subplot(2, 2, 1, projection="3d")
    space.scatter(*coil.T, c=position, cmap="cividis", s=8)
    space.set_title("Input: a spiral in three dimensions")
    for axis in (space.xaxis, space.yaxis, space.zaxis):
        axis.set_ticklabels([])
    plane = drawing.add_subplot(2, 2, 2)
    shown = plane.scatter(unrolled[:, 0], unrolled[:, 1], c=position, cmap="cividis", s=10)
    plane.set_title(f"Unrolled: rank correlation with the position {order:.3f}")
    plane.set(xticks=[], yticks=[])
    drawing.colorbar(shown, ax=plane, label="position along the spiral")


def _draw_arcs(drawing: Drawing) -> None:
    arcs, classes = five_arcs(random_state=0)
    found = run_defaults(Problem(arcs, 5, 2), 0)
    quality = scores(classes, found.labels)
    raw = drawing.add_subplot(2, 2, 3)
    scatter_classes(raw, arcs, classes)
    raw.set_aspect("equal")
    raw.set_title("Input: arcs of five circles")
    latent = drawing.add_subplot(2, 2, 4)
    scatter_classes(latent, found.embedding, classes)
    latent.set_title(
        f"Latent space: ACC {quality['acc']:.2f}, NMI {quality['nmi']:.2f} (paper 99.32, 97.35)"
    )


SYNTHETIC = Figure("synthetic", (), _draw)
