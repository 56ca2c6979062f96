"""Tables as people have them, through the command line: each works, or says what to mend."""

from __future__ import annotations

import datetime
import json
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.helpers import here, said, sgpmic, started

N = 24
ROWS = range(N)
GROUP = [i % 2 for i in ROWS]
NOISE = np.random.default_rng(0).normal(size=(2, N)).round(3)
HEIGHT = [f"{10 * g + e}" for g, e in zip(GROUP, NOISE[0], strict=True)]
WIDTH = [f"{5 * g + e}" for g, e in zip(GROUP, NOISE[1], strict=True)]
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=17 * i) for i in ROWS]


@dataclass(frozen=True)
class Awkward:
    """A table, and what is to become of it.

    Attributes
    ----------
    columns : dict of str to list
        Beside the columns of numbers "height" and "width".
    kinds : dict of str to str
        What columns are; those with a ``-`` before it are left out.
    missing : dict of str to int
        Numbers of missing cells.
    refused : tuple of str
        Words of the one sentence, where the table is refused.
    """

    columns: dict[str, list[Any]]
    kinds: dict[str, str] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    delimiter: str = ","
    alone: bool = False
    write: Callable[[Path, dict[str, list[Any]]], None] | None = None


def with_gaps(values: list[str], *words: str) -> list[str]:
    """Return values with some words in the place of every fifth."""
    return [words[i // 5 % len(words)] if i % 5 == 0 else v for i, v in enumerate(values)]


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(columns), path)


TABLES = {
    "words and numbers": Awkward(
        {"color": [["red", "green", "blue"][i % 3] for i in ROWS]}, {"color": "category"}
    ),
    "decimal commas": Awkward(
        {"depth": [f"{i}".replace(".", ",") for i in NOISE[0]]},
        {"depth": "number"},
        delimiter=";",
    ),
    "thousands separators": Awkward(
        {"sales": [f"{1234.5 * (i + 1):,.2f}" for i in ROWS]}, {"sales": "number"}
    ),
    "percent signs": Awkward({"share": [f"{3.5 * (i % 7)} %" for i in ROWS]}, {"share": "number"}),
    "currency signs": Awkward(
        {"price": [f"${100 + 7.25 * (i % 9):.2f}" for i in ROWS]}, {"price": "number"}
    ),
    "dates as year-month-day": Awkward({"when": [d.isoformat() for d in DAYS]}, {"when": "date"}),
    "dates as day.month.year": Awkward({"when": [f"{d:%d.%m.%Y}" for d in DAYS]}, {"when": "date"}),
    "dates as month/day/year": Awkward({"when": [f"{d:%m/%d/%Y}" for d in DAYS]}, {"when": "date"}),
    "words for missing": Awkward(
        {"depth": with_gaps([str(v) for v in NOISE[1]], "NA", "-", "", "n/a")},
        {"depth": "number"},
        {"depth": 5},
    ),
    "999 for missing": Awkward(
        {"age": with_gaps([str(20 + i % 11) for i in ROWS], "999")}, {"age": "whole"}, {"age": 5}
    ),
    "rows twice": Awkward({"depth": [str(i % 3) for i in ROWS]}, {"depth": "whole"}),
    "numbered rows": Awkward({"customer": [str(1000 + i) for i in ROWS]}, {"customer": "-id"}),
    "unique codes": Awkward(
        {"code": [str(uuid.UUID(int=7919 * (i + 1) ** 9)) for i in ROWS]}, {"code": "-id"}
    ),
    "a constant": Awkward(
        {"country": ["Peru"] * N, "seven": ["7"] * N},
        {"country": "-constant", "seven": "-constant"},
    ),
    "JSON": Awkward({"extra": [json.dumps({"i": i}) for i in ROWS]}, {"extra": "-text"}),
    "a copy": Awkward(
        {"height in mm": [f"{25.4 * float(h)}" for h in HEIGHT]}, {"height in mm": "-copy"}
    ),
    "yes and no": Awkward({"smokes": [["yes", "no"][i % 2] for i in ROWS]}, {"smokes": "yes_no"}),
    "an order": Awkward(
        {"size": [["low", "medium", "high"][i % 3] for i in ROWS]}, {"size": "ordered"}
    ),
    "an order of its own": Awkward(
        {"taste": [["bland", "fine", "hot"][i % 3] for i in ROWS]},
        {"taste": "ordered"},
        options=("--ordered", "taste=bland<fine<hot"),
    ),
    "codes with zeros": Awkward(
        {"region": [["01067", "20095", "80331"][i % 3] for i in ROWS]}, {"region": "category"}
    ),
    "free text": Awkward(
        {"remark": [f"the customer of day {i} said so" for i in ROWS]}, {"remark": "-text"}
    ),
    "nothing": Awkward({"empty": [""] * N}, {"empty": "-empty"}),
    "a long tail": Awkward(
        {"income": [f"{np.exp(8 + 2.5 * e):.2f}" for e in NOISE[1]]}, {"income": "number"}
    ),
    "names with commas": Awkward(
        {"a, b": ["x"] * N, 'say "c"': [str(v) for v in NOISE[0]]},
        {"a, b": "-dropped", 'say "c"': "number"},
        options=("--drop", "a, b"),
    ),
    "words alone": Awkward(
        {"color": [["red", "blue"][g] for g in GROUP], "shape": ["o", "x", "v"] * 8},
        {"color": "category", "shape": "category"},
        alone=True,
    ),
    "types of Parquet": Awkward(
        {
            "kind": pa.array([["a", "b", None][i % 3] for i in ROWS]).dictionary_encode(),
            "flag": [i % 2 == 0 for i in ROWS],
            "when": DAYS,
            "list": [[i] for i in ROWS],
        },
        {"kind": "category", "flag": "yes_no", "when": "date", "list": "-text"},
        {"kind": 8},
        write=write_parquet,
    ),
    "slips in two columns": Awkward(
        {
            "depth": [*(str(v) for v in NOISE[1][:-1]), "oops"],
            "when": [*(d.isoformat() for d in DAYS[:-1]), "yesterday"],
        },
        refused=("'depth'", "'oops'", "row 24", "'when'", "'yesterday'", "--drop depth,when"),
    ),
    "infinite": Awkward(
        {"depth": [*(str(v) for v in NOISE[1][:-1]), "inf"]}, refused=("'depth'", "--drop depth")
    ),
    "words for a number": Awkward(
        {"color": [["red", "green"][i % 2] for i in ROWS], "remark": ["dark", "light"] * 12},
        refused=("'color'", "'remark'"),
        options=("--number", "color,remark"),
    ),
    "nothing to learn from": Awkward(
        {"one": ["1"] * N, "id": [str(i) for i in ROWS]}, refused=("'one'", "'id'"), alone=True
    ),
}


def write_text(path: Path, table: Awkward) -> None:
    columns = table.columns if table.alone else {"height": HEIGHT, "width": WIDTH} | table.columns
    if table.delimiter == ";":
        columns = {name: [v.replace(".", ",") for v in cells] for name, cells in columns.items()}

    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    lines = [
        map(quoted, columns),
        *(map(quoted, row) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(table.delimiter.join(line) for line in lines) + "\n")


Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Done, Done]]:
    """Fit every table and predict it again, and return folders and what was said."""
    folder = tmp_path_factory.mktemp("awkward")
    found = {}
    for number, (name, table) in enumerate(TABLES.items()):
        path = folder / f"t{number}.{'csv' if table.write is None else 'parquet'}"
        if table.write is None:
            write_text(path, table)
        else:
            table.write(path, {"height": list(map(float, HEIGHT))} | table.columns)
        run = folder / f"run{number}"
        words = ("fit", path, "-k", 2, "--max-iter", 1, "--inducing", 10, "--out", run)
        fitted = sgpmic(*words, *table.options)
        found[name] = (run, fitted, sgpmic("predict", run, path, "--out", run / "new.csv"))
    return found


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if not table.refused])
def test_a_table_that_works(results: Any, name: str) -> None:
    table = TABLES[name]
    run, fitted, predicted = results[name]
    assert fitted.returncode == 0, fitted.stderr
    record = json.loads((run / "run.json").read_text())
    columns = {column["name"]: column for column in record["columns"]}
    expected = {column: kind.removeprefix("-") for column, kind in table.kinds.items()}
    assert {column: columns[column]["kind"] for column in expected} == expected
    for column, kind in table.kinds.items():
        left_out = columns[column]["becomes"].startswith("left out")
        assert left_out == kind.startswith("-"), columns[column]
        assert (column in record["data"]["features"]) != left_out
        assert columns[column]["n_missing"] == table.missing.get(
            column, columns[column]["n_missing"]
        )
        assert column in (run / "report.html").read_text().replace("&#34;", '"')
    assert {name: columns[name]["n_missing"] for name in table.missing} == table.missing
    assert "encoded as" in " ".join(fitted.stdout.split())
    assert predicted.returncode == 0, predicted.stderr
    before = [line.split(",")[1] for line in lines_of(run / "labels.csv")]
    after = [line.split(",")[1] for line in lines_of(run / "new.csv")]
    assert before == after, "fitted rows keep their clusters"


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.refused])
def test_a_table_that_is_refused(results: Any, name: str) -> None:
    run, fitted, _ = results[name]
    words = " ".join(fitted.stderr.split())
    assert fitted.returncode == 2, words
    assert words.startswith("sgpmic: ")
    assert "Traceback" not in words
    for part in TABLES[name].refused:
        assert part in words
    assert not run.exists()


def test_ids_targets_and_copies_are_named_in_notes(results: Any) -> None:
    for name, words in (("numbered rows", "an id"), ("a copy", "redundant with 'height'")):
        assert words in " ".join(results[name][1].stdout.split()).split("Note:")[1]


@pytest.mark.slow
def test_two_processes_use_what_the_first_one_found(tmp_path: Path) -> None:
    columns = {
        "number": list(ROWS),
        "name": [f"n{i}" for i in ROWS],
        "height": [None if i % 5 == 0 else float(h) for i, h in enumerate(HEIGHT)],
        "color": [["red", "green"][g] for g in GROUP],
    }
    write_parquet(tmp_path / "t.parquet", columns)
    words = ("fit", tmp_path / "t.parquet", "-k", 2, "--max-iter", 1, "--inducing", 10)
    done = started(*words, "--id", "name", "--processes", 2, "--out", tmp_path / "two")
    assert done.returncode == 0, said(done)
    alone = here(*words, "--id", "name", "--out", tmp_path / "one")
    assert alone.exit_code == 0, alone.output
    two, one = (json.loads((tmp_path / n / "run.json").read_text()) for n in ("two", "one"))
    assert two["columns"] == one["columns"]
    assert two["data"]["features"] == ["height", "color"]
    assert two["data"]["fingerprint"] == one["data"]["fingerprint"]
    assert len(lines_of(tmp_path / "two" / "labels.csv")) == N + 1
    assert "color: red" in (tmp_path / "two" / "report.html").read_text()
