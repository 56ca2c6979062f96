"""How much memory is free: on this machine, and in the container that the process may be in."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def free_memory() -> float:
    """Return how many bytes this process can still take; infinity where the system does not say."""
    return min(_free_on_machine(), free_in_container())


def _free_on_machine() -> float:
    with suppress(OSError, StopIteration, ValueError), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    with suppress(OSError, AttributeError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf


def free_in_container(system: Path = Path("/")) -> float:
    """Return what the control groups (version 2) of this process leave it."""
    free = math.inf
    with suppress(OSError, StopIteration):
        lines = (system / "proc/self/cgroup").read_text().splitlines()
        group = Path(next(line for line in lines if line.startswith("0::"))[3:])
        for parent in (group, *group.parents):  # each may have a limit
            folder = system / "sys/fs/cgroup" / parent.relative_to("/")
            with suppress(OSError, ValueError):  # "max" is no limit, and the topmost group has none
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                statistics = (folder / "memory.stat").read_text().split()
                # Cached files count as used, but give way.
                cached = int(statistics[statistics.index("inactive_file") + 1])
                free = min(free, limit - used + cached)
    return free
