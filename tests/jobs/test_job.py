"""Finding the job in the environment, shares of files, fingerprints of tables, the watchdog."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpmic import EM, SGPMIC, Start
from sgpmic.jobs.job import REFUSED, TRY_AGAIN, Job, JobError, Watchdog, find_job
from sgpmic.jobs.launch import (
    ProcessExit,
    Slot,
    environments,
    launch,
    local_slot,
    root_cause,
)
from sgpmic.jobs.workers import LocalWorker, job_parameters, write_task
from sgpmic.storage.checkpoints import table_fingerprint
from sgpmic.tables.dataset import read_table
from sgpmic.tables.errors import TableError
from support.processes import of_one_device

OURS = {"SGPMIC_COORDINATOR": "head:1234", "SGPMIC_PROCESSES": "2", "SGPMIC_PROCESS": "1"}
SLURM = {"SLURM_JOB_ID": "4100", "SLURM_NTASKS": "16", "SLURM_PROCID": "3"}
STEP = SLURM | {"SLURM_STEP_NUM_TASKS": "16"}


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, Job(0, 1)),
        (OURS, Job(1, 2, "head:1234")),
        (OURS | STEP, Job(1, 2, "head:1234")),
        (OURS | {"SGPMIC_PROCESSES": "1"}, Job()),
        (SLURM, Job()),  # the shell of an allocation, without srun
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, Job()),
        (STEP, None),  # left to JAX
        (STEP | {"SGPMIC_COORDINATOR": "head:1234"}, None),
        (STEP | {"SGPMIC_PROCESSES": "1"}, Job()),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, Job()),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Job()),  # a pod of no Indexed Job
    ],
)
def test_jobs_are_found(variables: dict[str, str], job: Job | None) -> None:
    assert find_job(variables) == job


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SGPMIC_PROCESSES": "2"}, "from 0"),
        (OURS | {"SGPMIC_PROCESS": "2"}, "from 0"),
        (OURS | {"SGPMIC_PROCESS": "one"}, "from 0"),
        (OURS | {"SGPMIC_COORDINATOR": "head"}, "HOST:PORT"),
    ],
)
def test_inconsistent_variables(variables: dict[str, str], message: str) -> None:
    with pytest.raises(JobError, match=message):
        find_job(variables)


#: Joins a job and prints its place in it with the sum of all places, or why it cannot.
JOIN = """
import numpy as np
from sgpmic import jobs
try:
    job = jobs.initialize()
except jobs.JobError as error:
    raise SystemExit(f"{error.code}: {error}")
from sgpmic.process_group import gathered
print(job.process, job.n_processes, int(gathered(np.array([job.process + 1])).sum()))
"""


def run_with(variables: list[dict[str, str]]) -> list[subprocess.CompletedProcess[str]]:
    """Run ``JOIN`` in as many processes as there are environments."""
    command = [sys.executable, "-c", JOIN]
    children = [
        subprocess.Popen(
            command,
            env=of_one_device() | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for own in variables
    ]
    outputs = [child.communicate(timeout=120) for child in children]
    return [
        subprocess.CompletedProcess(command, child.returncode, *output)
        for child, output in zip(children, outputs, strict=True)
    ]


def last_line(process: subprocess.CompletedProcess[str]) -> str:
    return process.stdout.splitlines()[-1]


def free_offset() -> int:
    """Return a number from which JAX makes a free port: it adds 61440."""
    for offset in np.random.RandomState().permutation(4096):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", 61440 + int(offset)))
            return int(offset)
    raise AssertionError("all ports are taken")


def slurm(n_tasks: int = 2) -> list[dict[str, str]]:
    """Return what Slurm sets for the tasks of a step on this machine."""
    common = {
        "SLURM_JOB_ID": str(4096 * 7 + free_offset()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NUM_TASKS": str(n_tasks),
        "SLURM_NTASKS": str(n_tasks),
    }
    return [common | {"SLURM_PROCID": str(n), "SLURM_LOCALID": str(n)} for n in range(n_tasks)]


def open_mpi() -> list[dict[str, str]]:
    """Return what mpirun of Open MPI 4 sets for two processes on this machine."""
    common = {
        "OMPI_MCA_orte_hnp_uri": f"{4096 * free_offset()}.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    return [
        common | {"OMPI_COMM_WORLD_RANK": n, "OMPI_COMM_WORLD_LOCAL_RANK": n} for n in ("0", "1")
    ]


def at_own_address() -> list[dict[str, str]]:
    """Return what Slurm sets, with the coordinator at a port that only we have named."""
    coordinator = local_slot().coordinator
    return [own | {"SGPMIC_COORDINATOR": coordinator} for own in slurm()]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [slurm, open_mpi, at_own_address])
def test_jobs_of_schedulers_are_joined(scheduler: Callable[[], list[dict[str, str]]]) -> None:
    done = run_with(scheduler())
    assert [process.returncode for process in done] == [0, 0], done
    assert [last_line(process) for process in done] == ["0 2 3", "1 2 3"]


@pytest.mark.slow
def test_one_task_of_a_scheduler_is_a_job_of_one() -> None:
    """Also several steps at the same time, for which JAX would choose the same port."""
    done = run_with(slurm(1) * 2)
    assert [last_line(process) for process in done] == ["0 1 1"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        # Without what JAX recognizes Open MPI by, as of Open MPI 5.
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
        slurm()[0] | {"SLURM_PROCID": "2"},
        {name: value for name, value in slurm()[0].items() if name != "SLURM_PROCID"},
    ],
)
def test_jobs_of_schedulers_that_cannot_be_joined(variables: dict[str, str]) -> None:
    (done,) = run_with([variables])
    assert done.stderr.startswith(f"{REFUSED}: JAX cannot detect the processes of this job")
    assert "SGPMIC_PROCESSES=1" in done.stderr


def test_cores_are_shared_out() -> None:
    found = environments([local_slot()] * 2)
    assert [e["SGPMIC_PROCESS"] for e in found] == ["0", "1"]
    assert len({e["SGPMIC_COORDINATOR"] for e in found}) == 1
    cores = [set(e["SGPMIC_CORES"].split(",")) for e in found if "SGPMIC_CORES" in e]
    assert not set.intersection(*cores) if len(cores) > 1 else True
    here, there = Slot("a", [0, 1, 2, 3], "a:1"), Slot("b", [4], "b:1")
    found = environments([here, there, here])
    assert [e["SGPMIC_CORES"] for e in found] == ["0,1", "4", "2,3"]
    assert {e["SGPMIC_COORDINATOR"] for e in found} == {"a:1"}


@pytest.mark.slow
def test_the_launcher_ends_all_when_one_fails() -> None:
    code = "import os, sys, time\nif os.environ['SGPMIC_PROCESS'] == '1': sys.exit(7)\n"
    began = time.monotonic()
    failing = launch([sys.executable, "-c", code + "time.sleep(0.1)"], 2)
    assert failing == 7
    assert time.monotonic() - began < 10.0
    assert launch([sys.executable, "-c", "pass"], 3) == 0


@pytest.mark.slow
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
    write_task(
        tmp_path / "job", SGPMIC(n_clusters=4).get_params(deep=False), rows=[np.zeros((3, 2))]
    )
    done = LocalWorker().run(tmp_path / "job", {})
    assert done.code == REFUSED, done
    assert "n_clusters=4" in done.message
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
    with pytest.raises(TableError, match=r"processes share only Parquet and \.npy"):
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


def test_the_watchdog_knows_how_long_iterations_take() -> None:
    dog = Watchdog()
    first = dog.allowed
    for _ in range(3):
        dog.beat()
    assert dog.allowed == 120.0 < first


def test_the_root_cause_of_a_failure() -> None:
    refused, killed, lost = (
        ProcessExit(REFUSED, "No."),
        ProcessExit(-signal.SIGKILL),
        ProcessExit(TRY_AGAIN, "lost"),
    )
    aborted = ProcessExit(-signal.SIGABRT)
    assert root_cause([lost, killed, refused]) == refused
    assert root_cause([lost, aborted, killed, ProcessExit(0)]) == killed
    assert str(killed) == "it was ended by signal 9"
    assert "does not answer" in str(aborted)
    assert str(ProcessExit(1, "Traceback …\n  line\nOSError: full.")) == "OSError: full"


def test_the_old_name_still_works() -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from sgpmic import jobs, parallel
    from sgpmic.parallel.on_ray import fit_on_ray
assert [w.category for w in caught] == [FutureWarning], caught
assert "sgpmic.jobs" in str(caught[0].message)
assert parallel.share is jobs.share and parallel.JobError is jobs.JobError
assert not hasattr(parallel, "absent")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_travel_to_other_processes_is_refused() -> None:
    assert job_parameters(SGPMIC(random_state=np.random.RandomState(0)))["random_state"] >= 0
    with pytest.raises(ValueError, match="Callbacks"):
        job_parameters(SGPMIC(em=EM(callbacks=[print])))
    with pytest.raises(ValueError, match="start__embedding only by name"):
        job_parameters(SGPMIC(start=Start(embedding=np.zeros((60, 2)))))
    with pytest.raises(ValueError, match="n_clusters"):
        job_parameters(SGPMIC(n_clusters=0))
