"""Rows of a source's files: of the remaining row groups, as the source has them.

files without a log   one pyarrow Dataset; columns of the first file, then the folders' keys
a table               file by file, under the table's schema, without rows that are deleted: rows.table_rows
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterWarning, RequestError, first_line
from parquet_bloom.format.arrow_types import leaf_arrays, wider
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT96, Leaf
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.tree import Compare, IsNull
from parquet_bloom.rows.fetched import (
    FetchedFile,
    Fetcher,
    FilePart,
    Meanwhile,
    arrow_file,
    batches_of,
    errors_of,
    nothing,
    scan_options,
)
from parquet_bloom.rows.layouts import (
    file_format,
    for_scanner,
    format_for,
    fragment,
    partition_expression,
    path_of,
    with_partitions,
)
from parquet_bloom.rows.pages import RowSelection
from parquet_bloom.rows.pages_file import PagesRead, columns_at
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, for_arrow, is_utf8, opened_as_searched, read_error
from parquet_bloom.search.evidence import Question, decide, literal_outcome
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.options import Options
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import HIVE_NULL, DataFile
from parquet_bloom.storage.remote import arrow_of

logger = logging.getLogger("parquet_bloom")


class RowGroups(Protocol):
    """Rows of row groups, as rows.matching reads them.

    opened   files that a search has kept open, by id(DataFile)
    threads  that may read rows of local files side by side
    """

    opened: Mapping[int, OpenFile]
    threads: int

    @property
    def schema(self) -> pa.Schema:
        """Of all rows. Raises FileError and its kinds."""

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Living rows, file by file and in their order there.

        names       of columns, or of fields of structs, place.x, each once; these are the batches' names. None: all
        batch_rows  at most, of a batch; None: as pyarrow has it, for those who keep all of them
        """

    def numbered(
        self, parts: Sequence[FilePart], names: Sequence[str], batch_rows: int | None, meanwhile: Meanwhile = nothing
    ) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """The same with a last column NUMBER, int64, and what is to be added to it, as one number for the batch.

        The sums count the rows of these row groups from 0, deleted ones too. No batch has rows of two row groups.
        meanwhile  may be called while pyarrow decodes
        """

    def projected(self, names: Sequence[str]) -> pa.Schema:
        """The schema of `batches` with these names."""

    def stored(self, file: FileResult, names: Sequence[str]) -> set[str]:
        """The top-level columns of a file, by its own names, that are read for these."""

    def at(self, part: FilePart, names: Sequence[str], wanted: RowSelection) -> Mapping[str, pa.ChunkedArray]:
        """Some rows of the one row group of a part, which live: of those columns that are read page by page.

        names  as `batches` has them; those that are missing in the result are to be read by it
        """


class SourceRows(RowGroups, Protocol):
    """The rows of files of one snapshot."""

    @property
    def pages(self) -> PagesRead:
        """Pages that were read, and those that were spared, so far."""

    @property
    def first_schema(self) -> pa.Schema:
        """Of the first file alone, or of the table. Raises as `schema`."""

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the types of `first_schema`. Raises RequestError for a value that has no place there."""

    def misfit(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> RequestError | None:
        """The error of the first file with a value that has no place in the type of its column; None: there is none."""

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """How many rows of these row groups are not deleted."""

    def check_whole(self, parts: Sequence[FilePart]) -> None:
        """Raise RequestError for the first file whose rows pyarrow alone would not read as the source has them."""

    def same_names(self, file: FileResult) -> bool:
        """Whether a file calls its columns as the source does."""

    def constants(self, file: FileResult) -> pc.Expression | None:
        """An expression that is true of every row of a file: values of columns that are not read from it."""

    def fragment(self, part: FilePart, schema: pa.Schema, filtered: bool = False) -> ds.ParquetFileFragment:
        """Row groups of a file, as pyarrow reads them into rows of a schema.

        filtered  whether pyarrow's scanner gets filters
        """


NUMBER = "number of the row"  # the name of a column
_THREADS = 4  # at most: pyarrow decodes a row group in one, and more of them would have more row groups in memory


def fragment_of(
    part: FilePart,
    schema: pa.Schema,
    constants: pc.Expression | None,
    of_table: bool,
    filtered: bool,
    opened: Any,
) -> ds.ParquetFileFragment:
    """The fragment of some row groups; opened: the file, or pages of it, as pyarrow takes it, if it is in memory."""
    file, groups = part
    assert file.outline is not None
    form = format_for(file.outline, schema, of_table=of_table, filtered=filtered)
    path = for_arrow(file) if opened is None else opened
    return fragment(path, file.file, constants, groups, form, file.size)


def counted(
    batches: Iterator[pa.RecordBatch], parts: Sequence[FilePart]
) -> Generator[tuple[pa.RecordBatch, int], None, None]:
    """Batches of these row groups, and the number of the first row of each.

    Raises DamagedFileError where one lies in two row groups: the columns of one have fewer or more rows than it has.
    """
    ends = [
        (file, group, int(file.outline.rows[group]))
        for file, groups in parts
        if file.outline is not None
        for group in groups
    ]
    start, end, at = 0, 0, -1
    for batch in batches:
        while start >= end and at + 1 < len(ends):
            at += 1
            end += ends[at][2]
        if start + batch.num_rows > end:
            raise _miscounted(*ends[at])
        if batch.num_rows:
            yield batch, start
        start += batch.num_rows
    if start != sum(rows for _, _, rows in ends):
        raise _miscounted(*ends[at])


def _miscounted(file: FileResult, group: int, rows: int) -> DamagedFileError:
    text = f"row group {group} has {rows:,} rows by the footer, and its pages have others; write the file anew"
    return DamagedFileError(str(file.file), text)


def row_threads() -> int:
    """The threads that may read rows of local files side by side."""
    return int(min(pa.cpu_count(), _THREADS))


def with_numbers(batch: pa.RecordBatch, numbers: NDArray[np.int64] | None = None) -> pa.RecordBatch:
    """A batch with the column NUMBER, int64[rows of the batch], as its last; None: from 0 on.

    Those from 0 on are the same memory for all batches: as much memory as that of a column would be new for each.
    """
    kept = pa.array(numbers) if numbers is not None else _counting(max(17, batch.num_rows.bit_length()))
    return batch.append_column(pa.field(NUMBER, pa.int64()), kept.slice(0, batch.num_rows))


@lru_cache(2)
def _counting(bits: int) -> pa.Array:
    return pa.array(np.arange(1 << bits))


# --- times of 96 bits -----------------------------------------------------------------------------
#
# INT96 is a day and the nanoseconds of it. pyarrow makes 64 bits of nanoseconds of it, from 1677 to 2262; 9999-12-31
# becomes a day in 1816. A file's bounds of such columns mean nothing, so that the values alone show which these are.

_NANOSECONDS_END = (2**63 - 1) // 10**9  # seconds from 1970 on; as far before it


def check_times(parts: Sequence[FilePart], names: Collection[str] | None, hidden: Collection[str] = ()) -> None:
    """Raise RequestError for the first file with an INT96 that 64 bits of nanoseconds do not hold.

    names   the top-level columns that are read; None: all. Others cost nothing, INT96 is decoded once more, as seconds
    hidden  columns that folders' keys hide
    """
    for file, groups in parts:
        assert file.outline is not None
        leaves = [leaf for leaf in file.outline.leaves if leaf.physical == INT96 and leaf.path[0] not in hidden]
        stored = list(dict.fromkeys(leaf.path[0] for leaf in leaves if names is None or leaf.path[0] in names))
        if stored:
            _check_times_in(file, for_arrow(file), groups, stored)


def _check_times_in(file: FileResult, opened: Any, groups: Sequence[int], stored: list[str]) -> None:
    """The same of some columns in row groups of a file, or of a file of its pages."""
    one = fragment(opened, file.file, None, groups, file_format(coerce_int96_timestamp_unit="s"), file.size)
    try:
        for batch in one.to_batches(columns=stored):
            for name, column in zip(stored, batch.columns, strict=True):
                if any(map(_is_far, _seconds(column))):
                    reason = f"column {name} has INT96 times outside the years 1677 to 2262"
                    advice = "pyarrow reads these wrong; "
                    advice += f"read other columns, or write {name} anew as a timestamp in microseconds"
                    raise RequestError(f"{file.file}: {reason}; {advice}")
    except PYARROW_ERRORS as error:
        raise read_error(str(file.file), error) from error


def _seconds(column: pa.Array) -> Iterator[pa.Array]:
    """The times in seconds of a column, at any depth. Parquet has none of its own: they are of INT96."""
    return (part for part in leaf_arrays(column) if pa.types.is_timestamp(part.type) and part.type.unit == "s")


def _is_far(times: pa.Array) -> bool:
    bounds = pc.min_max(times.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is not None and (low <= -_NANOSECONDS_END or high >= _NANOSECONDS_END)


# --- columns of folders and of files --------------------------------------------------------------
#
#    day=7/a.parquet with a column day: 1, 1     its rows have 7, the folder's value; a note says that they differ


def differing_key(file: FileResult, keys: Sequence[Leaf]) -> str | None:
    """A note on the first key that a file has as a column too, whose bounds exclude the folder's value; None: none."""
    assert file.outline is not None
    own = {leaf.path: leaf for leaf in file.outline.leaves}
    texts = dict(file.file.partitions)
    for key in keys:
        if (leaf := own.get(key.path)) is None:
            continue
        text = texts.get(key.path[0])
        if text is not None and not is_utf8(text):
            continue
        value = int(text) if text is not None and key.physical == INT32 and leaf.physical != BYTE_ARRAY else text
        part = IsNull(key.path) if value is None else Compare(key.path, "=", value)
        bound = bind(part, Schema(file.outline.leaves, strict=False))
        question = Question(bound, Options(use_filters=False), (), literal_outcome(bound, "ieee"))
        found = decide(_no_filter, file.outline, question)
        if (~found.open & (file.outline.rows > 0)).any():
            folder = f"{key.name}={HIVE_NULL if text is None else text}"
            return f"{file.file}: column {key.name} has other values than its folder, {folder}; rows have the folder's"
    return None


def _no_filter(*_: object) -> Any:
    raise AssertionError("bounds decide alone")


# --- files without a log --------------------------------------------------------------------------


class FileRows:
    """Rows of files without a log, which all have the columns of the first file.

    keys  the columns of folders' names
    """

    def __init__(
        self,
        files: Sequence[DataFile],
        keys: tuple[Leaf, ...],
        filesystem: Any,
        searched: Callable[[], Sequence[FileResult]],
        opened: Mapping[int, OpenFile] = MappingProxyType({}),
    ) -> None:
        """Make them.

        searched  the files of which rows may be read, which are searched then
        opened    those that a search has kept open, by id(DataFile)
        """
        self._files, self._keys, self.opened = files, keys, opened
        self.threads = row_threads()
        self._searched = searched
        self._results: dict[int, FileResult] = {}  # of files that were searched, by id(DataFile)
        self.pages = PagesRead()
        self._noted = False
        self._wider: dict[str, DataFile] = {}  # columns whose type is wider than the first file's -> the file
        self.filesystem = arrow_of(filesystem) or pyarrow.fs.LocalFileSystem()

    @cached_property
    def schema(self) -> pa.Schema:
        """As SourceRows has it: that of the first file, with the wider types of others; then the folders' keys."""
        self._results = {id(one.file): one for one in self._searched()}
        schema = self.first_schema
        for found, names in self._others():
            for field in self._schema_of(found):
                if field.name not in names or (at := schema.get_field_index(field.name)) < 0:
                    continue
                kind = wider(schema.field(at).type, field.type)
                if kind != schema.field(at).type:
                    self._wider[field.name] = found
                    schema = schema.set(at, schema.field(at).with_type(kind))
        return schema

    @cached_property
    def first_schema(self) -> pa.Schema:
        """As SourceRows has it: the first file's as pyarrow has it, then the folders' keys."""
        return with_partitions(self._schema_of(self._files[0]), self._keys)

    def _schema_of(self, found: DataFile) -> pa.Schema:
        result = self._results.get(id(found))
        try:
            with OpenFile(found) if result is None else opened_as_searched(result, self.opened) as source:
                if result is None:
                    source.outline()  # what is wrong with the file is said by us; an append cut short is passed over
                with source.arrow_file() as file:
                    return pq.read_schema(file)
        except PYARROW_ERRORS as error:
            raise read_error(str(found), error) from error

    def _others(self) -> Iterator[tuple[DataFile, set[str]]]:
        """A file of each schema that differs from the first's, and the columns of which both have other types."""
        first = None
        hidden = {key.path[0] for key in self._keys}
        by_leaves: dict[int, FileResult] = {}
        for one in self._searched():
            assert one.outline is not None
            by_leaves.setdefault(id(one.outline.leaves), one)  # files of one schema share the tuple
        for one in by_leaves.values() if len(by_leaves) > 1 else ():
            assert one.outline is not None
            leaves = one.outline.leaves
            kinds: dict[str, list[Leaf]] = {}
            for leaf in leaves:
                kinds.setdefault(leaf.path[0], []).append(replace(leaf, index=0, path=(), element=0, optional=True))
            if first is None:
                first = kinds
                continue
            # pyarrow makes nanoseconds of INT96, whatever the writer's unit was: a reason for no other type.
            far = {leaf.path[0] for leaf in leaves if leaf.physical == INT96}
            names = {name for name in kinds if name in first and kinds[name] != first[name]} - hidden - far
            if names:
                yield one.file, names

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As SourceRows has it."""
        for name in [one for one in batch.schema.names if one in self._wider]:
            at, field = batch.schema.get_field_index(name), self.first_schema.field(name)
            column = batch.column(at)
            try:
                own = column.cast(field.type)
                back = own.cast(column.type)
                # A cast of floats rounds without a word. NaN alone is not equal to itself.
                if not back.equals(column) and repr(back.to_pylist()) != repr(column.to_pylist()):
                    raise pa.ArrowInvalid("a value would be rounded")
            except pa.ArrowException as error:
                raise self._misfit(self._wider[name], field, column.type, error) from error
            batch = batch.set_column(at, field, own)
        return batch

    def misfit(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> RequestError | None:
        """As SourceRows has it."""
        wanted = self._top(names)
        for part in parts:
            one = self.fragment(part, self.schema)
            with suppress(*PYARROW_ERRORS):  # a file that is damaged
                own = one.physical_schema
                for field in self.schema:
                    at = own.get_field_index(field.name)
                    if at < 0 or own.field(at).type == field.type or (wanted is not None and field.name not in wanted):
                        continue
                    for _ in one.to_batches(columns=[field.name]):  # it has the values of its own type
                        pass
                    try:
                        for _ in one.to_batches(pa.schema([field]), columns=[field.name]):
                            pass
                    except pa.ArrowInvalid as error:
                        return self._misfit(part[0].file, field, own.field(at).type, error)
        return None

    def _misfit(self, found: DataFile, field: pa.Field, kind: pa.DataType, error: Exception) -> RequestError:
        reason = f"column {field.name} is {kind}, and {field.type} in {self._files[0]} and the rows"
        advice = f"read other columns, or the files of each type by themselves, or write {field.name} anew in one type"
        return RequestError(f"{found}: {reason}: {first_line(error)}; {advice}")

    def dataset(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> ds.FileSystemDataset:
        """A pyarrow Dataset of these row groups, of which these columns, or fields of structs, are read (None: all)."""
        self._check(parts, self._top(names))
        fragments = [self.fragment(part, self.schema) for part in parts]
        return ds.FileSystemDataset(fragments, self.schema, file_format(), self.filesystem)

    def batches(
        self,
        parts: Sequence[FilePart],
        names: Sequence[str] | None,
        batch_rows: int | None,
        meanwhile: Meanwhile = nothing,
    ) -> Generator[pa.RecordBatch, None, None]:
        """As SourceRows has it; meanwhile: as `numbered` has it."""
        options: dict[str, Any] = {"batch_size": batch_rows, "batch_readahead": 2, "fragment_readahead": 1}
        if batch_rows is None:
            options = {}
        wanted = for_scanner(None if names is None else list(names), self.schema)
        top = self._top(names)
        with closing(Fetcher(self.opened).scans(parts, top)) as scans:
            for some, files in scans:
                self._check(some, top)
                scanner = partial(self._scanner, some, files, columns=wanted, **options)
                with errors_of(files), closing(batches_of(scanner, files, meanwhile)) as batches:
                    yield from batches

    def numbered(
        self, parts: Sequence[FilePart], names: Sequence[str], batch_rows: int | None, meanwhile: Meanwhile = nothing
    ) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """As SourceRows has it."""
        with closing(self.batches(parts, names, batch_rows, meanwhile)) as batches:
            for batch, start in counted(batches, parts):
                yield with_numbers(batch), start

    def projected(self, names: Sequence[str]) -> pa.Schema:
        """As SourceRows has it."""
        empty = ds.FileSystemDataset([], self.schema, file_format(), self.filesystem)
        return empty.scanner(columns=for_scanner(names, self.schema)).projected_schema

    def stored(self, file: FileResult, names: Sequence[str]) -> set[str]:
        """As SourceRows has it."""
        return {path_of(name, self.schema)[0] for name in names} - {key.path[0] for key in self._keys}

    def _top(self, names: Sequence[str] | None) -> set[str] | None:
        return None if names is None else {path_of(name, self.schema)[0] for name in names}

    def _scanner(self, parts: Sequence[FilePart], files: Sequence[FetchedFile], **options: Any) -> ds.Scanner:
        fragments = [
            self.fragment(part, self.schema, opened=None if file is None else arrow_file(file))
            for part, file in zip_longest(parts, files)
        ]
        dataset = ds.FileSystemDataset(fragments, self.schema, file_format(), self.filesystem)
        return dataset.scanner(**options, **scan_options(files))

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """All of them: nothing is deleted."""
        assert file.outline is not None
        return int(file.outline.rows[list(groups)].sum())

    def check_whole(self, parts: Sequence[FilePart]) -> None:
        """As SourceRows has it."""
        self._check(parts, None)

    def _check(self, parts: Sequence[FilePart], names: Collection[str] | None) -> None:
        """Raise as check_times, for what is read of the files; warn once of one whose folder says something else."""
        hidden = {key.path[0] for key in self._keys}
        check_times(parts, names, hidden)
        if self._noted or not (hidden if names is None else hidden.intersection(names)):
            return
        note = next((note for file, _ in parts if (note := differing_key(file, self._keys)) is not None), None)
        if note is not None:
            self._noted = True
            logger.warning(note)
            warnings.warn(note, FilterWarning, stacklevel=2)

    def same_names(self, file: FileResult) -> bool:
        """True: columns have the files' own names."""
        return True

    def constants(self, file: FileResult) -> pc.Expression | None:
        """The values of folders' keys."""
        return partition_expression(self._keys, file.file.partitions)

    def fragment(
        self, part: FilePart, schema: pa.Schema, filtered: bool = False, opened: Any = None
    ) -> ds.ParquetFileFragment:
        """As SourceRows has it; opened: as `fragment_of` has it."""
        return fragment_of(part, schema, self.constants(part[0]), False, filtered, opened)

    def at(self, part: FilePart, names: Sequence[str], wanted: RowSelection) -> Mapping[str, pa.ChunkedArray]:
        """As SourceRows has it."""
        hidden = {key.path[0] for key in self._keys}
        assert part[0].outline is not None
        leaves = part[0].outline.leaves
        stored, far = {leaf.path[0] for leaf in leaves}, {leaf.path[0] for leaf in leaves if leaf.physical == INT96}
        files = []

        def read(data: pa.Buffer, own: list[str], as_stored: bool) -> list[pa.ChunkedArray]:
            if times := [name for name in own if name in far]:
                _check_times_in(part[0], pa.BufferReader(data), [0], times)
            files.append(one := self.fragment((part[0], [0]), self.schema, opened=pa.BufferReader(data)))
            schema = one.physical_schema if as_stored else pa.schema([self.schema.field(name) for name in own])
            columns: list[pa.ChunkedArray] = one.to_table(schema=schema, columns=own).columns
            return columns

        own = [name for name in names if name not in hidden and name in self.schema.names]
        found = columns_at(part, own, wanted, read, self.pages, self.opened)
        found = {name: column for name, column in found.items() if column.type == self.schema.field(name).type}
        constant = [name for name in names if name in hidden or (name in self.schema.names and name not in stored)]
        if found and constant:  # they have one value in all rows, those of any pages
            schema = pa.schema([self.schema.field(name) for name in constant])
            columns = files[0].to_table(schema=schema, columns=constant).slice(0, wanted.count).columns
            found |= dict(zip(constant, columns, strict=True))
        return found
