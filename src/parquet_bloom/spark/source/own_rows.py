"""Rows of one open file under its own names and types, as rows.matching reads them.

Spark's data source finds columns by their names in any case, and INT96 may lie in any year.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Predicate
from parquet_bloom.rows.fetched import FilePart, Meanwhile, nothing
from parquet_bloom.rows.matching import Reading
from parquet_bloom.rows.pages import RowSelection, rows_by_pages, taken_rows
from parquet_bloom.rows.pages_file import PagesRead, columns_at
from parquet_bloom.rows.source_rows import RowGroups, with_numbers
from parquet_bloom.search.log import FileResult
from parquet_bloom.spark.source.types import INT96_UNIT
from parquet_bloom.storage.open_file import OpenFile

AsSpark = Callable[[pa.RecordBatch, pa.Field], Any]


class OwnRows:
    """Rows of one file: RowGroups.

    file     pyarrow's reader of it
    """

    def __init__(self, source: OpenFile, searched: FileResult, file: pq.ParquetFile) -> None:
        self._file = file
        self.schema = file.schema_arrow
        self.opened: Mapping[int, OpenFile] = {id(searched.file): source}
        self.pages, self.threads = PagesRead(), 1  # a processor has a task of its own

    def batches(
        self, parts: Sequence[FilePart], names: Sequence[str] | None, batch_rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """As RowGroups has it; no batch has rows of two row groups."""
        for group in (group for _, groups in parts for group in groups):
            for batch in self._file.iter_batches(batch_rows or 1 << 16, row_groups=[group], columns=names):
                yield batch.select(list(names)) if names else batch

    def numbered(
        self, parts: Sequence[FilePart], names: Sequence[str], batch_rows: int | None, meanwhile: Meanwhile = nothing
    ) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """As RowGroups has it; nothing is done meanwhile: this thread decodes."""
        start = 0
        for batch in self.batches(parts, names, batch_rows):
            yield with_numbers(batch), start
            start += batch.num_rows

    def projected(self, names: Sequence[str]) -> pa.Schema:
        """As RowGroups has it."""
        return pa.schema([self.schema.field(name) for name in names])

    def stored(self, file: FileResult, names: Sequence[str]) -> set[str]:
        """As RowGroups has it."""
        return set(names)

    def at(self, part: FilePart, names: Sequence[str], wanted: RowSelection) -> Mapping[str, pa.ChunkedArray]:
        """As RowGroups has it."""

        def read(data: pa.Buffer, own: list[str], as_stored: bool) -> Any:
            file = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit=INT96_UNIT)
            return file.read(own, use_threads=False).select(own).columns

        return columns_at(part, names, wanted, read, self.pages, self.opened)


# --- rows that match ------------------------------------------------------------------------------
#
# The predicate's columns first, of the others only what holds a row that matches: rows.matching, whose filter is here
# one of Spark's values.


class _SparkFilter:
    """Filters rows as they are stored by a predicate over Spark's values: a Filter of rows.matching.

    columns   the stored columns that it needs
    as_spark  (batch, field) -> that column of Spark's, of a batch of stored ones
    """

    def __init__(self, predicate: Predicate, wide: pa.Schema, own: Mapping[str, str | None], as_spark: AsSpark) -> None:
        """own: of Spark's column, the name of the stored one; None: it has one value in all rows."""
        self._filter, self._as_spark = row_filter(predicate, wide, nan="largest"), as_spark
        self._fields = [wide.field(name) for name in self._filter.columns]
        self.columns = [name for field in self._fields if (name := own[field.name]) is not None]

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that give TRUE."""
        arrays = [self._as_spark(batch, field) for field in self._fields]
        # A batch of no arrays has no rows: a predicate without a column, as NOT FALSE, looks at the stored batch.
        seen = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(self._fields)) if arrays else batch
        mask = self._filter.mask(seen)
        return taken_rows(batch, np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False)))


def matching(
    rows: RowGroups,
    part: FilePart,
    names: Sequence[str],
    predicate: Predicate,
    wide: pa.Schema,
    own: Mapping[str, str | None],
    as_spark: AsSpark,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """The stored rows of a part that match; arguments as _SparkFilter has them."""

    def chosen(file: FileResult, groups: Sequence[int]) -> Mapping[int, RowSelection]:
        return {} if file.file.deletes is not None else rows_by_pages(file, groups, "largest", rows.opened)

    reading = Reading(rows, names, batch_rows, chosen)
    if predicate == And(()):
        return reading.candidates([part])
    return reading.matching([part], _SparkFilter(predicate, wide, own, as_spark))
