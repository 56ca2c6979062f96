"""The paper's table as published, row by row."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

#: The two printed metrics.
PRINTED = ("ACC", "NMI")

#: Columns published under the wrong metric. DEEPC's "ACC" must be one-to-one
#: accuracy: some cells lie under the purity of putting all rows into one cluster. DEC's "NMI" is
#: that of the labels as they are: so computed, most runs of its Wine row come out as printed.
OTHER_METRIC = {("ACC", "DEEPC"): "one-to-one ACC", ("NMI", "DEC"): "scikit-learn NMI"}


class Row(NamedTuple):
    """A row of the table: a data set, the share of variance kept, and the dimensions it takes."""

    dataset: str
    variance_percent: int
    n_components: int


class Cell(NamedTuple):
    """Mean and standard deviation over ten repeats, in percent, as printed."""

    mean: float
    std: float
    bold: bool


@cache
def published_table() -> dict[tuple[str, Row, str], Cell]:
    """Return the printed cells by metric, row and method; a dash in print has no entry."""
    cells = {}
    text = files("paper").joinpath("table2.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        row = Row(line["dataset"], int(line["variance_percent"]), int(line["n_components"]))
        if line["mean"]:
            cells[line["metric"], row, line["method"]] = Cell(
                float(line["mean"]), float(line["std"]), line["paper_bold"] == "1"
            )
    return cells


def published_cell(metric: str, row: Row, method: str) -> Cell | None:
    """Return the published value for one of our metrics, or None."""
    if (metric, method) in OTHER_METRIC:
        return None
    for (printed, column), real in OTHER_METRIC.items():
        if (real, column) == (metric, method):
            metric = printed
    return published_table().get((metric, row, method))


@cache
def published_rows() -> tuple[Row, ...]:
    """Return the 25 rows in print order. Some differ only in the share of variance."""
    return tuple(dict.fromkeys(row for _, row, _ in published_table()))
