"""A fit on Ray ends as an undisturbed one, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.cli.helpers import read_csv
from tests.jobs.conftest import SETTINGS

from sgpmic import SGPMIC
from sgpmic.exceptions import SGPMICWarning
from sgpmic.jobs import JobError
from sgpmic.jobs.on_ray import fit_on_ray
from sgpmic.jobs.workers import JobFit
from support.processes import of_one_device

ray: Any = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="needs /proc to find workers"
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", of_one_device()["XLA_FLAGS"])
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # By default they give way to everything, to other tests as well, until a watchdog barks.
        patch.setenv("RAY_worker_niceness", "0")
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
        ours = b"sgpmic.jobs.workers" in words
        ours = ours and str(out / f"process-{process}").encode() in words
        if ours and f"SGPMIC_PROCESS={process}".encode() in variables:
            return int(entry.name)
    return None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def kill_in_the_middle(out: Path, killed: list[int]) -> None:
    """Kill the second worker as soon as there is a checkpoint."""
    limit = time.monotonic() + 900
    while not list((out / "checkpoint").glob("iteration-*")):
        if time.monotonic() > limit:
            return
        time.sleep(0.005)
    child = child_of(out, 1)
    if child is not None and not (out / "model.sgpmic").exists():
        os.kill(parent_of(child), signal.SIGKILL)
        killed.append(child)


@pytest.mark.filterwarnings("ignore:.*neighbor graph has")
def test_a_killed_worker_is_replaced_and_the_result_is_the_same(
    cluster: None, table: Path, plain: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, killed = tmp_path / "run", []
    killer = threading.Thread(target=kill_in_the_middle, args=(out, killed), daemon=True)
    killer.start()
    fit = fit_on_ray(SGPMIC().set_params(**(SETTINGS)), table, out, n_workers=2, max_failures=3)
    killer.join(10)
    assert len(killed) == 1
    assert "The fit resumes from its checkpoint (1 of 3 times)" in caplog.text
    assert not Path(f"/proc/{killed[0]}").exists(), "the process has to end with its worker"
    same_as_plain(fit, plain)
    # What is finished is not learned again.
    before = sorted((out / "checkpoint").iterdir())
    same_as_plain(fit_on_ray(SGPMIC().set_params(**(SETTINGS)), table, out, n_workers=2), plain)
    assert sorted((out / "checkpoint").iterdir()) == before
    with pytest.raises(ValueError, match="with different settings"):
        fit_on_ray(SGPMIC().set_params(**(SETTINGS | {"max_iter": 7})), table, out, n_workers=1)
    assert (out / "process-1" / "labels.npy").exists()


def same_as_plain(fit: JobFit, plain: Path) -> None:
    """Compare with the run of two plain processes."""
    expected = read_csv(plain / "labels.csv")
    assert fit.model.lower_bound_ == SGPMIC.load(plain / "model.sgpmic").lower_bound_
    assert fit.labels.tolist() == [int(row["cluster"]) for row in expected]
    for name, found in (("membership_0", fit.memberships), ("latent_1", fit.embedding)):
        assert found[:, 0].tolist() == [float(row[name]) for row in expected]


def test_columns_of_a_parquet_file(cluster: None, table: Path, tmp_path: Path) -> None:
    rows = np.load(table)
    columns = {"a": rows[:, 0], "name": ["x"] * len(rows), "b": rows[:, 1], "c": rows[:, 2]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    model = SGPMIC().set_params(**(SETTINGS | {"max_iter": 1}))
    with pytest.warns(SGPMICWarning, match="components"), pytest.warns(ConvergenceWarning):
        fit = fit_on_ray(
            model, tmp_path / "t.parquet", tmp_path / "run", n_workers=1, columns=["c", "a"]
        )
    assert fit.model.feature_names_in_.tolist() == ["c", "a"]
    assert fit.embedding.shape == (60, 2)
    assert not hasattr(model, "labels_")


def test_what_cannot_be_used_is_said_at_once(cluster: None, table: Path, tmp_path: Path) -> None:
    model, out = SGPMIC().set_params(**(SETTINGS)), tmp_path / "run"
    with pytest.raises(ValueError, match="n_clusters must be a whole number of at least 1"):
        fit_on_ray(SGPMIC(n_clusters=0), table, out, n_workers=2)
    with pytest.raises(JobError, match="could not place 3 workers"):
        fit_on_ray(model, table, out, n_workers=3, placement_timeout=0.5)
    with pytest.raises(ValueError, match=r"absent\.npy"):
        fit_on_ray(model, table.with_name("absent.npy"), out, n_workers=1)
    assert not (out / "checkpoint").exists()
