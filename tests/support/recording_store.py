"""A small S3 on loopback that remembers each request with its headers, and answers wrongly where it is told to.

It checks no signature: who was asked as whom stands in the headers.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

NOTHING = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><KeyCount>0</KeyCount></ListBucketResult>'

LOOK_S = 0.01  # how often a server looks whether it is to end: each test of one waits so long, by default half a second


@dataclass
class Asked:
    """One request.

    through  whether it came as to a proxy
    target   the path and query as they came
    """

    method: str
    key: str
    headers: dict[str, str]
    through: bool
    target: str = ""

    @property
    def signed_by(self) -> str:
        """The key id of its signature; "" for none."""
        found = re.search(r"Credential=([^/]+)/", self.headers.get("authorization", ""))
        return found[1] if found else ""

    @property
    def region(self) -> str:
        found = re.search(r"Credential=[^/]+/[^/]+/([^/]+)/", self.headers.get("authorization", ""))
        return found[1] if found else ""


@dataclass
class Answer:
    """What is about to be sent; `wrong` may change it, or set `body` to None: the connection ends."""

    status: int
    headers: dict[str, str]
    body: bytes | None


@dataclass
class RecordingStore:
    """Objects by "bucket/key".

    wrong  (request, answer) before each answer to a GET of an object
    lists  (request, answer) before each answer to a listing
    other  path -> body, of whatever else is asked, such as for credentials
    """

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    wrong: Callable[[Asked, Answer], None] | None = None
    lists: Callable[[Asked, Answer], None] | None = None
    other: dict[str, bytes] = field(default_factory=dict)
    scheme: str = "http"

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.port}"

    def of_objects(self) -> list[Asked]:
        """Requests for objects, not for listings."""
        return [one for one in self.asked if one.key in self.objects]

    def methods(self) -> list[str]:
        return [one.method for one in self.of_objects()]

    def answer(self, asked: Asked, query: dict[str, list[str]], path: str) -> Answer:
        self.asked.append(asked)
        if path in self.other:
            return Answer(200, {"Content-Type": "application/json"}, self.other[path])
        if "list-type" in query or "prefix" in query:
            listing = Answer(200, {"Content-Type": "application/xml"}, self._listing(asked.key, query))
            if self.lists is not None:
                self.lists(asked, listing)
            return listing
        if asked.key not in self.objects:
            return Answer(404, {"Content-Type": "application/xml"}, b"<Error><Code>NoSuchKey</Code></Error>")
        data = self.objects[asked.key]
        headers = {"ETag": etag(data), "Last-Modified": formatdate(1e9, usegmt=True)}
        if asked.headers.get("if-match", headers["ETag"]) != headers["ETag"]:
            return Answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        wanted = asked.headers.get("range")
        if wanted is None:
            return Answer(200, headers, data)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= stop:
            return Answer(416, {}, b"<Error><Code>InvalidRange</Code></Error>")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Answer(206, headers, data[start:stop])

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix = f"{bucket.strip('/')}/{query.get('prefix', [''])[0]}"
        found = [name for name in sorted(self.objects) if name.startswith(prefix)]
        folders = ""
        if query.get("delimiter") == ["/"]:
            deeper = [name.partition("/")[2] for name in found if "/" in name.removeprefix(prefix)]
            found = [name for name in found if "/" not in name.removeprefix(prefix)]
            start = len(prefix.partition("/")[2])
            above = dict.fromkeys(name[: name.index("/", start) + 1] for name in deeper)
            folders = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in above)
        items = "".join(
            f"<Contents><Key>{escape(name.partition('/')[2])}</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified>"
            f"<ETag>{escape(etag(self.objects[name]))}</ETag><Size>{len(self.objects[name])}</Size></Contents>"
            for name in found
        )
        return NOTHING.replace(b"<KeyCount>0</KeyCount>", f"<KeyCount>{len(found)}</KeyCount>{items}{folders}".encode())


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body follows its headers at once, not when the client has confirmed those: 40 ms
    store: RecordingStore

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, unquote(url.path).lstrip("/"), headers, bool(url.netloc), self.path)
        answer = self.store.answer(asked, parse_qs(url.query, keep_blank_values=True), url.path)
        if self.store.wrong is not None and self.command == "GET" and asked.key in self.store.objects:
            self.store.wrong(asked, answer)
        if answer.body is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        answer.headers.setdefault("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
            if answer.headers["Content-Length"] != str(len(answer.body)):
                self.close_connection = True

    def _handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._serve()

    do_GET = do_HEAD = do_POST = do_PUT = _handle


@contextmanager
def recording(certificate: Path | None = None) -> Iterator[RecordingStore]:
    """A store; with a certificate and its key in one file, over TLS."""
    with running(RecordingStore(scheme="https" if certificate else "http"), certificate) as store:
        yield store


Store = TypeVar("Store", bound=RecordingStore)


@contextmanager
def running(store: Store, certificate: Path | None = None) -> Iterator[Store]:
    """A store that answers while this is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def keyed(store: RecordingStore, **more: Any) -> dict[str, Any]:
    """Settings of S3 with keys."""
    given = {
        "endpoint_override": store.endpoint, "scheme": store.scheme, "region": "eu-north-1",
        "access_key": "given-key", "secret_key": "given-secret",
    }  # fmt: skip
    return {**given, **more}
