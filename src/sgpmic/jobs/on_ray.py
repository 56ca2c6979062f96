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
from sgpmic.jobs.launch import PATIENCE, ProcessExit, Slot, local_slot

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

    Returns
    -------
    fit : JobFit

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
        with _actors(ray, n_workers, resources_per_worker, placement_timeout) as actors:
            for own in folders:
                workers.write_task(own, parameters, table=path, columns=columns)
            try:
                _run(ray, actors, folders)
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
def _actors(
    ray: Any, n_workers: int, resources: Mapping[str, float] | None, timeout: float
) -> Iterator[list[Any]]:
    """Yield an actor for each worker; afterwards stop all of them and their processes."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    resources = dict(resources or {"CPU": 1})
    # All or none: a process that has started waits for the others.
    group = ray.util.placement_group([resources] * n_workers, strategy="PACK")
    actors: list[Any] = []
    try:
        if not group.wait(timeout):
            raise JobError(
                f"The Ray cluster could not place {n_workers} workers with {resources} each in "
                f"{timeout:g} seconds: ask for fewer, or add machines."
            )
        actor_class = ray.remote(
            max_restarts=0,
            max_concurrency=2,  # one call waits for the process, another ends it
            num_cpus=resources.pop("CPU", 0),
            num_gpus=resources.pop("GPU", 0),
            memory=resources.pop("memory", None),
            resources=resources or None,
        )(_Actor)
        for bundle in range(n_workers):
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
            actors.append(actor_class.options(scheduling_strategy=where).remote())
        yield actors
    finally:
        # End the processes before Ray kills the actors, so that none can still write.
        ends = [actor.end.remote() for actor in actors]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=PATIENCE)
        for actor in actors:
            ray.kill(actor)
        ray.util.remove_placement_group(group)


class _Actor(workers.LocalWorker):
    def slot(self) -> Slot:
        import ray

        return local_slot(ray.util.get_node_ip_address())


def _run(ray: Any, actors: list[Any], folders: list[Path]) -> None:
    def start(process: int, variables: dict[str, str]) -> Callable[[], ProcessExit | None]:
        run = actors[process].run.remote(folders[process], variables, shown=process == 0)

        def poll() -> ProcessExit | None:
            done, _ = ray.wait([run], timeout=0)
            return ray.get(run) if done else None

        return poll

    slots = ray.get([actor.slot.remote() for actor in actors])
    workers.run_job(slots, start)
