"""The documentation as a site: it builds, and works from disk with no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin, urlparse

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; whatever MkDocs warns of is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    configuration = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    configuration.plugins.on_startup(command="build", dirty=False)
    build(configuration)
    return folder


def pages_of(site: Path) -> dict[Path, str]:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 10
    return pages


def test_formulas_are_drawn(site: Path) -> None:
    page = (site / "mathematics.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert "arithmatex" not in page, "a formula was not drawn"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page, text in pages_of(site).items():
        loaded = re.findall(
            r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]+|'
            r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//[^"]+',
            text,
        )
        assert not loaded, (page.name, loaded)


def test_no_link_of_the_site_is_dead(site: Path) -> None:
    """Every file and anchor that a page names, those of menus and of the reference included."""
    pages = pages_of(site)
    anchors = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', pages[page])) for page in pages}
    dead = []
    for page, text in pages.items():
        if page.name == "404.html":  # its addresses start at the root of a server
            continue
        for link in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            address, anchor = urldefrag(urljoin(page.as_uri(), link.replace("&amp;", "&")))
            if not address.startswith("file:"):
                continue
            target = Path(urlparse(address).path)
            if not target.exists() or (anchor and anchor not in anchors[target]):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert not dead


# ------------------------------------------------------------------------------- browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1280,900"),
)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not (CHROMIUM and CHROMEDRIVER):
        pytest.skip("needs chromium and chromedriver on the path")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(CHROMEDRIVER, env=os.environ | {"HOME": profile})
        browser = webdriver.Chrome(options=options, service=service)
        yield browser
        browser.quit()


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def requested(driver: Any) -> set[str]:
    """Return the addresses that the browser has asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }


def test_search_works_from_disk(site: Path, driver: Any) -> None:
    driver.get((site / "howto" / "gpu.html").as_uri())
    field = driver.find_element("css selector", "input[name=query]")
    field.click()
    field.send_keys("responsibilities")
    found = wait_for(lambda: driver.find_elements("css selector", "a.md-search-result__link"))
    files = {Path(urlparse(link.get_attribute("href")).path) for link in found}
    assert site / "mathematics.html" in files
    assert all(file.is_file() for file in files)
    assert len(files) < len(list(site.rglob("*.html"))) / 2, "a word that is on few pages"

    # The best is a page that has the word; going there works too.
    driver.get(found[0].get_attribute("href"))
    assert "responsibilities" in driver.find_element("tag name", "article").text.lower()
    # What the browser's own first page asks for is not ours.
    addresses = {address for address in requested(driver) if not address.startswith("chrome:")}
    assert any(address.endswith("search_index.js") for address in addresses)
    assert {urlparse(address).scheme for address in addresses} <= {"file", "data"}
    assert driver.get_log("browser") == []


# Text whose contrast with what lies behind it is below what WCAG 2 asks for (level AA).
FAINT = """
const rgb = (words) => [...words.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
const over = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]);
const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
const luminance = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
const behind = (element) => {
  const own = rgb(getComputedStyle(element).backgroundColor);
  if (own[3] === 1) return own.slice(0, 3);
  return over(own, element.parentElement ? behind(element.parentElement) : [255, 255, 255]);
};
const faint = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode, element = text.parentElement;
  const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  if (!text.data.trim() || !seen || element.closest("script, style, svg, math")) continue;
  const style = getComputedStyle(element), back = behind(element);
  const both = [luminance(over(rgb(style.color), back)), luminance(back)];
  const [low, high] = both.sort((a, b) => a - b);
  const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
  if ((high + 0.05) / (low + 0.05) < least) faint.add(`${element.tagName} ${text.data.trim()}`);
}
return [document.body.dataset.mdColorScheme, document.documentElement.scrollWidth, [...faint]];
"""


@pytest.mark.parametrize(("media", "scheme"), [("light", "default"), ("dark", "slate")])
def test_pages_can_be_read_on_a_phone(site: Path, driver: Any, media: str, scheme: str) -> None:
    """No page is wider than the screen, and no text too faint."""
    wish = {"name": "prefers-color-scheme", "value": media}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get((site / "index.html").as_uri())
    driver.execute_script("localStorage.clear()")  # where the other scheme was remembered
    for page in (
        "index",
        "parameters",
        "mathematics",
        "tutorial",
        "howto/tables",
        "gallery/digits",
    ):
        driver.get((site / f"{page}.html").as_uri())
        found, width, faint = driver.execute_script(FAINT)
        assert found == scheme
        assert width <= 390, page
        assert not faint, page
