"""What a reader does with the page: filters, links, rows side by side, choice of columns, tables and pictures taken out."""
from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.logbook import Logbook

pytestmark = pytest.mark.browser

ROW = {"state": "measured", "size_label": "bloom-1B", "dp": 2, "tp": 1, "pp": 2, "mbs": 1, "gbs": 8, "seq": 1024, "layers": 24,
       "hidden": 1024, "sec_per_it": 2.0, "tflops": 30.0, "date": "2024-05-01"}
ALL = ["1", "2", "4", "8"]
"""TP of the rows of the first model."""
LONG = "a rank left the others behind " * 200
SAVED = """
    window.saved = [];
    URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return 'data:,'; };
    HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };"""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view") / "book"
    losses = [{"step": n, "sec": 2.0 + n % 3 / 10, "loss": 9.0 - n} for n in range(1, 7)]
    with Logbook(folder, create=True) as logbook:
        logbook.append({**ROW, "iterations": losses, "mfu": 0.41, "tokens_per_s": 4096.0, "gpus": 4})
        logbook.append({**ROW, "tp": 2, "dp": 1, "sec_per_it": 1.5, "tflops": 40.0, "notes": "=HYPERLINK(1)",
                        "env": {"A": "1"}})
        logbook.append({**ROW, "tp": 4, "dp": 1, "sec_per_it": 4.0, "tflops": 15.0, "env": {"A": "2"}})
        for day, torch, sec in ((3, "2.6", 3.0), (1, "2.4", 3.3), (2, "2.5", 3.6)):
            logbook.append({**ROW, "size_label": "other", "sec_per_it": sec, "date": f"2024-06-0{day}", "run_id": "abc",
                            "tp": 16, "versions": {"torch": torch, "python": "3.12"}, "session": f"s{day}"})
        logbook.append({**ROW, "tp": 8, "state": "failed", "sec_per_it": None, "tflops": None,
                        "outcome": {"status": "oom_device", "message": LONG}})
    return folder


@pytest.fixture(scope="module")
def page(book: Path, made: Callable[..., Path]) -> str:
    return made(book, "--tokens", "1B", "--price", "2").as_uri()


def shown(browser: Any, text: str) -> list[str]:
    browser.type("#filter", f"-size:other {text}")
    return browser.column("tp")


def said(browser: Any) -> str:
    return browser.js("return document.getElementById('filter-said').textContent")


@pytest.mark.parametrize(("text", "rows"), [
    ("oom", ["8"]), ("bloom", ALL), ("loom", []), ("*loom", ALL), ("blo*", ALL),
    ("tp>=4", ["4", "8"]), ("status:oom", ["8"]), ("tp:4 sec<5", ["4"]), ("-tp:4 -oom", ["1", "2"]), ("sec=", ["8"]),
    ("env:A=2", ["4"]), ('"A=2"', ["4"]), ("notes~link", ["2"]), ("mfu>0.4", ["1"]), ("zero_stage=3", []), ("tp>=", ALL),
])  # fmt: skip
def test_a_filter_is_whole_words_fields_and_comparisons(browser: Any, page: str, text: str, rows: list[str]) -> None:
    if browser.js("return location.href.split('#')[0]") != page:
        browser.open(page)
    assert shown(browser, text) == rows


def test_a_field_that_is_none_is_said_with_the_nearest(browser: Any, page: str) -> None:
    browser.open(page)
    assert shown(browser, "tpp>=4") == [] and "no field “tpp” (nearest: tp)" in said(browser)
    assert shown(browser, "tp>=many") == [] and "tp is a number" in said(browser)
    assert shown(browser, "zero_stage=1") == [] and "no row says" in said(browser)
    assert shown(browser, "constructor=1 __proto__=2") == [] and "no field “constructor”" in said(browser)
    assert shown(browser, "tp=4") == ["4"] and said(browser) == ""
    assert browser.errors() == []


def test_an_address_opens_the_view_it_was_taken_from_and_back_goes_back(browser: Any, page: str) -> None:
    browser.open(page)
    browser.type("#filter", "tp<=4")
    browser.click("th[data-column=sec] button")
    browser.js("const tp = document.querySelector('#columns-in [data-name=gbs]'); tp.click()")
    browser.js("document.querySelectorAll('.pick')[0].click(); document.querySelectorAll('.pick')[2].click()")
    browser.js("document.querySelector('#grid-body tr[data-row]').click()")
    browser.until("return document.querySelector('#row dl')", "the record is shown")
    link, title = browser.driver.current_url, browser.js("return document.getElementById('row-title').textContent")
    browser.driver.back()
    browser.until("return !document.getElementById('row').open", "back closes the row")
    browser.driver.forward()
    browser.until("return document.getElementById('row').open", "and forward opens it")
    browser.driver.get("about:blank")
    browser.open(link)
    browser.until("return document.getElementById('row').open", "the row of the link")
    assert browser.js("return document.getElementById('row-title').textContent") == title
    browser.click("#row-close")
    assert browser.js("return document.getElementById('filter').value") == "tp<=4"
    assert browser.column("sec") == ["1.5", "2", "4"]
    assert not browser.js("return document.querySelector('th[data-column=gbs]')")
    assert browser.js("return document.querySelectorAll('.pick:checked').length") == 2
    browser.driver.get("about:blank")
    browser.open(f"{page}#nowhere?sort=constructor&cols=%3Cimg%3E&rows=../x,0&open=%3Cscript%3E&x=__proto__&by=toString")
    assert browser.errors() == [] and len(browser.column("tp")) == 7, "a link is believed as little as a record"


def test_rows_stand_side_by_side_with_their_differences_marked(browser: Any, page: str) -> None:
    browser.open(page)
    for n in (0, 1, 2):
        browser.js("document.querySelectorAll('.pick')[arguments[0]].click()", n)
    browser.click("#compare")
    browser.until("return document.querySelector('#beside')", "the rows side by side")
    marked = browser.js("return Object.fromEntries([...document.querySelectorAll('#beside tr.differs')].map((tr) => "
                        "[tr.children[0].textContent, [...tr.children].slice(1).map((td) => td.textContent)]))")
    assert marked["Tensor parallel (TP)"] == ["1", "2", "4"] and marked["Sec/it"] == ["2", "1.5 −25.0 %", "4 +100.0 %"]
    assert marked["A"] == ["", "1", "2"] and "Global batch (GBS)" not in marked
    browser.click("#differing")
    assert browser.js("return [...document.querySelectorAll('#beside tr.same')].every((tr) => !tr.offsetHeight)")
    assert browser.js("return location.hash").endswith("open=compare")
    browser.js(SAVED)
    browser.click("#row .save-csv")
    lines = list(csv.reader(io.StringIO(browser.until("return window.saved[0]", "its CSV"))))
    assert [line for line in lines if line[0] == "Sec/it"] == [["Sec/it", "2", "1.5", "4"]]
    assert browser.errors() == []


def test_the_table_is_saved_as_it_is_shown_and_no_cell_is_a_formula(browser: Any, page: str) -> None:
    browser.open(page)
    browser.js(SAVED)
    browser.type("#filter", "tp<=2")
    browser.click("th[data-column=sec] button")
    browser.click(".filters .save-csv")
    text = browser.until("return window.saved[0]", "the CSV")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["tp"], row["sec_per_it"], row["notes"]) for row in rows] == [("2", "1.5", "'=HYPERLINK(1)"), ("1", "2", "")]
    assert browser.js("return window.savedAs") == "Trials-of-book-rows.csv"


def test_every_picture_says_its_values_and_can_be_saved(browser: Any, page: str) -> None:
    browser.open(page)
    browser.js("return openRow(0)")
    browser.until("return document.querySelectorAll('#row svg.chart').length >= 2", "the pictures of a row")
    names = browser.js("return [...document.querySelectorAll('#row h3')].map((h) => h.textContent)")
    assert "Loss" in names
    pictures = browser.js("""
        return [...document.querySelectorAll('.picture')].map((holder) => {
            const svg = holder.querySelector('svg'), tip = document.getElementById('tip');
            tip.textContent = '';
            for (const node of svg.querySelectorAll('circle, rect, g')) {
                const at = node.getBoundingClientRect();
                const middle = { clientX: at.x + at.width / 2, clientY: at.y + at.height / 2 };
                node.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, ...middle }));
            }
            if (holder.classList.contains('scatter')) {
                const box = svg.getBoundingClientRect(), [x, y] = S.points[0];
                svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + x, clientY: box.top + y }));
            }
            return [svg.getAttribute('aria-label'), tip.textContent, standalone(svg)];
        })""")
    assert len(pictures) >= 6
    for name, tip, svg in pictures:
        assert any(letter.isdigit() for letter in tip), f"{name} says nothing"
        tree = ElementTree.fromstring(svg)
        drawn = [node for node in tree.iter() if node.tag.split("}")[1] in ("circle", "rect", "path", "text")]
        assert drawn and all("var(" not in str(node.attrib) and "class" not in node.attrib for node in drawn), name
    browser.js(SAVED)
    browser.js("document.querySelector('#row .save-svg').click()")
    assert browser.until("return window.saved[0]", "the SVG").startswith("<svg")


def test_a_scatter_of_any_two_figures_opens_the_row_under_the_pointer(browser: Any, page: str) -> None:
    browser.open(page)
    choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    for key, name in (("scatter-x", "tp"), ("scatter-y", "sec"), ("scatter-by", "env")):
        browser.js(choose, key, name)
    assert "#?x=tp&y=sec" in browser.js("return location.href")
    assert browser.js("return S.points.length") == 6, "a row without seconds is no point"
    browser.js("""
        const svg = document.querySelector('#scatter svg.chart'), box = svg.getBoundingClientRect(), [x, y] = S.points[2];
        svg.dispatchEvent(new MouseEvent('click', { clientX: box.left + x, clientY: box.top + y }))""")
    browser.until("return document.getElementById('row').open && document.querySelector('#row dl')", "the row")
    assert "TP 4" in browser.js("return document.getElementById('row-title').textContent")
    browser.click("#row-close")
    browser.type("#filter", "tp=2")
    browser.until("return S.points.length === 1", "the scatter follows the filter")


def test_layouts_rates_and_what_was_worked_out_are_named(browser: Any, page: str) -> None:
    browser.open(page)
    browser.type("#filter", "-size:other")
    assert browser.column("mfu") == ["41.0 %", "", "", ""]
    assert browser.column("tokens") == ["1,024", "1,365", "256", ""]
    assert browser.column("world") == ["4", "4*", "8*", "32*"]
    assert "counted from DP x TP x PP" in browser.js("return document.getElementById('table').textContent")
    assert "DP × TP × PP" in browser.js("return document.querySelector('#time .legend').textContent")
    price = browser.js("return document.querySelector('.hero .tile:nth-child(2)').textContent")
    assert "device-hours*" in price and "* devices counted from DP x TP x PP" in price
    options = browser.js("return [...document.querySelectorAll('#question option')].map((o) => o.textContent)")
    assert any("8 processes*" in option for option in options)


def test_one_trial_over_versions_stands_in_its_rows(browser: Any, page: str) -> None:
    browser.open(page)
    browser.js("return openRow(3)")
    lines = browser.js("return [...document.querySelectorAll('#history tbody tr')].map((tr) => "
                       "[...tr.children].map((td) => td.textContent))")
    assert lines == [["2024-06-01", "s1", "3.3", "+10.0 %", "torch 2.4"], ["2024-06-02", "s2", "3.6", "+20.0 %", "torch 2.5"],
                     ["2024-06-03", "s3", "3", "", "torch 2.6"]]
    assert browser.js("return document.querySelectorAll('#row svg[aria-label*=\"over time\"] g').length") == 3
    browser.js("return openRow(0)")
    assert not browser.js("return document.getElementById('history')"), "measured once"


def test_a_very_long_message_is_folded(browser: Any, page: str) -> None:
    browser.open(page)
    card = browser.js("return document.querySelector('#failures .card').getBoundingClientRect().height")
    assert card < 300 and browser.js("return document.querySelector('#failures details.fold pre').textContent") == LONG
    browser.js("return openRow(6)")
    assert browser.js("return document.querySelector('#row details.fold pre').textContent") == LONG


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_what_opens_stays_on_the_screen(browser: Any, page: str, width: int) -> None:
    browser.open(page, width=width, height=844)
    browser.js("document.getElementById('table').scrollIntoView()")
    browser.click("#columns summary")
    box = browser.js("return document.getElementById('columns-in').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0 and box["right"] <= width and box["height"] > 50
    browser.js("document.querySelectorAll('.pick')[0].click(); document.querySelectorAll('.pick')[1].click()")
    assert not browser.js("return document.getElementById('columns').open"), "a click elsewhere closes it"
    browser.js("return openCompare()")
    assert browser.js("return document.getElementById('row').getBoundingClientRect().right") <= width
    assert browser.js("return document.documentElement.scrollWidth") <= width
    cut = """
        const right = (node) => node.getBoundingClientRect().right;
        return [...document.querySelectorAll('#grid-body .badge')].filter((b) => right(b) > right(b.parentElement)).length"""
    assert browser.js(cut) == 0, "no state is cut off"
