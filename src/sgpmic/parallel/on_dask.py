"""A fit of a Dask array or data frame, where its pieces are.

Every Dask worker that has some of the rows gets a process beside it, and the processes meet each
other without Dask: a sum over all of them takes JAX a fraction of a millisecond, and Dask tens of
them. Only rows that are on the same machine already are copied, and results go the same way back.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgpmic.parallel.child import REFUSED, Child, Ending, describe, most_telling, place_processes
from sgpmic.parallel.job import JobError
from sgpmic.parallel.launch import PATIENCE, meeting_point, usable_cores
from sgpmic.parallel.watchdog import TRY_AGAIN
from sgpmic.parallel.worker import RESULTS

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

#: Seconds between two looks at whether all workers are still there.
_LOOK = 2.0


class DaskFit(NamedTuple):
    """What :func:`fit_dask` returns.

    Attributes
    ----------
    model : SGPMIC
        The fitted model, for new rows. Of the rows it was fitted to it knows a sample.
    labels, memberships, embedding : dask.array.Array
        Of all rows, on the workers, in the order of the table that was given and in its chunks
        (but for those without rows).
    """

    model: SGPMIC
    labels: Any
    memberships: Any
    embedding: Any


def fit_dask(model: SGPMIC, table: Any, client: Any = None) -> DaskFit:
    """Fit an estimator to the rows of a Dask array or data frame.

    The table is computed and kept in the workers' memory first. The fit then takes a process of
    its own beside every worker that has rows, and about twice the memory of the rows there. Rows
    are taken in the order of the workers, so starts that draw rows at random draw others than in a
    single process.

    Parameters
    ----------
    model : SGPMIC
        Its settings; it is not changed. ``checkpoint`` must be on storage that all machines share,
        and is of use as long as the same workers have the same rows.
    table : dask.array.Array of shape (n_samples, n_features) or dask.dataframe.DataFrame
        Numbers.
    client : distributed.Client or None
        The present one by default.

    Returns
    -------
    fit : DaskFit

    Raises
    ------
    ImportError
        Without Dask.
    ValueError, TypeError
        For settings or a table that cannot be used.
    JobError
        When a process or a worker was lost. All other processes have been ended then.
    """
    distributed = _import_dask()
    from sklearn.base import clone

    from sgpmic._validation import check_parameters

    check_parameters(model.get_params(deep=False))
    for name in ("init", "init_memberships"):
        if not isinstance(getattr(model, name), str):
            raise ValueError(f"fit_dask takes {name} by its name only, not as an array.")
    client = _find_client(distributed, client)
    array, names = _as_array(table, client)
    places = _find_rows(distributed, client, array)
    if sum(place.n_rows for place in places) < model.n_clusters:
        raise ValueError(f"The table has fewer rows than n_clusters={model.n_clusters}.")
    results = _run(client, clone(model), places)
    try:
        fitted = _load(results[0])
        if names is not None:
            fitted.feature_names_in_ = np.array(names, dtype=object)
        found = _collect(distributed, client, places, results, fitted)
    finally:
        _tidy(client, places, results)
    for category, sentence in results[0].notes:
        warnings.warn(sentence, category, stacklevel=2)
    return DaskFit(fitted.set_params(callbacks=model.callbacks), *found)


def _import_dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            "fit_dask needs Dask, which is not installed: pip install 'sgpmic[dask]'."
        ) from error
    return distributed


def _find_client(distributed: Any, client: Any) -> Any:
    if client is not None:
        return client
    try:
        return distributed.get_client()
    except ValueError:
        raise ValueError(
            "There is no Dask client: make one first, client = distributed.Client(…)."
        ) from None


# ------------------------------------------------------------------------------- the rows


class _Place(NamedTuple):
    """A worker and the pieces of the table that it has."""

    address: str
    host: str
    chunks: list[int]  # by their numbers, in the order of the rows
    futures: list[Any]
    sizes: list[int]

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)


def _as_array(table: Any, client: Any) -> tuple[Any, list[str] | None]:
    """Return the table on the workers, in chunks of whole rows, and the names of its columns."""
    names = None
    if hasattr(table, "to_dask_array"):
        columns = list(table.columns)
        names = columns if all(isinstance(name, str) for name in columns) else None
        # Before its lengths are asked for, which would compute all of it a first time.
        table = client.persist(table).to_dask_array(lengths=True)
    if not hasattr(table, "compute_chunk_sizes"):
        raise TypeError(
            f"fit_dask takes a Dask array or data frame, not {type(table).__name__}; "
            "SGPMIC.fit takes arrays."
        )
    if table.ndim != 2 or table.dtype.kind not in "fiub":
        raise ValueError(
            f"fit_dask takes a table of numbers, not {table.ndim} dimensions of {table.dtype}."
        )
    if np.isnan(table.shape).any():
        table = client.persist(table).compute_chunk_sizes()
    return client.persist(table.rechunk({1: -1})), names


def _find_rows(distributed: Any, client: Any, array: Any) -> list[_Place]:
    """Find out which worker has which rows; wait until all are there."""
    futures = {future.key: future for future in distributed.futures_of(array)}
    distributed.wait(list(futures.values()))
    for future in futures.values():
        if future.status != "finished":
            future.result()  # raises what its computation raised
    holders = client.who_has(list(futures.values()))
    found: dict[str, _Place] = {}
    for number, ((key, *_), size) in enumerate(
        zip(array.__dask_keys__(), array.chunks[0], strict=True)
    ):
        if size == 0:
            continue
        having = list(holders.get(key, ()))
        if not having:
            raise JobError("A Dask worker was lost with some of the rows; call fit_dask again.")
        # Of several that have it, the one with the least to do.
        address = min(having, key=lambda a: found[a].n_rows if a in found else 0)
        host = distributed.comm.get_address_host(address)
        place = found.setdefault(address, _Place(address, host, [], [], []))
        place.chunks.append(number)
        place.futures.append(futures[key])
        place.sizes.append(int(size))
    if not found:
        raise ValueError("The table has no rows.")
    return list(found.values())


# ------------------------------------------------------------------------------- processes


class _Result(NamedTuple):
    """What a worker tells of the process beside it."""

    ending: Ending
    folder: str
    model: bytes = b""
    notes: Sequence[tuple[type[Warning], str]] = ()


#: The processes beside this worker, by the name of their job and their number.
_children: dict[tuple[str, int], Child] = {}
#: Jobs that were ended before some of their processes had been started.
_ended: set[str] = set()


def _fit_beside(
    name: str, model: Any, variables: dict[str, str], process: int, *pieces: Any
) -> _Result:
    """Run a process beside this worker, for the rows it has (a Dask task)."""
    import cloudpickle

    folder = Path(tempfile.mkdtemp(prefix="sgpmic-"))
    shape = (sum(map(len, pieces)), pieces[0].shape[1])
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float64, shape)
    start = 0
    for piece in pieces:
        rows[start : start + len(piece)] = piece
        start += len(piece)
    rows.flush()
    del rows
    # Callbacks may be functions of a notebook, which only cloudpickle takes along.
    (folder / "model.pickle").write_bytes(cloudpickle.dumps(model))
    child = _children[name, process] = Child(["rows", str(folder)], variables)
    if name in _ended:
        child.end()
    try:
        ending = child.wait()
    finally:
        del _children[name, process]
    (folder / "rows.npy").unlink()
    if ending.code:
        _remove(str(folder))
    if ending.code or process:
        return _Result(ending, str(folder))
    notes = pickle.loads((folder / "warnings.pickle").read_bytes())
    return _Result(ending, str(folder), (folder / "model.sgpmic").read_bytes(), notes)


def _end_beside(name: str) -> None:
    """End the processes of a job beside this worker (run at once, whatever the worker does)."""
    _ended.add(name)
    for (job, _), child in list(_children.items()):
        if job == name:
            child.end()


def _run(client: Any, model: Any, places: list[_Place]) -> list[_Result]:
    """Run a process beside every worker; return their results, or end all and raise."""
    addresses = [place.address for place in places]
    cores = client.run(usable_cores, workers=addresses)
    coordinator = client.run(meeting_point, places[0].host, workers=addresses[:1])[addresses[0]]
    variables = place_processes(
        coordinator, [place.host for place in places], [cores[a] for a in addresses]
    )
    name = f"sgpmic-{uuid.uuid4().hex}"
    futures = [
        client.submit(
            _fit_beside,
            name,
            model,
            variables[process],
            process,
            *place.futures,
            key=f"{name}-{process}",
            workers=[place.address],
            pure=False,
            retries=0,
            priority=1,  # they wait for each other, so nothing should come between
        )
        for process, place in enumerate(places)
    ]
    heard: dict[int, _Result] = {}
    try:
        _wait(client, futures, places, heard)
    finally:
        if len(heard) < len(futures):
            present = client.nthreads()
            beside = [address for address in addresses if address in present]
            client.run(_end_beside, name, workers=beside, on_error="ignore")
            client.cancel(futures)
    unheard = _Result(Ending(TRY_AGAIN, "it had to be ended, after another one"), "")
    results = [heard.get(process, unheard) for process in range(len(futures))]
    endings = [result.ending for result in results]
    if all(ending.code == 0 for ending in endings):
        return results
    _tidy(client, places, results)
    cause = most_telling(endings)
    if cause.code == REFUSED:
        raise ValueError(cause.words)
    process = endings.index(cause)
    raise JobError(
        f"Process {process} of {len(places)}, beside the Dask worker {addresses[process]}, has "
        f"failed, and all others were ended ({describe(cause)})."
    )


def _wait(client: Any, futures: list[Any], places: list[_Place], heard: dict[int, _Result]) -> None:
    """Wait until all have ended, or one has failed and the rest has had its time."""
    deadline, looked = float("inf"), time.monotonic()
    while len(heard) < len(futures) and time.monotonic() < deadline:
        for process, future in enumerate(futures):
            if process not in heard and future.status != "pending":
                if _went_with_its_worker(future):
                    raise _lost(places[process])
                # Raises what the task itself raised: no room on a disk, for example.
                heard[process] = future.result()
                if heard[process].ending.code != 0:
                    # The others find out by themselves, and one of them may know more.
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        if time.monotonic() - looked > _LOOK:
            looked, present = time.monotonic(), client.nthreads()
            for process, place in enumerate(places):
                if place.address not in present and process not in heard:
                    raise _lost(place)
        time.sleep(0.1)


def _went_with_its_worker(future: Any) -> bool:
    if future.status == "error":
        return type(future.exception()).__name__ == "KilledWorker"
    return future.status in ("cancelled", "lost")


def _lost(place: _Place) -> JobError:
    return JobError(
        f"The Dask worker {place.address} was lost during the fit, and the processes beside the "
        "others were ended; call fit_dask again."
    )


# ------------------------------------------------------------------------------- results


def _load(result: _Result) -> SGPMIC:
    from sgpmic import SGPMIC

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgpmic"
        path.write_bytes(result.model)
        return SGPMIC.load(path)


def _read_piece(folder: str, name: str, start: int, stop: int) -> Any:
    """Return what was found for a piece of the table (a Dask task)."""
    return np.load(Path(folder) / f"{name}.npy", mmap_mode="r")[start:stop].copy()


def _collect(
    distributed: Any,
    client: Any,
    places: list[_Place],
    results: list[_Result],
    model: SGPMIC,
) -> list[Any]:
    """Return labels, memberships and latent points as Dask arrays in the table's own order."""
    import dask.array as da

    kinds = {
        "labels": ((), model.labels_.dtype),
        "memberships": ((model.n_clusters,), np.dtype(np.float64)),
        "embedding": ((model.n_components_,), np.dtype(np.float64)),
    }
    found, all_futures = [], []
    for name in RESULTS:
        shape, dtype = kinds[name]
        pieces: dict[int, Any] = {}
        for place, result in zip(places, results, strict=True):
            ends = np.cumsum(place.sizes)
            for number, size, end in zip(place.chunks, place.sizes, ends, strict=True):
                future = client.submit(
                    _read_piece,
                    result.folder,
                    name,
                    int(end) - size,
                    int(end),
                    workers=[place.address],
                    pure=False,
                )
                all_futures.append(future)
                pieces[number] = da.from_delayed(future, (size, *shape), dtype)
        found.append(da.concatenate([pieces[number] for number in sorted(pieces)]))
    distributed.wait(all_futures)
    for future in all_futures:
        if future.status != "finished":
            future.result()
    return found


def _remove(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _tidy(client: Any, places: list[_Place], results: list[_Result]) -> None:
    """Remove what the processes have left on the workers that are still there."""
    present = client.nthreads()
    for place, result in zip(places, results, strict=True):
        if place.address in present:
            client.run(_remove, result.folder, workers=[place.address], on_error="ignore")
