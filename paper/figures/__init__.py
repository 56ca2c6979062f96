"""The paper's figures, each drawn from our own runs."""

from __future__ import annotations

from paper.figures.base import Figure
from paper.figures.convergence import CONVERGENCE
from paper.figures.embeddings import IRIS, KERNELS, WINE
from paper.figures.sweeps import CLUSTERS, INDUCING
from paper.figures.synthetic import SYNTHETIC

#: In the order of the paper.
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (IRIS, WINE, SYNTHETIC, KERNELS, CONVERGENCE, CLUSTERS, INDUCING)
}
