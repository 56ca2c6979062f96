"""The model computes in float64; JAX's global switch stays as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sgpmic._precision import double_precision


@pytest.fixture(autouse=True)
def _in_double_precision() -> Iterator[None]:
    with double_precision():
        yield
