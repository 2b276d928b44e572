"""A Delta table: reads its log, and commits to it."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import ConflictError, DamagedFileError, FilterFormatError, RequestError, TableFormatError
from parquet_bloom.source.adapters import KeptStates, proof_of
from parquet_bloom.source.columns import identities
from parquet_bloom.source.history import FilterCommit, History, Identities, Version, filter_commit
from parquet_bloom.source.names import ORDINARY, TableAccess
from parquet_bloom.source.roots import Roots
from parquet_bloom.source.snapshot import (
    Change,
    CommitModes,
    FileBounds,
    LeafPath,
    Snapshot,
    TableFile,
    first_name,
    new_name,
)
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import Stores, store_of
from parquet_bloom.tables.deletion_vector import AROUND, framed, positions
from parquet_bloom.tables.delta.actions import Actions, Add, State, Vector, read_checkpoint, read_commits, replay
from parquet_bloom.tables.delta.commit import (
    check_log,
    commit,
    deltalake,
    open_delta_table,
    reencoded_paths,
    uri_and_options,
)
from parquet_bloom.tables.delta.log import Files, LogFiles, TableFolder, is_plain, opened
from parquet_bloom.tables.delta.rows import DeltaRows, check_changeable
from parquet_bloom.tables.delta.statistics import Bounds, Schema, constants_of, mended, read_schema, rows_of

# --- deletion vectors -----------------------------------------------------------------------------
#
# The deleted rows of one file of a Delta table: where its deletion vector lies, and what it says.
#
#    i  in the log itself, Z85
#    u  in deletion_vector_UUID.bin of the table's folder, or of a folder in it: "ab" + 20 characters of Z85 is ab/...
#    p  in a file with an absolute path
#
# Whatever is in doubt is an error: rows of which nobody knows whether they live are never shown. Source: the Delta
# protocol, "Deletion Vectors".

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: i for i, character in enumerate(_Z85)}
_UUID = 20  # characters of a UUID in Z85
_VERSION = b"\1"  # of files of vectors


@dataclass(frozen=True, slots=True)
class VectorDeletes:
    """A file's deletes, read when they are needed; source.snapshot.Deletes.

    file    whose rows they are
    stored  rows of that file; None: not known
    """

    folder: TableFolder
    vector: Vector
    file: Location
    stored: int | None

    @property
    def rows(self) -> int:
        """How many rows are deleted, as the log says."""
        return self.vector.rows

    def positions(self) -> NDArray[np.int64]:
        """Their positions: int64[n]. Raises StorageError, DamagedFileError where vector, log and file do not agree."""
        try:
            found = positions(self._bytes(), self.vector.rows)
        except FilterFormatError as error:
            reason = "it is not known which of its rows are deleted: " + error.message
            raise DamagedFileError(self.file, reason) from error
        if len(found) and self.stored is not None and int(found[-1]) >= self.stored:
            reason = f"its deletion vector deletes row {int(found[-1])} of {self.stored}"
            raise DamagedFileError(self.file, reason)
        return found

    def _bytes(self) -> bytes:
        vector = self.vector
        if vector.kind == "i":
            data = decode_z85(vector.text)
            if not 0 <= len(data) - vector.size < 4:
                raise FilterFormatError(
                    f"the log holds {len(data)} bytes of a deletion vector, and tells {vector.size}"
                )
            return data[: vector.size]
        if vector.offset is None or vector.offset < 1 or vector.size < 0:
            raise FilterFormatError("the log does not say where in its file the deletion vector lies")
        with OpenFile(self.place()) as source:
            if vector.offset + vector.size + AROUND > source.size:
                raise FilterFormatError(
                    f"the log has {vector.size} bytes of its deletion vector at {vector.offset} of {source.size}"
                )
            first, data = source.read_ranges([(0, 1), (vector.offset, vector.size + AROUND)])
        if first != _VERSION:
            raise FilterFormatError(f"the file of its deletion vector is of version {first[0]}; this one knows 1")
        return framed(data)

    def place(self) -> Location:
        """The file that the vector lies in. Raises FilterFormatError for a kind that is not known."""
        text = self.vector.text
        if self.vector.kind == "p":
            return self.folder.checked(text)
        if self.vector.kind != "u" or len(text) < _UUID:
            raise FilterFormatError(
                f"its deletion vector is stored as {self.vector.kind!r} {text!r}, which is not known"
            )
        name = f"deletion_vector_{uuid.UUID(bytes=decode_z85(text[-_UUID:]))}.bin"
        prefix = text[:-_UUID]
        return self.folder.checked(quote(f"{prefix}/{name}" if prefix else name))


def decode_z85(text: str) -> bytes:
    """Bytes of a text, 4 of each 5 characters (ZeroMQ RFC 32). Raises FilterFormatError."""
    if len(text) % 5:
        raise FilterFormatError(f"{len(text)} characters are no Z85")
    parts = []
    for at in range(0, len(text), 5):
        number = 0
        for character in text[at : at + 5]:
            if character not in _DIGITS:
                raise FilterFormatError(f"{character!r} is no character of Z85")
            number = number * 85 + _DIGITS[character]
        if number >> 32:
            raise FilterFormatError(f"{text[at : at + 5]!r} is more than 4 bytes of Z85")
        parts.append(number.to_bytes(4, "big"))
    return b"".join(parts)


# --- features -------------------------------------------------------------------------------------
#
# Which features a table's protocol names, and which of them this package reads.
#
# Source: the Delta protocol, "Table Features" and "Valid Feature Names in Table Features".

# Reader features that change nothing for who reads files by the log, or whose meaning is read here.
_READ = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_CATALOG = ("catalogManaged", "catalogOwned-preview")
# What versions of the protocol before features stand for.
_WRITER_OF = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def check_readable(table: object, protocol: Mapping[str, Any]) -> None:
    """Raise TableFormatError for a table with reader features that are not read here; it names them."""
    version = int(protocol["minReaderVersion"])
    if version > 3:
        raise TableFormatError(table, f"needs a reader of version {version} of the Delta protocol; this one knows 3")
    if version < 3:
        return
    named = set(protocol.get("readerFeatures") or ())
    if any(name in named for name in _CATALOG):
        reason = "is managed by a catalog, which alone knows its latest version; the log in its folder is not enough"
        raise TableFormatError(table, reason)
    if unknown := sorted(named - _READ):
        raise TableFormatError(table, f"has reader features that this version does not know: {', '.join(unknown)}")


def maps_columns(protocol: Mapping[str, Any]) -> bool:
    """Whether readers must heed column mapping: by the version of the protocol, or as a feature that it names."""
    version = int(protocol["minReaderVersion"])
    return version == 2 if version < 3 else "columnMapping" in (protocol.get("readerFeatures") or ())


def writer_features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """The features that a writer must heed: named ones, or those of its version of the protocol."""
    version = int(protocol["minWriterVersion"])
    if version >= 7:
        return frozenset(protocol.get("writerFeatures") or ())
    return frozenset(name for since, names in _WRITER_OF.items() if since <= version for name in names)


# --- commits of the past --------------------------------------------------------------------------
#
# When the files of a version came, as far back as the log reaches.
#
# A file is another one where its size is: filters may have come behind it, on the same path. One that a commit adds
# again as it was, as with a deletion vector, is still the file that it was. In a commit of ours a file takes the
# place of one whose name its own begins with: then its rows came when those did.


def read_history(folder: TableFolder, snapshot: Snapshot) -> History:
    """Read all commits up to a version that are still there. Raises StorageError, TableFormatError."""
    version, past = int(snapshot.version), _Past(identities(snapshot.fields))
    known = LogFiles(folder).since_the_beginning(version)
    base = Version(known.version - len(known.commits), "")  # "": it, or one before it
    for actions in read_checkpoint(folder, known.checkpoint):
        past.live |= {unquote(add.path): _Live(add.size, base, base) for add in actions.adds}
    for number, actions in enumerate(read_commits(folder, known.commits), base.order + 1):
        past.apply(Version(number, str(number)), actions)
    nothing = _Live(0, base, base)
    came = {file.path: past.live.get(unquote(file.entry.path), nothing) for file in snapshot.files}
    since = {path: file.since for path, file in came.items() if file.since.name}
    rows_since = {path: file.rows_since for path, file in came.items() if file.rows_since.name}
    until = {path: file.since for path, file in came.items() if file.size}
    return History(since, rows_since, until, past.commits)


class _Live(NamedTuple):
    """A live file: its size, the version with which it got that, and the one with which its rows came."""

    size: int
    since: Version
    rows_since: Version


class _Past:
    """The live files, by path, while the log is replayed."""

    def __init__(self, today: Identities) -> None:
        self._today = today
        self.live: dict[str, _Live] = {}
        self.commits: list[FilterCommit] = []

    def apply(self, version: Version, actions: Actions) -> None:
        """One commit after all before it."""
        ours = filter_commit(version, actions.info, self._today)
        added = {unquote(add.path): add.size for add in actions.adds}
        removed = {unquote(path) for path, _ in actions.removed} - added.keys()
        origins = {} if ours is None else self._origins(added, removed)
        for path in removed:
            self.live.pop(path, None)
        for path, size in added.items():
            known = self.live.get(path)
            if known is None or known.size != size:
                self.live[path] = _Live(size, version, version if ours is None else origins[path])
        if ours is not None:
            self.commits.append(ours)

    def _origins(self, added: Collection[str], removed: Collection[str]) -> dict[str, Version]:
        """For files that a commit of ours added, when their rows came; a version without a name where that is open."""
        unknown, by_name = Version(0, ""), defaultdict(list)
        for path in removed:
            by_name[first_name(path)].append(path)
        found = {}
        for path in added:
            before = [path] if path in self.live else by_name[first_name(path)]
            one = self.live.get(before[0]) if len(before) == 1 else None
            found[path] = unknown if one is None else one.rows_since
        return found


# --- new versions of files ------------------------------------------------------------------------
#
# How a file of a Delta table may get a new version: what deltalake can commit, and what the protocol asks of a
# commit.
#
# deltalake's add action has a path, a size, partition values, a time and statistics. What else an entry has would be
# lost, and with a deletion vector so would be the deletes. Source: the Delta protocol, "Add File and Remove File",
# "Row Tracking", "IcebergCompatV1"; deltalake 1.6.6 as measured.

# Writer features with which deltalake 1.6.6 commits.
_WRITTEN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
# Tags that Databricks gives every file, by which OPTIMIZE orders and sizes its work; the time of an entry says much the
# same. They do not come over.
_HINTS = frozenset({"INSERTION_TIME", "MAX_INSERTION_TIME", "MIN_INSERTION_TIME", "OPTIMIZE_TARGET_SIZE"})


def check_writable(table: object, state: State) -> None:
    """Raise TableFormatError for a table to which nothing can be committed that keeps all its promises."""
    if state.deep:
        reason = f"the statistics of {state.deep[:200]!r} are nested too deep: deltalake would end the process"
        raise TableFormatError(table, reason)
    features = writer_features(state.protocol)
    if "rowTracking" in features:
        raise TableFormatError(table, "row tracking is on: deltalake cannot carry the row ids of files over")
    if compatible := sorted(name for name in features if name.startswith("iceberg")):
        raise TableFormatError(
            table, f"{compatible[0]} is on: the table's Iceberg metadata would not follow the commit"
        )
    if unknown := sorted(features - _WRITTEN):
        raise TableFormatError(table, f"has features with which deltalake does not commit: {', '.join(unknown)}")


def commit_modes_of(folder: TableFolder, add: Add, at: Location, respelled: bool) -> CommitModes:
    """How one file may get a new version. respelled: whether deltalake would write its path otherwise than the log."""
    reason = _refusal(folder, add, at)
    if not reason and respelled:
        reason = "its path is written in a form that deltalake would change"
    return CommitModes(None, reason, reason) if reason else CommitModes("new-path")


def _lost(add: Add) -> list[str]:
    """The fields of an entry that deltalake would not write, except hints."""
    tags = {str(name) for name in dict(add.others.get("tags") or ())}
    return sorted({name for name in add.others if name != "tags"} | {f"the tag {tag}" for tag in tags - _HINTS})


def _refusal(folder: TableFolder, add: Add, at: Location) -> str:
    if add.vector is not None:
        return "rows of it are deleted by a deletion vector, which deltalake cannot carry over"
    if folder.relative(at) is None or folder.roots.no_change(at):
        return "it lies outside the table's folder, as in a shallow clone"
    if lost := _lost(add):
        return f"its entry in the log has {', '.join(lost)}, which deltalake cannot carry over"
    if add.stats is None and add.parsed is not None:
        return "its statistics are columns of a checkpoint alone, which deltalake cannot carry over"
    return ""


# --- the table ------------------------------------------------------------------------------------


def open_delta(where: str, version: str | None, filesystem: Any = None, access: TableAccess = ORDINARY) -> DeltaTable:
    """A Delta table by its folder.

    where       path or URI
    version     a number, or an ISO time (without a zone: UTC): the latest version at or before it; None: the latest
    filesystem  of pyarrow or fsspec; None: the one that `where` says
    access      what the user says of it beside its name
    Raises RequestError, StorageError.
    """
    stores = Stores(filesystem)
    store, path = stores.locate(where)
    at = store.location(path.rstrip("/") or path)
    roots = Roots(at, access, stores)
    roots.add(store, at.path)
    return DeltaTable(TableFolder(at, store, roots), _version(version), access)


def _version(text: str | None) -> int | dt.datetime | None:
    if text is None:
        return None
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"@{text} is no version of a Delta table: give a number or an ISO time") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


@dataclass(slots=True)
class _Version:
    """A version that was read: its files as they are when someone first needs them.

    folder    of the call that read it, below which deletion vectors lie
    """

    folder: TableFolder
    state: State
    snapshot: Snapshot | None = None


_VERSIONS: KeptStates[_Version] = KeptStates()


class DeltaTable:
    """A Delta table that was named; source.snapshot.Table."""

    def __init__(self, folder: TableFolder, version: int | dt.datetime | None, access: TableAccess = ORDINARY) -> None:
        self._folder = folder
        self._access = access
        self._version = version
        self._read: _Version | None = None  # the version that was read last: a version never changes
        self._respelled: dict[str, bool] = {}  # paths of the log, and whether deltalake would write them otherwise
        self._opened: tuple[int, str] | None = None  # the version that deltalake opened last, and of which table

    @property
    def name(self) -> str:
        """As it was named, without a secret."""
        return str(self._folder.at)

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        """Read the log. Raises StorageError, TableFormatError."""
        log = LogFiles(self._folder)
        version = self._version_read(log, self._number(log))
        if version.snapshot is None:
            version.snapshot = self._snapshot(version.folder, version.state)
        else:
            version.folder.roots.forget_links()
        version.folder.roots.check(version.snapshot.files)
        return version.snapshot

    def _snapshot(self, folder: TableFolder, state: State) -> Snapshot:
        schema = read_schema(self.name, state.metadata, maps_columns(state.protocol))
        return Snapshot(
            self.name,
            str(state.version),
            schema.fields,
            schema.by_id,
            self._files(folder, schema, state.adds),
            {},
            folder.at.filesystem,
            frozenset(field.name for field in schema.partition_columns),
            state.identity,
        )

    def history(self, snapshot: Snapshot) -> History:
        """When the files came, by all commits that the log still has. Raises StorageError, TableFormatError."""
        return read_history(self._folder, snapshot)

    def stated(self, snapshot: Snapshot) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        """All that the log states of a file's columns, believed or not."""
        schema = self._schema_of(snapshot)
        return lambda file: Bounds(schema, file.entry, believed=False)

    def _schema_of(self, snapshot: Snapshot) -> Schema:
        state = self._state(LogFiles(self._folder), int(snapshot.version))
        return read_schema(self.name, state.metadata, maps_columns(state.protocol))

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        """For each file's path, how it may get a new version.

        Raises TableFormatError where the whole table refuses, RequestError where deltalake is not installed, or cannot
        be given the storage, StorageError where its log may not be written to.
        """
        library = deltalake()
        uri_and_options(self._folder)
        check_log(self._folder)
        version = int(snapshot.version)
        check_writable(self.name, self._state(LogFiles(self._folder), version))
        if self._opened != (version, snapshot.identity):  # what deltalake refuses is told before any work
            open_delta_table(self._folder, version, snapshot.identity)
            self._opened = version, snapshot.identity
        unknown = [file.entry.path for file in snapshot.files if file.entry.path not in self._respelled]
        changed = reencoded_paths(library, unknown)
        self._respelled |= {path: path in changed for path in unknown}
        return {
            file.path: commit_modes_of(self._folder, file.entry, file, self._respelled[file.entry.path])
            for file in snapshot.files
        }

    def row_changes(self, snapshot: Snapshot) -> DeltaRows:
        """A change of rows of a version. Raises TableFormatError for a table that allows none; as commit_modes."""
        state = self._state(LogFiles(self._folder), int(snapshot.version))
        check_changeable(self.name, state, writer_features(state.protocol))
        check_log(self._folder)
        return DeltaRows(self._folder, snapshot, state, self._schema_of(snapshot), self.commit_modes)

    def new_location(self, file: TableFile) -> Location:
        """A path beside a file, with a new UUID behind its name."""
        folder, name = posixpath.split(file.relative)
        return self._folder.below(posixpath.join(folder, new_name(name)))

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        """Put new versions of files into the table, in one commit that changes no row; returns the new version.

        Raises ConflictError, StorageError and UnknownCommitError, which alone means that files must stay, and
        RequestError, TableFormatError as `ways`.
        """
        try:
            ways = self.commit_modes(snapshot)
            for change in changes:
                if reason := ways[change.file.path].refusal:
                    raise TableFormatError(change.file, reason)
            if any(change.truth for change in changes):
                schema = self._schema_of(snapshot)
                changes = [
                    one._replace(file=replace(one.file, entry=mended(one.file.entry, schema, one.truth)))
                    for one in changes
                ]
            return str(commit(self._folder, int(snapshot.version), snapshot.identity, changes, properties))
        except ConflictError:  # a table that was made anew has versions of the same numbers
            self._read = self._opened = None
            raise

    def _number(self, log: LogFiles) -> int:
        if self._version is None:
            return log.latest
        if isinstance(self._version, int):
            return self._version
        return log.at_time(self._version, lambda: self._state(log, log.latest).properties)

    def _state(self, log: LogFiles, version: int) -> State:
        return self._version_read(log, version).state

    def _version_read(self, log: LogFiles, version: int) -> _Version:
        if self._read is None or self._read.state.version != version:
            self._read = self._kept_or_read(log.of(version))
        return self._read

    def _kept_or_read(self, files: Files) -> _Version:
        """A version as it was read before, if its log is proved to be the same; else read now."""
        at, store = self._folder.at, self._folder.store
        key = at.path, str(at), self._access.allow_roots, self._access.force, files.version
        names = (*files.checkpoint, *files.commits)
        proof = proof_of([self._folder.below(f"_delta_log/{name}") for name in names], opened)
        if proof is not None and (kept := _VERSIONS.find(key, store, proof)) is not None:
            return kept
        state = replay(self._folder, files)
        check_readable(self.name, state.protocol)
        version = _Version(self._folder, state)
        if proof is not None and not state.sidecars:  # of these there are no tokens
            _VERSIONS.keep(key, store, proof, len(state.adds), version)
        return version

    def _files(self, folder: TableFolder, schema: Schema, adds: Sequence[Add]) -> list[TableFile]:
        shared: dict[int, dict[str, pa.Scalar]] = {}  # by id of partition values, which adds of a checkpoint share
        files = []
        as_named = folder.shows_paths
        root = folder.below("").path if as_named else ""
        for add in adds:
            constants = shared.get(id(add.values))
            if constants is None:
                shared[id(add.values)] = constants = constants_of(self.name, schema, add)
            rows, deletes = rows_of(add), None
            if as_named and is_plain(add.path) and add.vector is None:  # nearly all, in a fraction of the time
                path = shown = root + add.path
                relative = add.path
            else:
                at = self._place(folder, add)
                path, shown, relative = at.path, at.shown, folder.relative(at) or posixpath.basename(at.path)
                deletes = None if add.vector is None else VectorDeletes(folder, add.vector, at, rows)
            files.append(
                TableFile(
                    path,
                    folder.at.filesystem,
                    shown,
                    relative=relative,
                    rows=rows,
                    size=add.size,
                    constants=constants,
                    bounds=Bounds(schema, add),
                    deletes=deletes,
                    entry=add,
                )
            )
        return files

    def _place(self, folder: TableFolder, add: Add) -> Location:
        at = folder.place(add.path)
        if at.filesystem is not folder.at.filesystem and not store_of(at).same(folder.store):
            raise TableFormatError(self.name, f"its file {at} lies on another file system, which is not supported")
        return at
