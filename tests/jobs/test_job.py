"""Finding the job in the environment, shares of files, fingerprints of tables, the watchdog."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpmic import EM, SGPMIC, Start
from sgpmic.jobs.job import Job, JobError, find_job, first_host
from sgpmic.jobs.launch import Ending, Place, environments, launch, most_telling, this_place
from sgpmic.jobs.watchdog import REFUSED, TRY_AGAIN, Watchdog
from sgpmic.jobs.workers import LocalWorkers, job_parameters, write_job
from sgpmic.storage.checkpoints import table_fingerprint
from sgpmic.tables.reader import TableError, read_table

SLURM = {
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NODELIST": "gpu[017-019,30],cpu2",
    "SLURM_JOB_ID": "4100",
}
MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
}
OURS = {"SGPMIC_COORDINATOR": "head:1234", "SGPMIC_PROCESSES": "2", "SGPMIC_PROCESS": "1"}


def test_jobs_are_found() -> None:
    assert find_job({}) == Job(0, 1)
    assert find_job({"SLURM_NTASKS": "16", "SLURM_JOB_ID": "4100"}) == Job()  # no srun
    assert find_job(SLURM) == Job(3, 16, "gpu017:61444")
    assert find_job(OURS) == Job(1, 2, "head:1234")
    assert find_job(OURS | SLURM) == Job(1, 2, "head:1234")
    assert find_job(SLURM | {"SGPMIC_COORDINATOR": "x:1"}) == Job(3, 16, "x:1")
    assert find_job(OURS | {"SGPMIC_PROCESSES": "1", "SGPMIC_PROCESS": "0"}).n_processes == 1
    found = find_job(MPI)
    assert found[:2] == (2, 4)
    assert found.coordinator.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"SGPMIC_PROCESSES": "2"}, "set SGPMIC_COORDINATOR"),
        (OURS | {"SGPMIC_PROCESS": "2"}, "counted from 0"),
        (OURS | {"SGPMIC_PROCESS": "one"}, "whole numbers"),
        (OURS | {"SGPMIC_COORDINATOR": "head"}, "HOST:PORT"),
        (MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "mpirun -x SGPMIC_COORDINATOR"),
    ],
)
def test_jobs_that_cannot_be_joined(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        find_job(variables)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("one", "one"),
        ("a1,a2", "a1"),
        ("node[003-007,12]", "node003"),
        ("n[7,9],m", "n7"),
        ("rack-[2-3]-ib,x", "rack-2-ib"),
    ],
)
def test_the_first_host_of_slurm_s_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_cores_are_shared_out() -> None:
    found = environments([this_place()] * 2)
    assert [e["SGPMIC_PROCESS"] for e in found] == ["0", "1"]
    assert len({e["SGPMIC_COORDINATOR"] for e in found}) == 1
    cores = [set(e["SGPMIC_CORES"].split(",")) for e in found if "SGPMIC_CORES" in e]
    assert not set.intersection(*cores) if len(cores) > 1 else True
    here, there = Place("a", [0, 1, 2, 3], "a:1"), Place("b", [4], "b:1")
    found = environments([here, there, here])
    assert [e["SGPMIC_CORES"] for e in found] == ["0,1", "4", "2,3"]
    assert {e["SGPMIC_COORDINATOR"] for e in found} == {"a:1"}


def test_the_launcher_ends_all_when_one_fails() -> None:
    code = "import os, sys, time\nif os.environ['SGPMIC_PROCESS'] == '1': sys.exit(7)\n"
    began = time.monotonic()
    failing = launch([sys.executable, "-c", code + "time.sleep(0.1)"], 2)
    assert failing == 7
    assert time.monotonic() - began < 10.0
    assert launch([sys.executable, "-c", "pass"], 3) == 0


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's file may have the name of a module that Python or a library imports."""
    trap = "import pathlib\npathlib.Path('imported').touch()\nraise SystemExit(9)\n"
    for name in ("grp.py", "json.py", "numpy.py"):
        (tmp_path / name).write_text(trap)
    monkeypatch.chdir(tmp_path)
    assert launch([sys.executable, "-c", "import grp, json, numpy"], 2) == 0
    # The worker gets as far as to refuse its settings.
    write_job(
        tmp_path / "job", SGPMIC(n_clusters=4).get_params(deep=False), rows=[np.zeros((3, 2))]
    )
    ending = LocalWorkers().run(tmp_path / "job", {})
    assert ending.code == REFUSED, ending
    assert "n_clusters=4" in ending.message
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("n_parts", [2, 3, 7])
@pytest.mark.parametrize("name", ["t.parquet", "t.npy"])
def test_shares_make_up_the_table(tmp_path: Path, name: str, n_parts: int) -> None:
    values = np.random.RandomState(0).standard_normal((100, 2))
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        columns = pa.table({"a": values[:, 0], "b": values[:, 1]})
        pq.write_table(columns, path, row_group_size=13)
    parts = [read_table(path, share=(part, n_parts)).values for part in range(n_parts)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    np.testing.assert_array_equal(np.concatenate(parts), values)
    firsts = np.cumsum([0, *map(len, parts)])
    pairs = zip(parts, firsts, strict=False)
    total = sum(table_fingerprint(part, int(first)) for part, first in pairs)
    assert total % 2**64 == table_fingerprint(values, 0)


def test_a_share_reads_its_row_groups_only(tmp_path: Path) -> None:
    """An infinite value in another share's rows is not this one's business; in its own it is."""
    column = np.arange(40.0)
    column[25] = np.inf
    pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet", row_group_size=10)
    assert len(read_table(tmp_path / "t.parquet", share=(0, 2)).values) == 20
    with pytest.raises(TableError, match="row 26"):
        read_table(tmp_path / "t.parquet", share=(1, 2))


def test_text_cannot_be_shared(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(TableError, match=r"Parquet file or an \.npy file"):
        read_table(path, share=(0, 2))


def test_a_table_s_fingerprint_knows_values_and_places() -> None:
    values = np.random.RandomState(0).standard_normal((50, 3))
    swapped = values[[1, 0, *range(2, 50)]]
    changed = values.copy()
    changed[17, 2] = np.nextafter(changed[17, 2], 1.0)
    variants = [(values, 0), (swapped, 0), (changed, 0), (values, 1)]
    assert len({table_fingerprint(rows, first) for rows, first in variants}) == 4
    zero, negative = np.zeros((1, 1)), np.full((1, 1), -0.0)
    assert table_fingerprint(zero, 0) == table_fingerprint(negative, 0)


def test_the_watchdog_barks_only_when_nothing_moves() -> None:
    barks: list[str] = []
    with Watchdog(0.4, barks.append) as dog:
        for _ in range(6):
            time.sleep(0.1)
            dog.beat()
        assert not barks
        time.sleep(1.0)
    assert len(barks) == 1
    assert "stuck" in barks[0]


def test_the_watchdog_knows_how_long_rounds_take() -> None:
    dog = Watchdog()
    first = dog.allowed
    for _ in range(3):
        dog.beat()
    assert dog.allowed == 120.0 < first


def test_which_ending_tells_most() -> None:
    refused, killed, lost = Ending(REFUSED, "No."), Ending(-9), Ending(TRY_AGAIN, "lost")
    assert most_telling([lost, killed, refused]) == refused
    assert most_telling([lost, killed, Ending(0)]) == killed
    assert str(killed) == "it was ended by signal 9"
    assert str(Ending(1, "Traceback …\n  line\nOSError: full.")) == "OSError: full"


def test_what_cannot_travel_to_other_processes_is_refused() -> None:
    assert job_parameters(SGPMIC(random_state=np.random.RandomState(0)))["random_state"] >= 0
    with pytest.raises(ValueError, match="Callbacks"):
        job_parameters(SGPMIC(em=EM(callbacks=[print])))
    with pytest.raises(ValueError, match="start__embedding by its name only"):
        job_parameters(SGPMIC(start=Start(embedding=np.zeros((60, 2)))))
    with pytest.raises(ValueError, match="n_clusters"):
        job_parameters(SGPMIC(n_clusters=0))
