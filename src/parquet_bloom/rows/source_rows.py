"""Rows of a source's files: of the remaining row groups, as the source has them.

    files without a log   one pyarrow Dataset; columns of the first file, then the folders' keys
    a table               file by file, under the table's schema, without rows that are deleted

row groups 0, 2 of a file     rows 0 .. 99, 200 .. 299 of it
deleted: 7, 150, 205          the 7th and the 105th row that are read go
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
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

from parquet_bloom.errors import FilterWarning, RequestError, first_line
from parquet_bloom.format.arrow_types import fields_of, wider
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT96, Leaf
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.tree import Compare, IsNull
from parquet_bloom.rows.fetched import FetchedFile, Fetcher, FilePart, arrow_file, batches_of, errors_of, scan_options
from parquet_bloom.rows.layouts import (
    file_format,
    for_scanner,
    format_for,
    fragment,
    partition_expression,
    path_of,
    select_columns,
    with_partitions,
)
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, for_arrow, is_utf8, read_error
from parquet_bloom.search.evidence import Question, decide, literal_outcome
from parquet_bloom.search.options import Options
from parquet_bloom.search.results import FileResult
from parquet_bloom.source.columns import schema_of
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.view import FileView, TableNames
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import HIVE_NULL, DataFile
from parquet_bloom.storage.workers import chain_results

logger = logging.getLogger("parquet_bloom")

_FILES, _REMOTE_FILES, _BATCHES = 2, 16, 2  # that are read side by side, and batches of each that wait


class SourceRows(Protocol):
    """The rows of files of one snapshot."""

    @property
    def schema(self) -> pa.Schema:
        """Of all rows. Raises FileError and its kinds."""

    @property
    def first_schema(self) -> pa.Schema:
        """Of the first file alone, or of the table. Raises as `schema`."""

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the types of `first_schema`. Raises RequestError for a value that has no place there."""

    def misfit(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> RequestError | None:
        """The error of the first file with a value that has no place in the type of its column; None: there is none."""

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Living rows, file by file and in their order there.

        names  of columns, or of fields of structs, place.x, each once; these are the batches' names. None: all columns
        """

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


def _fragment(
    part: FilePart,
    schema: pa.Schema,
    constants: pc.Expression | None,
    of_table: bool,
    filtered: bool,
    fetched: FetchedFile | None,
) -> ds.ParquetFileFragment:
    """The fragment of some row groups; fetched: where the file's bytes are in memory."""
    file, groups = part
    assert file.outline is not None
    form = format_for(file.outline, schema, of_table=of_table, filtered=filtered)
    path = for_arrow(file) if fetched is None else arrow_file(fetched)
    return fragment(path, file.file, constants, groups, form, file.size)


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
        if not stored:
            continue
        one = fragment(
            for_arrow(file), file.file, None, groups, file_format(coerce_int96_timestamp_unit="s"), file.size
        )
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
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        yield column
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _seconds(child)
    elif pa.types.is_map(kind):
        yield from _seconds(column.keys)
        yield from _seconds(column.items)
    elif fields_of(kind):
        yield from _seconds(column.flatten())


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
        """searched: the files of which rows may be read; opened: those that a search has kept open, by id(DataFile)."""
        self._files, self._keys, self._opened, self._searched = files, keys, opened, searched
        self._noted = False
        self._wider: dict[str, DataFile] = {}  # columns whose type is wider than the first file's -> the file
        self.filesystem = filesystem or pyarrow.fs.LocalFileSystem()

    @cached_property
    def schema(self) -> pa.Schema:
        """As SourceRows has it: that of the first file, with the wider types of others; then the folders' keys."""
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
        try:
            kept = self._opened.get(id(found))
            with OpenFile(found) if kept is None else nullcontext(kept) as source:
                source.outline()  # what is wrong with the file is said by us, not by pyarrow
                with source.arrow_file() as file:
                    return pq.read_schema(file)
        except PYARROW_ERRORS as error:
            raise read_error(str(found), error) from error

    def _others(self) -> Iterator[tuple[DataFile, set[str]]]:
        """A file of each schema that differs from the first's, and the columns of which both have other types."""
        first, seen = None, set()
        hidden = {key.path[0] for key in self._keys}
        for one in self._searched():
            assert one.outline is not None
            leaves = one.outline.leaves
            if id(leaves) in seen:  # files of one schema share the tuple
                continue
            seen.add(id(leaves))
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
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """As SourceRows has it."""
        options: dict[str, Any] = {"batch_size": batch_rows, "batch_readahead": 2, "fragment_readahead": 1}
        wanted = for_scanner(None if names is None else list(names), self.schema)
        top = self._top(names)
        with closing(Fetcher(self._opened).scans(parts, top)) as scans:
            for some, files in scans:
                self._check(some, top)
                scanner = partial(self._scanner, some, files, columns=wanted, **options)
                with errors_of(files), closing(batches_of(scanner, files)) as batches:
                    yield from batches

    def _top(self, names: Sequence[str] | None) -> set[str] | None:
        return None if names is None else {path_of(name, self.schema)[0] for name in names}

    def _scanner(self, parts: Sequence[FilePart], files: Sequence[FetchedFile], **options: Any) -> ds.Scanner:
        fragments = [self.fragment(part, self.schema, file=file) for part, file in zip_longest(parts, files)]
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
        self, part: FilePart, schema: pa.Schema, filtered: bool = False, file: FetchedFile | None = None
    ) -> ds.ParquetFileFragment:
        """As SourceRows has it; file: where its bytes are in memory."""
        return _fragment(part, schema, self.constants(part[0]), False, filtered, file)


class TableRows:
    """Rows of a table's files."""

    def __init__(self, snapshot: Snapshot, opened: Mapping[int, OpenFile] = MappingProxyType({})) -> None:
        """opened: files that a search has kept open, by id(DataFile)."""
        self._names = TableNames(snapshot)
        self._fetcher = Fetcher(opened)
        self._deleted: dict[int, NDArray[np.int64]] = {}  # by id(file): a path may be there twice
        self.schema = self.first_schema = schema_of(snapshot.fields)

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As it is: rows have the table's types."""
        return batch

    def misfit(self, parts: Sequence[FilePart], names: Sequence[str] | None) -> RequestError | None:
        """None: rows of files are cast to the table's types one by one."""
        return None

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """As SourceRows has it."""
        wanted = self.schema.names if names is None else list(names)
        top = list(dict.fromkeys(path_of(name, self.schema)[0] for name in wanted))
        with closing(self._of_parts(parts, top, batch_rows)) as batches:
            for batch in batches:
                yield batch if wanted == top else select_columns(batch, wanted)

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """As SourceRows has it."""
        assert file.outline is not None
        return int(file.outline.rows[list(groups)].sum()) - len(self._deleted_among(file, groups))

    def check_whole(self, parts: Sequence[FilePart]) -> None:
        """As SourceRows has it."""
        for file, _ in parts:
            if file.file.deletes is not None:
                reason, advice = "has row-level deletes", "read_batches and read_table apply them"
            elif not self.same_names(file):
                reason, advice = "has columns under other names", "read_batches maps them"
            elif (name := self._view(file).lacks_nested_default()) is not None:
                reason, advice = f"lacks {name}, which has a default", "read_batches and read_table give it"
            else:
                continue
            raise RequestError(f"{file.file} {reason}, which a data set of files does not know; {advice}")

    def same_names(self, file: FileResult) -> bool:
        """As SourceRows has it."""
        return self._view(file).same_names()

    def constants(self, file: FileResult) -> pc.Expression | None:
        """As SourceRows has it."""
        expression = None
        for name, value in self._view(file).absent().items():
            one = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            expression = one if expression is None else expression & one
        return expression

    def fragment(
        self, part: FilePart, schema: pa.Schema, filtered: bool = False, file: FetchedFile | None = None
    ) -> ds.ParquetFileFragment:
        """As SourceRows has it; file: where its bytes are in memory."""
        return _fragment(part, schema, self.constants(part[0]) if filtered else None, True, filtered, file)

    def _of_parts(self, parts: Sequence[FilePart], names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        """Files one after the other; the next ones are read ahead."""
        if len(parts) == 1:
            return self._file(parts[0], names, n)
        remote = bool(parts) and not parts[0][0].file.is_local
        return chain_results(
            partial(self._file, names=names, n=n), parts, _REMOTE_FILES if remote else _FILES, _BATCHES
        )

    # --- one file ---------------------------------------------------------------------------------

    def _file(self, part: FilePart, names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        view = self._view(part[0])
        stored = view.stored_names(names)
        with closing(self._fetcher.scans([part], set(stored))) as scans:
            for _, files in scans:
                with errors_of(files), closing(self._scanned(part, files, view, names, n)) as batches:
                    yield from batches

    def _scanned(
        self, part: FilePart, files: Sequence[FetchedFile], view: FileView, names: list[str], n: int
    ) -> Generator[pa.RecordBatch, None, None]:
        file, groups = part
        stored = view.stored_names(names)
        columns: Any = {str(i): pc.field(name) for i, name in enumerate(stored)} or []

        def scanner() -> ds.Scanner:
            one = self.fragment(part, self.schema, file=next(iter(files), None))
            return one.scanner(
                schema=one.physical_schema, columns=columns, batch_size=n, batch_readahead=2, fragment_readahead=1,
                **scan_options(files),
            )  # fmt: skip

        deleted = self._deleted_among(file, groups)
        start = 0
        with closing(batches_of(scanner, files)) as batches:
            for batch in batches:
                stop = start + batch.num_rows
                gone = deleted[slice(*np.searchsorted(deleted, (start, stop)))] - start
                start = stop
                if len(gone) < batch.num_rows:
                    yield _without(view.batch(batch, names), gone)

    def _view(self, file: FileResult) -> FileView:
        assert file.outline is not None
        return self._names.view(file.file, file.outline.metadata.schema)

    def _deleted_among(self, file: FileResult, groups: Sequence[int]) -> NDArray[np.int64]:
        """Deleted rows, counted among the rows of these row groups as if there were no others: int64[n], sorted."""
        assert file.outline is not None
        if file.file.deletes is None:
            return np.empty(0, np.int64)
        if id(file.file) not in self._deleted:
            self._deleted[id(file.file)] = file.file.deletes.positions()
        positions = self._deleted[id(file.file)]
        rows = file.outline.rows
        ends = np.cumsum(rows)
        found, before = [], 0
        for group in groups:
            first = int(ends[group] - rows[group])
            inside = positions[slice(*np.searchsorted(positions, (first, int(ends[group]))))]
            found.append(inside - first + before)
            before += int(rows[group])
        return np.concatenate(found) if found else np.empty(0, np.int64)


def _without(batch: pa.RecordBatch, gone: NDArray[np.int64]) -> pa.RecordBatch:
    if not len(gone):
        return batch
    living = np.ones(batch.num_rows, bool)
    living[gone] = False
    return batch.take(pa.array(np.flatnonzero(living)))
