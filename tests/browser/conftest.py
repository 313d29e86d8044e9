"""A real browser for the report: Debian's Chromium without a window, with what it said and whom it asked."""
from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
ROWS = REPOSITORY / "examples" / "rows.csv"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --force-prefers-reduced-motion"
).split()


class Browser:
    """What the tests ask of a browser; waits end with the reason."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.size(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what an earlier page left
        self.driver.get(url)
        self.until("return document.documentElement.dataset.drawn === 'yes'", "the page is drawn")

    def size(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def js(self, script: str, *args: object) -> Any:
        return self.driver.execute_script(script, *args)

    def until(self, script: str, what: str, *args: object, timeout_s: float = 60.0) -> Any:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            found = self.js(script, *args)
            if found:
                return found
            time.sleep(0.03)
        raise AssertionError(f"not within {timeout_s} s: {what}")

    def errors(self) -> list[str]:
        """Console messages since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, but for what stands in the page itself."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def type(self, selector: str, text: str) -> None:
        field = self.driver.find_element("css selector", selector)
        field.clear()
        field.send_keys(text)

    def column(self, name: str) -> list[str]:
        """Texts of one column, of the rows that are in the document."""
        return self.js("""
            const at = [...document.querySelectorAll('#grid-head th')].findIndex((th) => th.dataset.column === arguments[0]);
            return [...document.querySelectorAll('#grid-body tr[data-row]')].map((tr) => tr.children[at].textContent);
        """, name)


# Of a module and not of the session: the tests that come after these need the memory.
@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from selenium.common.exceptions import WebDriverException

    for left in (2, 1, 0):
        try:
            driver = started(tmp_path_factory.mktemp("profile"))
            break
        except WebDriverException:
            # On a crowded machine its driver gives up before Chromium has come up.
            if not left:
                raise
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def started(profile: Path) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))


@pytest.fixture(scope="session")
def a100_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of the A100 log out of the collection of rows."""
    with ROWS.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if row["machine"] == "jz-a100"]
        header = list(reader.fieldnames or ())
    path = tmp_path_factory.mktemp("a100") / "a100.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
    assert len(rows) > 100
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`made("book", "--cluster", "jz-a100")`: the page that the command writes."""
    from seatrial.cli import main

    def write(*arguments: object) -> Path:
        out = tmp_path_factory.mktemp("page") / "report.html"
        assert main(["report", *map(str, arguments), "-o", str(out)]) == 0
        return out

    return write
