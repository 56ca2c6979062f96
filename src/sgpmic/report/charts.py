"""Where the lines, bars and ticks of the report's small charts lie, in SVG units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the function from numbers to places."""
    span = (high - low) or 1.0
    return lambda value: round(start + (value - low) / span * (end - start), 2)


class _Axes:
    """The functions from numbers to places, and what the template draws axes from."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        y_ticks: dict[float, str],
        inset: int = 0,
    ) -> None:
        # Space for the longest number, at 12 units a line, and the axis's name
        self._left = 30 + round(7.2 * max(map(len, y_ticks.values())))
        self.x = _scale(*x, self._left + inset, WIDTH - _RIGHT)
        self.y = _scale(*y, HEIGHT - _BOTTOM, _TOP)
        self._y_ticks = [Tick(self.y(value), words) for value, words in y_ticks.items()]

    def chart(self, x_ticks: dict[float, str], **marks: Any) -> dict[str, Any]:
        """Return the axes and what is drawn in them."""
        return marks | {
            "x_ticks": [Tick(self.x(value), words) for value, words in x_ticks.items()],
            "y_ticks": self._y_ticks,
            "width": WIDTH,
            "height": HEIGHT,
            "left": self._left,
            "right": WIDTH - _RIGHT,
            "top": _TOP,
            "bottom": HEIGHT - _BOTTOM,
        }


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
    axes = _Axes((1, max(rounds, 2)), (low, high), _told_apart(nice_ticks(low, high)), inset=8)
    for line in lines:
        places = [
            (axes.x(r), axes.y(b)) for r, b in zip(line["rounds"], line["bounds"], strict=True)
        ]
        line["points"] = " ".join(f"{x},{y}" for x, y in places)
        line["end"] = places[-1]
    lines.sort(key=lambda line: line["start"] == content.kept_start)  # drawn last, on top
    # Rounds start at 1, which round steps of 2 or 5 would leave out.
    step = max(1, math.ceil(nice_ticks(0, rounds, 8)[1])) if rounds > 1 else 1
    x_ticks = [1.0, *(float(t) for t in range(step, rounds + 1, step) if t > 1 + 0.4 * step)]
    return axes.chart({t: number(t) for t in x_ticks}, lines=lines, cut=cut)


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
            kept = content.kept_start in (None, place)
            line = {"start": int(start), "kept": kept, "rounds": rounds[mine]}
            lines.append(line | {"bounds": bounds[mine]})
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
    axes = _Axes((numbers[0] - 0.5, numbers[-1] + 0.5), (0.0, 1.02), y_ticks)
    points: list[dict[str, Any]] = []
    for place, (k, p) in enumerate(zip(numbers, probability, strict=True)):
        point = {"x": axes.x(k), "y": axes.y(p), "kept": k == chosen["chosen"]}
        points.append(point | {"words": f"{k}: {100 * p:.0f} %", "number": k, "share": p})
        if "expected" in chosen:
            points[-1]["expected"] = chosen["expected"][place]
        if "shares" in chosen:
            whole, *parts = chosen["splits"][place] or (0.0,)
            points[-1]["sizes"] = ", ".join(f"{100 * s:.0f}" for s in chosen["shares"][place])
            split = f"{100 * whole:.0f} → " + " + ".join(f"{100 * s:.0f}" for s in parts)
            points[-1]["split"] = split.replace(" ", "\u00a0") if parts else ""
    return axes.chart(
        {k: str(k) for k in numbers if len(numbers) <= 15 or k % 5 == 0},
        points=points,
        line=" ".join(f"{point['x']},{point['y']}" for point in points),
        shown=shown,
        chosen=chosen["chosen"],
        listed=chosen["chosen"] in numbers,  # one was not, in earlier versions
        modes=chosen["modes"],
    )


def certainty_chart(certainty: Floats) -> dict[str, Any]:
    """Return the histogram of certainty, from 0 to 1."""
    counts, edges = np.histogram(np.clip(certainty, 0.0, 1.0), bins=20, range=(0.0, 1.0))
    top = 1.05 * max(int(counts.max()), 1)
    y_ticks = {t: number(t) for t in nice_ticks(0, top, 4) if float(t).is_integer()}
    axes = _Axes((0.0, 1.0), (0.0, top), y_ticks)
    bars = [
        {
            "x": axes.x(low) + 1,
            "width": round(axes.x(high) - axes.x(low) - 2, 2),
            # One row among thousands must still be seen.
            "height": max(HEIGHT - _BOTTOM - axes.y(count), 1.5),
            "count": int(count),
            "words": f"{100 * low:.0f} to {100 * high:.0f} %",
        }
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    return axes.chart({t: f"{100 * t:.0f} %" for t in (0.0, 0.25, 0.5, 0.75, 1.0)}, bars=bars)


def _told_apart(values: Sequence[float]) -> dict[float, str]:
    """Return numbers and their words, with six digits or as many as it takes to differ."""
    for digits in range(6, 16):
        words = [number(value, digits) for value in values]
        if len(set(words)) == len(words):
            break
    return dict(zip(values, words, strict=True))


def effect_bar(effect: float, largest: float) -> dict[str, float]:
    """Return a bar from the middle, in percent of the whole width."""
    half = 50.0 * min(abs(effect) / largest, 1.0) if largest > 0 else 0.0
    return {"left": round(50.0 - half if effect < 0 else 50.0, 2), "width": round(half, 2)}
