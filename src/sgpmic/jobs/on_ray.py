"""Fits on a Ray cluster, restarted from the checkpoint when a worker is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgpmic.jobs import JobError, workers
from sgpmic.jobs.launch import ProcessExit, Slot, local_slot

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

_log = logging.getLogger(__name__)


def fit_on_ray(
    model: SGPMIC,
    table: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    n_workers: int,
    columns: Sequence[str] = (),
    max_failures: int = 3,
    resources_per_worker: Mapping[str, float] | None = None,
    placement_timeout: float = 300.0,
) -> workers.JobFit:
    """Fit an estimator to the rows of a file, in several processes on a Ray cluster.

    When a worker is lost or hangs, all are stopped and new ones resume from the checkpoint. Calling
    the function again after a failure also resumes.

    Parameters
    ----------
    model : SGPMIC
        Provides the settings; it is not changed. Its ``checkpoint`` is not used.
    table : path-like
        A Parquet or ``.npy`` file that every machine of the cluster can read.
    out : path-like
        A folder on storage that every machine can write to, this one included. It receives the
        checkpoint, ``model.sgpmic``, and the results of every process for its rows.
    n_workers : int
        Number of processes; each has an equal share of the rows.
    columns : sequence of str
        The features; all columns by default.
    max_failures : int
        Maximum number of restarts.
    resources_per_worker : mapping of str to float or None
        Resources reserved for each, such as ``{"CPU": 8, "GPU": 1}``; one CPU by default.
    placement_timeout : float
        Seconds to wait until the cluster can place all workers at once.

    Raises
    ------
    ValueError, TypeError
        For settings, a table or a folder that cannot be used.
    JobError
        When the cluster cannot place the workers, or the fit has failed too often.
    """
    try:
        import ray.exceptions  # without Ray, a folder named ray passes for the package
    except ImportError as error:
        raise ImportError("fit_on_ray needs Ray: pip install 'sgpmic[ray]'.") from error
    if n_workers < 1 or max_failures < 0:
        raise ValueError("n_workers must be at least 1, and max_failures at least 0.")
    folder, path = Path(os.path.abspath(out)), os.path.abspath(table)
    parameters, checkpoint = workers.job_parameters(model), str(folder / "checkpoint")
    parameters["computation"] = replace(parameters["computation"], checkpoint=checkpoint)
    folders = [folder / f"process-{process}" for process in range(n_workers)]
    if not ray.is_initialized():
        ray.init()
    for failures in range(1, max_failures + 2):
        with _placed(ray, n_workers, resources_per_worker, placement_timeout) as submit:
            for own in folders:
                workers.write_task(own, parameters, table=path, columns=columns)
            try:
                _run(ray, submit, folders)
                break
            except (JobError, ray.exceptions.RayError) as error:
                why = str(error).splitlines()[0]
                if failures > max_failures:
                    raise JobError(
                        f"The fit has failed {failures} times, the last time with: {why} "
                        f"The checkpoint is in {folder}; the same call resumes from it."
                    ) from None
                again = f"{failures} of {max_failures} times"
                _log.warning("%s The fit resumes from its checkpoint (%s).", why, again)
    fitted = workers.load_model(model, folders[0])
    by_row = (
        np.concatenate([np.load(own / f"{name}.npy") for own in folders]) for name in workers.BY_ROW
    )
    fitted.save(folder / workers.MODEL)
    return workers.JobFit(fitted, *by_row)


@contextmanager
def _placed(
    ray: Any, n_workers: int, resources: Mapping[str, float] | None, timeout: float
) -> Iterator[Callable[..., Any]]:
    """Reserve resources for all workers; yield a function that submits a task to one of them."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    resources = dict(resources or {"CPU": 1})
    # All or none: a process that has started waits for the others.
    group = ray.util.placement_group([resources] * n_workers, strategy="PACK")
    try:
        if not group.wait(timeout):
            raise JobError(
                f"The Ray cluster could not place {n_workers} workers with {resources} each in "
                f"{timeout:g} seconds: ask for fewer, or add machines."
            )
        options: dict[str, Any] = {
            "max_retries": 0,
            "num_cpus": resources.pop("CPU", 0),
            "num_gpus": resources.pop("GPU", 0),
            "memory": resources.pop("memory", None),
            "resources": resources or None,
        }

        def submit(worker: int, function: Callable[..., Any], *arguments: object) -> Any:
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=worker)
            task = ray.remote(**options, scheduling_strategy=where)(function)
            return task.remote(*arguments)

        yield submit
    finally:
        # Ray kills the workers of the group, and the fit's processes end with them.
        ray.util.remove_placement_group(group)


def _slot() -> Slot:
    import ray

    return local_slot(ray.util.get_node_ip_address())


def _run_process(folder: Path, variables: dict[str, str], shown: bool) -> ProcessExit:
    return workers.LocalWorker().run(folder, variables, shown=shown)


def _run(ray: Any, submit: Callable[..., Any], folders: list[Path]) -> None:
    def start(process: int, variables: dict[str, str]) -> Callable[[], ProcessExit | None]:
        run = submit(process, _run_process, folders[process], variables, process == 0)

        def poll() -> ProcessExit | None:
            done, _ = ray.wait([run], timeout=0)
            return ray.get(run) if done else None

        return poll

    workers.run_job(ray.get([submit(worker, _slot) for worker in range(len(folders))]), start)
