"""A server for one page: it reads data from the store on demand, and writes nothing.

It answers only GET, by default on the loopback address: with the page, and with the points of a latent in their own
components. On any loopback address, requests that name another host are refused, so that no other web page can send
requests through a name that resolves to this machine.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from percolab.show.explorer import data, page
from percolab.show.explorer.packing import pack
from percolab.store.schema import StoreError

LOOPBACK = "127.0.0.1"


class Server:
    """Serves an explorer; `run` blocks until it is interrupted, `close` ends it from another thread."""

    def __init__(self, subject: data.Subject, packed: bytes, n_trees: int, *, host: str, port: int) -> None:
        if not host:
            raise ValueError("host must be a name or an address, got ''")
        content = page.build(packed, n_trees, title=f"Explorer: {subject.name}", served=True).encode()
        self._http = _Http((host, port), subject, content)
        self.address = f"http://{host}:{self._http.server_port}/"  #: URL of the page

    def run(self) -> None:
        """Answer until interrupted."""
        with suppress(KeyboardInterrupt), self._http:
            self._http.serve_forever()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach a numeric address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """Return the name or address in a Host header, in lower case and without the port; "" if there is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], subject: data.Subject, content: bytes) -> None:
        super().__init__(address, _Handler)
        self.subject, self.content = subject, content
        # An address that other machines can reach may have names that are unknown here.
        self.is_local = is_loopback(str(self.server_address[0]))
        self.given = address[0].lower()
        self.reading = Lock()  #: one latent at a time: each takes a sample of X into memory

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a client disconnects before the answer: standard error is the user's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "percolab", ""

    def do_GET(self) -> None:
        """Answer with the page, or with the points of a latent."""
        asked = host_name(self.headers.get("Host", ""))
        if self.server.is_local and asked not in ("localhost", self.server.given) and not is_loopback(asked):
            self.send_error(HTTPStatus.FORBIDDEN, "another host was asked for")
            return
        try:
            address = urlsplit(self.path)
            if address.path == "/":
                self._answer(self.server.content, "text/html; charset=utf-8")
            elif address.path == "/latent":
                self._answer(self._latent(address.query), "application/octet-stream")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
        except (StoreError, MemoryError):
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the dataset cannot be read: it was moved or changed")
        except (KeyError, ValueError):
            self.send_error(HTTPStatus.BAD_REQUEST, "factor and latent must be numbers of ones that are there")

    def _latent(self, query: str) -> bytes:
        """Return the points of the requested latent; raise KeyError or ValueError if there is none."""
        subject, asked = self.server.subject, parse_qs(query, max_num_fields=2)
        factor, latent = (int(asked[name][0]) for name in ("factor", "latent"))
        truths = subject.truths
        if not 0 <= factor < len(truths) or not 0 <= latent < truths[factor].forest.n_latents:
            raise ValueError("no such latent")
        with self.server.reading:
            return pack(data.part(subject, factor, latent))

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
        """Print nothing: standard error is the user's."""
