"""Columns as a file has them: text, types, blocks, shares and samples."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sgpmic.tables import chunks
from sgpmic.tables.reader import TableError, open_table, read_columns, sample_columns


def test_text_files_give_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('key,a,when,kind\nr1,"1,5",2020-01-31,é\n r2 ,,31.01.2020,NA\n')
    raw = read_columns(path, id_column="key", label_column="kind")
    assert raw.columns.schema.types == [pa.string()] * 2
    assert raw.columns.to_pydict() == {"a": ["1,5", ""], "when": ["2020-01-31", "31.01.2020"]}
    assert raw.ids == ["r1", "r2"]
    assert raw.labels == ["é", ""]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_arrow_files_give_their_types(tmp_path: Path, name: str) -> None:
    day = datetime.date(2020, 1, 31)
    columns = {"n": [1, None], "kind": ["a", None], "when": [day, None], "all": [[1, 2], None]}
    table = pa.table(columns)
    if name.endswith("parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        pyarrow.feather.write_feather(table, tmp_path / name)
    raw = read_columns(tmp_path / name, columns=["kind", "when", "all"])
    assert raw.columns.to_pydict() == {k: v for k, v in columns.items() if k != "n"}
    assert raw.columns.schema.field("when").type == pa.date32()


def test_numpy_files_give_numbers(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(3, 2)
    values[1, 0] = np.nan
    np.save(tmp_path / "t.npy", values)
    raw = read_columns(tmp_path / "t.npy", id_column="feature_2")
    np.testing.assert_array_equal(raw.columns.column("feature_1"), values[:, 0])
    assert raw.ids == ["1", "3", "5"]


@pytest.mark.parametrize("block_rows", [1, 7, 100, 1000, None])
def test_blocks_have_all_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int | None
) -> None:
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 64)
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(100)))
    blocks = list(open_table(tmp_path / "t.csv").raw_blocks(["b", "a"], block_rows))
    assert all(len(block) == block_rows for block in blocks[:-1])
    together = pa.concat_tables(blocks)
    assert together.column_names == ["b", "a"]
    assert together.column("a").to_pylist() == [str(i) for i in range(100)]


def test_a_table_without_rows_or_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(TableError, match="columns but no rows"):
        read_columns(tmp_path / "t.csv")
    with pytest.raises(TableError, match="has no column 'c'"):
        next(open_table(tmp_path / "t.csv").raw_blocks(["c"]))


def test_samples_come_from_all_over_the_file(tmp_path: Path) -> None:
    table = pa.table({"i": np.arange(10_000), "s": [str(i) for i in range(10_000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    rows = sample_columns(open_table(tmp_path / "t.parquet"), ["i"], 200).column("i").to_pylist()
    assert len(rows) == len(set(rows)) == 200
    assert (rows[0], rows[-1]) == (0, 9999)
    assert np.diff(rows).max() < 1000
    everything = sample_columns(open_table(tmp_path / "t.parquet"), ["s"], 10_000)
    assert everything.column("s").to_pylist() == table.column("s").to_pylist()


def test_samples_of_text_are_its_first_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "".join(f"{i}\n" for i in range(100)))
    rows = sample_columns(open_table(tmp_path / "t.csv"), ["a"], 10)
    assert rows.column("a").to_pylist() == [str(i) for i in range(10)]
