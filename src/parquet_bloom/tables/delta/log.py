"""A Delta log: the files in _delta_log/ that make one version, and their actions, which name the live data files.

    00000000000000000010.json                       the commit of version 10
    00000000000000000010.checkpoint.parquet         all of the table at version 10
    ...10.checkpoint.0000000001.0000000003.parquet  the same in parts; whole only with all of them
    ...10.checkpoint.UUID.json, .parquet            the same, and names of further files in _sidecars/

The folder is listed; `_last_checkpoint` is a hint that nobody needs then. Source: the Delta protocol, "Delta Table
Specification", "Checkpoints", "In-Commit Timestamps", "Actions" and "Checkpoint Schema".
"""

from __future__ import annotations

import datetime as dt
import json
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import TableFormatError
from parquet_bloom.source.roots import Roots, no_plain_path
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, side_by_side, storage_error
from parquet_bloom.storage.store import Store

_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)", re.ASCII)
_LONGEST_LINE = 16 << 20  # bytes of one action; the schema of 10,000 columns has some 5 MB
_LARGEST = 1 << 30  # bytes of a file of JSON, which is read whole: some million actions
_LAST = (1 << 63) - 1  # the highest version that Delta's LONG can say
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


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
        if _URI.match(name) or name.startswith("/"):
            return self.roots.place(name, encoded=True)
        path = unquote(name)
        if path.startswith("/"):
            return self.roots.place(path)
        if (".." in path or not path.isascii() or "\0" in path) and (reason := no_plain_path(path)):
            raise TableFormatError(self.at, f"its log names {name[:200]!r}, which {reason}")
        return self.below(posixpath.join(below, path))

    def checked(self, name: str, below: str = "") -> Location:
        """The same for a file that is opened at once. Raises TableFormatError where it lies below no root too."""
        at = self.place(name, below)
        self.roots.check([at])
        return at

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
        for _ in range(2):  # a listing may miss a commit that came during it, and have the next one
            try:
                names = self.folder.store.names_in(self.folder.below("_delta_log").path)
            except Exception as error:
                raise storage_error(self.folder.below("_delta_log"), error) from error
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
            found = _modified(paths, self.folder.at.filesystem)
        except Exception as error:
            raise storage_error(self.folder.below("_delta_log"), error) from error
        times: list[int] = []
        for time in found:
            times.append(max(time, times[-1] + 1) if times else time)
        return times


def _number(text: str | None) -> int:
    """A version in the properties; what is none is the first, so that every commit must have a time of its own."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text, re.ASCII) else 0


def _modified(paths: list[str], filesystem: Any) -> list[int]:
    if filesystem is None:
        return [os.stat(path).st_mtime_ns // 10**6 for path in paths]
    return [info.mtime_ns // 10**6 for info in filesystem.get_file_info(paths)] if paths else []


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


def read_file(at: Location) -> bytes:
    """All bytes of a file of the log. Raises StorageError, TableFormatError for one that is no file of a log."""
    with OpenFile(at) as source:
        if source.size > _LARGEST:
            raise TableFormatError(
                at, f"has {source.size:,} bytes; a file of a Delta log that is read has at most {_LARGEST:,}"
            )
        return source.read(0, source.size)


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


# --- actions --------------------------------------------------------------------------------------
#
# The actions of a Delta log that tell which files live: from commits (JSON) and checkpoints (Parquet), as they stand.
#
# Source: the Delta protocol, "Actions" and "Checkpoint Schema".

_BESIDE = ("stats_parsed", "partitionValues_parsed")  # of an add in a checkpoint, the second form of others
_MOST_ROWS = 50_000_000  # of a row group of a checkpoint: a few bytes can claim any number of NULLs
_AT_ONCE = 64  # commits that are read side by side, and so are in memory together
# Of a checkpoint. Each of its parts has those that it needs: one of many transactions has `txn` alone.
_COLUMNS = {"txn", "add", "remove", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar"}


@dataclass(frozen=True, slots=True)
class Vector:
    """The deletion vector of a file: how it is stored, where, and how many rows it deletes."""

    kind: str
    text: str
    offset: int | None
    size: int
    rows: int

    @property
    def id(self) -> str:
        """Its name in the log: with the path it identifies one state of a file."""
        return f"{self.kind}{self.text}" + ("" if self.offset is None else f"@{self.offset}")


@dataclass(frozen=True, slots=True)
class Add:
    """An add action, as the log has it.

    path       URL-encoded
    stats      JSON text; None: only `parsed`, or none at all
    parsed     the same as columns of a checkpoint had it
    modified   when its rows came, ms since 1970
    others     fields that only say something to their writers, by their names, those that are set
    """

    path: str
    values: Mapping[str, str | None]
    size: int
    stats: str | None = None
    parsed: Mapping[str, Any] | None = None
    vector: Vector | None = None
    modified: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Actions:
    """The actions of one commit, or of a part of a checkpoint.

    removed   (path, vector's id or None) of remove actions
    sidecars  names of further files of a checkpoint
    info      what a commit says of itself
    """

    adds: list[Add] = field(default_factory=list)
    removed: list[tuple[str, str | None]] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def take(self, action: Mapping[str, Any]) -> None:
        """Add one action. Raises KeyError, TypeError, ValueError for one that is none."""
        if (add := action.get("add")) is not None:
            self.adds.append(_add(add))
        if (remove := action.get("remove")) is not None:
            vector = _vector(remove.get("deletionVector"))
            self.removed.append((str(remove["path"]), None if vector is None else vector.id))
        if isinstance(info := action.get("commitInfo"), dict):
            self.info = info
        if (sidecar := action.get("sidecar")) is not None:
            self.sidecars.append(str(sidecar["path"]))
        if (protocol := action.get("protocol")) is not None:
            versions = {name: _count(protocol[name]) for name in ("minReaderVersion", "minWriterVersion")}
            self.protocol = {**protocol, **versions}
            for name in ("readerFeatures", "writerFeatures"):
                self.protocol[name] = [str(feature) for feature in protocol.get(name) or ()]
        if (metadata := action.get("metaData")) is not None:
            self.metadata = {
                **metadata,
                "schemaString": str(metadata["schemaString"]),
                "configuration": _map(metadata.get("configuration")),
            }


def _count(value: Any) -> int:
    """A number of bytes, rows or versions. Raises ValueError for one that Delta's LONG cannot say, or below 0."""
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError("a number beyond 63 bits")
    return number


def _map(value: Any) -> dict[str, Any]:
    """A map as JSON has it, or as pairs, as pyarrow reads it from Parquet."""
    return dict(value or ())


def _vector(value: Any) -> Vector | None:
    if value is None:
        return None
    offset = value.get("offset")
    kind, text = str(value["storageType"]), str(value["pathOrInlineDv"])
    return Vector(
        kind,
        text,
        None if offset is None else _count(offset),
        _count(value["sizeInBytes"]),
        _count(value["cardinality"]),
    )


def _add(value: Mapping[str, Any]) -> Add:
    own = {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "deletionVector", *_BESIDE}
    others = {name: found for name, found in value.items() if name not in own and found not in (None, {}, [])}
    values = {str(name): None if text is None else str(text) for name, text in _map(value["partitionValues"]).items()}
    vector = _vector(value.get("deletionVector"))
    return Add(
        str(value["path"]),
        values,
        _count(value["size"]),
        value.get("stats") or None,
        value.get("stats_parsed"),
        vector,
        max(-(1 << 63), min(int(value.get("modificationTime") or 0), (1 << 63) - 1)),
        others,
    )


# --- commits --------------------------------------------------------------------------------------


def read_commits(folder: TableFolder, names: Sequence[str]) -> Iterator[Actions]:
    """The actions of commits, in order. Raises StorageError, TableFormatError."""
    places = [folder.below(f"_delta_log/{name}") for name in names]
    if folder.at.is_local:  # one after the other: no more than one is in memory
        yield from (from_json(at, read_file(at)) for at in places)
        return
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        for at, data in zip(some, side_by_side(read_file, some), strict=True):
            yield from_json(at, data)


def from_json(at: Location, data: bytes) -> Actions:
    """The actions of a file of JSON, one a line. Raises TableFormatError."""
    actions = Actions()
    try:
        for line in lines_of(data):
            actions.take(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise TableFormatError(at, f"is no commit of a Delta log: {type(error).__name__}: {error}") from error
    return actions


# --- checkpoints ----------------------------------------------------------------------------------


def read_checkpoint(folder: TableFolder, names: Sequence[str]) -> Iterator[Actions]:
    """The actions of a checkpoint, part by part, with its sidecars. Raises StorageError, TableFormatError."""
    for name in names:
        at = folder.below(f"_delta_log/{name}")
        parts = [from_json(at, read_file(at))] if name.endswith(".json") else from_parquet(at)
        for part in parts:
            yield part
            for sidecar in part.sidecars:
                yield from from_parquet(folder.checked(sidecar, "_delta_log/_sidecars"))


def from_parquet(at: Location) -> Iterator[Actions]:
    """The actions of a Parquet file, by row groups. Raises StorageError, TableFormatError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with OpenFile(at) as source:
        try:
            file = pq.ParquetFile(source.arrow_file(), coerce_int96_timestamp_unit="us")  # nanoseconds end in 2262
            names = file.schema_arrow.names
            if not _COLUMNS & set(names):
                raise KeyError(f"its columns are {', '.join(names[:5])}")
            for group in range(file.num_row_groups):
                if (rows := file.metadata.row_group(group).num_rows) > _MOST_ROWS:
                    raise ValueError(f"row group {group} claims {rows:,} rows")
                yield _row_group(file, group)
        except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError) as error:
            raise TableFormatError(at, f"is no checkpoint of a Delta log: {' '.join(str(error).split())}") from error


def _row_group(file: Any, group: int) -> Actions:
    schema = file.schema_arrow
    names = set(schema.names)
    actions = Actions()
    for name in ("protocol", "metaData", "sidecar"):
        if name in names:
            column = file.read_row_group(group, columns=[name])[name]
            for value in column.filter(column.is_valid()).to_pylist():
                actions.take({name: value})
    if "add" not in names:
        return actions
    fields = schema.field("add").type.names
    column = _adds(file, group, [name for name in fields if name not in _BESIDE])
    if "stats_parsed" in fields and ("stats" not in fields or column.combine_chunks().field("stats").null_count):
        parsed = _adds(file, group, ["path", "stats_parsed"]).to_pylist()
    else:
        parsed = [None] * len(column)
    for value, beside in zip(column.to_pylist(), parsed, strict=True):
        actions.take({"add": value | {"stats_parsed": beside and beside["stats_parsed"]}})
    return actions


def _adds(file: Any, group: int, fields: Sequence[str]) -> Any:
    column = file.read_row_group(group, columns=[f"add.{name}" for name in fields])["add"]
    return column.filter(column.is_valid())


# --- replay ---------------------------------------------------------------------------------------
#
# A table at one version: the log's actions, replayed.
#
# Source: the Delta protocol, "Action Reconciliation".

_DEEPEST = 200  # deltalake 1.6.6 ends the process by a full stack at some thousands
_BRACKETS = re.compile(r"[\[\]{}]")
Key = tuple[str, str | None]  # a path, decoded, and the name of its deletion vector


@dataclass(frozen=True, slots=True)
class State:
    """A table's protocol, metadata and live files at a version.

    deep  a file, live or dead, whose statistics are nested deeper than deltalake reads without a crash; "" for none
    """

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    adds: tuple[Add, ...]
    deep: str = ""

    @property
    def identity(self) -> str:
        """The identity of the table among all that were at the same place."""
        return str(self.metadata.get("id"))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self.metadata["configuration"]
        return found


def key_of(add: Add) -> Key:
    """By what the log knows a live file."""
    return unquote(add.path), None if add.vector is None else add.vector.id


def replay(folder: TableFolder, files: Files) -> State:
    """Read the log of a version. Raises StorageError, TableFormatError."""
    live: dict[Key, Add] = {}
    protocol = metadata = None
    deep = ""
    parts: Iterable[Actions] = chain(read_checkpoint(folder, files.checkpoint), read_commits(folder, files.commits))
    for actions in parts:
        protocol = actions.protocol or protocol
        metadata = actions.metadata or metadata
        _apply(folder, live, actions)
        deep = deep or next((add.path for add in actions.adds if _is_deep(add.stats)), "")
    if protocol is None or metadata is None:
        raise TableFormatError(folder.at, f"its log has no protocol or no schema at version {files.version}")
    twice = [path for path, n in Counter(path for path, _ in live).items() if n > 1]
    if twice:
        raise TableFormatError(folder.at, f"its log has {twice[0]} twice, with two deletion vectors")
    return State(files.version, protocol, metadata, tuple(live.values()), deep)


def _is_deep(stats: object) -> bool:
    """Whether JSON may be nested deeper than any schema is; texts in it count as if they were brackets."""
    if not isinstance(stats, str):  # a line of JSON may have anything there
        return False
    if stats.count("[") + stats.count("{") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(stats):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEPEST:
            return True
    return False


def _apply(folder: TableFolder, live: dict[Key, Add], actions: Actions) -> None:
    removed = {(unquote(path), vector) for path, vector in actions.removed}
    for key in removed:
        live.pop(key, None)
    for add in actions.adds:
        key = key_of(add)
        if key in removed:
            raise TableFormatError(folder.at, f"one commit adds and removes {add.path}: nobody can tell if it lives")
        live[key] = add
