"""fastparquet, by filters as its users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fastparquet
import pyarrow as pa

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import And, Compare, IsIn, Predicate
from parquet_bloom.trials.adapters.adapter import CannotAskError, Column, QueryStats


class FastParquet:
    """ParquetFile.to_pandas with filters over row groups and rows."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        if question == CONTAINS or len(column) > 1:
            raise CannotAskError("its filters name whole columns")
        decimal = pa.types.is_decimal(values[0].type)  # which it reads as floats
        name, asked = column[0], [float(value.as_py()) if decimal else value.as_py() for value in values]
        filters: list[tuple[str, str, Any]]
        if question == EQUAL:
            filters = [(name, "==", asked[0])]
        elif question == IN:
            filters = [(name, "in", asked)]
        else:
            filters = [(name, ">=", asked[0]), (name, "<=", asked[1])]
        return len(fastparquet.ParquetFile(path).to_pandas(columns=[name], filters=[filters], row_filter=True))

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it, for comparisons with numbers and texts that AND joins."""
        tree = parse(where)
        filters = [_filter(part) for part in (tree.parts if isinstance(tree, And) else (tree,))]
        rows = fastparquet.ParquetFile(path).to_pandas(filters=[filters], row_filter=True)
        return pa.Table.from_pandas(rows, preserve_index=False)

    def tell(self, path: str, where: str) -> QueryStats:
        """None: fastparquet has no figures of row groups."""
        return QueryStats()


def _filter(part: Predicate) -> tuple[str, str, Any]:
    """One comparison as fastparquet takes it. Raises CannotAskError."""
    if isinstance(part, Compare | IsIn) and len(part.path) == 1:
        values = part.values if isinstance(part, IsIn) else (part.value,)
        if all(isinstance(value, int | float | str | bytes) for value in values):
            op = "in" if isinstance(part, IsIn) else "==" if part.op == "=" else part.op
            return part.path[0], op, list(values) if isinstance(part, IsIn) else values[0]
    raise CannotAskError("its filters cannot say this predicate")
