"""Compiled programs: few for many shapes, and kept for the next Python process."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from sgpmic import EM, SGPMIC, compile_cache
from sgpmic.learning.em import em_iteration
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_few_programs_for_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For k = 2…10 and N = 100…1000 on one table; predictions of any number of rows."""
    em_iteration.clear_cache()
    for n_clusters, n_rows in zip(
        range(2, 11), [100, 150, 256, 257, 400, 505, 700, 999, 1000], strict=True
    ):
        model = SGPMIC(n_clusters, **QUICK).fit(digits(n_rows))
        assert model.memberships_.shape == (n_rows, n_clusters)
        assert model.covariances_.shape == (n_clusters, 2, 2)
    assert len(em_iteration) <= 4
    programs = (projection._start_block, projection._newton_block)
    # Fitted rows that are left out have programs of their own.
    assert np.isfinite(model.unusual_below_)
    for program in programs:
        program.clear_cache()
    monkeypatch.setitem(projection._STEPS, "cpu", (1, 40))  # hardly a row settles with one step
    monkeypatch.setattr(compile_cache, "_find_folder", lambda: None)  # traces have no weak types
    for n_rows in (1, 7, 128, 600):
        model.score_samples(digits(n_rows) + 0.5)
    # Clusters are padded to eight, sixteen, …
    SGPMIC(9, **QUICK).fit(digits(120)).predict(digits(20) + 0.5)
    assert [len(program) for program in programs] == [1, 1]


@pytest.mark.slow
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
traced, run_e_steps = [], em.run_e_steps
def run_and_note(*args):
    traced.append(1)
    return run_e_steps(*args)
em.run_e_steps = run_and_note
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

    Return programs found, programs compiled, how often an iteration was traced, and the bound.
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


@pytest.mark.slow
def test_a_second_process_traces_and_compiles_nothing(tmp_path: Path) -> None:
    found, compiled, traced, bound = run(str(tmp_path))
    assert (found, compiled > 3, traced) == (0, True, 1)
    # What a killed process has left of a program is compiled again, without a word.
    (damaged,) = tmp_path.rglob("jit_first_state_*")
    whole = damaged.stat().st_size
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert run(str(tmp_path)) == (compiled - 1, 1, 0, bound)
    assert damaged.stat().st_size == pytest.approx(whole, rel=0.01), "the next one finds it whole"
    # The same without a folder, to the last bit.
    found, _, traced, same = run("")
    assert (found, traced, same) == (0, 1, bound)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compile_cache.CACHE_VARIABLE, "")
    assert compile_cache._find_folder.__wrapped__() is None


def test_a_users_own_cache_is_left_alone(tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        with compile_cache.compilation_cache(tmp_path / "ours"):
            assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_folder_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"programs-{number % 2}" / f"program-{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    compile_cache._prune(tmp_path, most=250)
    assert sorted(path.name for path in tmp_path.rglob("program-*")) == ["program-3", "program-4"]


@pytest.mark.parametrize("what", ["python", "jax", "flags", "source"])
def test_other_environments_have_other_programs(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = compile_cache._environment.__wrapped__
    before = environment()
    assert environment() == before
    if what == "python":  # 3.14 packs programs differently
        monkeypatch.setattr(compile_cache.sys, "version_info", (3, 14))
    elif what == "jax":
        monkeypatch.setattr(compile_cache.jax, "__version__", "0.0")
    elif what == "flags":
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    else:
        monkeypatch.setattr(compile_cache, "__file__", str(tmp_path / "sgpmic" / "x.py"))
    assert environment() != before
