"""What a full disk leaves behind; ``benchmarks/attack.py`` fills real ones."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.cli.helpers import values

from sgpmic import SGPMIC, Computation
from sgpmic.storage import checkpoints


@pytest.mark.parametrize("full", ["rows-0-60.sgpmic", "rest.sgpmic"])
def test_half_a_checkpoint_does_not_stay(
    tmp_path: Path, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoints.write_model

    def write_until_full(path: Path, *content: Any) -> None:
        write(path, *content)
        if path.name == full:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_model", write_until_full)
    model = SGPMIC(3, n_inducing=10, max_iter=1, committee=None)
    with pytest.raises(OSError, match="No space"):
        model.set_params(computation=Computation(checkpoint=tmp_path)).fit(values())
    assert not list(tmp_path.iterdir())
