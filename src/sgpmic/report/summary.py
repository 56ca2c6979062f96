"""The summary of a fit, as the terminal and :meth:`sgpmic.SGPMIC.summary` print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpmic.committee.voting import explain_vote
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
    notes: Sequence[str] = (),
) -> None:
    """Print the clusters of a fitted model, and how they were found.

    ``sizes`` are those of all rows where the model has some of them, and ``notes`` are printed by
    the caller.
    """
    console = Console(highlight=False) if console is None else console
    sizes = cluster_sizes(model.memberships_) if sizes is None else sizes
    n_rows = int(sizes.counts.sum())
    screen = Table(title=f"{n_rows} rows in {plural(model.n_clusters_, 'cluster')}")
    for name in ("cluster", "rows", "mean certainty"):
        screen.add_column(name, justify="right")
    for m, (count, certainty) in enumerate(zip(sizes.counts, sizes.certainty, strict=True)):
        screen.add_row(str(m), str(count), "–" if np.isnan(certainty) else f"{certainty:.3f}")
    console.print(screen)
    for m, found in enumerate(explanations[:_MOST_EXPLAINED] if len(explanations) > 1 else ()):
        rule = f" Rule: {found.rule.sentence()}" if found.rule else ""
        alone = f" {found.alone}" if found.alone else ""
        console.print(escape(f"{m}: {found.sentence}{rule}{alone}"))
    if len(explanations) > _MOST_EXPLAINED:
        console.print(f"… and {len(explanations) - _MOST_EXPLAINED} more, all in the report.")
    support = "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence()
    if support and not any(known.startswith(support) for known in notes):  # once is enough
        console.print(escape(support))
    if model._number_of_clusters is not None and model.n_clusters_ > 1:
        number = model._number_of_clusters
        probability = number.get("probability", number.get("certainty", ()))  # of earlier versions
        likeliest = sorted(zip(probability, number["candidates"], strict=True), reverse=True)[:2]
        words = ", ".join(f"{100 * p:.0f} % for {k}" for p, k in likeliest)
        if number["chosen"] != likeliest[0][1]:
            words += (
                f". {number['chosen']} clusters should agree best with the true ones on average"
            )
        console.print(f"Probability of the number of clusters: {words}.")
    if why := explain_vote(model._committee):
        console.print(why)
    if model.encoder_ is not None and model.encoder_.has_categories_:
        console.print("Columns were put on one scale, so that none outweighs another.")
    else:
        kind, why = model.scaler_.kind, model.scaler_.reason
        looks, other = "they seem to have one unit", "each"
        if kind == "each":
            looks, other = "no strong evidence that they have one unit", "one"
        because = f": {looks} ({why}); scale='{other}' (--scale) changes it" if why else ""
        console.print(f"{_SCALED[kind]}{because}.")
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_, model.start.selection))
