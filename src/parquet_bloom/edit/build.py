"""Filters of column chunks: a form builds them (formats.forms) from the values that pyarrow decodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.formats.forms.form import BuiltFilter, Format, Sizing
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.storage.source import Source

# (the file as it is open, chunks in writing order) -> their filters; raises where it is not the file they are of
BuiltElsewhere = Callable[[Source, Sequence[ChunkKey]], Iterator[BuiltFilter]]
_IN_TURNS = threading.Lock()  # a few values a row group: threads would only take the interpreter from each other


def build(reader: ColumnReader, footer: Footer, row_group: int, form: Format, sizing: Sizing) -> BuiltFilter:
    """Build the filter of one column chunk. Raises DamagedFileError where the chunk does not decode."""
    n_values = _most_values(footer, reader, row_group)
    return form.build(lambda: reader.batches(row_group), reader.leaf, n_values, sizing)


def build_several(
    reader: ColumnReader, footer: Footer, row_groups: Sequence[int], form: Format, sizing: Sizing
) -> dict[int, BuiltFilter]:
    """`build` for several row groups of one column: the file is opened once, and the smallest are built together.

    returns  row group -> its filter
    """
    built: dict[int, BuiltFilter] = {}
    with reader.staying_open() if len(row_groups) > 1 else nullcontext(reader) as once:
        if len(row_groups) > 1:
            values = {group: _most_values(footer, reader, group) for group in row_groups}
            small = [group for group in row_groups if form.is_smallest(reader.leaf, values[group], sizing)]
            with _IN_TURNS:
                built = form.build_smallest(
                    [(group, array) for group in small for array in once.batches(group)], sizing
                )
        for group in row_groups:
            if group not in built:
                built[group] = build(once, footer, group, form, sizing)
    return built


def _most_values(footer: Footer, reader: ColumnReader, row_group: int) -> int:
    return max(1, footer.column_chunks(reader.leaf.index).num_values[row_group])
