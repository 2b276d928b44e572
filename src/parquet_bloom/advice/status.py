"""Reports columns with all their filters, columns that lack some, and those that lost them, since which version.

    footers -> per file and column: row groups that hold a value, those of them with a sound filter
    log     -> when each file came, and our commits        (source.history)
            -> lost: its rows came after the column had filters; else it lacks them, and that is all one can say
            -> the command that adds what is missing, with the options of the last commit of ours on that column

Footers are read, and of each filter its header and at most its first 16 KiB. A writer that gives every column filters,
as DuckDB does where it likes the dictionary, is no reason to add more of them: a column that lacks some, and has none
that somebody chose, is judged as `advise` judges it, by a sample of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.advice.survey import read_survey, survey_column
from parquet_bloom.edit.gain import reason_against
from parquet_bloom.errors import DamagedFileError, FilterFormatError, ParquetBloomError, UnknownFilterError
from parquet_bloom.filters.inspect import Doubts
from parquet_bloom.filters.locate import contradiction, filter_ranges_of, read_header
from parquet_bloom.filters.stored import InBody, StoredFilter, StoredFilters, is_sound
from parquet_bloom.filters.tails import each_file, older_footers
from parquet_bloom.format.filters import HEADER_BYTES
from parquet_bloom.format.footer import ChunkKey
from parquet_bloom.format.forms import FORMATS, Sizing, format_named
from parquet_bloom.format.outline import NONE, Slot
from parquet_bloom.format.provenance import read_entries
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import is_wrong
from parquet_bloom.format.walked import INDEX_SLOTS
from parquet_bloom.kernels import split_block
from parquet_bloom.options import DEFAULT_FORM, PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.source.history import FilterOptions, History, Version
from parquet_bloom.source.names import ORDINARY, ShellCommand, TableAccess, add_command, typed_sources
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.source.source import CallSource, ResolvedSource, source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.workers import Meter, ProgressCallback

# --- one filter by its first bytes ----------------------------------------------------------------
#
# Whether a filter is sound, how large it is and how full, by its header and at most its first 16 KiB.
#
# A hash spreads values over all blocks alike, so the first blocks of a filter are as full as the others.

FIRST_BYTES = 16 << 10  # of a bitset
_AT_ONCE = 16 << 20  # bytes that are fetched together


@dataclass(frozen=True, slots=True)
class Glance:
    """One filter.

    sound      readers use it, as far as its header and its place show
    num_bytes  of the bitset; 0 where the header is not understood
    fpp        false positive rate: of a larger filter that of its first FIRST_BYTES; None where it is not sound
    """

    sound: bool
    num_bytes: int = 0
    fpp: float | None = None


def glances(source: OpenFile, chunks: Sequence[tuple[int, Leaf]]) -> Iterator[tuple[ChunkKey, Glance]]:
    """Read the beginning of all filters of some chunks, (row group, column) of one file. Raises as OpenFile.footer.

    What lies close together is read at once, and on a remote storage side by side.
    """
    filters = StoredFilters(source)
    stored = [one for group, leaf in chunks for one in filters.of(group, leaf)]
    first = size = 0
    for number, one in enumerate(stored):
        size += _first_bytes(one)[1]
        if size >= _AT_ONCE or number + 1 == len(stored):
            some, first, size = stored[first : number + 1], number + 1, 0
            source.prefetch(at for at in map(_first_bytes, some) if at[1])
            yield from (((one.row_group, one.leaf.index), _glance(source, one)) for one in some)


def _first_bytes(stored: StoredFilter) -> tuple[int, int]:
    offset, length = stored.extent or (0, 0)
    return offset, min(length, HEADER_BYTES + FIRST_BYTES)


def _glance(source: OpenFile, stored: StoredFilter) -> Glance:
    if isinstance(stored, InBody) and stored.range.total > HEADER_BYTES + FIRST_BYTES and stored.refusal is None:
        found = _large(source, stored)
        if found is not None:
            return found
    told = stored.describe()
    if stored.refusal is not None or not is_sound(told):
        return Glance(False, told.num_bytes)
    return Glance(True, told.num_bytes, None if told.bloom is None else told.bloom.fpp)


def _large(source: OpenFile, stored: InBody) -> Glance | None:
    """Judge a filter by its beginning; None: no bit is set there, so all of it must be read."""
    try:
        header = read_header(source, stored.range)
    except (UnknownFilterError, FilterFormatError, DamagedFileError):
        return Glance(False)
    if header.num_bytes <= FIRST_BYTES:  # its range is longer: it contradicts itself, or has no length
        return None
    if contradiction(header, stored.range) is not None:
        return Glance(False, header.num_bytes)
    data = source.read_up_to(stored.offset + header.candidates[0].bits_at, FIRST_BYTES - HEADER_BYTES)
    blocks = split_block.from_bytes(data[: len(data) // 32 * 32])
    return Glance(True, header.num_bytes, split_block.exact_rate(blocks)) if blocks.any() else None


# --- status ---------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class ColumnStatus(Result):
    """One column, over all files.

    files, row_groups    that hold a value of it, or may: those need a filter
    files_lacking        of these files, those of which a row group lacks a sound filter
    row_groups_lacking   of these row groups, those that do; `row_groups_lost` counts among them
    files_lost, row_groups_lost  of a table, those whose rows were appended, or written anew, after the column had
                         filters in the table
    lost_since           the first version with which such rows came; None where nothing is lost, or nobody can tell
    filter_bytes         of all bitsets, without headers
    fpp                  the worst false positive rate: of filters of more than 16 KiB that of their first 16 KiB; None
                         without filters
    fpp_target           of a table, the rate that the last `add` on the column was to stay within, or "auto"; None
                         where nobody can tell
    no_gain              why filters on it are not worth their bytes, as `advise` says: what it lacks is not missed.
                         None where they are, where none lacks, and where somebody chose the column
    """

    column: str
    files: int = 0
    row_groups: int = 0
    files_lacking: int = 0
    row_groups_lacking: int = 0
    files_lost: int = 0
    row_groups_lost: int = 0
    lost_since: str | None = None
    filter_bytes: int = 0
    fpp: float | None = None
    fpp_target: float | str | None = None
    no_gain: str | None = None

    @property
    def incomplete(self) -> bool:
        """Whether a row group lacks a filter that would be worth its bytes."""
        return self.row_groups_lacking > 0 and self.no_gain is None


@dataclass(slots=True, repr=False)
class PageIndexStatus(Result):
    """The page indexes of one column, over all files.

    files, row_groups  that have rows
    files_lacking      of these files, those of which a row group has no offset index of the column
    offset_indexes, column_indexes  row groups that have one
    """

    column: str
    files: int = 0
    row_groups: int = 0
    files_lacking: int = 0
    offset_indexes: int = 0
    column_indexes: int = 0


@dataclass(slots=True, repr=False)
class StatusReport(Result):
    """The columns that have filters, and those that lack them.

    columns   those that have a filter in some file, had one by the table's log, or were asked for
    page_indexes  of the columns that have any in some file
    files, row_groups  that were looked at
    table, version     of which all files are; None: they are files
    mend      commands for a shell that add what is missing; none where nothing is, or where none would do. Of each
              `python` is the call that does the same
    asserted  the columns that assert_filters named
    notes     on tables that files lie in, on writers that are known for wrong statistics, and on what could not be
              found out
    """

    columns: list[ColumnStatus]
    failed: list[FailedFile]
    files: int = 0
    row_groups: int = 0
    table: str | None = None
    version: str | None = None
    mend: list[str] = field(default_factory=list)
    asserted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    page_indexes: list[PageIndexStatus] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether no column lacks a filter that would be worth its bytes."""
        return not any(one.incomplete for one in self.columns)

    def to_arrow(self) -> pa.Table:
        """A row a column."""
        return table_of(ColumnStatus, self.columns)

    def __repr__(self) -> str:
        """One line: how much was read, and the first columns that lack filters."""
        lacking = [one for one in self.columns if one.incomplete]
        told = [f"{one.column} lacks {one.row_groups_lacking:,} of {one.row_groups:,}" for one in lacking[:3]]
        more = [f"{len(lacking) - 3:,} more columns lack some"] if len(lacking) > 3 else []
        sums = {"column": len(self.columns), "file": self.files, "row group": self.row_groups}
        looked = ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for what, n in sums.items())
        failed = [f"{len(self.failed):,} files failed"] if self.failed else []
        return f"StatusReport({'; '.join([looked, *told, *more, *failed])})"


@dataclass(slots=True)
class _Chunks:
    """The chunks of one column in one file.

    needing  that hold a value, or may
    lacking  of these, those without a sound filter
    unsound  of these, those with a filter that is not sound: `add` leaves it unless it is to replace it
    chosen   whether `add` put a filter there, as the file records it
    """

    needing: int
    lacking: int
    unsound: int = 0
    filters: int = 0
    num_bytes: int = 0
    fpp: float | None = None
    chosen: bool = False


@dataclass(slots=True)
class _File:
    path: str
    row_groups: int
    has_tail: bool
    columns: dict[str, _Chunks]
    asserted: list[str]
    indexes: dict[str, list[int]]  # column -> its row groups with rows, and of these, how many have which index


def status(
    source: PathLike | Sequence[PathLike],
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    assert_filters: str | Sequence[str] | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> StatusReport:
    """Say for each column which row groups have a filter, lack one, or have lost it, and what command adds them.

    source      a file, a folder, a glob, a URI, or a list of them; or one table: delta:, iceberg:, ducklake:
    columns     one name or pattern, or a list; None: those that have a filter in some file, had one by the table's log,
                or that the table's properties ask for
    exclude     one name or pattern, or a list
    assert_filters  one name or pattern of a column that is to have filters, or a list; they are shown in any case
    filesystem  of pyarrow or fsspec; source then names files on it
    progress    is called with a Progress for every file
    options     see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    Lost means: rows were appended, or written anew, with a version of the table that is later than one in which the
    column had filters, and their file has none. Delta's log and Iceberg's metadata tell it as far back as they go;
    DuckLake's catalog does not.

    A column that lacks filters is judged as `advise` judges it, by a sample of its values, unless it was named here,
    the table's properties ask for it, or `add` put filters on it: what a writer does by itself is nobody's choice.
    Raises as `inspect`.
    """
    refuse_unknown("status", options, ReadOptions)
    columns, exclude = column_names(columns, "columns"), column_names(exclude, "exclude")
    must_have = column_names(assert_filters, "assert_filters")
    about = source_of(source, filesystem, options)
    found = about.resolve(stored_only=True)
    names = found.names

    def work(opened: OpenFile, leaves: Sequence[Leaf]) -> _File:
        asserted = [] if must_have is None else names.select(leaves, must_have, None)
        wanted = names.select(leaves, columns, exclude)
        chosen = list(dict.fromkeys([*wanted, *asserted]))
        return _status_of_file(opened, chosen, [leaf.name for leaf in asserted], doubts)

    doubts = Doubts()
    table_asserted: list[Leaf] = []
    if found.has_log:  # names are held against its schema, before any file is opened
        names.select(names.leaves, columns, exclude)
        table_asserted = [] if must_have is None else names.select(names.leaves, must_have, None)
    results = each_file(found, work, Meter(progress, found.files))
    report = StatusReport([], results.failed, len(results), sum(one.row_groups for one in results))
    history = _history(found, report)
    report.notes += [*found.notes, *doubts.notes(one.path for one in results)]
    report.table, report.version = found.snapshot.table or None, found.snapshot.version or None
    of_files = (name for one in results for name in one.asserted)
    report.asserted = list(dict.fromkeys([*(leaf.name for leaf in table_asserted), *of_files]))
    shown = _reported_columns(results, found, history, columns is not None, report.asserted)
    report.columns = [_column(name, results, history) for name in shown]
    report.page_indexes = _page_indexes(results)
    if columns is None:
        _judge([one for one in report.columns if one.column not in report.asserted], results, found, history)
    report.mend += _mend(report.columns, results, _AddCommands.of(about, found), history.options())
    return report


def _status_of_file(source: OpenFile, leaves: Sequence[Leaf], asserted: Sequence[str], doubts: Doubts) -> _File:
    outline = source.outline()
    doubts.see(source.path, outline)
    doubts.see_bounds(source.path, outline)
    full = (outline.rows > 0)[:, None]
    has = [full & (outline.slots[list(slots)] != NONE).all(axis=0) for slots in INDEX_SLOTS.values()]
    counts = np.stack([np.broadcast_to(full, has[0].shape).sum(axis=0), *(one.sum(axis=0) for one in has)])
    indexes = {leaf.name: counts[:, leaf.index].tolist() for leaf in leaves}
    leaves = [leaf for leaf in leaves if leaf.refusal is None]
    values, nulls = outline.slots[Slot.NUM_VALUES], outline.slots[Slot.NULL_COUNT]
    in_doubt = [is_wrong(statistics_writer(outline, leaf), leaf, "many nulls") for leaf in outline.leaves]
    # bool[row groups, columns]
    needing = (values > 0) & ((nulls == NONE) | (nulls < values) | np.array(in_doubt, bool))
    sums = needing.sum(axis=0)
    columns = {leaf.name: _Chunks(int(sums[leaf.index]), int(sums[leaf.index])) for leaf in leaves}
    there = [
        (int(group), leaf) for leaf in leaves for group in np.flatnonzero(filter_ranges_of(outline, leaf.index).exists)
    ]
    names = {leaf.index: leaf.name for leaf in leaves}
    sound = {(group, leaf.index): False for group, leaf in there}
    for key, one in glances(source, there):
        chunks = columns[names[key[1]]]
        chunks.filters += one.sound
        chunks.num_bytes += one.num_bytes
        sound[key] = sound[key] or one.sound
        if one.fpp is not None:
            chunks.fpp = max(one.fpp, chunks.fpp or 0.0)
    for (group, column), good in sound.items():
        if needing[group, column]:
            columns[names[column]].lacking -= bool(good)
            columns[names[column]].unsound += not good
    if any(one.filters for one in columns.values()):
        added = {names.get(column) for entry in read_entries(source.footer()) for _, column in entry.chunks}
        for name, chunks in columns.items():
            chunks.chosen = name in added
    return _File(source.path, outline.n_row_groups, bool(older_footers(source)), columns, list(asserted), indexes)


def _page_indexes(files: Iterable[_File]) -> list[PageIndexStatus]:
    found: dict[str, PageIndexStatus] = {}
    for file in files:
        for name, (groups, offsets, columns) in file.indexes.items():
            one = found.setdefault(name, PageIndexStatus(name))
            one.files, one.row_groups = one.files + (groups > 0), one.row_groups + groups
            one.files_lacking += offsets < groups
            one.offset_indexes, one.column_indexes = one.offset_indexes + offsets, one.column_indexes + columns
    return [one for one in found.values() if one.offset_indexes or one.column_indexes]


def _history(found: ResolvedSource, report: StatusReport) -> History:
    """The history in the log; an empty one, with a note, where its older part cannot be read."""
    try:
        return found.history()
    except ParquetBloomError as error:
        report.notes.append(f"it is not known what was lost, as the older part of the log cannot be read: {error}")
        return History()


def _reported_columns(
    files: Iterable[_File], found: ResolvedSource, history: History, named: bool, asserted: Sequence[str]
) -> list[str]:
    """The columns to report, in the order of the schema: all that were named."""
    known = dict.fromkeys((leaf.name for leaf in found.names.leaves), False)
    for file in files:
        for name, chunks in file.columns.items():
            known[name] = known.get(name, False) or named or chunks.filters > 0 or chunks.unsound > 0
    there = {name for file in files for name in file.columns}
    wished = found.snapshot.filter_settings.get("columns", [])
    expected = {name for name in known if _had_since(name, (), history) is not None}
    return [
        name
        for name, is_shown in known.items()
        if name in there and (is_shown or name in expected or name in wished or name in asserted)
    ]


def _column(name: str, files: Sequence[_File], history: History) -> ColumnStatus:
    told = ColumnStatus(name)
    having = [file for file in files if name in file.columns]
    had_since = _had_since(name, having, history)
    options = history.options().get(name)
    told.fpp_target = options.fpp if options is not None else None
    lost: list[Version] = []
    for file in having:
        chunks = file.columns[name]
        told.files += chunks.needing > 0
        told.row_groups += chunks.needing
        told.filter_bytes += chunks.num_bytes
        if chunks.fpp is not None:
            told.fpp = max(chunks.fpp, told.fpp or 0.0)
        if not chunks.lacking:
            continue
        told.files_lacking += 1
        told.row_groups_lacking += chunks.lacking
        came = history.rows_since.get(file.path)
        if came is not None and had_since is not None and came.order > had_since:
            told.files_lost += 1
            told.row_groups_lost += chunks.lacking
            lost.append(came)
    told.lost_since = min(lost).name if lost else None
    return told


def _judge(columns: Sequence[ColumnStatus], files: Sequence[_File], found: ResolvedSource, history: History) -> None:
    """Set `no_gain` of the columns that nobody chose, by what `advise` reads of them."""
    chosen = {*found.snapshot.filter_settings.get("columns", []), *history.options()}
    chosen |= {name for file in files for name, chunks in file.columns.items() if chunks.chosen}
    doubtful = {one.column: one for one in columns if one.row_groups_lacking and one.column not in chosen}
    if not doubtful:
        return
    with suppress(ParquetBloomError), read_survey(found)[0] as data:
        for leaf in data.leaves:
            if leaf.name in doubtful:
                with suppress(ParquetBloomError):  # a column that does not decode is not judged; `verify` says why
                    surveyed = survey_column(data, leaf)
                    doubtful[leaf.name].no_gain = None if surveyed is None else reason_against(surveyed.found, Sizing())


def _had_since(name: str, files: Iterable[_File], history: History) -> int | None:
    """The place of the first version in which a column surely had filters, since `remove` took them last."""
    commits = [commit for commit in history.commits if name in commit.columns]
    removed = max((commit.version.order for commit in commits if commit.operation == "remove"), default=-1)
    had = [commit.version.order for commit in commits if commit.operation == "add"]
    for file in files:
        there = history.until.get(file.path)
        if there is not None and name in file.columns and file.columns[name].filters:
            had += [] if history.grows and file.has_tail else [there.order]
    return min((order for order in had if order > removed), default=None)


# --- the command that adds what is missing -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AddCommands:
    """The source as a command line names it; sources is empty where none can name or change it."""

    sources: Sequence[str] = ()
    access: TableAccess = ORDINARY

    @classmethod
    def of(cls, source: CallSource, found: ResolvedSource) -> _AddCommands:
        texts = [] if source.raw_files else typed_sources(source, None)
        table = source.table_name
        if not texts or (table is not None and table.version is not None):  # the past does not change
            return cls()
        if table is None and found.has_log:  # a Delta table's folder
            texts = [f"delta:{texts[0]}"]
        return cls(texts, source.access)

    def command(self, columns: Mapping[str, FilterOptions | None], replace: bool) -> ShellCommand:
        """An `add` of these columns, which share all options but the rate."""
        first = next(iter(columns.values()))
        usual = format_named(DEFAULT_FORM if first is None else first.spec).fpp
        rates = {name: usual if of is None else of.fpp for name, of in columns.items()}
        shared = rates[next(iter(rates))] if len(set(rates.values())) == 1 else usual
        return add_command(
            self.sources,
            list(columns),
            replace=replace,
            spec=None if first is None or first.spec == DEFAULT_FORM else first.spec,
            rate=None if shared == usual else shared,
            rates={name: rate for name, rate in rates.items() if rate != shared},
            max_bytes=None if first is None else first.max_bytes,
            catalog_properties=self.access.properties,
            allow_roots=[str(root) for root in self.access.allow_roots],
        )


def _mend(
    columns: Sequence[ColumnStatus],
    files: Sequence[_File],
    named: _AddCommands,
    options: Mapping[str, FilterOptions],
) -> list[ShellCommand]:
    """One command for all columns that can share one."""
    if not named.sources:
        return []
    shared: dict[tuple[bool, str, int | None], dict[str, FilterOptions | None]] = {}
    for name in [one.column for one in columns if one.incomplete]:
        of = options.get(name)
        if of is not None and of.spec not in FORMATS:  # of a later release
            of = None
        unsound = any(file.columns[name].unsound for file in files if name in file.columns)
        form = (DEFAULT_FORM, None) if of is None else (of.spec, of.max_bytes)
        shared.setdefault((unsound, *form), {})[name] = of
    return [named.command(shared[key], key[0]) for key in sorted(shared, key=lambda key: key[0])]
