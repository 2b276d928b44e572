"""A predicate that came as a pyarrow Expression filters rows as it is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.predicates.tree import Predicate, Unknown, leaves_of


class ExpressionFilter:
    """The caller's own pyarrow Expression, in the place of a RowFilter.

    columns  the top-level columns it looks at; None where a part of it is not understood: any
    """

    def __init__(self, expression: pc.Expression, predicate: Predicate) -> None:
        self.expression = expression
        leaves = list(leaves_of(predicate))
        understood = not any(isinstance(leaf, Unknown) for leaf in leaves)
        self.columns = [leaf.path[0] for leaf in leaves if not isinstance(leaf, Unknown)] if understood else None

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep the rows of a batch for which the expression is true."""
        # As a table: pyarrow makes no batch without rows of some nested types (a list of uuids).
        batches = pa.Table.from_batches([batch]).filter(self.expression).combine_chunks().to_batches()
        return batches[0] if batches else batch.slice(0, 0)
