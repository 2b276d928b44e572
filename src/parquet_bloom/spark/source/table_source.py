"""The data source over a table: Spark's schema is the table's, a partition is files with their deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from parquet_bloom.errors import UnknownColumnError
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Predicate, leaves_of
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import CallSource
from parquet_bloom.spark.named_tables import live_files
from parquet_bloom.spark.source.table_rows import RowsAsked, TablePlan, plan_table, schema_in_spark
from parquet_bloom.spark.source.types import arrow_schema, spark_schema


@dataclass(frozen=True)
class TableRequest:
    """What the options of a read say, where a table is named.

    source      names one table
    predicate, columns, partitions  as FileRequest has them
    """

    source: CallSource
    predicate: Predicate | None
    columns: tuple[str, ...] | None
    partitions: int | None

    def snapshot(self) -> Snapshot:
        """Read the log."""
        return live_files(self.source)

    def schema(self) -> StructType:
        """Of the table, at the version that was named or the latest. Checks the predicate."""
        snapshot = self.snapshot()
        if self.predicate is not None:
            row_filter(self.predicate, schema_in_spark(snapshot, columns_of(self.predicate)), nan="largest")
        return spark_schema(schema_in_spark(snapshot, self.columns))


class TableScan(DataSourceReader):
    """Reads the living rows of `where`; of one snapshot, which is read when Spark plans the read."""

    def __init__(self, request: TableRequest, schema: StructType) -> None:
        snapshot = request.snapshot()
        rows = arrow_schema(schema)
        predicate = And(()) if request.predicate is None else request.predicate
        more = [name for name in columns_of(predicate) if name not in rows.names]
        beside = schema_in_spark(snapshot, more) if more else pa.schema([])
        self._plan: TablePlan | None = plan_table(snapshot, RowsAsked(rows, beside, predicate), request.partitions)
        self.reader = self._plan.reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}  # executors get a partition each, not all of them

    def partitions(self) -> Sequence[InputPartition]:
        """A partition a task."""
        assert self._plan is not None
        return [InputPartition(unit) for unit in self._plan.units or [b""]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task, on an executor."""
        if partition.value:
            yield from self.reader.rows(partition.value)


def columns_of(predicate: Predicate) -> list[str]:
    """The top-level columns of a predicate, each once. Raises UnknownColumnError for one without a name."""
    names: list[str] = []
    for leaf in leaves_of(predicate):
        path = getattr(leaf, "path", ())
        if not path:
            raise UnknownColumnError(f"rows cannot be filtered by {leaf}")
        names.append(path[0])
    return list(dict.fromkeys(names))
