"""Inspecting and verifying a key index: its size, how much of some data it covers, and whether it is right.

inspect   manifest and listings; with data also which of their files are covered
verify    each part is read: checksums, order, places; and files are decoded again: each value must have its entry
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, FileError, RequestError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.keys.coverage import Covered, coverage_of
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.plan import IndexedColumn, KeyIndexReport, fill
from parquet_bloom.options import PathLike, ReadOptions, refuse_unknown
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import Meter, ProgressCallback

_SAMPLE = 16  # files that are decoded again, unless all are to be


@dataclass(slots=True, repr=False)
class SegmentInfo(Result):
    """A segment of a key index.

    left   files of it that are gone from the data since
    bytes  of its Parquet files
    """

    id: str
    files: int
    left: int
    row_groups: int
    rows: int
    entries: int
    bytes: int


@dataclass(slots=True, repr=False)
class KeyIndexInfo(Result):
    """A description of a key index.

    created   seconds since 1970; age of its last build or update, in seconds
    false_places  that were wanted of a lookup; what is expected stands with each column
    covered   of the files of the data, how many it knows; changed of how many it has another version; both None
              without data
    data_files  that the data have
    """

    _more: ClassVar = ("bytes_per_row",)

    path: str
    writer: str
    created: int
    age: int
    root: str
    table: str
    version: str
    false_places: float
    files: int
    row_groups: int
    rows: int
    bytes: int
    columns: list[IndexedColumn]
    segments: list[SegmentInfo]
    data_files: int | None = None
    covered: int | None = None
    changed: int | None = None

    @property
    def bytes_per_row(self) -> float:
        """Bytes of the index for each row of the data."""
        return self.bytes / max(1, self.rows)

    def to_arrow(self) -> pa.Table:
        """A row a segment."""
        return table_of(SegmentInfo, self.segments)


def inspect_key_index(
    index: PathLike,
    source: PathLike | Sequence[PathLike] | None = None,
    *,
    filesystem: Any = None,
    **options: Unpack[ReadOptions],
) -> KeyIndexInfo:
    """Describe a key index.

    source   the data: then also how many of their files it covers
    filesystem, options  of the data, as build_index has them
    Raises DamagedFileError, StorageError, RequestError.
    """
    refuse_unknown("inspect_index", options, ReadOptions)
    opened = KeyIndex(index)
    manifest = opened.manifest
    report = KeyIndexReport(opened.path)
    fill(report, manifest)
    segments = []
    for one in manifest.segments:
        size = one.listing.size + sum(part.size for column in one.columns for part in column.parts)
        left = int((~opened.listing(one).live).sum())
        entries = sum(column.entries for column in one.columns)
        segments.append(SegmentInfo(one.id, one.files, left, one.places, one.rows, entries, size))
    info = KeyIndexInfo(
        opened.path,
        manifest.writer,
        manifest.created,
        max(0, int(time.time()) - manifest.created),
        manifest.root,
        manifest.table,
        manifest.version,
        manifest.false_places,
        manifest.files,
        manifest.places,
        report.rows,
        report.bytes,
        report.columns,
        segments,
    )
    if source is not None:
        found = source_of(source, filesystem, options).resolve(refuses=RAW_FILES)
        coverage = coverage_of(opened, found)
        info.data_files, info.covered, info.changed = len(found.files), len(coverage.known), coverage.changed
    return info


@dataclass(slots=True, repr=False)
class VerifiedKeyIndex(Result):
    """The verdict on a key index.

    files    that were decoded again, of so many that it covers
    values   of these files, NULLs left out
    missed   values without an entry: rows would be lost
    damaged  files of the index that contradict themselves or the manifest, each with the reason: they are not used
    """

    _more: ClassVar = ("status",)

    path: str
    files: int = 0
    covered: int = 0
    values: int = 0
    missed: int = 0
    damaged: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The verdict, "right" or "wrong"."""
        return "wrong" if self.missed or self.damaged else "right"


def verify_key_index(
    index: PathLike,
    source: PathLike | Sequence[PathLike],
    *,
    all_files: bool = False,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> VerifiedKeyIndex:
    """Read all of a key index, and decode files of its data again: each value must have its entry.

    source     the data
    all_files  decode all that are covered, and not 16 at random
    filesystem, progress, options  as build_index has them
    Raises StaleIndexError for an index of none of these files, RequestError, FileError.
    """
    refuse_unknown("verify_index", options, ReadOptions)
    opened = KeyIndex(index)
    result = VerifiedKeyIndex(opened.path)
    _read_parts(opened, result)
    found = source_of(source, filesystem, options).resolve(refuses=RAW_FILES)
    found.raise_failed()
    coverage = coverage_of(opened, found)
    if not coverage.known:
        raise coverage.stale()
    chosen = [one for one in coverage.known if one.is_sure]
    result.covered = len(chosen)
    if not all_files and len(chosen) > _SAMPLE:
        chosen = Random().sample(chosen, _SAMPLE)
    meter = Meter(progress, [one.file for one in chosen])
    for one in chosen:
        _compare(opened, one, result)
        result.files += 1
        meter.finish()
    opened.close()
    return result


def _read_parts(index: KeyIndex, result: VerifiedKeyIndex) -> None:
    for segment in index.manifest.segments:
        try:
            index.listing(segment).table()
        except FileError as error:
            result.damaged.append(str(error))
        for column in segment.columns:
            for partition in range(len(column.parts)):
                shift = column.bits - column.partition_bits
                try:
                    rows = 0
                    for hashes, _ in index.entries(segment, column, partition << shift, (partition + 1) << shift):
                        rows += len(hashes)
                    if rows != column.parts[partition].rows:
                        name = index.location(segment.part_name(column.number, partition))
                        raise DamagedFileError(name, "has entries of another partition")
                except FileError as error:
                    result.damaged.append(str(error))


def _compare(index: KeyIndex, one: Covered, result: VerifiedKeyIndex) -> None:
    segment = index.manifest.segments[one.segment]
    listing = index.listing(segment)
    first = int(listing.first[one.number])
    with OpenFile(one.file) as source:
        leaves = source.outline().leaves
        for number, at in segment.schemas[one.schema].columns.items():
            column = segment.column(number)
            if column is None or at >= len(leaves):
                raise RequestError(
                    f"{one.file}: has not the columns of {index.path}; update the index, or build it again"
                )
            reader = ColumnReader(source, leaves[at])
            for group in range(source.outline().n_row_groups):
                for batch in reader.batches(group):
                    hashes = hash_array(batch)
                    result.values += len(hashes)
                    hashes = np.unique(hashes)
                    try:
                        numbers, places = index.find(segment, column, hashes)
                    except FileError:
                        continue  # in `damaged` already
                    there = np.zeros(len(hashes), bool)
                    there[numbers[places == first + group]] = True
                    result.missed += int((~there).sum())
