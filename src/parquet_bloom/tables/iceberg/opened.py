"""An Iceberg table that was found: its snapshots in our form, and commits to it."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergLog
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from parquet_bloom.errors import TableFormatError
from parquet_bloom.kernels.split_block import MIN_BYTES
from parquet_bloom.source.adapters import KeptStates, Proof, proof_of
from parquet_bloom.source.columns import identities
from parquet_bloom.source.history import History, Version, filter_commit
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import (
    Change,
    CommitModes,
    FileBounds,
    LeafPath,
    Snapshot,
    TableFile,
    location_beside,
)
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables.iceberg.catalogs import (
    find_catalog,
    refresh,
    released,
    snapshot_of,
    split_name,
    translated_errors,
)
from parquet_bloom.tables.iceberg.commits import commit, commit_modes_of
from parquet_bloom.tables.iceberg.deletes import DeleteIndex
from parquet_bloom.tables.iceberg.entries import Entries, Entry, manifests_of, read_manifests
from parquet_bloom.tables.iceberg.evidence import FileMetrics, evidence_of, narrowest_cut, parts_of, stated_metrics
from parquet_bloom.tables.iceberg.files import Files
from parquet_bloom.tables.iceberg.row_deletes import PositionFile, RowDeletes
from parquet_bloom.tables.iceberg.rows import BLOOM, IcebergRows
from parquet_bloom.tables.iceberg.schema import Column, NameHistory, columns_of, fields_of

# --- commits of the past --------------------------------------------------------------------------
#
# When the files of a snapshot came: an entry has the number of the commit that added it, whether or not that expired.
#
# A file that grew on its path keeps its entry's numbers, so these say nothing of a tail. One that a commit of ours
# brought has the data sequence number of the file whose place it took: that of the commit with which its rows came.
# Tables of format version 1 have no numbers.


def read_history(log: IcebergLog, snapshot: Snapshot) -> History:
    """Read what the metadata say; no file is opened."""
    came = {}
    for file in snapshot.files:
        entry: Entry = file.entry
        number, by = entry.record.file_sequence_number, entry.record.snapshot_id
        if number and by is not None:
            came[file.path] = Version(number, str(by))
    commits, today = [], identities(snapshot.fields)
    now = log.snapshot_by_id(int(snapshot.version))
    seen: set[int] = set()
    names: dict[int, Version] = {}
    while now is not None and now.snapshot_id not in seen:
        seen.add(now.snapshot_id)
        version = Version(now.sequence_number or 0, str(now.snapshot_id))
        names[version.order] = version
        told = now.summary.additional_properties if now.summary is not None else {}
        if version.order and (ours := filter_commit(version, told, today)) is not None:
            commits.append(ours)
        now = None if now.parent_snapshot_id is None else log.snapshot_by_id(now.parent_snapshot_id)
    brought = {commit.version for commit in commits}
    rows_since = {path: version for path, version in came.items() if version not in brought}
    for file in snapshot.files:
        known = names.get(file.entry.sequence)
        if came.get(file.path) in brought and known is not None and known not in brought:
            rows_since[file.path] = known
    return History(came, rows_since, came, commits[::-1], grows=True)


# --- the table ------------------------------------------------------------------------------------

_EMPTY = "-1"  # the version of a table without snapshots, as its metadata have it
_ENGINES = "spark", "flink"


def open_table(name: str, version: str | None, access: TableAccess) -> IcebergTable:
    """Find a table in a catalog; see open_iceberg."""
    catalog, identifier = split_name(name)
    shown = f"iceberg:{name}"
    found = find_catalog(catalog, access.properties or {})
    with translated_errors(shown), released(found):
        log = found.load_table(identifier)
    snapshot_of(log, version, shown)
    return IcebergTable(shown, version, log, access)


_FILES_WEIGH = 4  # times as much as those of a Delta table: pyiceberg's records are kept too


@dataclass(frozen=True, slots=True)
class _Kept:
    """A snapshot that was read.

    files      of the call that read it
    manifests, tokens  of its manifests, as `tokens_of` has them
    deletes    the files that say which rows are deleted
    """

    snapshot: Snapshot
    files: Files
    manifests: list[Location]
    tokens: Proof
    deletes: list[Location]

    def holds(self, files: Files) -> bool:
        """Whether it is what a call with these files would read. Raises TableFormatError for a file that it may not."""
        if not files.has_storages_of(self.files) or tokens_of(self.manifests) != self.tokens:
            return False
        files.roots.check([*self.manifests, *self.deletes, *self.snapshot.files])  # by the links of now
        return True


def _delete_files(snapshot: Snapshot) -> list[Location]:
    """The files that say which rows of a snapshot's data files are deleted, each once."""
    found: dict[str, Location] = {}
    for file in snapshot.files:
        if isinstance(rows := file.deletes, RowDeletes):
            places = [one.location for one in rows.vectors]
            places += [one.location for one in rows.files]
            places += [one.location for one in rows.equality]
            found |= {str(place): place for place in places}
    return list(found.values())


def _with_unread_deletes(snapshot: Snapshot) -> Snapshot:
    """The same snapshot; the positions that a call reads from its delete files are kept with the result alone."""
    unread: dict[int, PositionFile] = {}
    files = []
    for file in snapshot.files:
        rows = file.deletes
        if isinstance(rows, RowDeletes) and rows.files:
            new = [unread.setdefault(id(one), PositionFile(one.location, one.format)) for one in rows.files]
            file = replace(file, deletes=replace(rows, files=tuple(new)))
        files.append(file)
    return replace(snapshot, files=files) if unread else snapshot


# Metadata and the list of manifests are compared each time; so are manifests here. On a store each would cost the
# request that reading it costs: their names are in the list, and a log uses a name once.
_SNAPSHOTS: KeptStates[_Kept] = KeptStates()


def tokens_of(manifests: Sequence[Location]) -> Proof | None:
    """Tokens of manifests on this machine, () on others; None where there is no proof."""
    return proof_of(manifests) if manifests and manifests[0].is_local else ()


class IcebergTable:
    """See source.snapshot.Table."""

    def __init__(self, name: str, version: str | None, log: IcebergLog, access: TableAccess) -> None:
        self._name, self._version, self._log, self._access = name, version, log, access

    @property
    def name(self) -> str:
        """As it was named."""
        return self._name

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        """Read the metadata as they are now, and the manifests. Raises StorageError, TableFormatError."""
        with released(self._log.catalog):
            refresh(self._log, self._name)
        with translated_errors(self._name):
            found = snapshot_of(self._log, self._version, self._name)
            files = Files.of(self._log, self._name, self._access)
            return self._kept_or_read(found, files) if found else self._of_entries(None, files, Entries([], [], []))

    def _of_entries(self, found: IcebergSnapshot | None, files: Files, entries: Entries) -> Snapshot:
        return _Reading(self._name, self._log, found, self._version is not None, files).snapshot(entries)

    def _kept_or_read(self, found: IcebergSnapshot, files: Files) -> Snapshot:
        """A snapshot as it was read before, if all that it was read from is proved to be the same; else read now."""
        at = files.of_log(found.manifest_list)
        access = self._access
        key = (
            self._name,
            self._version,
            access.allow_roots,
            access.force,
            tuple(sorted((access.properties or {}).items())),
        )
        listed = proof_of([at])
        proof = (self._log.metadata_location, self._log.metadata, found, *listed) if listed is not None else None
        if proof is not None and (kept := _SNAPSHOTS.find(key, store_of(at), proof)) is not None and kept.holds(files):
            return _with_unread_deletes(kept.snapshot)
        manifests = manifests_of(found, self._log.io)
        places = [files.of_log(one.manifest_path) for one in manifests]
        tokens = tokens_of(places)
        entries = read_manifests(manifests, self._log.io, self._name)
        snapshot = self._of_entries(found, files, entries)
        deletes = _delete_files(snapshot)
        if proof is not None and tokens is not None:
            weight = _FILES_WEIGH * (len(entries.data) + len(deletes))
            _SNAPSHOTS.keep(
                key, store_of(at), proof, weight, _Kept(_with_unread_deletes(snapshot), files, places, tokens, deletes)
            )
        return snapshot

    def history(self, snapshot: Snapshot) -> History:
        """When the files came, by sequence numbers, and the snapshots of ours that have not expired."""
        return read_history(self._log, snapshot)

    def stated(self, snapshot: Snapshot) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        """All that the manifests state of a file's columns, believed or not."""
        return stated_metrics

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        """For each file's path, how it may get a new version. Raises TableFormatError for format version 3."""
        files = Files.of(self._log, self._name, self._access)
        for file in snapshot.files:
            if not file.is_local:  # opens its storage, whose folders are then roots
                files.location(file.entry.path)
        return commit_modes_of(self._log, self._name, snapshot.files, files.roots)

    def row_changes(self, snapshot: Snapshot) -> IcebergRows:
        """A change of rows of the latest snapshot. Raises TableFormatError for a table that allows none."""
        return IcebergRows(self._log, self._name, self._access, snapshot)

    def new_location(self, file: TableFile) -> Location:
        """A path in the file's folder that no file of the table has or had."""
        return location_beside(file)

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        """Replace files, or change their sizes, in one snapshot of operation `replace`; see commits.commit."""
        with released(self._log.catalog):
            return commit(self._log, self._name, snapshot, changes, properties, self._access)


def filter_settings_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of filters in a table's properties; see source.snapshot.Snapshot."""
    settings: dict[str, Any] = {}
    enabled, rates, most = f"{BLOOM}enabled.column.", f"{BLOOM}fpp.column.", f"{BLOOM}max-bytes"
    columns = [n.removeprefix(enabled) for n, v in properties.items() if n.startswith(enabled) and v.lower() == "true"]
    if columns:
        settings["columns"] = columns
    for name, text in properties.items():
        if not name.startswith(rates) and name != most:
            continue
        value = _number(text)
        if value is None:
            settings.setdefault("passed_over", []).append(f"{name} is {text}, which is no number")
        elif name.startswith(rates):
            settings.setdefault("fpp", {})[name.removeprefix(rates)] = value
            if not 0 < value < 1:
                reason = f"its property {name} is {text}; a rate lies between 0 and 1"
                settings.setdefault("wrong", {})["fpp"] = reason
        else:
            settings["max_bytes"] = int(value)
            if value < MIN_BYTES:
                reason = f"its property {name} is {text}; the smallest filter has {MIN_BYTES} bytes"
                settings.setdefault("wrong", {})["max_bytes"] = reason
    return settings


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class _Reading:
    """One snapshot, as it is read."""

    def __init__(
        self, name: str, log: IcebergLog, found: IcebergSnapshot | None, at_version: bool, files: Files
    ) -> None:
        self._name, self._log, self._found = name, log, found
        self._files = files
        schema, named = self._schema(at_version), NameHistory(log.schemas().values(), log.name_mapping())
        self._fields = fields_of(schema, named, name)
        self._columns: Mapping[int, Column] = columns_of(schema, self._fields, named)
        self._leaves = {column.leaf.path: column for column in self._columns.values() if not column.doubtful}
        self._doubtful = frozenset(column.top for column in self._columns.values() if column.doubtful)
        self._cut = narrowest_cut(log.properties)
        self._parts = {number: parts_of(spec) for number, spec in log.specs().items()}
        self._java: dict[int | None, bool] = {}  # by snapshot

    def _schema(self, at_version: bool) -> Schema:
        """The schema of the named version, else the one that new readers get."""
        if at_version and self._found is not None and self._found.schema_id is not None:
            return self._log.schemas()[self._found.schema_id]
        return self._log.schema()

    def snapshot(self, entries: Entries) -> Snapshot:
        self._check(entries.data)
        files = [self._file(entry) for entry in entries.data]
        self._files.roots.check(files)
        filesystem = self._files.only(self._name)
        deletes = DeleteIndex(entries, self._log, self._fields, self._files)
        return Snapshot(
            self._name,
            str(self._found.snapshot_id) if self._found else _EMPTY,
            self._fields,
            True,
            [replace(file, deletes=deletes.of(file.entry, file)) for file in files],
            filter_settings_of(self._log.properties),
            filesystem,
            identity=str(self._log.metadata.table_uuid),
        )

    def _check(self, entries: Sequence[Entry]) -> None:
        other = next((entry for entry in entries if entry.file.file_format != FileFormat.PARQUET), None)
        if other is not None:
            kind = other.file.file_format.value
            raise TableFormatError(self._name, f"has data files in {kind}; only Parquet is read")
        if len({entry.path for entry in entries}) < len(entries):
            raise TableFormatError(self._name, "names one data file twice")

    def _file(self, entry: Entry) -> TableFile:
        location = self._files.location(entry.path)
        rows = entry.file.record_count
        values, nulls = tuple(entry.file.partition._data), entry.file.null_value_counts or {}
        told = evidence_of(self._parts[entry.partition[0]], values, self._columns, rows, nulls)
        return TableFile(
            location.path,
            location.filesystem,
            location.shown,
            relative=posixpath.basename(location.path),
            rows=rows,
            size=entry.file.file_size_in_bytes,
            constants=told.constants,
            doubtful=self._doubtful.union(path[0] for path in told.doubtful),
            bounds=FileMetrics(
                entry.file,
                self._leaves,
                told.bounds,
                told.doubtful,
                self._cut,
                self._by_java(entry.record.snapshot_id),
            ),
            buckets=tuple(told.buckets),
            entry=entry,
        )

    def _by_java(self, number: int | None) -> bool:
        """Whether Spark or Flink made a snapshot by Java's library. Trino uses that too, and has its own writer."""
        if number not in self._java:
            snapshot = self._log.snapshot_by_id(number or -1)
            summary = snapshot.summary if snapshot else None
            self._java[number] = (
                summary is not None and bool(summary["iceberg-version"]) and summary["engine-name"] in _ENGINES
            )
        return self._java[number]
