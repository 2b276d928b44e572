"""This package itself, as `read_table` reads: the row groups that a predicate leaves, then the rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.format.literals import Instant, Literal, TimeOfDay, as_literal
from parquet_bloom.format.schema import UNIT_NS
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, Predicate
from parquet_bloom.search.check import check
from parquet_bloom.search.scan import Scan
from parquet_bloom.trials.adapters.adapter import Column, QueryStats


class ParquetBloom:
    """search.scan.Scan, as the reading functions have it; a file of a table is read by itself, as other engines do."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        literals = tuple(map(_literal, values))
        where: Predicate
        if question == CONTAINS:
            where = Contains(column, literals[0])
        elif question == EQUAL:
            where = Compare(column, "=", literals[0])
        elif question == IN:
            where = IsIn(column, literals)
        else:
            where = And((Compare(column, ">=", literals[0]), Compare(column, "<=", literals[1])))
        return int(Scan(path, where, raw_files=True).to_table().num_rows)

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return Scan(path, where, raw_files=True).to_table()

    def tell(self, path: str, where: str) -> QueryStats:
        """The figures of `check`."""
        verdicts = check(path, where, raw_files=True)
        return QueryStats(len(verdicts) - verdicts.skipped, len(verdicts))


def _literal(value: pa.Scalar) -> Literal:
    kind = value.type
    if isinstance(kind, pa.UuidType):
        return uuid.UUID(bytes=value.value.as_py())
    if pa.types.is_timestamp(kind):
        return Instant(value.value * UNIT_NS[kind.unit], kind.tz is not None)
    if pa.types.is_time(kind):
        return TimeOfDay(value.value * UNIT_NS[kind.unit])
    if pa.types.is_float16(kind):
        return float(value.as_py())
    return as_literal(value.as_py())
