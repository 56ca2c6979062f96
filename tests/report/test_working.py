"""Working with the report in a real browser: selecting, saving, sorting, naming, turning."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from tests.report.browser import (
    focus_picture,
    hover,
    needs_browser,
    next_frame,
    press,
    state,
    text_of,
    three_clouds,
    wait_for,
)

from sgpmic.report import RunContent
from sgpmic.report.statistics import cluster_profiles, level_shares
from sgpmic.tables.columns import Levels

pytestmark = [pytest.mark.slow, needs_browser]

N = 90


def table_of_everything(n: int = N, Q: int = 2, **more: Any) -> RunContent:
    """Numbers with gaps, a category with gaps, names, labels, principal components."""
    rng = np.random.default_rng(1)
    labels = np.arange(n) % 3
    values = np.stack([labels + 0.25, np.arange(n) / 7, rng.normal(size=n)], axis=1)
    values[::9, 1] = np.nan
    codes = np.where(np.arange(n) % 10 == 0, -1, (labels + (rng.random(n) < 0.2)) % 3)
    means = np.zeros((3, Q))
    means[:, :2] = [[0.0, 0.0], [6.0, 0.0], [3.0, 4.0]]
    means[:, 2:] = np.arange(3)[:, None]
    fields: dict[str, Any] = {
        "title": "A table, of everything",
        "values": values,
        "feature_names": ("width", "height", "noise"),
        "categories": (Levels("plan", ("basic", "plus", "=senior"), codes),),
        "principal": (rng.normal(size=(n, 2)), np.array([0.6, 0.3])),
        "embedding": means[labels] + 0.4 * rng.normal(size=(n, Q)),
        "means": means,
        "covariances": np.tile(0.2 * np.eye(Q), (3, 1, 1)),
    }
    return three_clouds(n, **(fields | more))


@pytest.fixture
def downloads(driver: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "downloads"
    folder.mkdir()
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    return folder


def saved(folder: Path, name: str) -> str:
    path = folder / name
    wait_for(lambda: path.exists() and path.stat().st_size > 0)
    return path.read_text(encoding="utf-8-sig")


def click(driver: Any, name: str) -> None:
    element = driver.find_element(By.ID, name)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def draw_around(driver: Any, corners: list[list[float]], where: str = "canvas-box") -> None:
    """Drag over places given in pixels of a picture."""
    box = driver.find_element(By.ID, where)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    middle = np.array([box.size["width"], box.size["height"]]) / 2
    offsets = [np.round(np.array(corner) + 1 - middle).astype(int).tolist() for corner in corners]
    chain = ActionChains(driver, duration=10).move_to_element_with_offset(box, *offsets[0])
    chain = chain.click_and_hold()
    for offset in offsets[1:]:
        chain = chain.move_to_element_with_offset(box, *offset)
    chain.release().perform()


def places(driver: Any, function: str = "place") -> np.ndarray:
    return np.array(
        driver.execute_script(f"return [...Array({N}).keys()].map(sgpmicReport.{function})")
    )


def around(points: np.ndarray) -> list[list[float]]:
    """The corners of a box a little larger than some places."""
    (x0, y0), (x1, y1) = points.min(axis=0) - 6, points.max(axis=0) + 6
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]


def in_lasso(polygon: list[list[float]], points: np.ndarray, factor: float) -> set[int]:
    """Rows in a polygon that is made larger or smaller about its middle."""
    from matplotlib.path import Path as Polygon

    corners = np.array(polygon)
    middle = corners.mean(axis=0)
    inside = Polygon(middle + factor * (corners - middle)).contains_points(points)
    return set(np.flatnonzero(inside).tolist())


def test_lasso(visit):
    driver = visit(table_of_everything())
    click(driver, "tool-lasso")
    points = places(driver)
    x0, y0 = points[1::3].mean(axis=0)  # a triangle over part of the second cloud
    triangle = [[x0 - 70, y0 - 60], [x0 + 60, y0 - 60], [x0, y0 + 20]]
    draw_around(driver, [*triangle, triangle[0]])
    expected = set(state(driver)["picked"])
    # The pointer goes in whole pixels: rows at the very edge may be on either side.
    assert 3 < len(in_lasso(triangle, points, 0.95)) < len(expected) + 1
    assert in_lasso(triangle, points, 0.95) <= expected <= in_lasso(triangle, points, 1.05)
    assert text_of(driver, "selection-title") == f"{len(expected)} selected rows"
    # Rows outside are faded and no longer found under the pointer.
    outside = next(i for i in range(N) if i not in expected)
    hover(driver, outside)
    assert state(driver)["row"] != outside
    # Shift adds to the selection.
    driver.execute_script("document.getElementById('canvas-box').focus()")
    ActionChains(driver).key_down(Keys.SHIFT).perform()
    draw_around(driver, around(points[::3]))
    ActionChains(driver).key_up(Keys.SHIFT).perform()
    assert set(state(driver)["picked"]) == expected | set(range(0, N, 3))
    click(driver, "selection-clear")
    assert state(driver)["picked"] == []
    assert not driver.find_element(By.ID, "selection").is_displayed()


def test_box_among_emphasised_clusters(visit):
    driver = visit(table_of_everything())
    click(driver, "tool-box")
    driver.find_element(By.CSS_SELECTOR, "#clusters-legend [data-cluster='2']").click()
    points = places(driver)
    (x0, y0), (x1, y1) = points.min(axis=0) - 5, points.max(axis=0) + 5
    draw_around(driver, [[x0, y0], [x1, y1]])
    assert state(driver)["picked"] == list(range(2, N, 3))


def test_profile_of_the_selection(visit):
    values = table_of_everything().values
    values[0, 0] = 1e4  # a wrong value
    values[:, 2] = 157_432.2 + 1e4 * (np.arange(N) % 3)  # large numbers are written out
    content = table_of_everything(values=values)
    driver = visit(content)
    click(driver, "tool-box")
    draw_around(driver, [around(places(driver)[::3])[k] for k in (0, 2)])
    inside = np.arange(N) % 3 == 0
    assert state(driver)["picked"] == np.flatnonzero(inside).tolist()
    rows = driver.execute_script(
        "return [...document.querySelectorAll('#selection-effects tr')].map("
        "r => ['bdi', 'small', '.figure'].map(each => r.querySelector(each).textContent))"
    )
    means = {name: words for name, words, _ in rows}
    shown = {name: float(effect.replace("−", "-")) for name, _, effect in rows}
    # The same by the functions of the cluster cards.
    compared = cluster_profiles(content.values.astype(np.float32), 1 - inside, 2)
    shares = level_shares(content.categories[0].codes, 3, 1 - inside, 2)
    numbers, levels = (
        each.certain[0] * each.known[0] / inside.sum() for each in (compared, shares)
    )
    assert shown["width"] == pytest.approx(numbers[0], abs=0.006)
    assert means["width"] == f"{compared.inside[0, 0]:.4g} against {compared.outside[0, 0]:.4g}"
    assert compared.inside[0, 0] < 1.0  # the means do not contradict the effect
    assert means[content.feature_names[2]] == "157,432 against 172,432"
    strongest = int(np.argmax(abs(levels)))
    name = f"plan: {content.categories[0].levels[strongest]}"
    assert shown[name] == pytest.approx(levels[strongest], abs=0.006)
    effects = [abs(value) for value in shown.values()]
    assert effects == sorted(effects, reverse=True)


def test_selecting_beside_principal_components(visit):
    content = table_of_everything()
    driver = visit(content)
    click(driver, "beside")
    wait_for(lambda: state(driver)["beside"])
    next_frame(driver)
    points = places(driver, "principalPlace")
    # Both pictures have one scale for both axes: distances are those of the components.
    assert content.principal is not None
    across = np.ptp(points, axis=0) / np.ptp(content.principal[0], axis=0)
    assert across[0] == pytest.approx(across[1])
    click(driver, "tool-box")
    x, y = np.median(points, axis=0)
    expected = (points[:, 0] < x) & (points[:, 1] < y)
    corner = points.min(axis=0) - 4
    draw_around(driver, [corner.tolist(), [x, y]], "principal-box")
    picked = np.zeros(N, bool)
    picked[state(driver)["picked"]] = True
    edge = (abs(points - [x, y]) < 1.5).any(axis=1)
    assert (picked == expected)[~edge].all()
    click(driver, "beside")
    assert not state(driver)["beside"]


def test_without_principal_components_there_is_no_button(visit):
    driver = visit(table_of_everything(principal=None))
    assert driver.find_elements(By.ID, "beside") == []


def test_selected_rows_are_saved(visit, downloads):
    content = table_of_everything()
    driver = visit(content)
    click(driver, "tool-box")
    draw_around(driver, [around(places(driver)[::3])[k] for k in (0, 2)])
    click(driver, "selection-save")
    lines = list(
        csv.DictReader(io.StringIO(saved(downloads, "a-table-of-everything-selected.csv")))
    )
    assert [int(line["row"]) for line in lines] == list(range(1, N + 1, 3))
    for line in lines:
        i = int(line["row"]) - 1
        assert line["id"] == f"sample-{i}"
        assert line["cluster"] == "0"
        assert float(line["certainty"]) == pytest.approx(content.memberships[i].max(), abs=1e-4)
        assert line["tint"] == content.given_labels[i]
        height = content.values[i, 1]
        assert (
            line["height"] == ""
            if np.isnan(height)
            else float(line["height"]) == pytest.approx(height, rel=1e-6)
        )
        code = content.categories[0].codes[i]
        # What a spreadsheet would take for a formula is kept from being one.
        assert line["plan"] == ("basic", "plus", "'=senior", "")[code]


def test_a_cluster_and_filtered_rows_are_saved(visit, downloads):
    driver = visit(table_of_everything())
    button = driver.find_element(By.CSS_SELECTOR, "[data-save-cluster='1']")
    driver.execute_script("arguments[0].click()", button)
    lines = list(
        csv.DictReader(io.StringIO(saved(downloads, "a-table-of-everything-cluster-1.csv")))
    )
    assert [int(line["row"]) for line in lines] == list(range(2, N + 1, 3))
    driver.find_element(By.ID, "rows-search").send_keys("sample-8")
    wait_for(lambda: "of 11 rows" in text_of(driver, "rows-count"))
    click(driver, "rows-save")
    lines = list(csv.DictReader(io.StringIO(saved(downloads, "a-table-of-everything-rows.csv"))))
    assert [line["id"] for line in lines] == ["sample-8", *(f"sample-{i}" for i in range(80, 90))]


def test_pictures_are_saved(visit, downloads):
    driver = visit(table_of_everything())
    click(driver, "save-svg")
    text = saved(downloads, "a-table-of-everything.svg")
    assert text.startswith("<svg ")
    marks = re.findall(r'<use href="#m(\d)" transform="translate\(([\d.]+) ([\d.]+)\)', text)
    assert len(marks) == N
    assert {shape for shape, _, _ in marks} == {"0", "1", "2"}
    drawn = np.array([[float(x), float(y)] for _, x, y in marks])
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(places(driver), axis=0), atol=0.06)
    assert text.count("<polyline") == 3
    assert "latent dimension 2" in text
    click(driver, "save-png")
    path = downloads / "a-table-of-everything.png"
    wait_for(lambda: path.exists() and path.stat().st_size > 1000)
    from matplotlib.image import imread

    box = driver.find_element(By.ID, "points")
    picture = imread(path)
    assert picture.shape[1] == pytest.approx(2 * box.size["width"], abs=3)
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def shown_rows(driver: Any, column: int) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('#rows-body tr')].map("
        "r => r.children[arguments[0]].textContent)",
        column,
    )
    return found


def heading(driver: Any, name: str) -> tuple[Any, int]:
    heads = driver.find_elements(By.CSS_SELECTOR, "#rows-head th")
    for k, head in enumerate(heads):
        if head.text.rstrip(" ▲▼") == name:
            return head, k
    raise AssertionError(name)


def test_rows_are_sorted_and_searched(visit):
    content = table_of_everything()
    driver = visit(content)
    assert shown_rows(driver, 0) == [f"sample-{i}" for i in range(25)]  # numbers, not letters
    head, column = heading(driver, "height")
    driver.execute_script("arguments[0].firstChild.click()", head)
    assert head.get_attribute("aria-sort") == "ascending"
    heights = content.values[:, 1]
    expected = np.argsort(heights, kind="stable")[:25]
    assert shown_rows(driver, 0) == [f"sample-{i}" for i in expected]
    driver.execute_script("arguments[0].firstChild.click()", head)
    assert head.get_attribute("aria-sort") == "descending"
    seen = np.flatnonzero(~np.isnan(heights))  # missing ones come last both ways
    expected = seen[np.argsort(-heights[seen], kind="stable")][:25]
    assert shown_rows(driver, 0) == [f"sample-{i}" for i in expected]
    for _ in range(3):
        click(driver, "rows-after")
    assert shown_rows(driver, column)[-1] == "–"
    assert text_of(driver, "rows-count") == "76 to 90 of 90 rows"
    assert not driver.find_element(By.ID, "rows-after").is_enabled()
    driver.find_element(By.ID, "rows-search").send_keys("PLUS")
    plus = int((content.categories[0].codes == 1).sum())
    wait_for(lambda: text_of(driver, "rows-count").endswith(f"of {plus} rows"))
    click(driver, "rows-select")
    assert state(driver)["picked"] == np.flatnonzero(content.categories[0].codes == 1).tolist()
    driver.find_element(By.ID, "rows-search").send_keys(Keys.BACK_SPACE * 4 + "nothing like it")
    wait_for(lambda: text_of(driver, "rows-count") == "No matching rows.")


def test_numbers_and_dates_are_found_as_shown(visit):
    values = np.column_stack([np.arange(N) - 44.5, np.arange(N) + 17_000.0, 1 + np.arange(N) / 96])
    times = {"dates": ("day", "time"), "times_of_day": ("time",)}
    driver = visit(three_clouds(N, values=values, feature_names=("x", "day", "time"), **times))
    words = [shown_rows(driver, heading(driver, name)[1])[0] for name in ("x", "day", "time")]
    assert words == ["−44.5", "2016-07-18", "00:00"]
    for wanted in (*words, "-44.5"):
        field = driver.find_element(By.ID, "rows-search")
        field.clear()
        field.send_keys(wanted)
        wait_for(lambda: text_of(driver, "rows-count") == "1 to 1 of 1 row")
        assert shown_rows(driver, 0) == ["sample-0"]


def test_rows_shown_may_be_the_selected_or_emphasised(visit):
    driver = visit(table_of_everything())
    focus_picture(driver)
    for _ in range(2):
        press(driver, Keys.PAGE_DOWN, "s")
    assert state(driver)["picked"] == [0, 1]
    which = Select(driver.find_element(By.ID, "rows-which"))
    which.select_by_value("picked")
    assert shown_rows(driver, 0) == ["sample-0", "sample-1"]
    focus_picture(driver)
    press(driver, Keys.ESCAPE, Keys.ESCAPE)
    assert state(driver)["picked"] == []
    which.select_by_value("emphasised")
    driver.find_element(By.CSS_SELECTOR, "#clusters-legend [data-cluster='1']").click()
    assert text_of(driver, "rows-count") == "1 to 25 of 30 rows"
    driver.find_element(By.CSS_SELECTOR, "#rows-body button").click()
    assert state(driver)["row"] == 1


def test_names_are_kept_in_the_file(visit, downloads):
    driver = visit(table_of_everything())
    field = driver.find_element(By.ID, "rename-1")
    assert not driver.find_element(By.ID, "save-names").is_displayed()
    name = '</script><b>Big & "spenders"'
    field.send_keys(name + Keys.TAB)
    legend = "#clusters-legend [data-cluster='1'] span"
    assert driver.find_element(By.CSS_SELECTOR, legend).text == f"1: {name}"
    hover(driver, 1)
    assert name in driver.find_element(By.ID, "tooltip").text
    click(driver, "save-names")
    page = saved(downloads, "a-table-of-everything-named.html")
    driver.get((downloads / "a-table-of-everything-named.html").as_uri())
    wait_for(lambda: state(driver)["frames"] > 0)
    assert state(driver)["names"] == ["", name, ""]
    assert driver.find_element(By.CSS_SELECTOR, legend).text == f"1: {name}"
    assert driver.execute_script("return document.querySelectorAll('b').length") == 0
    # Saved again, with nothing else changed, it is the same page.
    driver.find_element(By.ID, "rename-2").send_keys("x" + Keys.TAB)
    driver.find_element(By.ID, "rename-2").send_keys(Keys.BACK_SPACE + Keys.TAB)
    (downloads / "a-table-of-everything-named.html").unlink()
    click(driver, "save-names")
    assert saved(downloads, "a-table-of-everything-named.html") == page


def test_names_that_come_with_the_run(visit):
    driver = visit(table_of_everything(cluster_names=["", "plain", ""]))
    assert state(driver)["names"] == ["", "plain", ""]
    assert driver.find_element(By.ID, "card-1").text == "1: plain"


def test_other_dimensions_and_turning(visit):
    content = table_of_everything(Q=4)
    driver = visit(content)
    assert state(driver)["axes"] == [0, 1]
    select = Select(driver.find_element(By.ID, "plane"))
    assert [option.text for option in select.options] == [
        *("1 and 2", "1 and 3", "1 and 4", "2 and 3", "2 and 4", "3 and 4")
    ]
    select.select_by_visible_text("2 and 3")
    next_frame(driver)
    assert state(driver)["axes"] == [1, 2]
    points = places(driver)
    slope = np.polyfit(content.embedding[:, 1], points[:, 0], 1)
    np.testing.assert_allclose(np.polyval(slope, content.embedding[:, 1]), points[:, 0], atol=0.01)
    down = np.polyfit(content.embedding[:, 2], points[:, 1], 1)
    np.testing.assert_allclose(np.polyval(down, content.embedding[:, 2]), points[:, 1], atol=0.01)
    # A quarter turn shows the first dimension where the second was.
    slider = driver.find_element(By.ID, "turn")
    driver.execute_script(
        "arguments[0].value = '90'; arguments[0].dispatchEvent(new Event('input'))", slider
    )
    next_frame(driver)
    assert state(driver)["angle"] == 90
    points = places(driver)
    slope = np.polyfit(content.embedding[:, 0], points[:, 0], 1)
    np.testing.assert_allclose(np.polyval(slope, content.embedding[:, 0]), points[:, 0], atol=0.01)
    hover(driver, 5)
    assert state(driver)["row"] == 5
    click(driver, "turn-play")
    wait_for(lambda: state(driver)["angle"] > 92)
    click(driver, "turn-play")
    angle = state(driver)["angle"]
    time.sleep(0.15)
    assert state(driver)["angle"] == angle


def test_narrow_screens(visit, driver):
    size = {"width": 380, "height": 900, "deviceScaleFactor": 2, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        visit(table_of_everything(Q=4))
        assert not driver.find_element(By.ID, "beside").is_displayed()
        driver.find_element(By.CSS_SELECTOR, "#more-controls summary").click()
        click(driver, "beside")
        Select(driver.find_element(By.ID, "color")).select_by_value("feature:0")
        focus_picture(driver)
        press(driver, Keys.PAGE_DOWN, "s")
        assert driver.find_element(By.ID, "selection").is_displayed()
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 380
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_two_dimensions_have_nothing_to_choose(visit):
    driver = visit(table_of_everything())
    assert not driver.find_element(By.ID, "planes").is_displayed()


def test_distribution_by_cluster(visit):
    content = table_of_everything()
    driver = visit(content)
    figure = driver.find_element(By.ID, "distribution")
    assert not figure.is_displayed()
    color = Select(driver.find_element(By.ID, "color"))
    color.select_by_value("feature:1")
    assert figure.is_displayed()
    titles = driver.execute_script(
        "return [...document.querySelectorAll('#distribution .box title')].map(t => t.textContent)"
    )
    for m, words in enumerate(titles):
        low, middle, high = (float(w) for w in re.findall(r"[\d.]*\d", words.split(":")[1]))
        rows = content.values[content.labels == m, 1]
        expected = np.nanquantile(rows, [0.25, 0.75, 0.5])
        np.testing.assert_allclose([low, middle, high], expected, rtol=1e-3)
    color.select_by_value("category:0")
    bars = driver.execute_script(
        "return [...document.querySelectorAll('#distribution rect')].map("
        "r => [Number(r.getAttribute('y')), Number(r.getAttribute('width'))])"
    )
    widths: dict[float, float] = {}
    for y, width in bars:
        widths[y] = widths.get(y, 0.0) + width
    assert len(widths) == 3
    np.testing.assert_allclose(list(widths.values()), 466, rtol=1e-6)
    codes = content.categories[0].codes[content.labels == 0]
    first = sorted(width for y, width in bars if y == min(widths))
    shares = [float((codes == k).mean()) for k in (-1, 0, 1, 2) if (codes == k).any()]
    np.testing.assert_allclose(first, 466 * np.sort(shares), rtol=1e-6)


CONTRAST = """
const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const e = arguments[0], style = getComputedStyle(e);
let under = e, back = rgb(style.backgroundColor);
while (back.length === 4 && back[3] === 0 && under.parentElement) {
  under = under.parentElement;
  back = rgb(getComputedStyle(under).backgroundColor);
}
const [a, b] = [light(rgb(style.color)), light(back)].sort((x, y) => y - x);
return style.opacity === "1" ? (a + 0.05) / (b + 0.05) : 0;
"""


def test_long_texts_wrap_within_their_column(visit):
    long = " ".join(["a long remark"] * 5)
    driver = visit(three_clouds(texts={"remark": [long] * N}))
    assert driver.execute_script(
        "const cells = [...document.querySelectorAll('.rows td bdi')];"
        "return cells.length > 0 && cells.every((cell) => cell.scrollWidth <= cell.clientWidth + 1)"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_control_is_legible_in_every_state(visit, dark):
    driver = visit(table_of_everything(Q=3))
    if state(driver)["dark"] != dark:
        click(driver, "theme")
    Select(driver.find_element(By.ID, "color")).select_by_value("feature:0")
    controls = driver.find_elements(By.CSS_SELECTOR, "button, select, input, nav a, summary")
    checked = 0
    for control in controls:
        if not control.is_displayed() or control.get_attribute("class") == "row-link":
            continue
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", control)
        resting = driver.execute_script(CONTRAST, control)
        ActionChains(driver, duration=0).move_to_element(control).perform()
        contrasts = {"resting": resting, "hovered": driver.execute_script(CONTRAST, control)}
        pressed = control.get_attribute("aria-pressed")
        if pressed is not None:
            # The other state, under the pointer and not, without what pressing it would do.
            other = "false" if pressed == "true" else "true"
            change = "arguments[0].setAttribute('aria-pressed', arguments[1])"
            driver.execute_script(change, control, other)
            contrasts["other, hovered"] = driver.execute_script(CONTRAST, control)
            ActionChains(driver, duration=0).move_by_offset(0, 60).perform()
            contrasts["other, resting"] = driver.execute_script(CONTRAST, control)
            driver.execute_script(change, control, pressed)
        assert min(contrasts.values()) >= 4.5, (control.get_attribute("outerHTML"), contrasts)
        checked += 1
    assert checked > 30


def test_100_000_rows_stay_fluid(visit):
    n = 100_000
    rng = np.random.default_rng(0)
    content = table_of_everything(
        n,
        categories=(),
        values=np.round(rng.normal(size=(n, 3)), 3),
        principal=(rng.normal(size=(n, 2)), np.array([0.6, 0.3])),
        ids=[f"customer {i}" for i in range(n)],
    )
    driver = visit(content)

    def seconds(script: str) -> float:
        begun = "const begun = performance.now();"
        return driver.execute_script(f"{begun}{script}; return performance.now() - begun") / 1000

    driver.find_element(By.ID, "rows-search").send_keys("customer 99")
    wait_for(lambda: text_of(driver, "rows-count").endswith("of 1,111 rows"))
    click(driver, "tool-box")
    draw_around(driver, [[100, 100], [560, 500]])
    assert len(state(driver)["picked"]) > 1000
    # Times vary with the machine; these are far beyond what one would call fluid.
    assert seconds("document.querySelectorAll('#rows-head button')[2].click()") < 3
    assert seconds("sgpmicReport.draw()") < 1.5
