"""A real S3 API on loopback (moto's server), and a count of what goes over the wire."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEY, SECRET, REGION = "tests-key", "tests-secret", "us-east-1"
LOOK_S = 0.05  # how often the server looks whether it is to end; by default half a second, which each module waits


@dataclass
class Request:
    """One request: its body's bytes, up, and its answer's, down."""

    method: str
    path: str
    query: str
    copy: bool = False
    up: int = 0
    down: int = 0

    @property
    def kind(self) -> str:
        """HEAD, GET, LIST, COPY, PUT, or begin, complete, abort for an upload's."""
        if self.copy:
            return "COPY"
        if self.method == "GET" and ("list-type" in self.query or "prefix" in self.query):
            return "LIST"
        if "uploads" in self.query:
            return "begin"
        if "uploadId" in self.query and self.method in ("POST", "DELETE"):
            return "complete" if self.method == "POST" else "abort"
        return "TAGS" if "tagging" in self.query else self.method


@dataclass
class Wire:
    """What went over the wire since the last `clear`; `before` is called with each request."""

    requests: list[Request] = field(default_factory=list)
    before: Any = None
    _open: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def clear(self) -> None:
        self.requests.clear()

    @contextmanager
    def open(self) -> Iterator[None]:
        """While a request is being answered, whether or not its client still waits for that."""
        with self._changed:
            self._open += 1
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def quiet(self) -> None:
        """Wait until every request is answered: what a client gave up may still change the store."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, 60), "a request is never answered"

    @property
    def kinds(self) -> list[str]:
        return [request.kind for request in self.requests]

    @property
    def up(self) -> int:
        return sum(request.up for request in self.requests)

    @property
    def down(self) -> int:
        return sum(request.down for request in self.requests)


class _Counting:
    """WSGI in front of moto."""

    def __init__(self, app: Any, wire: Wire) -> None:
        self._app, self._wire = app, wire

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        with self._wire.open():
            return self._answer(environ, start)

    def _answer(self, environ: dict[str, Any], start: Any) -> Any:
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""))
        request.copy = "HTTP_X_AMZ_COPY_SOURCE" in environ
        if self._wire.before is not None:
            self._wire.before(request)
        if request.kind in ("complete", "PUT") and not self._condition_holds(environ):
            start("412 Precondition Failed", [("Content-Type", "application/xml")])
            return [b"<Error><Code>PreconditionFailed</Code><Message>It is another one</Message></Error>"]
        body, environ["wsgi.input"] = environ["wsgi.input"], _Input(environ["wsgi.input"], request)
        self._wire.requests.append(request)
        try:
            answer = self._app(environ, start)
        finally:
            environ["wsgi.input"] = body
        data = b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
        request.down = len(data) if environ["REQUEST_METHOD"] != "HEAD" else 0
        return [data]

    def _condition_holds(self, environ: dict[str, Any]) -> bool:
        """S3 compares If-Match when an upload is completed and when an object is put; moto does not, so this does."""
        if "HTTP_IF_MATCH" not in environ:
            return True
        head = {**environ, "REQUEST_METHOD": "HEAD", "QUERY_STRING": "", "wsgi.input": io.BytesIO()}
        raw = environ["RAW_URI"].partition("?")[0]
        head.update({"RAW_URI": raw, "REQUEST_URI": raw, "CONTENT_LENGTH": "0"})
        told: dict[str, str] = {}
        list(self._app(head, lambda _, headers, *rest: told.update(headers)))
        return {k.lower(): v for k, v in told.items()}.get("etag") == environ["HTTP_IF_MATCH"]


class _Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True  # a body follows its headers at once, not when the client has confirmed those: 40 ms


class _Input:
    def __init__(self, stream: Any, request: Request) -> None:
        self._stream, self._request = stream, request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, *size: int) -> bytes:
        data = self._stream.read(*size)
        self._request.up += len(data)
        return data

    def readinto(self, into: Any) -> int:
        n = self._stream.readinto(into)
        self._request.up += n or 0
        return n

    def readline(self, *size: int) -> bytes:
        data = self._stream.readline(*size)
        self._request.up += len(data)
        return data


@dataclass
class ObjectStore:
    """A server, a client for the tests' own looks, and the file system that is under test."""

    endpoint: str
    wire: Wire
    client: Any
    filesystem: Any

    def uri(self, path: str) -> str:
        """The URI a person would type."""
        options = f"scheme=http&region={REGION}&endpoint_override={self.endpoint.removeprefix('http://')}"
        return f"s3://{KEY}:{SECRET}@{path}?{options}"

    def get(self, path: str) -> bytes:
        bucket, _, key = path.partition("/")
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def put(self, path: str, data: bytes, **more: Any) -> str:
        bucket, _, key = path.partition("/")
        return self.client.put_object(Bucket=bucket, Key=key, Body=data, **more)["ETag"]

    def names(self, bucket: str) -> list[str]:
        return sorted(o["Key"] for o in self.client.list_objects_v2(Bucket=bucket).get("Contents", []))

    def uploads(self, bucket: str) -> list[Any]:
        return self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])

    def drop(self, bucket: str) -> None:
        """Remove a bucket with all that is in it."""
        self.wire.quiet()
        for upload in self.uploads(bucket):
            with suppress(self.client.exceptions.NoSuchUpload):  # a client may be late with its own abort
                self.client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        for name in self.names(bucket):
            self.client.delete_object(Bucket=bucket, Key=name)
        self.client.delete_bucket(Bucket=bucket)


READERS = ["obstore", "pyarrow"]


@contextmanager
def reading_by(reader: str) -> Iterator[str]:
    """While this is open objects are read by obstore, or by pyarrow alone, as in a process forked from one with it."""
    from parquet_bloom.storage import object_reader  # not above: .ci/bare has this module's store without the package

    before, process = object_reader._process.own, object_reader._Process(reader == "pyarrow")
    object_reader._process.own = process
    try:
        yield reader
    finally:
        object_reader._process.own = before


def objects(kind: str = "s3", **settings: Any) -> Any:
    """The storage that a URI with these settings names."""
    from parquet_bloom.storage.remote import Objects

    return Objects(kind, settings)


def buckets(client: Any) -> set[str]:
    return {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}


def options_of(store: ObjectStore) -> dict[str, str]:
    """The store as deltalake's `storage_options`."""
    return {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": REGION,
        "aws_endpoint_url": store.endpoint,
        "aws_allow_http": "true",
    }


@contextmanager
def serving() -> Iterator[ObjectStore]:
    """A store on loopback. It leaves no bucket: all stores of a process are one to moto, whatever their addresses."""
    wire = Wire()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _Counting(create_backend_app("s3"), wire), True, request_handler=_Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        client = boto3.session.Session().client(
            "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip
        filesystem = objects(
            endpoint_override=endpoint.removeprefix("http://"), scheme="http", region=REGION,
            access_key=KEY, secret_key=SECRET, connect_timeout=2, request_timeout=10,
        )  # fmt: skip
        store, others = ObjectStore(endpoint, wire, client, filesystem), buckets(client)
        wire.clear()
        yield store
        wire.before = None
        for bucket in buckets(client) - others:
            store.drop(bucket)
        client.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
