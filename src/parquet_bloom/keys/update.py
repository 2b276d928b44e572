"""Updating a key index: new files become a segment, gone ones leave, and segments merge without reading data.

    files of the source   known, same token or log      entries stay
                          known, another token          the hash of each chunk: equal, entries stay; else as new
                          new                           decoded, a segment of their own
    files of the index    not in the source             their places leave when their segment merges

More than four segments of one set of types merge, the smallest first. Entries are read, renumbered and sorted again;
no column is decoded. The manifest is written last, if it is still the one that was read: of two updates one wins, and
the other plans again. What the old manifest names stays until the next update, for programs that read it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import ConflictError, FileError, RequestError, StorageError
from parquet_bloom.filters.content import difference
from parquet_bloom.format.schema import split_path
from parquet_bloom.keys.build import WRITER, build_segments, checked_places, write_index
from parquet_bloom.keys.coverage import Coverage, coverage_of, named_leaves
from parquet_bloom.keys.entries import U64, Packing, sorted_once, write_part
from parquet_bloom.keys.folder import IndexFolder, index_folder
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.listing import TOKEN, write_places
from parquet_bloom.keys.manifest import (
    NAME,
    Manifest,
    SchemaKey,
    Segment,
    SegmentColumn,
    SegmentSchema,
    listing_name,
    partition_bits_of,
    place_bits_of,
    schema_bytes,
)
from parquet_bloom.keys.plan import KeyIndexReport, fill, plan_of
from parquet_bloom.options import PathLike, ReadOptions, check_threads, refuse_unknown
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.search.log import log_of
from parquet_bloom.source.results import Result
from parquet_bloom.source.source import ResolvedSource, source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.version_token import Kept
from parquet_bloom.storage.workers import ProgressCallback

MOST_SEGMENTS = 4  # of one set of types, that a lookup asks
_TRIES = 5  # of an update that another one overtakes


@dataclass(slots=True, repr=False)
class UpdateReport(Result):
    """The report of an update.

    kept       files whose entries stay
    recognised of these, those with another token and equal bytes: filters came or went, or it is a copy
    added      files that were decoded: new ones, and changed ones
    gone       files that left
    merged     segments that were merged
    index      what the index has now
    """

    kept: int = 0
    recognised: int = 0
    added: int = 0
    gone: int = 0
    merged: int = 0
    index: KeyIndexReport = field(default_factory=lambda: KeyIndexReport(""))
    seconds: float = 0.0


def update_index(
    index: PathLike,
    source: PathLike | Sequence[PathLike],
    *,
    threads: int | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> UpdateReport:
    """Bring a key index up to date with its data.

    index    its folder, or a URI on S3
    source   the data, as build_index had them: an index opens no file by names of its own
    threads, filesystem, progress, options  as build_index has them

    Raises StaleIndexError for data of which the index knows nothing, RequestError, FileError; ConflictError where other
    updates were quicker again and again.
    """
    refuse_unknown("update_index", options, ReadOptions)
    check_threads(threads)
    begun = time.perf_counter()
    folder = _there(index)
    for left in reversed(range(_TRIES)):
        found = source_of(source, filesystem, options).resolve(refuses=RAW_FILES)
        found.raise_failed()
        with folder.locked():
            try:
                report = _updated(folder, found, threads, progress)
                break
            except ConflictError as error:
                if not left or error.path != str(folder.manifest()):
                    raise
    report.seconds = time.perf_counter() - begun
    return report


def rebuild_index(
    index: PathLike,
    source: PathLike | Sequence[PathLike],
    *,
    false_places: float | None = None,
    threads: int | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> KeyIndexReport:
    """Build a key index again over its data, with the columns and the root that it has.

    Bits do not grow by updates: this is for an index that grew so much that it has too many false places.

    index         its folder, or a URI on S3
    source        the data, as build_index had them
    false_places  as build_index has it; default: what the index has
    threads, filesystem, progress, options  as build_index has them

    Raises StaleIndexError for data of which the index knows nothing, and as build_index.
    """
    refuse_unknown("rebuild_index", options, ReadOptions)
    check_threads(threads)
    begun = time.perf_counter()
    folder = _there(index)
    found = source_of(source, filesystem, options).resolve(refuses=RAW_FILES)
    found.raise_failed()
    opened, _ = folder.open()
    old = opened.manifest
    coverage = coverage_of(opened, found)
    if not coverage.at and not coverage.is_of_table:
        raise coverage.stale()
    wanted = old.false_places if false_places is None else checked_places(false_places)
    files = [one for one in found.files if one.stored]
    plan = plan_of(found, files, (), old.root, wanted, _paths(opened, coverage, found))
    opened.close()
    plan.refuse_nothing()
    segments = partial(build_segments, plan.segments, folder, threads, progress)
    report = write_index(folder, found, plan, old.root, wanted, True, segments)
    report.seconds = time.perf_counter() - begun
    return report


def _there(index: PathLike) -> IndexFolder:
    """The folder of an index that is there. Raises StorageError, RequestError."""
    folder = index_folder(index)
    if folder.version() is None:
        raise StorageError(folder.path, f"is no key index, which has a {NAME}; parquet-bloom index build makes one")
    return folder


def _updated(
    folder: IndexFolder, found: ResolvedSource, threads: int | None, progress: ProgressCallback | None
) -> UpdateReport:
    index, before = folder.open()
    old = index.manifest
    report = UpdateReport()
    # 1. Which files are known.
    coverage = coverage_of(index, found)
    tokens, same = _recognised(index, coverage, found)
    alive = {(one.segment, one.number) for one in coverage.known if one.is_sure} | set(tokens) | same
    if found.files and not alive and old.files and not coverage.is_of_table:
        raise coverage.stale("rebuild")
    new = [file for file in found.files if file.stored and coverage.at.get(id(file)) not in alive]
    report.kept, report.recognised, report.gone = len(alive), len(tokens), len(index.names.keys() - {""}) - len(alive)
    # 2. A segment of the new ones.
    paths = _paths(index, coverage, found)
    plan = plan_of(found, new, (), old.root, old.false_places, paths)
    added = build_segments(plan.segments, folder, threads, progress)
    report.added = sum(segment.files for segment in added)
    # 3. Listings without the files that are gone, and with the tokens of those that were recognised.
    segments = []
    for number, segment in enumerate(old.segments):
        live = np.array([(number, file) in alive for file in range(segment.files)], bool)
        renewed = {file: token for (at, file), token in tokens.items() if at == number}
        if live.any():
            segments.append(_relisted(index, segment, live, renewed, folder))
    # 4. Fewer segments.
    merged = _merged(replace(old, segments=(*segments, *added)), folder, report)
    snapshot = found.snapshot
    manifest = replace(
        old,
        created=int(time.time()),
        writer=WRITER,
        version=snapshot.version if found.has_log else "",
        segments=tuple(merged),
    )
    folder.publish(manifest, before, {one.id for one in old.segments})
    report.index = KeyIndexReport(folder.path)
    fill(report.index, manifest)
    return report


def _recognised(
    index: KeyIndex, coverage: Coverage, found: ResolvedSource
) -> tuple[dict[tuple[int, int], Kept | None], set[tuple[int, int]]]:
    """Files with another token whose columns have the bytes that were indexed, by segment and number.

    returns  their tokens of today; and files that were not recognised for a moment, and have their token
    """
    same_token: set[tuple[int, int]] = set()
    sure = {id(one.file) for one in coverage.known if one.is_sure}
    tokens: dict[tuple[int, int], Kept | None] = {}
    for file in found.files:
        at = coverage.at.get(id(file))
        if at is None or id(file) in sure:
            continue
        segment = index.manifest.segments[at[0]]
        listing = index.listing(segment)
        schema = segment.schemas[int(listing.schema[at[1]])]
        leaves = schema.leaves
        try:
            with OpenFile(file) as source:
                if source.is_known_by(listing.tokens[at[1]]):  # stat failed when it was compared, or no listing had it
                    same_token.add(at)
                    continue
                # A file that got one of the columns, or other rows, is a new one.
                outline = source.outline()
                same = schema_bytes(outline.schema_elements) == schema_bytes(schema.elements)
                rows = listing.rows[1][listing.first[at[1]] : listing.first[at[1] + 1]]
                same = same and np.array_equal(outline.rows, rows)
                for number, leaf in schema.columns.items():
                    content = listing.content(number, at[1])
                    same = same and content is not None and difference(content, source, leaves[leaf].path) is None
                if same:
                    tokens[at] = source.lasting_token(wait=True)
        except StorageError:
            raise  # a disk that fails now may answer later, and the file would count as another one
        except FileError:
            continue  # decoding it says what is wrong
    return tokens, same_token


def _paths(index: KeyIndex, coverage: Coverage, found: ResolvedSource) -> list[tuple[str, ...]]:
    """The columns of the index by number, as the source calls them today: a table may have renamed one."""
    paths = [split_path(column.name) for column in index.manifest.columns]
    if found.has_log:
        log = log_of(found.snapshot)
        known: set[int] = set()
        for one in coverage.known:
            schema = index.manifest.segments[one.segment].schemas[one.schema]
            if not set(schema.columns) <= known:
                leaves = named_leaves(schema, log, one.file)
                paths = [leaves[schema.columns[n]].path if n in schema.columns else p for n, p in enumerate(paths)]
                known |= set(schema.columns)
            if len(known) == len(paths):
                break
        if () in paths:
            gone = index.manifest.columns[paths.index(())].name
            raise RequestError(f"{index.path}: the table has no column {gone} any more; build the index again")
    return paths


# --- listings and merges --------------------------------------------------------------------------


def _relisted(
    index: KeyIndex, segment: Segment, live: NDArray[np.bool_], renewed: dict[int, Kept | None], folder: IndexFolder
) -> Segment:
    """A segment with a listing in which files that are gone have no path, and recognised ones their tokens of today."""
    listing = index.listing(segment)
    if not (listing.live & ~live).any() and not renewed:
        return segment
    table = listing.table()
    of = listing.file_of
    paths = np.array(listing.paths, object)
    paths[~live] = ""
    table = _with(table, "path", pa.array(paths[of], pa.string()))
    for name, kind in TOKEN.items():
        values = table.column(name).to_pylist()
        for file, token in renewed.items():
            for place in range(int(listing.first[file]), int(listing.first[file + 1])):
                values[place] = (token or {}).get(name)
        table = _with(table, name, pa.array(values, kind))
    new = replace(segment, revision=folder.revision_after(segment.revision))
    return replace(new, listing=write_places(folder.files, new.listing_name, table))


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _merged(manifest: Manifest, folder: IndexFolder, report: UpdateReport) -> list[Segment]:
    """The segments, with at most four of each kind, and none of which half is gone."""
    by_kind: dict[tuple[Any, ...], list[Segment]] = {}
    for segment in manifest.segments:
        by_kind.setdefault(segment.kind, []).append(segment)
    result: list[Segment] = []
    index, _ = folder.open()  # of the listings as they are now
    for members in by_kind.values():
        members.sort(key=lambda segment: segment.places)
        several: list[Segment] = []
        while len(members) > MOST_SEGMENTS or (several and members and members[0].places <= _places(several)):
            several.append(members.pop(0))
        half_gone = [segment for segment in members if 2 * _live_places(index, segment) < segment.places]
        several += half_gone
        if len(several) > 1 or half_gone:
            report.merged += len(several)
            members = [one for one in members if one not in half_gone] + [_merge(index, several, folder.files)]
        else:
            members += several
        result += members
    index.close()
    return result


def _places(segments: Sequence[Segment]) -> int:
    return sum(segment.places for segment in segments)


def _live_places(index: KeyIndex, segment: Segment) -> int:
    listing = index.listing(segment)
    return int(np.diff(listing.first)[listing.live].sum())


def _merge(index: KeyIndex, segments: Sequence[Segment], into: IndexFiles) -> Segment:
    """Write the entries of several segments as one, without the places of files that are gone."""
    name = secrets.token_hex(8)
    tables: list[pa.Table] = []
    renumbered: list[NDArray[np.int64]] = []
    numbers: dict[SchemaKey, int] = {}
    places = files = 0
    for segment in segments:
        listing = index.listing(segment)
        live = listing.live[listing.file_of]
        new_place = np.cumsum(live) - 1 + places
        renumbered.append(np.where(live, new_place, -1))
        schema_of = [numbers.setdefault(schema.key, len(numbers)) for schema in segment.schemas]
        table = listing.table().filter(pa.array(live))
        n = table.num_rows
        file = np.unique(np.asarray(table.column("file").to_numpy()), return_inverse=True)[1] + files
        table = _with(table, "place", pa.array(np.arange(places, places + n, dtype=np.int32)))
        table = _with(table, "file", pa.array(file.astype(np.int32)))
        own = np.array(schema_of, np.int32)[np.asarray(table.column("schema").to_numpy())]
        tables.append(_with(table, "schema", pa.array(own)))
        places, files = places + n, int(file[-1]) + 1 if n else files
    whole = pa.concat_tables(tables)
    listed = write_places(into, listing_name(name), whole)
    rows = int(np.asarray(whole.column("rows").to_numpy()).sum())
    merged = Segment(name, files, places, rows, listed, tuple(map(SegmentSchema.of, numbers)), ())
    columns = []
    for number in sorted({column.number for segment in segments for column in segment.columns}):
        own_columns = [segment.column(number) for segment in segments]
        columns.append(_merge_column(index, segments, own_columns, renumbered, merged, number, into))
    return replace(merged, columns=tuple(columns))


def _merge_column(
    index: KeyIndex,
    segments: Sequence[Segment],
    columns: Sequence[SegmentColumn | None],
    renumbered: Sequence[NDArray[np.int64]],
    merged: Segment,
    number: int,
    into: IndexFiles,
) -> SegmentColumn:
    there = [column for column in columns if column is not None]
    place_bits = place_bits_of(merged.places)
    bits = min(*(column.bits for column in there), 64 - place_bits)
    packing = Packing(bits, place_bits, partition_bits_of(sum(column.entries for column in there), bits))
    parts = []
    for partition in range(1 << packing.partition_bits):
        packed: list[U64] = []
        for segment, column, places in zip(segments, columns, renumbered, strict=True):
            if column is not None:
                packed += _entries_between(index, segment, column, places, packing, partition)
        parts.append(write_part(into, merged.part_name(number, partition), sorted_once(packed), packing))
    return SegmentColumn(number, bits, packing.partition_bits, tuple(parts))


def _entries_between(
    index: KeyIndex,
    segment: Segment,
    column: SegmentColumn,
    places: NDArray[np.int64],
    packing: Packing,
    partition: int,
) -> Iterator[U64]:
    """The entries of a segment that belong to a partition of the merged one, packed as these are."""
    fewer = np.uint64(column.bits - packing.bits)
    shift = column.bits - packing.partition_bits
    for hashes, old in index.entries(segment, column, partition << shift, (partition + 1) << shift):
        new = places[old]
        live = new >= 0
        packed = hashes[live].astype(np.uint64) >> fewer
        yield packed << np.uint64(packing.place_bits) | new[live].astype(np.uint64)
