"""Reports of `add` and `remove`, as values: for people, for JSON, for Spark's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from parquet_bloom.edit.page_indexes import NewIndexes
from parquet_bloom.edit.plan import HAS_FILTER, Plan, Request, SkippedColumn
from parquet_bloom.facts.known import notes_of, warnings_of
from parquet_bloom.filters.wrong_statistics import WrongStatistic
from parquet_bloom.format.footer import IndexKind
from parquet_bloom.format.schema import Leaf
from parquet_bloom.output.draft import Transfer
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.display import line_of, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import FailedFile


@dataclass(slots=True, kw_only=True, repr=False)
class FileReport(Result):
    """The bytes that travelled for one file, and the commit mode of a table's file.

    remote           the file, or its output, is not on a local disk
    bytes_travelled  read from a remote storage, and sent to one
    bytes_copied     of the new file, copied inside the store; they did not travel
    why_travelled    why all unchanged bytes had to travel, where they had to
    way              of a table's file that changes: "same-path" or "new-path"; else ""
    why              the table's reason for that way, where it has one
    written          whether that version is, or would be, written; else the log alone has another size of the file
    """

    remote: bool = False
    bytes_travelled: int = 0
    bytes_copied: int = 0
    why_travelled: str = ""
    way: str = ""
    why: str = ""
    written: bool = True

    def add_transfer(self, transfer: Transfer, source: OpenFile) -> None:
        """Take over what was sent, and of a remote source what was read."""
        self.bytes_travelled = transfer.sent + (source.bytes_read if source.is_remote else 0)
        self.bytes_copied, self.why_travelled = transfer.copied, transfer.why


def _dry(files: Sequence[AddedFile] | Sequence[RemovedFile]) -> list[str]:
    return ["dry run"] if any(file.dry_run for file in files) else []


@dataclass(frozen=True, slots=True, repr=False)
class TableCommit(Result):
    """New versions of files that a table has since one commit.

    version    that the commit made: of Delta; of Iceberg and DuckLake the snapshot's id
    files      that got one
    same_path  how many of them kept their path
    """

    table: str
    version: str
    files: int
    same_path: int


@dataclass(frozen=True, slots=True, repr=False)
class AddedFilter(Result):
    """One filter that was written.

    offset, length  header and bitset in the new file, bytes; of statistics no offset, and its base64
    num_bytes       of the bitset
    fpp             its exact false positive rate; `reached` says whether that is within what was asked for
    """

    row_group: int
    column: str
    offset: int | None
    length: int
    num_bytes: int
    fpp: float
    reached: bool
    estimated_ndv: float


@dataclass(slots=True, repr=False)
class AddedFile(FileReport):
    """The report of `add` on one file, or of its dry run.

    row_groups    0 of a table's file that was not opened, as the log says that it has all filters
    engine_notes  which of the filters the engine that was named does not use, or no engine that is known; and where it
                  breaks on them under a condition that no file shows; and which engines miss a NaN beside bounds
    warnings      over which of the filters the engine that was named gives wrong answers: columns that were named
    wrong_statistics  that chunks state which were decoded for their filters; `repair` writes them right
    offset_indexes, column_indexes  chunks that got one, or in a dry run would get one; of columns that were not named
                  a dry run does not know, as their pages have to be decoded
    index_bytes   of these page indexes
    index_notes   why there are no page indexes, or no column index of a column that was named
    """

    source: str
    output: str
    row_groups: int
    columns: list[str]
    bytes_before: int
    bytes_after: int = 0
    filters: list[AddedFilter] = field(default_factory=list)
    skipped: list[SkippedColumn] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False
    planned_filters: int = 0
    planned: dict[str, int] = field(default_factory=dict)  # column -> filters
    planned_bytes: int = 0  # of filters, at most
    bytes_needed: int = 0  # of disk, at most, while the new file is written
    engine_notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    wrong_statistics: list[WrongStatistic] = field(default_factory=list)
    offset_indexes: int = 0
    column_indexes: int = 0
    index_bytes: int = 0
    index_notes: list[str] = field(default_factory=list)

    def take_plan(self, plan: Plan, leaves: Sequence[Leaf], request: Request) -> None:
        """Say what will be done, and of filters of the form of today, who will use them."""
        self.skipped = plan.skipped
        self.planned_filters = len(plan.sizings)
        self.offset_indexes, self.index_notes = len(plan.indexes.offsets), plan.indexes.notes
        self.column_indexes = sum(column in plan.indexes.named for _, column in plan.indexes.bounds)
        self.planned = dict(Counter(leaves[column].name for _, column in sorted(plan.sizings)))
        some = [leaves[column] for column in plan.columns]
        if request.form.name == "final":
            self.engine_notes = notes_of(some, request.engine)
        about = (request.engine, request.form.name, request.placement)
        self.warnings = warnings_of(some, *about)
        if request.engine is not None:
            self.engine_notes += warnings_of(some, *about, conditional=True)

    def take_tail(self, filters: Sequence[AddedFilter], size: int) -> None:
        """Count filters that lie behind a table's file already, as a commit gives them.

        size  of the file by the table's log
        """
        self.bytes_before, self.written = size, bool(self.planned_filters if self.dry_run else self.filters)
        left = {one.column for one in filters}
        self.columns = [*self.columns, *sorted(left.difference(self.columns))]
        self.skipped = [one for one in self.skipped if one.column not in left or one.reason != HAS_FILTER]
        if not self.dry_run:
            self.filters = sorted([*filters, *self.filters], key=lambda one: (one.row_group, one.column))
            return
        if not self.written:
            self.bytes_needed = 0
        self.planned_filters += len(filters)
        self.planned = dict(Counter(self.planned) + Counter(one.column for one in filters))
        self.planned_bytes += sum(one.length for one in filters)

    def take_indexes(self, made: NewIndexes) -> None:
        """Count the page indexes that were written."""
        self.offset_indexes, self.column_indexes = made.count(IndexKind.OFFSET), made.count(IndexKind.COLUMN)
        self.index_bytes = len(made.data)

    @property
    def filter_bytes(self) -> int:
        """Bytes of all filters, headers included."""
        return sum(f.length for f in self.filters)

    def to_arrow(self) -> pa.Table:
        """A row a filter that was written."""
        return table_of(AddedFilter, self.filters)


@dataclass(slots=True, repr=False)
class AddReport(Result):
    """The report of `add`: one a file, and the files among several that failed.

    notes    of tables whose files were changed, as was forced: which readers fail on them; of a table that was named:
             the columns that its properties ask for, and files that another commit removed meanwhile
    commits  to a table that was named, in order
    """

    files: list[AddedFile]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)
    commits: list[TableCommit] = field(default_factory=list)

    def __repr__(self) -> str:
        filters = sum(file.planned_filters if file.dry_run else len(file.filters) for file in self.files)
        return line_of(self, quantity(filters, "filters"), *_dry(self.files))

    def to_arrow(self) -> pa.Table:
        """A row a file; `filters` is how many were written. Those that failed have none."""
        table = table_of(AddedFile, self.files)
        for name, counts in (
            ("filters", [len(f.filters) for f in self.files]),
            ("filter_bytes", [f.filter_bytes for f in self.files]),
        ):
            table = table.append_column(name, pa.array(counts, pa.int64()))
        return table


@dataclass(slots=True, repr=False)
class RemovedFile(FileReport):
    """The report of `remove` on one file.

    removed      filters that the footer no longer points at
    indexes      page indexes that it no longer points at
    tails        tails that were taken off; filters of the footer below may be there again (last)
    bytes_stay   how many of them left their bytes behind, because nothing could be cut safely
    others       filters that stay, because nothing shows that this package added them
    """

    source: str
    output: str
    removed: int
    columns: list[str]
    bytes_stay: int
    bytes_before: int
    bytes_after: int
    seconds: float = 0.0
    dry_run: bool = False
    tails: int = 0
    others: int = 0
    indexes: int = 0


@dataclass(slots=True, repr=False)
class RemoveReport(Result):
    """The report of `remove`: one a file, and the files among several that failed.

    notes    of tables whose files were changed, as was forced: which readers fail on them
    commits  to a table that was named, in order
    """

    files: list[RemovedFile]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)
    commits: list[TableCommit] = field(default_factory=list)

    def __repr__(self) -> str:
        return line_of(self, f"{quantity(sum(file.removed for file in self.files), 'filters')} less", *_dry(self.files))

    def to_arrow(self) -> pa.Table:
        """A row a file; those that failed have none."""
        return table_of(RemovedFile, self.files)
