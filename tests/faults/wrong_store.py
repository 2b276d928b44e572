"""An HTTP server before an S3 store that answers wrongly, late, or not at all, at the Nth request."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATE_S = 5.0  # longer than the clients of these tests wait
ERROR = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>as asked for</Message></Error>'
STATUS = {
    "500": (500, b"InternalError"),
    "503": (503, b"SlowDown"),
    "404": (404, b"NoSuchKey"),
    "403": (403, b"AccessDenied"),
}
# "after": the store does what is asked, and the answer is another
HOW = [
    *STATUS, "200 with an error", "200 and nothing", "closed", "never", "late",
    "500 after", "closed after", "truncated", "wrong etag",
]  # fmt: skip


@dataclass
class WrongStore:
    """What to do at which request; `asked` lists those there were.

    nth  the first request that goes wrong; -1: none
    on   whether all after it do, too
    at   an expression: only requests that match it are counted for `nth`
    """

    nth: int = -1
    how: str = ""
    on: bool = False
    at: str = ""
    asked: list[str] = field(default_factory=list)
    met: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, nth: int, how: str, on: bool, at: str = "") -> None:
        with self.lock:
            self.asked.clear()
            self.nth, self.how, self.on, self.at, self.met = nth, how, on, at, 0

    def next(self, line: str) -> str:
        with self.lock:
            n = sum(1 for one in self.asked if re.match(self.at, one))
            self.asked.append(line)
            begins = self.nth == n and re.match(self.at, line) is not None
            wrong = begins or (self.on and self.met > 0)
            self.met += wrong
            return self.how if wrong else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body follows its headers at once
    store: WrongStore
    behind: int

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=30)
        try:
            headers = {
                k: v for k, v in self.headers.items() if k.lower() not in ("connection", "transfer-encoding", "expect")
            }
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, cut: int | None = None) -> None:
        self.send_response_only(status)
        length = next((v for k, v in headers if k.lower() == "content-length"), str(len(body)))
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])

    def _close(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        body = self._body()
        how = self.store.next(f"{self.command} {self.path}")
        xml = [("Content-Type", "application/xml")]
        if how.startswith("200") and self.command == "GET" and "list-type" not in self.path:
            # S3 says 200 and means an error where it copies and completes only. Of a read pyarrow would not notice: it
            # takes as many bytes as it asked for, whatever the answer's length and whatever its buffer held before.
            how = "truncated"
        if how in STATUS:
            status, code = STATUS[how]
            return self._answer(status, xml, ERROR % code)
        if how == "200 with an error":
            return self._answer(200, xml, ERROR % b"InternalError")
        if how == "200 and nothing":
            return self._answer(200, [], b"")
        if how == "closed":
            return self._close()
        if how == "never":
            time.sleep(LATE_S)
            return self._close()
        status, headers, data = self._forward(body)
        if how == "500 after":
            return self._answer(500, xml, ERROR % b"InternalError")
        if how == "closed after":
            return self._close()
        if how == "late":
            time.sleep(LATE_S)
        if how == "wrong etag":
            other = "0123456789abcdef0123456789abcdef"
            headers = [(k, f'"{other}"' if k.lower() == "etag" else v) for k, v in headers]
            data = re.sub(rb"(<ETag>[^<]*?)[0-9a-f]{32}", rb"\g<1>" + other.encode(), data)
        self._answer(status, headers, data, len(data) // 2 if how == "truncated" else None)
        if how == "truncated":
            self._close()
        return None

    def _handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # the client gave up
            self._serve()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle


@contextmanager
def before(port: int) -> Iterator[tuple[WrongStore, int]]:
    """A wrong store before the one at a port; and its own port."""
    store = WrongStore()
    handler = type("Handler", (_Handler,), {"store": store, "behind": port})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store, server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
