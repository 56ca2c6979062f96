"""Where the lines, bars and ticks of the report's small charts lie, in SVG units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.report.content import RunContent
from sgpmic.report.words import number

#: Size of a chart, and its margins; the left one depends on what is written there.
WIDTH, HEIGHT = 460, 250
_RIGHT, _TOP, _BOTTOM = 26, 14, 42


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    place: float
    words: str


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


def _scale(low: float, high: float, start: float, end: float) -> Any:
    """Return the function from numbers to places."""
    span = (high - low) or 1.0
    return lambda value: round(start + (value - low) / span * (end - start), 2)


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
    y = _scale(low, high, HEIGHT - _BOTTOM, _TOP)
    places = nice_ticks(low, high, 5)
    y_ticks = [Tick(y(t), words) for t, words in zip(places, _told_apart(places), strict=True)]
    left = _left_margin(y_ticks)
    x = _scale(1, max(rounds, 2), left + 8, WIDTH - _RIGHT)
    for line in lines:
        line["points"] = " ".join(
            f"{x(r)},{y(b)}" for r, b in zip(line["rounds"], line["bounds"], strict=True)
        )
        line["end"] = (x(line["rounds"][-1]), y(line["bounds"][-1]))
    kept = content.kept_start
    lines.sort(key=lambda line: line["start"] == kept)  # drawn last, on top
    # Rounds start at 1, which round steps of 2 or 5 would leave out.
    step = max(1, math.ceil(nice_ticks(0, rounds, 8)[1])) if rounds > 1 else 1
    x_ticks = [1.0, *(float(t) for t in range(step, rounds + 1, step) if t > 1 + 0.4 * step)]
    return {
        "lines": lines,
        "cut": cut,
        "x_ticks": [Tick(x(t), number(t)) for t in x_ticks],
        "y_ticks": y_ticks,
        **_frame(left),
    }


def _bound_lines(content: RunContent) -> list[dict[str, Any]]:
    """Return rounds and bounds of every start in the history."""
    history = content.history
    if not history.get("bound"):
        return []
    bounds = np.asarray(history["bound"], dtype=np.float64)
    starts = np.asarray(history.get("start", np.zeros(len(bounds))), dtype=np.int64)
    rounds = np.asarray(history.get("round", np.arange(1, len(bounds) + 1)), dtype=np.int64)
    lines = []
    # By place, not by number: starts that broke off at once have a number but no line.
    for place, start in enumerate(np.unique(starts)):
        mine = (starts == start) & np.isfinite(bounds)
        if mine.any():
            lines.append(
                {
                    "start": int(start),
                    "kept": content.kept_start in (None, place),
                    "rounds": rounds[mine],
                    "bounds": bounds[mine],
                }
            )
    return lines


def number_chart(chosen: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the probability of every number of clusters, None where none was sought.

    Runs of an earlier version have how sure the committee is instead.
    """
    if chosen is None or not chosen["candidates"]:
        return None
    shown = "probability" if "probability" in chosen else "certainty"
    numbers, probability = chosen["candidates"], chosen[shown]
    y = _scale(0.0, 1.02, HEIGHT - _BOTTOM, _TOP)
    y_ticks = [Tick(y(t), f"{100 * t:.0f} %") for t in nice_ticks(0.0, 1.0, 5)]
    left = _left_margin(y_ticks)
    x = _scale(numbers[0] - 0.5, numbers[-1] + 0.5, left, WIDTH - _RIGHT)
    points: list[dict[str, Any]] = [
        {"x": x(k), "y": y(p), "kept": k == chosen["chosen"], "words": f"{k}: {100 * p:.0f} %"}
        for k, p in zip(numbers, probability, strict=True)
    ]
    for place, point in enumerate(points):
        point |= {"number": numbers[place], "share": probability[place]}
        if "expected" in chosen:
            point["expected"] = chosen["expected"][place]
        if "shares" in chosen:
            whole, *parts = chosen["splits"][place] or (0.0,)
            point["sizes"] = ", ".join(f"{100 * s:.0f}" for s in chosen["shares"][place])
            into = " + ".join(f"{100 * s:.0f}" for s in parts)
            point["split"] = f"{100 * whole:.0f} → {into}".replace(" ", "\u00a0") if parts else ""
    return {
        "points": points,
        "line": " ".join(f"{point['x']},{point['y']}" for point in points),
        "shown": shown,
        "chosen": chosen["chosen"],
        "listed": chosen["chosen"] in numbers,  # one was not, in earlier versions
        "modes": chosen["modes"],
        "x_ticks": [Tick(x(k), str(k)) for k in numbers if len(numbers) <= 15 or k % 5 == 0],
        "y_ticks": y_ticks,
        **_frame(left),
    }


def certainty_chart(certainty: Floats) -> dict[str, Any]:
    """Return the histogram of certainty, from 0 to 1."""
    counts, edges = np.histogram(np.clip(certainty, 0.0, 1.0), bins=20, range=(0.0, 1.0))
    top = max(int(counts.max()), 1)
    y = _scale(0.0, 1.05 * top, HEIGHT - _BOTTOM, _TOP)
    ticks = [t for t in nice_ticks(0, 1.05 * top, 4) if float(t).is_integer()]
    y_ticks = [Tick(y(t), number(t)) for t in ticks]
    left = _left_margin(y_ticks)
    x = _scale(0.0, 1.0, left, WIDTH - _RIGHT)
    bars = [
        {
            "x": x(edges[i]) + 1,
            "width": round(x(edges[i + 1]) - x(edges[i]) - 2, 2),
            # One row among thousands must still be seen.
            "height": max(HEIGHT - _BOTTOM - y(count), 1.5),
            "count": int(count),
            "words": f"{100 * edges[i]:.0f} to {100 * edges[i + 1]:.0f} %",
        }
        for i, count in enumerate(counts)
        if count
    ]
    return {
        "bars": bars,
        "x_ticks": [Tick(x(t), f"{100 * t:.0f} %") for t in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "y_ticks": y_ticks,
        **_frame(left),
    }


def _told_apart(values: Sequence[float]) -> list[str]:
    """Return numbers in words, with six digits or as many as it takes to tell them apart."""
    for digits in range(6, 16):
        words = [number(value, digits) for value in values]
        if len(set(words)) == len(words):
            break
    return words


def _left_margin(ticks: Sequence[Tick]) -> int:
    """Return the space for the longest number, at 12 units a line, and the axis's name."""
    return 30 + round(7.2 * max(len(tick.words) for tick in ticks))


def _frame(left: int) -> dict[str, Any]:
    """Return the sizes that every chart's template needs."""
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": left,
        "right": WIDTH - _RIGHT,
        "top": _TOP,
        "bottom": HEIGHT - _BOTTOM,
    }


def effect_bar(effect: float, largest: float) -> dict[str, float]:
    """Return a bar from the middle, in percent of the whole width."""
    half = 50.0 * min(abs(effect) / largest, 1.0) if largest > 0 else 0.0
    return {"left": round(50.0 - half if effect < 0 else 50.0, 2), "width": round(half, 2)}
