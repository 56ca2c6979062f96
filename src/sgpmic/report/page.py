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
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sgpmic._types import Ints
from sgpmic.colors import distinct_colors
from sgpmic.committee.voting import explain_vote
from sgpmic.report.charts import bound_chart, certainty_chart, effect_bar, number_chart
from sgpmic.report.content import RunContent
from sgpmic.report.explanations import Explanation, explain, shortened
from sgpmic.report.payload import MAX_ROWS, build_payload, choose_shown, safe_json
from sgpmic.report.statistics import (
    LARGEST_EFFECT,
    Confusion,
    NumberByCluster,
    Profiles,
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

#: Rows in the table of doubtful rows, and typical rows and features on a cluster's card.
N_DOUBTFUL, N_TYPICAL, N_FEATURES = 15, 3, 5

#: Features in the table of doubtful rows, given labels in the confusion table.
_DOUBTFUL_FEATURES, _CONFUSION_LABELS = 6, 20

#: Columns in the table of columns.
_MOST_COLUMNS = 200

#: A row is called doubtful under this certainty.
_DOUBT = 0.6

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
    explanations = explanations or explain(content, profiles)
    typical = typical_rows(
        content.embedding, content.memberships, content.means, content.covariances, N_TYPICAL
    )
    doubtful = doubtful_rows(content.memberships, N_DOUBTFUL)
    shown = choose_shown(content, profiles, np.concatenate([doubtful, *typical]), max_rows)
    compared = compare_labels(content.labels, content.given_labels, content.n_clusters)
    remarks = [words for words in content.warnings if words.startswith(_REMARKS)]
    warnings = [words for words in content.warnings if words not in remarks]
    script = _script()
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
            summary=together(" ".join(_summary(content, sizes.counts, len(warnings)))),
            content=content,
            # What a warning adds to the sentence that stands above it already.
            warnings=[words.removeprefix(content.support).strip() or words for words in warnings],
            remarks=remarks,
            label_name=shorten(content.label_name, 60) or "given label",
            sizes=sizes,
            shown=shown,
            most_columns=_MOST_COLUMNS,
            n_features=N_FEATURES,
            explanations=explanations,
            # One scale for the bars of all cards, so that they can be compared.
            largest=max((abs(d.effect) for e in explanations for d in e.differences), default=0.0),
            typical=[[(int(row), _row_name(content, row, 40)) for row in rows] for rows in typical],
            bounds=bound_chart(content),
            certainty=certainty_chart(content.certainty),
            doubt=_DOUBT,
            doubtful=_doubtful_table(content, profiles, doubtful),
            compared=_confusion_table(compared) if isinstance(compared, Confusion) else None,
            measured=compared if isinstance(compared, NumberByCluster) else None,
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


def _script() -> str:
    """Return the page's script: its parts in the order they are needed, in one function."""
    parts = "\n".join(_resource(f"script/{name}.js") for name in _SCRIPT)
    return '"use strict";\n(function () {\n' + parts + "})();"


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "shorten": shorten,
        "number": any_number,
        "digits": lambda value, digits: number(float(value), digits),
        "decimals": lambda value: number(round(float(value), 3), 3),
        "percent": percent,
        "exact": exact_percent,
        "count": lambda value: f"{value:,}",
        "rows": lambda count: plural(int(count), "row"),
        "listing": listing,
        "duration": duration,
        "kind": kind_words,
        "together": together,
        "shortened": shortened,
        "bar": effect_bar,
        "effect": lambda value: (
            ("beyond " if abs(value) >= LARGEST_EFFECT else "") + signed(value, 2)
        ),
    }
    return environment


def _resource(name: str) -> str:
    return files("sgpmic.report").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _palettes(content: RunContent, compared: Any) -> dict[str, tuple[str, ...]]:
    # Labels and levels share the colors; beyond a dozen they are gray, so no more are needed.
    classes = compared.names if isinstance(compared, Confusion) else ()
    words = max(map(len, (classes, *(c.levels for c in content.categories))))
    count = max(content.n_clusters, min(words, 12))
    return {"light": distinct_colors(count), "dark": distinct_colors(count, dark=True)}


def _row_name(content: RunContent, row: int, longest: int = 60) -> str:
    if content.ids is None:
        return f"row {row + 1}"
    return shorten(content.ids[row], longest) or f"row {row + 1}"


def _summary(content: RunContent, counts: Ints, n_warnings: int) -> list[str]:
    """Return the sentences of the first paragraph."""
    n, p = content.n_rows, len(content.feature_names) + len(content.categories)
    filled = counts[counts > 0]
    of = f"of {listing([f'{count:,}' for count in filled])} rows"
    if len(filled) > 8:
        of = f"of {filled.min():,} to {filled.max():,} rows"
    noun = "column" if content.categories else "feature"
    sentences = [content.support] if content.support else []
    grouped = f"grouped into {plural(len(filled), 'cluster')} {of}"
    if len(filled) == 1:
        grouped = "taken for one cluster"
    sentences.append(
        f"{plural(n, 'row')} with {plural(p, noun)} {'was' if n == 1 else 'were'} {grouped} and "
        f"placed in a latent space of {plural(content.embedding.shape[1], 'dimension')}."
    )
    empty = content.n_clusters - len(filled)
    if empty:
        verb = "has" if empty == 1 else "have"
        sentences.append(
            f"{plural(empty, 'more cluster')} that the model could use {verb} no rows."
        )
    doubtful = int((content.certainty < _DOUBT).sum())
    rows = plural(doubtful, "row") if doubtful else "no row"
    verb = "are" if doubtful > 1 else "is"
    if content.n_clusters > 1:
        sentences.append(
            f"On average the model gives a row’s cluster a probability of "
            f"{percent(float(content.certainty.mean()))}; {rows} {verb} below {100 * _DOUBT:.0f} %."
        )
    if content.kept_start is not None:
        sentences.append(_ending(content.starts[content.kept_start], len(content.starts)))
    if n_warnings:
        verb = "There is" if n_warnings == 1 else "There are"
        sentences.append(f"{verb} {plural(n_warnings, 'warning')}, below.")
    return sentences


def _ending(start: dict[str, Any], n_starts: int) -> str:
    """Return how the kept start ended, in a sentence."""
    rounds = plural(int(start.get("n_iter", 0)), "round")
    among = f" in the start that was kept, one of {n_starts}" if n_starts > 1 else ""
    if start.get("converged"):
        return f"Learning settled after {rounds}{among}."
    return f"Learning ended after {rounds}{among}, before it had settled."


def _doubtful_table(content: RunContent, profiles: Profiles, rows: Ints) -> dict[str, Any]:
    """Return the most doubtful rows with their two most probable clusters and some features."""
    features = strongest_first(profiles.effects)[:_DOUBTFUL_FEATURES]
    categories = content.categories[: _DOUBTFUL_FEATURES - len(features) + 2]
    lines = []
    for row in map(int, rows):
        chances = content.memberships[row]
        codes = [(column.levels, column.codes[row]) for column in categories]
        lines.append(
            {
                "row": row,
                "name": _row_name(content, row),
                "given": None if content.given_labels is None else content.given_labels[row],
                "clusters": [(int(m), chances[m]) for m in np.argsort(-chances, kind="stable")[:2]],
                "values": [_cell(content, row, int(j)) for j in features],
                "levels": ["–" if k < 0 else shorten(levels[k], 40) for levels, k in codes],
            }
        )
    return {
        "features": [shorten(content.feature_names[j], 40) for j in features],
        "categories": [shorten(column.name, 40) for column in categories],
        "lines": lines,
        "certain": bool(content.memberships[rows].max(axis=1).min() > 0.99),
        "partial": len(features) < len(content.feature_names)
        or len(categories) < len(content.categories),
    }


def _cell(content: RunContent, row: int, j: int) -> str:
    value = float(content.values[row, j])
    return day(value) if content.feature_names[j] in content.dates else number(value)


def _confusion_table(compared: Confusion) -> dict[str, Any]:
    """Return the confusion table as it is shown: frequent labels, and the rest together."""
    names, table, ari, purity = compared
    if len(names) > _CONFUSION_LABELS:
        rest = table[:, _CONFUSION_LABELS:].sum(axis=1, keepdims=True)
        table = np.concatenate([table[:, :_CONFUSION_LABELS], rest], axis=1)
        names = [*names[:_CONFUSION_LABELS], f"{len(names) - _CONFUSION_LABELS:,} others"]
    percents = np.round(100 * table / np.maximum(table.sum(axis=1, keepdims=True), 1)).astype(int)
    return {
        "names": [shorten(name, 40) or "(empty)" for name in names],
        "lines": [list(zip(*line, strict=True)) for line in zip(table, percents, strict=True)],
        "totals": table.sum(axis=0).tolist(),
        "ari": f"{ari:.3f}".replace("-", "−"),
        "purity": percent(purity),
    }
