"""The report of a build: what a key index has, or by its plan would have."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pyarrow as pa

from parquet_bloom.keys.manifest import Manifest
from parquet_bloom.keys.plan import Plan
from parquet_bloom.source.results import Result, table_of

_PART_BYTES, _PLACE_BYTES = 4096, 100  # of a file's footer, and of a row group in a listing, at most


@dataclass(slots=True, repr=False)
class IndexedColumn(Result):
    """A column of a key index that was built.

    bits     of each hash, of the segment that has most entries
    entries  of all segments
    bytes    of its Parquet files
    false_places  that a lookup of a value meets by chance, on average
    """

    column: str
    entries: int
    bits: int
    bytes: int
    false_places: float


@dataclass(slots=True, repr=False)
class KeyIndexReport(Result):
    """The report of a build.

    path     of the index
    columns  that it has
    files, row_groups, rows  that were indexed
    passed_over  files without a row group, or without any of the columns: they are read as without an index
    bytes    of all files of the index; of a dry run what they are expected to take, at most
    seconds  that it took
    """

    path: str
    columns: list[IndexedColumn] = field(default_factory=list)
    segments: int = 0
    files: int = 0
    row_groups: int = 0
    rows: int = 0
    passed_over: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def to_arrow(self) -> pa.Table:
        """A row a column."""
        return table_of(IndexedColumn, self.columns)


def estimate(plan: Plan, report: KeyIndexReport) -> None:
    """Say in the report of a dry run sizes as if all values of a row group differed."""
    for number, column in enumerate(plan.columns):
        entries = size = bits = 0
        false = 0.0
        for segment in plan.segments:
            if (packing := segment.packings.get(number)) is not None:
                own = sum(int(one.listed.values[number].sum()) for one in segment.files)
                entries, bits = entries + own, max(bits, packing.bits)
                # Differences of sorted hashes take some 3 bits more than their mean, places as many as their number.
                spread = max(0.0, packing.bits - math.log2(max(own, 1))) + 3.5
                size += int(own * (spread + packing.place_bits + 1.5) / 8) + (_PART_BYTES << packing.partition_bits)
                false += own / 2.0**packing.bits
        report.columns.append(IndexedColumn(column.name, entries, bits, size, false))
    _count(report, plan)
    report.bytes = sum(one.bytes for one in report.columns) + _PLACE_BYTES * report.row_groups * len(plan.columns)


def _count(report: KeyIndexReport, plan: Plan) -> None:
    report.segments = len(plan.segments)
    report.files = sum(len(one.files) for one in plan.segments)
    report.row_groups = sum(one.places for one in plan.segments)
    report.rows = sum(int(file.listed.rows.sum()) for one in plan.segments for file in one.files)


def fill(report: KeyIndexReport, manifest: Manifest) -> None:
    """Say in a report what an index has."""
    for number, column in enumerate(manifest.columns):
        own = [one for segment in manifest.segments if (one := segment.column(number)) is not None]
        size = sum(part.size for one in own for part in one.parts)
        bits = max(own, key=lambda one: one.entries).bits if own else 0
        entries, false = sum(one.entries for one in own), sum(one.false_places for one in own)
        report.columns.append(IndexedColumn(column.name, entries, bits, size, false))
    report.segments = len(manifest.segments)
    report.files, report.row_groups = manifest.files, manifest.places
    report.rows = sum(one.rows for one in manifest.segments)
    report.bytes = sum(one.bytes for one in report.columns) + sum(one.listing.size for one in manifest.segments)
