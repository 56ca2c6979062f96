"""Compiled programs: few for many shapes, and kept for the next Python process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

from sgpmic import EM, SGPMIC
from sgpmic._programs import compiled, folder, traces
from sgpmic.kernels import RBF
from sgpmic.learning.em import Parameters, em_round
from sgpmic.learning.prediction import projection

QUICK = {
    "committee": None,
    "n_inducing": 10,
    "max_iter": 1,
    "em": EM(m_steps=2),
    "random_state": 0,
}


@pytest.fixture(scope="module")
def few_shapes() -> None:
    """Leave the grid of shapes as users have it."""


def digits(n_rows: int) -> np.ndarray:
    rows: np.ndarray = load_digits().data[:n_rows, 8:24]
    return rows


@pytest.mark.filterwarnings("ignore")
def test_few_programs_for_many_shapes() -> None:
    """For k = 2…10 and N = 100…1000 on one table; predictions of any number of rows."""
    em_round.clear_cache()
    for n_clusters, n_rows in zip(
        range(2, 11), [100, 150, 256, 257, 400, 505, 700, 999, 1000], strict=True
    ):
        model = SGPMIC(n_clusters, **QUICK).fit(digits(n_rows))
        assert model.memberships_.shape == (n_rows, n_clusters)
        assert model.covariances_.shape == (n_clusters, 2, 2)
    assert len(em_round) <= 4
    programs = (projection._start_block, projection._newton_block)
    # Fitted rows that are left out have programs of their own.
    assert np.isfinite(model.unusual_below_)
    for program in programs:
        program.clear_cache()
    for n_rows in (1, 7, 128, 600):
        model.score_samples(digits(n_rows) + 0.5)
    SGPMIC(4, **QUICK).fit(digits(120)).predict(digits(20) + 0.5)
    assert [len(program) for program in programs] == [1, 1]


@pytest.mark.filterwarnings("ignore")
def test_padding_changes_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fit without padded features and clusters, and with the rows in one exact block."""
    Y = digits(120)[:, 1:7]
    settings = QUICK | {"max_iter": 2, "em": EM(m_steps=3)}
    padded = SGPMIC(3, **settings).fit(Y)
    monkeypatch.setattr("sgpmic.model.rows.MOST_PADDED_ROWS", 0)
    exact = SGPMIC(3, **settings).set_params(computation__block_size=120).fit(Y)
    assert padded.lower_bound_ == pytest.approx(exact.lower_bound_, rel=1e-5)
    # Line searches amplify rounding.
    np.testing.assert_allclose(padded.embedding_, exact.embedding_, atol=5e-3)
    np.testing.assert_allclose(padded.memberships_, exact.memberships_, atol=1e-2)


SCRIPT = """
import warnings; warnings.simplefilter("ignore")
import jax, numpy as np
from jax import monitoring
from sgpmic import EM, SGPMIC
from sgpmic.learning import em
traced, settle = [], em.settle
def settle_and_note(*args):
    traced.append(1)
    return settle(*args)
em.settle = settle_and_note
counts = {}
def count(event, **_):
    counts[event] = counts.get(event, 0) + 1
monitoring.register_event_listener(count)
Y = np.random.default_rng(0).normal(size=(60, 3))
model = SGPMIC(2, committee=None, max_iter=1, n_inducing=5, em=EM(m_steps=2), random_state=0).fit(Y)
model.predict(Y + 1.0)
assert jax.config.jax_compilation_cache_dir is None
print(counts.get("/jax/compilation_cache/cache_hits", 0),
      counts.get("/jax/compilation_cache/cache_misses", 0), len(traced), model.lower_bound_)
"""


def run(cache: str) -> tuple[int, int, int, str]:
    """Fit in a process of its own.

    Return programs found, programs compiled, how often a round was traced, and the bound.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMP")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment | {"SGPMIC_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found, compiled, traced, bound = done.stdout.split()
    return int(found), int(compiled), int(traced), bound


def test_a_second_process_traces_and_compiles_nothing(tmp_path: Path) -> None:
    found, compiled, traced, bound = run(str(tmp_path))
    assert (found, compiled > 3, traced) == (0, True, 1)
    # What a killed process has left of a program is compiled again, without a word.
    (damaged,) = tmp_path.rglob("jit_first_state-*")
    whole = damaged.stat().st_size
    damaged.write_bytes(damaged.read_bytes()[:100])
    found, recompiled, traced, same = run(str(tmp_path))
    assert (found, traced, same) == (compiled - 1, 0, bound)
    # Once before it is found to be damaged, and once more: nothing else is compiled.
    assert 1 <= recompiled <= 2
    assert damaged.stat().st_size == pytest.approx(whole, rel=0.01), "the next one finds it whole"
    # The same without a folder, to the last bit.
    found, _, traced, same = run("")
    assert (found, traced, same) == (0, 1, bound)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(folder.CACHE_VARIABLE, str(tmp_path))
    folder.cache_folder.cache_clear()
    kept = folder.cache_folder()
    assert kept is not None
    yield kept
    folder.cache_folder.cache_clear()


class Pair(NamedTuple):
    """Not ours: it may change while its name stays."""

    first: jax.Array
    second: jax.Array


def test_only_what_has_our_own_classes_is_traced_for_good(own_folder: Path) -> None:
    @compiled()
    def swap(pair: Pair) -> Pair:
        return Pair(pair.second, pair.first)

    @compiled(static_argnames="times")
    def scale(kernel: RBF, times: int) -> tuple[RBF, None]:
        return jax.tree.map(lambda leaf: leaf * times, kernel), None

    assert swap(Pair(np.ones(2), np.zeros(2))).first.tolist() == [0.0, 0.0]
    assert not list(own_folder.glob("traced_*"))
    kernel = jax.tree.map(np.asarray, RBF(variance=2.0, gamma=3.0))
    for times in (2, 5, 2):
        scaled, nothing = scale(kernel, times)
        assert (float(scaled.variance), float(scaled.gamma)) == (2.0 * times, 3.0 * times)
        assert (type(scaled), nothing) == (RBF, None)
    assert len(list(own_folder.glob("traced_scale-*"))) == len(scale) == 2


def test_what_is_spread_over_devices_is_traced_by_jax(own_folder: Path) -> None:
    @compiled()
    def double(x: jax.Array) -> jax.Array:
        return 2.0 * x

    mesh = jax.make_mesh((2,), ("rows",))
    spread = jax.device_put(np.ones(4), NamedSharding(mesh, PartitionSpec("rows")))
    for x, n_devices in ((np.ones(4), 1), (spread, 2), (np.ones(4), 1)):
        found = double(x)
        assert (found.sum(), len(found.sharding.device_set)) == (8.0, n_devices)
    assert len(double) == 2
    assert len(list(own_folder.glob("traced_double-*"))) == 1


def test_a_damaged_trace_is_made_again(own_folder: Path) -> None:
    @compiled()
    def add_one(x: jax.Array) -> jax.Array:
        return x + 1.0

    add_one(np.ones(3))
    (path,) = own_folder.glob("traced_add_one-*")
    whole = path.read_bytes()
    forged = whole.replace(b'"array"', b'{"tuple": "os:abort"}')
    for content in (whole[:-9], b"", forged, whole.replace(b"on_arrays", b"at_arrays")):
        assert content != whole
        path.write_bytes(content)
        add_one.clear_cache()
        assert add_one(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert path.read_bytes() != content
        # It differs in the places of the source that it was traced from.
        assert len(path.read_bytes()) == pytest.approx(len(whole), rel=0.1)


def test_other_source_or_settings_have_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def name() -> str:
        return traces._key(digits, (np.ones(3),), {})

    before = name()
    assert name() == before
    with jax.numpy_dtype_promotion("strict"):
        assert name() != before
    monkeypatch.setattr(traces, "_source", lambda: "changed")
    assert name() != before


def test_results_are_rebuilt_with_their_classes() -> None:
    parameters = Parameters(np.ones((4, 2)), np.ones((3, 2)), RBF(ard=True, gamma=np.ones(2)), 1.0)
    parameters = jax.tree.map(np.asarray, parameters)
    rebuilt = traces._rebuild(traces._describe((parameters, None)))
    assert jax.tree.structure(rebuilt) == jax.tree.structure((parameters, None))


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.CACHE_VARIABLE, "")
    folder.cache_folder.cache_clear()
    try:
        assert folder.cache_folder() is None
        with folder.kept_programs() as used:
            assert not used
    finally:
        folder.cache_folder.cache_clear()


def test_a_users_own_cache_is_left_alone(tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        with folder.kept_programs() as used:
            assert not used
            assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_folder_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"program-{number}"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    folder._prune(tmp_path, most=250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program-3", "program-4"]


def test_pythons_that_pack_programs_differently_do_not_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(folder.CACHE_VARIABLE, str(tmp_path))
    folders = []
    for version in ((3, 13), (3, 14)):
        monkeypatch.setattr(folder, "sys", SimpleNamespace(version_info=version))
        folders.append(folder.cache_folder.__wrapped__())
    assert None not in folders
    assert folders[0] != folders[1]
