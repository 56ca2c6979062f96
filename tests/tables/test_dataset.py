"""What a fit takes from a file: by which rows columns are judged, what the user's word does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpmic.tables import dataset
from sgpmic.tables.dataset import ColumnOptions, Dataset, Table
from sgpmic.tables.errors import TableError

N = 4000
RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(N, 3)).round(3)


def write(path: Path, **columns: Any) -> Path:
    rows = zip(*(map(str, column) for column in columns.values()), strict=True)
    path.write_text("\n".join(",".join(row) for row in [tuple(columns), *rows]) + "\n")
    return path


def read(path: Path, **asked: Any) -> Table:
    table = Dataset(path, ColumnOptions(**asked))
    return table.read(table.fit_columns())


def kinds(data: Table) -> dict[str, str]:
    return {column["name"]: column["kind"] for column in data.columns}


@pytest.fixture
def few_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 1000)


def test_plain_numbers_need_no_encoder(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", n=range(N), a=VALUES[:, 0], b=[7] * N, c=VALUES[:, 1])
    data = read(path)
    assert data.encoder is None
    assert data.names == ("a", "c")
    assert kinds(data) == {"n": "id", "a": "number", "b": "constant", "c": "number"}
    np.testing.assert_array_equal(data.values, VALUES[:, :2])


def test_gaps_in_plain_numbers_are_nan(tmp_path: Path) -> None:
    cells = ["" if i % 4 == 0 else x for i, x in enumerate(VALUES[:, 0])]
    data = read(write(tmp_path / "t.csv", a=cells, b=VALUES[:, 1]))
    expected = np.where(np.arange(N) % 4 == 0, np.nan, VALUES[:, 0])
    np.testing.assert_array_equal(data.values[:, 0], expected)
    assert data.columns[0]["n_missing"] == N // 4
    assert data.encoder is None


@pytest.mark.usefixtures("few_judges")
def test_ranges_of_large_numbers_are_written_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", a=VALUES[:, 1], big=np.linspace(1.25e6, 9.5e9, N))
    data = read(path)
    assert data.judged_by == 1000
    assert data.columns[1]["summary"] == "1250000 to 9500000000"


@pytest.mark.usefixtures("few_judges")
def test_what_seems_constant_in_the_first_rows_of_a_large_table_is_kept(tmp_path: Path) -> None:
    late = np.where(np.arange(N) < 1500, 0.0, VALUES[:, 0])
    same = np.where(np.arange(N) < 1500, VALUES[:, 1], VALUES[:, 2])
    names = [f"row {i}" for i in range(N)]
    path = write(
        tmp_path / "t.csv",
        i=range(N),
        a=VALUES[:, 1],
        late=late,
        same=same,
        one=[1] * N,
        name=names,
    )
    data = read(path)
    assert data.judged_by == 1000
    assert data.names == ("a", "late", "same")
    np.testing.assert_array_equal(data.values, np.column_stack([VALUES[:, 1], late, same]))
    found = kinds(data)
    assert (found["i"], found["one"]) == ("id", "constant")
    assert found["name"] in ("id", "text")
    by_name = {column["name"]: column for column in data.columns}
    assert by_name["late"]["n_rows"] == N
    assert by_name["late"]["summary"] == f"{late.min():.6g} to {late.max():.6g}"


@pytest.mark.usefixtures("few_judges")
def test_words_late_in_a_large_table_are_seen(tmp_path: Path) -> None:
    late = [*map(str, np.arange(1500) % 7), *["red", "blue"] * 1250]
    data = read(write(tmp_path / "t.csv", a=VALUES[:, 0], kind=late))
    assert data.encoder is not None
    assert kinds(data)["kind"] == "category"
    assert data.columns[1]["n_rows"] == N


@pytest.mark.usefixtures("few_judges")
def test_a_cell_among_numbers_that_no_judge_has_seen(tmp_path: Path) -> None:
    cells = VALUES[:, 0].astype(object)
    cells[1001] = "unknown"
    data = read(write(tmp_path / "t.csv", a=cells, b=VALUES[:, 1]))
    assert data.judged_by == 1000
    expected = np.where(np.arange(N) == 1001, np.nan, VALUES[:, 0])
    np.testing.assert_array_equal(data.values[:, 0], expected)
    assert data.columns[0]["n_missing"] == 1
    cells[1001] = "7x7"
    with pytest.raises(TableError, match=r"'a' is not numeric, it has '7x7' \(row 1002\)"):
        read(write(tmp_path / "t.csv", a=cells, b=VALUES[:, 1]))


def test_a_small_file_is_read_once(tmp_path: Path) -> None:
    names, label = [f"r{i}" for i in range(N)], [1, 2] * (N // 2)
    path = write(tmp_path / "t.csv", name=names, a=VALUES[:, 0], y=label)
    table = Dataset(path, ColumnOptions(label="y"))
    fitted = table.fit_columns()
    path.unlink()
    data = table.read(fitted)
    np.testing.assert_array_equal(data.values[:, 0], VALUES[:, 0])
    assert data.labels == ["1", "2"] * (N // 2)
    assert data.ids == names


@pytest.mark.usefixtures("few_judges")
@pytest.mark.parametrize("plain", [True, False])
def test_several_processes_use_what_the_first_one_found(tmp_path: Path, plain: bool) -> None:
    columns = {"i": np.arange(N), "a": VALUES[:, 0], "late": np.arange(N) // 3900 * VALUES[:, 1]}
    if not plain:
        columns["kind"] = np.array(["u", "v", "w"])[np.arange(N) % 3]
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=700)
    found = Dataset(tmp_path / "t.parquet").fit_columns()
    parts = [Dataset(tmp_path / "t.parquet").read(found, (i, 2)) for i in range(2)]
    assert parts[0].columns == parts[1].columns
    assert kinds(parts[0])["i"] == "id"
    assert parts[0].judged_by == 1000
    assert (parts[0].first_row, parts[1].first_row) == (0, N // 2)
    assert (parts[0].encoder is None) == plain
    values = np.vstack([part.values for part in parts])
    assert len(values) == N
    if plain:
        np.testing.assert_array_equal(values, np.column_stack([columns["a"], columns["late"]]))
    else:
        assert parts[0].encoder is not None
        whole = parts[0].encoder.transform(pa.table(columns))
        np.testing.assert_array_equal(values, whole)


class TestTheUsersWord:
    def test_kinds(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "t.csv",
            key=[f"k{i}" for i in range(N)],
            other=[f"o{i}" for i in range(N)],
            code=np.arange(N) % 4,
            taste=np.array(["bland", "hot", "fine"])[np.arange(N) % 3],
            day=20200101 + np.arange(N) % 28,
            a=VALUES[:, 0],
            y=np.arange(N) % 2,
        )
        data = read(
            path,
            ids=["key,other"],
            category=["code"],
            ordered=["taste=bland<fine<hot"],
            date=["day"],
            label="y",
        )
        found = kinds(data)
        assert found["code"] == "category"
        assert found["taste"] == "ordered"
        assert found["day"] == "date"
        assert (found["key"], found["other"], found["y"]) == ("id", "id", "label")
        assert data.ids is not None
        assert data.ids[3] == "k3"
        assert data.names == ("code", "taste", "day", "a")
        assert [c["summary"] for c in data.columns if c["name"] == "taste"] == [
            "bland < fine < hot"
        ]

    def test_an_id_can_be_a_number(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", n=range(N), a=VALUES[:, 0])
        assert read(path).names == ("a",)
        assert read(path, number=["n"]).names == ("n", "a")

    def test_logarithms(self, tmp_path: Path) -> None:
        tail, other = np.exp(2.5 * VALUES[:, 0]), np.exp(0.1 * VALUES[:, 1])
        path = write(tmp_path / "t.csv", tail=tail, other=other, z=VALUES[:, 2])

        def logs(**asked: Any) -> set[str]:
            return {c["name"] for c in read(path, **asked).columns if "logarithm" in c["becomes"]}

        assert logs() == {"tail"}
        assert logs(log=["other"]) == {"tail", "other"}, "what is taken by itself stays"
        assert logs(number=["tail"]) == set(), "as it is"
        assert logs(number=["tail"], log=["other"]) == {"other"}
        data = read(path)
        np.testing.assert_allclose(data.values[:, 0], np.log(tail))
        with pytest.raises(TableError, match=r"'z'.*logarithm"):
            read(path, log=["z"])

    def test_names_with_commas(self, tmp_path: Path) -> None:
        table = pa.table({"a,b": VALUES[:, 0], "a": VALUES[:, 1], "b": VALUES[:, 2]})
        pq.write_table(table, tmp_path / "t.parquet")
        assert read(tmp_path / "t.parquet", drop=["a,b"]).names == ("a", "b")
        assert read(tmp_path / "t.parquet", drop=["a, b"]).names == ("a,b",)


@pytest.mark.parametrize("asked", [{}, {"ordered": ["z"]}, {"log": ["z"]}])
def test_remedies_are_options(tmp_path: Path, asked: Any) -> None:
    path = write(tmp_path / "t.csv", z=[*range(1, 20), "x"], a=VALUES[:20, 0])
    with pytest.raises(TableError, match=r"--category, .* or leave it out \(--drop z\)"):
        read(path, **asked)


def test_records_do_not_name_the_rows(tmp_path: Path) -> None:
    rows = [{"a": {"b": i}, "c": [i], "x": x} for i, x in enumerate(VALUES[:20, 0].tolist())]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    data = read(tmp_path / "t.json")
    assert data.id_name is None
    assert not any("names the rows" in column["becomes"] for column in data.columns)
