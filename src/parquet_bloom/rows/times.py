"""Times of 96 bits, which pyarrow reads as 64 bits of nanoseconds: from 1677 to 2262.

INT96 is a day and the nanoseconds of it. 9999-12-31 becomes a day in 1816. A file's bounds of such columns mean
nothing, so that the values alone show which these are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.errors import RequestError
from parquet_bloom.format.arrow_types import fields_of
from parquet_bloom.format.schema import INT96
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import file_format, fragment
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, for_arrow, read_error
from parquet_bloom.search.results import FileResult

_NANOSECONDS_END = (2**63 - 1) // 10**9  # seconds from 1970 on; as far before it


def check_times(parts: Sequence[FilePart], names: Collection[str] | None, hidden: Collection[str] = ()) -> None:
    """Raise RequestError for the first file with an INT96 that 64 bits of nanoseconds do not hold.

    names   the top-level columns that are read; None: all. Others cost nothing, INT96 is decoded once more, as seconds
    hidden  columns that folders' keys hide
    """
    for file, groups in parts:
        assert file.outline is not None
        leaves = [leaf for leaf in file.outline.leaves if leaf.physical == INT96 and leaf.path[0] not in hidden]
        stored = list(dict.fromkeys(leaf.path[0] for leaf in leaves if names is None or leaf.path[0] in names))
        if stored:
            check_times_in(file, for_arrow(file), groups, stored)


def check_times_in(file: FileResult, opened: Any, groups: Sequence[int], stored: list[str]) -> None:
    """The same of some columns in row groups of a file, or of a file of its pages."""
    one = fragment(opened, file.file, None, groups, file_format(coerce_int96_timestamp_unit="s"), file.size)
    try:
        for batch in one.to_batches(columns=stored):
            for name, column in zip(stored, batch.columns, strict=True):
                if any(map(_is_far, _seconds(column))):
                    reason = f"column {name} has INT96 times outside the years 1677 to 2262"
                    advice = "pyarrow reads these wrong; "
                    advice += f"read other columns, or write {name} anew as a timestamp in microseconds"
                    raise RequestError(f"{file.file}: {reason}; {advice}")
    except PYARROW_ERRORS as error:
        raise read_error(str(file.file), error) from error


def _seconds(column: pa.Array) -> Iterator[pa.Array]:
    """The times in seconds of a column, at any depth. Parquet has none of its own: they are of INT96."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        yield column
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _seconds(child)
    elif pa.types.is_map(kind):
        yield from _seconds(column.keys)
        yield from _seconds(column.items)
    elif fields_of(kind):
        yield from _seconds(column.flatten())


def _is_far(times: pa.Array) -> bool:
    bounds = pc.min_max(times.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is not None and (low <= -_NANOSECONDS_END or high >= _NANOSECONDS_END)
