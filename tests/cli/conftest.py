"""What makes many small tables cheap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sgpmic.model import rows


@pytest.fixture(scope="module")
def few_shapes() -> Iterator[None]:
    """Pad tables of up to sixteen features, in up to eight groups, to one shape.

    For modules with tables of many kinds, which otherwise spend their time in the compiler: the
    grid of shapes is tested elsewhere (estimator/test_programs.py).
    """
    as_shipped = rows.round_up

    def coarse(number: int, per_octave: int) -> int:
        return max(as_shipped(number, per_octave), 8)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "round_up", coarse)
        patch.setattr(rows, "LEAST_FEATURES", 16)
        yield
