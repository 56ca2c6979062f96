"""Colors and markers that tell clusters apart."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sgpmic.colors import GREY, OKABE_ITO, distinct_colors, oklab, style_of


def cielab(colors: list[str]) -> np.ndarray:
    """Return CIE L*a*b* (D65), another measure than the one that colors are chosen by."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = linear @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1
    )


@pytest.mark.parametrize("dark", [False, True])
def test_thirty_colors_differ(dark: bool) -> None:
    places = cielab([*distinct_colors(30, dark=dark), GREY])
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2))
    assert nearest > 12.0, "2.3 is a just noticeable difference; Okabe and Ito's are 24 apart"


@pytest.mark.parametrize("dark", [False, True])
def test_colors_are_seen_on_their_ground(dark: bool) -> None:
    lightness = cielab(list(distinct_colors(60, dark=dark)))[:, 0]
    assert lightness.min() > 35 if dark else lightness.max() < 80


def test_the_first_are_those_of_okabe_and_ito_but_for_yellow() -> None:
    assert [a == b for a, b in zip(distinct_colors(8), OKABE_ITO, strict=True)].count(False) == 1
    assert distinct_colors(40)[:20] == distinct_colors(20)


def test_no_pair_of_color_and_marker_comes_twice() -> None:
    assert len({style_of(m) for m in range(200)}) == 200


def test_oklab_of_known_colors() -> None:
    # From the article that defines it: white is (1, 0, 0), and pure red has these coordinates.
    found = oklab(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(found[0], [1.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found[1], [0.62796, 0.22486, 0.12585], atol=1e-4)
