"""The paper's figures, each drawn from our own runs."""

from __future__ import annotations

from sgpmic.paper.figures.base import Figure
from sgpmic.paper.figures.convergence import CONVERGENCE
from sgpmic.paper.figures.embeddings import IRIS, KERNELS, WINE
from sgpmic.paper.figures.sweeps import CLUSTERS, INDUCING
from sgpmic.paper.figures.synthetic import SYNTHETIC

#: In the order of the paper.
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (IRIS, WINE, SYNTHETIC, KERNELS, CONVERGENCE, CLUSTERS, INDUCING)
}
