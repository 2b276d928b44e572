"""Building a key index: files in, sorted entries out, in bounded memory; a killed build goes on where it was.

    footers -> Plan: files, places, bits -> a segment for each set of types
    column chunks -> values -> hashes -> entries -> Sorter -> a Parquet file a partition -> listing -> manifest

The bits of a segment are known before anything is decoded: footers tell how many values there are. While it works,
DIR/build has the plan, the runs of the Sorter, and lines that say whose entries these are. The manifest comes last.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np

from parquet_bloom._version import __version__
from parquet_bloom.errors import CHANGED, ConflictError, DamagedFileError, RequestError, first_line, parameter
from parquet_bloom.filters.content import HASH_BYTES, Content, Recording
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.outline import Slot
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.keys.entries import U64, Packing, Sorter, write_part
from parquet_bloom.keys.folder import JOURNAL, IndexFolder, index_folder
from parquet_bloom.keys.listing import write_listing
from parquet_bloom.keys.manifest import (
    Manifest,
    Segment,
    SegmentColumn,
    listing_name,
    part_name,
    schema_bytes,
)
from parquet_bloom.keys.plan import (
    KeyIndexReport,
    Plan,
    PlannedFile,
    PlannedSegment,
    as_library_names,
    chosen_root,
    estimate,
    fill,
    is_of_version,
    plan_of,
)
from parquet_bloom.options import PathLike, ReadOptions, check_threads, column_names, limits, refuse_unknown
from parquet_bloom.output.index_files import IndexFiles, storing
from parquet_bloom.source.source import CallSource, ResolvedSource, source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import Meter, ProgressCallback, chain_results, processors

WRITER = f"parquet-bloom {__version__}"
FALSE_PLACES = 0.05  # of a lookup over everything
_ENTRY_COPIES = 4  # an entry takes 8 bytes, and sorting and cutting take it some times more
_RUN_ROWS = 1 << 20  # of files that one thread decodes one after the other
_FAR_THREADS = 16  # that fetch and decode files of another storage
_AHEAD = 2  # parts of such a run that are decoded ahead, each of a quarter of these rows


# --- decoding -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Decoded:
    """Entries of some row groups, and the files that end with them.

    entries   column -> entries of one row group each
    finished  for each file that is decoded whole the content of its columns, in order
    """

    entries: dict[int, list[U64]]
    finished: list[dict[int, Content]]
    count: int = 0


def _runs(files: Sequence[PlannedFile], first: int, most: int) -> list[range]:
    """Files from number `first` on that one thread decodes one after the other: many small ones, or a large one."""
    runs, start, rows = [], first, 0
    for number in range(first, len(files)):
        rows += int(files[number].listed.rows.sum())
        if rows >= most:
            runs.append(range(start, number + 1))
            start, rows = number + 1, 0
    return [*runs, range(start, len(files))] if start < len(files) else runs


def decode_run(
    files: Sequence[PlannedFile],
    firsts: Sequence[int],
    packings: dict[int, Packing],
    most: int,
    of_one_version: bool = False,
) -> Iterator[Decoded]:
    """The entries of a run of files, some `most` at a time; the files get the statistics of what is decoded.

    firsts  the first place of each file
    of_one_version  a file that has another version than the plan is an error, although its rows may be the same
    Raises FileError; ConflictError for a file that is not the one whose footer was read, or changes meanwhile.
    """
    so_far = Decoded({}, [])
    for one, first in zip(files, firsts, strict=True):
        contents: dict[int, Content] = {}
        for column, packed in _decode(one, first, packings, contents, of_one_version):
            so_far.entries.setdefault(column, []).append(packed)
            so_far.count += len(packed)
            if so_far.count >= most:
                yield so_far
                so_far = Decoded({}, [])
        so_far.finished.append(contents)
    yield so_far


def _decode(
    one: PlannedFile,
    first_place: int,
    packings: dict[int, Packing],
    contents: dict[int, Content],
    of_one_version: bool,
) -> Iterator[tuple[int, U64]]:
    """The entries of one file, row group by row group, each column chunk decoded once; at the end fills contents."""
    with OpenFile(one.data_file) as source:
        outline = source.outline()
        if of_one_version and not is_of_version(source, one.token):
            raise ConflictError(source.path, CHANGED)
        if schema_bytes(outline.schema_elements) != one.schema or (
            outline.n_row_groups != len(one.listed.rows) or (outline.rows != one.listed.rows).any()
        ):
            raise ConflictError(source.path, CHANGED)
        # As of the bytes that are decoded: since the plan the file may have got other ones, and keep its rows.
        for number, leaf in one.leaves.items():
            one.listed.values[number] = outline.slots[Slot.NUM_VALUES, :, leaf.index].copy()
            one.listed.statistics[number] = statistics_of(outline, leaf)
        recording = Recording(source)
        with ExitStack() as stack:
            readers = {
                number: stack.enter_context(ColumnReader(source, leaf).staying_open())
                for number, leaf in one.leaves.items()
            }
            for group in range(outline.n_row_groups):
                for number, reader in readers.items():
                    pack = partial(packings[number].pack, place=first_place + group)
                    with recording.decoding(reader.leaf, group):
                        parts = [pack(hash_array(batch)) for batch in reader.batches(group)]
                    yield number, parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])
        contents |= {number: recording.content(leaf) for number, leaf in one.leaves.items()}


# --- a build that may be killed -------------------------------------------------------------------

_LONGEST_LINE = 64 << 20  # characters; of a million row groups with one column it has some 40 million


class Journal:
    """Files whose entries are in runs, a line of JSON for some at a time. The first line names the plan of a build."""

    def __init__(self, folder: IndexFolder, plan: str) -> None:
        """Begin, or go on if the same plan was begun in this folder. Raises StorageError."""
        self._files = folder.files
        lines = self._lines(plan) if self._files.lstat(JOURNAL) is not None else []
        goes_on = lines[:1] == [{"plan": plan}]
        self.steps = lines[1:] if goes_on else []
        if not goes_on:
            folder.drop_build()
        # Without the rest of a line that was cut off.
        with self._files.written(JOURNAL) as out:
            out.write("".join(json.dumps(one) + "\n" for one in [{"plan": plan}, *self.steps]).encode())

    def _lines(self, plan: str) -> list[dict[str, Any]]:
        """The lines that are whole; the first one alone if it names another plan: the rest may be of any size."""
        found = []
        fd = self._files.open(JOURNAL, os.O_RDONLY)
        with suppress(ValueError, RecursionError), os.fdopen(fd, encoding="utf-8") as lines:
            while line := lines.readline(_LONGEST_LINE):
                found.append(json.loads(line))
                if found[0] != {"plan": plan}:
                    break
        return found

    def note(self, step: dict[str, Any]) -> None:
        """Remember a step. Raises StorageError."""
        fd = self._files.open(JOURNAL, os.O_WRONLY | os.O_APPEND)
        with storing(self._files.named(JOURNAL)), os.fdopen(fd, "a", encoding="utf-8") as out:
            out.write(json.dumps(step) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self.steps.append(step)


def _content_words(contents: dict[int, Content]) -> dict[str, Any]:
    return {str(number): [list(one.hashes), one.token] for number, one in contents.items()}


def _contents_in(words: dict[str, Any], rows: Sequence[int]) -> dict[int, Content]:
    """The contents that `_content_words` made words of. Raises ValueError, TypeError, AttributeError for others."""
    found = {int(number): Content(rows, hashes, token) for number, (hashes, token) in words.items()}
    if any(len(bytes.fromhex(one)) != HASH_BYTES for content in found.values() for one in content.hashes):
        raise ValueError("a hash of another length")
    return found


def build_segments(
    plan: Sequence[PlannedSegment], folder: IndexFolder, threads: int | None, progress: ProgressCallback | None
) -> list[Segment]:
    """Build segments, or what is missing of them, in folder.files. Raises FileError.

    threads, progress  as build_index has them
    """
    meter = Meter(progress, [one.data_file for segment in plan for one in segment.files])
    for segment in plan:
        segment.id = folder.id_of(segment.id)
    journal = Journal(folder, "-".join(segment.id for segment in plan))
    n = threads or processors()
    return [_build_segment(segment, folder.files, n, meter, journal) for segment in plan]


def _build_segment(planned: PlannedSegment, files: IndexFiles, threads: int, meter: Meter, journal: Journal) -> Segment:
    """Build one segment, or what is missing of it. Raises FileError."""
    numbers = list(planned.packings)
    packings = [planned.packings[number] for number in numbers]
    sorter = Sorter(packings, files, f"build/{planned.id}", max(1, limits().max_memory // (8 * _ENTRY_COPIES)))
    # 1. Files whose entries are in runs already.
    done = 0
    try:
        for step in journal.steps:
            if step.get("segment") == planned.id:
                sorter.lengths = {str(name): int(length) for name, length in step["lengths"].items()}
                for one, words in zip(planned.files[done : step["files"]], step["contents"], strict=True):
                    one.listed.content = _contents_in(words, one.listed.rows.tolist())
                    meter.finish()
                done = step["files"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"is damaged ({first_line(error)}); remove {files.named('build')}, and start the build again"
        raise DamagedFileError(files.named(JOURNAL), reason) from error
    # 2. The others: at least the last one.
    _sort(planned, done, sorter, threads, meter, journal)
    # 3. A file for each partition of each column.
    columns = []
    for at, number in enumerate(numbers):
        written = []
        for partition, packed in enumerate(sorter.partitions(at)):
            written.append(write_part(files, part_name(planned.id, number, partition), packed, packings[at]))
        columns.append(SegmentColumn(number, packings[at].bits, packings[at].partition_bits, tuple(written)))
    return listed_segment(planned, files, columns)


def listed_segment(planned: PlannedSegment, files: IndexFiles, columns: Sequence[SegmentColumn]) -> Segment:
    """The segment whose entries are written: writes the listing of its files. Raises StorageError."""
    listed = [one.listed for one in planned.files]
    listing = write_listing(files, listing_name(planned.id), listed, planned.leaves)
    rows = sum(int(one.rows.sum()) for one in listed)
    return Segment(planned.id, len(listed), planned.places, rows, listing, tuple(planned.schemas), tuple(columns))


def _sort(planned: PlannedSegment, done: int, sorter: Sorter, threads: int, meter: Meter, journal: Journal) -> None:
    """Decode the files from number `done` on. A line of the journal says which of them are in runs."""
    firsts = np.cumsum([0, *(len(one.listed.rows) for one in planned.files)]).tolist()
    columns = {number: at for at, number in enumerate(planned.packings)}
    noted = done
    at_once = min(_RUN_ROWS, sorter.most // 4)

    def work(run: range) -> Iterator[Decoded]:
        part = slice(run.start, run.stop)
        return decode_run(planned.files[part], firsts[part], planned.packings, at_once // 4)

    # Of another storage it is the requests that take time: each file is a run of its own, and many are fetched at once.
    far = any(not one.data_file.is_local for one in planned.files)
    runs = _runs(planned.files, done, 0 if far else at_once)
    with closing(chain_results(work, runs, max(threads, _FAR_THREADS) if far else threads, _AHEAD)) as results:
        for one in results:
            for number, parts in one.entries.items():
                for packed in parts:
                    sorter.add(columns[number], packed)
            for contents in one.finished:
                planned.files[done].listed.content = contents
                done += 1
                meter.finish()
            # Entries of an unfinished file may be among these: it is decoded again, and each entry counts once.
            if sorter.is_full and one.finished and done < len(planned.files):
                sorter.spill()
                said = [_content_words(file.listed.content) for file in planned.files[noted:done]]
                journal.note({"segment": planned.id, "files": done, "lengths": sorter.lengths, "contents": said})
                noted = done


# --- the call -------------------------------------------------------------------------------------


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
    output       folder of the index, not among the data; on a local disk, where it is made, or a URI on S3: then it is
                 built in a local folder, for which there must be room, and sent
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
    check_threads(threads)
    begun = time.perf_counter()
    named = checked_columns(columns, false_places)
    folder = index_folder(output)
    where = source_of(source, filesystem, options)
    found = where.resolve(refuses=RAW_FILES)
    found.raise_failed()
    folder.refuse_among_data(where, found)
    if not dry_run:
        folder.replaceable(overwrite)
    top = root_named(root, where, found)
    plan = plan_of(found, [one for one in found.files if one.stored], named, top, false_places)
    plan.refuse_nothing()
    if dry_run:
        report = KeyIndexReport(folder.path, passed_over=plan.empty)
        estimate(plan, report)
    else:
        segments = partial(build_segments, plan.segments, folder, threads, progress)
        report = write_index(folder, found, plan, top, false_places, overwrite, segments)
    report.seconds = time.perf_counter() - begun
    return report


def checked_columns(columns: str | Sequence[str], false_places: float) -> list[str]:
    """The names and patterns of a build. Raises RequestError for none, and for a rate that is none."""
    named = column_names(columns, "columns")
    if not named:
        raise RequestError(parameter("columns") + " takes a name or a list of names, at least one")
    checked_places(false_places)
    return named


def checked_places(false_places: float) -> float:
    """A rate of false places. Raises RequestError for what is none."""
    if not 0 < false_places < math.inf:
        raise RequestError(parameter("false_places") + f" {false_places} is not a positive number")
    return false_places


def root_named(root: PathLike | None, where: CallSource, found: ResolvedSource) -> str:
    """The root of the names of files: the one that a call names, else the one that all lie in."""
    if root is None:
        return chosen_root(where, found)
    text = os.fspath(root).rstrip("/")
    if "://" in text:
        return as_library_names(text)
    return os.path.realpath(root).rstrip("/")  # as the names of local files are


def write_index(
    folder: IndexFolder,
    found: ResolvedSource,
    plan: Plan,
    root: str,
    false_places: float,
    overwrite: bool,
    segments: Callable[[], list[Segment]],
) -> KeyIndexReport:
    """Write an index, the manifest last; what it replaces leaves then.

    segments  builds the segments of the plan in folder.files
    Raises StorageError, ConflictError, and what `segments` raises.
    """
    with folder.locked():
        before = folder.replaceable(overwrite)
        manifest = _manifest_of(found, plan, root, false_places, segments())
        folder.publish(manifest, before, ())
    report = KeyIndexReport(folder.path, passed_over=plan.empty)
    fill(report, manifest)
    return report


def _manifest_of(
    found: ResolvedSource, plan: Plan, root: str, false_places: float, segments: Sequence[Segment]
) -> Manifest:
    snapshot = found.snapshot
    return Manifest(
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
