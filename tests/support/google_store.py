"""Google's storage on loopback: an emulator of its JSON API, with objects as other programs leave them; and a recorder.

The emulator lacks the API that obstore reads by (XML: no ETag, no generation, no Last-Modified, no suffix ranges), so
that pyarrow reads there. RecordingGoogle speaks both as Google documents them. It is none of Google's programs.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from support.loopback import free_port, running_server
from support.object_store import objects
from support.recording_store import Answer, Asked, RecordingStore, running

NAMES = ["year=2025/month=1/a.parquet", "year=2026/month=1/b.parquet", "year=2026/month=2/c.parquet", "top.parquet"]


@contextmanager
def serving() -> Iterator[str]:
    """HOST:PORT of a process of its own: pyarrow waits for some answers of this storage with the GIL held."""
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=data"]
    with running_server([sys.executable, "-m", "gcp_storage_emulator", "start", *options], port) as at:
        yield at


@contextmanager
def filled(endpoint: str, data: bytes) -> Iterator[fs.GcsFileSystem]:
    """NAMES below data/d, and hidden ones; no object stands for a folder."""
    limit = dt.timedelta(seconds=10)
    gcs = fs.GcsFileSystem(
        anonymous=True, scheme="http", endpoint_override=endpoint, project_id="p", retry_time_limit=limit
    )
    for name in [*NAMES, "year=2026/_temporary/half.parquet", "_delta/x.parquet"]:
        with gcs.open_output_stream(f"data/d/{name}") as out:
            out.write(data)
    assert [info.path for info in gcs.get_file_info(fs.FileSelector("data/d"))] == ["data/d/top.parquet"], (
        "GcsFileSystem shows implicit folders by now: apache/arrow#35993 is closed"
    )
    yield gcs
    for info in gcs.get_file_info(fs.FileSelector("data", recursive=True)):
        if info.is_file:
            gcs.delete_file(info.path)


# --- a recorder -----------------------------------------------------------------------------------


def generation(data: bytes) -> str:
    """A number of the version; here one of the bytes."""
    return str(int(hashlib.md5(data, usedforsecurity=False).hexdigest()[:15], 16))


@dataclass
class RecordingGoogle(RecordingStore):
    """Google's storage: its XML API, and as much of its JSON API as pyarrow reads by.

    A request of the JSON API for an object's description is one with the method HEAD in `asked`. pyarrow waits for the
    bytes of an object with the GIL held: a process that reads here through pyarrow must be another one.
    """

    def answer(self, asked: Asked, query: dict[str, list[str]], path: str) -> Answer:
        if path.startswith("/storage/v1/b/"):
            bucket, _, name = path.removeprefix("/storage/v1/b/").partition("/o")
            return self._json(asked, query, f"{bucket}/{unquote(name.removeprefix('/'))}", not name)
        answer = self._named(asked, query) or super().answer(asked, query, path)
        if asked.key in self.objects:
            answer.headers["x-goog-generation"] = generation(self.objects[asked.key])
        return answer

    def _named(self, asked: Asked, query: dict[str, list[str]]) -> Answer | None:
        """404 for another generation than the one there is."""
        there = self.objects.get(asked.key)
        if there is None or query.get("generation", [generation(there)]) == [generation(there)]:
            return None
        self.asked.append(asked)
        return Answer(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")

    def _json(self, asked: Asked, query: dict[str, list[str]], key: str, is_list: bool) -> Answer:
        kind = {"Content-Type": "application/json"}
        if is_list or key.endswith("/"):
            asked.key = key
            self.asked.append(asked)
            start = key + query.get("prefix", [""])[0]
            found = [self._described(name) for name in sorted(self.objects) if name.startswith(start)]
            return Answer(200, kind, json.dumps({"kind": "storage#objects", "items": found}).encode())
        asked.key = key
        if query.get("alt") == ["media"]:
            return self._named(asked, query) or super().answer(asked, {}, "")
        asked.method = "HEAD"
        self.asked.append(asked)
        if key not in self.objects:
            return Answer(404, kind, b"{}")
        return Answer(200, kind, json.dumps(self._described(key)).encode())

    def _described(self, key: str) -> dict[str, str]:
        bucket, _, name = key.partition("/")
        when = "2001-09-09T01:46:40.000000Z"
        data = self.objects[key]
        return {
            "kind": "storage#object", "id": key, "name": name, "bucket": bucket, "size": str(len(data)),
            "generation": generation(data), "metageneration": "1", "updated": when, "timeCreated": when, "etag": "CAE=",
        }  # fmt: skip


def asking(store: RecordingStore, **more: object) -> Any:
    """A recorder as a URI names it, without credentials unless there are others."""
    given = {"anonymous": True, "scheme": store.scheme, "endpoint_override": store.endpoint, **more}
    return objects("gcs", **given, retry_time_limit=dt.timedelta(seconds=5))


@contextmanager
def levels(data: bytes) -> Iterator[tuple[RecordingGoogle, dict[str, str]]]:
    """A recorder with NAMES below data/d and hidden ones, and Hadoop's settings for it."""
    with running(RecordingGoogle()) as store:
        names = [*NAMES, "year=2026/_temporary/half.parquet", "_delta/x.parquet"]
        store.objects.update({f"data/d/{name}": data for name in names})
        yield store, {"fs.gs.storage.root.url": f"http://{store.endpoint}/", "fs.gs.auth.type": "UNAUTHENTICATED"}
