"""``sgpmic report`` and ``sgpmic info``: look at a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console, fail
from sgpmic.cli.options import RunPath
from sgpmic.storage.run_folder import RunFolder, RunFolderError


def report(
    run: RunPath,
    table: Annotated[
        Path | None, typer.Option(help="The table that was fitted, if it has moved.")
    ] = None,
) -> None:
    """Write RUN/report.html again: one file that opens in any browser, without a network."""
    from sgpmic.cli.results import write_report
    from sgpmic.estimator import SGPMIC
    from sgpmic.storage.model_file import ModelFileError
    from sgpmic.tables.reader import TableError, read_table

    folder = RunFolder(run)
    try:
        record = folder.read_record()
        place = table if table is not None else Path(record["table"])
        if not place.exists():
            raise RunFolderError(
                f"The table {place} is not there any more; say with --table where it is."
            )
        known = record["data"]
        data = read_table(
            place,
            columns=known["features"],
            id_column=known["id"],
            label_column=known["label"],
        )
        if data.digest != known["digest"]:
            raise RunFolderError(
                f"{place} has changed since it was fitted; name the table as it was with --table, "
                "or run sgpmic fit again."
            )
        try:
            model = SGPMIC.load(folder.model)
        except OSError as error:
            raise RunFolderError(f"{folder.model} cannot be read: {error.strerror}.") from None
        with console.status("Drawing"):
            write_report(folder, model, data, record)
    except (RunFolderError, TableError, ModelFileError) as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{folder.report} cannot be written: {error.strerror or error}.") from None
    console.print(f"Written: {escape(str(folder.report))}")


def info(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")
    ],
) -> None:
    """Show what a model is: its data, settings and clusters."""
    from sgpmic.estimator import SGPMIC
    from sgpmic.storage.model_file import ModelFileError

    path = model / "model.sgpmic" if model.is_dir() else model
    try:
        found = SGPMIC.load(path)
    except ModelFileError as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"{path} cannot be read: {error.strerror or error}.") from None
    screen = ScreenTable(title=str(path), title_justify="left", show_header=False)
    for name, words in _facts(found).items():
        screen.add_row(name, escape(words))
    console.print(screen)
    clusters = ScreenTable(show_edge=False)
    for name in ("cluster", "rows", "weight"):
        clusters.add_column(name, justify="right")
    for m, weight in enumerate(found.weights_):
        clusters.add_row(str(m), str(int((found.labels_ == m).sum())), f"{weight:.3f}")
    console.print(clusters)


def _facts(model: Any) -> dict[str, str]:
    names = getattr(model, "feature_names_in_", None)
    shown = "" if names is None else f": {', '.join(map(str, names[:8]))}"
    if names is not None and len(names) > 8:
        shown += " …"
    settled = "settled" if model.converged_ else "had not settled"
    return {
        "rows fitted": str(len(model.labels_)),
        "features": f"{model.n_features_in_}{shown}",
        "latent dimensions": str(model.n_components_),
        "mapping": f"{model.mapping}, {len(model.inducing_)} inducing points",
        "kernel": "; ".join(str(kernel) for kernel in model.kernels_[:3]),
        "noise": f"standard deviation {model.beta_**-0.5:.4g}",
        "bound": f"{model.lower_bound_:.4f} after {model.n_iter_} rounds, {settled}",
    }
