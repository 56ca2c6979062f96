"""sgpmic demo, --version and --help."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.helpers import read_csv, refused, said, sgpmic, started

from sgpmic import SGPMIC, __version__


def test_the_demo_goes_the_whole_way(tmp_path: Path) -> None:
    done = started("demo", "--out", tmp_path / "out")
    assert done.returncode == 0, said(done)
    for words in ("iterations", "mean certainty", "Agreement with species", "report.html"):
        assert words in said(done)
    rows = read_csv(tmp_path / "out" / "run" / "labels.csv")
    assert len(rows) == 150
    assert rows[0]["flower"] == "flower 1"
    model = SGPMIC.load(tmp_path / "out" / "run" / "model.sgpmic")
    np.testing.assert_array_equal(model.labels_, [int(row["cluster"]) for row in rows])
    assert "--force" in refused(sgpmic("demo", "--out", tmp_path / "out"))


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    refused(sgpmic("demo", "--out", tmp_path / place))
    assert (tmp_path / "file").read_text() == "precious"


def test_version() -> None:
    assert started("--version").stdout.strip() == f"sgpmic {__version__}"


def test_help_names_every_command_without_waiting_for_jax() -> None:
    words = said(started("--help"))
    for name in ("demo", "fit", "predict", "report", "info"):
        assert f" {name} " in words
    program = "import sys; from sgpmic.cli.app import app; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
