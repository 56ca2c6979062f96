"""Tables of every format, against the numbers that other libraries wrote into them."""

from __future__ import annotations

import csv
import decimal
import gzip
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import example as always
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tables import read_table

from sgpmic.tables import text_files
from sgpmic.tables.errors import TableError
from sgpmic.tables.reader import open_table, without_ending

NAMES = ("alpha", "beta", "gamma")
N_ROWS = 2500


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read text a few bytes at a time, so that small files have many chunks."""
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 61)


def example(n_rows: int = N_ROWS) -> np.ndarray:
    scales = np.array([1e-300, 1.0, 1e99])
    return np.random.default_rng(3).normal(size=(n_rows, 3)) * scales


def arrow_example(values: np.ndarray) -> pa.Table:
    columns = {name: values[:, j] for j, name in enumerate(NAMES)}
    return pa.table({**columns, "key": [f"row {i}" for i in range(len(values))]})


def csv_example(values: np.ndarray, delimiter: str = ",") -> bytes:
    rows = [(*map(repr, row), f"row {i}") for i, row in enumerate(values.tolist())]
    lines = [delimiter.join(row) for row in [(*NAMES, "key"), *rows]]
    return ("\n".join(lines) + "\n").encode()


def write_stream(path: Path, table: pa.Table, rows: int) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_example(folder: Path, ending: str, values: np.ndarray) -> Path:
    path = folder / f"table.{ending}"
    table = arrow_example(values)
    if ending in ("csv", "txt", "CSV"):
        path.write_bytes(csv_example(values))
    elif ending == "tsv":
        path.write_bytes(csv_example(values, "\t"))
    elif ending.endswith(".gz"):
        path.write_bytes(gzip.compress(csv_example(values, ";")))
    elif ending in ("parquet", "pq"):
        pq.write_table(table, path, row_group_size=700)
    elif ending == "feather":
        pa.feather.write_feather(table, path, chunksize=300)
    elif ending == "arrow":
        write_stream(path, table, 999)
    elif ending == "ipc":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


TEXT_ENDINGS = ("csv", "CSV", "tsv", "txt", "csv.gz", "tsv.gz", "txt.gz")
ARROW_ENDINGS = ("parquet", "pq", "feather", "arrow", "ipc")


def write_text(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def values_of(folder: Path, content: str | bytes, **options) -> list[list[float]]:
    return read_table(write_text(folder, content), **options).values.tolist()


# ------------------------------------------------------------------------------ formats


@pytest.mark.parametrize("ending", TEXT_ENDINGS + ARROW_ENDINGS)
def test_round_trip(tmp_path: Path, ending: str) -> None:
    values = example()
    table = read_table(write_example(tmp_path, ending, values), id_column="key")
    np.testing.assert_array_equal(table.values, values)
    assert table.values.dtype == np.float64
    assert table.values.flags.c_contiguous
    assert table.names == NAMES
    assert table.ids == [f"row {i}" for i in range(N_ROWS)]
    assert (table.id_name, table.labels, table.label_name) == ("key", None, None)


@pytest.mark.parametrize("dtype", ["f8", ">f8", "f4", "i4", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.asarray(np.random.default_rng(0).uniform(0, 9, (50, 4)).astype(dtype), order=order)
    np.save(tmp_path / "t.npy", array)
    np.savez(tmp_path / "t.npz", array)
    for name in ("t.npy", "t.npz"):
        table = read_table(tmp_path / name)
        np.testing.assert_array_equal(table.values, array.astype(float))
        assert table.values.flags.c_contiguous
        assert table.names == ("feature_1", "feature_2", "feature_3", "feature_4")


@pytest.mark.parametrize("key", ["X", "data"])
@pytest.mark.parametrize("names_key", ["names", "columns"])
def test_npz_with_names_and_other_arrays(tmp_path: Path, key: str, names_key: str) -> None:
    values = example(20)
    arrays = {key: values, names_key: np.array(NAMES), "other": np.zeros((2, 2))}
    np.savez_compressed(tmp_path / "t.npz", **arrays)
    table = read_table(tmp_path / "t.npz", columns=["gamma", "alpha"])
    np.testing.assert_array_equal(table.values, values[:, [2, 0]])


def test_the_only_array_of_an_archive_is_taken(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", measured=example(5), names=np.array(NAMES))
    np.testing.assert_array_equal(read_table(tmp_path / "t.npz").values, example(5))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "feather", "arrow"])
def test_content_decides_where_the_ending_is_unknown(tmp_path: Path, ending: str) -> None:
    path = write_example(tmp_path, ending, example(30)).rename(tmp_path / "table.dat")
    np.testing.assert_array_equal(read_table(path, id_column="key").values, example(30))


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_content_decides_for_numpy_files(tmp_path: Path, ending: str) -> None:
    with open(tmp_path / "t", "wb") as file:
        (np.save if ending == "npy" else np.savez)(file, example(30))
    np.testing.assert_array_equal(read_table(tmp_path / "t").values, example(30))


def test_names_that_look_like_another_format(tmp_path: Path) -> None:
    assert read_table(write_text(tmp_path, "PAR1,PAR2\n1,2\n")).names == ("PAR1", "PAR2")


# ------------------------------------------------------------------------------ blocks


def numbers(blocks: Sequence[pa.Table], names: Sequence[str]) -> np.ndarray:
    table = pa.concat_tables(blocks)
    return np.column_stack([np.asarray(table.column(name).to_pylist(), float) for name in names])


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
@pytest.mark.parametrize("ending", ["csv", "txt.gz", *ARROW_ENDINGS])
def test_blocks_are_the_table(tmp_path: Path, ending: str, block_rows: int) -> None:
    values = example()
    reader = open_table(write_example(tmp_path, ending, values))
    assert reader.names == (*NAMES, "key")
    assert reader.n_rows == (N_ROWS if ending in ("parquet", "pq") else None)
    blocks = list(reader.blocks(["gamma", "beta", "key"], block_rows))
    np.testing.assert_array_equal(numbers(blocks, ["gamma", "beta"]), values[:, [2, 1]])
    keys = pa.concat_tables(blocks).column("key").to_pylist()
    assert keys == [f"row {i}" for i in range(N_ROWS)]
    assert {len(block) for block in blocks[:-1]} == {block_rows}
    assert len(blocks) == -(-N_ROWS // block_rows)


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_blocks_of_numpy_files(tmp_path: Path, ending: str, block_rows: int) -> None:
    path = tmp_path / f"t.{ending}"
    (np.save if ending == "npy" else np.savez)(path, example())
    reader = open_table(path)
    assert reader.n_rows == N_ROWS
    blocks = list(reader.blocks(reader.names, block_rows))
    np.testing.assert_array_equal(numbers(blocks, reader.names), example())
    assert {len(block) for block in blocks[:-1]} == {block_rows}
    assert len(blocks) == -(-N_ROWS // block_rows)


def test_blocks_can_be_read_again(tmp_path: Path) -> None:
    reader = open_table(write_text(tmp_path, "a;b\n1;2\n1,5;2\n"))
    first, second = ([b.to_pydict() for b in reader.blocks(["a"])] for _ in range(2))
    assert first == second == [{"a": ["1", "1,5"]}]


@pytest.mark.usefixtures("small_chunks")
def test_chunks_may_end_anywhere(tmp_path: Path) -> None:
    rows = [(i / 7, f'é "{i}"\n,ü' if i % 3 else "€") for i in range(200)]
    content = "x,key\r\n" + "".join(
        f'{x!r},"{text.replace(chr(34), chr(34) * 2)}"\r\n' for x, text in rows
    )
    for shift in range(4):  # so that ends of chunks fall on every byte of a character
        table = read_table(write_text(tmp_path, "\n" * shift + content), id_column="key")
        assert table.values[:, 0].tolist() == [x for x, _ in rows]
        assert table.ids == [text for _, text in rows]


def test_a_file_is_not_loaded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 1000)
    path = write_text(tmp_path, "a,b\n" + "1,2\n" * 50_000 + "1,2,oops\n")
    blocks = open_table(path).blocks(["a", "b"], block_rows=100)
    assert next(blocks).shape == (100, 2)  # before the error in the last line is met
    with pytest.raises(TableError, match="row 50001: found 3 values"):
        list(blocks)


# ------------------------------------------------------------------------------ text


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2.5\n3,4\n",
        "a,b\n1,2.5\n3,4",
        "a;b\n1;2.5\n3;4\n",
        "a;b\n1;2,5\n3;4\n",
        "a\tb\n1\t2,5\n3\t4\n",
        "a|b\n1|2.5\n3|4\n",
        "a b\n1 2.5\n3 4\n",
        "a b\n1 2,5\n3 4\n",
        "  a \t b\n 1   2.5\n3\t4  \n",
        '"a" "b"\n"1" "2.5"\n"3" "4"\n',
        "a,b\r\n1,2.5\r\n3,4\r\n",
        "a,b\r1,2.5\r3,4\r",
        "a,b\n1,2.5\n3,4\n\n\n",
        "a,b\n1,2.5\n3,4\n   \n \n",
        "\n\na,b\n1,2.5\n\n3,4\n",
        "a,b\n1,2.5\n  \n3,4\n",
        "a, b\n1, 2.5\n3 ,4\n",
        '"a","b"\n"1","2.5"\n3,4\n',
        "\ufeffa,b\n1,2.5\n3,4\n",
        '\ufeff"a","b"\n1,2.5\n3,4\n',
        "a,b\n+1,25e-1\n3.,.4E+1\n",
    ],
)
def test_layouts(tmp_path: Path, content: str) -> None:
    table = read_table(write_text(tmp_path, content))
    assert table.names == ("a", "b")
    assert table.values.tolist() == [[1.0, 2.5], [3.0, 4.0]]


@pytest.mark.parametrize("content", ["1,2.5\n3,4\n", "1;2,5\n3;4", " 1 2.5\n 3 4\n", "1,2.5\r3,4"])
def test_without_header(tmp_path: Path, content: str) -> None:
    table = read_table(write_text(tmp_path, content))
    assert table.names == ("feature_1", "feature_2")
    assert table.values.tolist() == [[1.0, 2.5], [3.0, 4.0]]


def test_a_single_name_makes_a_header(tmp_path: Path) -> None:
    assert read_table(write_text(tmp_path, "1990,x,1992\n1,2,3\n")).names == ("1990", "x", "1992")


def test_one_column(tmp_path: Path) -> None:
    assert values_of(tmp_path, "x\n1\n2\n\n\n") == [[1.0], [2.0]]
    assert values_of(tmp_path, "5") == [[5.0]]


def test_columns_without_a_name_get_one(tmp_path: Path) -> None:
    table = read_table(write_text(tmp_path, ",x\nr1,1\nr2,2\n"), id_column="column_1")
    assert (table.names, table.ids) == (("x",), ["r1", "r2"])


def test_quoted_text_may_hold_anything(tmp_path: Path) -> None:
    content = 'x,"the\nname"\n1,"a, ""b""\nc;d|e\tf"\n2,5" pipe\n'
    table = read_table(write_text(tmp_path, content), id_column="the\nname")
    assert table.ids == ['a, "b"\nc;d|e\tf', '5" pipe']
    assert table.values.tolist() == [[1.0], [2.0]]


def test_missing_labels_are_empty(tmp_path: Path) -> None:
    content = "x,kind\n1,a\n2,\n3,NA\n4, NaN \n5,?\n6,None\n"
    table = read_table(write_text(tmp_path, content), label_column="kind")
    assert table.labels == ["a", "", "", "", "", "None"]
    assert (table.label_name, table.ids) == ("kind", None)


@pytest.mark.usefixtures("small_chunks")
def test_decimal_commas_that_come_late(tmp_path: Path) -> None:
    content = "a;b\n" + "1;2\n" * 100 + "1,5;2\n" + "3;4,25\n" * 100
    values = np.array(values_of(tmp_path, content))
    assert values.sum(axis=0).tolist() == [100 + 1.5 + 300, 200 + 2 + 425]


def test_tabs_alone_are_a_row_of_missing_values(tmp_path: Path) -> None:
    values = np.array(values_of(tmp_path, "a\tb\n1\t2\n\t\n \n3\t4\n"))
    np.testing.assert_array_equal(values, [[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]])


def test_the_layout_is_that_of_most_lines() -> None:
    assert text_files.find_layout("a,b,c\n1,2,x;y\n1,2,x;y\n1,2\n").delimiter == ","
    assert text_files.find_layout("a;b\n1,5;2,5\n").delimiter == ";"
    assert text_files.find_layout("a,b\n" + "1,x|1|1\n" * 9).delimiter == ","
    words = "a\tb\tc\tkey\n" + "1\t2\t3\trow 0 1\n" * 19 + "1\t2\t3\n"
    assert text_files.find_layout(words).delimiter == "\t"
    assert text_files.find_layout("name x,y\nhello world,1\ngood day,2\n").delimiter == ","


@given(st.text("ab \t\n", max_size=30))
def test_squeezing_is_the_same_with_quotes_and_without(text: str) -> None:
    data = text.encode()
    expected = b"\n".join(b"\t".join(line.split()) for line in data.split(b"\n"))
    assert text_files.squeeze_white(data) == expected
    assert text_files.squeeze_white(data + b'\n" \t"') == expected + b'\n" \t"'


WORDS = st.text("ab,;|\"' é\n\t", max_size=6)
NUMBERS = st.floats(-1e100, 1e100)


@st.composite
def text_tables(draw: st.DrawFn) -> tuple[bytes, list[str], np.ndarray, list[str] | None, bool]:
    """Return a text file, and what should be read from it."""
    delimiter = draw(st.sampled_from(",;\t| "))
    # The csv module does not quote what only we take for a line end or white space.
    every = delimiter == " " or draw(st.booleans())
    header = draw(st.booleans())
    n_rows, n_columns = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    row = st.lists(NUMBERS, min_size=n_columns, max_size=n_columns)
    values = np.array(draw(st.lists(row, min_size=n_rows, max_size=n_rows)))
    ids = None
    if header and draw(st.booleans()):
        ids = draw(st.lists(WORDS, min_size=n_rows, max_size=n_rows))
        if not every or delimiter == " ":  # blocks end at line ends where white space delimits
            ids = [text.replace("\n", "").replace("\t", "") for text in ids]
    names = [f"column {chr(97 + j)}" for j in range(n_columns)]
    sign = "," if delimiter != "," and draw(st.booleans()) else "."
    rows = [[repr(value).replace(".", sign) for value in row] for row in values.tolist()]
    buffer = io.StringIO()
    ends = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
    writer = csv.writer(buffer, delimiter=delimiter, quoting=quoting, lineterminator=ends)
    if header:
        writer.writerow(names + ["id"] * (ids is not None))
    writer.writerows(row if ids is None else [*row, ids[i]] for i, row in enumerate(rows))
    text = buffer.getvalue() + ends * draw(st.integers(0, 2))
    content = text.encode("utf-8-sig" if draw(st.booleans()) else "utf-8")
    return content, names if header else [], values, ids, draw(st.booleans())


@settings(max_examples=250)
@always((b'"a" "id"\n"0.0" ";\n\t;"\n', ["a"], np.zeros((1, 1)), [";\n\t;"], False), 300)
@given(text_tables(), st.integers(200, 1200))
def test_any_text_table_is_read_back(case, block_bytes: int) -> None:
    content, names, values, ids, zipped = case
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(text_files, "_BLOCK_BYTES", block_bytes)
        path = Path(folder) / ("t.csv.gz" if zipped else "t.csv")
        path.write_bytes(gzip.compress(content) if zipped else content)
        table = read_table(path, id_column=None if ids is None else "id")
    np.testing.assert_array_equal(table.values, values)
    assert table.names == tuple(names or [f"feature_{j + 1}" for j in range(values.shape[1])])
    assert table.ids == (None if ids is None else [text.strip() for text in ids])


# ------------------------------------------------------------------------------ types


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_arrow_types(tmp_path: Path, ending: str) -> None:
    big = 2**60 + 1
    table = pa.table(
        {
            "bool": pa.array([True, False, True]),
            "int8": pa.array([-1, 0, 1], pa.int8()),
            "int64": pa.array([big, -big, 3], pa.int64()),
            "uint64": pa.array([2**64 - 1, 0, 1], pa.uint64()),
            "half": pa.array(np.array([0.5, 1, 2], np.float16)),
            "float": pa.array([0.5, 1, 2], pa.float32()),
            "decimal": pa.array([decimal.Decimal("1.25")] * 3, pa.decimal128(10, 2)),
            "text": pa.array(["1", " 2.5 ", "+3e2"]),
            "large": pa.array(["1", "2", "3"], pa.large_string()),
            "words": pa.array(["7", "8", "7"]).dictionary_encode(),
            "numbers": pa.array([5, 6, 5]).dictionary_encode(),
        }
    )
    path = tmp_path / f"t.{ending}"
    (pq.write_table if ending == "parquet" else pa.feather.write_feather)(table, path)
    expected = np.array(
        [
            [1, -1, float(big), 2.0**64, 0.5, 0.5, 1.25, 1, 1, 7, 5],
            [0, 0, -float(big), 0, 1, 1, 1.25, 2.5, 2, 8, 6],
            [1, 1, 3, 1, 2, 2, 1.25, 300, 3, 7, 5],
        ]
    )
    np.testing.assert_array_equal(read_table(path).values, expected)


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow has no string views")
def test_views_of_text(tmp_path: Path) -> None:
    column = pa.array(["1", "2.5", " 3"], pa.string_view())
    pa.feather.write_feather(pa.table({"x": column, "key": column}), tmp_path / "t.feather")
    table = read_table(tmp_path / "t.feather", id_column="key")
    assert table.values[:, 0].tolist() == [1.0, 2.5, 3.0]
    assert table.ids == ["1", "2.5", "3"]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1, None, 3]), ["1", "", "3"]),
        (pa.array([1.0, float("nan"), 2.5]), ["1", "", "2.5"]),
        (pa.array([True, False, None]), ["True", "False", ""]),
        (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b", ""]),
        (
            pa.array([0, 86_400_000_000_001, None], pa.timestamp("ns")),
            ["1970-01-01 00:00:00.000000000", "1970-01-02 00:00:00.000000001", ""],
        ),
        (pa.array([[1, 2], [], None]), ["[1, 2]", "[]", ""]),
    ],
)
def test_ids_of_any_type(tmp_path: Path, column: pa.Array, texts: list[str]) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "key": column}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", id_column="key")
    assert table.values[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert table.ids == texts


def test_labels_of_a_numpy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([[0.5, 1.0], [0.25, 2.0], [1.0, np.nan]]))
    table = read_table(tmp_path / "t.npy", label_column="feature_2")
    assert table.values.tolist() == [[0.5], [0.25], [1.0]]
    assert table.labels == ["1", "2", ""]


def test_names_with_dots_and_spaces_in_parquet(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1.0], "a": [2.0], " c d": [3.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet", columns=[" c d", "a.b"])
    assert read.values.tolist() == [[3.0, 1.0]]


# ------------------------------------------------------------------------------ columns


def test_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    content = "a,b,c,d\n1,2,3,4\n"
    assert values_of(tmp_path, content, columns=["c", "a"]) == [[3.0, 1.0]]
    assert values_of(tmp_path, content, id_column="b", label_column="a") == [[3.0, 4.0]]
    assert values_of(tmp_path, "a,b\n1,x\n", columns=["a"]) == [[1.0]]
    reader = open_table(write_text(tmp_path, content))
    assert reader.choose_features([], ["a", "d"]) == ["b", "c"]
    assert reader.choose_features([], ["b"]) == ["a", "c", "d"]


def test_names_without_their_endings() -> None:
    names = ("a/new.rows.csv", "new.rows.TSV.gz", "new.rows.parquet", "new.rows.npz", "new.rows")
    assert {without_ending(name) for name in names} == {"new.rows"}


def test_a_first_line_with_fractions_is_a_row() -> None:
    assert not text_files.find_layout("5.1,3.5,setosa\n4.9,3.0,setosa\n").n_skipped
    assert text_files.find_layout("country,2019,2020\nPeru,1.5,2.5\n").n_skipped
    assert text_files.find_layout("name,x\nPeru,1.5\n").n_skipped


def test_spaces_within_words_are_no_delimiter() -> None:
    assert text_files.find_layout("a b,c d\n0 %,1 %\n2 %,1 %\n").delimiter == ","
    spaced = "a b c\n1,5 2,5 3,5\n1,5 2,5 3,0\n"
    assert text_files.find_layout(spaced).delimiter == text_files.WHITE
