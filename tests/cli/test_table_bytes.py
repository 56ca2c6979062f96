"""What is written to files."""

import csv
import io

import numpy as np
import pytest

from sgpmic.cli.results import table_bytes


@pytest.mark.parametrize("n_rows", [40, 40_000])
def test_cells_are_read_back_as_they_were(n_rows: int) -> None:
    rng = np.random.default_rng(0)
    powers = 10.0 ** rng.uniform(-320, 308, n_rows) * rng.choice([-1, 1], n_rows)
    powers[:7] = [0.0, -0.0, 1.0, np.inf, -np.inf, 5e-324, 1e16]
    words = rng.choice(["plain", "a,b", 'say "so"', "two\nlines", "", "é", " "], n_rows)
    with_empty = np.array([1.5, "", 0, 1e-7] * (n_rows // 4), dtype=object)
    columns = {"row": np.arange(n_rows), "of, both": powers, "words": words, "known": with_empty}
    for header in (True, False):
        lines = list(csv.reader(io.StringIO(table_bytes(columns, header=header).decode())))
        if header:
            assert lines.pop(0) == list(columns)
        rows, numbers, texts, known = zip(*lines, strict=True)
        assert [int(row) for row in rows] == list(range(n_rows))
        np.testing.assert_array_equal([float(number) for number in numbers], powers)
        assert list(texts) == words.tolist()
        assert [cell and float(cell) for cell in known] == with_empty.tolist()


def test_a_table_without_rows_is_its_header() -> None:
    assert table_bytes({"a": np.zeros(0), "b": []}) == b"a,b\n"
