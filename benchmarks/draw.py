"""Plot the results of ``gpu.py`` and ``processes.py`` from their files.

``python benchmarks/draw.py [--out docs/performance]``
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
BLUE, ORANGE, GREY = "#1f5fa8", "#c8611a", "0.6"


def devices(axis: Any, lines: list[dict[str, Any]]) -> None:
    """Draw milliseconds against rows, on the processor and on the GPU."""
    found = [line for line in lines if line["part"] == "cpu" and "cpu_ms" in line]
    rows = [int(line["what"].removeprefix("N=")) for line in found]
    for kind, name, color in (("cpu", "processor", ORANGE), ("gpu", "GPU", BLUE)):
        times = [line[f"{kind}_ms"] for line in found]
        axis.loglog(rows, times, "o-", color=color, markersize=5)
        axis.annotate(name, (rows[2], times[2]), (-8, 6), textcoords="offset points",
                      ha="right", color=color)  # fmt: skip
    axis.set_xlabel("rows")
    axis.set_ylabel("ms, one value and gradient")
    axis.set_title("Processor and GPU", fontsize=10)


def processes(axis: Any, lines: list[dict[str, str]], n_cores: int) -> None:
    """Draw how many times faster several processes are than one."""
    numbers = [int(line["processes"]) for line in lines]
    best = [float(line["best"]) for line in lines]
    ideal = [min(n, n_cores) for n in numbers]
    axis.plot(numbers, ideal, "--", color=GREY, linewidth=1)
    axis.annotate(f"{n_cores} cores at most", (numbers[-1], ideal[-1]), (0, -14),
                  textcoords="offset points", ha="right", color=GREY)  # fmt: skip
    axis.plot(numbers, [best[0] / seconds for seconds in best], "o-", color=BLUE, markersize=5)
    axis.set_xticks(numbers)
    axis.set_ylim(0.0, 1.15 * max(ideal))
    axis.set_xlabel("processes")
    axis.set_ylabel("times as fast as one")
    axis.set_title(f"{int(lines[0]['rows']):,} rows".replace(",", " "), fontsize=10)


def main() -> None:
    """Draw both, side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    options = parser.parse_args()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
    with (RESULTS / "gpu.jsonl").open(encoding="utf-8") as file:
        devices(left, [json.loads(line) for line in file])
    with (RESULTS / "processes.csv").open(encoding="utf-8") as file:
        processes(right, list(csv.DictReader(file)), options.cores)
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(options.out / "devices.png", dpi=130)


if __name__ == "__main__":
    main()
