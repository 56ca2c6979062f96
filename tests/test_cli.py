"""The command line as a process."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sgpmic import SGPMIC, __version__


def sgpmic(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"COLUMNS": "120"}
    command = [sys.executable, "-c", "from sgpmic.cli import main; main()", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_demo_writes_its_results(tmp_path: Path) -> None:
    done = sgpmic("demo", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "rounds" in done.stdout
    assert "mean certainty" in done.stdout
    labels = [int(row["cluster"]) for row in read(tmp_path / "out" / "labels.csv")]
    table = read(tmp_path / "out" / "memberships.csv")
    memberships = np.array([[float(r[f"cluster_{m}"]) for m in range(3)] for r in table])
    embedding = read(tmp_path / "out" / "embedding.csv")
    assert len(labels) == len(memberships) == len(embedding) == 150
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0)
    np.testing.assert_array_equal(memberships.argmax(axis=1), labels)
    model = SGPMIC.load(tmp_path / "out" / "model.sgpmic")
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(
        [[float(r["latent_1"]), float(r["latent_2"])] for r in embedding], model.embedding_
    )
    picture = (tmp_path / "out" / "embedding.png").read_bytes()
    assert picture.startswith(b"\x89PNG")

    again = sgpmic("demo", "--out", str(tmp_path / "out"))
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    done = sgpmic("demo", "--out", str(tmp_path / place))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "precious"


def test_version() -> None:
    assert sgpmic("--version").stdout.strip() == f"sgpmic {__version__}"
