"""Columns as a file has them: text, types, blocks, shares and samples."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sgpmic.tables import conversions, text_files
from sgpmic.tables.conversions import column_words, with_plain_numbers
from sgpmic.tables.errors import TableError
from sgpmic.tables.reader import open_table


def read_columns(path: Path, *names: str) -> pa.Table:
    reader = open_table(path)
    return next(reader.blocks(names or reader.names))


def test_text_files_give_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('key,a,when\nr1,"1,5",2020-01-31\n r2 ,,31.01.2020\n')
    raw = read_columns(path)
    assert raw.schema.types == [pa.string()] * 3
    assert raw.select(["a", "when"]).to_pydict() == {
        "a": ["1,5", ""],
        "when": ["2020-01-31", "31.01.2020"],
    }
    assert column_words(raw.column("key")) == ["r1", "r2"]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_arrow_files_give_their_types(tmp_path: Path, name: str) -> None:
    day = datetime.date(2020, 1, 31)
    columns = {"n": [1, None], "kind": ["a", None], "when": [day, None], "all": [[1, 2], None]}
    table = pa.table(columns)
    if name.endswith("parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        pyarrow.feather.write_feather(table, tmp_path / name)
    raw = read_columns(tmp_path / name, "kind", "when", "all")
    assert raw.to_pydict() == {k: v for k, v in columns.items() if k != "n"}
    assert raw.schema.field("when").type == pa.date32()


def test_numpy_files_give_numbers(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(3, 2)
    values[1, 0] = np.nan
    np.save(tmp_path / "t.npy", values)
    raw = read_columns(tmp_path / "t.npy")
    np.testing.assert_array_equal(raw.column("feature_1"), values[:, 0])
    assert column_words(raw.column("feature_2")) == ["1", "3", "5"]


@pytest.mark.parametrize("block_rows", [1, 7, 100, 1000])
def test_blocks_have_all_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 64)
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(100)))
    blocks = list(open_table(tmp_path / "t.csv").blocks(["b", "a"], block_rows))
    assert all(len(block) == block_rows for block in blocks[:-1])
    together = pa.concat_tables(blocks)
    assert together.column_names == ["b", "a"]
    assert together.column("a").to_pylist() == [str(i) for i in range(100)]


def test_a_table_without_rows_or_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(TableError, match="columns but no rows"):
        read_columns(tmp_path / "t.csv")
    with pytest.raises(TableError, match="has no column 'c'"):
        next(open_table(tmp_path / "t.csv").blocks(["c"]))


def sample(path: Path, name: str, most: int) -> tuple[list[Any], bool]:
    table, is_whole = open_table(path).sample([name], most)
    return table.column(name).to_pylist(), is_whole


def test_samples_come_from_all_over_the_file(tmp_path: Path) -> None:
    table = pa.table({"i": np.arange(10_000), "s": [str(i) for i in range(10_000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    rows, is_whole = sample(tmp_path / "t.parquet", "i", 200)
    assert len(rows) == len(set(rows)) == 200
    assert (rows[0], rows[-1], is_whole) == (0, 9999, False)
    assert np.diff(rows).max() < 1000
    everything = sample(tmp_path / "t.parquet", "s", 10_000)
    assert everything == (table.column("s").to_pylist(), True)


@pytest.mark.parametrize("n_rows", [9, 10, 11, 20, 21, 100, 103])
def test_samples_of_text_are_evenly_spaced(tmp_path: Path, n_rows: int) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "".join(f"{i}\n" for i in range(n_rows)))
    rows, is_whole = sample(tmp_path / "t.csv", "a", 10)
    stride = int(rows[1]) - int(rows[0])
    assert rows == [str(i) for i in range(0, n_rows, stride)]
    assert is_whole == (stride == 1) == (n_rows <= 10)
    assert len(rows) <= 10 < 2 * len(rows) + 2


#: Columns of text, and whether they are plain numbers.
KINDS_OF_TEXT = {
    ("1", " 2.5", "-3e2"): True,
    ("1", "NA", ""): True,
    ("", "nan", "null"): False,
    ("1", "x", "2"): False,
    ("01", "02", "10"): False,
    ("1", "inf", "2"): False,
    ("1,5", "2", "3"): False,
    (None, "4", "5"): True,
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("most_bytes", [1, 100, 1 << 28])
def test_columns_that_are_read_together_are_those_read_alone(
    monkeypatch: pytest.MonkeyPatch, order: int, most_bytes: int
) -> None:
    monkeypatch.setattr(conversions, "_MOST_BYTES", most_bytes)
    cells = list(KINDS_OF_TEXT)[::order]
    columns = {
        f"c{j}": pa.chunked_array([one[:1], one[1:]], pa.string()) for j, one in enumerate(cells)
    }
    together = with_plain_numbers(pa.table({"words": ["7", "8", "9"], **columns}), ["words"])
    assert pa.types.is_string(together.schema.field("words").type)
    for j, one in enumerate(cells):
        is_number = pa.types.is_floating(together.schema.field(f"c{j}").type)
        assert is_number == KINDS_OF_TEXT[one]
        alone = with_plain_numbers(pa.table({"c": columns[f"c{j}"]}))
        assert together.column(f"c{j}").equals(alone.column("c"))


def test_many_columns_are_read_by_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    cast = conversions._cast_or_none
    monkeypatch.setattr(
        conversions, "_cast_or_none", lambda *given: calls.append(1) or cast(*given)
    )
    numbers = {f"c{j}": [str(j), "", "1.5"] for j in range(2000)}
    table = with_plain_numbers(pa.table({**numbers, "word": ["a", "b", "c"]}))
    assert sum(map(pa.types.is_floating, table.schema.types)) == 2000
    assert len(calls) < 40
