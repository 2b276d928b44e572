"""fastparquet, by filters as its users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fastparquet
import pyarrow as pa

from parquet_bloom.facts.kinds import CONTAINS, EQUAL, IN
from parquet_bloom.worth.adapters.adapter import CannotAskError, Column, Told


class FastParquet:
    """ParquetFile.to_pandas with filters over row groups and rows."""

    dialect = None

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
        """There is no way to give it a predicate as text."""
        raise CannotAskError("it takes no predicates as text")

    def tell(self, path: str, where: str) -> Told:
        """fastparquet tells nothing of row groups."""
        return Told()
