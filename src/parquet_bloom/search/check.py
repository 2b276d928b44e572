"""Finds the row groups that can hold a row for which a predicate is TRUE: by footers and filters, without data.

A row group is skipped only if no row in it can match. Where a filter is of
a kind we do not know, or its bytes contradict each other, the row group is kept; the second is
worth a warning (FilterWarning).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, SupportsIndex, Unpack, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.format.compact import uncollected
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import PathLike, refuse_unknown
from parquet_bloom.predicates.bind import AllOf, AnyOf, Bound, Element, Interval, Members, NotOf, Opaque, terms_of
from parquet_bloom.predicates.outcomes import TRUE, Outcomes
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import STAGES, Decision
from parquet_bloom.search.log import Exclusion, FileResult, UnopenedFiles
from parquet_bloom.search.options import Options, SearchOptions
from parquet_bloom.search.question import NO_COST, Cost, key_index, unlisted
from parquet_bloom.search.search import Search, as_predicate
from parquet_bloom.search.together import BatchSlice
from parquet_bloom.source.names import typed_sources
from parquet_bloom.source.results import Result, plain, table_of
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.display import line, line_of, quantity
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import Meter

# --- verdicts as values ---------------------------------------------------------------------------
#
# What a search found out, as values: a verdict a row group, files that were not opened, parts that told nothing.

logger = logging.getLogger("parquet_bloom")


class RowGroupVerdict(NamedTuple):
    """The verdict on one row group, without reading its data.

    outcome     what the predicate may give over its rows
    skipped     no row can match
    decided_by  what made a match impossible: "no rows", "literal" (no value of the type can match),
                "partition" (the folder's name), "bounds" (min, max and null counts), "filter",
                "index" (the key index or zone index of the call); or None
    bytes_read  of the file, to decide; the footer not counted
    reason      in words
    rows, size  of the row group; size is that of its column chunks, compressed bytes
    """

    path: str
    row_group: int
    outcome: Outcomes
    skipped: bool
    decided_by: str | None
    bytes_read: int
    reason: str
    rows: int
    size: int

    def __repr__(self) -> str:
        return line_of(self)


@dataclass(frozen=True, slots=True, repr=False)
class ExcludedFile(Result):
    """A file that was not opened, as what is known of it before excludes every row.

    decided_by  "literal" or "bounds" (the log of its table), "partition" (the log, or the folder's name), "index" (a
                key index)
    reason      in words
    rows, size  as the log has them; None: not known
    row_groups  as the index has them; None: not known
    """

    path: str
    decided_by: str
    reason: str
    rows: int | None = None
    size: int | None = None
    row_groups: int | None = None


def excluded_file(searched: FileResult) -> ExcludedFile | None:
    """The entry for a file skipped unopened, or None."""
    return None if searched.excluded is None else _excluded(searched.file, searched.excluded)


def _excluded(file: DataFile, why: Exclusion) -> ExcludedFile:
    size = file.size if file.has_log else None
    return ExcludedFile(str(file), why.decided_by, why.reason, file.rows, size, why.row_groups)


class UnusedParts:
    """The parts of a predicate that no evidence could answer; each reason once, with the number of files."""

    def __init__(self, files: Iterable[FileResult] = ()) -> None:
        self._files = 0
        self._last: tuple[Bound | None, list[tuple[str, str]]] = (None, [])
        self._found: dict[tuple[str, str], tuple[str, int]] = {}
        for file in files:
            self.add(file)

    def add(self, file: FileResult) -> None:
        """Take one file's parts over; of a file that its folder's name excludes there are none."""
        if file.bound is not None:
            self.add_files(file.bound, 1, file.file)

    def add_files(self, bound: Bound, n: int, first_file: object) -> None:
        """Take over the parts of n files to which the predicate is bound alike, of which this is the first."""
        self._files += n
        if bound is not self._last[0]:  # files of one schema share it
            opaque = [term for term in terms_of(bound) if isinstance(term, Opaque)]
            self._last = bound, list({(str(term.part), term.reason): None for term in opaque})
        for key in self._last[1]:
            first, count = self._found.get(key, (str(first_file), 0))
            self._found[key] = first, count + n

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(part, reason); the reason names a file, and how many there are, where others do use the part."""
        parts = []
        for (part, reason), (first, count) in self._found.items():
            if count < self._files:
                such = ", such as" if count > 1 else ":"
                reason = f"{reason} (in {count:,} of {self._files:,} files{such} {first})"
            parts.append((part, reason))
        return parts


_OUTCOMES = [Outcomes(bits) for bits in range(8)]
_REASONS = {
    "no rows": "the row group has no rows",
    "literal": "no value of the column's type can match",
    "partition": "the folder's name excludes it",
    "bounds": "min, max and null counts exclude it",
    "filter": "the filter denies the value",
    "index": "the index denies the value",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """Files one behind the other that were searched with one predicate: what their verdicts are made of.

    counts      int64[files]: the row groups of each
    rows, size  int64[row groups]
    """

    paths: Sequence[str]
    counts: NDArray[np.int64]
    decision: Decision
    bound: Bound
    rows: NDArray[np.int64]
    size: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def verdicts(self) -> Iterable[RowGroupVerdict]:
        """A verdict for every row group."""
        decision = self.decision
        stages = list(map(STAGES.__getitem__, decision.stage.tolist()))
        skipped = (decision.stage != 0).tolist()
        counts = self.counts.tolist()
        columns = zip(
            chain.from_iterable(map(repeat, self.paths, counts)),
            chain.from_iterable(map(range, counts)),
            map(_OUTCOMES.__getitem__, decision.outcomes.tolist()),
            skipped,
            stages,
            decision.bytes_read.tolist(),
            _reasons(decision, self.bound, stages),
            self.rows.tolist(),
            self.size.tolist(),
            strict=True,
        )
        return map(partial(tuple.__new__, RowGroupVerdict), columns)


def _part(one: FileResult | BatchSlice) -> _Part:
    """The part of one file, or of several that were decided together."""
    if isinstance(one, FileResult):
        decision, outline, bound = one.decision, one.outline, one.bound
        assert decision is not None
        assert outline is not None
        assert bound is not None
        return _Part([str(one.file)], np.diff(outline.firsts), decision, bound, outline.rows, sizes_of(outline))
    batch, part = one.batch, one.row_groups
    paths = [file.path for file in batch.files[one.start : one.stop]]
    counts = np.diff(batch.outline.firsts[one.start : one.stop + 1])
    rows, sizes = batch.outline.rows[part], sizes_of(batch.outline)[part]
    return _Part(paths, counts, batch.decision.part(part), batch.bound, rows, sizes)


def verdicts_of(searched: FileResult) -> Iterable[RowGroupVerdict]:
    """A verdict for every row group of a file."""
    return _part(searched).verdicts()


@derived
def sizes_of(outline: Outline) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Compressed bytes of each row group: int64[row groups]."""
    sizes: np.ndarray[Any, np.dtype[np.int64]] = outline.slots[Slot.COMPRESSED_SIZE].sum(axis=1)
    return sizes


def _reasons(decision: Decision, bound: Bound, stages: list[str | None]) -> list[str]:
    skips: dict[str | None, str] = {None: ""}
    skips.update(_REASONS)
    if "literal" in stages:
        skips["literal"] = _literal_reason(bound)
    reasons = list(map(skips.__getitem__, stages))
    kept = np.flatnonzero(decision.stage == 0).tolist()
    if kept:
        opaque = next((term.reason for term in terms_of(bound) if isinstance(term, Opaque)), None)
        for i in kept:
            if decision.outcomes[i] == TRUE:
                reasons[i] = "every row matches"
            elif i in decision.notes:
                reasons[i] = decision.notes[i]
            elif decision.asked[i]:
                reasons[i] = "the filter admits the value"
            else:
                reasons[i] = opaque or "nothing excludes it"
    return reasons


def _literal_reason(bound: Bound) -> str:
    for term in terms_of(bound):
        if isinstance(term, Members):
            if term.null and not term.operands:
                return "nothing equals NULL"
            for operand in term.operands:
                if operand.never and operand.reason:
                    return operand.reason
    return _REASONS["literal"]


def log_search(predicate: Predicate, files: Sequence[FileResult]) -> None:
    """Log the skipped row groups, and the parts of the predicate that could not skip any."""
    if not logger.isEnabledFor(logging.INFO):
        return
    groups = sum(file.decision is not None and len(file.decision.stage) for file in files)
    kept = sum(int(file.decision.open.sum()) for file in files if file.decision is not None)
    size = sum(int(sizes_of(file.outline).sum()) for file in files if file.outline is not None)
    left = sum(int(sizes_of(f.outline)[f.decision.open].sum()) for f in files if f.outline is not None and f.decision)
    closed = sum(file.decision is None for file in files)
    logger.info(
        "%s: %d of %d row groups and %d of %d bytes skipped, %d of %d files not opened",
        predicate,
        groups - kept,
        groups,
        size - left,
        size,
        closed,
        len(files),
    )
    for part, reason in UnusedParts(files).parts:
        logger.info("not used to skip: %s: %s", part, reason)


# --- check ----------------------------------------------------------------------------------------

_SHOWN = 5  # columns that are named


@dataclass(slots=True, repr=False)
class ColumnFilters(Result):
    """A column that the predicate compares with values, and its filters in the remaining row groups.

    row_groups   that are left and that a filter could exclude
    with_filter  of these, how many have one
    files        that have such row groups
    files_without  of these, how many lack a filter on some of them
    """

    column: str
    row_groups: int = 0
    with_filter: int = 0
    files: int = 0
    files_without: int = 0


class _FilterCounts:
    """The filters that the predicate could use, and those that it could not.

    columns     of the predicate's equalities, by name: their filters in the row groups that are left
    unanswered  names of columns that have filters there, and are compared in ways that no filter answers
    """

    def __init__(self) -> None:
        self.columns: dict[str, ColumnFilters] = {}
        self.unanswered: dict[str, None] = {}

    def add(self, decision: Decision, outline: Outline, bound: Bound, part: slice = slice(None)) -> None:
        """Count in the files of an outline, or in those that have a part of its row groups."""
        left = np.zeros(outline.n_row_groups, bool)
        left[part] = (decision.open & (decision.outcomes != TRUE))[part]

        def files_with(flags: NDArray[np.bool_]) -> int:
            return len(np.unique(outline.file_of[flags]))

        def has(leaf: Leaf) -> bool:
            return 0 <= leaf.index < len(outline.leaves) and outline.leaves[leaf.index] == leaf

        for leaf in dict.fromkeys(_compared_otherwise(bound)):
            if leaf.name in self.unanswered or not has(leaf):
                continue
            if (left & filter_ranges_of(outline, leaf.index).exists).any():
                self.unanswered[leaf.name] = None
        for leaf in dict.fromkeys(_equated(bound)):
            if not has(leaf) or leaf.refusal is not None:
                continue
            counts = self.columns.setdefault(leaf.name, ColumnFilters(leaf.name))
            n = int(left.sum())
            if not n:
                continue
            without = left & ~filter_ranges_of(outline, leaf.index).exists
            counts.row_groups += n
            counts.with_filter += n - int(without.sum())
            counts.files += files_with(left)
            counts.files_without += files_with(without)

    @property
    def note(self) -> str | None:
        """The columns whose filters cannot answer the predicate, in words; None where there are none."""
        names = [name for name in self.unanswered if name not in self.columns]
        if not names:
            return None
        which = f"{', '.join(names[:_SHOWN])}{', ...' * (len(names) > _SHOWN)}"
        return f"filters on {which} tell nothing of this predicate: they answer =, IN and IS NOT DISTINCT FROM alone"


class Verdicts(Result, Sequence[RowGroupVerdict]):
    """Verdicts in the order of files and row groups: a sequence, equal to a list of the same ones.

    table, version  of which all these files are, and which version of it; None: they are files
    excluded  files that the log of their table or a key index excludes; they have no verdicts, as they were not opened
    failed  the files among several that could not be read
    unused  (part, reason) of each part of the predicate that could tell nothing
    columns of the predicate's equalities: which row groups that are left have a filter
    index_cost  what was read of the key index
    named   what was searched, as a command line names it; empty where none can
    notes   what footers say of tables of which no log is in sight, and what filters cannot tell of the predicate
    """

    # Each is there once somebody has asked for it: of a million row groups mostly their number is enough.
    _verdicts: list[RowGroupVerdict]
    _excluded: list[ExcludedFile]

    def __init__(self, verdicts: Iterable[RowGroupVerdict] = ()) -> None:
        self._parts: list[_Part] = []  # whose verdicts nobody has asked for yet
        if made := list(verdicts):
            self._verdicts = made
        self.table: str | None = None
        self.version: str | None = None
        self._unopened: list[UnopenedFiles] = []  # whose entries nobody has asked for yet
        self.columns: list[ColumnFilters] = []
        self.notes: list[str] = []
        self.failed: list[FailedFile] = []
        self.unused: list[tuple[str, str]] = []
        self.named: list[str] = []
        self.index_cost = NO_COST

    def _all(self) -> list[RowGroupVerdict]:
        if "_verdicts" not in vars(self):
            with uncollected():
                made = [*chain.from_iterable(part.verdicts() for part in self._parts)]
            vars(self).setdefault("_verdicts", made)  # in one step: of several threads all get the first one's list
            self._parts = []
        return self._verdicts

    def __len__(self) -> int:
        waiting = self._parts  # before the other: another thread empties it once that one is there
        return len(self._verdicts) if "_verdicts" in vars(self) else sum(map(len, waiting))

    @overload
    def __getitem__(self, index: SupportsIndex) -> RowGroupVerdict: ...

    @overload
    def __getitem__(self, index: slice) -> list[RowGroupVerdict]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> RowGroupVerdict | list[RowGroupVerdict]:
        return self._all()[index]

    def __iter__(self) -> Iterator[RowGroupVerdict]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == list(other) if isinstance(other, Verdicts | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[RowGroupVerdict]) -> list[RowGroupVerdict]:
        return [*self, *other]

    def __radd__(self, other: Iterable[RowGroupVerdict]) -> list[RowGroupVerdict]:
        return [*other, *self]

    @property
    def excluded(self) -> list[ExcludedFile]:
        """The files that were not opened, each with the reason."""
        if "_excluded" not in vars(self):
            results = chain.from_iterable(part.results() for part in self._unopened)
            made = [_excluded(one.file, one.excluded) for one in results if one.excluded is not None]
            vars(self).setdefault("_excluded", made)
            self._unopened = []
        return self._excluded

    @excluded.setter
    def excluded(self, files: list[ExcludedFile]) -> None:
        self._excluded, self._unopened = files, []

    def __getstate__(self) -> dict[str, Any]:
        self._all(), self.excluded  # a copy has no data files, and no arrays
        return vars(self)

    @property
    def skipped(self) -> int:
        """How many row groups of opened files are skipped."""
        waiting = self._parts
        if "_verdicts" in vars(self):
            return sum(v.skipped for v in self._verdicts)
        return sum(int(np.count_nonzero(part.decision.stage)) for part in waiting)

    def to_dict(self) -> dict[str, Any]:
        """Verdicts, what they come to, and the rest, in values that JSON has; as `check --json` prints."""
        unused = [{"part": part, "reason": reason} for part, reason in self.unused]
        named: dict[str, Any] = {
            "verdicts": list(self),
            "totals": totals(self, self.excluded, self.index_cost),
            "excluded": self.excluded,
        }
        named |= {"table": self.table, "version": self.version, "unused": unused, "columns": self.columns}
        named |= {"failed": self.failed, "notes": self.notes}
        return {name: plain(value) for name, value in named.items()}

    def to_arrow(self) -> pa.Table:
        """A row a row group."""
        return table_of(RowGroupVerdict, self)

    def __repr__(self) -> str:
        waiting = self._unopened  # before the other: another thread empties it once that one is there
        if "_excluded" in vars(self):
            unopened, known = len(self._excluded), sum(one.row_groups or 0 for one in self._excluded)
        else:
            unopened = sum(map(len, waiting))
            known = sum(int(part.row_groups.sum()) for part in waiting if part.row_groups is not None)
        parts = [f"{self.skipped + known:,} of {quantity(len(self) + known, 'row groups')} skipped"]
        parts += [f"{quantity(unopened, 'files')} not opened"] if unopened else []
        parts += [f"{quantity(len(self.failed), 'files')} failed"] if self.failed else []
        return line("Verdicts", parts)


def totals(
    verdicts: Sequence[RowGroupVerdict], excluded: Sequence[ExcludedFile] = (), index_cost: Cost = NO_COST
) -> dict[str, Any]:
    """Row groups and bytes skipped of how many, and what they fell to; and so for files that were not opened.

    Row groups of these files count where an index knows them.
    """
    files_by = Counter(one.decided_by for one in excluded)
    by = Counter(v.decided_by for v in verdicts if v.skipped)
    by.update({"index": sum(one.row_groups or 0 for one in excluded)})
    return {
        "row_groups": len(verdicts) + sum(one.row_groups or 0 for one in excluded),
        "row_groups_skipped": sum(by.values()),
        "bytes": sum(v.size for v in verdicts),
        "bytes_skipped": sum(v.size for v in verdicts if v.skipped),
        "files_excluded": len(excluded),
        "files_excluded_by": dict(files_by),
        "files_excluded_bytes": sum(one.size or 0 for one in excluded),
        "by": {stage: by[stage] for stage in STAGES if by[stage]},
        "bytes_read_to_decide": sum(v.bytes_read for v in verdicts),
        "index_requests": index_cost.requests,
        "index_bytes": index_cost.bytes_read,
    }


def check(
    source: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    filesystem: Any = None,
    index: PathLike | None = None,
    **options: Unpack[SearchOptions],
) -> Verdicts:
    """Say for every row group of one Parquet file, or several, whether a row can match.

    source      a file, a folder, a glob, a URI, or a list of them; or one table: delta:, iceberg:, ducklake:
    predicate   SQL text, "id = 5 AND name IN ('a', 'b')"; DNF lists as pyarrow.parquet takes them; or
                a pyarrow Expression. `list_contains(l, 5)` speaks of the elements of a list.
    filesystem  any pyarrow or fsspec file system; source then names files on it
    index       folder of a key index: files in which it denies the predicate are not opened
    options     see SearchOptions; `progress` is called with a Progress for every file

    Raises TextError with the spot marked, UnknownColumnError; FileError for one file alone;
    TableFormatError for files of a table that are not read through its log, without raw_files.
    """
    refuse_unknown("check", options, SearchOptions)
    how, predicate = Options.of(options), as_predicate(predicate)
    opened_index = None if index is None else key_index(index, False, predicate, how)
    where = source_of(source, filesystem, options)
    found = where.resolve(refuses=RAW_FILES) if how.listing else unlisted(where, opened_index)
    search = Search(found, predicate, how, index=opened_index)
    verdicts = Verdicts()
    verdicts.named = typed_sources(source, filesystem)
    verdicts.failed += found.failed
    verdicts.table, verdicts.version = found.snapshot.table or None, found.snapshot.version or None
    unused, counts = UnusedParts(), _FilterCounts()
    meter = Meter(search.options.progress, search.files, "search")
    with uncollected():
        for one in search.parts():
            if isinstance(one, BatchSlice):
                meter.finish(len(one))
                verdicts._parts.append(_part(one))
                counts.add(one.batch.decision, one.batch.outline, one.batch.bound, one.row_groups)
                unused.add_files(one.batch.bound, len(one), one.batch.files[one.start].path)
                continue
            if isinstance(one, UnopenedFiles):
                meter.finish(len(one))
                verdicts._unopened.append(one)
                continue
            meter.finish()
            if isinstance(one, tuple):
                file, error = one
                if found.single:
                    raise error
                verdicts.failed.append(FailedFile(str(file), error))
                continue
            if one.excluded is not None:
                verdicts._unopened.append(UnopenedFiles.of(one))
                continue
            verdicts._parts.append(part := _part(one))
            assert one.outline is not None
            counts.add(part.decision, one.outline, part.bound)
            unused.add(one)
    verdicts.unused, verdicts.notes = unused.parts, search.notes
    if search.evidence is not None:
        verdicts.index_cost = search.evidence.cost
    verdicts.columns = list(counts.columns.values())
    if (note := counts.note) is not None:
        verdicts.notes = [note, *verdicts.notes]
    return verdicts


def _equated(bound: Bound) -> Iterator[Leaf]:
    """The columns that a predicate compares with values by = or IN, where a filter's no excludes rows."""
    if isinstance(bound, AllOf | AnyOf):
        for part in bound.parts:
            yield from _equated(part)
    elif isinstance(bound, Element) or (isinstance(bound, Members) and bound.operands):
        yield bound.leaf


def _compared_otherwise(bound: Bound, negated: bool = False) -> Iterator[Leaf]:
    """The columns that a predicate compares as no filter can: by their order, or for the absence of a value."""
    if isinstance(bound, AllOf | AnyOf):
        for part in bound.parts:
            yield from _compared_otherwise(part, negated)
    elif isinstance(bound, NotOf):
        yield from _compared_otherwise(bound.part, not negated)
    elif isinstance(bound, Interval) or (negated and isinstance(bound, Element | Members)):
        yield bound.leaf
