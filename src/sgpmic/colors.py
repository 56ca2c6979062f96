"""Colors and markers that distinguish many clusters, for plots and reports."""

from __future__ import annotations

from functools import cache

import numpy as np

from sgpmic._types import Floats

#: Okabe and Ito's colorblind-safe palette.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

#: Markers, to keep plots readable in black and white.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")

#: Number of colors before they repeat with other markers.
N_COLORS = 24

#: For missing values and leftovers, on light and on dark backgrounds.
GREY, GREY_ON_DARK = "#A8A8A8", "#7A7A7A"

# Replacements: yellow is hard to see on white, black and dark blue on black.
_ON_LIGHT = {"#F0E442": "#B8A600"}
_ON_DARK = {"#000000": "#E8E8E8", "#0072B2": "#4F7BF0"}

# Lightness range (OKLab) of further colors: visible on the background, not near black or white.
_LIGHTNESS = {False: (0.38, 0.76), True: (0.6, 0.92)}


@cache
def distinct_colors(count: int, *, dark: bool = False) -> tuple[str, ...]:
    """Return ``#RRGGBB``: Okabe and Ito's eight, then each as far as possible from all others."""
    changed = _ON_DARK if dark else _ON_LIGHT
    base = [changed.get(color, color) for color in OKABE_ITO]
    if count <= len(base):
        return tuple(base[:count])
    steps = np.round(np.linspace(0, 255, 18)).astype(np.int64)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    places = oklab(grid / 255.0)
    low, high = _LIGHTNESS[dark]
    usable = (places[:, 0] >= low) & (places[:, 0] <= high)
    grid, places = grid[usable], places[usable]
    # Grays are reserved for missing values.
    taken = [list(bytes.fromhex(color[1:])) for color in (*base, GREY, GREY_ON_DARK)]
    known = oklab(np.array(taken) / 255.0)
    distance = np.min([np.linalg.norm(places - one, axis=1) for one in known], axis=0)
    while len(base) < count:
        best = int(distance.argmax())
        base.append("#" + bytes(grid[best].tolist()).hex().upper())
        distance = np.minimum(distance, np.linalg.norm(places - places[best], axis=1))
    return tuple(base)


def style_of(number: int, *, dark: bool = False) -> tuple[str, str]:
    """Return color and marker of a cluster; no pair repeats within 240 clusters."""
    place, cycle = number % N_COLORS, number // N_COLORS
    return distinct_colors(N_COLORS, dark=dark)[place], MARKERS[(place + cycle) % len(MARKERS)]


def oklab(colors: Floats) -> Floats:
    """Convert sRGB colors (n, 3), from 0 to 1, to the perceptually uniform OKLab space."""
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(linear @ _TO_CONES.T)
    return cones @ _TO_LAB.T


# Ottosson's matrices for OKLab.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
