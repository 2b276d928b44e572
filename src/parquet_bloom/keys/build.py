"""Building a key index: files in, sorted entries out, in bounded memory; a killed build goes on where it was.

    footers -> Plan: files, places, bits -> a segment for each set of types
    column chunks -> values -> hashes -> entries -> Sorter -> a Parquet file a partition -> listing -> manifest

The bits of a segment are known before anything is decoded: footers tell how many values there are. While it works,
DIR/build has the plan, the runs of the Sorter, and a line for all that is done; the manifest is written last.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, field
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom._version import __version__
from parquet_bloom.arguments import column_names, refuse_unknown, several
from parquet_bloom.errors import (
    EXISTS,
    ConflictError,
    DamagedFileError,
    RefusedTypeError,
    RequestError,
    StorageError,
    UnknownColumnError,
    parameter,
)
from parquet_bloom.filters.content import CHANGED, Content, Recording
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format import compact
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.format.values import type_of
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.keys.entries import U64, Packing, Sorter, write_part
from parquet_bloom.keys.listing import ListedFile, write_listing
from parquet_bloom.keys.manifest import (
    NAME,
    IndexColumn,
    Manifest,
    PartFile,
    Segment,
    SegmentColumn,
    SegmentSchema,
    bits_of,
    partition_bits_of,
    place_bits_of,
    schema_bytes,
    to_json,
)
from parquet_bloom.limits import limits
from parquet_bloom.options import PathLike, ReadOptions
from parquet_bloom.output.atomic_file import AtomicFile, local_target, new_output
from parquet_bloom.output.folder import lock
from parquet_bloom.search.evidence import partition_keys
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.source.source import CallSource, ResolvedSource, source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.stores import fits, store_of
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import chain_results, processors

WRITER = f"parquet-bloom {__version__}"
FALSE_PLACES = 0.05  # of a lookup over everything
_ENTRY_COPIES = 4  # an entry takes 8 bytes, and sorting and cutting take it some times more
_PART_BYTES, _PLACE_BYTES = 4096, 100  # of a file's footer, and of a row group in a listing, at most
_AHEAD = 4  # row groups of a file that are decoded ahead


# --- the plan -------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlannedFile:
    """A file to index.

    schema  as Thrift has it
    leaves  column -> its leaf in this file
    token   of its version, to go on with a build that was killed
    """

    data_file: DataFile
    schema: bytes
    leaves: dict[int, Leaf]
    listed: ListedFile
    token: object

    @property
    def kind(self) -> tuple[Any, ...]:
        """Files of one segment have the same."""
        return tuple((number, type_of(leaf)) for number, leaf in sorted(self.leaves.items()))


@dataclass(slots=True)
class PlannedSegment:
    """Files whose columns have one type each.

    schemas  of its files, each once
    """

    id: str
    files: list[PlannedFile]
    schemas: list[SegmentSchema]
    leaves: dict[int, Leaf]
    packings: dict[int, Packing]

    @property
    def places(self) -> int:
        """Row groups of all files."""
        return sum(len(one.listed.rows) for one in self.files)


@dataclass(slots=True)
class Plan:
    """What a build will do."""

    root: str
    columns: list[IndexColumn]
    segments: list[PlannedSegment]
    empty: int  # files without a row group, or without any of the columns


def root_of(files: Sequence[DataFile]) -> str:
    """The folder or URI that all files lie below, as their names have it; "" for none."""
    folders = [name_of(one).rpartition("/")[0] for one in files]
    if not folders:
        return ""
    first, *others = [folder.split("/") for folder in dict.fromkeys(folders)]
    shared = len(first)
    for parts in others:
        while first[:shared] != parts[:shared]:
            shared -= 1
    return "/".join(first[:shared])


def name_of(file: DataFile) -> str:
    """The name of a file in any folder: a local path from the root, with slashes, or a URI."""
    if not file.is_local:
        return store_of(file).names(file)[0]
    path = file.path if os.path.isabs(file.path) else os.path.abspath(file.path)
    return path if os.sep == "/" else path.replace(os.sep, "/")


def below(name: str, root: str) -> str:
    """A name without its root; one that does not lie below it stays whole."""
    return name[len(root) + 1 :] if name.startswith(root + "/") else name


def plan_of(
    found: ResolvedSource,
    files: Sequence[DataFile],
    columns: Sequence[str],
    root: str,
    false_places: float,
    paths: Sequence[tuple[str, ...]] | None = None,
) -> Plan:
    """Read footers.

    files    of the source, those to index
    columns  names and patterns
    paths    in the place of these, the columns of an index by number, as the source calls them
    Raises UnknownColumnError, RefusedTypeError, FileError.
    """
    names = found.names
    hidden = {key.path for key in partition_keys(one.partitions for one in files)} if not found.has_log else set()
    selected: Sequence[Leaf] | None = None
    if paths is not None:
        selected = [Leaf(number, path, 0) for number, path in enumerate(paths)]
    elif found.has_log:
        selected = select_leaves(names.leaves, columns, None)
    plan = Plan(root, [], [], 0)
    planned: list[PlannedFile] = []

    def footer(file: DataFile) -> tuple[DataFile, Outline, object]:
        with OpenFile(file) as source:
            token = source.lasting_token(wait=True) or [source.size, str(source.version_token)]
            return file, source.outline(), token

    local = all(one.is_local for one in files)
    for result in in_order(footer, files, 0 if local else None):
        file, found_outline, token = result()
        elements = found_outline.schema_elements
        try:
            own = found_outline.leaves
            named = names.named_leaves(own, elements, file)
            if selected is None:
                selected = select_leaves(named, columns, None)
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{file}: {error.message}") from error
        if not plan.columns:
            plan.columns = [IndexColumn(leaf.name) for leaf in selected]
            if len({leaf.path for leaf in selected}) < len(selected):
                raise RequestError(parameter("columns") + " names a column twice")
        leaves: dict[int, Leaf] = {}
        for number, wanted in enumerate(selected):
            if wanted.path in hidden:
                raise RequestError(
                    f"{wanted.name}: the folders' names have its values, and no index is needed for them"
                )
            at = next((leaf.index for leaf in named if leaf.path == wanted.path), None)
            if at is None:
                continue
            if (reason := own[at].refusal) is not None:
                raise RefusedTypeError(f"{file}: column {wanted.name}: {reason}")
            leaves[number] = own[at]
            if plan.columns[number].field_id is None:
                plan.columns[number] = IndexColumn(wanted.name, elements[own[at].element].field_id)
        if not leaves or not found_outline.n_row_groups:
            plan.empty += 1
            continue
        values = {n: found_outline.slots[Slot.NUM_VALUES, :, leaf.index].copy() for n, leaf in leaves.items()}
        if any((one < 0).any() for one in values.values()):
            raise DamagedFileError(file, "a column chunk has no number of values")
        known = {n: statistics_of(found_outline, leaf) for n, leaf in leaves.items()}
        listed = ListedFile(below(name_of(file), root), 0, found_outline.rows.copy(), values, known)
        planned.append(PlannedFile(file, schema_bytes(elements), leaves, listed, token))
    by_kind: dict[tuple[Any, ...], list[PlannedFile]] = {}
    for one in planned:
        by_kind.setdefault(one.kind, []).append(one)
    for members in by_kind.values():
        plan.segments.append(_segment(members, false_places))
    return plan


def _segment(files: list[PlannedFile], false_places: float) -> PlannedSegment:
    numbers: dict[bytes, int] = {}
    schemas: list[SegmentSchema] = []
    for one in files:
        if one.schema not in numbers:
            numbers[one.schema] = len(schemas)
            elements = tuple(compact.decode(FileMetaData, one.schema)[0].schema)
            schemas.append(SegmentSchema(elements, {n: leaf.index for n, leaf in one.leaves.items()}))
        one.listed.schema = numbers[one.schema]
    places = sum(len(one.listed.rows) for one in files)
    packings = {}
    for number in files[0].leaves:
        entries = sum(int(one.listed.values[number].sum()) for one in files)
        bits = bits_of(entries, places, false_places)
        packings[number] = Packing(bits, place_bits_of(places), partition_bits_of(entries, bits))
    # All that entries come from: what a killed build left counts for the same columns of the same files alone.
    facts = [
        [
            one.listed.path,
            one.schema.hex(),
            [leaf.index for _, leaf in sorted(one.leaves.items())],
            one.listed.rows.tolist(),
            one.token,
        ]
        for one in files
    ]
    known = [sorted((n, astuple(packing)) for n, packing in packings.items()), facts]
    name = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:16]
    return PlannedSegment(name, files, schemas, dict(files[0].leaves), packings)


# --- decoding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of one place, or with contents the end of a file."""

    column: int
    packed: U64 | None
    contents: dict[int, Content] | None = None


def _decode(one: PlannedFile, first_place: int, packings: dict[int, Packing]) -> Iterator[_Entries]:
    """The entries of one file, row group by row group; each column chunk is decoded once.

    Raises FileError; ConflictError for a file that is not the one whose footer was read, or changes meanwhile.
    """
    with OpenFile(one.data_file) as source:
        outline = source.outline()
        if schema_bytes(outline.schema_elements) != one.schema or (
            outline.n_row_groups != len(one.listed.rows) or (outline.rows != one.listed.rows).any()
        ):
            raise ConflictError(source.path, CHANGED)
        # As of the bytes that are decoded: since the plan the file may have got other ones, and keep its rows.
        for number, leaf in one.leaves.items():
            one.listed.values[number] = outline.slots[Slot.NUM_VALUES, :, leaf.index].copy()
            one.listed.statistics[number] = statistics_of(outline, leaf)
        recording = Recording(source)
        readers = {number: ColumnReader(source, leaf) for number, leaf in one.leaves.items()}
        for group in range(outline.n_row_groups):
            for number, reader in readers.items():
                packing = packings[number]
                with recording.decoding(reader.leaf, group):
                    parts = [packing.pack(hash_array(batch), first_place + group) for batch in reader.batches(group)]
                packed = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.empty(0, np.uint64)
                yield _Entries(number, packed)
        yield _Entries(0, None, {number: recording.content(reader.leaf) for number, reader in readers.items()})


# --- a build that may be killed -------------------------------------------------------------------


class Journal:
    """The steps of a build that are done, a line of JSON each. The first line names the plan that they belong to."""

    def __init__(self, folder: str, plan: str) -> None:
        """Begin, or go on if the same plan was begun in this folder. Raises StorageError."""
        self._path = os.path.join(folder, "journal")
        lines = self._lines()
        goes_on = lines[:1] == [{"plan": plan}]
        self.steps = lines[1:] if goes_on else []
        with _storing(folder):
            if not goes_on:
                shutil.rmtree(folder, ignore_errors=True)
                os.makedirs(folder)
            # Without the rest of a line that was cut off.
            with new_output(self._path, overwrite=True) as out:
                out.write("".join(json.dumps(one) + "\n" for one in [{"plan": plan}, *self.steps]).encode())

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        with suppress(OSError, ValueError), open(self._path, encoding="utf-8") as lines:
            for line in lines:
                found.append(json.loads(line))
        return found

    def note(self, step: dict[str, Any]) -> None:
        """Remember a step. Raises StorageError."""
        with _storing(self._path), open(self._path, "a", encoding="utf-8") as out:
            out.write(json.dumps(step) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self.steps.append(step)


@contextmanager
def _storing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(path, error.strerror or str(error)) from error


def _content_words(contents: dict[int, Content]) -> dict[str, Any]:
    return {str(number): [list(one.crc32), one.token] for number, one in contents.items()}


def build_segment(planned: PlannedSegment, folder: str, threads: int, meter: Meter, journal: Journal) -> Segment:
    """Build one segment, or what is missing of it. Raises FileError."""
    numbers = list(planned.packings)
    packings = [planned.packings[number] for number in numbers]
    spilled = os.path.join(folder, "build", planned.id)
    with _storing(spilled):
        os.makedirs(spilled, exist_ok=True)
    own = [step for step in journal.steps if step.get("segment") == planned.id]
    sorter = Sorter(packings, spilled, max(1, limits().max_memory // (8 * _ENTRY_COPIES)))
    # 1. Files whose entries are in runs already.
    done = 0
    for step in own:
        if "files" in step:
            sorter.lengths = dict(step["lengths"])
            for one, words in zip(planned.files[done:], step["contents"], strict=False):
                rows = one.listed.rows.tolist()
                one.listed.content = {int(n): Content(rows, crc, token) for n, (crc, token) in words.items()}
                meter.finish()
            done = step["files"]
    # 2. The others.
    parts = {(step["part"][0], step["part"][1]): PartFile(*step["is"]) for step in own if "part" in step}
    if done < len(planned.files):
        _sort(planned, done, sorter, threads, meter, journal)
        parts = {}
    # 3. A file for each partition of each column.
    columns = []
    for at, number in enumerate(numbers):
        written = []
        for partition, packed in enumerate(sorter.partitions(at)):
            part = parts.get((number, partition))
            if part is None:
                path = os.path.join(folder, "columns", str(number), f"{planned.id}-{partition:05d}.parquet")
                part = write_part(path, packed, packings[at])
                if sorter.lengths:
                    journal.note(
                        {
                            "segment": planned.id,
                            "part": [number, partition],
                            "is": [part.rows, part.size, part.footer_crc32],
                        }
                    )
            written.append(part)
        columns.append(SegmentColumn(number, packings[at].bits, packings[at].partition_bits, tuple(written)))
    listed = [one.listed for one in planned.files]
    listing = write_listing(os.path.join(folder, "segments", planned.id, "files.parquet"), listed, planned.leaves)
    rows = sum(int(one.rows.sum()) for one in listed)
    return Segment(planned.id, len(listed), planned.places, rows, listing, tuple(planned.schemas), tuple(columns))


def _sort(planned: PlannedSegment, done: int, sorter: Sorter, threads: int, meter: Meter, journal: Journal) -> None:
    """Decode the files from number `done` on. A line of the journal says which of them are in runs."""
    firsts = np.cumsum([0, *(len(one.listed.rows) for one in planned.files)]).tolist()
    columns = {number: at for at, number in enumerate(planned.packings)}
    noted = done

    def work(at: int) -> Iterator[_Entries]:
        return _decode(planned.files[at], firsts[at], planned.packings)

    with closing(chain_results(work, range(done, len(planned.files)), threads, _AHEAD)) as results:
        for one in results:
            if one.packed is not None:
                sorter.add(columns[one.column], one.packed)
                continue
            assert one.contents is not None
            planned.files[done].listed.content = one.contents
            done += 1
            meter.finish()
            if sorter.is_full and done < len(planned.files):
                sorter.spill()
                contents = [_content_words(file.listed.content) for file in planned.files[noted:done]]
                journal.note({"segment": planned.id, "files": done, "lengths": sorter.lengths, "contents": contents})
                noted = done


# --- the call -------------------------------------------------------------------------------------


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


def build_index(
    source: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    output: PathLike,
    *,
    root: PathLike | None = None,
    false_places: float = FALSE_PLACES,
    overwrite: bool = False,
    threads: int | None = None,
    dry_run: bool = False,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> KeyIndexReport:
    """Build a key index: which row groups hold a value, by a sorted list of hashes.

    source       files, folders, globs, URIs; or one table (delta:, iceberg:, ducklake:), whose live files are indexed
    columns      one name or pattern, or a list
    output       folder of the index, on a local disk, and not among the data; it is made
    root         the folder or URI that the names of files are kept below; default: the one that all lie in
    false_places  row groups that a lookup of one value meets by chance, on average, over everything: it sets the bits
    overwrite    replace the index that is there
    threads      that decode files side by side; default: one a processor
    dry_run      read footers, and say how large the index would be at most; write nothing
    filesystem   of pyarrow or fsspec; source then names Parquet files on it
    progress     is called with a Progress for every file
    options      see ReadOptions

    A build that was killed goes on where it was if it is started again with the same arguments over the same files.
    Memory: `set_limits(max_memory=)` bounds decoding in each thread, and sorting.

    Raises RefusedTypeError, UnknownColumnError, RequestError, FileError; TypeError for an option that there is not;
    TableFormatError for files of a table without raw_files.
    """
    refuse_unknown("build_index", options, ReadOptions)
    begun = time.perf_counter()
    named = column_names(columns, "columns")
    if not named:
        raise RequestError(parameter("columns") + " takes a name or a list of names, at least one")
    if not 0 < false_places < math.inf:
        raise RequestError(parameter("false_places") + f" {false_places} is no positive number")
    folder = os.path.abspath(local_target(output))
    where = source_of(source, filesystem, options)
    found = where.resolve(refuses=RAW_FILES)
    found.raise_failed()
    _refuse_among_data(folder, where, found)
    if not dry_run and not overwrite and os.path.lexists(os.path.join(folder, NAME)):
        raise StorageError(os.path.join(folder, NAME), EXISTS)
    top = os.fspath(root).rstrip("/") if root is not None else _root(where, found)
    plan = plan_of(found, [one for one in found.files if one.stored], named, top, false_places)
    if not plan.segments:
        raise RequestError("there is no row group to index")
    report = KeyIndexReport(folder, passed_over=plan.empty)
    if dry_run:
        _estimate(plan, report)
        report.seconds = time.perf_counter() - begun
        return report
    with locked(folder):
        manifest = _built(plan, found, folder, top, false_places, overwrite, threads or processors(), progress)
    fill(report, manifest)
    report.seconds = time.perf_counter() - begun
    return report


def _built(
    plan: Plan,
    found: ResolvedSource,
    folder: str,
    root: str,
    false_places: float,
    overwrite: bool,
    threads: int,
    progress: ProgressCallback | None,
) -> Manifest:
    path = os.path.join(folder, NAME)
    before = os.stat(path) if os.path.lexists(path) else None
    if before is not None and not overwrite:
        raise StorageError(path, EXISTS)
    meter = Meter(progress, [one.data_file for segment in plan.segments for one in segment.files])
    journal = Journal(os.path.join(folder, "build"), "-".join(segment.id for segment in plan.segments))
    segments = [build_segment(segment, folder, threads, meter, journal) for segment in plan.segments]
    snapshot = found.snapshot
    manifest = Manifest(
        int(time.time()),
        WRITER,
        root,
        snapshot.table if found.has_log else "",
        snapshot.identity if found.has_log else "",
        snapshot.version if found.has_log else "",
        false_places,
        tuple(plan.columns),
        tuple(segments),
    )
    write_manifest(folder, manifest, before)
    keep_only(folder, {one.id for one in segments})
    return manifest


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """While an index is written: another process of this machine that wants to write to it waits.

    Raises StorageError where the folder cannot be made.
    """
    with _storing(folder):
        os.makedirs(folder, exist_ok=True)
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        lock(fd)
        yield
    finally:
        os.close(fd)


def write_manifest(folder: str, manifest: Manifest, before: os.stat_result | None) -> None:
    """Put a manifest into an index, once it is on the disk.

    before  of the one that it takes the place of; None: there is none
    Raises ConflictError where there is another one by now, StorageError.
    """
    path = os.path.join(folder, NAME)
    with AtomicFile(path, path if before else None, before is not None, True, replaces=before) as new:
        with os.fdopen(os.dup(new.fd), "wb") as out:
            out.write(to_json(manifest))
        new.commit()


def keep_only(folder: str, segments: Collection[str]) -> None:
    """Remove the files of all other segments, and what a build left."""
    shutil.rmtree(os.path.join(folder, "build"), ignore_errors=True)
    with suppress(OSError):
        for name in os.listdir(os.path.join(folder, "segments")):
            if name not in segments:
                shutil.rmtree(os.path.join(folder, "segments", name), ignore_errors=True)
    for path, _, names in os.walk(os.path.join(folder, "columns")):
        for name in names:
            if name.partition("-")[0] not in segments:
                with suppress(OSError):
                    os.unlink(os.path.join(path, name))


def _root(where: CallSource, found: ResolvedSource) -> str:
    """The root of names: a folder that was named alone, else the folder that all files lie in."""
    many = several(where.paths)
    if len(many) == 1 and isinstance(many[0], str | os.PathLike) and not found.has_log:
        path = os.path.abspath(os.fspath(many[0]))
        if os.path.isdir(path) and all(one.is_local for one in found.files):
            return path.rstrip("/")
    return root_of([one for one in found.files if one.stored])


def _refuse_among_data(folder: str, where: CallSource, found: ResolvedSource) -> None:
    """Raise RequestError for an index in a folder of data: engines would read its files as data."""
    named = [os.fspath(one) for one in several(where.paths) if isinstance(one, str | os.PathLike)]
    folders = {os.path.realpath(one) for one in named if os.path.isdir(one)}
    folders |= {os.path.realpath(os.path.dirname(one.path)) for one in found.files if one.is_local and one.stored}
    if (table := where.table_name) is not None and os.path.isdir(table.where):
        folders.add(os.path.realpath(table.where))
    real = os.path.realpath(folder)
    lies_in = [one for one in sorted(folders) if real == one or real.startswith(one.rstrip(os.sep) + os.sep)]
    lies_in += [one for one in named if set(one) & GLOB and "://" not in one and _finds(one, folder)]
    if lies_in:
        raise RequestError(
            f"{folder}: lies in {lies_in[0]}, where its files would be read as data; name a folder beside it"
        )


def _finds(pattern: str, folder: str) -> bool:
    """Whether a pattern of local paths finds the files of an index in a folder, or a folder that has them."""
    wanted = os.path.abspath(pattern).split(os.sep)
    for name in ("columns/0/0123456789abcdef-00000.parquet", "segments/0123456789abcdef/files.parquet"):
        names = os.path.join(folder, *name.split("/")).split(os.sep)
        if any(fits(names[:n], wanted) for n in range(1, len(names) + 1)):
            return True
    return False


def _estimate(plan: Plan, report: KeyIndexReport) -> None:
    """What a dry run says: sizes as if all values of a row group differed."""
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
