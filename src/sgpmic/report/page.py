"""The report: one HTML file that opens from disk and asks no network for anything.

The picture is drawn by our own script on a canvas, not by plotly. Plotly's bundle is 4.5 MB in
every report and its fast scatter needs WebGL, which remote desktops and virtual machines often
lack; 100 000 points in ``report.js`` take a few hundredths of a second on one slow core, and the
keyboard, the screen reader and print are ours to serve.

Words from the data reach the page in two ways only: through the template's autoescaping, and as
JSON from :func:`sgpmic.report.payload.safe_json` that the script shows as text. As a second
fence, the page's content security policy allows the one script it comes with, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sgpmic.colors import distinct_colors
from sgpmic.committee.voting import explain_vote
from sgpmic.report.charts import bound_chart, certainty_chart, number_chart
from sgpmic.report.content import RunContent
from sgpmic.report.explanations import Explanation, explain
from sgpmic.report.payload import MAX_ROWS, build_payload, choose_shown, safe_json
from sgpmic.report.statistics import (
    LARGEST_EFFECT,
    Confusion,
    cluster_profiles,
    cluster_sizes,
    compare_labels,
    doubtful_rows,
    strongest_first,
    typical_rows,
)
from sgpmic.report.words import (
    any_number,
    day,
    duration,
    exact_percent,
    listing,
    number,
    percent,
    plural,
    shorten,
    signed,
    together,
)
from sgpmic.tables.columns import kind_words

# Rows and features in the table of doubtful rows, and typical rows on a cluster's card.
_DOUBTFUL, _DOUBTFUL_FEATURES, _TYPICAL = 15, 6, 3

# Warnings of a fit that ask nothing of the reader begin so.
_REMARKS = ("The neighbor graph fell", "A cluster ended without rows, so", "The report shows")

# The parts of the page's script share one scope: a constant comes before what uses it at once.
_SCRIPT = ("data", "marks", "drawing", "details", "view", "selection", "rows", "controls")


def render_report(
    content: RunContent,
    *,
    max_rows: int = MAX_ROWS,
    only_picture: bool = False,
    explanations: list[Explanation] | None = None,
) -> str:
    """Return the report of a run as the text of one HTML file.

    More than ``max_rows`` rows are drawn as a random sample; all numbers are of all rows. With
    ``only_picture`` it shows the latent space alone, as in a notebook's cell. ``explanations`` are
    what :func:`~sgpmic.report.explanations.explain` says of the content, where that is known
    already. The same content gives the same page, byte for byte. Write it as UTF-8.
    """
    sizes = cluster_sizes(content.memberships)
    profiles = cluster_profiles(content.values, content.labels, content.n_clusters)
    explanations = explanations or explain(content)
    typical = typical_rows(
        content.embedding, content.memberships, content.means, content.covariances, _TYPICAL
    )
    doubtful = doubtful_rows(content.memberships, _DOUBTFUL)
    shown = choose_shown(content, profiles, np.concatenate([doubtful, *typical]), max_rows)
    features = strongest_first(profiles.effects)[:_DOUBTFUL_FEATURES]
    compared = compare_labels(content.labels, content.given_labels, content.n_clusters)
    remarks = [words for words in content.warnings if words.startswith(_REMARKS)]
    warnings = [words for words in content.warnings if words not in remarks]
    # Its parts in the order they are needed, in one function
    parts = "\n".join(_resource(f"script/{name}.js") for name in _SCRIPT)
    script = '"use strict";\n(function () {\n' + parts + "})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page: str = (
        _environment()
        .from_string(_resource("page.html"))
        .render(
            title=shorten(content.title),
            only_picture=only_picture,
            style=Markup(_resource("report.css")),
            script=Markup(script),
            script_hash=digest,
            payload=Markup(safe_json(build_payload(content, shown))),
            palettes=_palettes(content, compared),
            content=content,
            # What a warning adds to the sentence that stands above it already.
            warnings=[words.removeprefix(content.support).strip() or words for words in warnings],
            remarks=remarks,
            label_name=shorten(content.label_name, 60) or "given label",
            sizes=sizes,
            shown=shown,
            explanations=explanations,
            # One scale for the bars of all cards, so that they can be compared.
            largest=max((abs(d.effect) for e in explanations for d in e.differences), default=0.0),
            typical=typical,
            bounds=bound_chart(content),
            certainty=certainty_chart(content.certainty),
            doubtful=doubtful,
            features=features,
            categories=content.categories[: _DOUBTFUL_FEATURES + 2 - len(features)],
            compared=compared,
            names=Markup(safe_json([shorten(name, 60) for name in content.cluster_names])),
            numbers=number_chart(content.number_of_clusters),
            why=explain_vote(content.committee),
        )
    )
    return page.lstrip()


@dataclass(eq=False, repr=False)
class InteractivePicture:
    """A picture that can be pointed at, zoomed and selected in: one page of HTML.

    Notebooks show it as the value of a cell; elsewhere, :meth:`save` it and open the file.

    Parameters
    ----------
    page : str
    height : int
        Of the cell, in pixels.
    """

    page: str
    height: int

    def save(self, path: str | Path) -> None:
        """Write the picture as a file that opens in any browser, without a network."""
        Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A frame of its own: the notebook's styles and scripts and ours leave each other alone.
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0" '
            'title="Clusters and latent space"></iframe>'
        )


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    words = (shorten, percent, plural, day, listing, duration, together)
    environment.filters |= {function.__name__: function for function in words}
    environment.filters |= {
        "number": any_number,
        "digits": lambda value, digits: number(float(value), digits),
        "decimals": lambda value: number(round(float(value), 3), 3),
        "exact": exact_percent,
        "count": "{:,}".format,
        "whole": "{:.0f}".format,
        "kind": kind_words,
        "effect": lambda value: (
            ("beyond " if abs(value) >= LARGEST_EFFECT else "") + signed(value, 2)
        ),
    }
    return environment


def _resource(name: str) -> str:
    return files("sgpmic.report").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _palettes(content: RunContent, compared: object) -> dict[str, tuple[str, ...]]:
    # Labels and levels share the colors; beyond a dozen they are gray, so no more are needed.
    classes = compared.names if isinstance(compared, Confusion) else ()
    most = max(map(len, (classes, *(column.levels for column in content.categories))))
    count = max(content.n_clusters, min(most, 12))
    return {"light": distinct_colors(count), "dark": distinct_colors(count, dark=True)}
