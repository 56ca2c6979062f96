"""The tables that ``sgpmic fit`` prints: what becomes of columns, and at the end the clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console, note
from sgpmic.tables.description import kind_words
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    from sgpmic.cli.results import Fit
    from sgpmic.report.explanations import Explanation
    from sgpmic.tables.dataset import EncodedTable

_MOST_SHOWN = 30
_MOST_WARNINGS = 20
_MOST_EXPLAINED = 10
_LONGEST = 44

_SCALED = {
    "each": "Every feature was divided by its own standard deviation",
    "one": "All features were divided by one number",
    "none": "Features were not scaled",
}


def show_columns(data: EncodedTable) -> None:
    """Print what becomes of every column, and what their owner should look at."""
    screen = ScreenTable(title="Columns", title_justify="left")
    for name in ("column", "kind", "range or levels", "missing", "what becomes of it"):
        screen.add_column(name, overflow="fold")
    for column in data.columns[:_MOST_SHOWN]:
        screen.add_row(*map(escape, _row(column)))
    console.print(screen)
    more = len(data.columns) - _MOST_SHOWN
    if more > 0:
        console.print(f"… and {more} more, all in run.json.")
    if data.judged_by is not None:
        console.print(f"Columns were judged by {data.judged_by} rows from all over the table.")
    warned = [column for column in data.columns if column["warning"]]
    for column in warned[:_MOST_WARNINGS]:
        note(f"column {_short(column['name'])}: {column['warning']}.")
    if len(warned) > _MOST_WARNINGS:
        console.print(f"… and {len(warned) - _MOST_WARNINGS} more such notes, all in run.json.")


def _row(column: dict[str, Any]) -> tuple[str, ...]:
    n_missing = column["n_missing"] or 0
    share = f"{n_missing} ({100 * n_missing / max(column['n_rows'], 1):.0f} %)"
    return (
        _short(column["name"]),
        kind_words(column["kind"]),
        _short(column["summary"]),
        share if n_missing else "",
        column["becomes"],
    )


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and where the results are."""
    from sgpmic.committee.voting import explain_vote
    from sgpmic.learning.starts import explain_choice

    job, model = fit.job, fit.model
    clusters = "1 cluster" if model.n_clusters_ == 1 else f"{model.n_clusters_} clusters"
    screen = ScreenTable(title=f"{job.group.n_rows} rows in {clusters}")
    for name in ("cluster", "rows", "mean certainty"):
        screen.add_column(name, justify="right")
    for m, size in enumerate(job.sizes(model)):
        own = model.memberships_[model.labels_ == m, m]
        certainty = f"{float(job.group.total(own.sum())) / size:.3f}" if size else "–"
        screen.add_row(str(m), str(size), certainty)
    console.print(screen)
    _show_explanations(fit.explanations)
    support = "" if model.support_ is None else model.support_.sentence()
    if support and not any(known.startswith(support) for known in fit.notes):  # once is enough
        console.print(support)
    if model.number_of_clusters_ is not None and model.n_clusters_ > 1:
        console.print(_how_many(model.number_of_clusters_))
    if why := explain_vote(model.committee_):
        console.print(why)
    console.print(_scaling(fit))
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_, model.start.selection))
    if fit.comparison is not None and job.is_alone:
        _show_comparison(fit.comparison)
    for sentence in fit.notes:
        note(sentence)
    path = escape(str(fit.folder.path))
    console.print(f"Written to {path}: labels.csv, model.sgpmic, report.html, run.json")


def _scaling(fit: Fit) -> str:
    """Return how features were scaled, and by what that was decided."""
    if fit.data.is_mixed:
        return "Columns were brought to one unit, so that none outweighs another."
    scaler = fit.model.scaler_
    if not scaler.reason:
        return f"{_SCALED[scaler.kind]}."
    looks, other = ("one unit", "each") if scaler.kind == "one" else ("different units", "one")
    return (
        f"{_SCALED[scaler.kind]}: they look like {looks} ({scaler.reason}); --scale {other} "
        "changes it."
    )


def _show_explanations(explanations: list[Explanation]) -> None:
    """Print what the clusters are, and a rule for each."""
    if len(explanations) < 2:
        return
    for m, found in enumerate(explanations[:_MOST_EXPLAINED]):
        rule = f" Rule: {found.rule.sentence()}" if found.rule else ""
        console.print(escape(f"{m}: {found.sentence}{rule}"))
        if found.alone:
            note(found.alone)
    if len(explanations) > _MOST_EXPLAINED:
        console.print(f"… and {len(explanations) - _MOST_EXPLAINED} more, all in report.html.")


def _how_many(found: dict[str, Any]) -> str:
    """Return the probabilities of the two likeliest numbers of clusters, as a sentence."""
    pairs = zip(found["probability"], found["candidates"], strict=True)
    likeliest = sorted(pairs, reverse=True)[:2]
    words = [f"{100 * p:.0f} % for {number}" for p, number in likeliest]
    return f"Probability of the number of clusters: {', '.join(words)}."


def _show_comparison(comparison: dict[str, Any]) -> None:
    """Print how clusters go together with the label, which was not used."""
    label = escape(str(comparison["label"]))
    if comparison["kind"] == "classes":
        console.print(
            f"Agreement with {label}, which was not used: adjusted Rand index "
            f"{comparison['adjusted_rand_index']:.2f}"
        )
        return
    eta = comparison["eta_squared"]
    console.print(
        f"{label} is a continuous number, so it is not compared as classes; the clusters explain "
        f"{'nothing' if eta is None else f'{eta:.2f}'} of its variance (eta²)."
    )
    screen = ScreenTable()
    for name in ("cluster", f"mean {label}", "standard deviation"):
        screen.add_column(name, justify="right")
    for m, summary in enumerate(comparison["clusters"]):
        numbers = (summary["mean"], summary["standard_deviation"])
        screen.add_row(str(m), *("–" if number is None else f"{number:.4g}" for number in numbers))
    console.print(screen)
