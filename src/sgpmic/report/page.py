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
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sgpmic._types import Ints
from sgpmic.colors import distinct_colors
from sgpmic.committee.voting import explain_vote
from sgpmic.report.charts import bound_chart, certainty_chart, effect_bar, number_chart
from sgpmic.report.content import RunContent
from sgpmic.report.differences import Difference, shortened
from sgpmic.report.explanations import Explanation, explain
from sgpmic.report.payload import MAX_ROWS, Shown, build_payload, choose_shown, safe_json
from sgpmic.report.statistics import (
    LARGEST_EFFECT,
    Confusion,
    Profiles,
    Sizes,
    cluster_profiles,
    cluster_sizes,
    confusion,
    continuous_labels,
    doubtful_rows,
    number_by_cluster,
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
from sgpmic.tables.columns import Levels, kind_words

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
_SCRIPT_PARTS = (
    *("data", "words", "names", "state", "planes", "colors", "marks", "drawing", "legend"),
    *("distribution", "finding", "details", "view", "principal", "selection", "profile"),
    *("rows", "saving", "pointer", "controls", "begin"),
)


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
    typical = typical_rows(
        content.embedding, content.memberships, content.means, content.covariances, N_TYPICAL
    )
    doubtful = doubtful_rows(content.memberships, N_DOUBTFUL)
    shown = choose_shown(content, profiles, np.concatenate([doubtful, *typical]), max_rows)
    compared = measured = None
    if content.given_labels is not None:
        numbers = continuous_labels(content.given_labels)
        if numbers is None:
            compared = confusion(content.labels, content.given_labels, content.n_clusters)
        else:
            measured = number_by_cluster(numbers, content.labels, content.n_clusters)
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
            summary=together(" ".join(_summary(content, sizes))),
            content=content,
            warnings=[_unsaid(words, content.support) for words in _warnings(content)],
            remarks=[words for words in content.warnings if words.startswith(_REMARKS)],
            label_name=shorten(content.label_name, 60) or "given label",
            sizes=sizes.counts.tolist(),
            picture_words=_picture_words(content, sizes),
            notes=_picture_notes(content, shown),
            most_columns=_MOST_COLUMNS,
            cards=_cards(content, sizes, explanations or explain(content, profiles), typical),
            bounds=bound_chart(content),
            certainty=certainty_chart(content.certainty),
            certain_words=together(_certain_words(content)),
            doubtful=_doubtful_table(content, profiles, doubtful),
            compared=_confusion_table(compared),
            measured=measured,
            names=Markup(safe_json([shorten(name, 60) for name in content.cluster_names])),
            numbers=number_chart(content.number_of_clusters),
            why=explain_vote(content.committee),
        )
    )
    return page.lstrip()


def _warnings(content: RunContent) -> list[str]:
    """Return what a reader should act on."""
    return [words for words in content.warnings if not words.startswith(_REMARKS)]


def _script() -> str:
    """Return the page's script: its parts in the order they are needed, in one function."""
    parts = "\n".join(_resource(f"script/{name}.js") for name in _SCRIPT_PARTS)
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
        "duration": duration,
        "kind": kind_words,
        "together": together,
    }
    return environment


def _resource(name: str) -> str:
    return files("sgpmic.report").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _palettes(content: RunContent, compared: Confusion | None) -> dict[str, tuple[str, ...]]:
    # Labels and levels share the colors; beyond a dozen they are gray, so no more are needed.
    words = [len(compared.names) if compared else 0, *(len(c.levels) for c in content.categories)]
    count = max(content.n_clusters, min(max(words), 12))
    return {"light": distinct_colors(count), "dark": distinct_colors(count, dark=True)}


def _row_name(content: RunContent, row: int, longest: int = 60) -> str:
    if content.ids is None:
        return f"row {row + 1}"
    return shorten(content.ids[row], longest) or f"row {row + 1}"


def _summary(content: RunContent, sizes: Sizes) -> list[str]:
    """Return the sentences of the first paragraph."""
    n, p = content.n_rows, len(content.feature_names) + len(content.categories)
    filled = [f"{c:,}" for c in sizes.counts if c]
    of = f"of {listing(filled)} rows"
    if len(filled) > 8:
        ordered = np.sort(sizes.counts[sizes.counts > 0])
        of = f"of {ordered[0]:,} to {ordered[-1]:,} rows"
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
    if n_warnings := len(_warnings(content)):
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


def _picture_words(content: RunContent, sizes: Sizes) -> list[str]:
    """Return a description of the picture for those who do not see it."""
    words = []
    for m, count in enumerate(sizes.counts[:30]):
        place = listing([number(float(v), 3) for v in content.means[m, :2]])
        words.append(f"Cluster {m} has {plural(int(count), 'row')} around {place}.")
    if content.n_clusters > 30:
        words.append(f"{content.n_clusters - 30} more clusters have a card below.")
    return words


def _picture_notes(content: RunContent, shown: Shown) -> list[str]:
    """Return what a reader must know of what the picture leaves out."""
    notes = []
    Q = content.embedding.shape[1]
    if Q > 2:
        notes.append(
            f"Two of {Q} latent dimensions are shown at a time, ordered by spread. Density, "
            "outlines and boundaries are those of the mixture in these two; rows that seem to be "
            "on the wrong side may be apart in the others."
        )
    if Q == 1:
        notes.append(
            "There is one latent dimension, along the horizontal axis. Heights are random, within "
            "the density at that place, so that rows do not hide each other; the bars below are "
            "the clusters."
        )
    if len(shown.rows) < content.n_rows:
        notes.append(
            f"The picture shows a random sample of {len(shown.rows):,} of {content.n_rows:,} rows. "
            "All numbers elsewhere are of all rows."
        )
    kept = len(shown.features)
    if kept < len(content.feature_names):
        notes.append(
            f"To keep the file small, the picture knows the {kept} of "
            f"{len(content.feature_names):,} features that set clusters apart most."
        )
    if shown.values_type != "float32":
        steps = "65,534" if shown.values_type == "uint16" else "254"
        notes.append(
            f"To keep the file small, feature values in the picture are rounded to one of {steps} "
            "steps between the smallest and the largest value of a feature."
        )
    return notes


def _cards(
    content: RunContent,
    sizes: Sizes,
    explanations: list[Explanation],
    typical: list[Ints],
) -> list[dict[str, Any]]:
    """Return the cluster cards."""
    # One scale for the bars of all cards, so that they can be compared.
    largest = max((abs(d.effect) for one in explanations for d in one.differences), default=0.0)
    return [
        {
            "cluster": m,
            "count": int(sizes.counts[m]),
            "share": float(sizes.shares[m]),
            "certainty": float(sizes.certainty[m]),
            "explanation": explanation,
            "features": [
                _card_line(difference, int(sizes.counts[m]), largest)
                for difference in explanation.differences[:N_FEATURES]
            ],
            "typical": [(int(row), _row_name(content, int(row), 40)) for row in typical[m]],
        }
        for m, explanation in enumerate(explanations)
    ]


def _card_line(difference: Difference, size: int, largest: float) -> dict[str, Any]:
    effect, known = difference.effect, difference.known
    limit = abs(effect) >= LARGEST_EFFECT
    return {
        "name": shortened(difference, 60),
        "effect": ("beyond " if limit else "") + signed(effect, 2),
        "low": effect < 0,
        "bar": effect_bar(effect, largest),
        "inside": together(difference.inside),
        "outside": together(difference.outside),
        "known": "" if known == size else f"known in {known:,} of {size:,} rows",
    }


def _certain_words(content: RunContent) -> str:
    certainty = content.certainty
    low = [int((certainty < limit).sum()) for limit in (0.99, 0.9, _DOUBT)]
    if not low[0]:
        return "Every row has a certainty of 99 % or more."
    return (
        f"{low[0]:,} of {len(certainty):,} rows have a certainty below 99 %, {low[1]:,} below "
        f"90 %, and {low[2]:,} below {100 * _DOUBT:.0f} %."
    )


def _doubtful_table(content: RunContent, profiles: Profiles, rows: Ints) -> dict[str, Any]:
    """Return the most doubtful rows with their two most probable clusters and some features."""
    features = strongest_first(profiles.effects)[:_DOUBTFUL_FEATURES]
    categories = content.categories[: _DOUBTFUL_FEATURES - len(features) + 2]
    lines = []
    for row in rows:
        chances = content.memberships[row]
        order = np.argsort(-chances, kind="stable")[:2]
        lines.append(
            {
                "row": int(row),
                "name": _row_name(content, int(row)),
                "given": None if content.given_labels is None else content.given_labels[row],
                "clusters": [(int(m), float(chances[m])) for m in order],
                "values": [_cell(content, int(row), int(j)) for j in features],
                "levels": [_level(column, int(row)) for column in categories],
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


def _level(column: Levels, row: int) -> str:
    code = int(column.codes[row])
    return "–" if code < 0 else shorten(column.levels[code], 40)


def _confusion_table(compared: Confusion | None) -> dict[str, Any] | None:
    """Return the confusion table as it is shown: frequent labels, and the rest together."""
    if compared is None:
        return None
    names, table = compared.names, compared.table
    if len(names) > _CONFUSION_LABELS:
        rest = table[:, _CONFUSION_LABELS:].sum(axis=1, keepdims=True)
        table = np.concatenate([table[:, :_CONFUSION_LABELS], rest], axis=1)
        others = f"{len(names) - _CONFUSION_LABELS:,} others"
        names = [*names[:_CONFUSION_LABELS], others]
    totals = np.maximum(table.sum(axis=1, keepdims=True), 1)
    return {
        "names": [shorten(name, 40) or "(empty)" for name in names],
        "lines": [
            [(int(c), round(100 * float(s))) for c, s in zip(counts, shares, strict=True)]
            for counts, shares in zip(table, table / totals, strict=True)
        ],
        "totals": table.sum(axis=0).tolist(),
        "ari": f"{compared.ari:.3f}".replace("-", "−"),
        "purity": percent(compared.purity),
    }


def _unsaid(warning: str, said: str) -> str:
    """Return what a warning adds to a sentence that stands above it already."""
    return warning.removeprefix(said).strip() or warning
