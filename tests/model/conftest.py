"""The model computes in float64 on one BLAS thread; global switches stay as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sgpmic._runtime import numerics


@pytest.fixture(autouse=True)
def _numerics() -> Iterator[None]:
    with numerics():
        yield


@pytest.fixture(scope="module")
def few_shapes() -> None:
    """Leave rows in the shapes that these tests give them."""
