"""Daft, by its DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

import daft
import pyarrow as pa

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.trials.adapters.adapter import Column, QueryStats


class Daft:
    """Its native runner."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        name = daft.col(column[0])
        for part in column[1:]:
            name = name.get(part)
        kind = daft.DataType.from_arrow_type(values[0].type)
        # By way of their numbers, as Python's times have no nanoseconds.
        temporal = pa.types.is_timestamp(values[0].type) or pa.types.is_time(values[0].type)
        literals = [daft.lit(value.value if temporal else value.as_py()).cast(kind) for value in values]
        if question == CONTAINS:
            where = name.list_contains(literals[0])
        elif question == EQUAL:
            where = name == literals[0]
        elif question == IN:
            where = name.is_in(literals)
        else:
            where = (name >= literals[0]) & (name <= literals[1])
        return int(daft.read_parquet(path).where(where).count_rows())

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return daft.read_parquet(path).where(daft.sql_expr(where)).to_arrow()

    def tell(self, path: str, where: str) -> QueryStats:
        """None: Daft has no figures of row groups."""
        return QueryStats()
