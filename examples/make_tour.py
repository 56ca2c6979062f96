"""Record the README's tour: a fit in a terminal, then its report in a browser.

``make tour`` writes docs/images/tour.webp and docs/images/report.png. Everything shown is a real
run: the terminal's output is recorded as it comes, and the report is the one that the run wrote.
Pauses are shortened. Chromium and chromedriver must be on the PATH.
"""

import html
import io
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyte
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from customers import make_customers

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, HEIGHT = 1200, 760
COLUMNS, LINES = 104, 31

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    f"--window-size={WIDTH},{HEIGHT + 143}",
)
COLORS = {
    **{"default": "#d8dee9", "black": "#3b4252", "red": "#e06c75", "green": "#98c379"},
    **{"brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2"},
    **{"white": "#eceff4", "brightblack": "#8b95a7"},
}


class Film:
    """Frames and their durations in milliseconds."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def shoot(self, seconds: float, words: str = "") -> None:
        """Add a screenshot of the browser, with a caption below."""
        self.browser.execute_script(_CAPTION, words)
        picture = Image.open(io.BytesIO(self.browser.get_screenshot_as_png())).convert("RGB")
        self.frames.append(picture.crop((0, 0, WIDTH, HEIGHT)))
        self.durations.append(round(1000 * seconds))

    def save(self, path: Path) -> None:
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.durations,
            loop=0,
            quality=60,
            method=4,
        )
        seconds = sum(self.durations) / 1000
        print(f"{path}: {len(self.frames)} frames, {seconds:.0f} s, {path.stat().st_size:,} bytes")


_CAPTION = """
let bar = document.getElementById("tour-caption");
if (!bar) {
  bar = document.createElement("div");
  bar.id = "tour-caption";
  bar.style = "position:fixed;left:0;right:0;bottom:0;padding:14px 28px;background:#0b3d66;" +
    "color:#fff;font:600 20px system-ui,sans-serif;z-index:99";
  document.body.append(bar);
}
bar.textContent = arguments[0];
bar.hidden = !arguments[0];
"""


def open_browser(profile: str) -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


# ---------------------------------------------------------------------------------- the terminal


def terminal_page(screen: pyte.Screen, typed: str = "") -> str:
    """Render the terminal's screen as an HTML page."""
    lines = []
    for y in range(screen.lines):
        spans = []
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            color = COLORS.get(cell.fg, "#" + cell.fg if len(cell.fg) == 6 else "#d8dee9")
            weight = "600" if cell.bold else "400"
            text = html.escape(cell.data)
            spans.append(f'<span style="color:{color};font-weight:{weight}">{text}</span>')
        lines.append("".join(spans).rstrip())
    return (
        '<!doctype html><meta charset="utf-8"><body style="margin:0;background:#20252e">'
        '<pre style="margin:22px 28px;font:15px/1.43 DejaVu Sans Mono,monospace;color:#d8dee9">'
        + "\n".join(lines)
        + "</pre></body>"
    )


def show_terminal(film: Film, screen: pyte.Screen, seconds: float, words: str) -> None:
    page = Path(tempfile.gettempdir()) / "sgpmic-tour-terminal.html"
    page.write_text(terminal_page(screen), encoding="utf-8")
    film.browser.get(page.as_uri())
    film.shoot(seconds, words)


def play(film: Film, screen: pyte.Screen, command: Sequence[str], folder: Path, words: str) -> None:
    """Type a command, run it in a pseudoterminal, and record its output."""
    stream = pyte.ByteStream(screen)
    line = " ".join(command)
    for end in (0, len(line) // 2, len(line)):
        stream.feed(f"\r\x1b[K\x1b[32m$\x1b[0m {line[:end]}".encode())
        show_terminal(film, screen, 0.5, words)
    stream.feed(b"\r\n")
    ours, theirs = pty.openpty()
    environment = os.environ | {
        **{"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    running = subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    before, filmed = "", time.monotonic()
    while True:
        ready = select.select([ours], [], [], 0.2)[0]
        if ready:
            try:
                stream.feed(os.read(ours, 65536))
            except OSError:  # the process has closed its end
                break
        elif running.poll() is not None:
            break
        now = "\n".join(screen.display)
        if now != before and time.monotonic() - filmed > 1.2:
            show_terminal(film, screen, 0.35, words)
            before, filmed = now, time.monotonic()
    if running.wait():
        raise SystemExit(f"{line} ended with {running.returncode}:\n" + "\n".join(screen.display))
    show_terminal(film, screen, 3.0, words)


# ------------------------------------------------------------------------------------ the report


def scroll_to(browser: Any, name: str, above: int = 14) -> None:
    browser.execute_script(
        "window.scrollTo(0, document.getElementById(arguments[0]).getBoundingClientRect().top"
        " + scrollY - arguments[1])",
        name,
        above,
    )
    time.sleep(0.4)


def lasso(film: Film, words: str) -> None:
    """Lasso the rows of cluster 1, slowly enough to be seen."""
    browser = film.browser
    browser.find_element(By.ID, "tool-lasso").click()
    box = browser.find_element(By.ID, "canvas-box")
    rows = browser.execute_script(
        "return [...Array(sgpmicReport.state().n).keys()]"
        ".filter(i => sgpmicReport.colorOf(i)[0] > 200).map(sgpmicReport.place)"
    )
    left, right = min(x for x, _ in rows) - 12, max(x for x, _ in rows) + 12
    top, bottom = min(y for _, y in rows) - 12, max(y for _, y in rows) + 12
    middle_x, middle_y = box.size["width"] / 2, box.size["height"] / 2
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    chain = ActionChains(browser, duration=100)
    for k, (x, y) in enumerate(corners):
        chain.move_to_element_with_offset(box, round(x - middle_x), round(y - middle_y))
        if k == 0:
            chain.click_and_hold()
    chain.perform()
    film.shoot(1.5, words)
    ActionChains(browser).release().perform()
    time.sleep(0.4)
    film.shoot(2.5, words)


def walk_through(film: Film, report: Path) -> None:
    browser = film.browser
    browser.get(report.as_uri())
    time.sleep(1.0)
    film.shoot(7, "The report is one file. It begins with what the data support.")
    scroll_to(browser, "latent")
    browser.execute_script("document.getElementById('tour-caption').hidden = true")
    browser.save_screenshot(str(IMAGES / "report.png"))
    film.shoot(6, "Every mark is a customer. Rows that are alike lie close together.")
    scroll_to(browser, "canvas-box", 60)
    row = browser.find_element(By.CSS_SELECTOR, ".card .row-link").get_attribute("data-row")
    place = browser.execute_script("return sgpmicReport.place(Number(arguments[0]))", row)
    box = browser.find_element(By.ID, "canvas-box")
    offset = [round(place[0] - box.size["width"] / 2 + 1), round(place[1] - box.size["height"] / 2)]
    ActionChains(browser).move_to_element_with_offset(box, *offset).perform()
    film.shoot(5, "Point at one to see its values and memberships.")
    lasso(film, "Draw around rows to select them …")
    scroll_to(browser, "selection", 330)
    film.shoot(7, "… see what sets them apart from the rest, and save them as CSV.")
    browser.find_element(By.ID, "selection-clear").click()
    browser.find_element(By.ID, "tool-pan").click()
    Select(browser.find_element(By.ID, "color")).select_by_visible_text("income")
    scroll_to(browser, "clusters-legend", 60)
    film.shoot(6, "Color by any column; below, its distribution in every cluster.")
    browser.find_element(By.ID, "beside").click()
    time.sleep(0.5)
    film.shoot(6, "The same rows on their principal components, side by side.")
    browser.find_element(By.ID, "beside").click()
    Select(browser.find_element(By.ID, "color")).select_by_value("cluster")
    scroll_to(browser, "clusters")
    film.shoot(6, "What sets each cluster apart, numbers and categories alike.")
    field = browser.find_element(By.CSS_SELECTOR, "[data-rename='0']")
    field.send_keys("Loyal shoppers")
    browser.execute_script("arguments[0].blur()", field)
    film.shoot(5, "Give it a name; the page can be saved with it.")
    head = browser.find_elements(By.CSS_SELECTOR, "#rows-head button")[2]
    browser.execute_script("arguments[0].click()", head)
    scroll_to(browser, "rows-title")
    film.shoot(6, "All rows, sorted by how sure the model is: the doubtful ones first.")
    browser.find_element(By.ID, "theme").click()
    scroll_to(browser, "latent")
    film.shoot(4, "Dark, if you like. No network, no server, no account.")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, _ = make_customers(600)
        table.to_csv(Path(folder) / "customers.csv", index=False)
        browser = open_browser(f"{folder}/profile")
        film = Film(browser)
        screen = pyte.Screen(COLUMNS, LINES)
        screen.set_mode(pyte.modes.LNM)
        shown = Path(folder)
        play(film, screen, ["head", "-5", "customers.csv"], shown, "A table as people have it.")
        fit = [
            "sgpmic",
            "fit",
            "customers.csv",
            "-k",
            "auto",
            "--id",
            "customer_id",
            "--out",
            "run",
        ]
        play(film, screen, fit, shown, "One command. It says how every column is encoded.")
        film.durations[-1] = 6000
        walk_through(film, shown / "run" / "report.html")
        browser.quit()
        film.save(IMAGES / "tour.webp")


if __name__ == "__main__":
    main()
