"""Loss and accuracy over the EM iterations on six data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure as Drawing

from paper.datasets import DataSet
from paper.figures.base import Figure, problem_of, set_title
from paper.methods.gaussian_process import fit_published
from paper.metrics import purity
from paper.results import Record
from sgpmic import Progress
from sgpmic._types import Bools, Floats

_DATASETS = ("Iris", "Wine", "Sonar", "WDBC", "Aust", "Segment")
_ITERATIONS = 20


class _Curve(NamedTuple):
    step: Floats  # half-numbers are E-steps, whole numbers M-steps
    loss: Floats
    accuracy: Floats  # after each iteration's E-steps
    raised: Bools  # where the jitter was raised, which changes the objective


def follow(dataset: DataSet, n_iterations: int = _ITERATIONS) -> _Curve:
    """Fit the published model for more iterations than published and record every iteration."""
    accuracy: list[float] = []

    def watch(progress: Progress) -> None:
        accuracy.append(100.0 * purity(dataset.classes, progress.labels))

    problem = problem_of(dataset, dataset.n_components(0.95))
    history = fit_published(problem, 0, max_iter=n_iterations, em__callbacks=[watch]).history_
    loss = -np.stack([history["bound_after_e"], history["bound"]], axis=1).ravel()
    step = 0.5 * np.arange(1, len(loss) + 1, dtype=np.float64)
    jitter = np.repeat(history["jitter"], 2)
    return _Curve(step, loss, np.asarray(accuracy), np.diff(jitter, prepend=jitter[0]) > 0)


def count_rises(curve: _Curve) -> int:
    """Count increases of the loss beyond rounding error under an unchanged objective."""
    rose = np.diff(curve.loss) > 1e-6 * np.abs(curve.loss[:-1])
    return int(np.sum(rose & ~curve.raised[1:]))


def _draw(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    drawing, panels = plt.subplots(2, 3, figsize=(10.0, 5.6))
    rises = 0
    for axes, name in zip(panels.flat, _DATASETS, strict=True):
        axes.set_title(name)
        if name not in data:
            axes.text(0.5, 0.5, "not available", transform=axes.transAxes, ha="center")
            continue
        curve = follow(data[name])
        rises += count_rises(curve)
        axes.plot(curve.step, curve.loss, color="black", linewidth=1.4, label="loss (−bound)")
        axes.set(xlabel="EM iteration", xlim=(0, len(curve.accuracy) + 0.5))
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
        right.set_ylim(curve.accuracy.min() - 3.0, curve.accuracy.max() + 3.0)
        if axes is panels.flat[0]:
            lines = [*axes.get_lines(), *right.get_lines()]
            axes.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    never = "never rises" if rises == 0 else f"rises {rises} times"
    set_title(
        drawing, f"The loss {never}, over E-steps and M-steps alike; the accuracy is decided early"
    )
    return drawing


CONVERGENCE = Figure("convergence", _DATASETS, _draw)
