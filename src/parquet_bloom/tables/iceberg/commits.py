"""New versions of files become one snapshot of an Iceberg table, or nothing happens."""

from __future__ import annotations

import errno
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ValidationException,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergLog
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StringType, StructType, UnknownType

from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
    first_line,
)
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.roots import Roots
from parquet_bloom.source.snapshot import Change, CommitModes, Snapshot, TableFile, beside
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.open_file import arrow_input
from parquet_bloom.storage.remote import side_by_side, storage_error
from parquet_bloom.tables.iceberg.catalogs import check_provider, refresh, translated_errors
from parquet_bloom.tables.iceberg.deletes import first_named
from parquet_bloom.tables.iceberg.entries import Entry, entries_of, manifests_of
from parquet_bloom.tables.iceberg.evidence import true_metrics
from parquet_bloom.tables.iceberg.files import Files
from parquet_bloom.tables.iceberg.row_deletes import RowDeletes

# --- a snapshot with other files ------------------------------------------------------------------
#
# A snapshot of operation `replace`, as pyiceberg 0.12 lets one be made: by subclassing what it calls private.
#
#    new path   the old file's entry is DELETED, the new one's ADDED with the old data sequence number: equality deletes
#               apply to it as they did. Under the spec of the old file, in a manifest of that spec
#    same path  the entry stays EXISTING, with its snapshot and both sequence numbers; its size alone changes
#
# All else that an entry says is carried over: partition, metrics, bounds, sort order, key metadata; but for metrics of
# columns that a repair writes right. Delete manifests are not touched. Each attempt looks at the table as it is then: a
# file that is gone, changed or named by new deletes ends it. A public `replace` of pyiceberg
# (apache/iceberg-python#3130) would take the place of this module alone.
#
# Source: Iceberg table spec, "Manifests", "Snapshots"; Java's BaseRewriteFiles and BaseRewriteManifests.

_PATH, FILE_SIZE, _SPLIT_OFFSETS = 1, 5, 13  # positions in a DataFile
_FIELDS = 16  # of a DataFile of format version 2
_FILE_SEQUENCE = 3  # its position in a ManifestEntry
LOST_SPEC = "a partition column was dropped from the table, and pyiceberg would lose its values"
_TOTAL_SIZE = "total-files-size"


@dataclass(frozen=True, slots=True)
class Swap:
    """A new version of a data file.

    old     its entry, as it was planned with
    path    of the new version, as the log is to name it
    size    of that, in bytes
    splits  offsets of its row groups; those of the old one where it keeps its path
    metrics of its columns that are others, by their position in a DataFile
    """

    old: Entry
    path: str
    size: int
    splits: list[int] | None
    metrics: Mapping[int, Any] = field(default_factory=dict)

    @property
    def same_path(self) -> bool:
        """Whether the file keeps its path."""
        return self.path == self.old.path

    def file(self) -> DataFile:
        """The log's entry of the new version."""
        changes = {_PATH: self.path, FILE_SIZE: self.size, _SPLIT_OFFSETS: self.splits}
        return file_like(self.old.file, {**changes, **self.metrics})


class Replacement(_SnapshotProducer["Replacement"]):
    """Puts new versions of files into a table. untouched: manifests that are known to name none of them."""

    def __init__(
        self,
        transaction: Transaction,
        io: FileIO,
        swaps: Sequence[Swap],
        untouched: Collection[str],
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(Operation.REPLACE, transaction, io, uuid.uuid4(), dict(properties))
        self._swaps = {swap.old.path: swap for swap in swaps}
        self._untouched = untouched

    def _manifests(self) -> list[ManifestFile]:
        # pyiceberg calls this in each attempt, with the table as it is then. The list of all manifests is returned: new
        # ones with the ADDED entries, those of our files written again, and all others as they are.
        metadata = self._transaction.table_metadata
        head = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        manifests = [
            m for m in (manifests_of(head, self._io) if head else []) if m.has_added_files() or m.has_existing_files()
        ]
        touched = self._find(manifests)
        self._check(manifests, [entry for entries in touched.values() for entry in entries])
        kept = [manifest for manifest in manifests if manifest.manifest_path not in touched]
        rewritten = [
            self._rewritten(manifest, touched[manifest.manifest_path])
            for manifest in manifests
            if manifest.manifest_path in touched
        ]
        return [*self._added(), *rewritten, *kept]

    def _find(self, manifests: Sequence[ManifestFile]) -> dict[str, list[Entry]]:
        """The live entries of each manifest that names a file of ours."""
        asked = [m for m in manifests if m.content == ManifestContent.DATA and m.manifest_path not in self._untouched]
        return {
            manifest.manifest_path: entries
            for manifest, entries in zip(asked, self._read(asked), strict=True)
            if any(entry.path in self._swaps for entry in entries)
        }

    def _read(self, manifests: Sequence[ManifestFile]) -> list[list[Entry]]:
        return side_by_side(lambda manifest: list(entries_of(manifest, self._io)), manifests)

    def spec(self, spec_id: int) -> PartitionSpec:
        """A spec of the table, for a manifest."""
        told = super().spec(spec_id)
        return _ManifestSpec.model_construct(spec_id=told.spec_id, fields=told.fields)

    def _check(self, manifests: Sequence[ManifestFile], entries: Sequence[Entry]) -> None:
        """Raise ConflictError where a file of ours is not what it was, before anything is written."""
        metadata = self._transaction.table_metadata
        lost = lost_specs(metadata.schema(), metadata.specs())
        for path, swap in self._swaps.items():
            if swap.old.partition[0] in lost:
                raise ConflictError(path, f"{LOST_SPEC}; nothing was committed")
        live = {entry.path: entry for entry in entries}
        for path, swap in self._swaps.items():
            # Of the same path, an entry with another sequence number, partition or size is another version.
            now = live.get(path)
            if now is None:
                raise ConflictError(path, "another commit has taken it out of the table; nothing was committed")
            if (now.sequence, now.partition, now.file.file_size_in_bytes) != (
                swap.old.sequence,
                swap.old.partition,
                swap.old.file.file_size_in_bytes,
            ):
                raise ConflictError(
                    path, "another commit has put a new version of it into the table; nothing was committed"
                )
        moved = [swap for swap in self._swaps.values() if not swap.same_path]
        if moved:
            self._check_deletes(manifests, moved)

    def _check_deletes(self, manifests: Sequence[ManifestFile], moved: Sequence[Swap]) -> None:
        # Equality deletes apply by sequence number and values, to a new path as well. Position deletes and deletion
        # vectors name a path: rows that they deleted would come back.
        asked = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        deletes = [entry for entries in self._read(asked) for entry in entries if not entry.file.equality_ids]
        named = first_named(deletes, [swap.old for swap in moved])
        if named is not None:
            raise ConflictError(named.path, "another commit has deleted rows of it by its path; nothing was committed")

    def _rewritten(self, manifest: ManifestFile, entries: Sequence[Entry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            # Each live entry stays EXISTING with its own snapshot and sequence numbers; one on a new path is DELETED,
            # by this snapshot.
            for entry in entries:
                swap = self._swaps.get(entry.path)
                if swap is None or swap.same_path:
                    file = file_like(entry.file, {}) if swap is None else swap.file()
                    writer.add_entry(_entry(ManifestEntryStatus.EXISTING, entry.record.snapshot_id, entry.record, file))
                else:
                    file = file_like(entry.file, {})
                    writer.add_entry(_entry(ManifestEntryStatus.DELETED, self._snapshot_id, entry.record, file))
        return writer.to_manifest_file()

    def _added(self) -> list[ManifestFile]:
        # All entries of a manifest have one partition spec, so there is one manifest for each.
        by_spec = defaultdict(list)
        for swap in self._swaps.values():
            if not swap.same_path:
                by_spec[swap.old.partition[0]].append(swap)
        found = []
        for spec, swaps in by_spec.items():
            with self.new_manifest_writer(self.spec(spec)) as writer:
                for swap in swaps:
                    entry = _entry(ManifestEntryStatus.ADDED, self._snapshot_id, swap.old.record, swap.file())
                    # NULL is inherited from the manifest: the sequence number of this commit. The data sequence number
                    # stays the old one, so that equality deletes of since then apply (spec, "Sequence Number
                    # Inheritance").
                    entry._data[_FILE_SEQUENCE] = None
                    writer.add_entry(entry)
            found.append(writer.to_manifest_file())
        return found

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        schema = metadata.schema()
        collector = SnapshotSummaryCollector()
        grown = 0
        for swap in self._swaps.values():
            if swap.same_path:
                grown += swap.size - swap.old.file.file_size_in_bytes
            else:
                spec = self.spec(swap.old.partition[0])
                collector.add_file(swap.file(), schema, spec)
                collector.remove_file(swap.old.file, schema, spec)
        previous = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        # pyiceberg counts for an overwrite, and not for a replace.
        counted = Summary(Operation.OVERWRITE, **{**(snapshot_properties or {}), **collector.build()})
        told = update_snapshot_summaries(counted, previous.summary if previous else None).additional_properties
        if grown and _TOTAL_SIZE in told:
            told = {**told, _TOTAL_SIZE: str(int(told[_TOTAL_SIZE]) + grown)}
        return Summary(Operation.REPLACE, **told)

    def discard(self) -> None:
        """Delete what was written, where nothing was committed. A manifest that could not be written is not there."""
        self._delete([*self._uncommitted_manifests, *self._written_manifests, *self._written_manifest_lists])

    def _clean_all_uncommitted(self) -> None:
        """pyiceberg calls it for a commit that was refused, which may have landed; the caller of commit checks that."""

    def _cleanup_uncommitted(self) -> None:
        """Delete what attempts before the last one wrote, if that is the one which landed."""
        lists = self._written_manifest_lists
        now = self._transaction._table.metadata.snapshot_by_id(self._snapshot_id)
        if now is not None and now.manifest_list == lists[-1]:
            self._delete([*self._uncommitted_manifests, *lists[:-1]])

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(Exception):  # it stays, as after a kill
                self._io.delete(path)

    def _validate_concurrency(self) -> None:
        """`_manifests` checks the table of each attempt."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        return []


class _ManifestSpec(PartitionSpec):
    """A spec whose values are optional in manifests, as Java has them: void ones are NULL, of required columns too.

    A void field whose column was dropped is a text there, as there has to be some type.
    """

    def partition_type(self, schema: Schema) -> StructType:
        """The struct of a file's partition values."""
        return StructType(
            *(
                NestedField(
                    part.field_id, part.name, StringType() if part.field_type == UnknownType() else part.field_type
                )
                for part in super().partition_type(schema).fields
            )
        )


def lost_specs(schema: Schema, specs: Mapping[int, PartitionSpec]) -> set[int]:
    """The ids of specs whose values pyiceberg would lose: it no longer knows the type of a column that was dropped."""
    ids = set(schema.field_ids)
    return {
        number
        for number, spec in specs.items()
        if any(part.source_id not in ids and not isinstance(part.transform, VoidTransform) for part in spec.fields)
    }


def _entry(status: ManifestEntryStatus, snapshot: int | None, old: ManifestEntry, file: DataFile) -> ManifestEntry:
    """An entry with the sequence numbers of an old one."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot,
        sequence_number=old.sequence_number,
        file_sequence_number=old.file_sequence_number,
        data_file=file,
    )


def file_like(old: DataFile, changes: Mapping[int, Any]) -> DataFile:
    """A file of which the log says what it says of an old one, but for some fields by position."""
    file = DataFile(*old._data[:_FIELDS])
    for at, value in changes.items():
        file._data[at] = value
    file.spec_id = old.spec_id
    return file


# --- the commit -----------------------------------------------------------------------------------

_MOST_VERSION = 2  # of the format, whose manifests pyiceberg writes
_OF_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def commit_modes_of(log: IcebergLog, name: str, files: Sequence[TableFile], roots: Roots) -> dict[str, CommitModes]:
    """For each file's path, how it may get a new version. Raises TableFormatError as `check_writable`."""
    check_writable(log, name)
    lost = lost_specs(log.schema(), log.specs())
    return {file.path: _commit_modes(file, file.entry.partition[0] in lost, roots.no_change(file)) for file in files}


def check_writable(log: IcebergLog, name: str) -> None:
    """Raise TableFormatError for a format version whose manifests pyiceberg does not write, and code to be run."""
    if log.format_version > _MOST_VERSION:
        reason = f"has format version {log.format_version}, whose manifests pyiceberg cannot write; it can only be read"
        raise TableFormatError(name, reason)
    check_provider(name, log.properties, log.catalog.properties)


def _commit_modes(file: TableFile, lost_spec: bool, outside: str) -> CommitModes:
    if outside:
        return CommitModes(None, outside, outside)
    if lost_spec:
        return CommitModes(None, LOST_SPEC, LOST_SPEC)
    if isinstance(file.deletes, RowDeletes) and (file.deletes.files or file.deletes.vectors):
        return CommitModes("same-path", no_new_path="position deletes or a deletion vector name the file by its path")
    return CommitModes("new-path")


def commit(
    log: IcebergLog,
    name: str,
    snapshot: Snapshot,
    changes: Sequence[Change],
    told: Mapping[str, str],
    access: TableAccess,
) -> str:
    """Commit changes as one snapshot; see source.snapshot.Table.commit. Returns the snapshot's id.

    Appends since then do not matter, nor do deletes of rows of a file that keeps its path.
    Raises ConflictError where a file is gone, changed, or, if it would get a new path, named by deletes; StorageError
    where nothing was committed for another reason; UnknownCommitError where the catalog did not say.
    """
    # In two steps. Until commit_transaction the catalog knows nothing, and what was written can be deleted. After it an
    # error may hide a commit that landed, so the table is read again before anything is deleted.
    refresh(log, name)
    check_writable(log, name)
    files = Files.of(log, name, access)
    swaps = side_by_side(lambda change: _swap(change, files), changes)
    touched = {swap.old.manifest for swap in swaps}
    untouched = {file.entry.manifest for file in snapshot.files} - touched
    transaction = log.transaction()
    with translated_errors(name):
        producer = Replacement(transaction, log.io, swaps, untouched, told)
    try:
        producer.commit()  # writes manifests; the catalog knows nothing yet
    except Exception as error:
        producer.discard()
        raise not_committed(name, error) from error
    try:
        if land(log, name, transaction, producer.snapshot_id):
            producer._cleanup_uncommitted()
    except UnknownCommitError:
        raise
    except Exception:
        producer.discard()
        raise
    return str(producer.snapshot_id)


def land(log: IcebergLog, name: str, transaction: Transaction, snapshot: int) -> bool:
    """Commit a transaction that makes a snapshot; whether it landed with an error.

    Raises UnknownCommitError; as `commit` where nothing was committed.
    """
    try:
        transaction.commit_transaction()
    except Exception as error:
        if not _landed(log, name, snapshot, error):
            raise not_committed(name, error) from error
        return True
    return False


def _swap(change: Change, files: Files) -> Swap:
    """Raises StorageError as `_splits`, and where the log would not lead to the new version."""
    entry: Entry = change.file.entry
    splits, metrics = _splits(change), true_metrics(change.file, change.truth)
    if change.same_path:
        return Swap(entry, entry.path, change.size, entry.file.split_offsets, metrics)
    path = beside(entry.path, change.location.path)
    if files.location(path).path != change.location.path:
        reason = f"the table's log would name it {without_secret(path)}, which is another place; nothing was committed"
        raise StorageError(change.location, reason)
    return Swap(entry, path, change.size, splits, metrics)


def _splits(change: Change) -> list[int]:
    """The offsets of the row groups of a new version. Raises StorageError where it is not there, or has other rows.

    A file on its old path may be longer than is told: a version without its tail leaves the tail where it is.
    """
    place = change.location
    try:
        with arrow_input(place) as file:
            size = file.size()
            metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise storage_error(place, error) from error
    if size < change.size or (size > change.size and not change.same_path):
        raise StorageError(place, f"has {size} bytes, where {change.size} were told; nothing was committed")
    if metadata.num_rows != change.file.rows:
        reason = f"has {metadata.num_rows} rows, where the table has {change.file.rows}; nothing was committed"
        raise StorageError(place, reason)
    firsts = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    return sorted(
        c.dictionary_page_offset
        if c.has_dictionary_page and c.dictionary_page_offset < c.data_page_offset
        else c.data_page_offset
        for c in firsts
    )


def not_committed(name: str, error: Exception) -> Exception:
    """An error that means that nothing was committed."""
    if isinstance(error, StorageError | TableFormatError):
        return error
    if isinstance(error, CommitFailedException | ValidationException):
        return ConflictError(name, f"other commits came first each time; try again: {first_line(error)}")
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    reason = "the disk of its metadata is full" if full else without_secret(first_line(error))
    return StorageError(name, f"{reason}; nothing was committed")


def _landed(log: IcebergLog, name: str, snapshot: int, error: Exception) -> bool:
    """Whether a commit that ended with an error is in the table all the same. Raises UnknownCommitError.

    A refusal too may be of a commit that landed: its answer got lost, and what was sent once more came too late.
    """
    said = without_secret(first_line(error))
    try:
        refresh(log, name)
        if log.snapshot_by_id(snapshot) is not None:
            return True
        if _is_certain(error):
            return False
    except RequestError as gone:
        said = gone.message.removeprefix(f"{name}: ")
    except Exception:  # then the first error tells more
        pass
    reason = f"the catalog did not say whether snapshot {snapshot} was committed ({said})"
    raise UnknownCommitError(name, f"{reason}; check its history; new files stay where they are") from error


def _is_certain(error: Exception) -> bool:
    """Whether a catalog that gives this error, and whose table has no such snapshot, will never have it."""
    if isinstance(error, OSError):  # of a file, or of a connection that broke when all was sent
        return error.errno in _OF_FILES
    if isinstance(error, CommitStateUnknownException) or getattr(error, "connection_invalidated", False):
        return False
    if isinstance(error, RESTError | CommitFailedException | ValidationException | ParquetBloomError):
        return True  # ours comes before anything is sent
    return type(error).__module__.partition(".")[0] in ("builtins", "sqlalchemy")
