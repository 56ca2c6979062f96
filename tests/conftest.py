"""What every test shares; this file is read before any test module imports JAX."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Two virtual devices, so that code for several devices is exercised on every machine. XLA reads
# the variable once, when JAX first starts a backend.
_DEVICES = "--xla_force_host_platform_device_count=2"
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}".strip()

# What one command run as a process has compiled serves the others.
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ["SGPMIC_TEST_COMPILED"] = str(COMPILED)

# ``from support import ...`` works whatever import mode pytest runs in.
sys.path.insert(0, str(Path(__file__).parent))

# The first example of a shape pays for a compilation, so a deadline would only test the compiler.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="module", autouse=True)
def forget_compiled() -> Iterator[None]:
    """Let go of what a module has compiled.

    Every program takes some tens of memory maps, of which Linux allows a process 65 530: without
    this, a process that runs half of all tests ends in an abort of the compiler.
    """
    yield
    if "jax" in sys.modules:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Return the folder of reference files, or skip where there is none."""
    from support.shared import find_shared

    folder = find_shared()
    if folder is None:
        pytest.skip("no folder 'shared' beside the project and SGPMIC_SHARED is not set")
    return folder
