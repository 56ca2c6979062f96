"""What ``sgpmic fit`` says at the end."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console
from sgpmic.cli.results import Fit
from sgpmic.learning.starts import explain_choice

_SCALED = {
    "each": "Every feature was divided by its own spread: their units differ.",
    "one": "All features were divided by one number: they are of one unit.",
    "none": "Features were not scaled.",
    "mixed": "Columns were brought to one unit, so that none outweighs another.",
}


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and where the results are."""
    job, model = fit.job, fit.model
    clusters = "1 cluster" if model.n_clusters_ == 1 else f"{model.n_clusters_} clusters"
    screen = ScreenTable(title=f"{job.group.n_rows} rows in {clusters}")
    for name in ("cluster", "rows", "weight", "mean certainty"):
        screen.add_column(name, justify="right")
    for m, size in enumerate(job.sizes(model)):
        own = model.memberships_[model.labels_ == m, m]
        certainty = f"{float(job.group.total(own.sum())) / size:.3f}" if size else "–"
        screen.add_row(str(m), str(size), f"{model.weights_[m]:.2f}", certainty)
    console.print(screen)
    support = "" if model.support_ is None else model.support_.sentence()
    if support and not any(note.startswith(support) for note in fit.notes):  # once is enough
        console.print(support)
    console.print(_SCALED["mixed" if fit.data.is_mixed else model.units_.kind])
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_, model.start.selection))
    if fit.comparison is not None and job.is_alone:
        _show_comparison(fit.comparison)
    for note in fit.notes:
        console.print(f"[yellow]Note:[/] {escape(note)}")
    path = escape(str(fit.folder.path))
    console.print(f"Written to {path}: labels.csv, model.sgpmic, report.html, run.json")


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
