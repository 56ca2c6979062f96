"""JSON, Excel workbooks, and what Excel writes before a header."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sgpmic.tables import errors
from sgpmic.tables.dataset import read_table
from sgpmic.tables.errors import TableError
from sgpmic.tables.reader import open_table

FRAME = pd.DataFrame({"a": [1.5, 2.0, None], "kind": ["x", "y", "x"], "b": [1, 2, 3]})


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t"])
def test_json_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FRAME.to_json(path, orient="records", lines=name == "t.jsonl")
    table = next(open_table(path).blocks(["a", "kind", "b"]))
    assert table.to_pydict() == {"a": [1.5, 2.0, None], "kind": ["x", "y", "x"], "b": [1, 2, 3]}
    values = read_table(path, columns=["b", "a"]).values
    np.testing.assert_array_equal(values, FRAME[["b", "a"]])


def test_many_records_are_sampled(tmp_path: Path) -> None:
    pd.DataFrame({"a": range(100)}).to_json(tmp_path / "t.json", orient="records")
    table, is_whole = open_table(tmp_path / "t.json").sample(["a"], 40)
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
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(TableError, match="is an Excel workbook; install openpyxl"):
        open_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"'])
def test_the_line_that_tells_excel_the_delimiter(tmp_path: Path, first: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\na;b\n1,5;2\n3;x\n")
    assert open_table(path).names == ("a", "b")
    with pytest.raises(TableError, match=r"'x' \(row 2\)"):
        read_table(path)
    assert read_table(path, columns=["a"]).values.tolist() == [[1.5], [3.0]]


def test_records_of_ever_new_keys_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{f"k{i}": i} for i in range(20_000)]))
    words = "20000 rows and 20000 columns, but only 20000 of these 400000000 cells have a value"
    with pytest.raises(TableError, match=words):
        open_table(path)
    path.write_text(json.dumps([{f"k{i}": i} for i in range(200)]))
    assert len(open_table(path).names) == 200
    monkeypatch.setattr(errors, "free_memory", lambda: 1e5)
    with pytest.raises(TableError, match="needs at least"):
        open_table(path)


def test_cells_far_away_need_no_memory(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    book = openpyxl.Workbook()
    book.active["A1"], book.active["B2"], book.active["XFD1048576"] = "a", 2.0, 1.0
    book.save(path)
    table = next(open_table(path).blocks(["a", "column_2", "column_16384"]))
    assert table.to_pydict() == {
        "a": [None, None],
        "column_2": [2.0, None],
        "column_16384": [None, 1.0],
    }


def test_sheets_that_are_empty_or_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    openpyxl.Workbook().save(tmp_path / "t.xlsx")
    with pytest.raises(TableError, match="has no columns"):
        open_table(tmp_path / "t.xlsx")
    monkeypatch.setattr(errors, "free_memory", lambda: 1000)
    with pytest.raises(TableError, match="needs at least"):
        open_table(tmp_path / "t.xlsx")


def test_colored_cells_far_away_do_not_count(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for place, value in {"A1": "a", "B1": "b", "A2": 1.0, "B2": 2.5}.items():
        book.active[place] = value
    book.active["XFD9"].font = openpyxl.styles.Font(bold=True)
    book.create_sheet("other")["XFD1048576"] = 3.0
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").values.tolist() == [[1.0, 2.5]]


def test_half_characters_become_question_marks(tmp_path: Path) -> None:
    def table_of(content: str) -> dict[str, list[str]]:
        (tmp_path / "t.json").write_text(content)
        reader = open_table(tmp_path / "t.json")
        return next(reader.blocks(reader.names)).to_pydict()

    assert table_of(r'[{"a": "x"}, {"a": "y\ud800"}]') == {"a": ["x", "y?"]}
    assert table_of(r'[{"b\udfff": "x"}]') == {"b?": ["x"]}
    assert table_of(r'[{"a": "\ud83d\ude00"}]') == {"a": ["😀"]}
