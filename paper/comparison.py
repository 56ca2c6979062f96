"""The table computed from runs: means, winners, ranks, and tests of the differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata, ttest_ind_from_stats, wilcoxon

from paper.published import Cell, Row, published_cell
from paper.results import Case, Record

#: What is shown, and the key of :func:`paper.metrics.scores` it is. The paper's NMI is
#: between the classes and the clusters' majority classes; scikit-learn's is on the labels as they
#: are.
METRICS = {
    "ACC": "acc",
    "NMI": "nmi",
    "one-to-one ACC": "hungarian",
    "scikit-learn NMI": "sklearn_nmi",
    "ARI": "ari",
}

#: Repeats behind every printed cell.
PAPER_REPEATS = 10

#: Columns that are ours; the tests compare each with every other column.
OURS = ("SGP-MIC", "defaults")

#: Below this p-value a difference from the paper is not due to random variation between repeats.
SIGNIFICANT = 0.01


class Entry(NamedTuple):
    """One cell: the measured and the published value."""

    mean: float  # over the repeats, in percent; NaN where no run succeeded
    std: float  # which divides by repeats − 1
    repeats: int
    failures: int
    case: Case  # at the point of the tuning grid with the best mean accuracy on this row
    paper: Cell | None
    #: Welch's test of our mean against the published one, from both standard deviations; NaN where
    #: either has fewer than two repeats, 1 or 0 where neither varies.
    p_value: float

    @property
    def difference(self) -> float:
        """Our mean minus the paper's."""
        return self.mean - self.paper.mean if self.paper else float("nan")

    @property
    def differs(self) -> bool:
        """Whether the difference is at least one point and statistically significant."""
        return self.p_value < SIGNIFICANT and abs(self.difference) >= 1.0


class Paired(NamedTuple):
    """Wilcoxon's signed-rank test of two columns over the distinct rows both have."""

    ours: str
    other: str
    rows: int
    mean_difference: float
    p_value: float
    p_holm: float


class Comparison(NamedTuple):
    """Everything the table shows."""

    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    methods: tuple[str, ...]
    #: By metric, row and method; nothing where a method is not defined or was not run.
    entries: dict[tuple[str, Row, str], Entry]
    missing: dict[str, str]  # data sets that are not available, and why
    failures: tuple[Record, ...]

    def winners(self, metric: str, row: Row) -> set[str]:
        """Return the methods with the best mean of a row; several where they tie."""
        means = self._row_means(metric, row)
        best = max((v for v in means.values() if np.isfinite(v)), default=np.nan)
        return {m for m, v in means.items() if v >= best - 5e-3}  # equal as printed

    def column_means(self, metric: str) -> dict[str, tuple[float, float]]:
        """Return, for each method, our mean and the paper's over the rows we have."""
        found = {}
        for method in self.methods:
            entries = [self.entries.get((metric, row, method)) for row in self.rows]
            there = [e for e in entries if e is not None and np.isfinite(e.mean)]
            printed = [e.paper.mean for e in there if e.paper is not None]
            found[method] = _mean([e.mean for e in there]), _mean(printed)
        return found

    def mean_ranks(self, metric: str) -> dict[str, float]:
        """Return the mean rank of each method (1 is best) over the distinct rows it is on.

        Methods are ranked among those that have the row, and ranks are rescaled to the full number
        of methods, so that a method gains nothing from missing rows.
        """
        ranks: dict[str, list[float]] = {method: [] for method in self.methods}
        for row in distinct(self.rows):
            means = self._row_means(metric, row)
            there = [m for m in self.methods if np.isfinite(means[m])]
            if len(there) < 2:
                continue
            places = rankdata([-round(means[m], 2) for m in there])
            stretch = (len(self.methods) - 1) / (len(there) - 1)
            for method, place in zip(there, places, strict=True):
                ranks[method].append(1.0 + (place - 1.0) * stretch)
        return {method: _mean(places) for method, places in ranks.items()}

    def paired_tests(self, metric: str) -> list[Paired]:
        """Compare each of our columns with every other one, over distinct rows.

        Rows, not repeats, are the sample: repeats show how a method varies with its seed, not how
        it would perform on other data.
        """
        means = [self._row_means(metric, row) for row in distinct(self.rows)]
        tests = []
        for ours in (name for name in OURS if name in self.methods):
            family = []
            for other in (name for name in self.methods if name != ours):
                gaps = np.array([row[ours] - row[other] for row in means])
                gaps = gaps[np.isfinite(gaps)]
                if len(gaps) == 0:
                    continue
                differ = np.any(np.abs(gaps) > 1e-9)
                p = float(wilcoxon(gaps).pvalue) if differ and len(gaps) > 1 else 1.0
                family.append(Paired(ours, other, len(gaps), float(gaps.mean()), p, p))
            adjusted = holm([test.p_value for test in family])
            tests += [t._replace(p_holm=p) for t, p in zip(family, adjusted, strict=True)]
        return tests

    def _row_means(self, metric: str, row: Row) -> dict[str, float]:
        found = {method: self.entries.get((metric, row, method)) for method in self.methods}
        return {m: entry.mean if entry is not None else np.nan for m, entry in found.items()}


def compare(
    records: Iterable[Record],
    rows: Sequence[Row],
    methods: Sequence[str],
    missing: dict[str, str] | None = None,
) -> Comparison:
    """Compare the runs with the published table."""
    groups: dict[tuple[str, int, str], dict[Case, list[Record]]] = {}
    failures = []
    for record in records:
        case = record.case
        place = (case.dataset, case.n_components, case.method)
        groups.setdefault(place, {}).setdefault(case, []).append(record)
        if record.error is not None:
            failures.append(record)
    entries = {}
    for row in rows:
        for method in methods:
            group = groups.get((row.dataset, row.n_components, method))
            if group is not None:
                for metric, key in METRICS.items():
                    paper = published_cell(metric, row, method)
                    entries[metric, row, method] = _entry(group, key, paper)
    return Comparison(
        tuple(METRICS), tuple(rows), tuple(methods), entries, missing or {}, tuple(failures)
    )


def distinct(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each data set and number of dimensions."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        found.setdefault((row.dataset, row.n_components), row)
    return list(found.values())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm 1979)."""
    given = np.asarray(p_values)
    order = np.argsort(given)
    factors = np.arange(len(given), 0, -1)
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * given[order]), 1.0)
    return adjusted.tolist()


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _entry(group: dict[Case, list[Record]], key: str, paper: Cell | None) -> Entry:
    def mean_accuracy(case: Case) -> float:
        mean = _mean([r.scores["acc"] for r in group[case] if r.error is None])
        return mean if np.isfinite(mean) else -np.inf

    # Ties go to the first of the grid, so that the choice does not depend on the order of the file.
    best = max(sorted(group), key=mean_accuracy)
    values = [r.scores[key] for r in sorted(group[best], key=lambda r: r.seed) if r.error is None]
    failures = sum(r.error is not None for runs in group.values() for r in runs)
    mean = _mean(values)
    std = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    p = _welch(mean, std, len(values), paper)
    return Entry(mean, std, len(values), failures, best, paper, p)


def _welch(mean: float, std: float, repeats: int, paper: Cell | None) -> float:
    if paper is None or repeats < 2:
        return float("nan")
    if std < 1e-9 and paper.std < 1e-9:
        return float(abs(mean - paper.mean) < 1e-2)
    test = ttest_ind_from_stats(
        mean, std, repeats, paper.mean, paper.std, PAPER_REPEATS, equal_var=False
    )
    return float(test.pvalue)
