"""``sgpmic report`` and ``sgpmic info``: inspect a finished run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape
from rich.table import Table as ScreenTable
from typer import Argument, Option

from sgpmic.cli import options as opt
from sgpmic.cli.options import console, one_sentence
from sgpmic.cli.predict import check_match
from sgpmic.cli.results import write_report
from sgpmic.storage.run_folder import RunFolder, RunFolderError

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

_NUMBER = re.compile(r"\d+\.\d+(?:e[-+]\d+)?")


def report(
    run: opt.RunPath,
    table: Annotated[
        Path | None, Option(metavar="FILE", help="The table that was fitted, if it has moved.")
    ] = None,
) -> None:
    """Write RUN/report.html again: one file that opens in any browser, without a network."""
    folder = RunFolder(run)
    with one_sentence(folder.results.report):
        folder.read_record()  # raises if there is no run
        with folder.locked():
            _draw(folder, table)
    console.print(f"Written: {escape(str(folder.results.report))}")


def load_model(path: Path) -> SGPMIC:
    """Load a model file, or exit with an error."""
    from sgpmic.estimator import SGPMIC

    with one_sentence(path, "read"):
        return SGPMIC.load(path)


def _draw(folder: RunFolder, table: Path | None) -> None:
    from sgpmic.process_group import ProcessGroup
    from sgpmic.report import content_from_model
    from sgpmic.storage.checkpoints import data_fingerprint
    from sgpmic.tables.dataset import reread

    record, model = folder.read_record(), load_model(folder.results.model)
    check_match(folder, getattr(model, "feature_names_in_", ()), model.encoder_)
    place = table if table is not None else Path(record["table"])
    if not place.exists():
        raise RunFolderError(f"There is no table {place}; give its new path with --table.")
    known = record["data"]
    data, empty = reread(place, known, model.encoder_)
    if data_fingerprint(data.values, ProcessGroup(len(data.values))) != known["fingerprint"]:
        raise RunFolderError(f"{place} has changed since the fit; give the original with --table.")
    with console.status("Drawing"):
        content = content_from_model(model, data.values)
        write_report(folder.results.report, content, data, record, empty, table=place)


def info(
    model: Annotated[Path, Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
) -> None:
    """Show what a model is: its data, settings and clusters."""
    path = RunFolder(model).results.model if model.is_dir() else model
    found = load_model(path)
    screen = ScreenTable(title=escape(str(path)), title_justify="left", show_header=False)
    for name, words in _facts(found).items():
        screen.add_row(name, escape(words))
    console.print(screen)


def _facts(model: SGPMIC) -> dict[str, str]:
    from sgpmic.tables.columns import used_names

    clusters = range(model.n_clusters_)
    names, columns = [str(name) for name in getattr(model, "feature_names_in_", ())], {}
    if model.encoder_ is not None:
        names = list(model.encoder_.get_feature_names_out())
        columns["columns"] = _listed(used_names(model.encoder_.columns_))
    kernels = "; ".join(map(str, model.kernels_[:3])) + "; …" * (len(model.kernels_) > 3)
    converged = "converged" if model.converged_ else "not converged"
    return {
        "rows fitted": str((model.labels_ >= 0).sum()),
        "rows by cluster": ", ".join(str((model.labels_ == m).sum()) for m in clusters),
        **columns,
        "features": _listed(names) if names else str(model.n_features_in_),
        "latent dimensions": str(model.n_components_),
        "mapping": f"{model.mapping}, {len(model.inducing_)} inducing points",
        "kernel": _NUMBER.sub(lambda found: f"{float(found[0]):.4g}", kernels),
        "scale": model.scaler_.kind,
        "noise": f"standard deviation {model.beta_**-0.5:.4g} of the scaled features",
        "bound": f"{model.lower_bound_:.4f} after {model.n_iter_} iterations, {converged}",
    }


def _listed(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names[:8])}" + (" …" if len(names) > 8 else "")
