"""The summary of a fit, as the terminal and :meth:`sgpmic.SGPMIC.summary` print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpmic.committee.voting import explain_vote
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.starts import explain_choice
from sgpmic.report.explanations import Explanation
from sgpmic.report.statistics import Sizes, cluster_sizes
from sgpmic.report.words import plural

_MOST_EXPLAINED = 10

_SCALED = {
    "each": "Every feature was divided by its own standard deviation",
    "one": "All features were divided by one number",
    "none": "Features were not scaled",
}


def print_summary(
    model: Any,
    explanations: Sequence[Explanation],
    console: Console | None = None,
    *,
    sizes: Sizes | None = None,
    is_mixed: bool | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the clusters of a fitted model, and how they were found.

    ``sizes`` are those of all rows where the model has some of them, ``is_mixed`` says whether an
    encoder has brought columns to one unit, and ``notes`` are printed by the caller.
    """
    console = Console(highlight=False) if console is None else console
    sizes = cluster_sizes(model.memberships_) if sizes is None else sizes
    if is_mixed is None:
        is_mixed = model.encoder_ is not None and model.encoder_.has_categories_
    n_rows = int(sizes.counts.sum())
    screen = Table(title=f"{n_rows} rows in {plural(model.n_clusters_, 'cluster')}")
    for name in ("cluster", "rows", "mean certainty"):
        screen.add_column(name, justify="right")
    for m, (count, certainty) in enumerate(zip(sizes.counts, sizes.certainty, strict=True)):
        screen.add_row(str(m), str(count), "–" if np.isnan(certainty) else f"{certainty:.3f}")
    console.print(screen)
    _print_explanations(explanations, console)
    support = "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence()
    if support and not any(known.startswith(support) for known in notes):  # once is enough
        console.print(escape(support))
    if model._number_of_clusters is not None and model.n_clusters_ > 1:
        console.print(_how_many(model._number_of_clusters))
    if why := explain_vote(model._committee):
        console.print(why)
    console.print(_how_scaled(model.scaler_, is_mixed))
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_, model.start.selection))


def _print_explanations(explanations: Sequence[Explanation], console: Console) -> None:
    """Print what the clusters are, and a rule for each."""
    if len(explanations) < 2:
        return
    for m, found in enumerate(explanations[:_MOST_EXPLAINED]):
        rule = f" Rule: {found.rule.sentence()}" if found.rule else ""
        alone = f" {found.alone}" if found.alone else ""
        console.print(escape(f"{m}: {found.sentence}{rule}{alone}"))
    if len(explanations) > _MOST_EXPLAINED:
        console.print(f"… and {len(explanations) - _MOST_EXPLAINED} more, all in the report.")


def _how_many(found: dict[str, Any]) -> str:
    """Return the probabilities of the two likeliest numbers of clusters, as a sentence."""
    probability = found.get("probability", found.get("certainty", ()))  # of earlier versions
    likeliest = sorted(zip(probability, found["candidates"], strict=True), reverse=True)[:2]
    words = [f"{100 * p:.0f} % for {number}" for p, number in likeliest]
    chosen = found["chosen"]
    why = "" if chosen == likeliest[0][1] else f" {chosen} should agree best with any of them."
    return f"Probability of the number of clusters: {', '.join(words)}.{why}"


def _how_scaled(scaler: Scaler, is_mixed: bool) -> str:
    """Return how features were scaled, and by what that was decided."""
    if is_mixed:
        return "Columns were brought to one unit, so that none outweighs another."
    if not scaler.reason:
        return f"{_SCALED[scaler.kind]}."
    looks, other = "they look like ones of one unit", "each"
    if scaler.kind == "each":
        looks, other = "there is no strong evidence for one unit", "one"
    return (
        f"{_SCALED[scaler.kind]}: {looks} ({scaler.reason}); scale='{other}' (--scale) changes it."
    )
