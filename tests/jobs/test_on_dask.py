"""A fit of a Dask array, wherever its chunks are, is that of plain processes with these rows."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from tests.cli.helpers import NAMES, read_csv
from tests.jobs.conftest import SETTINGS

from sgpmic import EM, SGPMIC, Start
from sgpmic.exceptions import SGPMICWarning
from sgpmic.jobs import JobError
from sgpmic.jobs.on_dask import fit_dask
from support.processes import of_one_device

distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed")
da: Any = pytest.importorskip("dask.array", reason="Dask is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", of_one_device()["XLA_FLAGS"])
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def scattered(client: Any, chunks: list[np.ndarray], workers: list[int]) -> Any:
    """Return a Dask array whose chunks are on workers of our choice."""
    addresses = list(client.nthreads())
    pieces = [
        da.from_delayed(client.scatter(chunk, workers=[addresses[w]]), chunk.shape, chunk.dtype)
        for chunk, w in zip(chunks, workers, strict=True)
    ]
    return da.concatenate(pieces)


@pytest.mark.filterwarnings("ignore:.*neighbor graph has")
def test_labels_are_those_of_two_plain_processes(client: Any, table: Path, plain: Path) -> None:
    # Rows go to processes by worker, and come back in the order of the array: here another one.
    rows = np.load(table)
    first, second = np.split(rows[:30], [10]), np.split(rows[30:], [12])
    chunks = [first[0], second[0], first[1], second[1]]
    array = scattered(client, chunks, [0, 1, 0, 1])
    order = np.concatenate(
        [np.arange(0, 10), np.arange(30, 42), np.arange(10, 30), np.arange(42, 60)]
    )
    fit = fit_dask(SGPMIC().set_params(**(SETTINGS)), array, client)
    expected = read_csv(plain / "labels.csv")
    assert fit.labels.chunks[0] == (10, 12, 20, 18)
    assert fit.labels.compute().tolist() == [int(expected[i]["cluster"]) for i in order]
    for name, found in (("membership_0", fit.memberships), ("latent_1", fit.embedding)):
        column = np.array([float(expected[i][name]) for i in order])
        np.testing.assert_allclose(found.compute()[:, 0], column, rtol=1e-6, atol=1e-9)
    assert fit.model.lower_bound_ == SGPMIC.load(plain / "model.sgpmic").lower_bound_
    assert (fit.model.predict(chunks[0]) == fit.labels[:10].compute()).all()


@pytest.mark.filterwarnings("ignore:The bound was still rising")
def test_a_data_frame_whose_rows_are_all_with_one_worker(client: Any, table: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    rows = np.load(table)
    frame = pd.DataFrame(np.vstack([rows, rows + 1e6]), columns=NAMES)
    # How many rows are left is not known before it is computed; the second part has none.
    some = dd.from_pandas(frame, npartitions=2).query("height < 1000")
    settings = SETTINGS | {"max_iter": 1}
    with pytest.warns(SGPMICWarning, match="connected components"):
        fit = fit_dask(SGPMIC(**settings), some)
    assert fit.model.feature_names_in_.tolist() == list(NAMES)
    assert fit.embedding.shape == (60, 2)
    group = np.rint(rows.mean(axis=1) / 6.0)  # far apart: see values()
    assert adjusted_rand_score(group, fit.labels.compute()) == 1.0


def test_a_process_that_fails_ends_the_others_with_one_sentence(client: Any, table: Path) -> None:
    rows = np.load(table)
    flawed = rows[30:].copy()
    flawed[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        fit_dask(
            SGPMIC().set_params(**(SETTINGS)),
            scattered(client, [rows[:30], flawed], [0, 1]),
            client,
        )


def test_what_cannot_be_used_is_said_at_once(client: Any) -> None:
    array = da.zeros((60, 3))
    with pytest.raises(TypeError, match="Dask array or data frame, not ndarray"):
        fit_dask(SGPMIC(), np.zeros((60, 3)), client)
    with pytest.raises(ValueError, match="only by name"):
        fit_dask(SGPMIC(start=Start(embedding=np.zeros((60, 2)))), array, client)
    with pytest.raises(ValueError, match="Callbacks"):
        fit_dask(SGPMIC(em=EM(callbacks=[print])), array, client)
    with pytest.raises(ValueError, match="table of numbers"):
        fit_dask(SGPMIC(), array.astype(str), client)


def kill_worker(client: Any, address: str, checkpoint: Path, killed: list[int]) -> None:
    """Kill a Dask worker as soon as the fit has a checkpoint."""
    pid = client.run(os.getpid, workers=[address])[address]
    limit = time.monotonic() + 200
    while not list(checkpoint.glob("iteration-*")) and time.monotonic() < limit:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


def test_a_lost_worker_ends_the_fit(table: Path, tmp_path: Path) -> None:
    rows, checkpoint, killed = np.load(table), tmp_path / "checkpoint", []
    # Enough iterations to be killed in.
    model = SGPMIC().set_params(
        **(SETTINGS | {"max_iter": 500, "tol": 0.0}), computation__checkpoint=checkpoint
    )
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        array = scattered(client, [rows[:30], rows[30:]], [0, 1])
        address = list(client.nthreads())[1]
        killer = threading.Thread(
            target=kill_worker, args=(client, address, checkpoint, killed), daemon=True
        )
        killer.start()
        with pytest.raises(JobError, match=f"worker {address} was lost"):
            fit_dask(model, array, client)
        killer.join(10)
    assert len(killed) == 1
