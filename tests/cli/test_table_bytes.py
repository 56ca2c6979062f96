"""What is written to files."""

import csv
import io

import numpy as np

from sgpmic.cli.results import table_bytes


def by_the_standard_library(columns: dict[str, list[object]], header: bool) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue().encode()


def test_a_table_is_what_the_standard_library_writes() -> None:
    rng = np.random.default_rng(0)
    n_rows = 70_000  # more than are written at a time
    numbers = np.round(10.0 ** rng.uniform(-12, 18, n_rows), 6) * rng.choice([-1, 1], n_rows)
    powers = 10.0 ** rng.uniform(-320, 308, n_rows)
    near = 10.0 ** rng.uniform(-11, -3, n_rows)
    special = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 5e-324, 1e-9, 1e-5, 1e-4, 1e9, 1e15, 1e16]
    powers[: len(special)] = special
    words = rng.choice(["plain", "a,b", 'say "so"', "two\nlines", "", "é", " "], n_rows)
    mixed = np.array([1.5, "", 3, 1e-7] * (n_rows // 4), dtype=object)
    columns = {
        "row": np.arange(n_rows),
        "of, both": numbers,
        "powers": powers,
        "near": near,
        "words": words,
        "mixed": mixed,
    }
    lists = {name: column.tolist() for name, column in columns.items()}
    for header in (True, False):
        assert table_bytes(columns, header=header) == by_the_standard_library(lists, header)
    few = {name: column[:100] for name, column in columns.items()}
    assert table_bytes(few) == table_bytes(columns)[: len(table_bytes(few))]


def test_a_table_without_rows_is_its_header() -> None:
    assert table_bytes({"a": np.zeros(0), "b": []}) == b"a,b\n"
