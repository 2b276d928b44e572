"""Azure's storage on loopback: Azurite, Microsoft's emulator, and a recorder in front of it.

`.ci/azurite FOLDER` installs Azurite by npm; PARQUET_BLOOM_AZURITE=FOLDER names it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import pytest

from support.loopback import free_port, running_server
from support.object_store import objects
from support.recording_store import Answer, Asked, RecordingStore

ACCOUNT = "devstoreaccount1"  # Azurite's own, with its key; both are public
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
NO_AZURITE = "Azurite is not installed: .ci/azurite FOLDER, and PARQUET_BLOOM_AZURITE=FOLDER"


def azurite() -> list[str] | None:
    """The command that starts Azurite's storage of blobs."""
    folder = os.environ.get("PARQUET_BLOOM_AZURITE")
    found = Path(folder, "node_modules/azurite/dist/src/blob/main.js") if folder else None
    if found is not None and found.exists():
        return ["node", str(found)]
    return ["azurite-blob"] if shutil.which("azurite-blob") else None


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """HOST:PORT of Azurite, with nothing in it."""
    command = azurite()
    if command is None:
        pytest.skip(NO_AZURITE)
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    with running_server([*command, *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)], port, folder) as at:
        yield at


def _set(event: Event) -> Event:
    event.set()
    return event


@dataclass
class RecordingAzure(RecordingStore):
    """What is asked of Azurite, which answers; `objects` has the names of those that were put.

    upstream   HOST:PORT of Azurite
    waits_for  before it answers as `other` says
    """

    upstream: str = ""
    waits_for: Event = field(default_factory=lambda: _set(Event()))

    def put(self, name: str, data: bytes) -> None:
        """Put an object, "container/name", past the recorder."""
        with on(self.upstream).arrow.open_output_stream(name) as out:
            out.write(data)
        self.objects[name] = data

    def answer(self, asked: Asked, query: dict[str, list[str]], path: str) -> Answer:
        asked.key = asked.key.removeprefix(f"{ACCOUNT}/")
        self.asked.append(asked)
        if path in self.other:
            self.waits_for.wait(20)
            return Answer(200, {"Content-Type": "application/json"}, self.other[path])
        target, headers = asked.target, dict(asked.headers)
        if headers.get("authorization", "").startswith("Bearer "):  # Azurite takes tokens over TLS alone
            del headers["authorization"]
            target += f"{'&' if '?' in target else '?'}{sas()}"
        connection = HTTPConnection(self.upstream)
        connection.request(asked.method, target, headers=headers)
        got = connection.getresponse()
        body = got.read()
        connection.close()
        dropped = ("transfer-encoding", "connection", "keep-alive", "date", "server")
        if asked.method == "GET":
            dropped += ("content-length",)
        headers = {name.title(): value for name, value in got.getheaders() if name.lower() not in dropped}
        headers["ETag"] = headers.pop("Etag", "")
        answer = Answer(got.status, headers, body)
        if asked.method == "GET" and query.get("comp") == ["list"] and self.lists is not None:
            self.lists(asked, answer)
        return answer


def options(authority: str, **more: Any) -> dict[str, Any]:
    """Settings of Azure, without credentials."""
    given = {
        "account_name": ACCOUNT, "blob_storage_authority": authority, "blob_storage_scheme": "http",
        "dfs_storage_authority": authority, "dfs_storage_scheme": "http",
    }  # fmt: skip
    return {**given, **more}


def on(authority: str, **more: Any) -> Any:
    """The storage as a URI names it, with the account's key unless there are other credentials."""
    return objects("abfs", **options(authority, **(more or {"account_key": KEY})))


def sas() -> str:
    """A signature of the account that allows reading and listing (version 2018-11-09), as Azure's portal gives it."""
    start, until, version = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2018-11-09"
    signed = "\n".join([ACCOUNT, "rl", "b", "sco", start, until, "", "https,http", version, ""])
    key = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    parts = {"sv": version, "ss": "b", "srt": "sco", "sp": "rl", "st": start, "se": until, "spr": "https,http"}
    parts["sig"] = base64.b64encode(key).decode()
    return "&".join(f"{name}={quote(value, '')}" for name, value in parts.items())
