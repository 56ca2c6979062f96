"""How the package behaves in a process: compilations, JAX's settings, two cores."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from sgpmic import SGPMIC, Committee
from sgpmic._runtime import SharedContext
from sgpmic.learning.em import em_iteration, first_state, last_e_step
from support.processes import of_one_device

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


def test_iterations_and_starts_are_compiled_once(table: Floats, quick_fit: Fit) -> None:
    em_iteration.clear_cache()
    quick_fit(table, max_iter=4, tol=0.0)
    assert len(em_iteration) == 1
    quick_fit(table, max_iter=2, start__n_init=3, random_state=5)
    quick_fit(table + 1.0, max_iter=2, start__embedding="pca", tol=0.1)
    assert len(em_iteration) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"committee": Committee()},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                {"n_clusters": 3, "committee": Committee()},
                {"n_clusters": 3, "gaps": True},
                {"n_clusters": 3, "mapping": "per_cluster", "kernel": "linear"},
                {"mapping": "per_cluster", "committee": Committee()},
                {"n_clusters": 3, "latent": "variational", "n_components": 0.9},
                {"n_clusters": 3, "start__memberships": "fcm", "committee": Committee()},
            )
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_programs_compiled_ahead_are_those_that_run(
    settings: dict[str, Any], table: Floats, quick_fit: Fit
) -> None:
    programs = (first_state, em_iteration, last_e_step)
    for program in programs:
        program.clear_cache()
    Y, settings = table.copy(), dict(settings)
    if settings.pop("gaps", False):
        Y[np.random.default_rng(0).random(Y.shape) < 0.1] = np.nan
    quick_fit(Y, settings.pop("n_clusters", "auto"), max_iter=1, **settings)
    assert [len(program) for program in programs] == [1, 1, 1]


def test_a_shared_context_is_waited_for_even_where_leaving_it_fails() -> None:
    @contextmanager
    def failing() -> Iterator[None]:
        yield
        raise OSError("not left well")

    inside, shared, events = threading.Event(), SharedContext(failing), []

    def wait() -> None:
        inside.wait(30)
        with shared.left():
            events.append("alone")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()

    def enter_twice() -> None:
        with shared, shared:
            inside.set()
            waiting.join(0.2)
            events.append("in it")

    with pytest.raises(OSError, match="not left"):
        enter_twice()
    waiting.join(30)
    assert events == ["in it", "alone"]


def test_a_device_can_be_forced(table: Floats, quick_fit: Fit, tmp_path: Path) -> None:
    anywhere = quick_fit(table, max_iter=1)
    model = quick_fit(table, max_iter=1, computation__device="cpu")
    np.testing.assert_array_equal(model.embedding_, anywhere.embedding_)
    model.save(tmp_path / "m.sgpmic")
    assert SGPMIC.load(tmp_path / "m.sgpmic").computation.device == "auto"
    if not any(device.platform == "gpu" for device in jax.devices()):
        with pytest.raises(ValueError, match="JAX finds none here"):
            model.set_params(computation__device="gpu").transform(table)


def run(code: str, timeout: float = 300.0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=of_one_device(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def in_a_new_process() -> dict[str, Any]:
    """Return what a process sees before we are imported, after that, and after a fit."""
    # Some of the heavy ones are loaded by JAX and scikit-learn themselves where they are installed.
    out = run(
        "import json, sys, warnings; warnings.simplefilter('ignore')\n"
        "import jax, jax.numpy as jnp, numpy as np, safetensors.numpy\n"
        "import scipy.linalg, scipy.sparse, scipy.spatial\n"
        "import sklearn.cluster, sklearn.manifold, sklearn.mixture, sklearn.metrics\n"
        "heavy = {'matplotlib', 'plotly', 'pyarrow', 'typer', 'rich', 'pandas', 'polars'}\n"
        "theirs, before = sorted(heavy & set(sys.modules)), dict(jax.config.values)\n"
        "from sgpmic import SGPMIC\n"
        "ours = sorted(heavy & set(sys.modules))\n"
        "rng = np.random.default_rng(0)\n"
        "SGPMIC(2, committee=None, max_iter=1, n_inducing=5).fit(rng.normal(size=(20, 3)))\n"
        "changed = [k for k, v in jax.config.values.items() if before.get(k) != v]\n"
        "print(json.dumps([theirs, ours, changed, str(jnp.ones(3).dtype)]))\n"
    )
    return dict(zip(("theirs", "ours", "changed", "precision"), json.loads(out), strict=True))


def test_importing_and_fitting_change_nothing_for_other_jax_code(
    in_a_new_process: dict[str, Any],
) -> None:
    assert in_a_new_process["changed"] == []
    assert in_a_new_process["precision"] == "float32"


def test_importing_needs_no_table_or_plotting_library(in_a_new_process: dict[str, Any]) -> None:
    assert in_a_new_process["ours"] == in_a_new_process["theirs"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's CPU affinity")
def test_fits_on_two_cores_end() -> None:
    # Some versions of jaxlib hang for good in batched LAPACK calls on machines with two cores.
    began = time.perf_counter()
    run(
        "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "import numpy as np\n"
        "from sgpmic import SGPMIC\n"
        "Y = np.random.default_rng(0).normal(size=(300, 6))\n"
        "for mapping in ('shared', 'per_cluster'):\n"
        "    model = SGPMIC(4, mapping=mapping, committee=None, max_iter=3, random_state=0)\n"
        "    model.fit(Y)\n"
        "model.predict(Y + 1.0); model.score_samples(Y[:5])\n",
        timeout=180.0,
    )
    assert time.perf_counter() - began < 180.0


def test_blas_has_one_thread_in_a_fit_and_is_given_back_its_own(
    table: Floats, quick_fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threadpoolctl import threadpool_info

    from sgpmic.learning.run import vote_on

    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info()]

    def blas_threads() -> list[int]:
        return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    before, meanwhile = threads(), []

    def observed(*arguments: Any) -> Any:
        meanwhile.append(blas_threads())
        return vote_on(*arguments)

    monkeypatch.setattr("sgpmic.learning.run.vote_on", observed)
    quick_fit(table, committee=Committee())
    assert threads() == before
    assert meanwhile
    assert all(number == 1 for numbers in meanwhile for number in numbers)
