"""pyarrow, by its data sets."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.text import parse
from parquet_bloom.trials.adapters.adapter import CannotAskError, Column, QueryStats


class PyArrow:
    """pyarrow.dataset, which pandas and pyarrow.parquet.read_table read through."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        name = pc.field(*column)
        if question == CONTAINS:
            raise CannotAskError("its expressions cannot read inside lists")
        if question == EQUAL:
            where = name == values[0]
        elif question == IN:
            where = name.isin(pa.array(values, values[0].type))
        else:
            where = (name >= values[0]) & (name <= values[1])
        return int(ds.dataset(path).to_table(filter=where).num_rows)

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        data = ds.dataset(path)
        keep = row_filter(parse(where), data.schema).expression
        if keep is None:
            raise CannotAskError("its expressions cannot say this predicate")
        return data.to_table(filter=keep)

    def tell(self, path: str, where: str) -> QueryStats:
        """None: pyarrow has no figures of row groups."""
        return QueryStats()
