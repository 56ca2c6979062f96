"""Several threads that compute at once, and processes that are forked from one that has."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from sgpmic import _runtime
from sgpmic._runtime import numerics


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> object:
    _runtime._thread_pools()
    with threadpool_limits(2, user_api="blas"):
        yield


def test_whoever_leaves_last_gives_blas_its_threads_back() -> None:
    first, second = numerics(), numerics()
    assert blas_threads() == {2}
    first.__enter__()
    second.__enter__()
    assert blas_threads() == {1}
    first.__exit__(None, None, None)
    assert blas_threads() == {1}, "the other still computes"
    second.__exit__(None, None, None)
    assert blas_threads() == {2}


def test_the_last_may_be_another_thread() -> None:
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with numerics():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=work)
    with numerics():
        thread.start()
        inside.wait()
    assert blas_threads() == {1}
    leave.set()
    thread.join()
    assert blas_threads() == {2}


def test_many_threads_at_once() -> None:
    wrong: list[set[int]] = []

    def work(_: int) -> None:
        for _ in range(50):
            with numerics():
                found = blas_threads()
                if found != {1}:
                    wrong.append(found)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong
    assert blas_threads() == {2}


@pytest.mark.parametrize("fault", ["gone", "changed"])
def test_without_threadpoolctls_private_setter(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that controls BLAS still sets and restores it."""

    def set_threads(pool: Any, number: int) -> None:
        raise AttributeError if fault == "gone" else TypeError

    for kind in {type(pool) for pool in _runtime._thread_pools().lib_controllers}:
        if not hasattr(kind, "_real_set_num_threads"):
            continue  # before threadpoolctl 3.7, and of other libraries than OpenBLAS
        # The public method, as it was before 3.7: without the private one it must do its work.
        monkeypatch.setattr(kind, "set_num_threads", kind._real_set_num_threads)
        monkeypatch.setattr(kind, "_real_set_num_threads", set_threads)
    with numerics():
        assert blas_threads() == {1}
    assert blas_threads() == {2}


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from sgpmic import SGPMIC, _runtime
model = SGPMIC(2)
import jax
if sys.argv[1] == "after ours":
    with _runtime.numerics():
        jax.numpy.zeros(3).block_until_ready()
elif sys.argv[1] == "after JAX's":
    jax.numpy.zeros(3).block_until_ready()
elif sys.argv[1] == "after JAX's, unknown":
    from jax._src import xla_bridge
    del xla_bridge.backends_are_initialized
    with _runtime.numerics():
        jax.numpy.zeros(3).block_until_ready()
child = os.fork()
if child == 0:
    try:
        for call in (model.fit, model.predict):
            try:
                call(np.zeros((0, 3)))
            except RuntimeError as error:
                print(error, flush=True)
            except Exception as error:  # no rows, or not fitted
                print(type(error).__name__, flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("moment", ["before", "after ours", "after JAX's", "after JAX's, unknown"])
def test_a_forked_process_is_refused_at_once(moment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, moment], capture_output=True, text=True, timeout=60
    )
    if moment == "before":
        assert done.stdout.split() == ["ValueError", "NotFittedError"]
    else:
        assert done.stdout.count("get_context('spawn')") == 2, done
