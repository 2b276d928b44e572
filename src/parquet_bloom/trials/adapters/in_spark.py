"""Spark, by its DataFrames with typed literals: one local session for all questions."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.trials.adapters.adapter import Column, QueryStats

_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "halffloat": "float",
    "date32[day]": "date",
}


class Spark:
    """A local session of its own, of two threads, in UTC."""

    @cached_property
    def _session(self) -> Any:
        builder = SparkSession.builder.appName("parquet-bloom engines").master("local[2]")
        for name, value in (("spark.ui.enabled", "false"), ("spark.sql.session.timeZone", "UTC")):
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        atexit.register(session.stop)
        return session

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        session = self._session
        name = sf.col(".".join(f"`{part}`" for part in column))
        literals = [_literal(value) for value in values]
        if question == CONTAINS:
            where = sf.array_contains(name, literals[0])
        elif question == EQUAL:
            where = name == literals[0]
        elif question == IN:
            where = name.isin(*literals)
        else:
            where = (name >= literals[0]) & (name <= literals[1])
        return int(session.read.parquet(path).where(where).count())

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return self._session.read.parquet(path).where(where).toArrow()

    def tell(self, path: str, where: str) -> QueryStats:
        """The scan's numOutputRows: rows of the row groups that it read."""
        frame = self._session.read.parquet(path).where(where)
        plan = frame._jdf.queryExecution()
        frame._jdf.queryExecution().executedPlan().executeCollect()
        leaves = plan.executedPlan().collectLeaves()
        scanned = leaves.apply(0).metrics().get("numOutputRows")
        return QueryStats(note=f"the scan gave {scanned.get().value():,} rows") if scanned.isDefined() else QueryStats()


def _literal(value: pa.Scalar) -> Any:
    kind = value.type
    if pa.types.is_timestamp(kind):
        text = str(value.cast(pa.timestamp(kind.unit)))
        return sf.lit(text).cast("timestamp" if kind.tz else "timestamp_ntz")
    stored = value.as_py()
    if isinstance(stored, bytes):
        return sf.lit(bytearray(stored))
    name = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _TYPES.get(str(kind))
    if name is None:
        return sf.lit(stored)
    return sf.lit(str(stored)).cast(name)
