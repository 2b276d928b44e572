"""Rows of the row groups that can hold them: what check keeps, pyarrow reads, the predicate filters.

    check -> row groups where TRUE is possible -> a pyarrow Dataset of these -> rows filtered,
    unless TRUE is the only outcome of them all

The rows and their order are those that pyarrow gives for the same files; only the work is less.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from parquet_bloom.errors import RequestError, UnknownColumnError, parameter
from parquet_bloom.formats.metadata.schema import Leaf, find_leaf, split_path
from parquet_bloom.predicates.outcomes import FALSE, NULL, TRUE
from parquet_bloom.predicates.tree import And, Predicate
from parquet_bloom.search.check import RowGroupVerdict, UnusedParts, sizes_of, verdicts_of
from parquet_bloom.search.expression_filter import ExpressionFilter
from parquet_bloom.search.fragments import file_format, fragment, partition_expression, partition_type
from parquet_bloom.search.narrowing import narrowing_of
from parquet_bloom.search.options import Options, SearchOptions
from parquet_bloom.search.search import FileResult, Search
from parquet_bloom.search.unchanged import (
    PYARROW_ERRORS,
    ChangeGuard,
    SearchedDataset,
    opened_same,
    path_of,
    read_error,
    version_of,
)
from parquet_bloom.storage.progress import Meter, RowMeter
from parquet_bloom.storage.source import PathLike, Source

if TYPE_CHECKING:
    from parquet_bloom.predicates.rows import RowFilter

logger = logging.getLogger("parquet_bloom")
Part = tuple[FileResult, list[int]]  # a file, and row groups of it


class Scan:
    """Files, a predicate over them, and which row groups can hold rows for it. Looks when first asked.

    Arguments as read_table has them; decide_true is for those who count: filters are asked too where their "no"
    would show that all rows of a row group match.
    """

    def __init__(
        self,
        source: PathLike | Sequence[PathLike],
        predicate: Any = None,
        *,
        filesystem: Any = None,
        decide_true: bool = False,
        **options: Unpack[SearchOptions],
    ) -> None:
        self._given = predicate
        how = Options(**options, decide_true=decide_true, skip_files=True)
        self.progress = how.progress
        self._search = Search(source, And(()) if predicate is None else predicate, filesystem, how)
        if self._search.file_set.failed:  # rows must not be missing in silence
            raise self._search.file_set.failed[0].error
        self.keys = self._search.keys  # the columns of folders' names
        self.filesystem = self._search.file_set.filesystem or pyarrow.fs.LocalFileSystem()

    @property
    def predicate(self) -> Predicate:
        """The predicate as a tree."""
        return self._search.predicate

    @cached_property
    def files(self) -> list[FileResult]:
        """Every file, searched. Raises the first file's error: rows must not be missing in silence."""
        files = self._searched()
        self._log(files)
        return files

    def _searched(self) -> list[FileResult]:
        files = []
        meter = Meter(self.progress, self._search.files, "search")
        for one in self._search:
            meter.finish()
            if isinstance(one, tuple):
                raise one[1]
            files.append(one)
        return files

    def require(self, columns: Sequence[str] | None = None, leaf: str | None = None) -> None:
        """Look at the files. Raises UnknownColumnError, once the first is read, for a name that it lacks.

        columns  top-level names, as pyarrow takes them
        leaf     the name of one leaf, or of a folder's key
        """
        self._search.columns, self._search.leaf = list(columns or ()), leaf
        first = self.files[0]
        assert first.outline is not None
        self._search.hold_names(first.outline.leaves, first.file)

    @property
    def verdicts(self) -> list[RowGroupVerdict]:
        """One a row group, as parquet_bloom.check gives them; none of files that were not opened."""
        return [v for file in self.files if file.decision is not None for v in verdicts_of(file)]

    @property
    def excluded(self) -> list[str]:
        """The files that were not opened, as their folders' names exclude them."""
        return [str(file.file) for file in self.files if file.decision is None]

    @property
    def unused(self) -> list[tuple[str, str]]:
        """(part, reason) of each part of the predicate that told nothing in some file."""
        return UnusedParts(self.files).parts

    @property
    def notes(self) -> list[str]:
        """Notes on tables that footers name but no log shows, and other notes of the search."""
        return self._search.notes if self.files else []

    @property
    def kept(self) -> list[tuple[str, list[int]]]:
        """(file, row groups) of every file that has row groups in which a row can match."""
        return [(str(file.file), groups) for file in self.files if (groups := open_groups(file))]

    def reopen(self, file: FileResult) -> Source:
        """A file once more, if it is still the one that was searched. Raises FileChangedError, StorageError."""
        source = opened_same(version_of(file))
        if file.outline is not None:
            source.adopt(file.outline)
        return source

    @property
    def use_filters(self) -> bool:
        """Whether filters are asked."""
        return self._search.options.use_filters

    def leaf_of(self, file: FileResult, column: str) -> tuple[Leaf | None, Leaf]:
        """The column a name means in a file, None if only the first one has it, and in the first; a key is both."""
        for key in self._search.keys:
            if key.path == split_path(column):
                return key, key
        first = self.files[0].outline
        assert first is not None
        assert file.outline is not None
        there, path = find_leaf(first.leaves, column), split_path(column)
        if not any(leaf.path[: len(path)] == path for leaf in file.outline.leaves):
            return None, there
        try:
            return find_leaf(file.outline.leaves, column), there
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{file.file}: " + error.message) from error

    # --- rows -------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the first file, as pyarrow has it, then the partition columns."""
        found = self._search.files[0]
        try:
            with Source(found) as source:
                source.outline()  # what is wrong with the file is said by us, not by pyarrow
                with source.arrow_file() as file:
                    schema = pq.read_schema(file)
        except PYARROW_ERRORS as error:
            raise read_error(str(found), error) from error
        for key in self._search.keys:
            if schema.get_field_index(key.path[0]) >= 0 or key.path[0] in schema.names:
                raise RequestError(f"column {key.path[0]} is both in {found} and in its folder's name")
            schema = schema.append(pa.field(key.path[0], partition_type(key)))
        return schema

    def projected_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The schema of the rows that to_table and to_batches give."""
        self._check_columns(columns)
        empty = ds.FileSystemDataset([], self.schema, file_format(), self.filesystem)
        return empty.scanner(columns=listed(columns)).projected_schema

    def dataset(self) -> ds.FileSystemDataset:
        """A pyarrow Dataset of only the row groups in which a row can match; its rows are not filtered yet.

        One of its files that was changed since is a FileChangedError when the data set is scanned.
        """
        return self._dataset(self._open(), guarded=True)

    def _open(self) -> list[Part]:
        return [(file, groups) for file in self.files if (groups := open_groups(file))]

    def _dataset(self, parts: Sequence[Part], guarded: bool = False) -> ds.FileSystemDataset:
        """guarded  whether the data set looks itself for changed files; without that `_reading` does."""
        keys, fragments = self._search.keys, []
        for file, groups in parts:
            path: Any = path_of(file)
            if file.file.is_local and not is_utf8(path):  # pyarrow has no such names
                with opened_same(version_of(file)) as source:
                    path = source.native_file()
            fragments.append(fragment(path, self.filesystem, partition_expression(keys, file.file.partitions), groups))
        made_of = (fragments, self.schema, file_format(), self.filesystem)
        if not guarded:
            return ds.FileSystemDataset(*made_of)
        versions = [version_of(file) for file, _ in parts]
        return SearchedDataset(*made_of, versions, narrowing_of(parts, self.files[0], self.keys, self._search.options))

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that match, of the columns named (None: all)."""
        if self.progress is not None:
            return pa.Table.from_batches(list(self.to_batches(columns)), self.projected_schema(columns))
        self._check_columns(columns)
        rows = self._row_filter()
        with self._reading():
            dataset = self._dataset(self._open())
            if rows is None:
                return dataset.to_table(columns=listed(columns))
            scanner = dataset.scanner(columns=self._with(columns, rows))
            batches = [kept for b in scanner.to_batches() if (kept := rows.filter_batch(b)).num_rows]
            table = pa.Table.from_batches(batches, scanner.projected_schema)
            return table if columns is None else table.select(list(columns))

    def to_batches(self, columns: Sequence[str] | None = None, batch_rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
        """The rows that match, batch by batch, never more than a few row groups in memory."""
        self._check_columns(columns)
        rows = self._row_filter()
        with self._reading():
            scanner = self._dataset(self._open()).scanner(
                columns=listed(columns) if rows is None else self._with(columns, rows),
                batch_size=batch_rows,
                batch_readahead=2,
                fragment_readahead=1,
            )
            meter = self.row_meter()
            for batch in scanner.to_batches():
                meter.add(batch.num_rows)
                kept = batch if rows is None else rows.filter_batch(batch)
                if kept.num_rows:
                    yield kept if columns is None or rows is None else kept.select(list(columns))

    def count(self) -> int:
        """How many rows match; row groups that match whole are not read."""
        whole = 0
        some: list[FileResult] = []
        for file in self.files:
            if file.decision is None or file.outline is None:
                continue
            sure = file.decision.outcomes == TRUE
            whole += int(file.outline.rows[sure].sum())
            if (file.decision.open & ~sure).any():
                some.append(file)
        if not some:
            return whole
        rows = self._row_filter()
        assert rows is not None
        dataset = self._dataset([(file, undecided_groups(file)) for file in some])
        with self._reading():
            scanner = dataset.scanner(columns=self._with([], rows))
            return whole + sum(int(rows.filter_batch(b).num_rows) for b in scanner.to_batches())

    # --- how --------------------------------------------------------------------------------------

    def row_meter(self) -> RowMeter:
        """Tells `progress` about the row groups that are left, as their rows are read."""
        parts = [(f, groups) for f in self.files if self.progress and (groups := open_groups(f))]
        sums = [(f, f.outline.rows[g].sum(), sizes_of(f.outline)[g].sum()) for f, g in parts if f.outline is not None]
        return RowMeter(self.progress, [(str(f.file), int(rows), int(size)) for f, rows, size in sums])

    def _row_filter(self) -> RowFilter | ExpressionFilter | None:
        """The filter that rows still have to pass; None if every row that is left matches."""
        files = self.files  # names are resolved here, before any data is read
        if self._given is None:
            return None
        decided = [f.decision for f in files if f.decision is not None]
        kept = any(d.open.any() for d in decided)
        if kept and all(((d.outcomes == TRUE) | ~d.open).all() for d in decided):
            return None
        from parquet_bloom.predicates.rows import row_filter

        if isinstance(self._given, str | Predicate):
            dates = [key.path[0] for key in self._search.keys if key.logical == "DATE"]
            return row_filter(self.predicate, self.schema, dates=dates)
        from parquet_bloom.predicates.arrow import as_expression

        return ExpressionFilter(as_expression(self._given), self.predicate)

    def _check_columns(self, columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise RequestError("columns takes a list of names, not one text")
        self.require(columns)
        names = self.schema.names
        wanted = names if columns is None else [name if name in names else name.split(".")[0] for name in columns]
        twice = next((name for name in wanted if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            reason = f"has {names.count(twice)} columns named {twice}, which pyarrow tells apart by name alone"
            raise RequestError(f"{self._search.files[0]}: {reason}; name others with " + parameter("columns"))

    def _with(self, columns: Sequence[str] | None, rows: RowFilter | ExpressionFilter) -> list[str] | None:
        """The columns to read, those that rows are filtered by among them."""
        # Batches are filtered here, not by the scanner. The scanner prunes by min and max first, which leave NaN out,
        # and pyarrow aborts the process on statistics whose bytes are not as long as a value.
        if columns is None or rows.columns is None:
            return None
        return list(dict.fromkeys([*columns, *rows.columns]))

    def _reading(self) -> ChangeGuard:
        return ChangeGuard([file for file in self.files if open_groups(file)])

    def _log(self, files: list[FileResult]) -> None:
        groups = sum(file.decision is not None and len(file.decision.stage) for file in files)
        kept = sum(int(file.decision.open.sum()) for file in files if file.decision is not None)
        size = sum(int(sizes_of(file.outline).sum()) for file in files if file.outline is not None)
        left = sum(
            int(sizes_of(f.outline)[f.decision.open].sum()) for f in files if f.outline is not None and f.decision
        )
        closed = sum(file.decision is None for file in files)
        logger.info(
            "%s: %d of %d row groups and %d of %d bytes skipped, %d of %d files by their folders' names",
            self.predicate, groups - kept, groups, size - left, size, closed, len(files),
        )  # fmt: skip
        for part, reason in UnusedParts(files).parts:
            logger.info("not used to skip: %s: %s", part, reason)


def listed(columns: Sequence[str] | None) -> list[str] | None:
    """A list of the names; None stays None."""
    return None if columns is None else list(columns)


def open_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which a row can match."""
    return [] if file.decision is None else [int(i) for i in file.decision.open.nonzero()[0]]


def is_utf8(path: str) -> bool:
    """Say whether a path is UTF-8, as pyarrow needs it."""
    return os.fsencode(path) == path.encode("utf-8", "replace")


def undecided_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which some rows can match and others not."""
    assert file.decision is not None
    undecided = file.decision.open & ((file.decision.outcomes & (FALSE | NULL)) != 0)
    return [int(i) for i in undecided.nonzero()[0]]
