"""The figures: drawn from real runs where that is quick, from invented records where it is not."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("equinox")


from paper.datasets import DataSet, five_arcs, load
from paper.figures import FIGURES
from paper.figures.base import as_files, house_style
from paper.figures.convergence import count_rises, follow
from paper.methods import METHODS, Problem
from paper.metrics import scores
from paper.results import Record

pytestmark = pytest.mark.slow


def words(svg: bytes) -> str:
    """Return all text of a drawing; a file that is not XML fails here."""
    root = ElementTree.fromstring(svg)
    return " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("text"))


def test_there_is_every_figure_of_the_paper() -> None:
    assert list(FIGURES) == [
        *("iris", "wine", "synthetic", "kernels", "convergence", "clusters", "inducing")
    ]


def test_six_methods_on_wine() -> None:
    # Wine in two dimensions, as in the test of FGPLVM: what is compiled for one serves the other.
    data = {"Wine": load("Wine")}
    with house_style():
        files = as_files(FIGURES["wine"].draw(data, []))
    text = words(files["svg"])
    for name in ("ISOMAP", "PPCA", "AML", "UNCA", "GP-LVM", "SGP-MIC"):
        assert name in text
    assert "ISOMAP: ACC 72.47 (paper 72.47)" in text, "one that is known exactly"
    assert files["png"].startswith(b"\x89PNG")


def test_five_arcs_with_our_defaults() -> None:
    """The paper has 99.32; the figure's own data, and two other draws of the noise."""
    for seed in range(3):
        Y, classes = five_arcs(random_state=seed)
        found = METHODS["defaults"].run(Problem(Y, 5, 2), seed)
        assert scores(classes, found.labels)["acc"] >= 99.0


def test_the_loss_never_rises() -> None:
    curve = follow(load("Wine"), n_iterations=6)
    assert len(curve.loss) == 12
    assert len(curve.accuracy) == 6
    assert np.all(np.diff(curve.loss) <= 1e-7 * np.abs(curve.loss[:-1]))
    assert count_rises(curve) == 0
    worse = curve._replace(loss=curve.loss[::-1])
    assert count_rises(worse) > 5, "the count must be able to find some"
    assert np.all((curve.accuracy > 33.0) & (curve.accuracy <= 100.0))


@pytest.mark.parametrize("name", ["clusters", "inducing"])
def test_curves_show_the_means_of_their_runs(name: str) -> None:
    figure = FIGURES[name]
    rng = np.random.RandomState(0)
    data = {
        d: DataSet(
            d, rng.standard_normal((40, 3)), np.arange(40) % 2, 2, "", np.zeros(1), False, 50
        )
        for d in figure.datasets
    }
    cases = figure.cases(data)
    assert {case.n_components for case in cases} == {
        data[d].n_components(0.95) for d in figure.datasets
    }
    records = [
        Record(case, seed, "", 1.0 + seed, {"acc": 40.0 + seed, "nmi": 20.0})
        for case in cases
        for seed in range(3)
    ]
    with house_style():
        drawing = figure.draw(data, records)
        first = drawing.axes[0].get_lines()[0]
        places = {c.n_clusters if name == "clusters" else c.n_inducing for c in cases}
        np.testing.assert_array_equal(first.get_xdata(), sorted(places))
        np.testing.assert_allclose(first.get_ydata(), 41.0)
        if name == "inducing":  # the first run of a shape is compiled, and is left out
            np.testing.assert_allclose(drawing.axes[2].get_lines()[0].get_ydata(), 2.5)
        again = as_files(figure.draw(data, records))
        files = as_files(drawing)
    assert files == again, "the same figure must give the same file"


def test_lines_can_be_told_apart_without_color() -> None:
    figure = FIGURES["clusters"]
    data = {
        d: DataSet(d, np.eye(6), np.arange(6) % 2, 2, "", np.zeros(1), False, 50)
        for d in figure.datasets
    }
    records = [Record(c, 0, "", 1.0, {"acc": 50.0}) for c in figure.cases(data)]
    with house_style():
        axes = figure.draw(data, records).axes[0]
    looks = [(str(line.get_linestyle()), line.get_marker()) for line in axes.get_lines()]
    shown = [look for look in looks if look[1] not in ("_", "|", "None", "")]
    assert len({marker for _, marker in shown}) == 6


def test_a_figure_without_some_of_its_data_says_so(tmp_path: Path) -> None:
    with house_style():
        files = as_files(FIGURES["convergence"].draw({}, []))
    assert len(re.findall("not available", words(files["svg"]))) == 6
