"""JSON, Excel workbooks, and what Excel writes before a header."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sgpmic.tables.reader import TableError, open_table, read_table, sample_rows

FRAME = pd.DataFrame({"a": [1.5, 2.0, None], "kind": ["x", "y", "x"], "b": [1, 2, 3]})


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t"])
def test_json_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FRAME.to_json(path, orient="records", lines=name == "t.jsonl")
    table = next(open_table(path).raw_blocks(["a", "kind", "b"]))
    assert table.to_pydict() == {"a": [1.5, 2.0, None], "kind": ["x", "y", "x"], "b": [1, 2, 3]}
    values = read_table(path, columns=["b", "a"]).values
    np.testing.assert_array_equal(values, FRAME[["b", "a"]])


def test_many_records_are_sampled(tmp_path: Path) -> None:
    pd.DataFrame({"a": range(100)}).to_json(tmp_path / "t.json", orient="records")
    table, is_whole = sample_rows(open_table(tmp_path / "t.json"), ["a"], 40)
    rows = table.column("a").to_pylist()
    assert (len(set(rows)), rows[0], rows[-1], is_whole) == (40, 0, 99, False)


def test_records_may_lack_columns(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"a": 1}, {"b": 2.5, "a": 3}]')
    values = read_table(tmp_path / "t.json").values
    np.testing.assert_array_equal(values, [[1.0, np.nan], [3.0, 2.5]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": [1, 2]}', "not a list of records"),
        ("[1, 2]", "not a list of records"),
        ('[{"a": 1},', "damaged or is not a JSON file"),
        ("[]", "no columns"),
    ],
)
def test_other_json_is_refused_by_what_it_is(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(TableError, match=words):
        open_table(tmp_path / "t.json")


def test_the_first_sheet_of_a_workbook(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "t.xlsx") as writer:
        FRAME.to_excel(writer, sheet_name="one", index=False)
        (10 * FRAME[["b"]]).to_excel(writer, sheet_name="two", index=False)
    np.testing.assert_array_equal(
        read_table(tmp_path / "t.xlsx", columns=["a", "b"]).values, FRAME[["a", "b"]]
    )


def test_a_workbook_is_refused_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TableError, match="is an Excel workbook; install pandas"):
        open_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"'])
def test_the_line_that_tells_excel_the_delimiter(tmp_path: Path, first: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\na;b\n1,5;2\n3;x\n")
    assert open_table(path).names == ("a", "b")
    with pytest.raises(TableError, match="line 4, column 'b'"):
        read_table(path)
    assert read_table(path, columns=["a"]).values.tolist() == [[1.5], [3.0]]
