"""sgpmic fit: all it does. A success in a process of its own is in test_interruption.py."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather
import pyarrow.parquet
import pytest
from tests.cli.helpers import (
    NAMES,
    arrow_table,
    here,
    read_csv,
    refused,
    said,
    sgpmic,
    started,
    values,
    write_csv,
)

from sgpmic import SGPMIC
from sgpmic.cli.dry_run import expected_seconds

QUICK = ("-k", 3, "--max-iter", 2, "--inducing", 10)


def text(rows: np.ndarray, delimiter: str) -> str:
    lines = [NAMES, *([repr(float(v)) for v in row] for row in rows)]
    return "\n".join(delimiter.join(line) for line in lines) + "\n"


@pytest.fixture(scope="module")
def expected() -> SGPMIC:
    return SGPMIC(3, committee=None, max_iter=2, n_inducing=10, random_state=0).fit(values())


def test_a_dry_run_says_what_becomes_of_every_column_and_fits_nothing(tmp_path: Path) -> None:
    n_rows = 60
    columns = {f"c{i}": values()[:, i % 3] * (i + 1) for i in range(40)}
    columns |= {"day": np.datetime64("2020-01-01") + np.arange(n_rows)}
    columns |= {"same": np.ones(n_rows), "color": np.array(["red", "green", "blue"] * 20)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    done = here("fit", tmp_path / "t.parquet", "--dry-run", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    for name in columns:
        assert f" {name} " in done.output
    assert "left out" in done.output
    assert "60 rows of " in done.output
    assert "Nothing was fitted." in done.output
    assert not (tmp_path / "run").exists()
    one = here("fit", tmp_path / "t.parquet", "--dry-run", "--columns", "c0")
    assert "60 rows of 1 feature, " in one.output


def test_a_dry_run_refuses_what_a_fit_would(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", values())
    assert "has 60 rows" in refused(sgpmic("fit", path, "-k", 61, "--dry-run"))


def test_more_work_is_expected_to_take_longer() -> None:
    def seconds(n_rows: int = 10_000, n_features: int = 10, **settings: Any) -> float:
        return expected_seconds(SGPMIC(**settings), n_rows, n_features)

    assert seconds(committee=None) < seconds(n_clusters=3) < seconds(n_clusters="auto")
    assert seconds(n_inducing=20) < seconds() < seconds(n_inducing=200)
    assert seconds() < seconds(n_features=100)
    assert seconds(max_iter=2) < seconds() < seconds(latent="variational")
    assert 5 < seconds(1_000_000) / seconds(100_000) < 10


def test_a_number_that_is_found_is_shown_with_its_probability(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", values())
    done = here("fit", path, "-k", "auto", *QUICK[2:], "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "60 rows in 3 clusters" in done.output
    found = re.search(r"Probability of the number of clusters: (?:> )?(\d+) % for 3, ", done.output)
    assert found is not None
    assert int(found[1]) > 80
    stored = json.loads((tmp_path / "run" / "run.json").read_text())
    assert SGPMIC.load(tmp_path / "run" / "model.sgpmic").n_clusters_ == 3
    assert str(stored).count("'probability'") == 1


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.parquet", "t.feather", "t.npy", "t.npz"])
def test_every_format_gives_what_python_gives(tmp_path: Path, expected: SGPMIC, name: str) -> None:
    path, rows = tmp_path / name, values()
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text(rows, ",").encode()))
    elif name.endswith(("csv", "tsv")):
        path.write_text(text(rows, "," if name.endswith("csv") else "\t"))
    elif name.endswith("parquet"):
        pyarrow.parquet.write_table(arrow_table(rows), path)
    elif name.endswith("feather"):
        pyarrow.feather.write_feather(arrow_table(rows), path)
    elif name.endswith("npy"):
        np.save(path, rows)
    else:
        np.savez(path, rows)
    done = here("fit", path, *QUICK, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    table = read_csv(tmp_path / "run" / "labels.csv")
    np.testing.assert_array_equal([int(row["cluster"]) for row in table], expected.labels_)
    latent = [[float(row["latent_1"]), float(row["latent_2"])] for row in table]
    np.testing.assert_allclose(latent, expected.embedding_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        pytest.param(("--inducing", 12), {"n_inducing": 12}, marks=pytest.mark.slow),
        (("--scale", "none"), {"scale": "none"}),
    ],
    ids=str,
)
def test_ways_to_learn_are_those_of_python(
    tmp_path: Path, options: tuple[object, ...], parameters: dict[str, Any]
) -> None:
    model = SGPMIC(3, committee=None, max_iter=2, n_inducing=10, random_state=0).set_params(
        **parameters
    )
    model.fit(values())
    np.save(tmp_path / "t.npy", values())
    done = here("fit", tmp_path / "t.npy", *QUICK, *options, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    table = read_csv(tmp_path / "run" / "labels.csv")
    latent = [[float(row["latent_1"]), float(row["latent_2"])] for row in table]
    np.testing.assert_allclose(latent, model.embedding_, rtol=1e-6, atol=1e-9)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"].items() >= parameters.items()


def test_batches_have_no_effect_and_the_command_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", values())
    done = here("fit", tmp_path / "t.npy", *QUICK, "--batch", 20, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "--batch no longer has any effect" in " ".join(done.output.split())
    assert "--batch" not in here("fit", "--help").output


def test_the_former_name_of_max_iter(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", values())
    options = ("-k", 3, "--inducing", 10, "--rounds", 1, "--out", tmp_path / "run")
    done = here("fit", tmp_path / "t.npy", *options)
    assert done.exit_code == 0, done.output
    assert "--rounds is now --max-iter" in " ".join(done.output.split())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["result"]["iterations"] == 1


def test_empty_rows_are_set_aside(tmp_path: Path) -> None:
    lines = text(values(), ",").splitlines()
    header, rows = lines[0], lines[1:]
    whole, gaps = tmp_path / "whole.csv", tmp_path / "gaps.csv"
    whole.write_text("\n".join(lines) + "\n")
    gaps.write_text("\n".join([header, ",NA,", *rows[:30], ",,", *rows[30:]]) + "\n")
    found = {}
    for path in (whole, gaps):
        done = sgpmic("fit", path, *QUICK, "--out", tmp_path / path.stem)
        assert done.returncode == 0, said(done)
        found[path.stem] = read_csv(tmp_path / path.stem / "labels.csv")
    assert "2 rows without a value in any column that is used: no cluster." in said(done)
    assert [row.pop("row") for row in found["gaps"]] == [str(i + 1) for i in range(62)]
    empty = [row for row in found["gaps"] if row["cluster"] == ""]
    assert empty == [found["gaps"][0], found["gaps"][31]]
    assert set().union(*(row.values() for row in empty)) == {""}
    others = [row for row in found["gaps"] if row["cluster"]]
    expected = [{k: v for k, v in row.items() if k != "row"} for row in found["whole"]]
    assert others == expected
    assert sgpmic("report", tmp_path / "gaps").returncode == 0


def test_texts_stay_with_their_rows_where_some_are_empty(tmp_path: Path) -> None:
    remarks = [f"what somebody wrote about number {i}, at some length" for i in range(60)]
    names = [f"person {chr(65 + i % 26)}{i}" for i in range(60)]
    path = write_csv(tmp_path / "t.csv", values(), name=names, remark=remarks)
    header, *lines = path.read_text().splitlines()
    rows = [header, *lines[:7], ',,,nobody,"of whom these words are all that is known"', *lines[7:]]
    path.write_text("\n".join(rows) + "\n")
    run = tmp_path / "run"
    for command in (["fit", path, *QUICK, "--out", run], ["report", run]):
        done = here(*command)
        assert done.exit_code == 0, done.output
        page = (run / "report.html").read_text()
        payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
        assert [text["words"] for text in payload["texts"]] == [remarks]
        assert payload["ids"] == names


def test_a_column_of_text_may_be_named_none(tmp_path: Path) -> None:
    remarks = [f"what somebody wrote about number {i // 2}, at some length" for i in range(60)]
    path = write_csv(tmp_path / "t.csv", values(), **{"None": remarks})
    done = here("fit", path, *QUICK, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "run" / "report.html").read_text()
    payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
    assert [text["words"] for text in payload["texts"]] == [remarks]


def test_what_a_run_leaves_behind(tmp_path: Path) -> None:
    ids = [f"id {i}" for i in range(60)]
    given = ["a"] * 20 + ["b"] * 20 + ["c"] * 20
    table = write_csv(tmp_path / "t.csv", values(), name=ids, kind=given)
    done = sgpmic(
        *("fit", table, *QUICK, "--out", tmp_path / "run", "--id", "name", "--label", "kind"),
        *("--scale", "each", "--seed", 7, "--checkpoint-every", 2),
    )
    assert done.returncode == 0, said(done)
    assert "Agreement with kind" in said(done)
    assert "Rand index 1.00" in said(done)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        *("labels.csv", "model.sgpmic", "report.html", "run.json")
    ]
    rows = read_csv(tmp_path / "run" / "labels.csv")
    assert [row["name"] for row in rows] == ids
    shares = np.array([[float(row[f"membership_{m}"]) for m in range(3)] for row in rows])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose([float(row["certainty"]) for row in rows], shares.max(axis=1))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["features"] == list(NAMES), "neither id nor label is a feature"
    assert record["settings"]["random_state"] == 7
    assert record["versions"]["jax"]
    assert record["data"]["fingerprint"].startswith("60 x 3, ")
    scaled = (values() - values().mean(axis=0)) / values().std(axis=0)
    model = SGPMIC(3, committee=None, max_iter=2, n_inducing=10, random_state=7).fit(scaled)
    assert record["scaling"] == "each"
    np.testing.assert_array_equal([int(row["cluster"]) for row in rows], model.labels_)
    assert SGPMIC.load(tmp_path / "run" / "model.sgpmic").n_features_in_ == 3
    found = record["result"]["profiles"]
    assert [row["cluster_name"] for row in rows] == [found[m]["name"] for m in model.labels_]
    assert len({one["name"] for one in found}) == 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert "id 17" in page
    assert "</html>" in page
    for m, one in enumerate(found):
        assert f"{m}: {one['sentence']} Rule: " in said(done)
        assert one["sentence"] in page
    assert "weight" not in said(done)


@pytest.mark.parametrize("column", ["state", "cluster_name"])
def test_a_column_of_names_names_the_rows(tmp_path: Path, column: str) -> None:
    states = [f"New {a}{b}" for a in "ABCDEF" for b in "uvwxyzabcd"]
    others = {"number": [str(i) for i in range(60)], "kind": ["a", "b", "c"] * 20}
    table = write_csv(tmp_path / "t.csv", values(), **others, **{column: states})
    done = here("fit", table, *QUICK, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    rows = read_csv(tmp_path / "run" / "labels.csv")
    first = "state" if column == "state" else "id"  # a name of ours is not taken twice
    assert next(iter(rows[0])) == first
    assert [row[first] for row in rows] == states
    assert rows[0]["cluster_name"] != states[0]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["id"] == column
    assert column not in record["data"]["features"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(f"<bdi>row {i}</bdi>" not in page for i in range(1, 61))
    assert "<bdi>New " in page


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", values())
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    assert "not empty" in refused(sgpmic("fit", table, *QUICK, "--out", out))
    assert [p.name for p in out.iterdir()] == ["mine.txt"]
    done = sgpmic("fit", table, *QUICK, "--out", out, "--force")
    assert done.returncode == 0, said(done)
    assert (out / "mine.txt").read_text() == "precious"
    before = (out / "labels.csv").read_bytes()
    bad = write_csv(tmp_path / "bad.csv", np.full((3, 3), np.nan))
    refused(sgpmic("fit", bad, *QUICK, "--out", out, "--force"))
    for slip in (("-d", "abc"), ("--kernel", "cosine"), ("-k", "61"), ("--drop", "nothing")):
        refused(sgpmic("fit", table, *QUICK, *slip, "--out", out, "--force"))
    assert (out / "labels.csv").read_bytes() == before, "a slip costs nothing"
    done = sgpmic("fit", table, *QUICK, "--out", out, "--resume")
    assert done.returncode == 0
    assert "nothing is left to do" in said(done)
    words = refused(sgpmic("fit", table, "-k", 4, "--out", out, "--resume"))
    assert "with other --clusters, --inducing; name another" in words


def test_files_that_are_no_runs_are_not_replaced(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "labels.csv", values())
    before = table.read_bytes()
    words = refused(started("fit", table, *QUICK, "--out", tmp_path, "--force"))
    assert "labels.csv" in words
    other = tmp_path / "other"
    other.mkdir()
    (other / "report.html").write_text("mine")
    assert "that no run wrote" in refused(sgpmic("fit", table, *QUICK, "--out", other, "--force"))
    assert (other / "report.html").read_text() == "mine"
    assert table.read_bytes() == before


BAD_TABLES = {
    "ragged": (b"a,b\n1,2\n3\n", ("row 2",)),
    "text": (
        b"a,b\n1,2\n2,3\n3,4\n4,5\n5,6\n6,x\n",
        ("row 6", "'b'", "(--category, --number, …), or leave it out (--drop b)"),
    ),
    "encoding": ("a,b\n1,é\n".encode("latin-1"), ("UTF-8",)),
    "rubbish": (bytes(range(256)) * 20, ()),
    "duplicate": (b"a,a\n1,2\n3,4\n", ("'a'",)),
    "empty": (b"", ("empty",)),
    "header only": (b"a,b\n", ()),
    "infinite": (b"a,b\n1,2\n2,3\n3,4\n4,5\n5,6\ninf,4\n", ("row 6", "'a'")),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_get_one_sentence_with_the_place(tmp_path: Path, kind: str) -> None:
    content, places = BAD_TABLES[kind]
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    words = refused(sgpmic("fit", path, "-k", 2, "--out", tmp_path / "run"))
    assert "bad.csv" in words
    for place in places:
        assert place in words
    assert not (tmp_path / "run").exists()


def test_other_things_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "zero.parquet").touch()
    for path, words in (
        (tmp_path, "not a regular file"),
        (tmp_path / "absent.csv", "absent.csv"),
        (tmp_path / "zero.parquet", "zero.parquet"),
    ):
        assert words in refused(sgpmic("fit", path, "-k", 2, "--out", tmp_path / "run"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", values())
    table.chmod(0)
    assert "permission" in refused(sgpmic("fit", table, "-k", 2)).lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-k", "1.5"), "--clusters must be a whole number of at least 1 or 'auto', got 1.5"),
        (("-d", "1.5"), "got 1.5"),
        (("-d", "many"), "--dimensions must be a whole number of at least 1"),
        (("--kernel", "cosine"), "cosine"),
        (("--columns", "hieght"), "height"),
        (("--label", "nothing"), "nothing"),
        (("--drop", "height,width,depth"), "feature"),
        (("--number", "height", "--category", "height"), "conflicting options for 'height'"),
        (("--log", "height", "--drop", "height"), "conflicting options for 'height'"),
        (("--date", "hieght"), "height"),
        (("--columns", "width", "--log", "height"), "--columns leaves out 'height'"),
        (("-k", 61), "61"),
        (("--device", "tpu"), "--device tpu"),
        (("--out", "{file}"), "File exists"),
    ],
)
def test_bad_options_get_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    table = write_csv(tmp_path / "t.csv", values())
    given = [str(a).format(file=table) for a in arguments]
    first = () if "-k" in given else ("-k", 3)
    if "--out" not in given:
        given += ["--out", str(tmp_path / "run")]
    assert words in refused(sgpmic("fit", table, *first, *given))


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """/dev/full cannot stand for a folder; a limit on file sizes fails the same writes."""
    table = write_csv(tmp_path / "t.csv", values())
    program = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)); "
        "from sgpmic.cli.startup import main; main()"
    )
    import subprocess
    import sys

    from tests.cli.helpers import cheaply, environment

    arguments = cheaply(("fit", table, *QUICK, "--out", tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        # What others have compiled is used, but none is kept: that would meet the limit, too.
        env=environment() | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000000"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    words = refused(done)
    assert "cannot be written" in words
    assert "--resume" in words
    left = {p.name for p in (tmp_path / "run").iterdir()}
    assert "run.json" not in left
    assert not [name for name in left if name.startswith(".")], "no temporary files"
    done = sgpmic("fit", table, *QUICK, "--out", tmp_path / "run", "--resume")
    assert done.returncode == 0, said(done)
