"""What must be true of a filter's bits whatever the values are, so that it shows without decoding one.

`inspect` tells of it as a problem, and to readers such a filter is no evidence: both ask here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData
from parquet_bloom.formats.bounds import statistics_of
from parquet_bloom.formats.metadata.outline import NONE, Outline, Slot
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, INT32, INT64, Leaf

_UNCUT_BYTES = 15  # writers cut texts of bounds at 16 bytes or more
Counts = tuple[int, int | None]  # num_values and null_count of a column chunk; null_count None: not known


def counts_in(meta: ColumnMetaData) -> Counts:
    """What a chunk's metadata counts: values, and NULLs if it says so."""
    return meta.num_values, meta.statistics.null_count if meta.statistics is not None else None


def counts_of(outline: Outline, row_group: int, column: int) -> Counts:
    """The same, from an outline."""
    values, nulls = (int(outline.slots[s, row_group, column]) for s in (Slot.NUM_VALUES, Slot.NULL_COUNT))
    return values, None if nulls == NONE else nulls


def blank(counts: Counts) -> tuple[str, bool] | None:
    """Why a filter without any bit is no evidence about a chunk, and whether that is a contradiction.

    None where nothing but NULL is stored: such a filter is right. Without a null_count nobody can tell. parquet-java
    writes such filters for every BOOLEAN column.
    """
    values, nulls = counts
    if values == 0:
        return None
    if nulls is None or not 0 <= nulls <= values:
        return f"no bit is set, and the footer does not say that all {values} values are NULL", False
    return (f"no bit is set, but {values - nulls} values are stored", True) if values > nulls else None


def denied_bound(might_contain: Callable[[bytes], bool], outline: Outline, leaf: Leaf, group: int) -> str | None:
    """Whether a filter denies its chunk's own min or max, as one with a false k does, and how.

    These are stored values in columns of integers, and short texts. A longer one may be cut off. Of a filter that is
    read anyway it costs nothing; a filter of another form would have to be read for it.
    """
    statistics = statistics_of(outline, leaf)
    for name, has, bound in (
        ("min", statistics.has_lower, statistics.lower),
        ("max", statistics.has_upper, statistics.upper),
    ):
        value = bound[group].item() if isinstance(bound[group], np.generic) else bound[group]
        if not has[group] or not statistics.some_value[group]:
            continue
        if isinstance(value, int) and leaf.physical in (INT32, INT64):
            plain = (value & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
        elif isinstance(value, bytes) and leaf.physical == BYTE_ARRAY and len(value) <= _UNCUT_BYTES:
            plain = value
        else:
            continue
        if not might_contain(plain):
            return f"it denies {value!r}, the chunk's own {name}"
    return None
