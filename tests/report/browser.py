"""A real browser that opens reports from disk, with no network."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.test_content import make_content, memberships_of

from sgpmic.report import RunContent, render_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver on the path"
)

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1300,1000"),
    "--force-device-scale-factor=1",
)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    # A folder of its own: two browsers cannot share one, nor tests each other's state.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(CHROMEDRIVER, env=os.environ | {"HOME": profile})
        browser = webdriver.Chrome(options=options, service=service)
        browser.set_script_timeout(60)
        yield browser
        browser.quit()


@pytest.fixture
def visit(driver: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a report from disk; afterwards the console must be empty and no script have run."""

    def open_report(content: RunContent) -> Any:
        path = tmp_path / "report.html"
        path.write_text(render_report(content), encoding="utf-8")
        driver.get(path.as_uri())
        wait_for(lambda: state(driver)["frames"] > 0)
        return driver

    yield open_report
    assert driver.get_log("browser") == []
    assert driver.execute_script("return typeof window.__pwned") == "undefined"


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def state(driver: Any) -> dict[str, Any]:
    found: dict[str, Any] = driver.execute_script("return sgpmicReport.state()")
    return found


def next_frame(driver: Any) -> None:
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def three_clouds(n: int = 90, **more: Any) -> RunContent:
    """Three clusters far apart, so that it is clear what is where."""
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 4.0]])
    labels = np.arange(n) % 3
    embedding = means[labels] + 0.5 * rng.normal(size=(n, 2))
    fields: dict[str, Any] = {
        "values": np.stack([labels + 0.25, np.arange(n) / 7, rng.normal(size=n)], axis=1),
        "embedding": embedding,
        "memberships": memberships_of(labels, 0.04),
        "means": means,
        "covariances": np.tile(0.25 * np.eye(2), (3, 1, 1)),
        "weights": np.full(3, 1 / 3),
        "ids": [f"sample-{i}" for i in range(n)],
        "given_labels": [("red", "green")[i % 2] for i in range(n)],
        "label_name": "tint",
    }
    return make_content(n=n, **(fields | more))


def _actions(driver: Any) -> Any:
    # Imported here: other tests of this folder run without a browser, and without selenium.
    from selenium.webdriver.common.action_chains import ActionChains

    return ActionChains(driver, duration=0)


def hover(driver: Any, row: int) -> None:
    """Put the mouse on a row's mark."""
    box = driver.find_element("id", "canvas-box")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    x, y = driver.execute_script("return sgpmicReport.place(arguments[0])", row)
    width, height = box.size["width"], box.size["height"]
    shift = (round(x + 1 - width / 2), round(y + 1 - height / 2))
    _actions(driver).move_to_element_with_offset(box, *shift).perform()


def text_of(driver: Any, name: str) -> str:
    return str(driver.find_element("id", name).text)


def press(driver: Any, *keys: str) -> None:
    _actions(driver).send_keys(*keys).perform()


def focus_picture(driver: Any) -> None:
    driver.execute_script("document.getElementById('canvas-box').focus()")
