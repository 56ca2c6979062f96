"""Arrays and paths that are not what they seem, noticed before anything is learned."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from tests.cli.helpers import values

from sgpmic import SGPMIC
from sgpmic.storage.model_file import ModelFileError


def test_what_is_masked_is_not_seen(finished: Path) -> None:
    rows = np.ma.masked_less(values(), 0.0)
    assert rows.mask.any()
    model = SGPMIC.load(finished / "model.sgpmic")
    some = rows[~rows.mask.all(axis=1)]
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(
            model.predict_proba(some), model.predict_proba(some.filled(np.nan))
        )
    with pytest.warns(UserWarning, match="feature names"):
        assert (model.predict(rows) < 0).tolist() == rows.mask.all(axis=1).tolist()
    unmasked = np.ma.masked_array(values(), mask=False)
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(model.predict(unmasked), model.labels_)


@pytest.mark.parametrize("kind", ["below a file", "not writable"])
def test_a_checkpoint_that_cannot_be_written_is_noticed_first(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "checkpoint" if kind == "below a file" else tmp_path / "checkpoint"
    model = SGPMIC(3, committee=None).set_params(computation__checkpoint=place)

    def access(path: Path, mode: int) -> bool:  # root may write anywhere
        return kind != "not writable"

    with (
        mock.patch.object(os, "access", access),
        mock.patch("sgpmic.learning.run.run", side_effect=AssertionError("learning has begun")),
        pytest.raises(ModelFileError, match="cannot be written"),
    ):
        model.fit(values())
