"""The folder of compiled programs: what is planted, swapped, damaged, or not ours alone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax import export
from jax.sharding import NamedSharding, PartitionSpec

from sgpmic import compile_cache
from sgpmic.compile_cache import compiled
from sgpmic.exceptions import SGPMICWarning
from sgpmic.kernels import RBF


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of our own, in which JAX keeps what it compiles as well."""
    monkeypatch.setenv(compile_cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(compile_cache, "_programs", [])
    monkeypatch.setattr(compile_cache, "_given_up", False)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compile_cache._find_folder.cache_clear()
    found = compile_cache._find_folder()
    assert found is not None
    yield found
    jax.config.update("jax_compilation_cache_dir", before)
    compile_cache._find_folder.cache_clear()


class Counted:
    """The function x ** exponent, compiled, with the number of times that it was traced."""

    def __init__(self) -> None:
        self.traced = traced = [0]

        def power(x: jax.Array, exponent: int) -> jax.Array:
            traced[0] += 1
            return x**exponent

        self.program: Any = compiled(power)

    def __call__(self, exponent: int, x: Any = None) -> list[float]:
        """Return it at 2, as a new process would find it."""
        self.program.clear_cache()
        jax.clear_caches()
        result: list[float] = self.program(np.full(3, 2.0) if x is None else x, exponent).tolist()
        return result


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Counted:
    # It counts in a closure, which is not kept otherwise.
    monkeypatch.setattr(compile_cache, "_is_lasting", lambda *_: True)
    return Counted()


def files(folder: Path, what: str = "*") -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.glob(what))}


def test_a_new_process_finds_it(folder: Path, power: Counted) -> None:
    assert power(2) == [4.0] * 3
    before = files(folder)
    assert [path.name.partition("_")[0] for path in before] == ["jit", "trace"]
    assert power(2) == [4.0] * 3
    assert power.traced == [1]
    assert files(folder) == before


def test_nobody_else_can_read_or_write_it(folder: Path, power: Counted) -> None:
    power(2)
    assert {path.stat().st_mode & 0o777 for path in (folder.parent, folder)} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in files(folder)} == {0o600}


@pytest.mark.parametrize("kind", ["jit", "trace"])
def test_swapped_files_are_refused(folder: Path, power: Counted, kind: str) -> None:
    power(2)
    power(3)
    (first, one), (second, other) = files(folder, f"{kind}_*").items()
    first.write_bytes(other)
    second.write_bytes(one)
    assert (power(2), power(3)) == ([4.0] * 3, [8.0] * 3)


@pytest.mark.parametrize("kind", ["jit", "trace"])
def test_files_of_other_users_and_links_are_refused(
    folder: Path, power: Counted, kind: str
) -> None:
    power(2)
    for spoil in (
        lambda path: path.chmod(0o622),
        lambda path: path.rename(path.parent / "there") and path.symlink_to("there"),
        lambda path: os.chown(path, 12345, -1),
    ):
        (path,) = folder.glob(f"{kind}_*")
        try:
            spoil(path)
        except PermissionError:
            continue  # only root gives files away
        before = power.traced[0]
        assert power(2) == [4.0] * 3
        assert power.traced[0] == before + 1
        assert {p.lstat().st_uid for p in folder.iterdir()} == {os.getuid()}


@pytest.mark.parametrize("kind", ["jit", "trace"])
def test_damaged_files_are_made_again(folder: Path, power: Counted, kind: str) -> None:
    power(2)
    (path,) = folder.glob(f"{kind}_*")
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:-9], b"", flipped):
        path.write_bytes(content)
        assert power(2) == [4.0] * 3
        assert len(path.read_bytes()) == pytest.approx(len(whole), rel=0.1)


def test_traces_name_types_from_a_fixed_list_only(folder: Path) -> None:
    @compiled
    def scale(kernel: RBF, times: int) -> tuple[RBF, None]:
        return jax.tree.map(lambda leaf: leaf * times, kernel), None

    kernel = jax.tree.map(np.asarray, RBF(variance=2.0, gamma=3.0))
    for times in (2, 5, 2):
        scale.clear_cache()
        scaled, nothing = scale(kernel, times)
        assert (float(scaled.variance), float(scaled.gamma)) == (2.0 * times, 3.0 * times)
        assert (type(scaled), nothing) == (RBF, None)
    traces = files(folder, "trace_scale_*")
    assert len(traces) == 2
    trace = next(iter(traces.values()))[compile_cache._DIGEST_BYTES :]
    name, planted = b"sgpmic.kernels.RBF", b"sgpmic.jobs.launch"
    assert name in trace
    export.deserialize(bytearray(trace))
    with pytest.raises(ValueError, match=planted.decode()):
        export.deserialize(bytearray(trace.replace(name, planted)))


class Pair(NamedTuple):
    """Registered by nobody."""

    first: jax.Array
    second: jax.Array


def test_results_of_other_types_are_not_kept_as_traces(folder: Path) -> None:
    @compiled
    def swap(pair: Pair) -> Pair:
        return Pair(pair.second, pair.first)

    for _ in range(2):
        swap.clear_cache()
        assert swap(Pair(np.ones(2), np.zeros(2))).first.tolist() == [0.0, 0.0]
    (trace,) = files(folder, "trace_*").values()
    assert len(trace) == compile_cache._DIGEST_BYTES


def test_what_depends_on_more_than_its_arguments_is_not_kept(folder: Path) -> None:
    factor = 2.0

    @compiled
    def scale(x: jax.Array) -> jax.Array:
        return factor * x

    assert scale(np.ones(2)).tolist() == [2.0, 2.0]
    assert not files(folder)


def test_what_is_spread_over_devices_is_traced_by_jax(folder: Path) -> None:
    @compiled
    def double(x: jax.Array) -> jax.Array:
        return 2.0 * x

    mesh = jax.make_mesh((2,), ("rows",))
    spread = jax.device_put(np.ones(4), NamedSharding(mesh, PartitionSpec("rows")))
    for x, n_devices in ((np.ones(4), 1), (spread, 2), (np.ones(4), 1)):
        found = double(x)
        assert (found.sum(), len(found.sharding.device_set)) == (8.0, n_devices)
    assert len(double) == 2
    assert (
        len([t for t in files(folder, "trace_*").values() if len(t) > compile_cache._DIGEST_BYTES])
        == 1
    )


def test_a_program_is_prepared_in_the_background(folder: Path, power: Counted) -> None:
    shape = jax.ShapeDtypeStruct((3,), np.float64)
    with jax.enable_x64(True):
        assert power.program.prepare(shape, 2)
        assert not power.program.prepare(shape, 2)
        assert not power.program.prepare(np.full(3, 2.0), 2)
        assert power.program(np.full(3, 3.0), 2).tolist() == [9.0] * 3
    assert power.traced == [1]
    single = np.full(3, 2.0, np.float32)
    assert power.program.prepare(single, 2)
    assert power.program(single, 2).tolist() == [4.0] * 3


def test_an_exception_in_the_background_is_the_callers(
    folder: Path, power: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next call tries again."""
    proceed = threading.Event()

    def fail(*_: Any) -> Any:
        proceed.wait()
        raise MemoryError("full")

    with monkeypatch.context() as broken:
        broken.setattr(compile_cache, "_compile", fail)
        power.program.prepare(np.ones(3), 2)
        threading.Timer(0.1, proceed.set).start()
        with pytest.raises(MemoryError, match="full"):
            power.program(np.ones(3), 2)
    assert power.program(np.ones(3), 2).tolist() == [1.0] * 3


def test_options_that_xla_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, str | bool] = {"xla_backend_optimization_level": "2"}
    for asked in (known, known | {"xla_no_such_option": True}, {"xla_no_such_option": True}):
        monkeypatch.setattr(compile_cache, "_COMPILER_OPTIONS", {"cpu": asked})
        found = compile_cache.compiler_options.__wrapped__("cpu")
        assert found == {name: value for name, value in asked.items() if name in known}


def test_equal_numbers_of_different_types_are_different_programs() -> None:
    @compiled
    def kind(x: jax.Array, number: Any) -> Any:
        return x + (10 if isinstance(number, bool) else number)

    assert [float(kind(np.zeros(()), number)) for number in (1, True)] == [1.0, 10.0]


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, FloatingPointError, OSError])
def test_an_exception_in_a_program_is_the_callers(
    folder: Path, power: Counted, kind: type[BaseException]
) -> None:
    """It is not tried again, and no program is lost."""
    power(2)
    power(3)
    before, calls = files(folder), []

    def fail(*_: Any) -> None:
        calls.append(1)
        raise kind("full")

    (ready,) = power.program._begun
    power.program._begun[ready] = Future()
    power.program._begun[ready].set_result(fail)
    with pytest.raises(kind, match="full"):
        power.program(np.full(3, 2.0), 3)
    assert calls == [1]
    assert files(folder) == before


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, FloatingPointError])
def test_an_exception_while_tracing_is_the_callers(
    folder: Path, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "_is_lasting", lambda *_: True)
    calls = []

    def fail(x: jax.Array) -> jax.Array:
        calls.append(1)
        raise kind("full")

    with pytest.raises(kind, match="full"):
        compiled(fail)(np.ones(3))
    assert calls == [1]


@pytest.mark.slow
def test_of_many_threads_one_compiles(folder: Path, power: Counted) -> None:
    results: list[list[float]] = []
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        for round_ in range(20):
            results.append(power.program(np.full(3, 2.0), 2).tolist())
            if round_ % 5 == 4:
                compile_cache.clear_programs()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert results == [[4.0] * 3] * 160
    assert power.traced == [1]


def test_a_full_disk_is_said_once(
    folder: Path, power: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if folder in path.parents:
            write(path, content[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(SGPMICWarning, match="not cached: No space left") as said:
        assert (power(2), power(3)) == ([4.0] * 3, [8.0] * 3)
    assert len(said) == 1
    assert not files(folder), "half a program would be in the way"


FIT = """
import sys, warnings
import numpy as np
from sgpmic import EM, SGPMIC
Y = np.random.default_rng(0).normal(size=(40, 3))
model = SGPMIC(2, committee=None, max_iter=1, n_inducing=5, em=EM(m_steps=2), random_state=0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model.fit(Y)
said = [str(w.message) for w in said if "not cached" in str(w.message)]
print(len(said), repr(model.lower_bound_), *said)
"""


def start_fit(cache: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMP")}
    environment |= {compile_cache.CACHE_VARIABLE: str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", FIT],
        env=environment | options.pop("env", {}),
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def fit(cache: Path, **options: Any) -> tuple[int, str, str]:
    """Fit in a new process; return the number of warnings, the bound and what was said."""
    out, _ = start_fit(cache, **options).communicate(timeout=300)
    said, bound, *words = out.strip().split(maxsplit=2)
    return int(said), bound, "".join(words)


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the bound of four fits at once that share a folder which is not there yet."""
    cache = tmp_path_factory.mktemp("shared") / "not" / "there"
    processes = [start_fit(cache) for _ in range(4)]
    found = {process.communicate(timeout=600)[0] for process in processes}
    assert len(found) == 1, found
    said, bound = found.pop().split()
    assert said == "0"
    assert len(list(cache.glob("programs-*/trace_*"))) > 2
    return bound


@pytest.mark.slow
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, bound: str) -> None:
    tmp_path.chmod(0o777)
    said, same, words = fit(tmp_path)
    assert (said, same) == (1, bound)
    assert str(tmp_path) in words
    assert "chmod go-w" in words
    assert not list(tmp_path.rglob("*_*"))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives folders away")
@pytest.mark.parametrize("which", ["base", "programs"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, bound: str, which: str) -> None:
    given = tmp_path
    if which == "programs":
        given = tmp_path / f"programs-{compile_cache._environment()[:16]}"
        given.mkdir(mode=0o700)
    os.chown(given, 12345, -1)
    said, same, words = fit(tmp_path)
    assert (said, same) == (1, bound)
    assert str(given) in words
    assert not list(tmp_path.rglob("*_*"))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nobody can write to")
def test_a_read_only_folder_is_done_without(bound: str) -> None:
    """Of the kernel's, where even root can make no folder."""
    assert fit(Path("/proc/self")) == (0, bound, "")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a limit on the size of files")
def test_a_folder_that_cannot_hold_programs_is_done_without(tmp_path: Path, bound: str) -> None:
    def allow_small_files() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    said, same, words = fit(tmp_path, preexec_fn=allow_small_files)
    assert (said, same) == (1, bound)
    assert "File too large" in words
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.rglob("*_*"))


@pytest.mark.slow
def test_a_file_in_the_place_of_the_folder_is_done_without(tmp_path: Path, bound: str) -> None:
    (tmp_path / "cache").write_text("")
    assert fit(tmp_path / "cache") == (0, bound, "")
