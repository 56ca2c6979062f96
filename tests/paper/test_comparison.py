"""The table's arithmetic, against cases worked by hand and against SciPy on raw numbers."""

import csv
import io
import math

import numpy as np
import pytest
from scipy.stats import ttest_ind, wilcoxon

from paper.comparison import METRICS, compare, distinct, holm
from paper.published import Row, published_rows, published_table
from paper.render import as_csv, as_html, as_markdown, as_terminal
from paper.results import Case, Record

pytestmark = pytest.mark.slow

IRIS = [row for row in published_rows() if row.dataset == "Iris"]


def runs(row: Row, method: str, values: list[float], penalty: float | None = None) -> list[Record]:
    setting = () if penalty is None else (("penalty", penalty),)
    case = Case(row.dataset, row.n_components, method, 3, 50, setting)
    return [
        Record(case, seed, "mark", 0.1, dict.fromkeys(METRICS.values(), value))
        for seed, value in enumerate(values)
    ]


def test_the_printed_table_has_its_25_rows_and_the_means_known_of_it() -> None:
    rows = published_rows()
    assert len(rows) == 25
    assert len(distinct(rows)) == 22
    table = published_table()
    means = {
        method: np.mean([table["ACC", row, method].mean for row in rows])
        for method in ("SGP-MIC", "DEEPC", "UNCA")
    }
    # Computed by others from the print.
    assert means == pytest.approx({"SGP-MIC": 69.66, "DEEPC": 68.95, "UNCA": 58.87}, abs=5e-3)
    dashes = [row for row in rows if ("ACC", row, "DEC") not in table]
    assert len(dashes) == 9
    assert all(row.n_components == 1 for row in dashes)


def test_means_deviations_and_the_tuned_setting() -> None:
    row = IRIS[0]
    records = [
        *runs(row, "AML", [80.0, 82.0], penalty=0.1),
        *runs(row, "AML", [90.0, 94.0], penalty=1.0),
        *runs(row, "AML", [99.0, 10.0], penalty=10.0),
    ]
    entry = compare(records, [row], ["AML"]).entries["ACC", row, "AML"]
    assert (entry.mean, entry.repeats) == (92.0, 2)
    assert entry.std == pytest.approx(math.sqrt(8.0))  # (90−92)² + (94−92)², divided by 1
    assert entry.case.setting == (("penalty", 1.0),)
    assert entry.difference == pytest.approx(92.0 - 91.60)


def test_welch_against_raw_numbers() -> None:
    """Printed mean and deviation are those of ten numbers; SciPy tests the numbers themselves."""
    row = IRIS[1]
    cell = published_table()["ACC", row, "SGP-MIC"]
    shape = np.random.RandomState(0).standard_normal(10)
    printed = cell.mean + cell.std * (shape - shape.mean()) / shape.std(ddof=1)
    ours = [90.0, 91.0, 95.0, 96.0]
    entry = compare(runs(row, "SGP-MIC", ours), [row], ["SGP-MIC"]).entries["ACC", row, "SGP-MIC"]
    assert entry.p_value == pytest.approx(ttest_ind(ours, printed, equal_var=False).pvalue)


def test_cells_that_never_vary_are_equal_or_not() -> None:
    row = IRIS[0]  # PCA-FCM printed 91.33 ± 0.00
    same = compare(runs(row, "PCA-FCM", [91.333, 91.333]), [row], ["PCA-FCM"])
    other = compare(runs(row, "PCA-FCM", [90.0, 90.0]), [row], ["PCA-FCM"])
    assert same.entries["ACC", row, "PCA-FCM"].p_value == 1.0
    assert other.entries["ACC", row, "PCA-FCM"].p_value == 0.0


def test_winners_ranks_and_ties() -> None:
    first, second, third = IRIS
    records = [
        *runs(first, "PCA-FCM", [90.0]), *runs(first, "AML", [80.0]), *runs(first, "SDC", [70.0]),
        *runs(second, "PCA-FCM", [60.0]), *runs(second, "AML", [60.001]),
        *runs(second, "SDC", [50.0]),
        *runs(third, "PCA-FCM", [10.0]), *runs(third, "SDC", [20.0]),
    ]  # fmt: skip
    comparison = compare(records, IRIS, ["PCA-FCM", "AML", "SDC"])
    assert comparison.winners("ACC", first) == {"PCA-FCM"}
    assert comparison.winners("ACC", second) == {"PCA-FCM", "AML"}, "equal as printed"
    assert comparison.winners("ACC", third) == {"SDC"}
    # PCA-FCM: 1, 1.5, and last of two, which counts as last of three. AML: 2, 1.5. SDC: 3, 3, 1.
    expected = {"PCA-FCM": 5.5 / 3, "AML": 1.75, "SDC": 7 / 3}
    assert comparison.mean_ranks("ACC") == pytest.approx(expected)


def test_rows_that_are_one_problem_count_once_in_tests_and_ranks() -> None:
    rows = [row for row in published_rows() if row.dataset in ("Aust", "WDBC")]
    assert len(rows) == 6
    rng = np.random.RandomState(1)
    means = {(row.dataset, row.n_components): rng.uniform(50, 90, 2) for row in rows}
    records = []
    for row in distinct(rows):
        ours, other = means[row.dataset, row.n_components]
        records += runs(row, "SGP-MIC", [ours]) + runs(row, "SDC", [other])
    (test,) = compare(records, rows, ["SDC", "SGP-MIC"]).paired_tests("ACC")
    gaps = [a - b for a, b in means.values()]
    assert (test.ours, test.other, test.rows) == ("SGP-MIC", "SDC", 3)
    assert test.mean_difference == pytest.approx(np.mean(gaps))
    assert test.p_value == pytest.approx(wilcoxon(gaps).pvalue)


def test_holm_on_a_worked_example() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04: 4·0.01, then max(0.04, 3·0.02), max(0.06, 2·0.03), max(…, 0.04)
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_failures_and_missing_data_are_shown_not_dropped() -> None:
    yale = next(row for row in published_rows() if row.dataset == "Yale")
    rows = [IRIS[0], yale]
    case = Case("Iris", 1, "SDC", 3, 50)
    failed = Record(case, 1, "mark", 0.1, error="RuntimeError: <b>diverged</b>")
    comparison = compare(
        [*runs(IRIS[0], "SDC", [90.0]), failed], rows, ["SDC"], {"Yale": "no <i>folder</i>"}
    )
    entry = comparison.entries["ACC", IRIS[0], "SDC"]
    assert (entry.mean, entry.repeats, entry.failures) == (90.0, 1, 1)
    page = as_html(comparison, {"versions": "a & b"}).decode()
    assert "&lt;b&gt;diverged&lt;/b&gt;" in page
    assert "no &lt;i&gt;folder&lt;/i&gt;" in page
    assert "not available" in page
    assert "<b>diverged" not in page
    lines = list(csv.DictReader(io.StringIO(as_csv(comparison).decode())))
    yale_lines = [line for line in lines if line["dataset"] == "Yale"]
    assert {line["note"] for line in yale_lines} == {"no <i>folder</i>"}
    assert len(yale_lines) == len(METRICS)


def test_a_method_with_no_successful_run_is_there_without_a_number() -> None:
    case = Case("Iris", 1, "SDC", 3, 50)
    failed = Record(case, 0, "mark", 0.1, error="RuntimeError: no")
    comparison = compare([failed, *runs(IRIS[0], "AML", [80.0], 1.0)], IRIS, ["AML", "SDC"])
    assert math.isnan(comparison.entries["ACC", IRIS[0], "SDC"].mean)
    assert comparison.winners("ACC", IRIS[0]) == {"AML"}
    as_html(comparison, {})


def test_csv_numbers_are_the_table() -> None:
    comparison = compare(runs(IRIS[0], "PCA-FCM", [91.0, 92.0]), IRIS, ["PCA-FCM"])
    lines = list(csv.DictReader(io.StringIO(as_csv(comparison).decode())))
    line = next(line for line in lines if line["metric"] == "ACC" and line["n_components"] == "1")
    assert float(line["mean"]) == 91.5
    assert float(line["paper_mean"]) == 91.33
    assert float(line["difference"]) == pytest.approx(0.17)
    assert line["winner"] == "1"


def test_columns_printed_under_another_metric_are_compared_by_their_own() -> None:
    records = [*runs(IRIS[1], "DEEPC", [90.0, 91.0]), *runs(IRIS[1], "DEC", [90.0, 91.0])]
    comparison = compare(records, IRIS, ["DEC", "DEEPC"])
    accuracy = comparison.entries["one-to-one ACC", IRIS[1], "DEEPC"].paper
    information = comparison.entries["scikit-learn NMI", IRIS[1], "DEC"].paper
    assert accuracy is not None
    assert information is not None
    assert (accuracy.mean, information.mean) == (94.93, 84.97)
    assert comparison.entries["one-to-one ACC", IRIS[1], "DEC"].paper is None
    page = as_html(comparison, {}).decode()
    assert "What the paper printed for DEEPC is “one-to-one ACC”" in page
    assert "What the paper printed for DEC is “scikit-learn NMI”" in page


@pytest.mark.parametrize("width", [60, 80, 120, 240])
def test_terminal_tables_fit(width: int) -> None:
    from rich.console import Console

    methods = ["PCA-FCM", "ISOMAP-FCM", "AML", "SDC", "DEEPC"]
    records = [run for method in methods for run in runs(IRIS[0], method, [91.33, 100.0])]
    parts = as_terminal(compare(records, IRIS, methods), "ACC", width)
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    for part in parts:
        console.print(part)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert all(method in text for method in methods)
    assert text.count("95.66") >= len(methods)  # (91.33 + 100) / 2, cut or rounded alike


def test_markdown_has_a_line_for_every_row() -> None:
    records = [*runs(IRIS[0], "PCA-FCM", [91.0, 92.0]), *runs(IRIS[0], "AML", [80.0], 1.0)]
    lines = as_markdown(compare(records, IRIS, ["PCA-FCM", "AML"]), "ACC").splitlines()
    assert lines[0] == "| data (Q) | PCA-FCM | AML |"
    assert lines[2] == "| Iris 50% (1) | **91.5** (91.3) | 80.0 (91.6) |"
    assert lines[3] == "| Iris 95% (2) | – | – |"
    assert lines[5] == "| mean | 91.50 (91.33) | 80.00 (91.60) |"
    assert lines[6] == "| mean rank | 1.00 | 2.00 |"
