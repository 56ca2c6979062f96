"""What every test shares; this file is read before any test module imports JAX."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Two virtual devices, so that code for several devices is exercised on every machine; loops fused
# as our own programs have them (compile_cache.py), also in programs that tests compile;
# programs compiled in one piece, which takes less time in all than in pieces side by side. XLA
# reads the variable once, when JAX first starts a backend.
_FLAGS = {
    "xla_force_host_platform_device_count": "2",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}
for _name, _value in _FLAGS.items():
    if _name not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{_name}={_value}".strip()

# What one process has compiled serves the others: those of the tests themselves and those they
# start. Most of a test's time is the compiler's. Jobs of several processes do without, see job.py.
# From Python 3.14 on JAX packs programs in another way, under the same names.
_PACKED = "compiled-zstd" if sys.version_info >= (3, 14) else "compiled"
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / _PACKED
os.environ |= {
    "SGPMIC_CACHE_DIR": str(COMPILED.parent / "programs"),
    "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Loading a program makes XLA print errors about tuning flags that no processor has.
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
# Most programs run for milliseconds, and optimizing them takes longer. `make test-all` does it all
# the same, so that its tests see what users have.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")

#: Of the memory maps that Linux allows a process, the share after which programs are let go.
_MAPS = 0.25

# What has been imported stays, and JAX makes many small objects: looking through all of them as
# often as Python does by itself takes a twentieth of the time.
gc.freeze()
gc.set_threshold(50_000, 20, 20)

# ``from support import ...`` works whatever import mode pytest runs in.
sys.path.insert(0, str(Path(__file__).parent))

# The first example of a shape pays for a compilation, so a deadline would only test the compiler.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="module", autouse=True)
def forget_compiled() -> Iterator[None]:
    """Let go of what was compiled, when a module ends and there is much of it.

    Every program takes some tens of memory maps, of which Linux allows a process 65 530: without
    this, a process that runs half of all tests ends in an abort of the compiler.
    """
    yield
    if "jax" in sys.modules and _share_of_maps() > _MAPS:
        _clear_programs()


@pytest.fixture
def as_shipped() -> Iterator[None]:
    """Optimize programs as for users, where numbers are compared that depend on all rounding."""
    import jax

    if not jax.config.read("jax_disable_most_optimizations"):
        yield
        return
    jax.config.update("jax_disable_most_optimizations", False)
    _clear_programs()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    _clear_programs()


def _clear_programs() -> None:
    import jax

    from sgpmic.compile_cache import clear_programs

    clear_programs()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def few_shapes() -> Iterator[None]:
    """Pad tables of up to sixteen features, in up to eight groups, to one shape.

    Otherwise much time would go into compiling the same programs for other shapes. Where shapes
    are what is tested, a fixture of this name does nothing.
    """
    from sgpmic.model import rows

    on_the_grid = rows.round_up

    def coarse(number: int, per_octave: int) -> int:
        return max(on_the_grid(number, per_octave), 8)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "round_up", coarse)
        patch.setattr(rows, "LEAST_FEATURES", 16)
        yield


def _share_of_maps() -> float:
    try:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        return Path("/proc/self/maps").read_bytes().count(b"\n") / allowed
    except (OSError, ValueError):  # another system, with other limits
        return 1.0
