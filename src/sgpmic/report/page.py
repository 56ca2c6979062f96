"""The report: one self-contained HTML file that opens from disk and needs no network.

The figure is drawn by our own script on a canvas, not by Plotly, whose bundle adds 4.5 MB to every
report and whose fast scatter plot needs WebGL, which remote desktops and virtual machines often
lack. Our script draws 100 000 points in a few hundredths of a second on one slow core, and supports
keyboards, screen readers and printing.

Text from the data reaches the page in two ways only: through the template's autoescaping, and
through its filter ``tojson``, as JSON that the script shows as text. As a second line of defense,
the page's content security policy allows only its own script, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
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

#: Edges of the chart of the bound, as in the template.
LEFT, RIGHT, TOP, BOTTOM = 30, 430, 26, 208

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
    must = np.concatenate([doubtful, *typical])
    shown_rows, shown_features = choose_shown(content, strongest, must)
    features = strongest[:_DOUBTFUL_FEATURES]
    compared = statistics.compare_labels(labels, content.given_labels, M)
    remarks = [said for said in content.warnings if said.startswith(_REMARKS)]
    # Omit the sentence that is already shown above the warnings.
    warnings = [
        said.removeprefix(content.support).strip() or said
        for said in content.warnings
        if said not in remarks
    ]
    count = max(M, 12)  # labels and levels use the same colors; beyond a dozen they are gray
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
        payload=build_payload(content, shown_rows, shown_features, compared),
        palettes={"light": distinct_colors(count), "dark": distinct_colors(count, dark=True)},
        content=content,
        warnings=warnings,
        remarks=remarks,
        label_name=shorten(content.label_name, 60) or "given label",
        sizes=statistics.cluster_sizes(memberships),
        n_shown=(len(shown_rows), len(shown_features)),
        explanations=explanations,
        # A common scale for the bars of all cards, so that they can be compared.
        largest=max((abs(d.effect) for e in explanations for d in e.differences), default=0.0),
        typical=typical,
        bounds=bound_chart(content),
        certainties=certainty_histogram(content.certainty),
        doubtful=doubtful,
        features=features,
        categories=content.categories[: _DOUBTFUL_FEATURES + 2 - len(features)],
        compared=compared,
        names=[shorten(name, 60) for name in content.cluster_names],
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
    plain = ("shorten", "day", "listing", "unlabeled")
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


def bound_chart(content: RunContent) -> dict[str, Any] | None:
    """Return the lines of every start's bound over iterations, None if there is no history."""
    names = ("start", "iteration", "bound")
    starts, iterations, bounds = (np.asarray(content.history.get(name, ())) for name in names)
    finite = np.isfinite(bounds)
    if not finite.any():
        return None
    # The first bounds are often so low that they would flatten the rest.
    later = finite & (iterations > 1)
    low = float(bounds[later if later.any() else finite].min())
    high = float(bounds[finite].max())
    last = int(iterations[finite].max())
    x = np.interp(iterations, [1, max(last, 2)], [LEFT, RIGHT]).round(2)
    y = BOTTOM - (BOTTOM - TOP) * (bounds - low) / (high - low or 1.0)
    lines: list[dict[str, Any]] = []
    # By index, not by number: starts that failed immediately have a number but no line.
    for place, start in enumerate(np.unique(starts)):
        mine = finite & (starts == start)
        if mine.any():
            points = list(zip(x[mine].tolist(), y[mine].round(2).tolist(), strict=True))
            kept = content.kept_start in (None, place)
            lines.append({"points": points, "kept": kept, "start": int(start)})
    lines.sort(key=lambda line: line["kept"])  # kept start last, on top
    # As many digits as the difference needs
    size, span = max(abs(low), abs(high)), high - low or 1.0
    digits = max(6, 3 + math.ceil(math.log10(size / span or 1.0)))
    ends = {"low": number(low, digits), "high": number(high, digits), "last": last}
    return ends | {"lines": lines, "cut": bool((bounds[finite] < low).any())}


def certainty_histogram(certainty: Floats) -> list[tuple[str, int]]:
    """Return the number of rows in every twentieth of the certainties that has any."""
    counts, edges = np.histogram(np.clip(certainty, 0.0, 1.0), bins=20, range=(0.0, 1.0))
    names = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in pairwise(edges)]
    return [(name, count) for name, count in zip(names, counts.tolist(), strict=True) if count]
