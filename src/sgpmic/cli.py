"""The command line: words and options; the work is done by the layers below."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import sgpmic
from sgpmic._console import console, fail
from sgpmic._startup import prepare_process
from sgpmic.commands.fit import fit
from sgpmic.commands.predict import predict
from sgpmic.commands.report import info, report
from sgpmic.paper.cli import app as paper

app = typer.Typer(
    help="Clustering and non-linear dimensionality reduction, learned together.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command()(fit)
app.command()(predict)
app.command()(report)
app.command()(info)
app.add_typer(paper, name="paper")


def main() -> None:
    """Run the command line."""
    prepare_process()
    app()


def _show_version(value: bool) -> None:
    if value:
        console.print(f"sgpmic {sgpmic.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Clustering and non-linear dimensionality reduction, learned together."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo-output"),
    force: Annotated[bool, typer.Option(help="Replace results of an earlier run.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Cluster the iris flowers: three species, four measurements, no labels used."""
    from sklearn.datasets import load_iris
    from sklearn.metrics import adjusted_rand_score

    from sgpmic.io.outputs import write_bytes, write_table

    if out.exists() and not out.is_dir():
        raise fail(f"{out} is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise fail(f"{out} is not empty; name another folder with --out, or add --force.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(f"The folder {out} cannot be made: {error.strerror}.") from None

    iris = load_iris()
    model, notes = _fit_with_progress(iris.data, seed)
    index = np.arange(len(iris.data))
    write_table(
        out / "labels.csv",
        {"row": index, "cluster": model.labels_, "certainty": model.memberships_.max(axis=1)},
    )
    shares = {f"cluster_{m}": model.memberships_[:, m] for m in range(model.n_clusters)}
    write_table(out / "memberships.csv", {"row": index, **shares})
    points = {f"latent_{q + 1}": model.embedding_[:, q] for q in range(model.n_components_)}
    write_table(out / "embedding.csv", {"row": index, **points})
    model.save(out / "model.sgpmic")
    written = ["labels.csv", "memberships.csv", "embedding.csv", "model.sgpmic"]
    picture = _picture(model)
    if picture is not None:
        write_bytes(out / "embedding.png", picture)
        written.append("embedding.png")

    console.print(_summary(model))
    agreement = adjusted_rand_score(iris.target, model.labels_)
    console.print(
        f"Agreement with the species, which were not used: adjusted Rand index {agreement:.2f}"
    )
    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}")
    console.print(f"Written to {escape(str(out))}: {', '.join(written)}")
    if picture is None:
        console.print("No picture: install matplotlib (pip install 'sgpmic\\[plot]').")


def _fit_with_progress(data: np.ndarray, seed: int) -> tuple[sgpmic.SGPMIC, list[str]]:
    """Fit with a bar that shows rounds and bound; return the model and what it warned of."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TextColumn("{task.fields[bound]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = sgpmic.SGPMIC(n_clusters=3, n_components=2, random_state=seed)
        task = bar.add_task("compiling", total=model.max_iter, bound="")

        def show(progress: sgpmic.Progress) -> None:
            bar.update(
                task,
                description="learning",
                completed=progress.round,
                total=progress.max_rounds,
                bound=f"bound {progress.bound:.2f}",
            )

        model.set_params(callbacks=[show]).fit(data)
        bar.update(task, description="done", total=model.n_iter_, completed=model.n_iter_)
    model.set_params(callbacks=None)
    return model, [str(w.message) for w in said if issubclass(w.category, UserWarning)]


def _summary(model: sgpmic.SGPMIC) -> Table:
    table = Table(title="Clusters of the iris data", title_justify="left")
    for name in ("cluster", "rows", "weight", "mean certainty"):
        table.add_column(name, justify="right")
    for m in range(model.n_clusters):
        mine = model.labels_ == m
        certainty = model.memberships_[mine, m].mean() if mine.any() else float("nan")
        table.add_row(str(m), str(mine.sum()), f"{model.weights_[m]:.2f}", f"{certainty:.3f}")
    return table


def _picture(model: sgpmic.SGPMIC) -> bytes | None:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from sgpmic.report.picture import as_png, draw_embedding

    axes = draw_embedding(
        model.embedding_,
        model.memberships_,
        model.means_,
        model.covariances_,
        title="Iris: latent space, clusters found without labels",
    )
    return as_png(axes)
