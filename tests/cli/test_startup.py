"""Compiled programs are kept between processes, and damaged ones are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgpmic.cli.startup import forget_damaged

PROGRAM = """
from sgpmic.cli.startup import prepare_process
prepare_process()
import jax
def some_name(x):
    return x @ x + 1.0
jax.jit(some_name)(jax.numpy.ones((3, 3))).block_until_ready()
"""


def run(folder: Path) -> str:
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def test_a_damaged_program_is_compiled_again_and_kept(tmp_path: Path) -> None:
    assert run(tmp_path) == ""
    (entry,) = tmp_path.glob("jit_some_name-*-cache")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:100])  # as a process leaves it that is killed while it writes
    assert run(tmp_path) == "", "it is mended without a word"
    assert len(entry.read_bytes()) > 100


def test_only_what_is_damaged_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["jit_one-12ab-cache", "jit_one_more-34cd-cache", "jit_two-56ef-cache"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    assert forget_damaged("Error reading persistent compilation cache entry for 'jit_one': x")
    assert not forget_damaged("Something else about 'jit_two'")
    assert sorted(path.name for path in tmp_path.iterdir()) == names[1:]
