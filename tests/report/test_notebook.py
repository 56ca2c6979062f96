"""The report's picture in a notebook's cell."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from sklearn.datasets import load_iris
from tests.report.browser import needs_browser, wait_for

from sgpmic import SGPMIC


@pytest.fixture(scope="module")
def model() -> SGPMIC:
    return SGPMIC(3, max_iter=2, random_state=0).fit(load_iris().data)


class Frame(HTMLParser):
    attributes: dict[str, str | None]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "iframe"
        self.attributes = dict(attrs)


def test_the_cell_holds_the_page(model, tmp_path):
    picture = model.plot_interactive(height=500)
    frame = Frame()
    frame.feed(picture._repr_html_())
    assert frame.attributes["srcdoc"] == picture.page
    assert "height:500px" in (frame.attributes["style"] or "")
    picture.save(tmp_path / "picture.html")
    assert (tmp_path / "picture.html").read_text() == picture.page


def test_labels_must_fit(model):
    with pytest.raises(ValueError, match="There are 2 labels for 150 rows"):
        model.plot_interactive(labels=["a", "b"])


@needs_browser
def test_in_a_notebook(model, driver: Any, tmp_path: Path):
    iris = load_iris()
    rows = iris.data[::2]
    picture = model.plot_interactive(
        rows, labels=iris.target_names[iris.target[::2]], names=["one", "two"], height=640
    )
    cell = tmp_path / "notebook.html"
    cell.write_text(f"<!doctype html><p>A cell</p>{picture._repr_html_()}", encoding="utf-8")
    driver.get(cell.as_uri())
    driver.switch_to.frame(driver.find_element(By.TAG_NAME, "iframe"))
    try:
        wait_for(lambda: driver.execute_script("return typeof sgpmicReport === 'object'"))
        state = wait_for(lambda: driver.execute_script("return sgpmicReport.state()"))
        assert state["n"] == 75
        assert state["names"] == ["one", "two", ""]
        assert driver.find_element(By.ID, "canvas-box").is_displayed()
        shown = [
            section.is_displayed() for section in driver.find_elements(By.CSS_SELECTOR, "main > *")
        ]
        assert shown[0]
        page = "document.documentElement"
        assert driver.execute_script(f"return {page}.scrollHeight <= {page}.clientHeight")
        assert not any(shown[1:])
        places = np.array(
            driver.execute_script("return [...Array(75).keys()].map(sgpmicReport.place)")
        )
        assert np.corrcoef(places[:, 0], model.transform(rows)[:, 0])[0, 1] > 0.9999
        options = [option.text for option in driver.find_elements(By.CSS_SELECTOR, "#color option")]
        assert "label" in options
    finally:
        driver.switch_to.default_content()
    assert driver.get_log("browser") == []
