"""A snapshot of operation `replace`, as pyiceberg 0.12 lets one be made: by subclassing what it calls private.

    new path   the old file's entry is DELETED, the new one's ADDED with the old data sequence number: equality deletes
               apply to it as they did. Under the spec of the old file, in a manifest of that spec
    same path  the entry stays EXISTING, with its snapshot and both sequence numbers; its size alone changes

All else that an entry says is carried over: partition, metrics, bounds, sort order, key metadata. Delete manifests are
not touched. Each attempt looks at the table as it is then: a file that is gone, changed or named by new deletes
ends it. A public `replace` of pyiceberg (apache/iceberg-python#3130) would take the place of this module alone.

Source: Iceberg table spec, "Manifests", "Snapshots"; Java's BaseRewriteFiles and BaseRewriteManifests.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StringType, StructType, UnknownType

from parquet_bloom.errors import ConflictError
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.tables.iceberg.deletes import first_named
from parquet_bloom.tables.iceberg.entries import Entry, entries_of, manifests_of

_PATH, _FILE_SIZE, _SPLIT_OFFSETS = 1, 5, 13  # positions in a DataFile
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
    """

    old: Entry
    path: str
    size: int
    splits: list[int] | None

    @property
    def same_path(self) -> bool:
        """Whether the file keeps its path."""
        return self.path == self.old.path

    def file(self) -> DataFile:
        """What the log is to say of the new version."""
        return _file_like(self.old.file, {_PATH: self.path, _FILE_SIZE: self.size, _SPLIT_OFFSETS: self.splits})


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
        asked = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        deletes = [entry for entries in self._read(asked) for entry in entries if not entry.file.equality_ids]
        named = first_named(deletes, [swap.old for swap in moved])
        if named is not None:
            raise ConflictError(named.path, "another commit has deleted rows of it by its path; nothing was committed")

    def _rewritten(self, manifest: ManifestFile, entries: Sequence[Entry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                swap = self._swaps.get(entry.path)
                if swap is None or swap.same_path:
                    file = _file_like(entry.file, {}) if swap is None else swap.file()
                    writer.add_entry(_entry(ManifestEntryStatus.EXISTING, entry.record.snapshot_id, entry.record, file))
                else:
                    file = _file_like(entry.file, {})
                    writer.add_entry(_entry(ManifestEntryStatus.DELETED, self._snapshot_id, entry.record, file))
        return writer.to_manifest_file()

    def _added(self) -> list[ManifestFile]:
        by_spec = defaultdict(list)
        for swap in self._swaps.values():
            if not swap.same_path:
                by_spec[swap.old.partition[0]].append(swap)
        found = []
        for spec, swaps in by_spec.items():
            with self.new_manifest_writer(self.spec(spec)) as writer:
                for swap in swaps:
                    entry = _entry(ManifestEntryStatus.ADDED, self._snapshot_id, swap.old.record, swap.file())
                    entry._data[_FILE_SEQUENCE] = None  # that of this commit
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
        """pyiceberg calls it for a commit that was refused, which may have landed; who commits looks, and discards."""

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
        """`_manifests` looks at the table of each attempt."""

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


def _file_like(old: DataFile, changes: Mapping[int, Any]) -> DataFile:
    """A file of which the log says what it says of an old one, but for some fields by position."""
    file = DataFile(*old._data[:_FIELDS])
    for at, value in changes.items():
        file._data[at] = value
    file.spec_id = old.spec_id
    return file
