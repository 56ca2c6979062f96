"""Loss and accuracy over the iterations on six data sets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic.estimator import SGPMIC
from sgpmic.learning.rounds import Progress
from sgpmic.paper.datasets import DataSet
from sgpmic.paper.figures.base import Figure
from sgpmic.paper.metrics import purity
from sgpmic.paper.results import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_DATASETS = ("Iris", "Wine", "Sonar", "WDBC", "Aust", "Segment")
_ROUNDS = 20


class _Curve(NamedTuple):
    step: NDArray[np.float64]  # half-numbers are E-steps, whole numbers M-steps
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]  # after each round's E-steps
    raised: NDArray[np.bool_]  # where the jitter was raised, which is a change of the objective


def follow(dataset: DataSet, n_rounds: int = _ROUNDS) -> _Curve:
    """Fit the published model for more rounds than published and watch it."""
    accuracy: list[float] = []

    def watch(progress: Progress) -> None:
        accuracy.append(100.0 * purity(dataset.classes, progress.labels))

    model = SGPMIC.as_published(
        dataset.n_classes,
        0.95,
        n_inducing=dataset.n_inducing,
        max_iter=n_rounds,
        random_state=0,
        callbacks=[watch],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(dataset.Y)
    history = model.history_
    loss = -np.stack([history["bound_after_e"], history["bound"]], axis=1).ravel()
    step = 0.5 * np.arange(1, len(loss) + 1, dtype=np.float64)
    jitter = np.repeat(history["jitter"], 2)
    return _Curve(step, loss, np.asarray(accuracy), np.diff(jitter, prepend=jitter[0]) > 0)


def count_rises(curve: _Curve) -> int:
    """Return how often the loss rises by more than rounding, the same objective being lowered."""
    rose = np.diff(curve.loss) > 1e-6 * np.abs(curve.loss[:-1])
    return int(np.sum(rose & ~curve.raised[1:]))


def _draw(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(2, 3, figsize=(10.0, 5.6), layout="constrained")
    rises = 0
    for axes, name in zip(panels.flat, _DATASETS, strict=True):
        axes.set_title(name)
        if name not in data:
            axes.text(0.5, 0.5, "not available", transform=axes.transAxes, ha="center")
            continue
        curve = follow(data[name])
        rises += count_rises(curve)
        axes.plot(curve.step, curve.loss, color="black", linewidth=1.4, label="loss (−bound)")
        axes.set_xlabel("round of EM")
        axes.set_xlim(0, len(curve.accuracy) + 0.5)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))
        right = axes.twinx()
        right.spines["right"].set_visible(True)
        right.plot(
            np.arange(1, len(curve.accuracy) + 1) - 0.5,
            curve.accuracy,
            color="#0072B2",
            linestyle="--",
            marker="o",
            markersize=3,
            label="accuracy (%)",
        )
        low, high = curve.accuracy.min(), curve.accuracy.max()
        right.set_ylim(low - 3.0, high + 3.0)
        if axes is panels.flat[0]:
            lines = [*axes.get_lines(), *right.get_lines()]
            axes.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    never = "never rises" if rises == 0 else f"rises {rises} times"
    drawing.suptitle(
        f"The loss {never}, over E-steps and M-steps alike; the accuracy is decided early",
        x=0.01,
        ha="left",
    )
    return drawing


CONVERGENCE = Figure("convergence", _DATASETS, _draw)
