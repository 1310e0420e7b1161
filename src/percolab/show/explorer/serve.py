"""A server for one page: it reads from the store what is looked at, and writes nothing.

It answers GET alone, on the loopback address unless told otherwise: the page, and the points of a latent in their own
components. On the loopback address requests that name another host are refused, so that no page of somebody else's can
ask through a name that leads here.
"""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from percolab.show.explorer import data, page
from percolab.show.explorer.packing import pack

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Server:
    """Serves an explorer; `run` blocks until it is interrupted, `close` ends it from another thread."""

    def __init__(self, subject: data.Subject, packed: bytes, n_trees: int, *, host: str, port: int) -> None:
        content = page.build(packed, n_trees, title=f"Explorer: {subject.name}", served=True).encode()
        self._http = _Http((host, port), subject, content)
        self.address = f"http://{host}:{self._http.server_port}/"
        """where the page is"""

    def run(self) -> None:
        """Answer until interrupted."""
        try:
            self._http.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            self._http.server_close()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], subject: data.Subject, content: bytes) -> None:
        super().__init__(address, _Handler)
        self.subject, self.content = subject, content
        # An address that others can reach has names that are not known here.
        self.hosts = {f"{name}:{self.server_port}" for name in LOCAL_NAMES} if address[0] in LOCAL_NAMES else None
        self.reading = Lock()
        """one latent at a time: each takes a sample of X into memory"""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "percolab", ""

    def do_GET(self) -> None:
        """Answer with the page, or with the points of a latent."""
        hosts = self.server.hosts
        if hosts is not None and self.headers.get("Host") not in hosts:
            self.send_error(HTTPStatus.FORBIDDEN, "another host was asked for")
            return
        address = urlsplit(self.path)
        if address.path == "/":
            self._answer(self.server.content, "text/html; charset=utf-8")
        elif address.path == "/latent":
            self._latent(address.query)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _latent(self, query: str) -> None:
        subject = self.server.subject
        asked = parse_qs(query)
        try:
            factor, latent = (int(asked[name][0]) for name in ("factor", "latent"))
        except (KeyError, ValueError):
            factor = latent = -1
        truths = subject.truths
        if not 0 <= factor < len(truths) or not 0 <= latent < truths[factor].forest.n_latents:
            self.send_error(HTTPStatus.BAD_REQUEST, "factor and latent must be numbers of ones that are there")
            return
        with self.server.reading:
            found = pack(data.part(subject, factor, latent))
        self._answer(found, "application/octet-stream")

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Say nothing: standard error is the user's."""
