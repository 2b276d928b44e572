"""A predicate that came as a pyarrow Expression filters rows as it is, where pyarrow can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.predicates.tree import Compare, Part, Predicate, Unknown, leaves_of

if TYPE_CHECKING:
    from parquet_bloom.predicates.rows import RowFilter


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
        """Keep the rows of a batch for which the expression is true. Raises RequestError where pyarrow cannot tell."""
        # As a table: pyarrow makes no batch without rows of some nested types (a list of uuids).
        try:
            batches = pa.Table.from_batches([batch]).filter(self.expression).combine_chunks().to_batches()
        except pa.ArrowNotImplementedError as error:
            raise RequestError(f"rows cannot be filtered by {self.expression}: {first_line(error)}") from error
        return batches[0] if batches else batch.slice(0, 0)


def filter_of(expression: pc.Expression, predicate: Predicate, schema: pa.Schema) -> ExpressionFilter | RowFilter:
    """The filter of rows by a caller's Expression: by what it means, where it compares what pyarrow does not.

    predicate  the Expression as a tree
    schema     of the rows
    Raises RequestError where a literal is no value of such a column.
    """
    own = ExpressionFilter(expression, predicate)
    if own.columns is None:
        return own
    texts = any(_is_text_for_a_time(leaf, schema) for leaf in leaves_of(predicate))
    if not texts and not any(_is_beyond_pyarrow(f.type) for f in schema if f.name in own.columns):
        return own
    from parquet_bloom.predicates.rows import row_filter

    found = row_filter(predicate, schema)
    return own if found.expression is not None and not texts else found


def _is_text_for_a_time(leaf: Part, schema: pa.Schema) -> bool:
    """Whether a text is compared with a column of days or times, for which pyarrow has no kernel."""
    if not isinstance(leaf, Compare) or not isinstance(leaf.value, str):
        return False
    kind = schema
    for name in leaf.path:
        if not isinstance(kind, pa.Schema) and not pa.types.is_struct(kind):
            return False
        at = kind.get_field_index(name)
        if at < 0:
            return False
        kind = kind.field(at).type
    return bool(pa.types.is_temporal(kind))


def _is_beyond_pyarrow(kind: pa.DataType) -> bool:
    """Whether pyarrow compares no such values: uuids and other extension types, and views of texts; or some within."""
    if pa.types.is_struct(kind):
        return any(_is_beyond_pyarrow(field.type) for field in kind)
    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    return views or isinstance(kind, pa.BaseExtensionType)
