"""Rows of the row groups that can hold them: what check keeps, pyarrow reads, the predicate filters.

    check -> row groups where TRUE is possible -> a pyarrow Dataset of these -> rows filtered,
    unless TRUE is the only outcome of them all

The rows and their order are those that pyarrow gives for the same files; only the work is less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from parquet_bloom.errors import RequestError, UnknownColumnError, first_line, parameter
from parquet_bloom.format.arrow_types import is_view, without_views
from parquet_bloom.format.outline import NONE, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import PathLike, column_names, refuse_unknown
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, Part, Predicate, Unknown, leaves_of
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import check_fields, dataset_schema, file_format, finished, path_of
from parquet_bloom.rows.matching import Filter, Reading
from parquet_bloom.rows.pages import RowSelection, rows_by_pages
from parquet_bloom.rows.pages_file import PagesRead
from parquet_bloom.rows.source_rows import FileRows, SourceRows
from parquet_bloom.rows.table_rows import TableRows
from parquet_bloom.rows.unchanged import ChangeGuard, SearchedDataset, narrowing_of, opened_same, version_of
from parquet_bloom.search.check import (
    ExcludedFile,
    RowGroupVerdict,
    UnusedParts,
    excluded_file,
    log_search,
    logger,
    sizes_of,
    verdicts_of,
)
from parquet_bloom.search.log import (
    FileResult,
    Log,
    UnopenedFiles,
    logged_rows,
    open_groups,
    sure_groups,
    undecided_groups,
)
from parquet_bloom.search.options import DatasetSchema, Options, SearchOptions
from parquet_bloom.search.question import key_index, unlisted
from parquet_bloom.search.search import Search, as_predicate
from parquet_bloom.search.together import BatchSlice
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.display import brief, line, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import arrow_of
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import Meter, RowMeter

if TYPE_CHECKING:
    from parquet_bloom.predicates.rows import RowFilter


# --- rows filtered by the caller's Expression -----------------------------------------------------
#
# A predicate that came as a pyarrow Expression filters rows as it is, where pyarrow can do that.


class ExpressionFilter:
    """The caller's own pyarrow Expression, in the place of a RowFilter.

    columns  the top-level columns it looks at; None where a part of it is not understood: any
    """

    def __init__(self, expression: pc.Expression, predicate: Predicate) -> None:
        self.expression = expression
        leaves = list(leaves_of(predicate))
        understood = not any(isinstance(leaf, Unknown) for leaf in leaves)
        self.columns = [leaf.path[0] for leaf in leaves if not isinstance(leaf, Unknown)] if understood else None

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep the rows for which the expression is true. Raises RequestError where pyarrow cannot compare."""
        # As a table: pyarrow makes no batch without rows of some nested types (a list of uuids). It filters no views.
        table = pa.Table.from_batches([batch])
        plain = pa.schema([field.with_type(without_views(field.type)) for field in batch.schema], batch.schema.metadata)
        try:
            if plain == batch.schema:
                found = table.filter(self.expression)
            else:
                found = table.cast(plain).filter(self.expression).cast(batch.schema)
            batches = found.combine_chunks().to_batches()
        except pa.ArrowNotImplementedError as error:
            raise RequestError(f"rows cannot be filtered by {self.expression}: {first_line(error)}") from error
        return batches[0] if batches else batch.slice(0, 0)

    def count(self, batch: pa.RecordBatch) -> int:
        """How many rows it is true of. Raises as filter_batch."""
        return int(self.filter_batch(batch).num_rows)


def filter_of(expression: pc.Expression, predicate: Predicate, schema: pa.Schema) -> ExpressionFilter | RowFilter:
    """The filter of rows by a caller's Expression: by what it means, where it compares what pyarrow does not.

    predicate  the Expression as a tree
    schema     of the rows
    Raises RequestError where a literal is no value of such a column.
    """
    own = ExpressionFilter(expression, predicate)
    if own.columns is None:
        return own
    uncomparable = any(_has_no_kernel(leaf, schema) for leaf in leaves_of(predicate))
    if not uncomparable and not any(_is_beyond_pyarrow(f.type) for f in schema if f.name in own.columns):
        return own
    from parquet_bloom.predicates.rows import row_filter

    found = row_filter(predicate, schema)
    return own if found.expression is not None and not uncomparable else found


def _has_no_kernel(leaf: Part, schema: pa.Schema) -> bool:
    """Whether pyarrow has no kernel for a comparison: of a text with days or times; and of an integer with UINT64.

    It casts UINT64 to int64 there, which fails for values of 2^63 and more.
    """
    if not isinstance(leaf, Compare) or not isinstance(leaf.value, str | int):
        return False
    kind = schema
    for name in leaf.path:
        if not isinstance(kind, pa.Schema) and not pa.types.is_struct(kind):
            return False
        at = kind.get_field_index(name)
        if at < 0:
            return False
        kind = kind.field(at).type
    return bool(pa.types.is_temporal(kind) if isinstance(leaf.value, str) else pa.types.is_uint64(kind))


def _is_beyond_pyarrow(kind: pa.DataType) -> bool:
    """Whether pyarrow compares no such values: uuids and other extension types, and views of texts; or some within."""
    if pa.types.is_struct(kind):
        return any(_is_beyond_pyarrow(field.type) for field in kind)
    return is_view(kind) or isinstance(kind, pa.BaseExtensionType)


# --- the scan -------------------------------------------------------------------------------------


_NOT_SELECTIVE = 3  # the rank of parts of which nobody knows how many rows match
_GATHERED_ROWS, _GATHERED_BYTES = 1 << 16, 8 << 20


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: pyarrow gives one a row group; for 200 rows a kernel takes as long as for 1."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield from _joined(some)
            some, rows, size = [], 0, 0
    yield from _joined(some)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowException:  # of types that pyarrow does not join
        return batches


def _results_of(parts: Iterable[FileResult | UnopenedFiles]) -> Iterator[FileResult]:
    for part in parts:
        if isinstance(part, FileResult):
            yield part
        else:
            yield from part.results()


class Scan:
    """Files, a predicate over them, and the row groups that can hold rows for it. Searches on first use.

    Arguments as read_table has them; decide_true is for those who count: filters are asked too where their "no"
    would show that all rows of a row group match. index is the name of a key index.
    """

    def __init__(
        self,
        source: PathLike | Sequence[PathLike],
        predicate: Any = None,
        *,
        filesystem: Any = None,
        decide_true: bool = False,
        index: Any = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        refuse_unknown(type(self).__name__, options, SearchOptions)
        self._given = predicate
        how = Options.of(options, decide_true, skip_files=True)
        tree = And(()) if predicate is None else as_predicate(predicate)
        self.progress = how.progress
        where = source_of(source, filesystem, options)
        asked = None if index is None else key_index(index, False, tree, how)
        found = where.resolve(refuses=RAW_FILES) if how.listing else unlisted(where, asked)
        self._search = Search(found, tree, how, index=asked)
        found.raise_failed()  # rows must not be missing in silence
        self.keys = self._search.keys  # the columns of folders' names
        self.filesystem = arrow_of(found.snapshot.filesystem) or pyarrow.fs.LocalFileSystem()
        opened = self._search.opened
        own = FileRows(found.files, self.keys, self.filesystem, lambda: self._opened, opened)
        self._rows: SourceRows = TableRows(found.snapshot, opened) if found.has_log else own

    def __repr__(self) -> str:
        """One line: the files, and the remaining row groups once they are known; this opens no file."""
        parts = [quantity(len(self._search.files), "files")]
        if self._given is not None:
            parts.append(brief(str(self.predicate)))
        if "_parts" in self.__dict__:
            kept = sum(len(groups) for _, groups in self.kept)
            parts.append(f"{kept:,} of {quantity(len(self.verdicts), 'row groups')} left")
        return line(type(self).__name__, parts)

    @property
    def log(self) -> Log:
        """The log of the table that is read; files without a log have an empty one."""
        return self._search.log

    @property
    def predicate(self) -> Predicate:
        """The predicate as a tree."""
        return self._search.predicate

    @cached_property
    def _parts(self) -> list[FileResult | UnopenedFiles]:
        """All files, searched; many that an index excludes are one part. Raises the first file's error."""
        parts = self._searched()
        if logger.isEnabledFor(logging.INFO):
            log_search(self.predicate, list(_results_of(parts)))
        return parts

    @cached_property
    def files(self) -> list[FileResult]:
        """Every file, searched. Raises the first file's error: rows must not be missing in silence."""
        return list(_results_of(self._parts))

    @cached_property
    def _opened(self) -> list[FileResult]:
        """Those that were opened."""
        return [one for one in self._parts if isinstance(one, FileResult) and one.decision is not None]

    def _searched(self) -> list[FileResult | UnopenedFiles]:
        return self._searched_in(self._search)

    def _searched_in(self, search: Search) -> list[FileResult | UnopenedFiles]:
        found: list[FileResult | UnopenedFiles] = []
        meter = Meter(self.progress, search.files, "search")
        for one in search.parts():
            if isinstance(one, tuple):
                raise one[1]
            meter.finish(1 if isinstance(one, FileResult) else len(one))
            found += one.results() if isinstance(one, BatchSlice) else [one]
        return found

    def visit(self, ask: Callable[[OpenFile, FileResult], Any]) -> None:
        """Have something more read of each file while the search has it open: its value is FileResult.visited."""
        self._search.visit = ask

    @property
    def search(self) -> Search:
        """The search over these files."""
        return self._search

    def require(self, columns: Sequence[str] | None = None, leaf: str | None = None) -> None:
        """Search the files. Raises UnknownColumnError, once the first is read, for a name that it lacks.

        columns  top-level names, as pyarrow takes them
        leaf     the name of one leaf, or of a folder's key
        """
        self._search.columns, self._search.leaf = list(columns or ()), leaf
        if self.log.first is not None:
            self._search.hold_names(self.log.leaves, self.log.first.name)
            return
        first = next(_results_of(self._parts))
        assert first.outline is not None
        self._search.hold_names(first.outline.leaves, first.file)

    @property
    def verdicts(self) -> list[RowGroupVerdict]:
        """One a row group, as parquet_bloom.check gives them; none of files that were not opened."""
        return [v for file in self._opened for v in verdicts_of(file)]

    @property
    def excluded(self) -> list[str]:
        """The files that were not opened: their folders' names, or the log of their table, exclude them."""
        return [one.path for one in self.excluded_files]

    @property
    def excluded_files(self) -> list[ExcludedFile]:
        """The same with the reason."""
        return [one for file in _results_of(self._parts) if (one := excluded_file(file)) is not None]

    @property
    def unused(self) -> list[tuple[str, str]]:
        """(part, reason) of each part of the predicate that could not skip anything in some file."""
        return UnusedParts(self._opened).parts

    @property
    def notes(self) -> list[str]:
        """Notes on tables that footers name but no log shows, and other notes of the search."""
        return self._search.notes if self._parts else []

    @property
    def kept(self) -> list[tuple[str, list[int]]]:
        """(file, row groups) of every file that has row groups in which a row can match."""
        return [(str(file.file), groups) for file in self._opened if (groups := open_groups(file))]

    def reopen(self, file: FileResult) -> OpenFile:
        """A file once more, if it is still the one that was searched. Raises FileChangedError, StorageError."""
        source = opened_same(version_of(file))
        if file.outline is not None:
            source.adopt(file.outline)
            source.size = file.size  # where the footer ends, in one whose append was cut short
        return source

    @property
    def use_filters(self) -> bool:
        """Whether filters are queried."""
        return self._search.options.use_filters

    @property
    def first_leaves(self) -> tuple[Leaf, ...]:
        """The columns that names must be among: the first file's, or the table's."""
        if self.log.has_log:
            return self.log.leaves
        first = next(_results_of(self._parts), None)
        return first.outline.leaves if first is not None and first.outline is not None else ()

    # --- rows -------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the first file, as pyarrow has it, then the partition columns; of a table its own.

        A column has a wider type where a file that was opened has that.
        """
        return self._rows.schema

    @property
    def first_schema(self) -> pa.Schema:
        """The same of the first file alone, without a search of the others."""
        return self._rows.first_schema

    @property
    def pages(self) -> PagesRead:
        """Pages that were read, and those that were spared, so far."""
        return self._rows.pages

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of this scan with the types of `first_schema`. Raises RequestError that names file and column."""
        return self._rows.narrowed(batch)

    def projected_schema(self, columns: str | Sequence[str] | None = None) -> pa.Schema:
        """The schema of the rows that to_table and to_batches give."""
        columns = column_names(columns, "columns")
        self._check_columns(columns)
        empty = ds.FileSystemDataset([], self.schema, file_format(), self.filesystem)
        return empty.scanner(columns=columns).projected_schema

    def dataset(self) -> ds.FileSystemDataset:
        """A pyarrow Dataset of only the row groups in which a row can match; its rows are not filtered yet.

        One of its files that was changed since is a FileChangedError when the data set is scanned.
        Raises RequestError for a table's file with row-level deletes, or whose columns have other names.
        """
        parts, rows, how = self._open(), self._rows, self._search.options
        rows.check_whole(parts)
        schema = dataset_schema(self.schema, (file.outline for file, _ in parts if file.outline is not None))
        fragments = [rows.fragment(part, schema, filtered=True) for part in parts]
        # Constants come from the table's log. A search of the files alone would not see them, so a later filter of the
        # engine leaves no row group out.
        made_of = (fragments, schema, file_format(), self.filesystem, [version_of(file) for file, _ in parts])
        if isinstance(rows, TableRows) and any(rows.constants(file) is not None for file, _ in parts):
            return SearchedDataset(*made_of)
        path = str(self._search.files[0]) if self._search.files else ""
        return SearchedDataset(*made_of, narrowing_of(parts, DatasetSchema(self.first_leaves, self.keys, path), how))

    def _open(self) -> list[FilePart]:
        return [(file, groups) for file in self._opened if (groups := open_groups(file))]

    def to_table(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """The rows that match, of the columns named, one or a list (None: all)."""
        columns = column_names(columns, "columns")
        self._search.reads_rows = True
        remote = self._search.found.snapshot.filesystem is not None
        if remote or self.progress is not None or not isinstance(self._rows, FileRows):
            return pa.Table.from_batches(list(self.to_batches(columns)), self.projected_schema(columns))
        schema = self.projected_schema(columns)
        rows = self._row_filter()
        names = self._with(columns, rows)
        with self._reading(names):
            if rows is None:
                return self._rows.dataset(self._open(), names).to_table(columns=columns)
            batches = list(self._matching(rows, names, None))
            read = self._rows.projected(self.schema.names if names is None else names)
            return finished(pa.Table.from_batches(batches, read), columns, schema)

    def to_batches(
        self, columns: str | Sequence[str] | None = None, batch_rows: int = 1 << 16
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match, batch by batch, never more than a few row groups in memory."""
        columns = column_names(columns, "columns")
        self._search.reads_rows = True
        schema = self.projected_schema(columns)
        rows = self._row_filter()
        with self._reading(self._with(columns, rows)):
            meter = self.row_meter()
            names = self._with(columns, rows)
            if rows is not None:
                for batch in self._matching(rows, names, batch_rows, meter.add):
                    yield finished(batch, columns, schema)
                return
            for batch in self._batches(self._open(), names, batch_rows):
                meter.add(batch.num_rows)
                if batch.num_rows:
                    yield finished(batch, columns, schema)

    def filtered_by(
        self, keep: Filter | None, columns: Sequence[str] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The living rows that a caller's filter keeps, of the row groups in which one can match; None: all of them.

        columns  what the filter needs is among them
        The files are looked at when this is called: names that mean nothing are an error before the first row.
        """
        self._search.reads_rows = True
        parts, names = self._open(), self._with(columns, None)

        def rows() -> Iterator[pa.RecordBatch]:
            with self._reading(names):
                yield from (
                    self._batches(parts, names, batch_rows) if keep is None else self._matching(keep, names, batch_rows)
                )

        return rows()

    def count(self, from_log: bool = True) -> int:
        """How many rows match; row groups that match whole are not read.

        from_log  without a predicate, files of a table whose log has exact counts of rows and deletes are not opened
        """
        if self._given is None and from_log and self.log.has_log:
            return self._count_by_log()
        self._search.reads_rows = True
        whole = sum(map(self._living, self._opened))
        some = [(file, groups) for file in self._opened if (groups := undecided_groups(file))]
        if not some:
            return whole
        rows = self._row_filter()
        assert rows is not None
        with self._reading(self._with([], rows)):
            found = self._batches(some, self._with([], rows), 1 << 16)
            return whole + sum(map(rows.count, _gathered(found)))

    def _count_by_log(self) -> int:
        counted = [(file, logged_rows(file)) for file in self._search.files]
        unknown = [file for file, rows in counted if rows is None]
        opened = self._searched_in(self._search.of(unknown)) if unknown else []
        return sum(rows for _, rows in counted if rows is not None) + sum(map(self._living, _results_of(opened)))

    # --- how --------------------------------------------------------------------------------------

    def _batches(self, parts: Sequence[FilePart], names: list[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of row groups, in order; never more than a few row groups in memory."""
        return Reading(self._rows, names, batch_rows, self._wanted).candidates(parts)

    def _matching(
        self,
        rows: Filter,
        names: list[str] | None,
        batch_rows: int | None,
        passed: Callable[[int], object] = lambda rows: None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match; `passed` is called with a number of rows as the reading goes on."""
        reading = Reading(self._rows, names, batch_rows, self._wanted, passed)
        return reading.matching(self._open(), rows, self._most_selective(rows))

    def _most_selective(self, rows: Filter) -> RowFilter | None:
        """The filter by the part of an AND that is read first: by a column with filters, another =, then a range.

        None where the predicate has one column, or came as an Expression, which means what it means in pyarrow.
        """
        predicate = self.predicate
        if not isinstance(self._given, str | Predicate) or not isinstance(predicate, And) or not self._opened:
            return None
        columns = [
            {part.path[0] for part in leaves_of(one) if not isinstance(part, Unknown)} for one in predicate.parts
        ]
        ranks = [self._rank(part) for part in predicate.parts]
        best = columns[ranks.index(min(ranks))]
        chosen = [part for part, own in zip(predicate.parts, columns, strict=True) if own == best]
        if min(ranks) == _NOT_SELECTIVE or len(best) != 1 or not set(rows.columns or ()) > best:
            return None
        from parquet_bloom.predicates.rows import row_filter

        dates = [key.path[0] for key in self.keys if key.logical == "DATE"]
        with suppress(RequestError, UnknownColumnError):  # of an engine's filter it may be more than an engine compares
            return row_filter(And(tuple(chosen)), self.schema, self._search.options.nan, dates)
        return None

    def _rank(self, part: Predicate) -> int:
        """A part's place among those of an AND, the most selective first."""
        if not isinstance(part, Compare | IsIn | Contains):
            return _NOT_SELECTIVE
        if isinstance(part, Compare) and part.op != "=":
            return _NOT_SELECTIVE - 1
        outline = self._opened[0].outline
        assert outline is not None
        own = [leaf.index for leaf in outline.leaves if leaf.path[:1] == part.path[:1]]
        return 0 if (outline.slots[Slot.FILTER_OFFSET][:, own] != NONE).any() else 1

    def _wanted(self, file: FileResult, groups: Sequence[int]) -> Mapping[int, RowSelection]:
        """The only rows of row groups of a file that can match, by row group; any of the others."""
        if file.file.deletes is not None:  # rows are chosen among the living
            return {}
        return rows_by_pages(file, groups, self._search.options.nan, self._rows.opened)

    def _living(self, file: FileResult) -> int:
        """The rows of the row groups that match whole."""
        sure = sure_groups(file)
        if not sure or file.outline is None:
            return 0
        return self._rows.living(file, sure)

    def row_meter(self) -> RowMeter:
        """Reports the remaining row groups to `progress`, as their rows are read."""
        parts = [(f, groups) for f in self._opened if self.progress and (groups := open_groups(f))]
        sums = [(f, f.outline.rows[g].sum(), sizes_of(f.outline)[g].sum()) for f, g in parts if f.outline is not None]
        return RowMeter(self.progress, [(str(f.file), int(rows), int(size)) for f, rows, size in sums])

    def _row_filter(self) -> RowFilter | ExpressionFilter | None:
        """The filter that rows still have to pass; None if every remaining row matches."""
        files = self._opened  # names are resolved here, before any data is read
        if self._given is None:
            return None
        # No filter if in every row group that is read TRUE is the only outcome.
        decided = [f.decision for f in files if f.decision is not None]
        kept = any(d.open.any() for d in decided)
        if kept and all(((d.outcomes == TRUE) | ~d.open).all() for d in decided):
            return None
        from parquet_bloom.predicates.rows import row_filter

        # Text and trees are filtered by SQL's rules. An Expression is pyarrow's own, and keeps what it means there.
        if isinstance(self._given, str | Predicate):
            dates = [key.path[0] for key in self._search.keys if key.logical == "DATE"]
            return row_filter(self.predicate, self.schema, dates=dates)
        from parquet_bloom.predicates.arrow import as_expression

        return filter_of(as_expression(self._given), self.predicate, self.schema)

    def _check_columns(self, columns: Sequence[str] | None) -> None:
        self.require(columns)
        names = self.schema.names
        wanted = names if columns is None else [path_of(name, self.schema)[0] for name in columns]
        twice = next((name for name in wanted if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            reason = f"has {names.count(twice)} columns named {twice}, which pyarrow tells apart by name alone"
            raise RequestError(f"{self._search.files[0]}: {reason}; name others with " + parameter("columns"))
        try:
            check_fields(columns or (), self.schema)
        except UnknownColumnError as error:
            first = self._search.files[0] if self.log.first is None else self.log.first.name
            raise self._search.refusal(first, error) from error

    def _with(self, columns: Sequence[str] | None, rows: RowFilter | ExpressionFilter | None) -> list[str] | None:
        """The columns to read, each once, those that rows are filtered by among them."""
        # Batches are filtered here, not by the scanner. The scanner prunes by min and max first, which leave NaN out,
        # and pyarrow aborts the process on statistics whose bytes are not as long as a value.
        by = [] if rows is None else rows.columns
        return None if columns is None or by is None else list(dict.fromkeys([*columns, *by]))

    def _reading(self, names: Sequence[str] | None) -> ChangeGuard:
        parts = self._open()
        return ChangeGuard([f for f, _ in parts], self._search.opened, lambda: self._rows.misfit(parts, names))
