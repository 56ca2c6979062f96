"""Small files that say they are large: refused before anything is made of what they say."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from sgpmic.storage import model_file
from sgpmic.storage.model_file import ModelFileError, free_in_container, read_model, write_model
from sgpmic.tables import errors
from sgpmic.tables.dataset import read_table
from sgpmic.tables.errors import TableError

#: Reads a table in a process that may use so much memory, and reports how much it did.
READ = """
import re, resource, sys
from pathlib import Path
from sgpmic.tables.dataset import read_table
from sgpmic.tables.errors import TableError
def most():
    try:  # what getrusage says begins with the memory of the process that started this one
        return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = most()
try:
    read_table(sys.argv[1])
except TableError as error:
    print((most() - before) >> 10)
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


def large_archive(path: Path) -> Path:
    path = path / "t.npz"
    np.savez_compressed(path, X=np.zeros((10**6, 100)))
    return path


def large_names(path: Path) -> Path:
    path = path / "t.npz"
    np.savez_compressed(path, X=np.zeros((5, 3)), names=np.zeros(3, "U100000000"))
    return path


def large_parquet(path: Path) -> Path:
    """Millions of equal rows are a few bytes."""
    path = path / "t.parquet"
    pq.write_table(pa.table({"a": np.zeros(10**8, np.int8)}), path)
    return path


def large_gzip(path: Path) -> Path:
    path = path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 50_000_000, 1))
    return path


#: The same of files that are as large as they say.
LARGE = (large_archive, large_names, large_parquet, large_gzip)


@pytest.mark.slow
@pytest.mark.parametrize("make", LARGE, ids=lambda make: make.__name__)
def test_what_does_not_fit_into_memory_is_not_read(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """On a machine where half a gigabyte is free."""
    path = make(tmp_path)
    before = "import sgpmic.tables.errors as errors; errors.free_memory = lambda: 2.0**29\n"
    done = subprocess.run(
        [sys.executable, "-c", before + READ, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    megabytes, sentence = done.stdout.split("\n", 1)
    assert "needs at least" in sentence
    assert "0.5 GiB are free" in sentence
    assert path.name in sentence
    assert int(megabytes) < 900


@pytest.mark.parametrize("ending", ["npz", "feather", "parquet"])
def test_only_what_is_asked_for_is_read(tmp_path: Path, ending: str) -> None:
    """An unused array or column of a gigabyte beside a small table."""
    path = tmp_path / f"t.{ending}"
    if ending == "npz":
        np.savez_compressed(path, X=np.ones((5, 2)), unused=np.zeros(2**27))
    else:
        words = pa.array(["x" * 2**20]).dictionary_encode()
        words = pa.DictionaryArray.from_arrays(np.zeros(2**10, np.int32), words.dictionary)
        table = pa.table({"a": np.arange(2.0**10), "unused": words.cast(pa.string())})
        if ending == "parquet":
            pq.write_table(table, path, compression="zstd")
        else:
            feather.write_feather(table, path, compression="zstd")
    assert path.stat().st_size < 2**22
    columns = "" if ending == "npz" else ", columns=['a']"
    code = READ.replace("sys.argv[1]", f"sys.argv[1]{columns}").replace(
        "except TableError as error:", "finally:"
    )
    done = subprocess.run(
        [sys.executable, "-c", code.replace("    print(error)\n", ""), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200


def test_free_memory_is_known_here() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < errors.free_memory() <= total


#: Small files, and why they are refused: with the memory at its limit, anything might be.
BOMBS = {
    no_rows: "more than 1000000 columns",
    one_wide_row: "more than 1000000 columns",
    archive_without_rows: "more than 1000000 columns",
    archive_of_promises: "does not fit into memory, or is damaged",
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
    with pytest.raises(ModelFileError, match="too long for its arrays"):
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


def test_a_model_file_with_gigabytes_behind_it_is_not_read(tmp_path: Path) -> None:
    """Nor one that says so: holes in a file take no place on the disk."""
    path, size = tmp_path / "m.sgpmic", 1 << 40
    write_model(path, {}, {"x": np.ones(4)})
    content = path.read_bytes()
    os.truncate(path, size)
    with pytest.raises(ModelFileError, match=r"needs 2048\.0 GiB of memory"):
        read_model(path)
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    table["x"] |= {"shape": [size // 8], "data_offsets": [0, size]}
    header = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + size)
    with pytest.raises(ModelFileError, match=r"needs 2048\.0 GiB of memory"):
        read_model(path)


@pytest.mark.parametrize(
    ("limits", "free"),
    [
        ({"": "max", "a": "max", "a/b": "max"}, float("inf")),
        ({"a": "max", "a/b": "1000"}, 1000 - 300 + 20),
        ({"a": "500", "a/b": "1000"}, 500 - 300 + 20),
        ({}, float("inf")),
    ],
)
def test_the_memory_of_a_container_is_what_is_free(
    tmp_path: Path, limits: dict[str, str], free: float
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/other\n0::/a/b\n")
    for group, limit in limits.items():
        folder = tmp_path / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text("300\n")
        (folder / "memory.stat").write_text("anon 280\ninactive_file 20\nactive_file 0\n")
    assert free_in_container(tmp_path) == free


def test_a_model_is_not_read_where_a_container_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.sgpmic"
    write_model(path, {}, {"x": np.ones(1000)})
    monkeypatch.setattr(model_file, "free_in_container", lambda: 10_000.0)
    with pytest.raises(ModelFileError, match="GiB are free"):
        read_model(path)
    monkeypatch.setattr(model_file, "free_in_container", lambda: 20_000.0)
    read_model(path)
