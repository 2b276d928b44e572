"""Indexes on Spark: build_index and build_zone_index.

**Key indexes**: executors read footers, decode and hash; Spark brings the entries of a part together.

    listing, or a table's log -> files, in order                                    driver
    some files a task         -> footers -> PlannedFile                             tasks, job 1
    PlannedFiles              -> Plan: segments, places, bits, parts                driver
    some files a task         -> entries, cut at the parts -> shuffled by part      tasks, job 2
    the entries of a part     -> sorted -> a Parquet file of the index              tasks, job 2
    listings, then the manifest                                                     driver

An index names every file it is of, so the plan is made on the driver, and is linear in files and row groups. No entry
passes it. A task that runs twice reads files of the very versions that were planned, and gives the same entries; the
part that it writes takes its place whole, with the same bytes. So twins and repeated tasks do no harm.

**Zone indexes**: zones of every file are made by many tasks, and joined by one. Zones travel as rows to the one task
that writes them, in the order of the files, and so does what the index keeps of each file: only who decodes a file
knows of which bytes its zones are.
"""

from __future__ import annotations

import functools
import json
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.errors import RequestError, SparkJobError
from parquet_bloom.filters.content import Content
from parquet_bloom.format import lance as form
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.keys.build import (
    FALSE_PLACES,
    checked_columns,
    decode_run,
    listed_segment,
    root_named,
    write_index,
)
from parquet_bloom.keys.entries import U64, Packing, sorted_once, write_part
from parquet_bloom.keys.folder import index_folder
from parquet_bloom.keys.listing import ListedFile
from parquet_bloom.keys.manifest import PartFile, Segment, SegmentColumn, part_name
from parquet_bloom.keys.plan import (
    KeyIndexReport,
    Plan,
    PlannedFile,
    PlannedSegment,
    assembled,
    checked_leaves,
    footer_of,
    hidden_keys,
    leaves_of_file,
    plan_file,
)
from parquet_bloom.options import PathLike, ReadOptions, limits, refuse_unknown
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.source.snapshot import TableFile
from parquet_bloom.source.source import CallSource, ResolvedSource, resolved_files
from parquet_bloom.source.view import names_of
from parquet_bloom.spark.failures import explained, raising_ours
from parquet_bloom.spark.frames import Row, computed, frame_of, mapped_rows, small_batches, width
from parquet_bloom.spark.storages import local_folder, paths_of
from parquet_bloom.spark.work import (
    FilesWork,
    ListedFiles,
    SentFiles,
    TableWork,
    files_on_driver,
    files_work,
    sendable,
    sent_file,
    source_on_spark,
    work_of,
)
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.table_folders import read_guard
from parquet_bloom.zones.build import ZoneBatch, index_columns, write_indexes, zone_batches_of
from parquet_bloom.zones.sources import Data, ParquetFragment, is_lance, open_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FOOTERS = 256  # files whose plans are one row
_TASK_VALUES, _LEAST_VALUES = 1 << 24, 1 << 18  # of a task that decodes: some ten seconds, and what is worth one
_TASK_ENTRIES = 1 << 23  # of a task that writes: small parts share one
_CHUNK = 1 << 17  # entries of one row: 1 MiB
_DECODED = 1 << 22  # entries that a task cuts at a time, at most
_ENTRY_COPIES = 16  # of 8 bytes: decoding and cutting take so much of max_memory
Opener = ListedFiles | SentFiles
_NOWHERE = DataFile("")  # a file's plan travels without its place, which both sides know

_WORK = "task int, number bigint, data binary"
_PLANNED = pa.schema([("number", pa.int64()), ("data", pa.binary())])
_ENTRIES = pa.schema([("task", pa.int32()), ("part", pa.int64()), ("data", pa.binary())])
_WRITTEN = pa.schema([("part", pa.int64()), ("data", pa.binary())])
_OF_A_FILE = -1  # the part of a row that has what was found of a file


@explained
def build_index(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    output: PathLike,
    *,
    root: PathLike | None = None,
    false_places: float = FALSE_PLACES,
    overwrite: bool = False,
    **options: Unpack[ReadOptions],
) -> KeyIndexReport:
    """Build a key index, as parquet_bloom.build_index does on one machine. Runs at once.

    paths    a file, folder or glob, or a list, as Spark names them; or one table, delta:, iceberg: or ducklake:, whose
             live files are indexed
    columns  one name or pattern, or a list
    output   folder of the index, not among the data, which the executors share with the driver; local in local mode
    root, false_places, overwrite, options  as parquet_bloom.build_index has them
    returns  the report of the build, with the column's entries, bits and bytes

    The driver lists, plans, and writes the manifest last: a job that was killed leaves the index that was there.
    Raises as parquet_bloom.build_index. SparkJobError for what executors lack; other errors of Spark pass.
    """
    refuse_unknown("build_index", options, ReadOptions)
    begun = time.perf_counter()
    named = checked_columns(columns, false_places)
    source = source_on_spark(paths_of(paths), options)
    folder = index_folder(local_folder(spark, output))
    folder.replaceable(overwrite)
    data = found_data(spark, source)
    folder.refuse_among_data(data.source, data.found)
    top = root_named(root, data.source, data.found)
    with raising_ours():
        plan = _planned(spark, data, _chosen(data, named), top, false_places)
        plan.refuse_nothing()
        segments = partial(_segments, spark, data, plan, folder.files)
        report = write_index(folder, data.found, plan, top, false_places, overwrite, segments)
    report.seconds = time.perf_counter() - begun
    return report


# --- the files, on the driver ---------------------------------------------------------------------


@dataclass(frozen=True)
class IndexedData:
    """The files of an index.

    source  as build_index would have it on one machine
    rows    of the files, in their order, of which `work.opener` makes files on executors
    """

    work: FilesWork | TableWork
    source: CallSource
    found: ResolvedSource
    rows: list[Row]

    @property
    def files(self) -> Sequence[DataFile]:
        """The files, as the driver opens them."""
        return self.found.files


def found_data(spark: Any, source: CallSource, stored_only: bool = True) -> IndexedData:
    """Find the files. Raises StorageError for a name that was not listed, and as spark.work.work_of."""
    work = work_of(spark, source, read_guard(source.raw_files), stored_only)
    if isinstance(work, TableWork):
        return IndexedData(work, source, ResolvedSource(work.snapshot), work.rows)
    files, rows = files_on_driver(work)
    names = [work.where.data_file(work.where.absolute(path)) for path in source.paths]
    here = CallSource([one.path if one.is_local else str(one) for one in names])
    return IndexedData(work, here, resolved_files(files), rows)


def _chosen(data: IndexedData, columns: Sequence[str]) -> list[Leaf]:
    """The columns of the index: of the table, or of the first file that has a footer. Raises RequestError."""
    hidden = hidden_keys(data.found, data.files)
    if isinstance(data.work, TableWork):
        return checked_leaves(select_leaves(data.found.names.leaves, columns, None), hidden)
    if data.work.first is None:  # reading footers will say why
        return []
    path, leaves = data.work.first
    return checked_leaves(leaves_of_file(path, leaves, columns), hidden)


# --- footers --------------------------------------------------------------------------------------


def _planned(spark: Any, data: IndexedData, chosen: Sequence[Leaf], root: str, false_places: float) -> Plan:
    """The plan of all files, whose footers executors read."""
    some = min(_FOOTERS, 1 + len(data.rows) // width(spark))
    starts = range(0, len(data.rows), some)
    work = [(at, start, pickle.dumps(data.rows[start : start + some])) for at, start in enumerate(starts)]
    run = partial(_plan_files, opener=data.work.opener, chosen=chosen, root=root)
    files: list[PlannedFile] = []
    schemas: dict[bytes, bytes] = {}
    for row in sorted(in_pieces(spark, work, run, _PLANNED).collect(), key=lambda row: int(row["number"])):
        for one in pickle.loads(bytes(row["data"])):
            one.data_file, one.schema = data.files[len(files)], schemas.setdefault(one.schema, one.schema)
            files.append(one)
    return assembled(files, chosen, false_places)


def in_pieces(spark: Any, work: list[tuple[int, int, bytes]], run: Any, schema: pa.Schema) -> Any:
    """The rows of a task for each piece of work."""
    return mapped_rows(in_tasks(spark, work), run, schema)


def in_tasks(spark: Any, work: list[tuple[int, int, bytes]]) -> Any:
    """A task for each piece of work: (task, number, pickle)."""
    return frame_of(spark, work, _WORK).repartitionById(max(1, len(work)), "task")


def _plan_files(rows: Iterator[Row], opener: Opener, chosen: Sequence[Leaf], root: str) -> Iterator[Row]:
    """On executors: rows of files -> their plans, without their statistics, which decoding finds again."""
    snapshot = opener.snapshot()
    names, real = names_of(snapshot), dict[str, str]()
    for row in rows:
        files = [opener.file(one, snapshot).file for one in pickle.loads(row["data"])]
        local = all(one.is_local for one in files)
        planned = []
        schemas: dict[bytes, bytes] = {}  # most files share one, and a pickle has what is shared once
        for footer in in_order(footer_of, files, 0 if local else None):
            one = plan_file(footer(), names, chosen, root, real)
            one.data_file, one.schema = _NOWHERE, schemas.setdefault(one.schema, one.schema)
            one.listed.statistics = {}
            planned.append(one)
        yield {"number": row["number"], "data": pickle.dumps(planned)}


# --- entries --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a segment that is built.

    first  the number of its first part among all parts
    """

    segment: str
    number: int
    packing: Packing
    first: int

    @property
    def parts(self) -> int:
        """How many it has."""
        return 1 << self.packing.partition_bits

    def write(self, files: IndexFiles, partition: int, packed: U64) -> PartFile:
        """Write a part. Raises StorageError."""
        return write_part(files, part_name(self.segment, self.number, partition), packed, self.packing)


@dataclass(frozen=True, slots=True)
class _Layout:
    """All parts of an index that is built.

    columns  of each segment
    task     of each part, the number of the task that writes it
    """

    columns: list[dict[int, _Column]]
    task: list[int]

    @classmethod
    def of(cls, segments: Sequence[PlannedSegment]) -> _Layout:
        """Number all parts, and share them out to tasks, by the entries that they have at most."""
        columns: list[dict[int, _Column]] = []
        tasks: list[int] = []
        room = at = -1
        for segment in segments:
            columns.append({})
            for number, packing in segment.packings.items():
                column = columns[-1][number] = _Column(segment.id, number, packing, len(tasks))
                most = sum(int(one.listed.values[number].sum()) for one in segment.files) // column.parts
                for _ in range(column.parts):
                    if most > room:
                        at, room = at + 1, max(most, _TASK_ENTRIES)
                    tasks.append(at)
                    room -= most
        return cls(columns, tasks)

    @property
    def tasks(self) -> int:
        """How many tasks write."""
        return self.task[-1] + 1

    def parts(self) -> Iterator[tuple[_Column, int]]:
        """All parts by number: column and partition."""
        for segment in self.columns:
            for column in segment.values():
                yield from ((column, partition) for partition in range(column.parts))

    def rows(self, column: _Column, packed: U64) -> Iterator[Row]:
        """Sorted entries of a column as rows, each of one part."""
        for part, (start, stop) in enumerate(pairwise(column.packing.cuts(packed)), column.first):
            for at in range(start, stop, _CHUNK):
                data = packed[at : min(at + _CHUNK, stop)].tobytes()
                yield {"task": self.task[part], "part": part, "data": data}


def _segments(spark: Any, data: IndexedData, plan: Plan, files: IndexFiles) -> list[Segment]:
    """Have executors write the parts, then write the listings."""
    layout = _Layout.of(plan.segments)
    most = max(1, min(_DECODED, limits().max_memory // (8 * _ENTRY_COPIES)))
    decode = partial(_decode_files, opener=data.work.opener, layout=layout, most=most)
    entries = in_pieces(spark, _decoding(spark, data, plan), decode, _ENTRIES)
    of_parts = entries.repartitionById(layout.tasks, "task").sortWithinPartitions("part")
    parts: dict[int, PartFile] = {}
    done = 0
    with small_batches(spark):
        rows = mapped_rows(of_parts, partial(_write_parts, layout=layout, files=files), _WRITTEN).collect()
    for row in rows:
        if row["part"] == _OF_A_FILE:
            segment, number, listed = pickle.loads(bytes(row["data"]))
            _take(plan.segments[segment].files[number], listed)
            done += 1
        else:
            parts[row["part"]] = pickle.loads(bytes(row["data"]))
    if done != sum(len(segment.files) for segment in plan.segments):
        raise SparkJobError("executors lost rows of the job; run it again")
    for part, (column, partition) in enumerate(layout.parts()):
        if part not in parts:  # no value has a hash that begins so
            parts[part] = column.write(files, partition, np.empty(0, np.uint64))
    return [_segment(planned, layout.columns[at], parts, files) for at, planned in enumerate(plan.segments)]


def _take(planned: PlannedFile, listed: ListedFile) -> None:
    """Take over what was found of a file while it was decoded."""
    planned.listed.values, planned.listed.statistics = listed.values, listed.statistics
    planned.listed.content = listed.content


def _segment(
    planned: PlannedSegment, columns: dict[int, _Column], parts: dict[int, PartFile], files: IndexFiles
) -> Segment:
    written = []
    for number, column in columns.items():
        own = tuple(parts[column.first + partition] for partition in range(column.parts))
        written.append(SegmentColumn(number, column.packing.bits, column.packing.partition_bits, own))
    return listed_segment(planned, files, written)


def _decoding(spark: Any, data: IndexedData, plan: Plan) -> list[tuple[int, int, bytes]]:
    """The files of each task that decodes, with their places: some small ones, or a large one."""
    number_of = {id(file): number for number, file in enumerate(data.files)}
    values = [[_values_of(one) for one in segment.files] for segment in plan.segments]
    most = min(max(_LEAST_VALUES, sum(map(sum, values)) // width(spark)), _TASK_VALUES)
    work: list[tuple[int, int, bytes]] = []
    for at, segment in enumerate(plan.segments):
        firsts = list(accumulate((len(one.listed.rows) for one in segment.files), initial=0))
        before = list(accumulate(values[at], initial=0))
        # Files whose values begin within the same stretch of `most` values are one task's.
        for _, some in groupby(range(len(segment.files)), key=lambda number: before[number] // most):
            files = []
            for number in some:
                one = segment.files[number]
                bare = replace(one, data_file=_NOWHERE, listed=replace(one.listed, values={}, statistics={}))
                files.append((number, firsts[number], data.rows[number_of[id(one.data_file)]], bare))
            work.append((len(work), at, pickle.dumps(files)))
    return work


def _values_of(planned: PlannedFile) -> int:
    """How many values of a file are indexed."""
    return sum(int(one.sum()) for one in planned.listed.values.values())


def _decode_files(rows: Iterator[Row], opener: Opener, layout: _Layout, most: int) -> Iterator[Row]:
    """On executors: files -> their entries, cut at the parts; and a row for each file that is decoded."""
    snapshot = opener.snapshot()
    for row in rows:
        segment = row["number"]
        columns = layout.columns[segment]
        numbers, firsts, sent, bare = zip(*pickle.loads(row["data"]), strict=True)
        files = [
            replace(one, data_file=opener.file(place, snapshot).file) for one, place in zip(bare, sent, strict=True)
        ]
        packings = {number: column.packing for number, column in columns.items()}
        done = 0
        # Spark may run this task again, when other tasks have written what it gave: only equal bytes give equal parts.
        for some in decode_run(files, firsts, packings, most, of_one_version=True):
            for number, packed in some.entries.items():
                yield from layout.rows(columns[number], sorted_once(packed))
            for contents in some.finished:
                one = files[done]
                one.listed.content = {number: _proved(content, one) for number, content in contents.items()}
                found = pickle.dumps((segment, numbers[done], one.listed))
                yield {"task": done % layout.tasks, "part": _OF_A_FILE, "data": found}
                done += 1


def _proved(content: Content, planned: PlannedFile) -> Content:
    """The content without a token that is not the plan's: another machine may see the file without any proof."""
    return content if content.token == planned.token else replace(content, token=None)


def _write_parts(rows: Iterator[Row], layout: _Layout, files: IndexFiles) -> Iterator[Row]:
    """On executors: the entries of some parts, part by part -> a file each; rows of files pass through."""
    parts = list(layout.parts())
    for part, some in groupby(rows, key=lambda row: int(row["part"])):
        if part == _OF_A_FILE:
            yield from some
            continue
        column, partition = parts[part]
        packed = sorted_once([np.frombuffer(row["data"], np.uint64) for row in some])
        written = column.write(files, partition, packed)
        yield {"part": part, "data": pickle.dumps(written)}


# --- zone indexes ---------------------------------------------------------------------------------


_PIECE = pa.schema(
    [
        ("fragment", pa.int64()),
        ("place", pa.int64()),
        ("column", pa.int32()),
        ("data", pa.binary()),
        ("nulls", pa.binary()),
        ("identity", pa.string()),
    ]
)
_BUILT = pa.schema(
    [
        ("path", pa.string()),
        ("column", pa.string()),
        ("type", pa.string()),
        ("zones", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@explained
def build_zone_index(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    output: PathLike,
    *,
    items: int = 8192,
    probability: float = 0.00057,
    overwrite: bool = False,
    sync: bool = True,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Build a zone index over each column of Parquet files. Runs at once.

    paths    a file, folder or glob, or a list, as Spark names them; or one table, delta:, iceberg: or ducklake:, whose
             live files are indexed
    columns  one name or pattern, or a list
    output   a folder that the executors share with whoever will read the index; local in local mode
    items, probability, overwrite, sync, options  as parquet_bloom.lance.build_index has them
    returns  DataFrame(path, column, type, zones, bytes), cached, a row an index

    Raises as build_index; RequestError for Lance data sets, which build_index is for.
    """
    refuse_unknown("build_zone_index", options, ReadOptions)
    paths, columns = paths_of(paths), index_columns(columns)
    for path in paths:
        if is_lance(path):
            raise RequestError(
                f"{path} is a Lance data set; build its index with parquet-bloom index build --kind lance"
            )
    parameters = form.Parameters(items, probability)
    source = source_on_spark(paths, options)
    folder = local_folder(spark, output)
    data = _sendable(open_data(_found(spark, source), columns), source)
    rows = [(fragment.number, pickle.dumps(fragment)) for fragment in data.fragments]
    work = frame_of(spark, rows, "fragment bigint, pickled binary")
    work = work.repartition(min(len(rows), max(1, 16 * width(spark))))
    pieces = mapped_rows(work, functools.partial(_make, columns=data.columns, parameters=parameters), _PIECE)
    joined = pieces.repartition(1).sortWithinPartitions("fragment", "place")
    write = functools.partial(_join, data=data, parameters=parameters, output=folder, overwrite=overwrite, sync=sync)
    with small_batches(spark):
        return computed(mapped_rows(joined, write, _BUILT))[0]


def _found(spark: Any, source: CallSource) -> CallSource:
    """The files of an index, on the driver; tasks list them."""
    if source.table_name is not None:
        return source
    return CallSource(files_on_driver(files_work(spark, source.paths, read_guard(source.raw_files)))[0])


def _sendable(data: Data, source: CallSource) -> Data:
    """The same, as executors can reach it."""
    fragments = []
    for fragment in data.fragments:
        assert isinstance(fragment, ParquetFragment)
        if isinstance(file := fragment.data_file, TableFile):
            fragment = pickle.loads(sendable(replace(fragment, data_file=sent_file(file, ANY).file), source.paths[0]))
        fragments.append(fragment)
    return replace(data, fragments=fragments)


def _make(rows: Iterator[Row], columns: Any, parameters: form.Parameters) -> Iterator[Row]:
    for row in rows:
        for place, piece in enumerate(zone_batches_of(pickle.loads(row["pickled"]), columns, parameters)):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, piece.zones.schema) as writer:
                writer.write_batch(piece.zones)
            yield {
                "fragment": piece.fragment,
                "place": place,
                "column": piece.column,
                "data": out.getvalue().to_pybytes(),
                "nulls": piece.nulls,
                "identity": None if piece.identity is None else json.dumps(piece.identity),
            }


def _join(
    rows: Iterator[Row], data: Data, parameters: form.Parameters, output: str, overwrite: bool, sync: bool
) -> Iterator[Row]:
    def pieces() -> Iterator[ZoneBatch]:
        for row in rows:
            identity = None if row["identity"] is None else json.loads(row["identity"])
            for zones in pa.ipc.open_stream(row["data"]):
                yield ZoneBatch(row["column"], row["fragment"], zones, row["nulls"], identity)

    for one in write_indexes(data, parameters, pieces(), output, overwrite, sync):
        yield {name: getattr(one, name) for name in _BUILT.names}
