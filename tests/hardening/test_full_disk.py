"""What a full disk leaves behind; ``benchmarks/attack.py`` fills real ones."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from sgpmic.process_group import ProcessGroup
from sgpmic.storage import checkpoints


@pytest.mark.parametrize("full", ["rows-0-60.sgpmic", "rest.sgpmic"])
def test_half_a_checkpoint_does_not_stay(tmp_path: Path, full: str) -> None:
    def write(path: Path, *_: Any) -> None:
        if path.name == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.touch()

    snapshot: Any = SimpleNamespace(
        fits=[SimpleNamespace(history=[1.0], bound=1.0, ended=False, state=None)], seeds=[0]
    )
    (tmp_path / "round-000000").mkdir()
    with (
        mock.patch.object(checkpoints, "write_model", write),
        mock.patch.object(checkpoints, "by_row", return_value={}),
        mock.patch.object(checkpoints, "with_rows", return_value=()),
        mock.patch.object(checkpoints, "_DESCRIBED", ()),
        pytest.raises(OSError, match="No space"),
    ):
        checkpoints.Checkpoint(tmp_path, ProcessGroup(60), {}, 1).save(snapshot)
    assert [path.name for path in tmp_path.iterdir()] == ["round-000000"]
