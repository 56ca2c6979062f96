"""The report: one self-contained HTML file that opens from disk and needs no network.

The figure is drawn by our own script on a canvas, not by Plotly, whose bundle adds 4.5 MB to every
report and whose fast scatter plot needs WebGL, which remote desktops and virtual machines often
lack. Our script draws 100 000 points in a few hundredths of a second on one slow core, and supports
keyboards, screen readers and printing.

Text from the data reaches the page in two ways only: through the template's autoescaping, and
through its filter ``tojson``, as JSON that the script shows as text. As a second line of defense,
the page's content security policy allows only its own script, by hash.

The small charts are SVG; their geometry is computed here.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sgpmic._types import Floats
from sgpmic._words import duration, percent, plural
from sgpmic.colors import distinct_colors
from sgpmic.committee.voting import explain_vote
from sgpmic.report import statistics, words
from sgpmic.report.content import RunContent
from sgpmic.report.explanations import Explanation, explain
from sgpmic.report.picture import build_payload, choose_shown
from sgpmic.report.words import number, shorten
from sgpmic.tables.columns import kind_words

# Rows and features in the table of uncertain rows, and typical rows on a cluster's card.
_DOUBTFUL, _DOUBTFUL_FEATURES, _TYPICAL = 15, 6, 3

# Prefixes of warnings that require no action.
_REMARKS = ("The neighbor graph", "The start was made", "A cluster ended", "The report shows")

#: Size of a chart and edges of its axes; the left edge depends on the tick labels.
FRAME: dict[str, Any] = {"width": 460, "height": 250, "right": 434, "top": 14, "bottom": 208}

# Parts of the page's script, in one scope: constants precede the code that uses them at load time.
_SCRIPT = ("data", "marks", "drawing", "details", "view", "selection", "rows", "controls")


def render_report(
    content: RunContent,
    *,
    only_picture: bool = False,
    explanations: list[Explanation] | None = None,
) -> str:
    """Render the report of a run as a single HTML page, in UTF-8; the same for the same content.

    With ``only_picture``, the page shows only the latent space, as in a notebook cell;
    ``explanations`` are those of :func:`~sgpmic.report.explanations.explain`, if already computed.
    """
    labels, memberships, M = content.labels, content.memberships, content.n_clusters
    explanations = explanations or explain(content)
    effects = statistics.cluster_profiles(content.values, labels, M).effects
    strongest = statistics.strongest_first(effects)
    typical = statistics.typical_rows(
        content.embedding, memberships, content.means, content.covariances, _TYPICAL
    )
    doubtful = statistics.doubtful_rows(memberships, _DOUBTFUL)
    shown = choose_shown(content, strongest, np.concatenate([doubtful, *typical]))
    features = strongest[:_DOUBTFUL_FEATURES]
    compared = statistics.compare_labels(labels, content.given_labels, M)
    remarks = [said for said in content.warnings if said.startswith(_REMARKS)]
    # Omit the sentence that is already shown above the warnings.
    warnings = [
        said.removeprefix(content.support).strip() or said
        for said in content.warnings
        if said not in remarks
    ]
    # All parts, in order of dependency, in one function
    parts = "\n".join(_resource(f"script/{name}.js") for name in _SCRIPT)
    script = '"use strict";\n(function () {\n' + parts + "})();"
    page = _environment().from_string(_resource("page.html"))
    return page.render(
        title=shorten(content.title),
        only_picture=only_picture,
        style=Markup(_resource("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        payload=build_payload(content, shown, compared),
        palettes=_palettes(content, compared),
        content=content,
        warnings=warnings,
        remarks=remarks,
        label_name=shorten(content.label_name, 60) or "given label",
        sizes=statistics.cluster_sizes(memberships),
        shown=shown,
        explanations=explanations,
        # A common scale for the bars of all cards, so that they can be compared.
        largest=max((abs(d.effect) for e in explanations for d in e.differences), default=0.0),
        typical=typical,
        bounds=bound_chart(content),
        certainty=certainty_chart(content.certainty),
        doubtful=doubtful,
        features=features,
        categories=content.categories[: _DOUBTFUL_FEATURES + 2 - len(features)],
        compared=compared,
        names=[shorten(name, 60) for name in content.cluster_names],
        numbers=number_chart(content.number_of_clusters),
        why=explain_vote(content.committee),
    ).lstrip()


@dataclass(eq=False, repr=False)
class InteractivePicture:
    """Interactive figure: notebooks show it as a cell's output; elsewhere, :meth:`save` it."""

    page: str
    height: int  # of the cell's output, in pixels

    def save(self, path: str | Path) -> None:
        """Save as an HTML file that opens in any browser, without network access."""
        Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        # An iframe isolates the notebook's styles and scripts from ours.
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0" '
            'title="Clusters and latent space"></iframe>'
        )


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    plain = ("shorten", "day", "listing", "together", "unlabeled")
    environment.filters |= {name: getattr(words, name) for name in plain}
    environment.filters |= {
        "percent": percent,
        "plural": plural,
        "duration": duration,
        "number": words.any_number,
        "digits": lambda value, digits: number(float(value), digits),
        "decimals": lambda value: number(round(float(value), 3), 3),
        "count": "{:,}".format,
        "kind": kind_words,
        "effect": lambda value: (
            ("beyond " if abs(value) >= statistics.LARGEST_EFFECT else "") + words.signed(value, 2)
        ),
    }
    return environment


def _resource(name: str) -> str:
    return files("sgpmic.report").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _palettes(content: RunContent, compared: object) -> dict[str, tuple[str, ...]]:
    # Labels and levels use the same colors; beyond a dozen they are gray, so no more are needed.
    classes = compared.names if isinstance(compared, statistics.Confusion) else ()
    most = max(map(len, (classes, *(column.levels for column in content.categories))))
    count = max(content.n_clusters, min(most, 12))
    return {"light": distinct_colors(count), "dark": distinct_colors(count, dark=True)}


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round tick values between two bounds, about as many as requested."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


_Scale = Callable[[float], float]  # from a value to its coordinate


def _axes(
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    y_ticks: dict[float, str],
    inset: int = 0,
) -> tuple[_Scale, _Scale, dict[str, Any]]:
    """Return the scales, and the axes for the template; a tick is a coordinate and a label."""

    def scale(low: float, high: float, start: float, end: float) -> _Scale:
        span = (high - low) or 1.0
        return lambda value: round(start + (value - low) / span * (end - start), 2)

    # Space for the longest number, at font size 12, and the axis label
    left = 30 + round(7.2 * max(map(len, y_ticks.values())))
    y = scale(*y_ends, FRAME["bottom"], FRAME["top"])
    ticks = [(y(value), said) for value, said in y_ticks.items()]
    x = scale(*x_ends, left + inset, FRAME["right"])
    return x, y, FRAME | {"left": left, "y_ticks": ticks}


def bound_chart(content: RunContent) -> dict[str, Any] | None:
    """Return the chart of every start's bound over iterations, None if there is no history."""
    names = ("start", "iteration", "bound")
    starts, iterations, bounds = (np.asarray(content.history.get(name, ())) for name in names)
    numbers, finite = np.unique(starts), np.isfinite(bounds)
    if not finite.any():
        return None
    each = [(starts == start) & finite for start in numbers]
    later = np.concatenate([bounds[mine][1:] for mine in each])
    low, high = float(bounds[finite].min()), float(bounds[finite].max())
    spread = float(np.ptp(later)) if len(later) > 1 else 0.0
    # The first bounds are often so low that they would flatten the rest.
    cut = spread > 0 and low < later.min() - 3.0 * spread
    low = float(later.min() - 0.15 * spread) if cut else low
    pad = 0.06 * ((high - low) or max(abs(high), 1.0))
    low, high = low - pad, high + pad
    last = int(iterations[finite].max())
    x, y, axes = _axes((1, max(last, 2)), (low, high), _told_apart(nice_ticks(low, high)), 8)
    lines: list[dict[str, Any]] = []
    # By index, not by number: starts that failed immediately have a number but no line.
    for place, (start, mine) in enumerate(zip(numbers, each, strict=True)):
        ends = [(x(r), y(b)) for r, b in zip(iterations[mine], bounds[mine], strict=True)]
        if ends:
            line = {"points": " ".join(f"{x},{y}" for x, y in ends), "end": ends[-1]}
            kept = content.kept_start in (None, place)
            lines.append(line | {"kept": kept, "start": int(start)})
    lines.sort(key=lambda line: line["kept"])  # kept start last, on top
    # Iterations start at 1, which steps of 2 or 5 would skip.
    step = max(1, math.ceil(nice_ticks(0, last, 8)[1])) if last > 1 else 1
    x_ticks = [1, *(t for t in range(step, last + 1, step) if t > 1 + 0.4 * step)]
    return axes | {"x_ticks": [(x(t), number(t)) for t in x_ticks], "lines": lines, "cut": cut}


def number_chart(chosen: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the chart of the probability of every number of clusters, None if not estimated."""
    if chosen is None or not chosen["candidates"]:
        return None
    # Runs of an earlier version have the committee's certainty instead.
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
    """Return the histogram of certainties, from 0 to 1."""
    counts, edges = np.histogram(np.clip(certainty, 0.0, 1.0), bins=20, range=(0.0, 1.0))
    top = 1.05 * max(int(counts.max()), 1)
    y_ticks = {t: number(t) for t in nice_ticks(0, top, 4) if float(t).is_integer()}
    x, y, axes = _axes((0.0, 1.0), (0.0, top), y_ticks)
    bars = [
        {
            "x": x(low) + 1,
            "width": round(x(high) - x(low) - 2, 2),
            # A single row among thousands must still be visible.
            "height": max(FRAME["bottom"] - y(count), 1.5),
            "count": int(count),
            "words": f"{100 * low:.0f} to {100 * high:.0f} %",
        }
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    return axes | {"x_ticks": [(x(t / 100), f"{t} %") for t in range(0, 101, 25)], "bars": bars}


def _told_apart(values: Sequence[float]) -> dict[float, str]:
    """Format numbers with six digits, or as many as needed to make them distinct."""
    for digits in range(6, 16):
        said = {value: number(value, digits) for value in values}
        if len(set(said.values())) == len(said):
            break
    return said
