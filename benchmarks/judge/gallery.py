"""Plot a hundred problems on one page: ``cd benchmarks && python -m judge.gallery OUT.png``."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from judge.priors import Floats, standardized
from judge.problems import Problem, make_problem


def plane(problem: Problem) -> Floats:
    """Return two-dimensional rows as they are, others as their first two principal components."""
    X = standardized(problem.X) if problem.each else problem.X
    if X.shape[1] == 2:
        return X
    U, s, _ = np.linalg.svd(X - X.mean(0), full_matrices=False)
    return U[:, :2] * s[:2]


def draw(seeds: range, out: Path) -> None:
    side = int(np.ceil(np.sqrt(len(seeds))))
    figure, axes = plt.subplots(side, side, figsize=(2 * side, 2.1 * side), layout="constrained")
    for axis in axes.flat:
        axis.axis("off")
    for seed, axis in zip(seeds, axes.flat, strict=False):
        problem = make_problem(seed)
        x, y = plane(problem).T
        axis.scatter(x, y, c=problem.y, cmap="tab20" if problem.y.max() > 9 else "tab10", s=1.5)
        n, p = problem.X.shape
        axis.set_title(f"{problem.kind}, k={problem.y.max() + 1}, {n} × {p}", fontsize=8)
    figure.savefig(out, dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--number", type=int, default=100)
    options = parser.parse_args()
    draw(range(options.first, options.first + options.number), options.out)


if __name__ == "__main__":
    main()
