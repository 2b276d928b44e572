"""Rows of a table's files: of the row groups that are left, under the table's schema, without those that are deleted.

row groups 0, 2 of a file     rows 0 .. 99, 200 .. 299 of it
deleted: 7, 150, 205          the 7th and the 105th row that are read go
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import SchemaElement
from parquet_bloom.errors import RequestError
from parquet_bloom.format.arrow_types import are_alike, map_nested
from parquet_bloom.format.literals import decimal_casts
from parquet_bloom.search.layouts import chosen, format_for, fragment, path_of
from parquet_bloom.search.search import FileResult
from parquet_bloom.source.columns import Match, matches, schema_of
from parquet_bloom.source.snapshot import Field, Snapshot, TableFile
from parquet_bloom.storage.workers import chained

# --- projection -----------------------------------------------------------------------------------
#
# Rows of a file as rows of its table: columns by their ids or physical names, promoted types, constants, defaults.
#
# file, old schema                 table
# col-7f: int32          ->        id: int64                     found by its field id, cast
# place: {x, y}          ->        place: {longitude, y, z}      renamed, z added
#                       ->        day: date                     a partition value


class Projection:
    """How rows of one file become rows of its table.

    Raises TableFormatError where it cannot be told which column of the file is meant.
    """

    def __init__(self, snapshot: Snapshot, file: TableFile, schema: Sequence[SchemaElement]) -> None:
        found = matches(snapshot.fields, snapshot.by_id, schema, file, snapshot.logged)
        self._logged = snapshot.logged
        self._constants = file.constants
        self._matches = {field.name: match for field, match in zip(snapshot.fields, found, strict=True)}
        self._fields = {field.name: field for field in snapshot.fields}

    def stored(self, names: Sequence[str]) -> list[str]:
        """The file's own names of the columns that these of the table are made of, each once."""
        return list(dict.fromkeys(m.name for m in map(self._matches.__getitem__, names) if m.at is not None))

    def batch(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The columns of the table with these names, of rows of the file.

        batch  with the columns that `stored` names, in that order
        Raises pyarrow's errors for a value that has no place in the table's type.
        """
        at = {name: i for i, name in enumerate(self.stored(names))}
        columns = []
        for name in names:
            match = self._matches[name]
            if match.at is None:
                columns.append(self._absent(self._fields[name], batch.num_rows))
            else:
                columns.append(_values(match, batch.column(at[match.name])))
        schema = pa.schema([pa.field(name, self._fields[name].type, self._fields[name].nullable) for name in names])
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def same_names(self) -> bool:
        """Whether each column of the table has its name in the file, and no other column has."""
        return all(match.same_names for match in self._matches.values())

    def absent(self) -> Mapping[str, pa.Scalar]:
        """Top-level columns that are not read from the file, with their value; NULL only where the file may have it."""
        lacking = [field for name, field in self._fields.items() if self._matches[name].at is None]
        values = {field.name: self._constants.get(field.name, field.default) for field in lacking}
        told = {name: value for name, value in values.items() if value is not None}
        return {name: value for name, value in told.items() if value.is_valid or name in self._logged}

    def lacks_nested_default(self) -> str | None:
        """The name of a field of a struct that the file lacks, and whose value in its rows is a default; None: none."""
        found = (_defaulted(match, match.field.name) for match in self._matches.values())
        return next((name for name in found if name is not None), None)

    def _absent(self, field: Field, n: int) -> pa.Array:
        return repeated(self._constants.get(field.name, field.default), field.type, n)


def _defaulted(match: Match, name: str) -> str | None:
    if match.at is None:
        return None
    for child in match.children:
        below = f"{name}.{child.field.name}"
        default = child.field.default
        if child.at is None and default is not None and default.is_valid:
            return below
        if (found := _defaulted(child, below)) is not None:
            return found
    return None


def repeated(value: pa.Scalar | None, kind: pa.DataType, n: int) -> pa.Array:
    """One value in n rows; None: NULL."""
    if value is None or not value.is_valid:
        return pa.nulls(n, kind)
    if isinstance(kind, pa.BaseExtensionType):
        inner = value.value if isinstance(value, pa.ExtensionScalar) else value
        return pa.ExtensionArray.from_storage(kind, repeated(inner, kind.storage_type, n))
    return pa.repeat(value if value.type == kind else value.cast(kind), n)


def _values(match: Match, array: pa.Array) -> pa.Array:
    """The values of a field, of those that the file has of it."""
    kind = match.field.type
    if not are_alike(kind, array.type):
        return _cast(array, kind)

    def inside(stored: Sequence[pa.Array]) -> list[pa.Array]:
        return [
            repeated(child.field.default, child.field.type, len(array)) if at is None else _values(child, stored[at])
            for at, child in ((child.at, child) for child in match.children)
        ]

    return map_nested(array, kind, inside)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        for step in decimal_casts(kind):
            array = array.cast(step)
        return array
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return array.cast(kind, safe=False)  # to the nearest; a safe cast refuses what no float is
    return array.cast(kind)


# --- table rows -----------------------------------------------------------------------------------

FilePart = tuple[FileResult, list[int]]  # a file, and row groups of it
_FILES, _REMOTE_FILES, _BATCHES = 2, 4, 2  # that are read side by side, and batches of each that wait
Opened = Callable[[FileResult], Any]  # a file -> its path for pyarrow, or an open file


class TableRows:
    """The rows of files of one snapshot.

    opened  gives what pyarrow reads a file by
    """

    def __init__(self, snapshot: Snapshot, opened: Opened) -> None:
        self._snapshot = snapshot
        self._opened = opened
        self._deleted: dict[int, NDArray[np.int64]] = {}  # by id(file): a path may be there twice
        self.schema = schema_of(snapshot.fields)

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Living rows, file by file and in their order there.

        names  of columns, or of fields of structs, place.x, each once; these are the batches' names. None: all columns
        """
        wanted = self.schema.names if names is None else list(names)
        top = list(dict.fromkeys(path_of(name, self.schema)[0] for name in wanted))
        with closing(self._of_parts(parts, top, batch_rows)) as batches:
            for batch in batches:
                yield batch if wanted == top else chosen(batch, wanted)

    def living(self, file: FileResult, groups: Sequence[int]) -> int:
        """How many rows of these row groups are not deleted."""
        assert file.outline is not None
        return int(file.outline.rows[list(groups)].sum()) - len(self._deleted_among(file, groups))

    def check_whole(self, files: Sequence[FileResult]) -> None:
        """Raise RequestError for the first file whose rows pyarrow alone would not read as the table has them."""
        for file in files:
            assert isinstance(file.file, TableFile)
            if file.file.deletes is not None:
                reason, advice = "has row-level deletes", "read_batches and read_table apply them"
            elif not self.same_names(file):
                reason, advice = "has columns under other names", "read_batches maps them"
            elif (name := self._projection(file).lacks_nested_default()) is not None:
                reason, advice = f"lacks {name}, which has a default", "read_batches and read_table give it"
            else:
                continue
            raise RequestError(f"{file.file} {reason}, which a data set of files cannot tell; {advice}")

    def same_names(self, file: FileResult) -> bool:
        """Whether a file calls its columns as the table does."""
        return self._projection(file).same_names()

    def constants(self, file: FileResult) -> pc.Expression | None:
        """What is true of every row of a file: values of columns that are not read from it, as pyarrow sees to."""
        expression = None
        for name, value in self._projection(file).absent().items():
            one = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            expression = one if expression is None else expression & one
        return expression

    def _of_parts(self, parts: Sequence[FilePart], names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        """Files one after the other; the next ones are on their way."""
        if len(parts) == 1:
            return self._file(parts[0], names, n)
        remote = bool(parts) and not parts[0][0].file.is_local
        return chained(partial(self._file, names=names, n=n), parts, _REMOTE_FILES if remote else _FILES, _BATCHES)

    # --- one file ---------------------------------------------------------------------------------

    def _file(self, part: FilePart, names: list[str], n: int) -> Generator[pa.RecordBatch, None, None]:
        file, groups = part
        projection = self._projection(file)
        stored = projection.stored(names)
        assert file.outline is not None
        form = format_for(file.outline, self.schema, of_table=True, filtered=False)
        one = fragment(self._opened(file), file.file, None, groups, form)
        columns: Any = {str(i): pc.field(name) for i, name in enumerate(stored)} or []
        scanner = one.scanner(
            schema=one.physical_schema, columns=columns, batch_size=n, batch_readahead=2, fragment_readahead=1
        )
        deleted = self._deleted_among(file, groups)
        start = 0
        for batch in scanner.to_batches():
            stop = start + batch.num_rows
            gone = deleted[slice(*np.searchsorted(deleted, (start, stop)))] - start
            start = stop
            if len(gone) < batch.num_rows:
                yield _without(projection.batch(batch, names), gone)

    def _projection(self, file: FileResult) -> Projection:
        assert isinstance(file.file, TableFile)
        assert file.outline is not None
        return Projection(self._snapshot, file.file, file.outline.metadata.schema)

    def _deleted_among(self, file: FileResult, groups: Sequence[int]) -> NDArray[np.int64]:
        """Deleted rows, counted among the rows of these row groups as if there were no others: int64[n], sorted."""
        assert isinstance(file.file, TableFile)
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
