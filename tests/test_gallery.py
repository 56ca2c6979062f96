"""Every example of the gallery on a small table, and what its picture shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

plt = pytest.importorskip("matplotlib.pyplot", reason="needs matplotlib")
from benchmarks import pictures  # noqa: E402
from examples import customers, digits, faces, flowers, million  # noqa: E402
from matplotlib.collections import PathCollection, PolyCollection  # noqa: E402

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"
# Those that make something of the documentation are no examples.
SCRIPTS = sorted(
    path.stem for path in (ROOT / "examples").glob("*.py") if not path.stem.startswith("make_")
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def without_a_screen() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


def color_of_marks(marks: PathCollection) -> NDArray[np.float64]:
    """Return red, green and blue of every mark; its opacity says how certain the row is."""
    colors = marks.get_facecolors()[:, :3]
    return np.broadcast_to(colors, (len(marks.get_offsets()), 3))


def whole(words: str) -> int:
    """Return the number that words begin with."""
    found = re.search(r"[\d,]+", words)
    assert found is not None
    return int(found[0].replace(",", ""))


@pytest.mark.slow
def test_flowers(capsys: pytest.CaptureFixture[str]) -> None:
    (axes,) = flowers.main().axes
    scatters = [c for c in axes.collections if isinstance(c, PathCollection)]
    (rings,) = [c for c in scatters if len(c.get_facecolors()) == 0]
    marks = [c for c in scatters if c is not rings]
    places = np.concatenate([c.get_offsets() for c in marks])
    assert len(places) == 150
    colors = Counter(map(tuple, np.concatenate([color_of_marks(c) for c in marks]).round(3)))
    assert len(colors) == 3
    assert 50 in colors.values()  # setosa, which lies apart from the other two

    # As many rings as were counted, each around a flower.
    ringed = np.asarray(rings.get_offsets())
    assert 0 < len(ringed) == whole(capsys.readouterr().out) < 50
    assert {tuple(place) for place in ringed} <= {tuple(place) for place in places}
    named = {text.get_text(): text.xy for text in axes.texts if hasattr(text, "xy")}
    assert {"setosa", "versicolor", "virginica"} <= set(named)
    assert named["setosa"][0] < named["versicolor"][0] < named["virginica"][0]
    assert "150 irises" in axes.get_title(loc="left")


@pytest.mark.slow
def test_digits() -> None:
    figure = digits.main(n_rows=300)
    picture, *small = figure.axes
    (marks,) = picture.collections
    colors = Counter(map(tuple, color_of_marks(marks).round(3)))
    assert len(small) == len(colors) == 10
    assert sum(colors.values()) == 300
    total = np.zeros((8, 8))
    for axes in small:
        rows = whole(axes.get_title())
        frame = tuple(np.round(axes.spines["left"].get_edgecolor()[:3], 3))
        assert colors[frame] == rows, "a frame has the color of its cluster's marks"
        total += rows * np.asarray(axes.images[0].get_array())
    # The mean images, each as often as its cluster has rows, are all the ink there is.
    np.testing.assert_allclose(total.ravel(), load_digits().data[:300].sum(axis=0))


@pytest.mark.slow
def test_faces() -> None:
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(5), 8)
    pixels = 100 * rng.normal(size=(5, 64))[people] + rng.normal(size=(40, 64))
    people[0] = 1  # one photograph with the wrong name
    (axes,) = faces.main(pixels, people, n_clusters=5).axes
    shown = np.asarray(axes.images[0].get_array())
    np.testing.assert_array_equal(np.sort(shown.diagonal()), [7, 8, 8, 8, 8])
    assert shown.sum() == 40
    # The one count off the diagonal: person 2, where person 1 is.
    ((row, column),) = np.argwhere(shown - np.diag(shown.diagonal()))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert (names[row], names[column]) == ("person 2", "person 1")
    assert sorted(text.get_text() for text in axes.texts) == ["1", "7", "8", "8", "8", "8"]


@pytest.mark.slow
def test_cells() -> None:
    pytest.importorskip("scanpy", reason="needs scanpy")
    from examples import cells

    left, right = cells.main(n_cells=300).axes
    sizes = [len(marks.get_offsets()) for marks in left.collections]
    assert sum(sizes) == 300
    n_clusters = len(sizes)  # of so few cells, one of the eight may end empty
    assert n_clusters >= 7
    assert len({tuple(marks.get_facecolors()[0, :3]) for marks in left.collections}) == n_clusters
    assert [text.get_text() for text in left.texts] == list(map(str, range(n_clusters)))

    # Every cell is counted once, in the column of its cluster, and every count is written down.
    table = np.asarray(right.images[0].get_array())
    assert table.sum(axis=0).tolist() == sizes
    written = {(text.get_position(), text.get_text()) for text in right.texts}
    cells_of_table = {((j, i), str(n)) for (i, j), n in np.ndenumerate(table) if n}
    assert written == cells_of_table
    kinds = [label.get_text() for label in right.get_yticklabels()]
    assert len(set(kinds)) == len(table)
    assert {"CD19+ B", "CD14+ Monocyte"} <= set(kinds)


@pytest.mark.slow
def test_customers(capsys: pytest.CaptureFixture[str]) -> None:
    axes = customers.main(n_rows=150).axes[0]
    features = [label.get_text() for label in axes.get_yticklabels()]
    effects = np.asarray(axes.images[0].get_array())
    assert effects.shape == (len(features), 3)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
    assert len(axes.texts) == effects.size
    assert {"age", "income", "payment=card", "since"} <= set(features)
    assert not {"customer_id", "currency"} & set(features)
    # What was drawn at random sets nothing apart; what the kinds were made of does.
    strongest = dict(zip(features, np.abs(effects).max(axis=1), strict=True))
    assert max(strongest["since"], strongest["newsletter"]) < 0.8
    assert min(strongest["age"], strongest["mean basket"]) > 1.5
    assert "150 customers" in axes.get_title(loc="left")
    assert float(capsys.readouterr().out.split()[-1]) > 0.7


def test_pictures_are_measured_on_the_table_of_the_example() -> None:
    """benchmarks/pictures.py has a copy: UMAP's environment has none of our packages."""
    rows, cloud = million.make_rows(50)
    copied, groups, _ = pictures.waves(50)
    np.testing.assert_array_equal(copied, rows)
    np.testing.assert_array_equal(groups, cloud)


@pytest.mark.slow
def test_million() -> None:
    (axes,) = million.main(n_rows=2000).axes
    clouds = [c for c in axes.collections if isinstance(c, PolyCollection)]
    counted = [int(np.asarray(cloud.get_array()).sum()) for cloud in clouds]
    assert sum(counted) == 2000
    assert min(counted) > 250
    darkest = {tuple(cloud.get_cmap()(1.0)) for cloud in clouds}
    assert len(darkest) == len(clouds) == 6
    assert [whole(text.get_text().split("\n")[1]) for text in axes.texts] == counted
    assert axes.get_title() == "2,000 rows"


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_has_its_page_and_picture(name: str) -> None:
    page = (GALLERY / f"{name}.md").read_text(encoding="utf-8")
    assert f'--8<-- "examples/{name}.py"' in page
    assert f"(images/{name}.png)" in page
    assert f"](images/{name}.png)]({name}.md)" in (GALLERY / "index.md").read_text(encoding="utf-8")
    assert 5_000 < (GALLERY / "images" / f"{name}.png").stat().st_size < 100_000


def test_there_is_no_other_page() -> None:
    assert {page.stem for page in GALLERY.glob("*.md")} == {*SCRIPTS, "index"}
