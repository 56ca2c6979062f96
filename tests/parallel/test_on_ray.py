"""A fit on Ray ends as an undisturbed one, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.helpers import read_csv
from tests.parallel.conftest import OPTIONS

from sgpmic import SGPMIC
from sgpmic.parallel import JobError
from sgpmic.parallel.on_ray import fit_on_ray

ray: Any = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to find workers"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80 * 2**20,
        )
        yield
        ray.shutdown()


def child_of(out: Path, process: int) -> int | None:
    """Return the number of the system's process that is one of the fit into a folder."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        ours = b"sgpmic.parallel.worker" in words and str(out).encode() in words
        if ours and f"SGPMIC_PROCESS={process}".encode() in variables:
            return int(entry.name)
    return None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def kill_in_the_middle(out: Path, killed: list[int]) -> None:
    """Kill the second worker as soon as there is a checkpoint."""
    limit = time.monotonic() + 200
    while not list((out / "checkpoint.sgpmic").glob("round-*")):
        if time.monotonic() > limit:
            return
        time.sleep(0.005)
    child = child_of(out, 1)
    if child is not None and not (out / "run.json").exists():
        os.kill(parent_of(child), signal.SIGKILL)
        killed.append(child)


def test_a_killed_worker_is_replaced_and_the_result_is_the_same(
    cluster: None, table: Path, plain: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, killed = tmp_path / "run", []
    killer = threading.Thread(target=kill_in_the_middle, args=(out, killed), daemon=True)
    killer.start()
    model = fit_on_ray(table, out, n_workers=2, max_failures=1, **OPTIONS)
    killer.join(10)
    assert len(killed) == 1
    assert "started again from its checkpoint (1 of 1 times)" in caplog.text
    assert not Path(f"/proc/{killed[0]}").exists(), "the child has to end with its worker"
    assert model.lower_bound_ == SGPMIC.load(plain / "model.sgpmic").lower_bound_
    assert read_csv(out / "labels.csv") == read_csv(plain / "labels.csv")


def test_what_cannot_be_used_is_said_at_once(cluster: None, table: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no option 'n_clusters'.*clusters"):
        fit_on_ray(table, tmp_path / "run", n_workers=2, n_clusters=3)
    with pytest.raises(JobError, match="no room for 3 workers"):
        fit_on_ray(table, tmp_path / "run", n_workers=3, clusters=3, placement_timeout=0.5)
    with pytest.raises(ValueError, match=r"absent\.npy"):
        fit_on_ray(table.with_name("absent.npy"), tmp_path / "run", n_workers=1, clusters=3)
    assert not (tmp_path / "run").exists()
