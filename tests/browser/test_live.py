"""The live page in a real browser: rows as they are recorded, what is running, the planner asked, and nobody else let in."""
from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sweeps
from seatrial.columns import SEARCHED
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.launch.local import Local
from seatrial.logbook import Logbook
from seatrial.report import page, serve
from seatrial.report.serve import Server, Source
from seatrial.sweep.controller import Controller
from seatrial.sweep.file import build
from seatrial.sweep.progress import Lines
from seatrial.sweep.store import Store

pytestmark = pytest.mark.browser

ROW = {"state": "measured", "size_label": "1B", "dp": 2, "tp": 2, "pp": 2, "mbs": 1, "gbs": 64, "sec_per_it": 3.0,
       "tflops": 9.0, "nodes": 1, "gpus": 8, "machine": "here", "seq": 1024}
SHOWN_S = 2.0


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Logbook]:
    with Logbook(tmp_path / "book", create=True) as logbook:
        logbook.append(ROW)
        yield logbook


@contextlib.contextmanager
def serving(book: Logbook) -> Iterator[Server]:
    source = Source(book.path, title="Live")
    running = Server(("127.0.0.1", 0), source)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        thread.join()
        running.server_close()
        source.close()


@pytest.fixture
def server(book: Logbook) -> Iterator[Server]:
    with serving(book) as running:
        yield running


def test_a_new_row_is_shown_within_two_seconds_of_its_record(browser: Any, server: Server, book: Logbook) -> None:
    browser.open(server.address)
    assert len(browser.column("dp")) == 1
    took_s = []
    for n in range(2, 5):
        book.append({**ROW, "dp": 2**n, "sec_per_it": 3.0 / n, "notes": f"<b>{n}</b>"})
        began = time.monotonic()
        browser.until("return document.querySelectorAll('#grid-body tr[data-row]').length === arguments[0]", "the row", n)
        took_s.append(time.monotonic() - began)
    assert statistics.median(took_s) < SHOWN_S
    assert "DP 16" in browser.js("return document.querySelector('.tile.first').textContent"), "the answer follows"
    assert browser.column("notes")[-1] == "<b>4</b>"
    browser.js("document.querySelectorAll('#grid-body tr[data-row]')[3].click()")
    browser.until("return document.querySelector('#row dl')", "the record is shown")
    assert browser.errors() == []
    assert all(url.startswith(f"http://127.0.0.1:{server.guard.port}/") for url in browser.requests())
    browser.driver.get("about:blank")


def test_a_running_trial_shows_its_phase_its_line_and_the_time_left(browser: Any, server: Server, book: Logbook) -> None:
    run = book.path / "runs" / "first" / "abc123"
    (run / "logs").mkdir(parents=True)
    trial = {"model": {"name": "tiny"}, "topology": {"dp": 2, "pp": 2}, "batch": {"gbs": 16}}
    (run / "run.json").write_text(json.dumps({"trial": trial, "training": {"steps": 10}}))
    (run / "logs" / "rank0.log").write_text("started\n iteration 4/ 10 | <i>lm loss</i>: 2.5\n")
    events = [{"event": "iteration", "step": n + 1, "sec": 2.0} for n in range(4)]
    (run / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    for rank in range(2):
        beat = Heartbeat(run, rank)
        beat.beat(step=5 - rank, phase="backward", microbatch=1)
        beat.close()
    browser.open(server.address)
    browser.until("return document.querySelector('#running .card')", "the running trial")
    text = browser.js("return document.getElementById('running').textContent")
    assert "backward on rank 1" in text and "step 4 of 10" in text and "about 0:12 left" in text and "heartbeat" in text
    assert "iteration 4/ 10 | <i>lm loss</i>: 2.5" in text
    (run / "record.json").write_text("{}")
    browser.until("return !document.querySelector('#running .card')", "the trial has ended")
    browser.driver.get("about:blank")


def slow_sweep(book: Path) -> None:
    sweep = build({"name": "slowly", "model": "tiny", "batch": {"gbs": 8}, "axes": {"tp": [1, 2, 4, 3, 8]}, "budget_s": 600,
                   "environment": {"variables": {"STUB_SLEEP_S": "2.5"}}, "command": sweeps.stub("slow")})
    with Logbook(book) as writer:
        Controller(sweep, Store(writer, "slowly"), Local(), Lines(io.StringIO())).run()


def test_a_whole_sweep_shows_how_far_it_is_the_time_left_and_its_budget(browser: Any, server: Server, book: Logbook) -> None:
    browser.open(server.address)
    thread = threading.Thread(target=slow_sweep, args=(book.path,))
    thread.start()
    card = "const t = document.querySelector('.card.sweep')?.textContent || ''; return "
    browser.until(f"{card} t.includes('of 5') && t.includes('time left is known after the first')", "the sweep has begun")
    said = browser.until(f"{card} /[123] of 5.*about 0:[0-9][0-9] left/.test(t) && t", "its time left")
    assert "of a budget of 10:00" in said
    said = browser.until(f"{card} t.startsWith('done') && t", "its end")
    thread.join()
    assert "5 of 5" in said and "1 invalid" in said and "4 ok" in said and "best tp=1" in said
    assert browser.errors() == []
    browser.driver.get("about:blank")


def test_the_planner_answers_from_the_page(browser: Any, server: Server) -> None:
    browser.open(server.address)
    browser.until("return document.querySelectorAll('#ranking tbody tr').length > 2", "a ranking")
    degrees = "return [...document.querySelectorAll('#ranking tbody tr')].map((tr) => Number(tr.children[2].textContent))"
    browser.click("#whatif details.more summary")
    browser.type("#whatif input[name=rule]", "tp == 8")
    browser.until(f"{degrees.replace('return ', 'const d = ')}; return d.length && d.every((tp) => tp === 8)", "the rule holds")
    browser.type("#whatif input[name=rule]", "tp === 8")
    browser.until("return document.querySelector('#whatif .note')?.textContent", "what is wrong with the rule")
    assert not [e for e in browser.errors() if "422" not in e]
    browser.driver.get("about:blank")


def test_ones_own_model_and_cluster_are_planned_with_every_knob(browser: Any, server: Server) -> None:
    browser.open(server.address)
    browser.until("return document.querySelectorAll('#ranking tbody tr').length > 2", "a ranking")
    names = browser.js("return [...document.querySelectorAll('#whatif-form [name]')].map((field) => field.name)")
    assert set(SEARCHED) < set(names) and {"headroom", "seq", "precision", "sequence_parallel", "model_text"} < set(names)
    top = "return document.getElementById('whatif').offsetTop < document.getElementById('table').offsetTop"
    assert browser.js(top), "before the table"
    choose = "const s = document.querySelector(`#whatif [name=${arguments[0]}]`); s.value = arguments[1]; " \
             "s.dispatchEvent(new Event('input', { bubbles: true }))"
    for name, value in (("model", "my own …"), ("cluster", "my own …"), ("model_text", 'base = "gpt2-124m"\nlayers = 8'),
                        ("cluster_text", 'base = "jz-a100"\nnodes = 1'), ("gbs", "64"), ("recompute", "none")):
        browser.js(choose, name, value)
    text = "const t = document.querySelector('#ranking')?.textContent || ''; return "
    browser.until(f"{text} t.includes('none') && !t.includes('full')", "its ranking")
    browser.js(choose, "model_text", "wheels = 4")
    browser.until("return document.querySelector('#whatif .note')?.textContent.includes('wheels')", "what is wrong with it")
    browser.driver.get("about:blank")


def test_the_form_begins_with_what_the_logbook_is_about(browser: Any, server: Server, book: Logbook) -> None:
    shape = {"layers": 16, "hidden": 2048, "heads": 16, "vocab": 50257}
    book.append_many([{**ROW, **shape, "machine": "jz-a100", "mbs": mbs, "gbs": 96} for mbs in (1, 2)])
    browser.open(server.address)
    browser.until("return document.querySelectorAll('#ranking tbody tr').length > 2", "a ranking")
    shown = browser.js("const e = document.getElementById('whatif-form').elements; "
                       "return [e.model_text.value.includes('layers = 16'), e.model_text.offsetHeight > 0, e.cluster.value, "
                       "e.nodes.value, e.gbs.value]")
    assert shown == [True, True, "jz-a100", "1", "96"]
    browser.driver.get("about:blank")


@pytest.mark.parametrize("rows", [[], [{**ROW, "state": "failed", "outcome": {"status": "hang", "message": "silent"}}]])
def test_a_page_without_an_answer_says_so_and_no_more(browser: Any, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with Logbook(tmp_path / "few", create=True) as few:
        few.append_many(rows)
    (tmp_path / "few" / "segments").mkdir(parents=True, exist_ok=True)
    source = Source(tmp_path / "few", title="Few")
    path = tmp_path / "few.html"
    path.write_text(page.html(source.current()[1]), encoding="utf-8")
    source.close()
    browser.open(path.as_uri())
    loose = browser.js("return [...document.querySelectorAll('[id$=-in], [id$=-in] > .ask')].flatMap((box) => "
                       "[...box.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent))")
    assert not any(loose), "null and 0 are nothing to read"
    assert browser.js("return document.querySelector('#answer-in .note').textContent") and browser.errors() == []


def test_a_remark_is_kept_in_the_logbook_and_shown_to_all(browser: Any, server: Server, book: Logbook, made: Any) -> None:
    browser.open(server.address)
    browser.js("return openRow(0)")
    browser.type("#remarks textarea", "<b>slow</b> fabric")
    browser.type("#remarks input", "keep baseline")
    browser.click("#remarks button[type=submit]")
    browser.until("return document.querySelector('#remarks .remark')?.textContent === '<b>slow</b> fabric'", "the remark")
    browser.until("return V.rows.tags?.[0] === 'keep baseline'", "its tags in the table")
    browser.type("#remarks input", "two,words")
    browser.click("#remarks button[type=submit]")
    browser.until("return document.querySelector('#remarks .said').textContent.includes('two,words')", "what is no tag")
    (said,) = book.remarks().values()
    assert [(one["text"], one["tags"]) for one in said] == [("<b>slow</b> fabric", ["keep", "baseline"])]
    assert len(list(book.records())) == 1
    browser.click("#row-close")
    browser.type("#filter", "tag:keep")
    assert browser.column("remark") == ["<b>slow</b> fabric"]
    assert not [e for e in browser.errors() if "422" not in e]
    browser.driver.get("about:blank")
    browser.open(made(book.path).as_uri())
    browser.js("return openRow(0)")
    text = browser.js("return document.getElementById('remarks').textContent")
    assert "<b>slow</b> fabric" in text and not browser.js("return document.querySelector('#remarks form')")


def ask(server: Server, path: str, *, method: str = "GET", body: str = "", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.guard.port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() or None)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def test_foreign_names_and_pages_are_refused(server: Server) -> None:
    assert ask(server, "/api/view")[0] == 200
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a:b:c", "192.0.2.7"):
        assert ask(server, "/api/view", Host=host)[0] in (400, 403), host
    for origin in ("http://evil.example", "null", "https://127.0.0.1", f"http://127.0.0.1:{server.guard.port + 1}"):
        assert ask(server, "/api/view", Origin=origin)[0] == 403, origin
    assert ask(server, "/api/view", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "/api/view", Origin=f"http://127.0.0.1:{server.guard.port}")[0] == 200


def test_only_reads_and_only_the_logbook(server: Server, book: Logbook) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(server, "/api/view", method=method)[0] == 405
    (book.path / "secret.txt").write_text("secret")
    for path in ("/secret.txt", "/segments", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.css", "//etc/passwd"):
        assert ask(server, path)[0] == 404, path
    for record in ("../../etc/passwd", "", "runs/x"):
        assert ask(server, f"/api/record?id={record}")[0] == 404
    status, body, _ = ask(server, "/api/whatif?model=/etc/hostname.toml&cluster=jz-a100&gbs=8")
    assert status == 422 and "known are" in body


def test_only_its_own_page_may_send_something_and_only_so_much(server: Server, book: Logbook) -> None:
    own, kind = f"http://127.0.0.1:{server.guard.port}", "application/json"
    (row,) = (record["record_id"] for record in book.records())
    note = json.dumps({"id": row, "text": "mine", "tags": ""})

    def sent(body: str, origin: str | None = own, content: str = kind, path: str = "/api/remark") -> int:
        headers = {"Content_Type": content} | ({"Origin": origin} if origin else {})
        return ask(server, path, method="POST", body=body, **headers)[0]

    assert sent(note, None) == sent(note, "http://evil.example") == sent(note, "null") == 403
    assert sent(note, content="text/plain") == 415 and sent("{") == sent("[1]") == sent(json.dumps({"id": 3})) == 400
    assert sent(json.dumps({"id": "nobody", "text": "x"})) == 404 and sent(note + " " * 70_000) == 413
    assert ask(server, "/api/remark", method="POST", Origin=own, Content_Type=kind)[0] == 413, "no length"
    assert book.remarks() == {}
    assert sent(note) == 200 and book.remarks()[row][0]["text"] == "mine"


def test_who_sends_slowly_is_cut_off_and_the_others_are_answered(book: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_S", 1.5)
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 8)
    with serving(book) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", server.guard.port))) for _ in range(8)]
        began = time.monotonic()
        assert ask(server, "/api/view")[0] == 503, "no more threads than there are places"
        slow[0].settimeout(20)
        cut = False
        while not cut and time.monotonic() < began + 20:  # a byte at a time, for ever
            try:
                slow[0].sendall(b"G")
                time.sleep(0.1)
            except OSError:
                cut = True
        assert cut and time.monotonic() - began < 15
        while ask(server, "/api/view")[0] != 200:
            assert time.monotonic() < began + 20


def test_the_address_that_is_printed_is_one_that_others_can_open(book: Logbook) -> None:
    source = Source(book.path, title="Live")
    server = Server(("0.0.0.0", 0), source, token="a-token-of-enough-letters")
    try:
        assert server.addresses and all("//0.0.0.0" not in one and "?token=" in one for one in server.addresses)
        for one in server.addresses:
            host = one.split("/")[2]
            assert server.guard.host([host]) == host
    finally:
        server.server_close()
        source.close()


def test_answers_carry_a_policy_that_lets_nothing_else_run(server: Server) -> None:
    for path in ("/", "/api/view", "/nowhere"):
        headers = ask(server, path)[2]
        assert "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"


def test_beyond_this_machine_it_answers_only_to_a_token(browser: Any, book: Logbook) -> None:
    from seatrial.errors import BadInput

    source = Source(book.path, title="Live")
    with pytest.raises(BadInput, match="token"):
        Server(("0.0.0.0", 0), source)
    token = "a-token-of-enough-letters"
    server = Server(("0.0.0.0", 0), source, token=token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        assert ask(server, "/")[0] == 401
        assert ask(server, "/api/view?token=wrong")[0] == 401
        assert ask(server, "/api/view", Authorization=f"Bearer {token}")[0] == 200
        assert ask(server, "/api/view", Cookie="seatrial-token=wrong")[0] == 401
        status, _, headers = ask(server, f"/?token={token}")
        assert status == 303 and "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
        browser.open(f"http://127.0.0.1:{server.guard.port}/?token={token}")
        assert token not in browser.driver.current_url
        browser.until("return document.getElementById('live').textContent === 'live'", "the page may ask")
        browser.driver.get("about:blank")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        source.close()
