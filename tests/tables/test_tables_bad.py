"""Bad tables: one sentence with the place and a remedy, and never any other exception."""

from __future__ import annotations

import builtins
import errno
import functools
import gzip
import io
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tables import read_table

from sgpmic.tables import text_files
from sgpmic.tables.conversions import column_words
from sgpmic.tables.dataset import ColumnOptions, Dataset
from sgpmic.tables.errors import TableError
from sgpmic.tables.reader import TableReader, open_table


def complaint(folder: Path, content: str | bytes, name: str = "t.csv", **options) -> str:
    """Return what is said about a file, without the folder's name."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return complaint_about(path, **options)


def complaint_about(path: Path, **options) -> str:
    with pytest.raises(TableError) as caught:
        read_table(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


def parquet_complaint(folder: Path, columns: dict[str, object], **options) -> str:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return complaint_about(folder / "t.parquet", **options)


# ------------------------------------------------------------------------------ files


def test_no_file(tmp_path: Path) -> None:
    expected = "t.csv: there is no such file; check the path"
    assert complaint_about(tmp_path / "t.csv") == expected
    (tmp_path / "file").write_text("a\n1\n")
    assert "there is no such file" in complaint_about(tmp_path / "file" / "t.csv")
    with pytest.raises(TableError, match="no such file"):
        open_table("a\0b.csv")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    assert complaint_about(tmp_path / "t.csv").startswith("t.csv is not a regular file")


def test_not_a_regular_file() -> None:
    assert complaint_about(Path("/dev/null")).startswith("null is not a regular file")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    real = builtins.open

    def refuse(file, *args, **kwargs):  # an administrator may read anything, so chmod would not do
        if str(file) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", refuse)
    expected = "t.csv cannot be read (Permission denied); check its permissions and the disk"
    assert complaint_about(path) == expected


ENDINGS = ("csv", "tsv", "txt", "csv.gz", "parquet", "pq", "feather", "arrow", "ipc", "npy", "npz")


@pytest.mark.parametrize("ending", [*ENDINGS, "other"])
def test_empty_file(tmp_path: Path, ending: str) -> None:
    expected = f"t.{ending} is empty; export the table again"
    assert complaint(tmp_path, b"", f"t.{ending}") == expected


@pytest.mark.parametrize("content", ["\n\n", " \n", "\ufeff", "\r\n", "\t\n"])
def test_blank_file(tmp_path: Path, content: str) -> None:
    assert complaint(tmp_path, content) == "t.csv is empty; export the table again"
    zipped = gzip.compress(content.encode())
    assert complaint(tmp_path, zipped, "t.csv.gz") == "t.csv.gz is empty; export the table again"


@pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\n\n \n", "a\n", '"a\nb",c\n'])
def test_header_only(tmp_path: Path, content: str) -> None:
    expected = "t.csv has columns but no rows; add at least one row of values"
    assert complaint(tmp_path, content) == expected


def test_no_rows_in_other_formats(tmp_path: Path) -> None:
    assert "has columns but no rows" in parquet_complaint(tmp_path, {"a": pa.array([], "f8")})
    np.save(tmp_path / "t.npy", np.empty((0, 3)))
    assert "has columns but no rows" in complaint_about(tmp_path / "t.npy")
    with pytest.raises(TableError, match="no rows"):
        list(open_table(tmp_path / "t.npy").blocks(["feature_1"]))


# ------------------------------------------------------------------------------ text


def test_ragged_rows(tmp_path: Path) -> None:
    rest = "correct the row, or quote text that contains the delimiter"
    short = complaint(tmp_path, "a,b,c\n1,2,3\n4,5\n")
    assert short == f"t.csv, row 2: found 2 values, expected 3; {rest}"
    long = complaint(tmp_path, "a;b\n1;2\n\n1;2;3\n")
    assert long == f"t.csv, row 2: found 3 values, expected 2; {rest}"
    after_quotes = complaint(tmp_path, 'a,b\n1,"2\n"\n"1,1",2\n1\n')
    assert after_quotes == f"t.csv, row 3: found 1 value, expected 2; {rest}"
    white = complaint(tmp_path, "a b\n 1  2\n3   4 5\n")
    assert white == f"t.csv, row 2: found 3 values, expected 2; {rest}"


def test_text_in_a_number_column(tmp_path: Path) -> None:
    expected = "t.csv: column 'kind of' is not numeric, it has 'red' (row 2): correct or empty"
    for end in ("\n", "\r\n", "\r"):
        message = complaint(tmp_path, end.join(["a,kind of", "1,2", "3,red", ""]))
        assert message.startswith(expected)
    odd = complaint(tmp_path, "a,kind of\n1,\n3,nan(red)\n")  # which Arrow takes for a number
    assert odd.startswith(expected.replace("red", "nan(red)"))
    two = complaint(tmp_path, "a,b,c\n1,2,3\n1,2,u\nv,2,3\n")
    assert "2 columns cannot be used: 'a' is not numeric, it has 'v' (row 3)" in two
    assert "'c' is not numeric, it has 'u' (row 2)" in two
    after_header = complaint(tmp_path, '\n \n"a\nb",c\n1,x\n')
    assert "column 'c' is not numeric, it has 'x' (row 1)" in after_header
    long = complaint(tmp_path, "a,b\n1," + "long " * 500 + "\n")
    assert len(long) < 150


@pytest.mark.parametrize("text", ["1_000", "0x10", "1.2.3", "--1", "1e", "١", "1 2"])
def test_what_is_not_a_number(tmp_path: Path, text: str) -> None:
    message = complaint(tmp_path, f"a,b\n1,2\n1,{text}\n")
    assert f"column 'b' is not numeric, it has {text!r} (row 2)" in message


@pytest.mark.parametrize("block_bytes", [40, 1000, 4 << 20])
@pytest.mark.parametrize("block_rows", [7, 16_384])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_right_far_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, block_rows: int, end: str
) -> None:
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(TableReader.blocks, "__defaults__", (block_rows,))
    good = f'1,"two{end}lines"{end}{end}2,x{end}'  # four lines, two rows
    head = f"n,key{end}" + good * 50
    text = complaint(tmp_path, f"{head}{end}oops,x{end}" + good, id_column="key")
    assert text.startswith("t.csv: column 'n' is not numeric, it has 'oops' (row 101)")
    ragged = complaint(tmp_path, f"{head}{end}1,x,3{end}" + good, id_column="key")
    assert ragged.startswith("t.csv, row 101: found 3 values, expected 2")


@pytest.mark.parametrize("word", ["", " ", "NA", "nan", "NaN", "null", "NULL", "N/A", '""', "#N/A"])
def test_missing_values_are_not_complained_about(tmp_path: Path, word: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,b\n1,2\n3,{word}\n{word},5\n")
    expected = [[1.0, 2.0], [3.0, np.nan], [np.nan, 5.0]]
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv").values, expected)


@pytest.mark.parametrize("word", ['""', "  ", "NA"])
def test_missing_values_in_a_single_column(tmp_path: Path, word: str) -> None:
    (tmp_path / "t.csv").write_text(f"x\n1\n{word}\n2\n")
    values = read_table(tmp_path / "t.csv").values
    np.testing.assert_array_equal(values, [[1.0], [np.nan], [2.0]])


@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e999", "INF"])
def test_infinite_values(tmp_path: Path, word: str) -> None:
    message = complaint(tmp_path, f"a,b\n1,2\n3,{word}\n")
    shown = "inf" if word == "1e999" else word  # what Arrow has read is shown as a number
    assert f"column 'b' is not numeric, it has '{shown}' (row 2): correct" in message


def test_names_twice(tmp_path: Path) -> None:
    assert complaint(tmp_path, "a,b,a,b\n1,2,3,4\n") == (
        "t.csv: columns 1 and 3 are both named 'a'; give every column its own name"
    )
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    pa.feather.write_feather(table, tmp_path / "t.feather")
    assert complaint_about(tmp_path / "t.feather").startswith(
        "t.feather: columns 1 and 2 are both named 'x'"
    )
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), names=np.array(["u", "u"]))
    assert "columns 1 and 2 are both named 'u'" in complaint_about(tmp_path / "t.npz")


def test_other_encodings(tmp_path: Path) -> None:
    latin = complaint(tmp_path, "a,b\n1,2\n3,caf\u00e9\n".encode("latin-1"))
    assert latin.startswith("t.csv is not text in UTF-8; save it as UTF-8, for instance with `ico")
    assert "`iconv -f CP1252 -t UTF-8 " in latin
    for delimiter in ", ":
        late = f"a{delimiter}b\n" + f"1{delimiter}2\n" * 30_000 + f"3{delimiter}caf\u00e9\n"
        assert complaint(tmp_path, late.encode("latin-1")) == latin
    assert "-f UTF-16 " in complaint(tmp_path, "a,b\n1,2\n".encode("utf-16"))
    assert "zero bytes" in complaint(tmp_path, "a,b\n1,2\n".encode("utf-16-le"))
    assert complaint(tmp_path, b"a,b\n1,\xc3") == latin


def test_rubbish_in_a_text_file(tmp_path: Path) -> None:
    rubbish = np.random.default_rng(0).bytes(5000)
    assert re.match(r"t\.csv (has zero bytes|is not text)", complaint(tmp_path, rubbish))


def test_unclosed_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "t.csv: a quote is never closed; close or remove it"
    content = 'a,b\n1,2\n3,"4\n' + "5,6\n" * 100
    assert complaint(tmp_path, content) == expected
    assert complaint(tmp_path, content.replace(",", " ")) == expected
    earlier = complaint(tmp_path, content.replace('3,"4', '"3,4'))
    assert earlier.startswith("t.csv, row 2: found 1 value, expected 2")
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 50)
    assert complaint(tmp_path, content).startswith("t.csv: a row is longer than")
    assert "a row is longer than" in complaint(tmp_path, "a b\n" + "1" * 101 + " 2\n")


def test_text_under_another_name_and_other_files_as_text(tmp_path: Path) -> None:
    for ending in ("parquet", "npy", "npz", "csv.gz", "xlsx", "json"):
        message = complaint(tmp_path, "a,b\n1,2\n", f"t.{ending}")
        assert message.startswith(f"t.{ending} is damaged or is not a")
    for ending in ("parquet", "npy", "npz"):
        message = complaint(tmp_path, sample(ending), "t.csv")
        assert message.startswith(("t.csv is not text in UTF-8", "t.csv has zero bytes"))
    message = complaint(tmp_path, b"\xfd7zXZ\x00\x00\x04", "t.csv.xz")
    assert message == "t.csv.xz has no known format; export the table as CSV or Parquet"


# ------------------------------------------------------------------------------ other formats


def test_truncated_gzip(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (5000, 2)).tolist()
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % tuple(row) for row in rows))
    for length in (11, len(whole) // 2, len(whole) - 1):
        message = complaint(tmp_path, whole[:length], "t.csv.gz")
        assert message.startswith("t.csv.gz is damaged or is not a gzip file (Compressed file end")
    changed = bytearray(whole)
    changed[-6] ^= 1  # in the checksum
    message = complaint(tmp_path, bytes(changed), "t.csv.gz")
    assert message.startswith("t.csv.gz is damaged or is not a gzip file (CRC check failed")


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrow", "npy", "npz"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_truncated_files(tmp_path: Path, ending: str, share: float) -> None:
    content = sample(ending)
    options = {} if ending in ("npy", "npz") else {"id_column": "key"}
    message = complaint(tmp_path, content[: int(share * len(content))], f"t.{ending}", **options)
    assert message.startswith(f"t.{ending} is damaged or is not a")
    assert message.endswith("; copy or export it again")


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (pa.array([0], pa.timestamp("us")), "'1970-01-01'"),
        (pa.array([0], pa.date32()), "'1970-01-01'"),
        (pa.array([0], pa.time64("us")), "'0'"),
        (pa.array([[1.0]]), "'a list, a record or bytes'"),
        (pa.array([{"x": 1.0}]), "'a list, a record or bytes'"),
        (pa.array([b"1"]), "'a list, a record or bytes'"),
        (pa.array([b"12"], pa.binary(2)), "'a list, a record or bytes'"),
    ],
)
def test_types_that_are_no_numbers(tmp_path: Path, column: pa.Array, cell: str) -> None:
    columns = {"x": pa.array([1.0]), "when": column}
    message = parquet_complaint(tmp_path, columns)
    assert message.startswith(f"t.parquet: column 'when' is not numeric, it has {cell} (row 1)")
    assert read_table(tmp_path / "t.parquet", columns=["x"]).values.tolist() == [[1.0]]


def test_places_in_other_formats(tmp_path: Path) -> None:
    column = pa.array(["1"] * 70_000 + ["x"])
    for text in (column, column.dictionary_encode()):
        message = parquet_complaint(tmp_path, {"a": text})
        assert message.startswith("t.parquet: column 'a' is not numeric, it has 'x' (row 70001)")
    for missing in (pa.array([1, None]), pa.array([True, None]), pa.array(["1", None])):
        pq.write_table(pa.table({"b": missing}), tmp_path / "t.parquet")
        values = read_table(tmp_path / "t.parquet").values
        np.testing.assert_array_equal(values, [[1.0], [np.nan]])
    values = np.ones((70_000, 2))
    values[69_999, 1] = np.inf
    np.save(tmp_path / "t.npy", values)
    message = complaint_about(tmp_path / "t.npy")
    assert message.startswith("t.npy: column 'feature_2' is not numeric, it has 'inf' (row 70000)")


def test_arrays_that_are_no_tables(tmp_path: Path) -> None:
    def about(array: np.ndarray, save=np.save, name: str = "t.npy", **arrays) -> str:
        save(tmp_path / name, array, **arrays)
        return complaint_about(tmp_path / name)

    for shape in ((3,), (1, 2, 3), (), (3, 0)):
        assert f"has shape {shape}; save an array of rows" in about(np.ones(shape))
    assert "holds complex128 values, not numbers" in about(np.ones((2, 2), complex))
    assert "holds <U1 values, not numbers" in about(np.array([["a"]]))
    assert "holds datetime64[D] values" in about(np.array([["2020-01-01"]], "M8[D]"))
    assert "holds [('x', '<f8')] values" in about(np.ones(2, [("x", "f8")]))
    objects = np.array([[1, "a"]], dtype=object)
    assert "Python objects" in about(objects)

    zipped = functools.partial(about, save=np.savez, name="t.npz")
    assert "Object arrays cannot be loaded" in zipped(objects)
    assert "array 'arr_0' has shape (3,)" in zipped(np.ones(3))
    message = zipped(np.ones((2, 2)), Z=np.ones((2, 2)))
    assert "holds 'Z', 'arr_0'; name the table X" in message
    for names in (["a"], ["a", "b", "c"], [["a", "b"]]):
        message = zipped(np.ones((2, 2)), names=np.array(names))
        assert "array 'names' does not name the 2 columns" in message
    message = zipped(np.ones((2, 2)), names=np.array(["a", "b"], object))
    assert "Object arrays cannot be loaded" in message
    np.savez(tmp_path / "t.npz")
    assert complaint_about(tmp_path / "t.npz").startswith("t.npz holds no array")


# ------------------------------------------------------------------------------ columns


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    content = "length,width,weight\n1,2,3\n"
    close = "t.csv has no column 'Lenght'; did you mean 'length'?"
    assert complaint(tmp_path, content, columns=["Lenght"]) == close
    far = "t.csv has no column 'zzz'; its columns are 'length', 'width', 'weight'"
    assert complaint(tmp_path, content, columns=["zzz"]) == far
    assert complaint(tmp_path, content, id_column="zzz") == far
    assert complaint(tmp_path, content, label_column="zzz") == far
    with pytest.raises(TableError, match="has no column 'zzz'"):
        open_table(tmp_path / "t.csv").choose_features([], ["zzz"])
    with pytest.raises(TableError, match="has no column 'zzz'"):
        next(open_table(tmp_path / "t.csv").blocks(["width", "zzz"]))
    many = ",".join(f"c{i}" for i in range(100)) + "\n" + ",".join("1" * 100)
    assert complaint(tmp_path, many, columns=["zzz"]).endswith("'c10', 'c11' and 88 more")


def test_several_columns_that_do_not_exist(tmp_path: Path) -> None:
    expected = "t.csv has no columns 'b', 'c'; its columns are 'a', 'B'"
    assert complaint(tmp_path, "a,B\n1,2\n", columns=["b", "a", "c"]) == expected


def test_columns_with_two_parts_to_play(tmp_path: Path) -> None:
    def about(**options) -> str:
        return complaint(tmp_path, "a,b,c\n1,2,3\n", **options)

    assert about(columns=["b", "b"]) == "t.csv: column 'b' is given twice; name it once"
    clash = "conflicting options for 'a'; choose one"
    for options in (
        ColumnOptions(ids=["a"], label="a"),
        ColumnOptions(ids=["a"], columns=["a", "b"]),
        ColumnOptions(label="a", columns=["b", "a"]),
        ColumnOptions(drop=["a"], columns=["b", "a"]),
    ):
        with pytest.raises(TableError, match=clash):
            Dataset(tmp_path / "t.csv", options)


def test_no_feature_left(tmp_path: Path) -> None:
    message = complaint(tmp_path, "a,b\n1,2\n", id_column="a", label_column="b")
    assert message == "t.csv: no feature column is left of 'a', 'b'; drop fewer"


# ------------------------------------------------------------------------------ fuzz


@functools.cache
def sample(ending: str) -> bytes:
    """Return a good file of a format."""
    values = np.random.default_rng(1).normal(size=(30, 2))
    table = pa.table(
        {
            "key": [f"é{i}" for i in range(30)],
            "a": values[:, 0],
            "b": pa.array(range(30), pa.int16()),
            "c": pa.array([str(i % 3) for i in range(30)]).dictionary_encode(),
        }
    )
    buffer = io.BytesIO()
    if ending in ("parquet", "pq"):
        kind = "snappy" if ending == "pq" else "none"
        pq.write_table(table, buffer, compression=kind, row_group_size=20)
    elif ending == "feather":
        pa.feather.write_feather(table, buffer)
    elif ending in ("arrow", "ipc"):
        new = pa.ipc.new_stream if ending == "arrow" else pa.ipc.new_file
        with new(buffer, table.schema) as writer:
            writer.write_table(table, max_chunksize=20)
    elif ending == "npy":
        np.save(buffer, values)
    elif ending == "npz":
        np.savez_compressed(buffer, X=values, names=np.array(["a", "b"]))
    else:
        delimiter = {"tsv": "\t", "txt": " "}.get(ending, ",")
        rows = [[f'"é, {i}"', repr(row[0]), str(i), "1"] for i, row in enumerate(values.tolist())]
        lines = [delimiter.join(row) for row in [["key", "a", "b", "c"], *rows]]
        text = "\r\n".join(lines).encode()
        return gzip.compress(text) if ending.endswith("gz") else text
    return buffer.getvalue()


def read_or_complain(ending: str, content: bytes) -> bool:
    """Return whether a file can be read; anything but a TableError is passed on."""
    numpy_file = ending in ("npy", "npz")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{ending}"
        path.write_bytes(content)
        try:
            table = read_table(path, id_column=None if numpy_file else "key")
            reader = open_table(path)
            raw = next(reader.blocks(reader.names))
            message = ""
        except TableError as error:
            message = str(error)
    if message:
        assert "\n" not in message
        assert len(message) < 600
        return False
    assert not np.isinf(table.values).any()
    assert raw.shape == (len(table.values), len(reader.names))
    assert numpy_file or column_words(raw.column("key")) == table.ids
    return True


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_samples_are_good(ending: str) -> None:
    assert read_or_complain(ending, sample(ending))


@settings(max_examples=300)
@given(st.sampled_from([*ENDINGS, "other"]), st.binary(min_size=1, max_size=200))
def test_random_bytes(ending: str, content: bytes) -> None:
    read_or_complain(ending, content)


@settings(max_examples=300)
@given(st.sampled_from(ENDINGS), st.text(',;\t| "\n\r1.5-e+aN\ufeffé', min_size=1, max_size=60))
def test_random_text(ending: str, content: str) -> None:
    read_or_complain(ending, content.encode())


@settings(max_examples=300)
@given(st.sampled_from(ENDINGS), st.floats(0, 1, exclude_max=True))
def test_truncations(ending: str, share: float) -> None:
    content = sample(ending)
    read_or_complain(ending, content[: int(share * len(content))])


FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1)


@settings(max_examples=600)
@given(st.sampled_from(ENDINGS), FLIPS)
def test_changed_bytes(ending: str, flips: list[tuple[float, int]]) -> None:
    content = bytearray(sample(ending))
    for share, bits in flips:
        content[int(share * len(content))] ^= bits
    read_or_complain(ending, bytes(content))
