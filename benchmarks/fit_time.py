"""How long the ``fit`` call takes on Iris: in a fresh process, again, and where the time goes.

Run with ``make bench`` or ``python benchmarks/fit_time.py``.
"""

from __future__ import annotations

import logging
import re
import time
import warnings

import jax
from sklearn.datasets import load_iris

from sgpmic import SGPMIC


class CompileLog(logging.Handler):
    """Adds up what JAX says about tracing, lowering and compiling."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = {"tracing": 0.0, "lowering": 0.0, "compiling": 0.0}

    def emit(self, record: logging.LogRecord) -> None:
        """Take in one message of JAX's log."""
        message = record.getMessage()
        found = re.search(r" in ([0-9.]+) sec", message)
        if found is None:
            return
        if "Finished tracing" in message:
            self.seconds["tracing"] += float(found[1])
        elif "MLIR" in message:
            self.seconds["lowering"] += float(found[1])
        elif "Finished XLA compilation" in message:
            self.seconds["compiling"] += float(found[1])


def timed_fit(mapping: str) -> tuple[float, int]:
    data = load_iris().data
    model = SGPMIC(3, 2, mapping=mapping, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data)
    return time.perf_counter() - began, model.n_iter_


def main() -> None:
    log = CompileLog()
    logger = logging.getLogger("jax")
    logger.addHandler(log)
    logger.propagate = False
    jax.config.update("jax_log_compiles", True)
    for mapping in ("shared", "per_cluster"):
        log.seconds = dict.fromkeys(log.seconds, 0.0)
        first, rounds = timed_fit(mapping)
        parts = dict(log.seconds)
        again = min(timed_fit(mapping)[0] for _ in range(3))
        spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())
        print(f"Iris, 3 clusters, 2 dimensions, mapping={mapping!r}, {rounds} rounds")
        print(f"  first fit  {first:6.2f} s   ({spent}, the rest is start and rounds)")
        print(f"  later fits {again:6.2f} s   ({again / rounds * 1e3:.0f} ms a round)")


if __name__ == "__main__":
    main()
