"""What surrounds a table whose log lies: files that no log may touch, a host that none may ask, and a user who calls.

Found is what no log may do: an error of several lines, a connection, a file outside of the table that was opened,
changed or made, and a value of such a file among the rows.
"""

from __future__ import annotations

import ctypes
import functools
import http.server
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from hostile_words import Words
from support import delta_tables as delta
from support.loopback import Listener

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError

FIRST = 900_000_000  # of the ids of files that no log may name
SECRET = "SECRET-OF-THE-VICTIM"
_SHOWN = re.compile(rf"\b9000000(?:0[1-9]|1\d|20)\b|{SECRET}")
_IS_VICTIMS = f"id >= {FIRST} AND id < {FIRST + 100}"
Files = dict[str, bytes]  # path below a folder -> content


class Seen(Exception):
    """Something that no log may bring about."""


class Asked(Seen):
    """A host was asked that the log named."""


class Touched(Seen):
    """A file outside of the table was opened, changed or made."""


class Shown(Seen):
    """A value of such a file was shown."""


class Lines(Seen):
    """An error has several lines, or none."""


class Ran(Seen):
    """Code ran that the log named."""


# --- what surrounds a table -----------------------------------------------------------------------


class _NoStore(http.server.BaseHTTPRequestHandler):
    """The caller's own object store, which has nothing: a log may name buckets of it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _none(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _none


class Opened:
    """What the kernel tells of folders: each open, change, new name and removal in them (inotify of Linux)."""

    EVENTS = 0x20 | 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200  # open, modify, attrib, moves, create, delete

    def __init__(self, folders: list[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        for folder in folders:
            if libc.inotify_add_watch(self._fd, os.fsencode(folder), self.EVENTS) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def names(self) -> list[str]:
        """Of files that were touched since the last look."""
        found = []
        with suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                at = 0
                while at < len(data):
                    _, mask, _, length = struct.unpack_from("iIII", data, at)
                    name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
                    found.append(f"{name or 'the folder'} ({mask & 0xFFF:#x})")
                    at += 16 + length
        return found


class Site:
    """The folder of a worker: a table of each kind, and beside it what no log of them may touch.

    victim     Parquet files, a secret, a file of deletion vectors
    here       the working folder, empty
    temporary  the folder for temporary files, empty
    """

    def __init__(self, at: Path) -> None:
        shutil.rmtree(at, ignore_errors=True)
        self.at, self.victim, self.here, self.temporary = at, at / "victim", at / "here", at / "tmp"
        self.listener = Listener()
        store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NoStore)
        threading.Thread(target=store.serve_forever, daemon=True).start()
        for folder in (self.victim, self.here, self.temporary):
            folder.mkdir(parents=True)
        self._secrets(self.victim)
        (self.victim / "secret").write_text(SECRET)
        vector = delta.vector([0, 1, 2])
        (self.victim / "v.bin").write_bytes(b"\1" + struct.pack(">I", len(vector)) + vector + bytes(4))
        self.code = at / "code"
        self.code.mkdir()
        (self.code / "hostile_module.py").write_text(f"open({str(at / 'ran')!r}, 'w').close()\nclass Evil: pass\n")
        own = f"http://127.0.0.1:{store.server_port}"
        key = {"ACCESS_KEY_ID": "AKIACALLER", "SECRET_ACCESS_KEY": "callers-secret", "SESSION_TOKEN": "token"}
        aws = {**key, "REGION": "us-east-1", "ENDPOINT_URL": own, "EC2_METADATA_DISABLED": "true"}
        google = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": own, "GCE_METADATA_ROOT": own.removeprefix("http://")}
        self.environment = {f"AWS_{name}": value for name, value in aws.items()} | google
        self.environment["TMPDIR"] = str(self.temporary)
        self._watched: list[Path] = [self.victim, self.here, self.temporary]
        self._opened: Opened | None = None
        self._before: Any = None

    def _secrets(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ids = pa.array(range(FIRST + 1, FIRST + 21), pa.int64())
        for name in ("x", "a", "b", "more"):
            more = {one: [SECRET] * 20 for one in ("name", "k", "p")}
            pq.write_table(pa.table({"id": ids, **more}), folder / f"{name}.parquet")

    def neighbour(self, folder: Path) -> Path:
        """Make a folder of another table, which no log may name either."""
        if not folder.exists():
            self._secrets(folder)
            self._watched.append(folder)
            self._opened = None
        return folder

    def words(self, table: Path) -> Words:
        return Words(self.listener.authority, str(self.victim), str(table))

    @contextmanager
    def watched(self, folder: Path, own: set[str], opened: bool = True) -> Iterator[None]:
        """Calls of a user in these surroundings. Raises a kind of Seen for what they brought about.

        folder  of the table, or of what holds its catalog
        own     names in it that may change
        opened  whether a file outside may not even be opened
        """
        old = {name: os.environ.get(name) for name in self.environment}
        where, temporary = os.getcwd(), tempfile.tempdir
        self._opened = self._opened or Opened([path for path in self._watched if path != self.temporary])
        self._opened.names()
        before = self._state(folder, own)
        self._opened.names()
        os.environ.update(self.environment)
        os.chdir(self.here)
        tempfile.tempdir = None
        sys.path.insert(0, str(self.code))
        try:
            yield
        finally:
            os.chdir(where)
            tempfile.tempdir = temporary
            for name, value in old.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            sys.path.remove(str(self.code))
        self._check(folder, own, before, opened)

    def _check(self, folder: Path, own: set[str], before: Any, opened: bool) -> None:
        heard, self.listener.heard[:] = list(self.listener.heard), []
        if (self.at / "ran").exists():
            (self.at / "ran").unlink()
            sys.modules.pop("hostile_module", None)
            raise Ran("a module was imported")
        assert self._opened is not None
        touched, after = self._opened.names(), self._state(folder, own)
        if heard:
            raise Asked(repr(heard[0][:200]))
        if touched and opened:
            raise Touched(", ".join(touched[:5]))
        if after != before:
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            raise Touched(f"changed: {changed[:5]}")

    def _state(self, folder: Path, own: set[str]) -> dict[str, Any]:
        """Names, sizes, times and bytes of all files outside of the table."""
        found: dict[str, Any] = {}
        for watched in self._watched:
            for path in watched.rglob("*"):
                status = path.lstat()
                content = path.read_bytes() if path.is_file() and status.st_size < 1 << 30 else b""  # holes of a TiB
                found[str(path)] = status.st_size, status.st_mtime_ns, status.st_mode, content
        found |= {str(path): None for path in folder.iterdir() if path.name not in own}
        return found | {str(path): None for path in self.at.iterdir() if path.name != "code"}


@functools.lru_cache(1)
def site_of(folder: Path) -> Site:
    return Site(folder / "hostile")


# --- files of a table -----------------------------------------------------------------------------


def files_below(root: Path) -> Files:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def lay(root: Path, files: Files) -> None:
    """Make a folder hold these files, and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def link(site: Site, root: Path) -> None:
    """Links in a table's folder that lead out of it."""
    (root / "link").symlink_to(site.victim)
    (root / "linked.parquet").symlink_to(site.victim / "x.parquet")


@contextmanager
def same_names(number: int) -> Iterator[None]:
    """Random names are the same in each worker, so that a case is its number."""
    rng = random.Random(number)
    with mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=rng.getrandbits(128), version=4)):
        yield


# --- calls ----------------------------------------------------------------------------------------


def called(name: str, rng: random.Random, columns: tuple[str, str], **more: Any) -> ParquetBloomError | None:
    """Some of a user's calls; the error of the first, if it was ours. Raises Lines, Shown, and whatever is not ours."""
    number, text = columns
    predicate = rng.choice(
        (f"{number} = 5", f"{number} > 3 AND {text} = 'a1'", f"{text} IS NULL OR {number} < 2", _IS_VICTIMS)
    )
    add = {"columns": [number], "sync": False, "threads": 1, **more}
    reading: list[Callable[[], Any]] = [
        lambda: parquet_bloom.inspect(name, **more),
        lambda: parquet_bloom.check(name, predicate, **more),
        lambda: parquet_bloom.read_table(name, predicate, **more).to_pylist(),
        lambda: parquet_bloom.read_table(name, **more).to_pylist(),
        lambda: victims(parquet_bloom.count(name, _IS_VICTIMS, **more)),
        lambda: parquet_bloom.count(name, **more),
        lambda: parquet_bloom.add_filters(name, dry_run=True, **add),
    ]
    writing: list[Callable[[], Any]] = [
        lambda: parquet_bloom.add_filters(name, commit=rng.choice((None, "new-path", "same-path")), **add),
        lambda: parquet_bloom.remove_filters(name, sync=False, dry_run=rng.random() < 0.3, **more),
    ]
    first: ParquetBloomError | None = None
    for i, call in enumerate(rng.sample(reading, 2) + (rng.sample(writing, 1) if rng.random() < 0.35 else [])):
        try:
            said = repr(call())
        except ParquetBloomError as error:
            said = str(error)
            first = first if i else error
            if "\n" in said or not said:
                raise Lines(repr(said[:300])) from error
        if found := _SHOWN.search(said):
            raise Shown(said[max(0, found.start() - 150) : found.end() + 50])
    return first


def victims(count: int) -> int:
    if count:
        raise Shown(f"{count} rows of files outside were counted")
    return count


def mostly_one(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 2, 3))
