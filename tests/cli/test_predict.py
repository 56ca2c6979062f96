"""sgpmic predict, report and info."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
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
    values,
    write_csv,
)

from sgpmic import SGPMIC
from sgpmic.storage.model_file import read_model, write_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    table = write_csv(folder / "t.csv", values(), name=[f"n{i}" for i in range(60)])
    done = sgpmic(
        *("fit", table, "-k", 3, "--max-iter", 2, "--inducing", 10, "--id", "name"),
        *("--scale", "each", "--out", folder / "run"),
    )
    assert done.returncode == 0, said(done)
    return folder / "run"


def test_densities_are_stored_and_the_same_as_if_they_were_not(run: Path, tmp_path: Path) -> None:
    header, arrays = read_model(run / "model.sgpmic")
    stored = [name for name in arrays if name.startswith("normals.")]
    for name in (*stored, "mapping_share", "left_out_log_density"):
        del arrays[name]
    write_model(tmp_path / "earlier.sgpmic", header, arrays)  # as versions before wrote them
    with_them, without = SGPMIC.load(run / "model.sgpmic"), SGPMIC.load(tmp_path / "earlier.sgpmic")
    assert with_them.unusual_below_ == without.unusual_below_
    rows = values(1)
    np.testing.assert_array_equal(with_them.score_samples(rows), without.score_samples(rows))


def test_a_model_file_is_not_its_run_folder(run: Path) -> None:
    words = said(sgpmic("predict", run / "model.sgpmic", run.parent / "t.csv")).split()
    assert "model.sgpmic holds no run; name a folder that" in " ".join(words)


def test_a_prediction_imports_nothing_that_it_does_not_need(run: Path, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "new.csv", values(1))
    words = ["sgpmic", "predict", str(run), str(table), "--out", str(tmp_path / "labels.csv")]
    program = (
        "import contextlib, sys; from sgpmic.cli.startup import main\n"
        f"sys.argv = {words!r}\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "scipy = {'scipy.stats', 'scipy.optimize', 'scipy.special'}\n"
        "slow = {'pandas', 'sklearn', 'sgpmic.learning.em'} | scipy\n"
        "import gc; assert gc.get_freeze_count() > 100_000\n"  # not looked through at the end
        "print('loaded:', *slow & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:", done.stderr


def test_new_rows_get_what_python_says_of_them(run: Path, tmp_path: Path) -> None:
    rows = np.vstack([values(1, n_each=5), [[400.0, 0.0, -300.0]]])
    order = [2, 0, 1]  # columns go by their names
    table = arrow_table(rows).select([NAMES[i] for i in order]).append_column("other", [[1.0] * 16])
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet")
    done = sgpmic("predict", run, tmp_path / "new.parquet", folder=tmp_path)
    assert done.returncode == 0, said(done)
    assert "ignored: other" in said(done)
    found = read_csv(tmp_path / "new-labels.csv")
    record = json.loads((run / "run.json").read_text())
    model = SGPMIC.load(run / "model.sgpmic")
    np.testing.assert_array_equal([int(r["cluster"]) for r in found], model.predict(rows))
    names = [profile["name"] for profile in record["result"]["profiles"]]
    assert [r["cluster_name"] for r in found] == [names[int(r["cluster"])] for r in found]
    shares = [[float(r[f"membership_{m}"]) for m in range(3)] for r in found]
    np.testing.assert_allclose(shares, model.predict_proba(rows), rtol=1e-8, atol=1e-12)
    densities = [float(r["log_density"]) for r in found]
    np.testing.assert_allclose(densities, model.score_samples(rows), rtol=1e-6)
    unusual = np.array(densities) < record["unusual_below"]
    assert [r["unusual"] for r in found] == [str(int(u)) for u in unusual]
    assert unusual[-1], "it is nowhere near the others"
    assert unusual.sum() < 8
    assert f"{unusual.sum()} of them" in said(done)
    assert [r["row"] for r in found] == [str(i) for i in range(1, 17)]


def test_fitted_rows_keep_their_labels(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.csv"
    done = sgpmic("predict", run, run.parent / "t.csv", "--out", out)
    assert done.returncode == 0, said(done)
    before, after = read_csv(run / "labels.csv"), read_csv(out)
    for name in before[0]:
        assert [row[name] for row in before] == [row[name] for row in after], name
    assert sum(row["unusual"] == "1" for row in after) <= 1


def test_columns_that_are_missing_are_named(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("hight,breadth\n1,2\n")
    words = refused(sgpmic("predict", run, path, "--out", tmp_path / "o.csv"))
    for name in ("'height'", "'width'", "'depth'", "'breadth'"):
        assert name in words
    assert not (tmp_path / "o.csv").exists()
    path.write_text("height,breadth\n1,2\n")
    done = sgpmic("predict", run, path, "--out", tmp_path / "o.csv")
    assert done.returncode == 0, said(done)
    assert "has no column 'width', 'depth': taken as missing" in said(done)
    model = SGPMIC.load(run / "model.sgpmic")
    expected = model.predict_proba(np.array([[1.0, np.nan, np.nan]]))
    found = [float(read_csv(tmp_path / "o.csv")[0][f"membership_{m}"]) for m in range(3)]
    np.testing.assert_allclose(found, expected[0], rtol=1e-8, atol=1e-12)


def test_a_bad_row_late_in_the_file_leaves_no_output(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    lines = ["height,width,depth", *["1,2,3"] * 20_000, "1,oops,3"]
    path.write_text("\n".join(lines) + "\n")
    sentence = refused(sgpmic("predict", run, path, "--out", tmp_path / "o.csv"))
    for part in ("(row 20001)", "'width'"):
        assert part in sentence
    assert "--drop" not in sentence, "predict has no such option"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_a_sentence(
    run: Path, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_record(_: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr("sgpmic.cli.predict.RunFolder.read_record", read_record)
    done = here("predict", run, tmp_path / "new.csv", "--out", tmp_path / "labels.csv")
    assert done.exit_code == 130
    # A long path is broken between lines.
    assert "".join(done.output.split()).endswith("labels.csvwasnotwritten.")


def test_an_empty_row_gets_no_cluster(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("height,width,depth\n1,2,3\n,NA,\n7,7,7\n")
    done = sgpmic("predict", run, path, "--out", tmp_path / "o.csv")
    assert done.returncode == 0, said(done)
    assert "1 row without a value in any column of the model: no cluster." in said(done)
    first, empty, last = read_csv(tmp_path / "o.csv")
    assert (empty.pop("row"), set(empty.values())) == ("2", {""})
    model = SGPMIC.load(run / "model.sgpmic")
    rows = np.array([[1.0, 2.0, 3.0], [np.nan] * 3, [7.0, 7.0, 7.0]])
    assert model.predict(rows).tolist() == [int(first["cluster"]), -1, int(last["cluster"])]
    path.write_text("height,width,depth\n,NA,\n")
    done = sgpmic("predict", run, path, "--out", tmp_path / "none.csv")
    assert done.returncode == 0
    assert "1 row written to" in said(done)


def test_one_row_is_not_rows(run: Path, tmp_path: Path) -> None:
    new = write_csv(tmp_path / "one.csv", values()[:1])
    done = here("predict", run, new, "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert "1 row written" in done.output


def test_nothing_is_overwritten_without_force(run: Path, tmp_path: Path) -> None:
    new = write_csv(tmp_path / "new.csv", values(1, n_each=1))
    out = tmp_path / "o.csv"
    out.write_text("precious")
    assert "exists" in refused(sgpmic("predict", run, new, "--out", out))
    assert out.read_text() == "precious"
    assert sgpmic("predict", run, new, "--out", out, "--force").returncode == 0


@pytest.mark.parametrize("command", ["predict", "report", "info"])
def test_things_that_are_no_runs(tmp_path: Path, command: str) -> None:
    more = [tmp_path / "x.csv"] if command == "predict" else []
    for path in (tmp_path / "absent", tmp_path):
        assert "cannot read the model file" not in refused(sgpmic(command, path, *more))


def test_a_damaged_model_is_refused(run: Path, tmp_path: Path) -> None:
    broken = bytearray((run / "model.sgpmic").read_bytes())
    broken[len(broken) // 2] ^= 16
    (tmp_path / "model.sgpmic").write_bytes(broken)
    (tmp_path / "run.json").write_bytes((run / "run.json").read_bytes())
    assert "damaged" in refused(sgpmic("info", tmp_path))
    new = write_csv(tmp_path / "new.csv", values(1, n_each=1))
    assert "damaged" in refused(sgpmic("predict", tmp_path, new, "--out", tmp_path / "o.csv"))


def test_the_report_can_be_made_again(run: Path, tmp_path: Path) -> None:
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    assert sgpmic("report", run).returncode == 0
    assert (run / "report.html").read_bytes() == before
    other = write_csv(tmp_path / "t.csv", values(5), name=["x"] * 60)
    assert "has changed" in refused(sgpmic("report", run, "--table", other))


def test_info_names_what_matters(run: Path) -> None:
    words = said(sgpmic("info", run))
    for fact in ("60", "shared, 10 inducing points", "RBF", "after 2 iterations"):
        assert fact in words
    assert (
        said(sgpmic("info", run / "model.sgpmic")).split("rows fitted")[1]
        == words.split("rows fitted")[1]
    )


def test_info_of_a_model_made_in_python(tmp_path: Path) -> None:
    """It may have rows without any value, which were not fitted, and a kernel per cluster."""
    rows = np.insert(values(), 5, np.nan, axis=0)
    settings: dict[str, Any] = {"committee": None, "max_iter": 1, "n_inducing": 10}
    model = SGPMIC(4, mapping="per_cluster", random_state=0, **settings).fit(rows)
    model.save(tmp_path / "m.sgpmic")
    words = said(sgpmic("info", tmp_path / "m.sgpmic"))
    assert re.search(r"rows fitted\W+60\b", words)
    assert not re.search(r"[a-z]=\d+\.\d{10}", words)
    assert words.count("RBF(") == 3
    assert "; …" in words
