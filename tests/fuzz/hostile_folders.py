"""Folders that lie: where a file or a folder of a program is expected there is a link, a FIFO, a device, or too much.

Indexes of both kinds, data folders, and the folders of Delta, Iceberg and DuckLake tables; changed in one to three
places, and then called as a user would. Found is what hostile_site names, and besides

    Late      calls that take longer than SECONDS, or wait for WAITED
    Removed   a file of others in the folder that is gone, or another
    Lost      a row that a search does not find
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import hostile_logs
import pyarrow as pa
import pyarrow.parquet as pq
from hostile_site import (
    FIRST,
    Asked,
    Files,
    Lines,
    Opened,
    Seen,
    Site,
    Touched,
    called,
    files_below,
    lay,
    mostly_one,
    site_of,
)
from support.commands import in_this_process

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError

SECONDS, WAITED = 5.0, 20.0  # of all calls of a case: on the processor, and waiting for other than that
_SPARSE, _HUGE = 1 << 40, 4 << 20  # bytes
_EQUAL_ROWS = 100_000
_LOGS = ("-wal", "-journal", "-shm", ".wal")  # that SQLite and DuckDB have beside a file
_ZERO = os.makedev(1, 5)
_STALE = ".letter.host-1-01234567.parquet-bloom"  # as of a run that was killed
_ASKS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}


class Late(Seen):
    """A call waits, or takes too long."""


class Removed(Seen):
    """A file of others in the folder is gone or has other bytes."""


class Lost(Seen):
    """A row is not found."""


# --- what surrounds a folder ----------------------------------------------------------------------


def _outside(site: Site) -> Path:
    """A folder beside it, with names that an index and a log have too; links lead here."""
    folder = site.neighbour(site.at / "outside")
    if not (folder / _STALE).exists():
        for name in (
            "letter", "0-00000", "journal", "0123456789abcdef/files.parquet", "0123456789abcdef-00000.parquet",
            "0/0123456789abcdef-00000.parquet", _STALE, "id/bloomfilter.lance",
        ):  # fmt: skip
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("precious")
    shutil.rmtree(folder / "moved", ignore_errors=True)
    (folder / "moved").mkdir()
    return folder


@functools.lru_cache(1)
def _requests() -> list[str]:
    """Requests of this process, as Python's audit hook reports them."""
    made: list[str] = []
    sys.addaudithook(lambda event, arguments: made.append(f"{event} {arguments[1:]!r}") if event in _ASKS else None)
    return made


def _queued() -> float:
    """Seconds in which threads of this process were ready to run, and the processor had others to run."""
    seconds = 0.0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            seconds += int((task / "schedstat").read_text().split()[1]) / 1e9
    return seconds


@contextmanager
def _in_time() -> Iterator[None]:
    since, busy_since, queued_since = time.monotonic(), time.process_time(), _queued()

    def late(*_: object) -> None:
        busy = time.process_time() - busy_since
        waited = time.monotonic() - since - (_queued() - queued_since)
        if busy >= SECONDS or waited >= WAITED:
            raise Late(f"after {waited:.1f} s, {busy:.1f} of them of the processor")

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _run(
    site: Site, root: Path, foreign: Files, call: Callable[[], ParquetBloomError | None],
    opened: bool = True, catalog: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Calls over a folder. Raises a kind of Seen, or the error of the first call.

    foreign  files of others in it, which stay
    catalog  names of a catalog beside it
    opened  whether a file outside that is opened counts, or only one that is changed
    """
    outside, requests = site.at / "outside", _requests()
    folders = [outside, *(path for path in outside.rglob("*") if _is_folder(path))]
    with site.watched(root.parent, {root.name, *catalog}, opened), Opened(folders) as watch:
        requests.clear()
        with _in_time():
            refused = call()
        if requests:
            raise Asked(requests[0][:200])
        if opened and (touched := watch.names()):
            raise Touched(", ".join(touched[:5]))
    for name, data in foreign.items():
        if not (root / name).is_file() or (root / name).read_bytes() != data:
            raise Removed(name)
    if refused is not None:
        raise refused


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


# --- what is changed in a folder ------------------------------------------------------------------


def _below(root: Path) -> list[str]:
    """Names of what is in a folder; links are not followed."""
    found = []
    for at, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(at, name), root) for name in (*folders, *files)]
    return sorted(found)


def _take(path: Path) -> None:
    """Remove whatever has a name, a link itself and not its target; make the folders above it."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path) if _is_folder(path) else path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)


def _moved(path: Path, outside: Path) -> Path:
    """Where outside that lies now which had the name; nothing has it any more."""
    to = outside / "moved" / path.name
    with suppress(FileNotFoundError):
        path.rename(to)
    path.parent.mkdir(parents=True, exist_ok=True)
    return to


def _linked(path: Path, outside: Path, rng: random.Random) -> None:
    """A link to the same content outside, to a folder or a file of others, to nothing, in circles, to a device."""
    if rng.random() < 0.5:
        path.symlink_to(_moved(path, outside))
        return
    _link_to_others(path, outside, rng)


def _link_to_others(path: Path, outside: Path, rng: random.Random) -> None:
    _take(path)
    to = (outside, outside / "letter", outside / "made", path.name, ".", "..", "/dev/zero")
    path.symlink_to(rng.choice(to))


def _hard(path: Path, outside: Path, _: random.Random) -> None:
    """A second name of a file outside: who writes into the file itself changes that one."""
    if path.is_file():
        os.link(_moved(path, outside), path)


def _special(path: Path, _: Path, rng: random.Random) -> None:
    """A FIFO that nobody writes to, a device without an end, a socket."""
    what = rng.randrange(3)
    _take(path)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, _ZERO)
        except PermissionError:  # only root makes devices
            path.symlink_to("/dev/zero")
    else:
        os.mknod(path, 0o600 | stat.S_IFSOCK)


def _large(path: Path, _: Path, rng: random.Random) -> None:
    """A TiB of holes, alone or behind what is there; or the same over and over."""
    data = path.read_bytes() if path.is_file() and path.stat().st_size < _HUGE else b'{"add": {}}\n'
    what = rng.randrange(4)
    _take(path)
    with path.open("wb") as file:
        if what != 1:
            file.write(data)
        if what < 2:
            file.truncate(_SPARSE)
        else:
            more = data if what == 2 else b" " * len(data)
            file.write(more * (_HUGE // max(1, len(more))))


def _other_kind(path: Path, outside: Path, rng: random.Random) -> None:
    """A folder in the place of a file or the other way round; folders in folders; very many names."""
    what, was_file = rng.randrange(4), path.is_file()
    _take(path)
    if what == 0:
        (path / "/".join("d" * 200)).mkdir(parents=True)
    elif what == 1:
        path.mkdir()
        for i in range(2000):
            (path / f"{i}.parquet").touch()
    elif was_file:
        path.mkdir()
        (path / "link").symlink_to(outside)
    else:
        path.write_bytes(b"")


_Change = Callable[[Path, Path, random.Random], None]
_CHANGES: list[_Change] = [*[_linked] * 6, *[_special] * 4, _hard, *[_large] * 2, *[_other_kind] * 2]


def _change(
    site: Site, root: Path, names: tuple[str, ...], rng: random.Random, changes: list[_Change] = _CHANGES
) -> None:
    """Change what is there, or make one of these names."""
    outside = _outside(site)
    for _ in range(mostly_one(rng)):
        with suppress(OSError, shutil.Error):
            name = rng.choice(names) if rng.random() < 0.4 else rng.choice(_below(root) or list(names))
            rng.choice(changes)(root / name, outside, rng)


_FOREIGN = (
    "notes.txt", "a.parquet-bloom", "build/Makefile", "build/dist/app.tar", "segments/mine/list.csv",
    "segments/letters", "columns/doric/photo-1.jpg", "columns/0/notes.txt", "columns/0/0123456789abcdef-1.txt",
    "id/notes.txt",
)  # fmt: skip


def _foreign(root: Path, rng: random.Random) -> Files:
    """Files of others that are put into the folder; none through a link."""
    put: Files = {}
    for name in rng.sample(_FOREIGN, rng.randrange(1, 5)):
        path = root / name
        above = [one for one in path.parents if one.is_relative_to(root)]
        if any(os.path.lexists(one) and not _is_folder(one) for one in above) or os.path.lexists(path):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"precious")
        put[name] = b"precious"
    return put


# --- indexes --------------------------------------------------------------------------------------


@functools.lru_cache(1)
def _indexes(site: Site) -> tuple[Path, Path, Files, Files]:
    """Data files, of which no index knows the last: (their folder, that of indexes, a key index, zone indexes)."""
    from parquet_bloom.lance import build_index

    _outside(site)
    data, at = site.at / "data-of-indexes", site.at / "indexes"
    for folder in (data, at):
        folder.mkdir()
    for i in (0, 1, 2, 9):
        if i == 9:
            parquet_bloom.build_index(data, ["id", "name"], at / "key")
            build_index(data, ["id"], at / "zone", items=10, probability=0.1, sync=False)
        ids = range(100 * i, 100 * i + 100)
        pq.write_table(pa.table({"id": ids, "name": [f"n{one}" for one in ids]}), data / f"{i}.parquet")
    return data, at, files_below(at / "key"), files_below(at / "zone")


_KEY_NAMES = (
    "build", "build/journal", "lock", "segments", "columns", "columns/0", "columns/1", "manifest.json", "keys", "zones",
    ".manifest.json.host-1-01234567.parquet-bloom", "build/0-00000",
)  # fmt: skip
_ZONE_NAMES = (
    "id", "id/bloomfilter.lance", ".id.host-1-01234567.parquet-bloom", "id/.bloomfilter.lance.1-01234567.parquet-bloom",
)  # fmt: skip


def _one(count: int) -> None:
    if count != 1:
        raise Lost(f"{count} rows, and one has the key")


def _command(*words: str) -> None:
    """A command; its errors are one line. Raises Lines."""
    done = in_this_process(*words)
    lines = done.stderr.strip().splitlines()
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr or (done.returncode == 2 and not lines):
        raise Lines(f"{words[:2]} {done.returncode}: {done.stderr[-300:]}")


def _some(calls: list[Callable[[], Any]]) -> ParquetBloomError | None:
    """Call one after the other; the first error that is ours. Raises Lines, and what is not ours."""
    first: ParquetBloomError | None = None
    for call in calls:
        try:
            call()
        except ParquetBloomError as error:
            first = first or error
            if "\n" in str(error) or not str(error):
                raise Lines(repr(str(error)[:300])) from error
    return first


def run_key_index(data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    source, at, files, _ = _indexes(site)
    root = at / "key"
    bare = rng.random() < 0.1
    lay(root, {} if bare else files)
    root.mkdir(exist_ok=True)
    if not bare:
        _change(site, root, _KEY_NAMES, rng)
    foreign = _foreign(root, rng) if bare or rng.random() < 0.3 else {}
    key, strict = rng.choice((5, 150, 950)), rng.random() < 0.3
    reading: list[Callable[[], Any]] = [
        lambda: _one(parquet_bloom.count(source, f"id = {key}", index=root, strict_index=strict)),
        lambda: _one(parquet_bloom.read_table(source, f"name = 'n{key}'", index=root).num_rows),
        lambda: parquet_bloom.check(source, f"id = {key}", index=root),
        lambda: _one(parquet_bloom.locate(source, "id", [key], index=root, verify=True).num_rows),
        lambda: _command("index", "inspect", str(root)),
        lambda: _command("index", "verify", str(root), str(source)),
    ]
    writing: list[Callable[[], Any]] = [
        lambda: parquet_bloom.update_index(root, source),
        lambda: parquet_bloom.rebuild_index(root, source),
        lambda: parquet_bloom.build_index(source, ["id", "name"], root, overwrite=rng.random() < 0.7),
    ]
    calls = [*rng.sample(reading, 1), *rng.sample(writing, rng.choice((0, 1, 1, 2))), *rng.sample(reading, 1)]
    _run(site, root, foreign, lambda: _some(calls))


def run_zone_index(data: bytes, folder: Path) -> None:
    from parquet_bloom import lance

    site, rng = site_of(folder), random.Random(int(data))
    source, at, _, files = _indexes(site)
    root = at / "zone"
    bare = rng.random() < 0.1
    lay(root, {} if bare else files)
    root.mkdir(exist_ok=True)
    if not bare:
        _change(site, root, _ZONE_NAMES, rng)
    foreign = _foreign(root, rng) if bare or rng.random() < 0.3 else {}
    key = rng.choice((5, 150, 950))
    more = {"items": 10, "probability": 0.1, "sync": False}
    reading: list[Callable[[], Any]] = [
        lambda: _one(parquet_bloom.count(source, f"id = {key}", index=root)),
        lambda: lance.query_index(root, f"id = {key}", column="id", type="int64"),
        lambda: lance.verify_index(root, source),
        lambda: _command("index", "inspect", str(root)),
    ]
    calls = rng.sample(reading, 1)
    if rng.random() < 0.6:
        calls.append(lambda: lance.build_index(source, ["id"], root, overwrite=rng.random() < 0.7, **more))
    calls += rng.sample(reading, 1)
    _run(site, root, foreign, lambda: _some(calls))


# --- data -----------------------------------------------------------------------------------------


@functools.lru_cache(1)
def _data(site: Site) -> Files:
    root = site.at / "plain" / "data"
    _outside(site)
    for i, name in enumerate(("a.parquet", "b.parquet", "p=1/c.parquet")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        ids = range(10 * i, 10 * i + 10)
        pq.write_table(pa.table({"id": ids, "name": [f"a{one % 3}" for one in ids]}), root / name)
    return files_below(root)


def _link_to_file(path: Path, outside: Path, rng: random.Random) -> None:
    _take(path)
    path.symlink_to(rng.choice((outside / "letter", outside / "made", path.name, "/dev/zero")))


# A link to a Parquet file is followed in such a folder: what it leads to gets the filters.
_OF_DATA = [one for one in _CHANGES if one not in (_linked, _other_kind)] + [_link_to_file] * 4


def run_data(data: bytes, folder: Path) -> None:
    """A folder without a log. What lies outside is not changed."""
    site, rng = site_of(folder), random.Random(int(data))
    files = _data(site)
    root = site.at / "plain" / "data"
    lay(root, files)
    _change(site, root, ("c.parquet", "p=2", ".a.parquet.host-1-01234567.parquet-bloom", "_metadata"), rng, _OF_DATA)
    (site.at / "outside" / _STALE).unlink()  # beside a target of a link it would go
    foreign = _foreign(root, rng) if rng.random() < 0.3 else {}
    add = {"columns": ["id"], "sync": False, "threads": 1, "in_place": True}
    calls: list[Callable[[], Any]] = [
        lambda: parquet_bloom.count(root, "id = 5"),
        lambda: parquet_bloom.read_table(root, f"id >= {FIRST}"),
        lambda: parquet_bloom.check(root, "id = 5"),
        lambda: parquet_bloom.inspect(root),
        lambda: _command("status", str(root)),
        lambda: parquet_bloom.add_filters(root, **add, placement=rng.choice((None, "tail"))),
        lambda: parquet_bloom.remove_filters(root, sync=False, in_place=True),
    ]
    _run(site, root, foreign, lambda: _some(rng.sample(calls, 3)), opened=False)


# --- tables ---------------------------------------------------------------------------------------


def run_delta(data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    _outside(site)
    root = site.at / "delta" / "t"
    lay(root, rng.choice(hostile_logs.delta_tables(site)))
    log = "_delta_log"
    names = (log, f"{log}/_last_checkpoint", f"{log}/{3:020d}.json", f"{log}/_sidecars", f"{log}/{1:020d}.crc")
    _change(site, root, (*names, "c.parquet", "mine.bin"), rng)
    _run(site, root, {}, lambda: called(f"delta:{root}", rng, ("id", "name")))


def _relative(metadata: Path, rng: random.Random) -> None:
    """A table that lies below nothing but the caller's working folder."""
    path = sorted(metadata.glob("*.metadata.json"))[-1]
    document = json.loads(path.read_text())
    place = rng.choice(("rel/loc", "loc", "./loc", "file:loc", "file://loc"))
    if rng.random() < 0.6:
        document["location"] = place
    else:
        document.setdefault("properties", {})[rng.choice(("write.data.path", "write.metadata.path"))] = place
    path.write_text(json.dumps(document))


def run_iceberg(data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    _outside(site)
    properties, table = hostile_logs.lay_iceberg(site)
    if rng.random() < 0.2:
        _relative(table / "metadata", rng)
    else:
        _change(site, table, ("metadata", "data", "metadata/version-hint.text"), rng)
    more = {"catalog_properties": properties}
    _run(site, table, {}, lambda: called("iceberg:cat/ns.t", rng, ("id", "name"), **more))


def run_ducklake(data: bytes, folder: Path) -> None:
    """A catalog of SQLite or DuckDB: its folder of data, itself, and the files that its program has beside it."""
    site, rng = site_of(folder), random.Random(int(data))
    _outside(site)
    catalog, columns = hostile_logs.lay_lake(site, rng.random() < 0.8)
    what = rng.random()
    if what < 0.03:
        _equal_rows(catalog, rng.choice(columns)[0])
    elif what < 0.6:
        _change(site, catalog.parent / "data", ("main", "main/t"), rng)
    else:
        path = catalog.with_name(catalog.name + rng.choice((*_LOGS, "")))
        if path != catalog or rng.random() < 0.3:
            with suppress(OSError, shutil.Error):
                rng.choice((_special, _large, _other_kind))(path, site.at / "outside", rng)
    own = tuple(catalog.name + end for end in ("", *_LOGS))
    folder = catalog.parent / "data"
    _run(site, folder, {}, lambda: called(f"ducklake:{catalog}/main.t", rng, ("id", "k")), catalog=own)


def _equal_rows(catalog: Path, table: str) -> None:
    counted = f"range({_EQUAL_ROWS})"
    if catalog.suffix == ".sqlite":
        numbers = f"SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {_EQUAL_ROWS}"
        counted = f"(WITH RECURSIVE c(n) AS ({numbers}) SELECT n FROM c)"
    with closing(hostile_logs.connected(catalog)) as connection:  # a table of its own has no constraints
        connection.execute(f'CREATE TABLE other AS SELECT * FROM "{table}"')
        connection.execute(f'DROP TABLE "{table}"')
        connection.execute(f'ALTER TABLE other RENAME TO "{table}"')
        connection.execute(f'CREATE TEMP TABLE first AS SELECT * FROM "{table}" LIMIT 1')
        connection.execute(f'INSERT INTO "{table}" SELECT first.* FROM first, {counted}')
