"""Where the reference files are that are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path


def find_shared() -> Path | None:
    """Return SGPMIC_SHARED if it is set, else the folder ``shared`` beside the project's root."""
    given = os.environ.get("SGPMIC_SHARED")
    folder = Path(given) if given else Path(__file__).resolve().parents[2].parent / "shared"
    return folder if folder.is_dir() else None


def shared_files(pattern: str) -> list[Path]:
    """Return the reference files that match ``pattern``; none where there is no such folder."""
    folder = find_shared()
    return sorted(folder.glob(pattern)) if folder is not None else []
