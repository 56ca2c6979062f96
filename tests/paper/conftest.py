"""What the tests of the paper share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def yale_folder() -> Path:
    """Return the folder with the Yale faces, the one data set that is not in a fresh clone.

    SGPMIC_SHARED names the folder above it; without it, ``shared`` beside the project's root.
    """
    beside = Path(__file__).resolve().parents[3] / "shared"
    folder = Path(os.environ.get("SGPMIC_SHARED", beside)) / "data"
    if not (folder / "yale_uncropped.csv").exists():
        pytest.skip("the Yale faces are not part of the project; SGPMIC_SHARED names their folder")
    return folder
