"""Run cases in parallel processes and store each record as soon as it is complete.

A process runs all missing seeds of a case, so that programs compiled for its shapes are reused.
Each process talks to the first one through a pipe, so that either notices if the other dies.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from paper.datasets import DataSet, load
from paper.methods import METHODS
from paper.methods.base import Problem
from paper.metrics import scores
from paper.published import Row
from paper.results import Case, Record, ResultsFile

#: One thread each: results must not depend on how many processes share the machine.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",  # read by XLA
}


class WorkerDied(RuntimeError):
    """A process ended in the middle of a run: out of memory, killed."""


class Task(NamedTuple):
    """All missing seeds of a case."""

    case: Case
    seeds: tuple[int, ...]
    data: str


def table_cases(
    rows: Iterable[Row], methods: Sequence[str], data: dict[str, DataSet]
) -> list[Case]:
    """Return what the table needs: every row and method, the method's whole tuning grid.

    Rows that differ only in the share of variance are the same case and are run once.
    """
    cases: list[Case] = []
    for row in rows:
        for name in methods:
            method = METHODS[name]
            if row.dataset not in data or row.n_components < method.least_components:
                continue
            dataset = data[row.dataset]
            sizes = (dataset.n_classes, dataset.n_inducing)
            cases += [
                Case(row.dataset, row.n_components, name, *sizes, tuple(sorted(setting.items())))
                for setting in method.settings
            ]
    return list(dict.fromkeys(cases))


def missing_tasks(
    cases: Iterable[Case], repeats: int, results: ResultsFile, data: dict[str, DataSet]
) -> list[Task]:
    """Return the runs that are missing, the longest first so that all processes end together."""
    tasks = []
    for case in cases:
        mark = data[case.dataset].fingerprint
        left = tuple(seed for seed in range(repeats) if not results.has(case, seed, mark))
        if left:
            tasks.append(Task(case, left, mark))

    def size(task: Task) -> tuple[int, int]:
        rows, features = data[task.case.dataset].Y.shape
        return rows * task.case.n_clusters, features

    return sorted(tasks, key=size, reverse=True)


def run_tasks(
    tasks: Sequence[Task],
    folder: Path | None,
    jobs: int,
    on_record: Callable[[Record], None],
) -> None:
    """Run everything in ``jobs`` processes and yield each record as it arrives."""
    waiting = list(reversed(tasks))
    busy: dict[Connection, tuple[BaseProcess, Task]] = {}
    try:
        for _ in range(min(jobs, len(tasks))):
            process, connection = _start_worker(folder)
            task = waiting.pop()
            busy[connection] = process, task
            connection.send(task)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                process, task = busy[ready]
                try:
                    message: Record | None = ready.recv()
                except (EOFError, ConnectionResetError):
                    process.join(1.0)
                    raise WorkerDied(
                        f"The process that ran {task.case} ended (exit code {process.exitcode}): "
                        "out of memory, or killed. Finished runs are stored; run the same command "
                        "again, with fewer --jobs if memory was short."
                    ) from None
                if message is not None:
                    on_record(message)
                elif waiting:
                    task = waiting.pop()
                    busy[ready] = process, task
                    ready.send(task)
                else:
                    ready.close()
                    process.join()
                    del busy[ready]
    finally:
        for process, _ in busy.values():
            process.kill()


def _start_worker(folder: Path | None) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, folder), daemon=True)
    with _environment(_ONE_THREAD):
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _work(connection: Connection, folder: Path | None) -> None:
    """Run tasks until the other end closes; None after each says that it is done."""
    try:
        while True:
            task: Task = connection.recv()
            for seed in task.seeds:
                connection.send(run_once(task.case, seed, task.data, folder))
            connection.send(None)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def run_once(case: Case, seed: int, data: str, folder: Path | None) -> Record:
    """Run a case with a seed. A failure is recorded too, so that it shows in the table."""
    dataset = _loaded(case.dataset, folder)
    method = METHODS[case.method]
    problem = Problem(
        Y=dataset.all_features if method.all_features else dataset.Y,
        n_clusters=case.n_clusters,
        n_components=case.n_components,
        n_inducing=case.n_inducing,
        images=dataset.images,
    )
    began = time.perf_counter()
    try:
        found = method.run(problem, seed, **dict(case.setting))
    except Exception as error:
        sentence = f"{type(error).__name__}: {error}"
        return Record(case, seed, data, time.perf_counter() - began, error=sentence)
    seconds = time.perf_counter() - began
    return Record(case, seed, data, seconds, scores(dataset.classes, found.labels), found.bound)


@lru_cache(maxsize=4)
def _loaded(name: str, folder: Path | None) -> DataSet:
    return load(name, folder)
