"""Model files: exact round trips, atomic writes, and clear refusals of everything else."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sgpmic.storage import model_file
from sgpmic.storage.model_file import ModelFileError, read_model, write_model

HEADER: dict[str, Any] = {"package": "0.1", "groups": 3, "tolerance": 0.1, "names": ["a", None]}
ARRAYS = {
    "weights": np.array([[0.5, -0.0], [np.nan, np.inf]]),
    "labels": np.array([1, 2, 3], np.int64),
    "empty": np.zeros((2, 0), np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.sgpmic"


@pytest.fixture
def written(path: Path) -> Path:
    write_model(path, HEADER, ARRAYS)
    return path


def assert_identical(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        # Bytes, because signs of zeros and payloads of NaNs count.
        assert found[name].tobytes() == array.tobytes()


def replace_document(path: Path, change: Any) -> None:
    """Rewrite the package's metadata through `change`, with safetensors itself."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["sgpmic"])
    arrays = safetensors.numpy.load(content)
    text = change(document, arrays)
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"sgpmic": text}))


def sealed(document: dict[str, Any]) -> str:
    document.pop("checksum", None)
    document["checksum"] = model_file._document_checksum(document)
    return json.dumps(document)


def assert_refused(path: Path, *words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for word in words:
        assert word in message


# ------------------------------------------------------------------------ round trips


def test_round_trip(written: Path) -> None:
    header, arrays = read_model(written)
    assert header == HEADER
    assert_identical(arrays, ARRAYS)
    assert all(array.flags.writeable for array in arrays.values())
    assert os.listdir(written.parent) == [written.name]


def test_nothing_at_all(path: Path) -> None:
    write_model(path, {}, {})
    assert read_model(path) == ({}, {})


#: Every type of numbers and truth values of up to eight bytes.
TYPES = sorted(np.dtype(code).name for code in "?bBhHiIqQefd")


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_and_its_extremes(path: Path, dtype: str) -> None:
    if dtype == "bool":
        array = np.array([True, False])
    elif np.issubdtype(dtype, np.integer):
        array = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    else:
        smallest = np.finfo(dtype).smallest_subnormal
        array = np.array([np.finfo(dtype).min, smallest, -0.0, np.nan, np.inf], dtype)
    arrays = {"many": array, "scalar": array[0], "none": array[:0], "zero-d": array[1].reshape(())}
    write_model(path, {}, arrays)
    assert_identical(read_model(path)[1], {k: np.asarray(v) for k, v in arrays.items()})


def test_arrays_that_do_not_lie_in_order(path: Path) -> None:
    base = np.arange(24.0).reshape(4, 6)
    arrays = {
        "transposed": base.T,
        "strided": base[::2, ::-3],
        "fortran": np.asfortranarray(base),
        "repeated": np.broadcast_to(np.float32(3), (2, 2)),
        "big-endian": base.astype(">f8"),
    }
    write_model(path, {}, arrays)
    _, found = read_model(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("=")


def test_tuples_become_lists_and_text_survives(path: Path) -> None:
    write_model(path, {"pair": (1, (2.5, "ß\u2603\ud800")), "n": 2**70}, {"größe": np.ones(1)})
    header, arrays = read_model(path)
    assert header == {"pair": [1, [2.5, "ß\u2603\ud800"]], "n": 2**70}
    assert list(arrays) == ["größe"]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
any_arrays = hnp.arrays(
    dtype=st.sampled_from(TYPES),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
array_names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8
)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    header=st.dictionaries(st.text(max_size=6), json_values, max_size=4),
    arrays=st.dictionaries(array_names, any_arrays, max_size=4),
)
def test_any_header_and_arrays_come_back(
    path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    write_model(path, header, arrays)
    found_header, found_arrays = read_model(path)
    assert found_header == header
    assert_identical(found_arrays, arrays)


# ------------------------------------------------------------------------ damage


def loads_identically_or_is_refused(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    try:
        header, arrays = read_model(path)
    except ModelFileError:
        return False
    assert header == HEADER
    assert_identical(arrays, ARRAYS)
    return True


def test_every_truncation_is_refused(written: Path) -> None:
    content = written.read_bytes()
    for length in range(len(content)):
        assert not loads_identically_or_is_refused(written, content[:length])
    assert loads_identically_or_is_refused(written, content)


def test_bytes_appended_are_refused(written: Path) -> None:
    written.write_bytes(written.read_bytes() + b"\0")
    assert_refused(written, "damaged")


@pytest.mark.slow
def test_every_single_bit_flip_is_noticed(written: Path) -> None:
    content = written.read_bytes()
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            loads_identically_or_is_refused(written, bytes(changed))


def test_random_damage_is_noticed(written: Path) -> None:
    content = written.read_bytes()
    generator = random.Random(1)
    for _ in range(1500):
        changed = bytearray(content)
        for _ in range(generator.randint(1, 12)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        if generator.random() < 0.3:
            cut = sorted(generator.sample(range(len(changed)), 2))
            del changed[cut[0] : cut[1]]
        loads_identically_or_is_refused(written, bytes(changed))


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(table=json_values | st.dictionaries(st.just("__metadata__") | st.text(), json_values))
def test_any_json_in_the_place_of_the_header_is_refused(path: Path, table: Any) -> None:
    text = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ModelFileError):
        read_model(path)


def test_changed_numbers_are_named(written: Path) -> None:
    content = bytearray(written.read_bytes())
    content[-1] ^= 1
    written.write_bytes(bytes(content))
    assert_refused(written, "damaged", "checksum of the array", "backup")


def test_a_huge_declared_length_is_not_allocated(path: Path) -> None:
    for length in (2**63, 2**64 - 1, 10**8 + 1, 10**8):
        path.write_bytes(struct.pack("<Q", length) + b"{}" * 10)
        assert_refused(path, "not an sgpmic model file")


def test_deeply_nested_json(path: Path) -> None:
    text = b'{"a":' + b"[" * 200_000
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    assert_refused(path, "damaged")


# ------------------------------------------------------------------------ other files


class _Explosive:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was executed",))


def foreign_files() -> dict[str, bytes]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.pkl", "x")
    array = io.BytesIO()
    np.save(array, np.ones(3))
    return {
        "pickle": pickle.dumps(_Explosive()),
        "zip": archive.getvalue(),
        "numpy": array.getvalue(),
        "text": b"cluster,mean\n1,2.5\n",
        "json": b'{"format": 1, "header": {}}',
        "zeros": bytes(100),
        "empty": b"",
        "safetensors": safetensors.numpy.save({"a": np.ones(2)}),
        "metadata": safetensors.numpy.save({"a": np.ones(2)}, metadata={"format": "pt"}),
    }


@pytest.mark.parametrize("kind", foreign_files())
def test_files_of_other_kinds(path: Path, kind: str) -> None:
    path.write_bytes(foreign_files()[kind])
    assert_refused(path, "not an sgpmic", "give the path of a file that sgpmic saved")


def test_newer_format(written: Path) -> None:
    replace_document(written, lambda document, _: sealed({**document, "format": 2}))
    assert_refused(written, "written by another sgpmic", "upgrade")


@pytest.mark.parametrize("version", [None, True, 0, "1", 1.0])
def test_no_sensible_format(written: Path, version: Any) -> None:
    replace_document(written, lambda document, _: sealed({**document, "format": version}))
    assert_refused(written, "format")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}"])
def test_description_is_not_what_it_should_be(written: Path, text: str) -> None:
    replace_document(written, lambda *_: text)
    assert_refused(written, "damaged")


@pytest.mark.parametrize("key", ["header", "checksums"])
def test_incomplete_description(written: Path, key: str) -> None:
    def without(document: dict[str, Any], _: Any) -> str:
        del document[key]
        return sealed(document)

    replace_document(written, without)
    assert_refused(written, f"it has no '{key}'")


def test_missing_and_unknown_arrays(written: Path) -> None:
    content = written.read_bytes()

    def without(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
        del arrays["labels"]
        return json.dumps(document)

    replace_document(written, without)
    assert_refused(written, "'labels'")

    def with_another(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
        arrays["another"] = np.ones(1)
        return json.dumps(document)

    written.write_bytes(content)
    replace_document(written, with_another)
    assert_refused(written, "'another'")


def test_changed_header(written: Path) -> None:
    def edit(document: dict[str, Any], _: Any) -> str:
        document["header"]["groups"] = 4
        return json.dumps(document)

    replace_document(written, edit)
    assert_refused(written, "checksum of the model description")


def test_operating_system_errors_keep_their_kind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_model(tmp_path / "nothing")
    assert caught.value.filename == str(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_model(tmp_path)
    with pytest.raises(IsADirectoryError):
        write_model(tmp_path, HEADER, ARRAYS)
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_model(tmp_path / "no folder" / "model", HEADER, ARRAYS)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        read_model(tmp_path / "file" / "model")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_does_not_hang(path: Path) -> None:
    os.mkfifo(path)
    assert_refused(path, "not a regular file")


# ------------------------------------------------------------------------ what is not written


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"a": np.ones(2)}, "type ndarray"),
        ({"a": [1, {"b": {1, 2}}]}, "type set"),
        ({"a": float("nan")}, "Out of range float"),
        ({"a": np.int64(3)}, "type int64"),
    ],
)
def test_headers_that_are_refused(written: Path, header: dict[str, Any], word: str) -> None:
    before = written.read_bytes()
    with pytest.raises(ModelFileError) as caught:
        write_model(written, header, {})
    assert word in str(caught.value)
    assert written.read_bytes() == before


def test_a_header_that_contains_itself(path: Path) -> None:
    header: dict[str, Any] = {}
    header["self"] = header
    with pytest.raises(ModelFileError, match="Circular"):
        write_model(path, header, {})


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("objects", np.array([None, "a"], dtype=object)),
        ("text", np.array(["a"])),
        ("complex", np.ones(2, complex)),
        ("dates", np.array(["2020-01-01"], "M8[D]")),
        ("records", np.zeros(2, [("a", "f8")])),
    ],
)
def test_arrays_that_are_refused(path: Path, name: str, array: np.ndarray) -> None:
    with pytest.raises(ModelFileError, match="was not written"):
        write_model(path, {}, {name: array})
    assert not path.exists()


# ------------------------------------------------------------------------ atomic


@pytest.mark.parametrize(
    ("owner", "function"),
    [(os, "replace"), (os, "fsync"), (safetensors.numpy, "save")],
)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    function: str,
    error: BaseException,
) -> None:
    before = written.read_bytes()

    def fail(*args: Any, **options: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, function, fail)
        with pytest.raises(type(error)):
            write_model(written, {"new": True}, {})
    assert written.read_bytes() == before
    assert os.listdir(written.parent) == [written.name]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind root"
)
def test_a_read_only_folder(written: Path) -> None:
    before = written.read_bytes()
    written.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="check the folder"):
            write_model(written, {"new": True}, {})
    finally:
        written.parent.chmod(0o700)
    assert written.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX")
def test_permissions_and_links_are_kept(written: Path) -> None:
    written.chmod(0o600)
    link = written.with_name("link")
    link.symlink_to(written)
    write_model(link, {"new": True}, {})
    assert link.is_symlink()
    assert read_model(written)[0] == {"new": True}
    assert written.stat().st_mode & 0o777 == 0o600
