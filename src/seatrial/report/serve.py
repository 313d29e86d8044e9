"""The page live: a small server on this machine that reads a logbook, and adds to it what readers remark on its rows.

    server = serve.Server(("127.0.0.1", 8765), Source(Path("book"), title="Round one"))
    server.serve_forever()

It answers a fixed list of paths out of memory, and serves no file by name. A request must carry the Host that the server goes
by (a foreign page cannot reach it through a name of its own), and where it says an Origin, the server's. Beyond this machine it
answers only to a token. What is sent to it must come from its own page. Connections are counted, and each request has to be
there, and its answer to be taken, in a given time: who sends a byte a minute is not waited for.
"""
from __future__ import annotations

import contextlib
import gzip
import hmac
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from seatrial.errors import BadInput, SeatrialError
from seatrial.report import live, page
from seatrial.report.data import Made
from seatrial.report.source import Source
from seatrial.report.start import start
from seatrial.report.whatif import choices, what_if

COOKIE = "seatrial-token"
LONGEST_QUERY = 4000
LONGEST_BODY = 64 * 1024
MOST_CONNECTIONS = 64
"""Each has a thread; a page holds one or two."""
REQUEST_S = 20.0
"""For a request to be there, counted from when the connection was opened or its last answer was taken."""
ANSWER_S = 120.0
"""For an answer to be taken: 20,000 rows through a slow tunnel."""


class Refused(Exception):
    """A request that is not answered: a status and one line."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "seatrial"
    sys_version = ""
    timeout = 30

    def handle_one_request(self) -> None:
        self.server.due(self.connection, REQUEST_S)
        try:
            super().handle_one_request()
        finally:
            self.server.due(self.connection, None)

    def do_GET(self) -> None:
        self._answer(ROUTES)

    def do_HEAD(self) -> None:
        self._answer(ROUTES)

    def do_POST(self) -> None:
        if self.path.partition("?")[0] not in POSTED:
            return self._only_read()
        self._answer(POSTED)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._only_read
        raise AttributeError(name)

    def _only_read(self) -> None:
        self.close_connection = True
        self._send(405, "text/plain; charset=utf-8", b"GET and HEAD are answered here\n", {"Allow": "GET, HEAD"})

    def _answer(self, routes: Routes) -> None:
        try:
            posted = routes is POSTED
            given = self._body() if posted else {}  # first, so that a refusal is heard and not cut off by what was not read
            if len(self.path) > LONGEST_QUERY:
                raise Refused(414, "the address is too long")
            path, _, after = self.path.partition("?")
            try:
                query = dict(parse_qsl(after, max_num_fields=40))
            except ValueError:
                raise Refused(400, "the address cannot be read") from None
            host = self.server.guard.host(self.headers.get_all("Host") or [])
            self.server.guard.origin(self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site"), host=host, path=path,
                                     posted=posted)
            if self.server.guard.token and not self._known(query):
                raise Refused(401, "a token is needed: open the address that seatrial serve printed")
            if self.server.guard.token and "token" in query:
                # Out of the address bar and of the history, into a cookie that scripts cannot read.
                cookie = f"{COOKIE}={self.server.guard.token}; HttpOnly; SameSite=Strict; Path=/"
                self._send(303, "text/plain; charset=utf-8", b"", {"Location": "/", "Set-Cookie": cookie})
                return
            answer = routes.get(path)
            if answer is None:
                raise Refused(404, "nothing here")
            self.server.due(self.connection, None)
            kind, body = answer(self.server, given if posted else query)
            self._send(200, kind, body, {})
        except Refused as refused:
            self._send(refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode(), {})
        except SeatrialError as error:
            self._send(422, "application/json", json.dumps({"error": str(error)}).encode(), {})
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _body(self) -> dict[str, str]:
        """A table of texts."""
        length = self.headers.get("Content-Length", "")
        self.close_connection = True
        if not length.isascii() or not length.isdigit() or int(length) > LONGEST_BODY:
            raise Refused(413, f"a document of up to {LONGEST_BODY} bytes is read, with its length")
        raw = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "a JSON document is needed")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            raise Refused(400, "that is no JSON") from None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise Refused(400, "a table of texts is needed")
        return found

    def _known(self, query: dict[str, str]) -> bool:
        given = [query.get("token", "")]
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
            given += [cookies[COOKIE].value] if COOKIE in cookies else []
        except CookieError:
            pass
        bearer = self.headers.get("Authorization", "")
        given += [bearer.removeprefix("Bearer ")] if bearer.startswith("Bearer ") else []
        return any(hmac.compare_digest(one.encode(), self.server.guard.token.encode()) for one in given if one)

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.server.due(self.connection, ANSWER_S)
        packed = len(body) > 4096 and "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            body = gzip.compress(body, 1, mtime=0)
        self.send_response(status)
        every = {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "Content-Security-Policy": f"{page.policy(live=True)}; frame-ancestors 'none'", "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
            **({"Content-Encoding": "gzip"} if packed else {}), **headers,
        }  # fmt: skip
        for name, value in every.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a page asks every second."""


class Guard:
    """Who is answered."""

    def __init__(self, bound: str, port: int, token: str):
        self.bound, self.port, self.token = bound, port, token

    def host(self, given: list[str]) -> str:
        """A name that is not ours was pointed at this machine by someone else; an address cannot be.

        The port may be another: of a tunnel that ends here.
        """
        if len(given) != 1:
            raise Refused(400, "one Host header is needed")
        try:
            name = urlsplit(f"//{given[0]}")
            host, _ = (name.hostname or "").lower(), name.port
        except ValueError:
            raise Refused(400, "the Host header cannot be read") from None
        ours = {"localhost", self.bound.lower()}
        if self.token:
            ours |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        if host in ours or (is_address(host) and (self.token or is_loopback(host))):
            return given[0]
        raise Refused(403, "this server does not go by that name")

    def origin(self, given: str | None, site: str | None, *, host: str, path: str, posted: bool = False) -> None:
        if posted and given is None:
            raise Refused(403, "only this server's own page may send something: it says its Origin")
        if given is not None and given != f"http://{host}":
            raise Refused(403, "requested by another page")
        # A link from elsewhere may open the page itself, but nothing may be fetched from elsewhere.
        if site is not None and site not in ("same-origin", "none") and path != "/":
            raise Refused(403, "requested by another page")


def is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def outward(family: int) -> list[str]:
    """The address that others see, as the kernel would choose it; nothing is sent. None without a network."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Of the ranges kept for documentation: routed like any other, and nobody's.
            probe.connect(("2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1", 9))
            return [probe.getsockname()[0]]
        except OSError:
            return []


def is_loopback(host: str) -> bool:
    return host == "localhost" or is_address(host) and ipaddress.ip_address(host).is_loopback


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], source: Source, *, token: str = ""):
        host = address[0]
        if not is_loopback(host) and not token:
            raise BadInput(f"--host {host}: others can reach it there, so it needs a token")
        if is_address(host) and ipaddress.ip_address(host).version == 6:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, Handler)
        except OSError as error:
            raise BadInput(f"{host} port {address[1]}: {error.strerror or error}") from None
        self.source = source
        self.guard = Guard(host, self.server_address[1], token)
        self.planning = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._due: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.settimeout(0.2)
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
                                b"Connection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._due.pop(request, None)
            self._places.release()

    def due(self, connection: socket.socket, seconds: float | None) -> None:
        """When what is being read or written must have ended; None while the answer is worked out."""
        if seconds is None:
            self._due.pop(connection, None)
        else:
            self._due[connection] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """Between two looks for new connections: those whose time is up are cut."""
        now = time.monotonic()
        for connection, until in list(self._due.items()):
            if now > until:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """Where the page can be opened, the best first: bound to every interface, by this machine's name and its address."""
        token = f"?token={self.guard.token}" if self.guard.token else ""
        hosts = [self.guard.bound]
        if is_address(self.guard.bound) and ipaddress.ip_address(self.guard.bound).is_unspecified:
            hosts = list(dict.fromkeys([socket.getfqdn(), *outward(self.address_family)])) or hosts
        return [f"http://{f'[{host}]' if ':' in host else host}:{self.guard.port}/{token}" for host in hosts]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who went away is no error; anything else is one line, and the server goes on."""
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"seatrial: {type(error).__name__}: {error}", file=sys.stderr)


# ---- the paths


def _json(value: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _page(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    version, made = server.source.current()
    return "text/html; charset=utf-8", page.live_html({**made.view, "live": version}).encode()


def _view(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    version, made = server.source.current()
    if query.get("since") == str(version):
        return _json({"version": version})
    return _json({"version": version, "view": made.view})


def _row(server: Server, query: dict[str, str]) -> tuple[Made, int]:
    _, made = server.source.current()
    row = server.source.row_by_id.get(query.get("id", ""))
    if row is None or row >= len(made.records):
        raise Refused(404, "no such record")
    return made, row


def _record(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    made, row = _row(server, query)
    return _json(made.detail(row))


def _pipeline(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    made, row = _row(server, query)
    return _json(made.pipeline(row))


def _running(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    return _json({"running": live.running(server.source.book), "sweeps": live.sweeps(server.source.book)})


def _choices(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    return _json({**choices(), "start": start(server.source.current()[1])})


def _whatif(server: Server, query: dict[str, str]) -> tuple[str, bytes]:
    # One at a time: a page that types quickly must not take all cores of a head node.
    with server.planning:
        learned = query.get("learn") and not query.get("cluster_text")
        return _json(what_if(query, server.source.fit(query.get("cluster", "")) if learned else None))


def _remark(server: Server, given: dict[str, str]) -> tuple[str, bytes]:
    _row(server, given)
    return _json({"remarks": server.source.remark(given["id"], given.get("text", ""), given.get("tags", "").split())})


Routes = dict[str, Callable[[Server, dict[str, str]], tuple[str, bytes]]]
ROUTES: Routes = {
    "/": _page, "/api/view": _view, "/api/record": _record, "/api/pipeline": _pipeline, "/api/running": _running,
    "/api/choices": _choices, "/api/whatif": _whatif,
}  # fmt: skip
"""All that is answered."""
POSTED: Routes = {"/api/remark": _remark, "/api/whatif": _whatif}
"""All that takes a document."""
