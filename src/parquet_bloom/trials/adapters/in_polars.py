"""Polars, by lazy scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.trials.adapters.adapter import Column, QueryStats


class Polars:
    """Its native reader."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        name = pl.col(column[0])
        for part in column[1:]:
            name = name.struct.field(part)
        series: Any = pl.from_arrow(pa.array(values, values[0].type))
        # By way of their numbers, as Python's times have no nanoseconds.
        numbers = series.to_physical() if series.dtype.is_temporal() else series
        one, *more = [pl.lit(value).cast(series.dtype) for value in numbers]
        if question == CONTAINS:
            where = name.list.contains(one)
        elif question == EQUAL:
            where = name == one
        elif question == IN:
            where = name.is_in(series.implode())
        else:
            where = (name >= one) & (name <= more[0])
        return int(pl.scan_parquet(path).filter(where).select(pl.len()).collect().item())

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return pl.scan_parquet(path).filter(pl.sql_expr(where)).collect().to_arrow()

    def tell(self, path: str, where: str) -> QueryStats:
        """None: Polars has no figures of row groups."""
        return QueryStats()
