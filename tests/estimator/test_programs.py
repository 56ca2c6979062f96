"""Compiled programs: few for many shapes, and kept for the next Python process."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from sgpmic import EM, SGPMIC, _programs
from sgpmic.learning.em import em_round
from sgpmic.learning.prediction import projection

QUICK = {
    "committee": None,
    "n_inducing": 10,
    "max_iter": 1,
    "em": EM(m_steps=2),
    "random_state": 0,
}


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
    assert em_round._cache_size() <= 4
    projection._project_block.clear_cache()
    projection._peaks.clear_cache()
    for n_rows in (1, 7, 128, 300):
        model.score_samples(digits(n_rows) + 0.5)
    SGPMIC(4, **QUICK).fit(digits(120)).score_samples(digits(20) + 0.5)
    assert projection._project_block._cache_size() == 1
    assert projection._peaks._cache_size() == 1


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
counts = {}
def count(event, **_):
    counts[event] = counts.get(event, 0) + 1
monitoring.register_event_listener(count)
Y = np.random.default_rng(0).normal(size=(60, 3))
model = SGPMIC(2, committee=None, max_iter=1, n_inducing=5, em=EM(m_steps=2), random_state=0).fit(Y)
model.predict(Y + 1.0)
assert jax.config.jax_compilation_cache_dir is None
print(counts.get("/jax/compilation_cache/cache_hits", 0),
      counts.get("/jax/compilation_cache/cache_misses", 0), model.lower_bound_)
"""


def run(cache: str) -> tuple[int, int, str]:
    """Fit in a process of its own; return programs found, programs compiled, and the bound."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMP")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment | {"SGPMIC_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found, compiled, bound = done.stdout.split()
    return int(found), int(compiled), bound


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    found, compiled, bound = run(str(tmp_path))
    assert (found, compiled > 3) == (0, True)
    # What a killed process has left of a program is compiled again, without a word.
    (damaged,) = tmp_path.rglob("jit_first_state-*")
    whole = damaged.stat().st_size
    damaged.write_bytes(damaged.read_bytes()[:100])
    found, recompiled, same = run(str(tmp_path))
    assert (found, same) == (compiled - 1, bound)
    # Once before it is found to be damaged, and once more: nothing else is compiled.
    assert 1 <= recompiled <= 2
    assert damaged.stat().st_size == pytest.approx(whole, rel=0.01), "the next one finds it whole"


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_programs.CACHE_VARIABLE, "")
    _programs.cache_folder.cache_clear()
    try:
        assert _programs.cache_folder() is None
        with _programs._kept_programs() as used:
            assert not used
    finally:
        _programs.cache_folder.cache_clear()


def test_a_users_own_cache_is_left_alone(tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        with _programs._kept_programs() as used:
            assert not used
            assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_folder_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"program-{number}"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    _programs._prune(tmp_path, most=250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program-3", "program-4"]


def test_pythons_that_pack_programs_differently_do_not_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_programs.CACHE_VARIABLE, str(tmp_path))
    folders = []
    for version in ((3, 13), (3, 14)):
        monkeypatch.setattr(_programs, "sys", SimpleNamespace(version_info=version))
        folders.append(_programs.cache_folder.__wrapped__())
    assert None not in folders
    assert folders[0] != folders[1]
