"""Notes on files whose statistics are in doubt, before any value is read: their writer has a known mistake.

One note a writer, however many files it wrote. Files whose statistics were repaired are in no doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

import numpy as np

from parquet_bloom.errors import parameter
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.outline import NONE, Outline, Slot, bounds_stated
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.statistics import is_right, is_wrong
from parquet_bloom.storage.display import quantity

NAN_LOST = "engines for which NaN is the greatest value miss such rows, as DuckDB and DataFusion"
MIXED_LOST = "DataFusion takes these for bounds of the file, and misses rows"
_COLUMNS_SHOWN = 3


class Doubts:
    """Files by their writers; may be used by several threads."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], list[str]] = {}
        self._bounds: dict[tuple[str, str], list[str]] = {}
        self._lock = Lock()

    def see(self, path: str, keeper: Footer | Outline) -> None:
        """Take note of one file."""
        if is_right(keeper.created_by):  # but for nested texts of dictionary arrays, to this day
            return
        bounds, nulls = set(), set()
        for leaf in keeper.leaves:
            writer = statistics_writer(keeper, leaf)
            if is_wrong(writer, leaf, "bounds"):
                bounds.add(leaf.name)
            if is_wrong(writer, leaf, "few nulls") or is_wrong(writer, leaf, "many nulls"):
                nulls.add(leaf.name)
        parts = [
            f"{statistic} of {_some(names, len(keeper.leaves))}"
            for statistic, names in (("min and max", bounds), ("null_count", nulls))
            if names
        ]
        if parts:
            with self._lock:
                self._files.setdefault((keeper.created_by or "", " and ".join(parts)), []).append(path)

    def see_bounds(self, path: str, outline: Outline) -> None:
        """Take note of columns with bounds in some row groups, and beside a NaN, where a file counts its NaN."""
        slots, bounds = outline.slots, bounds_stated(outline.slots)
        beside_nan = ((slots[Slot.NAN_COUNT] > 0) & (bounds > 0)).any(axis=0)
        values, nulls = slots[Slot.NUM_VALUES], slots[Slot.NULL_COUNT]
        lacks = (bounds != np.bitwise_or.reduce(bounds, axis=0)) & (values > 0) & ((nulls == NONE) | (nulls < values))
        some = lacks.any(axis=0)
        for leaf in outline.leaves:
            for there, what in (
                (beside_nan[leaf.index] and leaf.float_bits, f"has NaN beside min and max: {NAN_LOST}"),
                (some[leaf.index] and not leaf.repeated, f"has min and max in some row groups alone: {MIXED_LOST}"),
            ):
                if there:
                    with self._lock:
                        self._bounds.setdefault((leaf.name, what), []).append(path)

    def notes(self, paths: Iterable[str]) -> Iterator[str]:
        """The notes, of the files of a report alone; in the order of the files."""
        order = {path: at for at, path in enumerate(paths)}
        for (writer, doubted), seen in self._files.items():
            files = sorted((path for path in seen if path in order), key=order.__getitem__)
            if files:
                more = f" and {quantity(len(files) - 1, 'more files')}" if len(files) > 1 else ""
                of = f"{files[0]}{more}: written by {writer}, of which releases write wrong {doubted}"
                compare = "verify with " + parameter("statistics", True) + " compares them"
                yield f"{of}; they are not believed here, and may lose rows elsewhere; " + compare
        for (name, what), seen in self._bounds.items():
            if some := [path for path in seen if path in order]:
                yield f"column {name} of {quantity(len(some), 'files')} {what}"


def _some(names: set[str], of: int) -> str:
    if len(names) == of:
        return "all columns"
    first = sorted(names)[:_COLUMNS_SHOWN]
    return ", ".join(first) + (f" and {len(names) - len(first):,} more" if len(names) > len(first) else "")
