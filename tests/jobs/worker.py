"""What every process of a test's job runs: ``python worker.py TABLE.npy FOLDER [SETTINGS]``.

Each process leaves what it found for its own rows in ``FOLDER/<process>.npz``. Where SETTINGS
have a ``resume``, a checkpoint, it then resumes from that and leaves what came of it in
``FOLDER/<process>-resumed.npz``: a second fit of the same shape has nothing to compile. And where
they have ``votes``, it fits for one iteration with a committee, to ``FOLDER/<process>-voted.npz``,
and as if the table were too large for a start from all rows, to ``FOLDER/<process>-sampled.npz``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from sgpmic import jobs

SETTINGS: dict[str, Any] = {
    "committee": None,
    "n_clusters": 3,
    "n_inducing": 8,
    # Few steps in a round: line searches amplify rounding, and sums over processes round otherwise.
    "em__optimizer": "lbfgs",
    "em__m_steps": 4,
    "max_iter": 4,
    "tol": 0.0,
    "computation__block_size": 64,
    "random_state": 0,
}

#: More rows than the first are a large table, and the second are its sample.
SAMPLED = 200, 150


def evaluate(table: Any) -> dict[str, np.ndarray]:
    """Return the bound's value and gradient at a fixed place, those by X for own rows."""
    import jax
    import jax.numpy as jnp

    from sgpmic._runtime import numerics
    from sgpmic.kernels import RBF, stack
    from sgpmic.model.bound import Mappings, data_term

    Y, group = table
    numbers = np.arange(group.first, group.first + group.n_own)
    with numerics():
        rows = group.lay_out_rows(Y, 64, lambda part: part)
        X = group.lay_out(np.stack([np.sin(numbers), np.cos(3.0 * numbers)], axis=1), rows)
        T = group.lay_out(np.stack([np.sin(numbers) ** 2, np.cos(numbers) ** 2], axis=1), rows)
        Z = np.stack([np.linspace(-1, 1, 8), np.linspace(1, -0.5, 8) ** 2], axis=1)
        kernels = jax.tree.map(np.asarray, stack([RBF(gamma=4.0), RBF(variance=2.0, gamma=3.0)]))

        def loss(X: Any, T: Any, kernels: Any, Z: Any, rows: Any) -> Any:
            return data_term(Mappings(kernels, Z, jnp.asarray(3.0)), X, T, rows, 1e-8)

        arguments = (X, T, kernels, Z, rows)
        program = (
            jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3))).lower(*arguments).compile()
        )
        value, (dX, dT, d_kernels, dZ) = program(*arguments)
        assert "all-gather" not in program.as_text()
        if group.mesh is not None:
            assert dX.sharding == X.sharding
            assert dT.sharding == X.sharding
        small = jax.tree.map(np.asarray, (d_kernels.gamma, d_kernels.variance, dZ))
    return {
        "value": np.asarray(value),
        "dX": group.own_rows(dX),
        "dT": group.own_rows(dT),
        "d_gamma": small[0],
        "d_variance": small[1],
        "dZ": small[2],
    }


def main(table: str, folder: str, settings: dict[str, Any]) -> None:
    """Evaluate and fit as one process of a job."""
    job = jobs.initialize()
    from sgpmic import SGPMIC, Committee
    from sgpmic.learning import initialization, starts

    process, n, _ = job
    if settings.pop("stuck", False):
        with jobs.together(n), jobs.Watchdog(5.0):
            if process == 1:
                time.sleep(3600)
            jobs.read_share(table)  # waits for the others
    shared = jobs.read_share(table)
    slow = settings.pop("seconds_per_round", 0.0)
    checkpoint, votes = settings.pop("resume", None), settings.pop("votes", False)

    def pause(progress: Any) -> None:
        time.sleep(slow)
        state = progress._labels.args[0]
        if n > 1:  # what has an entry for each row stays beside its row
            assert state.S.sharding == state.parameters.X.sharding
            assert not state.S.sharding.is_fully_replicated

    def fit(settings: dict[str, Any]) -> dict[str, Any]:
        with jobs.together(n), jobs.Watchdog() as dog:
            model = SGPMIC().set_params(**(SETTINGS | settings), em__callbacks=[dog.beat, pause])
            model.fit(shared)
        return {
            "labels": model.labels_,
            "memberships": model.memberships_,
            "embedding": model.embedding_,
            "bound": model.lower_bound_,
            "bounds": model.history_["bound"],
        }

    found = evaluate(shared) if settings.pop("evaluate", False) else {}
    np.savez(Path(folder) / f"{process}.npz", **found, **fit(settings))
    if checkpoint is not None:
        found = fit(settings | {"computation__checkpoint": checkpoint})
        np.savez(Path(folder) / f"{process}-resumed.npz", **found)
    if votes:
        found = fit(settings | {"committee": Committee(), "max_iter": 1, "scale": "one"})
        np.savez(Path(folder) / f"{process}-voted.npz", **found)
        starts.MOST_START_ROWS, initialization.SAMPLED_ROWS = SAMPLED
        found = fit(settings | {"max_iter": 2})
        np.savez(Path(folder) / f"{process}-sampled.npz", **found)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
