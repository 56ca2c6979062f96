"""What the page's script reads: arrays packed as base64 in JSON that is safe inside HTML.

Sizes, for n rows and p features: places 8n bytes (16n where there are more than two latent
dimensions, and 8n for principal components), memberships (the three highest of a row) 9n,
values 4np as float32 up to ``FLOAT_BYTES``, 2np as steps of 1/65534 of a column's range up to
``STEP_BYTES``, np as steps of 1/254 beyond. Base64 adds a third.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Floats, Ints
from sgpmic.report.content import RunContent
from sgpmic.report.latent_map import MAX_DIMENSIONS, LatentMap, latent_maps
from sgpmic.report.statistics import Profiles, code_labels, continuous_labels, strongest_first
from sgpmic.report.words import shorten

#: More rows than this are drawn as a random sample of this many.
MAX_ROWS = 200_000

#: Bytes of values up to which they are kept as float32, as 16-bit steps, and at all.
FLOAT_BYTES = 4_000_000
STEP_BYTES = 20_000_000
MAX_BYTES = 40_000_000

#: Columns of text that are kept, and letters of a cell.
MOST_TEXTS, LONGEST_TEXT = 5, 200

#: Memberships of a row that are kept: the highest ones.
TOP_CLUSTERS = 3


def safe_json(data: Any) -> str:
    r"""Return JSON that may stand inside a script element.

    ``<``, ``>`` and ``&`` could end the element or open a comment, and U+2028 and U+2029 end a
    line in older JavaScript; as ``\u`` escapes they mean the same to a JSON parser. (The last
    two are escaped by ``ensure_ascii``.)
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def pack(array: NDArray[Any], dtype: str) -> dict[str, str]:
    """Return an array as {type, base64}, little-endian, in C order."""
    data = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"type": dtype, "base64": base64.b64encode(data.tobytes()).decode("ascii")}


class Shown(NamedTuple):
    """Which rows and features the script gets, and in what precision."""

    rows: Ints
    features: Ints
    values_type: str  # float32, uint16 or uint8


def choose_shown(content: RunContent, profiles: Profiles, must: Ints, limit: int) -> Shown:
    """Choose rows, at most ``limit``, and features so that the page is of a reasonable size.

    Rows that the page speaks of, ``must``, are kept in any case. Where not all features can be
    kept, those that set clusters apart most are.
    """
    n, p = content.values.shape
    rows = np.arange(n)
    if n > limit:
        drawn = np.random.default_rng(0).permutation(n)
        drawn = drawn[~np.isin(drawn, must)][: max(limit - len(np.unique(must)), 0)]
        rows = np.union1d(drawn, must)
    most = max(1, MAX_BYTES // len(rows))
    features = np.arange(p)
    if p > most:
        features = np.sort(strongest_first(profiles.effects)[:most])
    numbers = len(rows) * len(features)
    size = abs(content.values[np.ix_(rows, features)])
    size = size[size > 0]  # neither 0 nor missing
    fits_float = size.max(initial=1.0) < 1e37 and size.min(initial=1.0) > 1e-36
    if 4 * numbers <= FLOAT_BYTES and fits_float:
        return Shown(rows, features, "float32")
    return Shown(rows, features, "uint16" if 2 * numbers <= STEP_BYTES else "uint8")


def pack_values(values: Floats, values_type: str) -> dict[str, Any]:
    """Return the columns of a table one after another, with what is needed to read them.

    In steps, value = low + code · step, and the highest code stands for a missing value; in
    float32 that is NaN. ``range`` holds the first and last percentile of every column (its extremes
    where those are equal), the limits of its color scale.
    """
    columns = values.T
    missing = np.asarray(np.isnan(columns))
    columns = np.where(missing.all(axis=1, keepdims=True), 0.0, columns)
    low, high = np.nanmin(columns, axis=1), np.nanmax(columns, axis=1)
    limits = np.nanpercentile(columns, [1, 99], axis=1) if columns.size else np.zeros((2, 0))
    limits = np.where(limits[0] == limits[1], np.stack([low, high]), limits)
    packed: dict[str, Any] = {"range": limits.T.tolist()}
    if values_type == "float32":
        return packed | {"codes": pack(np.where(missing, np.nan, columns), "float32")}
    last = np.iinfo(values_type).max
    steps = last - 1
    step = high / steps - low / steps  # in two parts: the range itself may overflow
    scale = np.where(step > 0, step, 1.0)[:, None]
    codes = np.clip(np.round(columns / scale - low[:, None] / scale), 0, steps)
    return packed | {
        "codes": pack(np.where(missing, last, codes), values_type),
        "low": low.tolist(),
        "step": step.tolist(),
        "missing": last,
    }


def pack_levels(name: str, names: Sequence[str], codes: Ints) -> dict[str, Any]:
    """Return a column of words: its levels, the most frequent first, and every row's code.

    Missing cells, with the code -1, become a level of their own at the end.
    """
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    order = np.argsort(-counts, kind="stable")
    places = np.append(np.argsort(order), len(names))  # the last one for -1
    gaps = ["(missing)"] if (codes < 0).any() else []
    kind = "uint8" if len(names) < 256 else "uint32"
    return {
        "name": shorten(name),
        "names": [*(shorten(names[k]) for k in order), *gaps],
        "codes": pack(places[codes], kind),
    }


def pack_memberships(memberships: Floats) -> dict[str, Any]:
    """Return the highest memberships of every row: cluster numbers and 16-bit probabilities."""
    top = min(TOP_CLUSTERS, memberships.shape[1])
    order = np.argsort(-memberships, axis=1, kind="stable")[:, :top]
    chances = np.take_along_axis(memberships, order, axis=1)
    kind = "uint8" if memberships.shape[1] <= 256 else "uint16"
    return {
        "top": top,
        "clusters": pack(order, kind),
        "chances": pack(np.round(65535 * np.clip(chances, 0, 1)), "uint16"),
    }


def pack_map(drawn: LatentMap) -> dict[str, Any]:
    """Return a latent map for the script; density as bytes, by its square root."""
    peak = drawn.density.max()
    # Without the root a tight cluster would leave the others without any shade.
    shade = np.sqrt(drawn.density / peak) if peak > 0 else drawn.density
    return {
        "axes": list(drawn.axes),
        "home": drawn.home.tolist(),
        "extent": drawn.extent.tolist(),
        "shape": list(drawn.density.shape),
        "density": pack(np.round(255 * shade), "uint8"),
        "boundaries": pack(drawn.boundaries, "float32"),
        "outlines": [np.round(line, 6).tolist() for line in drawn.outlines],
        "numbers": drawn.numbers.tolist(),
        "plane": drawn.plane,
    }


def build_payload(content: RunContent, shown: Shown) -> dict[str, Any]:
    """Return everything the script needs, ready for :func:`safe_json`."""
    rows, features = shown.rows, shown.features
    maps = latent_maps(content)
    places = content.embedding[:, :MAX_DIMENSIONS] if maps[0].plane else maps[0].points
    feature_names = content.feature_names
    names = [shorten(feature_names[j]) for j in features]
    values = content.values[np.ix_(rows, features)]
    given = None
    if content.given_labels is not None:
        title = shorten(content.label_name) or "given label"
        numbers = continuous_labels(content.given_labels)
        if numbers is None:
            labels, codes = code_labels(content.given_labels)
            given = pack_levels(title, labels, codes[rows])
        else:  # it has a scale of colors, as features have
            names, values = [*names, title], np.column_stack([values, numbers[rows]])
    principal = content.principal and {
        "places": pack(content.principal.points[rows].T, "float32"),
        "shares": content.principal.shares.tolist(),
    }
    return {
        "n": len(rows),
        "nClusters": content.n_clusters,
        "rows": None if len(rows) == content.n_rows else pack(rows, "uint32"),
        "ids": None if content.ids is None else [shorten(content.ids[i]) for i in rows],
        "title": shorten(content.title, 60),
        "places": pack(places[rows].T, "float32"),
        "maps": [pack_map(drawn) for drawn in maps],
        "principal": principal,
        "memberships": pack_memberships(content.memberships[rows]),
        "features": names,
        "dates": [place for place, j in enumerate(features) if feature_names[j] in content.dates],
        "values": pack_values(values, shown.values_type),
        "categories": [
            pack_levels(column.name, column.levels, column.codes[rows])
            for column in content.categories[: max(1, MAX_BYTES // len(rows))]
        ],
        "texts": [
            {"name": shorten(name), "words": [shorten(words[i], LONGEST_TEXT) for i in rows]}
            for name, words in list(content.texts.items())[:MOST_TEXTS]
        ],
        "sizes": np.bincount(content.labels, minlength=content.n_clusters).tolist(),
        "given": given,
    }
