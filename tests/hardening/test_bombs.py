"""Small files that say they are large: refused before anything is made of what they say."""

from __future__ import annotations

import gzip
import io
import json
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpmic.storage.model_file import ModelFileError, read_model, write_model
from sgpmic.tables.reader import TableError, read_table

#: Reads a table in a process that may use so much memory, and reports how much it did.
READ = """
import resource, sys
from sgpmic.tables.reader import TableError, read_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_table(sys.argv[1])
except TableError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
    print(error)
"""


def npy_header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def no_rows(path: Path) -> Path:
    path = path / "t.npy"
    path.write_bytes(npy_header((0, 10**9)))
    return path


def one_wide_row(path: Path) -> Path:
    """Twenty million columns of a byte each."""
    path = path / "t.npy"
    path.write_bytes(npy_header((1, 20_000_000), "|b1") + bytes(20_000_000))
    return path


def archive_without_rows(path: Path) -> Path:
    path = path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", npy_header((0, 10**9)))
    return path


def archive_of_promises(path: Path) -> Path:
    path = path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", npy_header((10**6, 10**3)) + bytes(1000))
    return path


def gzip_of_one_line(path: Path) -> Path:
    path = path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1," * 60_000_000 + b"1\n", 1))
    return path


def gzip_of_spaces(path: Path) -> Path:
    path = path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a " * 40_000_000 + b"1\n", 1))
    return path


#: Small files, and why they are refused: with the memory at its limit, anything might be.
BOMBS = {
    no_rows: "no rows",
    one_wide_row: "more than 1000000 columns",
    archive_without_rows: "no rows",
    archive_of_promises: "should have 8000000000 bytes",
    gzip_of_one_line: "more than 1000000 columns",
    gzip_of_spaces: "more than 1000000 columns",
}


@pytest.mark.parametrize("make", BOMBS, ids=lambda make: make.__name__)
def test_a_table_of_promises(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    limit = 6 << 30
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    megabytes, sentence = done.stdout.split("\n", 1)
    assert int(megabytes) < 600
    assert path.name in sentence
    assert BOMBS[make] in sentence


def test_sound_archives_are_read(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(4, 3)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "t.npz", X=values, names=np.array(["a", "b", "c"]))
        np.testing.assert_array_equal(read_table(tmp_path / "t.npz").values, values)


def test_a_header_of_megabytes_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "m.sgpmic"
    text = json.dumps({"format": 1, "header": {"x": [0] * 8_000_000}, "checksums": {}})
    header = json.dumps({"__metadata__": {"sgpmic": text}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(ModelFileError, match="too long for the arrays"):
        read_model(path)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 0.2
    with pytest.raises(ModelFileError, match="too long for its arrays"):
        write_model(path, {"x": "y" * 5_000_000}, {})
    # Many features have long headers, and many numbers.
    names = [f"feature number {i}" for i in range(200_000)]
    write_model(path, {"names": names}, {"rows": np.zeros((10, 200_000))})
    assert read_model(path)[0]["names"] == names


def test_flipped_bits_in_parquet_pages_are_noticed(tmp_path: Path) -> None:
    """Where the file has checksums, every flip in a page's data must be seen."""
    path = tmp_path / "t.parquet"
    rng = np.random.RandomState(0)
    values = rng.standard_normal(2000)
    pq.write_table(
        pa.table({"a": values}),
        path,
        write_page_checksum=True,
        use_dictionary=False,
        compression="none",
    )
    whole = path.read_bytes()
    first = whole.index(values[:1].tobytes())
    for place in rng.randint(first, first + 15_000, size=25):
        broken = bytearray(whole)
        broken[place] ^= 1 << rng.randint(8)
        path.write_bytes(broken)
        with pytest.raises(TableError, match="damaged"):
            read_table(path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(read_table(path).values[:, 0], values)
