"""What tests of learning share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield
