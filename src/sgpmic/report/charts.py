"""Where the lines, bars and ticks of the report's small charts lie, in SVG units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sgpmic._types import Floats
from sgpmic.report.content import RunContent
from sgpmic.report.words import number

#: A chart's size and the edges of its axes; the left one depends on what is written there.
FRAME: dict[str, Any] = {"width": 460, "height": 250, "right": 434, "top": 14, "bottom": 208}


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two bounds, about as many as asked for."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


_Scale = Callable[[float], float]  # from a number to its place


def _scale(low: float, high: float, start: float, end: float) -> _Scale:
    span = (high - low) or 1.0
    return lambda value: round(start + (value - low) / span * (end - start), 2)


def _axes(
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    y_ticks: dict[float, str],
    inset: int = 0,
) -> tuple[_Scale, _Scale, dict[str, Any]]:
    """Return the scales, and what the template draws axes from; a tick is a place and words."""
    # Space for the longest number, at 12 units a line, and the axis's name
    left = 30 + round(7.2 * max(map(len, y_ticks.values())))
    y = _scale(*y_ends, FRAME["bottom"], FRAME["top"])
    ticks = [(y(value), words) for value, words in y_ticks.items()]
    return (
        _scale(*x_ends, left + inset, FRAME["right"]),
        y,
        FRAME | {"left": left, "y_ticks": ticks},
    )


def bound_chart(content: RunContent) -> dict[str, Any] | None:
    """Return the bound over rounds of every start, None where there is no history.

    The first rounds are often so far below the rest that they would flatten everything; the
    axis then starts at the lowest bound after the first round, and the chart says so.
    """
    lines = _bound_lines(content)
    if not lines:
        return None
    everything = np.concatenate([line["bounds"] for line in lines])
    later = np.concatenate([line["bounds"][1:] for line in lines])
    low, high = float(everything.min()), float(everything.max())
    cut = False
    if len(later) > 1 and later.max() > later.min():
        spread = float(later.max() - later.min())
        cut = low < later.min() - 3.0 * spread
        low = float(later.min() - 0.15 * spread) if cut else low
    pad = 0.06 * ((high - low) or max(abs(high), 1.0))
    low, high = low - pad, high + pad
    rounds = max(int(line["rounds"].max()) for line in lines)
    x, y, axes = _axes((1, max(rounds, 2)), (low, high), _told_apart(nice_ticks(low, high)), 8)
    for line in lines:
        places = [(x(r), y(b)) for r, b in zip(line["rounds"], line["bounds"], strict=True)]
        line["points"] = " ".join(f"{x},{y}" for x, y in places)
        line["end"] = places[-1]
    lines.sort(key=lambda line: line["start"] == content.kept_start)  # drawn last, on top
    # Rounds start at 1, which round steps of 2 or 5 would leave out.
    step = max(1, math.ceil(nice_ticks(0, rounds, 8)[1])) if rounds > 1 else 1
    x_ticks = [1, *(t for t in range(step, rounds + 1, step) if t > 1 + 0.4 * step)]
    return axes | {"x_ticks": [(x(t), number(t)) for t in x_ticks], "lines": lines, "cut": cut}


def _bound_lines(content: RunContent) -> list[dict[str, Any]]:
    if not content.history.get("bound"):
        return []
    starts, rounds, bounds = (np.asarray(content.history[k]) for k in ("start", "round", "bound"))
    lines = []
    # By place, not by number: starts that broke off at once have a number but no line.
    for place, start in enumerate(np.unique(starts)):
        mine = (starts == start) & np.isfinite(bounds)
        if mine.any():
            line = {"start": int(start), "kept": content.kept_start in (None, place)}
            lines.append(line | {"rounds": rounds[mine], "bounds": bounds[mine]})
    return lines


def number_chart(chosen: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the probability of every number of clusters, None where none was sought.

    Runs of an earlier version have how sure the committee is instead.
    """
    if chosen is None or not chosen["candidates"]:
        return None
    shown = "probability" if "probability" in chosen else "certainty"
    numbers, probability = chosen["candidates"], chosen[shown]
    y_ticks = {t: f"{100 * t:.0f} %" for t in nice_ticks(0.0, 1.0)}
    x, y, axes = _axes((numbers[0] - 0.5, numbers[-1] + 0.5), (0.0, 1.02), y_ticks)
    return axes | {
        "x_ticks": [(x(k), str(k)) for k in numbers if len(numbers) <= 15 or k % 5 == 0],
        "points": [(k, p, x(k), y(p)) for k, p in zip(numbers, probability, strict=True)],
        "shown": shown,
    }


def certainty_chart(certainty: Floats) -> dict[str, Any]:
    """Return the histogram of certainty, from 0 to 1."""
    counts, edges = np.histogram(np.clip(certainty, 0.0, 1.0), bins=20, range=(0.0, 1.0))
    top = 1.05 * max(int(counts.max()), 1)
    y_ticks = {t: number(t) for t in nice_ticks(0, top, 4) if float(t).is_integer()}
    x, y, axes = _axes((0.0, 1.0), (0.0, top), y_ticks)
    bars = [
        {
            "x": x(low) + 1,
            "width": round(x(high) - x(low) - 2, 2),
            # One row among thousands must still be seen.
            "height": max(FRAME["bottom"] - y(count), 1.5),
            "count": int(count),
            "words": f"{100 * low:.0f} to {100 * high:.0f} %",
        }
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    return axes | {"x_ticks": [(x(t / 100), f"{t} %") for t in range(0, 101, 25)], "bars": bars}


def _told_apart(values: Sequence[float]) -> dict[float, str]:
    """Return numbers and their words, with six digits or as many as it takes to differ."""
    for digits in range(6, 16):
        words = {value: number(value, digits) for value in values}
        if len(set(words.values())) == len(words):
            break
    return words
