"""``sgpmic demo``: the whole way once, on a data set that is always there."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from sgpmic.cli.console import console, fail
from sgpmic.cli.fit import fit
from sgpmic.cli.options import Force, OutFolder, Seed


def demo(out: OutFolder = Path("demo-output"), force: Force = False, seed: Seed = 0) -> None:
    """Cluster the iris flowers: three species, four measurements, no labels used.

    Writes the table itself (iris.csv) and what sgpmic fit makes of it (run/).
    """
    if out.exists() and not out.is_dir():
        raise fail(f"{out} is a file; name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise fail(f"{out} is not empty; name another folder with --out, or add --force.")
    table = out / "iris.csv"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_iris(table)
    except OSError as error:
        raise fail(f"The folder {out} cannot be created: {error.strerror}.") from None
    console.print(
        f"$ sgpmic fit {escape(str(table))} -k 3 --scale one --id flower --label "
        f"species --out {escape(str(out / 'run'))}"
    )
    fit(
        table,
        clusters="3",
        out=out / "run",
        id_column=["flower"],
        label_column="species",
        scale="one",  # lengths of one flower
        seed=seed,
        force=True,
    )
    console.print(
        f"Now open {escape(str(out / 'run' / 'report.html'))} in a browser, or try:\n"
        f"$ sgpmic predict {escape(str(out / 'run'))} {escape(str(table))}"
    )


def _write_iris(path: Path) -> None:
    from sklearn.datasets import load_iris

    from sgpmic.storage.outputs import table_bytes, write_bytes

    iris = load_iris()
    columns: dict[str, list[object]] = {
        "flower": [f"flower {number + 1}" for number in range(len(iris.data))]
    }
    for place, name in enumerate(iris.feature_names):
        columns[name.replace(" (cm)", "")] = iris.data[:, place].tolist()
    columns["species"] = [str(iris.target_names[kind]) for kind in iris.target]
    write_bytes(path, table_bytes(columns))
