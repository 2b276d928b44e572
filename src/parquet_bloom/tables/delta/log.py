"""A Delta log: the files in _delta_log/ that make one version, by their names.

    00000000000000000010.json                       the commit of version 10
    00000000000000000010.checkpoint.parquet         all of the table at version 10
    ...10.checkpoint.0000000001.0000000003.parquet  the same in parts; whole only with all of them
    ...10.checkpoint.UUID.json, .parquet            the same, and names of further files in _sidecars/

The folder is listed; `_last_checkpoint` is a hint that nobody needs then. Source: the Delta protocol, "Delta Table
Specification", "Checkpoints" and "In-Commit Timestamps".
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import posixpath
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from parquet_bloom.errors import StorageError, TableFormatError
from parquet_bloom.source.roots import Roots, no_plain_path
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.store import Store, opened_location

_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)", re.ASCII)
_LONGEST_LINE = 16 << 20  # bytes of one action; the schema of 10,000 columns has some 5 MB
_LARGEST = 1 << 30  # bytes of a file of JSON, which is read whole: some million actions
_LINK = "is a link; a log is read from files in the table's folder alone"
_LAST = (1 << 63) - 1  # the highest version that Delta's LONG can say
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NOT_PLAIN = re.compile(r"[%\0]|[^\0-\x7f]|\.\.|:/|^/|^$")


def is_plain(name: str) -> bool:
    """Whether a name in the log is the path below the table's folder as it stands."""
    return _NOT_PLAIN.search(name) is None


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table's folder, and how names in its log become places.

    at      the folder
    store   its file system
    roots   below which absolute names may lie
    """

    at: Location
    store: Store
    roots: Roots

    def place(self, name: str, below: str = "") -> Location:
        """The file of a name in the log: URL-encoded, below the table's folder (or one in it) or absolute.

        Raises TableFormatError for a name that leads upwards, or to another storage. Whether an absolute one lies
        below a root is not looked at: see `checked`.
        """
        if name.startswith("/") or (":/" in name and _URI.match(name)):
            return self.roots.place(name, encoded=True)
        path = unquote(name)
        if path.startswith("/"):
            return self.roots.place(path)
        if (".." in path or not path.isascii() or "\0" in path) and (reason := no_plain_path(path)):
            raise TableFormatError(self.at, f"its log names {name[:200]!r}, which {reason}")
        return self.below(posixpath.join(below, path) if below else path)

    def checked(self, name: str, below: str = "") -> Location:
        """The same for a file that is opened at once. Raises TableFormatError where it lies below no root too."""
        at = self.place(name, below)
        self.roots.check([at])
        return at

    @property
    def shows_paths(self) -> bool:
        """Whether people are shown the paths of files as they are: on this machine."""
        store = self.store
        return store.is_local and not (store.base or store.root or store.quoted)

    def below(self, path: str) -> Location:
        """A path below the table's folder."""
        return self.store.location(posixpath.join(self.at.path, path))

    def relative(self, at: Location) -> str | None:
        """The path of a place below the table's folder; None: it lies elsewhere."""
        root = self.at.path.rstrip("/") + "/"
        rest = at.path.removeprefix(root)
        return None if rest == at.path or ".." in rest.split("/") else rest


@dataclass(frozen=True, slots=True)
class Files:
    """The names that make a version: a checkpoint, if there is one, and the commits after it, in order."""

    version: int
    checkpoint: tuple[str, ...]
    commits: tuple[str, ...]


class LogFiles:
    """The names in a table's log as one listing found them."""

    def __init__(self, folder: TableFolder) -> None:
        """List the log. Raises StorageError, TableFormatError where it is none."""
        self.folder = folder
        self._list()
        if not self._commits and not self._checkpoints:
            raise TableFormatError(folder.at, "is no Delta table: no log lies in its _delta_log")

    def _list(self) -> None:
        at = self.folder.below("_delta_log")
        if at.is_local and os.path.islink(at.path):
            raise TableFormatError(at, _LINK)
        for _ in range(2):  # a listing may miss a commit that came during it, and have the next one
            try:
                names = self.folder.store.names_in(at.path)
            except Exception as error:
                raise storage_error(at, error) from error
            named = ((int(found[1]), name) for name in names if (found := _COMMIT.fullmatch(name)))
            self._commits = {version: name for version, name in named if version <= _LAST}
            self._checkpoints = {version: parts for version, parts in _whole(names).items() if version <= _LAST}
            if not self._commits or len(self._commits) == max(self._commits) - min(self._commits) + 1:
                return

    @property
    def latest(self) -> int:
        """The table's latest version."""
        return max([*self._commits, *self._checkpoints])

    def of(self, version: int) -> Files:
        """The names that make a version. Raises TableFormatError where the log does not reach it."""
        if version > self.latest:
            raise TableFormatError(self.folder.at, f"has no version {version}; the latest is {self.latest}")
        first = max((v for v in self._checkpoints if v <= version), default=-1)
        commits = tuple(name for _, name in self._between(first + 1, version, f"version {version} cannot be read: "))
        return Files(version, self._checkpoints.get(first, ()), commits)

    def since_the_beginning(self, version: int) -> Files:
        """The names that make a version, from the oldest state on that can be read: as `of`, with more commits."""
        first = version
        while first in self._commits:
            first -= 1
        base = min((v for v in self._checkpoints if first <= v <= version), default=-1)
        if first >= 0 and base < 0:
            return self.of(version)  # whose error says what is missing
        base = -1 if first < 0 else base
        commits = tuple(self._commits[v] for v in range(base + 1, version + 1))
        return Files(version, self._checkpoints.get(base, ()), commits)

    def commits_after(self, version: int) -> list[tuple[int, str]]:
        """(version, name) of all commits after a version. Raises TableFormatError where one is missing."""
        return self._between(version + 1, self.latest)

    def _between(self, first: int, last: int, head: str = "") -> list[tuple[int, str]]:
        """(version, name) of commits that follow each other. The first that is missing ends it: names may lie."""
        found = []
        for version in range(first, last + 1):
            if version not in self._commits:
                raise TableFormatError(self.folder.at, f"{head}the log has no commit {version} any more")
            found.append((version, self._commits[version]))
        return found

    def at_time(self, when: dt.datetime, configuration: Callable[[], dict[str, str]]) -> int:
        """The latest version that was committed at or before a time, which has a zone.

        configuration  gives the table's properties: they say since when commits hold their own times
        Raises TableFormatError where the log begins later.
        """
        wanted = (when - _EPOCH) // dt.timedelta(milliseconds=1)
        properties = configuration()
        known = sorted(self._commits)
        if properties.get("delta.enableInCommitTimestamps", "").lower() == "true":
            since = _number(properties.get("delta.inCommitTimestampEnablementVersion"))
            inside = [version for version in known if version >= since]
            found = self._by_own_times(inside, wanted)
            if found is not None:
                return found
            known = [version for version in known if version < since]
        times = self._written(known)
        fitting = [version for version, time in zip(known, times, strict=True) if time <= wanted]
        if not fitting:
            raise TableFormatError(self.folder.at, f"its log has no version of {when.isoformat()} or before")
        return fitting[-1]

    def _by_own_times(self, versions: list[int], wanted: int) -> int | None:
        """The last of versions whose commit says a time at or before the wanted one; the times only grow."""
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self._own_time(versions[middle]) <= wanted:
                low = middle + 1
            else:
                high = middle
        return versions[low - 1] if low else None

    def _own_time(self, version: int) -> int:
        at = self.folder.below(f"_delta_log/{self._commits[version]}")
        try:
            for line in lines_of(read_file(at)):
                info = json.loads(line).get("commitInfo")
                if info is not None and "inCommitTimestamp" in info:
                    return int(info["inCommitTimestamp"])
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise TableFormatError(at, f"is no commit of a Delta log: {error}") from error
        raise TableFormatError(at, "does not hold its own time, which the table's properties promise")

    def _written(self, versions: list[int]) -> list[int]:
        """When commits were written, in ms: the times of files, put right where a clock went back, as Delta does."""
        paths = [self.folder.below(f"_delta_log/{self._commits[version]}").path for version in versions]
        try:
            found = self.folder.store.modified(paths)
        except Exception as error:
            raise storage_error(self.folder.below("_delta_log"), error) from error
        times: list[int] = []
        for time in found:
            times.append(max(time, times[-1] + 1) if times else time)
        return times


def _number(text: str | None) -> int:
    """A version in the properties; what is none is the first, so that every commit must have a time of its own."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text, re.ASCII) else 0


def _whole(names: list[str]) -> dict[int, tuple[str, ...]]:
    """Version -> the names of one whole checkpoint; one file is preferred to parts, parts to sidecars."""
    found: dict[int, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
    parts: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is None:
            continue
        version, part, of, uuid, kind = int(match[1]), match[2], match[3], match[4], match[5]
        if part is not None and kind == "parquet":
            parts[version, int(of)][int(part)] = name
        elif uuid is not None:
            found[version].append((2, (name,)))
        elif part is None and kind == "parquet":
            found[version].append((0, (name,)))
    for (version, n), numbered in parts.items():
        if len(numbered) == n and all(1 <= part <= n for part in numbered):
            found[version].append((1, tuple(numbered[i] for i in range(1, n + 1))))
    return {version: min(choices)[1] for version, choices in found.items()}


def opened(at: Location) -> OpenFile:
    """A file of the log, open. Raises StorageError; TableFormatError for a local link, as it leads out of the table."""
    if not at.is_local:
        return OpenFile(at)
    try:
        fd = os.open(at.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TableFormatError(at, _LINK) from error
        raise storage_error(at, error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StorageError(at, "is not a regular file")
    return OpenFile(opened_location(at.path, fd, at.shown))


def read_file(at: Location) -> bytes:
    """All bytes of a file of the log. Raises StorageError, TableFormatError for one that is no file of a log."""
    with opened(at) as source:
        _check_size(at, source.size)
        return source.read(0, source.size)


def _check_size(at: Location, size: int) -> None:
    if size > _LARGEST:
        raise TableFormatError(at, f"has {size:,} bytes; a file of a Delta log that is read has at most {_LARGEST:,}")


def check_all(folder: TableFolder) -> None:
    """Check each file of a local log before another program reads it: hints and checksums too, which we never open.

    Raises StorageError, TableFormatError as `read_file`; a pipe would have that program wait, and holes take memory.
    """
    log = folder.below("_delta_log")
    if not log.is_local:
        return
    found = []
    try:
        with os.scandir(log.path) as entries:
            for one in entries:
                with suppress(FileNotFoundError):  # another commit's temporary file, which is gone by now
                    found.append((folder.below(f"_delta_log/{one.name}"), one.stat(follow_symlinks=False)))
    except OSError as error:
        raise storage_error(log, error) from error
    for at, status in found:
        if stat.S_ISLNK(status.st_mode):
            raise TableFormatError(at, _LINK)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise StorageError(at, "is not a regular file")
        _check_size(at, status.st_size)


def lines_of(data: bytes) -> Iterator[bytes]:
    """The lines that are not blank. Raises ValueError for one that no action needs: it would take gigabytes."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if end - start > _LONGEST_LINE:
            raise ValueError(f"a line of {end - start:,} bytes")
        line = data[start:end].strip()
        if line:
            yield line
        start = end + 1
