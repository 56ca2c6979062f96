"""Ours at M = 1 against the sparse GPLVMs of GPy, GPflow and GPyTorch, on one core.

    make bench-peers                                # makes .venv-peers, then runs everything
    python benchmarks/peers.py [--only NAME,NAME] [--rows 20000]

Each library is a process of its own, pinned to the same core, with one thread for BLAS, TensorFlow
and Torch. They alternate (one evaluation each, then again), so that noise affects all alike: only
the ratios matter. Seconds are CPU time, the best of many. Results are lines of JSON on standard
output. A peer that is not installed is listed and skipped.

What is compared, on the same Y, X, Z, kernel and noise:

- *ours*: the data part of the KL-corrected bound, M = 1; and *ours, trace term*: the same less
  β/2 tr(K_ff − Q_ff) for every feature, which makes it Titsias' bound and so exactly the function
  that GPy's SparseGPLVM maximizes. Values and gradients of the two are compared.
- *gpy*: SparseGPLVM with its default inference, VarDTC. (Its DTC class, our bound without the trace
  term, raises for more than one feature in GPy 1.15.)
- *gpy-bayesian*, *gpflow-bayesian*: BayesianGPLVM. They also learn a variance for every latent
  coordinate and integrate over X, which costs O(N U² Q) instead of O(N U²): more model, not only
  slower code.
- *gpytorch-bayesian*: its BayesianGPLVM. It has that variance too, but samples X once an
  evaluation, and does not integrate the inducing values out: q(u) is learned (a mean and a
  triangular factor for every feature), with all rows as one batch and in float64 here.

Time to a level: GPy runs its own optimizer (L-BFGS-B) for k iterations; the level is what it has
reached. Ours runs its own optimizers, on the same function from the same start, until they reach
it. Compilation is not in the time; it is printed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peer_workers import WORKERS, Ours, problem, timed

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NUMBA_NUM_THREADS",
)
Report = dict[str, Any]


def work(name: str, sizes: list[int], folder: Path) -> None:
    """Run one library: answer requests on standard input, one line of JSON each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    import numpy as np

    maker = WORKERS[name]
    try:
        worker = maker(*problem(*sizes))
        worker.move(0.0)
        first, _ = timed(worker.evaluate)
        bound, gradient = worker.result()
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers)
        return
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in gradient.items()}
    np.savez(folder / f"{name}.npz", **arrays)
    versions = {package: importlib.metadata.version(package) for package in maker.packages}
    start = {"first_seconds": first, "bound": bound, "versions": versions}
    print(json.dumps(start), file=answers)
    for count, line in enumerate(sys.stdin, start=1):
        order = json.loads(line)
        if "optimize" in order:
            answer = worker.optimize(order["optimize"])
        elif "reach" in order:
            answer = worker.reach(order["reach"])
        else:
            worker.move(1e-9 * count)
            answer = {"seconds": timed(worker.evaluate)[0]}
        print(json.dumps(answer), file=answers)


# --- The coordinator.


class Colleague:
    """A worker's process, as seen by the coordinator."""

    def __init__(self, name: str, python: str, sizes: list[int], folder: Path) -> None:
        self.name = name
        environment = os.environ | dict.fromkeys(_THREAD_VARIABLES, "1")
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        command = [python, __file__, "--worker", name, "--folder", str(folder)]
        self.process = subprocess.Popen(
            [*command, "--sizes", *map(str, sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / f"{name}.log").open("w"),
            env=environment,
            text=True,
        )
        self.start = self._answer()

    def ask(self, order: Report) -> Report:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Report:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return {"missing": f"it stopped with status {self.process.wait()}, see its log"}
        answer: Report = json.loads(line)
        return answer

    def dismiss(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def colleagues(
    names: list[str], peers_python: str, sizes: list[int], folder: Path
) -> Iterator[dict[str, Colleague]]:
    """Start the workers; those that cannot start are listed and skipped."""
    present: dict[str, Colleague] = {}
    try:
        for name in names:
            own = issubclass(WORKERS[name], Ours)
            if not own and not Path(peers_python).exists():
                say(skipped=name, why=f"no {peers_python}: run make bench-peers")
                continue
            colleague = Colleague(name, sys.executable if own else peers_python, sizes, folder)
            if "missing" in colleague.start:
                say(skipped=name, why=colleague.start["missing"])
                continue
            say(peer=name, what=WORKERS[name].description, **colleague.start)
            present[name] = colleague
        yield present
    finally:
        for colleague in present.values():
            colleague.dismiss()


def say(**report: Any) -> None:
    rounded = {k: float(f"{v:.6g}") if k == "seconds" else v for k, v in report.items()}
    print(json.dumps(rounded), flush=True)


def agreement(present: dict[str, Colleague], folder: Path) -> None:
    """Compare bound and gradients of the two that compute the same function."""
    import numpy as np

    pair = ("ours, trace term", "gpy")
    if not all(name in present for name in pair):
        return
    mine, theirs = (present[name].start["bound"] for name in pair)
    ours, gpy = (np.load(folder / f"{name}.npz") for name in pair)
    differences = {
        key: float(np.max(np.abs(ours[key] - gpy[key])) / np.max(np.abs(gpy[key]))) for key in gpy
    }
    say(
        agreement="relative difference of ours, trace term and gpy at the same point",
        bound=abs(mine - theirs) / abs(theirs),
        gradients=differences,
    )


def evaluations(present: dict[str, Colleague], repeats: int) -> None:
    """One value-and-gradient each, alternating."""
    times: dict[str, list[float]] = {name: [] for name in present}
    slow = [name for name in present if "bayesian" in name]
    for turn in range(repeats):
        for name, colleague in present.items():
            if name in slow and turn % 5:  # seconds each: fewer turns are enough
                continue
            times[name].append(colleague.ask({})["seconds"])
    for name, seconds in times.items():
        ratios = {
            f"times {mine}": round(min(seconds) / min(times[mine]), 2)
            for mine in times
            if issubclass(WORKERS[mine], Ours) and name != mine
        }
        say(evaluation=name, seconds=min(seconds), best_of=len(seconds), **ratios)


def time_to_level(present: dict[str, Colleague], iterations: list[int]) -> None:
    if not {"ours, trace term", "gpy"} <= set(present):
        return
    for count in iterations:
        gpy = present["gpy"].ask({"optimize": count})
        say(level_of=f"gpy, L-BFGS-B, {count} iterations", **gpy)
        for optimizer, report in present["ours, trace term"].ask({"reach": gpy["bound"]}).items():
            say(
                level_by=f"ours, {optimizer}",
                **report,
                gpy_takes_times=round(gpy["seconds"] / report["seconds"], 2),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--latent", type=int, default=2)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--iterations", default="20,100", help="of GPy, for the time to a level")
    parser.add_argument("--only", default=",".join(WORKERS).replace(", ", " "))
    parser.add_argument("--python", default=".venv-peers/bin/python", help="of the peers")
    parser.add_argument("--folder", type=Path, default=None, help="for logs and gradients")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.sizes, options.folder)
        return
    if hasattr(os, "sched_setaffinity"):  # inherited by all workers
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    wanted = options.only.split(",")
    names = [name for name in WORKERS if name in wanted or name.replace(", ", " ") in wanted]
    sizes = [options.rows, options.inducing, options.latent, options.features]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        say(problem=dict(zip(("N", "U", "Q", "P"), sizes, strict=True)), precision="float64")
        with colleagues(names, options.python, sizes, folder) as present:
            agreement(present, folder)
            evaluations(present, options.repeats)
            time_to_level(present, [int(k) for k in options.iterations.split(",") if k])


if __name__ == "__main__":
    main()
