"""A fit on a Ray cluster, started again when a worker is lost.

Ray places the processes and notices when one is gone. The processes are those of ``sgpmic fit``:
they meet each other without Ray, and keep their checkpoint in the folder of the run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpmic.parallel.child import REFUSED, Child, Ending, describe, most_telling, place_processes
from sgpmic.parallel.job import JobError
from sgpmic.parallel.launch import PATIENCE, meeting_point, usable_cores
from sgpmic.parallel.watchdog import TRY_AGAIN

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

_log = logging.getLogger(__name__)

#: What is not to be chosen: the folder is always gone on with, and Ray starts the processes.
_NOT_TAKEN = ("out", "resume", "force", "processes", "help")


def fit_on_ray(
    table: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    n_workers: int,
    max_failures: int = 3,
    resources_per_worker: Mapping[str, float] | None = None,
    placement_timeout: float = 300.0,
    **options: Any,
) -> SGPMIC:
    """Fit a table with ``sgpmic fit`` in several processes on a Ray cluster.

    When a worker is lost, or stuck, all are ended and new ones go on from the checkpoint. A folder
    with an unfinished run of the same table and settings is gone on with; with a finished one,
    nothing is left to do.

    Parameters
    ----------
    table : path-like
        A Parquet or ``.npy`` file that every machine of the cluster can read.
    out : path-like
        Folder for the results, on storage that every machine can write to, this one included.
    n_workers : int
        How many processes; each has an equal share of the rows.
    max_failures : int
        How many times to start again.
    resources_per_worker : mapping of str to float or None
        What Ray sets aside for each, such as ``{"CPU": 8, "GPU": 1}``; one CPU by default.
    placement_timeout : float
        Seconds to wait for the cluster to have room for all workers at once.
    **options
        The options of ``sgpmic fit`` by their long names: ``clusters=3``, ``dimensions=2``,
        ``inducing=50``, ``standardize=True``, ``id="name"``, …

    Returns
    -------
    model : SGPMIC
        The model in the folder. It knows a sample of the rows; ``labels.csv`` has them all.

    Raises
    ------
    ImportError
        Without Ray.
    ValueError
        For a table, a folder or options that cannot be used.
    JobError
        When the cluster has no room, or the fit has failed too often.
    """
    ray = _import_ray()
    if n_workers < 1 or max_failures < 0:
        raise ValueError("n_workers must be at least 1, and max_failures at least 0.")
    folder = Path(os.path.abspath(out))
    words = ["fit", os.path.abspath(table), "--out", str(folder), "--resume", *_words(options)]
    resources = dict(resources_per_worker or {"CPU": 1})
    if not ray.is_initialized():
        ray.init()
    for failures in range(max_failures + 1):
        endings = _run_once(ray, words, n_workers, resources, placement_timeout)
        if all(ending.code == 0 for ending in endings):
            break
        cause = most_telling(endings)
        if cause.code == REFUSED:
            raise ValueError(_sentence(cause.words))
        what = f"process {endings.index(cause)} of {n_workers}: {describe(cause)}"
        if failures == max_failures:
            raise JobError(
                f"The fit has failed {failures + 1} times, the last time by {what}. What was "
                f"learned is in {folder}; the same call goes on from it."
            )
        _log.warning(
            "A fit on Ray has lost %s. It is started again from its checkpoint (%d of %d times).",
            what,
            failures + 1,
            max_failures,
        )
    return _load(folder)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions  # any folder of that name, such as /tmp/ray, passes for the package
    except ImportError as error:
        raise ImportError(
            "fit_on_ray needs Ray, which is not installed: pip install 'sgpmic[ray]'."
        ) from error
    return ray


def _words(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of the command line."""
    from typer.main import get_command

    from sgpmic.cli.app import app

    command: Any = get_command(app)
    known = {
        name.removeprefix("--"): option
        for option in command.commands["fit"].params
        for name in option.opts
        if name.startswith("--")
    }
    words: list[str] = []
    for given, value in options.items():
        name = given.replace("_", "-")
        if name not in known or name in _NOT_TAKEN:
            names = sorted(k.replace("-", "_") for k in known if k not in _NOT_TAKEN)
            raise ValueError(f"fit_on_ray has no option {given!r}; there are {', '.join(names)}.")
        if known[name].is_flag:
            words += [f"--{name}"] if value else []
        elif isinstance(value, (list, tuple)):
            words += [f"--{name}={item}" for item in value]
        elif value is not None:
            words.append(f"--{name}={value}")
    return words


def _sentence(words: str) -> str:
    return " ".join(words.split()).removeprefix("sgpmic: ")


def _load(folder: Path) -> SGPMIC:
    from sgpmic import SGPMIC
    from sgpmic.storage.run_folder import RunFolder

    if not RunFolder(folder).is_complete:
        raise JobError(
            f"The fit has ended, but its results are not in {folder} on this machine: name a "
            "folder that all machines share."
        )
    return SGPMIC.load(RunFolder(folder).model)


class _Worker:
    """What Ray runs, once for each process: an actor that has the process for a child."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def place(self) -> tuple[str, list[int]]:
        """Return the address of the machine, and the cores that may be used."""
        import ray

        return ray.util.get_node_ip_address(), usable_cores()

    def meeting_point(self, host: str) -> str:
        """Return where the others can find this one."""
        return meeting_point(host)

    def run(self, words: Sequence[str], variables: Mapping[str, str], shown: bool) -> Ending:
        """Run the process to its end."""
        self._child = Child(words, variables, shown=shown)
        return self._child.wait()

    def end(self) -> None:
        """End the process: before Ray ends this one, so that nothing of it can go on writing."""
        if self._child is not None:
            self._child.end()


def _run_once(
    ray: Any, words: list[str], n_workers: int, resources: dict[str, float], timeout: float
) -> list[Ending]:
    """Run the processes on new actors; return how each of them has ended."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # All or none: a process that has started waits for the others.
    group = ray.util.placement_group([resources] * n_workers, strategy="PACK")
    actors: list[Any] = []
    try:
        if not group.wait(timeout):
            raise JobError(
                f"The Ray cluster has had no room for {n_workers} workers with {resources} each "
                f"for {timeout:g} seconds; ask for fewer, or add machines."
            )
        others = {name: n for name, n in resources.items() if name not in ("CPU", "GPU", "memory")}
        kind = ray.remote(
            max_restarts=0,
            max_concurrency=2,  # one that waits for the child, one to end it
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            memory=resources.get("memory"),
            resources=others or None,
        )(_Worker)
        for bundle in range(n_workers):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
            actors.append(kind.options(scheduling_strategy=place).remote())
        return _run_on(ray, actors, words)
    finally:
        _dismiss(ray, actors)
        ray.util.remove_placement_group(group)


def _run_on(ray: Any, actors: list[Any], words: list[str]) -> list[Ending]:
    n_workers = len(actors)
    try:
        places = ray.get([actor.place.remote() for actor in actors])
        hosts = [host for host, _ in places]
        coordinator = ray.get(actors[0].meeting_point.remote(hosts[0]))
    except ray.exceptions.RayError as error:
        return [_lost(error)] * n_workers
    variables = place_processes(coordinator, hosts, [cores for _, cores in places])
    references = [
        actor.run.remote(words, variables[number], number == 0)
        for number, actor in enumerate(actors)
    ]
    waiting, endings = list(references), {}
    deadline = None
    while waiting and (deadline is None or time.monotonic() < deadline):
        done, waiting = ray.wait(waiting, num_returns=1, timeout=1.0)
        for reference in done:
            try:
                ending = ray.get(reference)
            except ray.exceptions.RayError as error:
                ending = _lost(error)
            endings[reference] = ending
            if ending.code != 0 and deadline is None:
                # The others find out by themselves, and one of them may know more.
                deadline = time.monotonic() + PATIENCE
    unheard = Ending(TRY_AGAIN, "it had to be ended, after another one")
    return [endings.get(reference, unheard) for reference in references]


def _lost(error: Exception) -> Ending:
    """Return the ending of a process of which Ray says that its actor is gone."""
    return Ending(1, " ".join(str(error).split()) or type(error).__name__)


def _dismiss(ray: Any, actors: list[Any]) -> None:
    """End all actors, and before them their children."""
    farewells = [actor.end.remote() for actor in actors]
    if farewells:
        ray.wait(farewells, num_returns=len(farewells), timeout=PATIENCE)
    for actor in actors:
        ray.kill(actor)
