"""Filters of a tail that lies behind the size which the log names: whether they are what an `add` would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parquet_bloom.chunks.stored import StoredFilters
from parquet_bloom.edit.plan import Run, planned
from parquet_bloom.edit.reports import AddedFilter
from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.formats.filters import BloomFilter
from parquet_bloom.formats.forms.form import Sizing
from parquet_bloom.formats.forms.split_block import FINAL, is_sized
from parquet_bloom.formats.metadata.footer import ChunkKey
from parquet_bloom.formats.provenance import all_ranges
from parquet_bloom.storage.source import Source


@dataclass(frozen=True, slots=True)
class Left:
    """Filters that a commit of the longer file gives, and the columns that were asked for, by their index."""

    filters: list[AddedFilter]
    columns: list[int]


def left_as_asked(whole: Source, logged: Source, run: Run) -> Left | None:
    """The filters that lie behind what the log has, if all of them were asked for, at these sizes; else None.

    whole, logged  the file, and as it was when it had the logged size
    Where it lacks some that were asked for these can go behind it. Raises as plan.planned.
    """
    if run.request.replace:
        return None
    had, has = all_ranges(logged.footer()), all_ranges(whole.footer())
    more = has.keys() - had.keys()
    if not more or any(has.get(key) != place for key, place in had.items()):
        return None
    plan = planned(logged, run)
    if not more <= plan.sizings.keys():
        return None
    filters = _as_sized(whole, {key: plan.sizings[key] for key in sorted(more)})
    return None if filters is None else Left(filters, plan.columns)


def _as_sized(whole: Source, sizings: Mapping[ChunkKey, Sizing]) -> list[AddedFilter] | None:
    stored, leaves = StoredFilters(whole), whole.footer().leaves
    filters = []
    for (group, column), sizing in sizings.items():
        found = stored.of(group, leaves[column])
        try:
            bloom = found[0].evidence() if len(found) == 1 else None
        except (DamagedFileError, FilterFormatError, UnknownFilterError):
            return None
        if not isinstance(bloom, BloomFilter) or bloom.spec != FINAL.name:
            return None
        if not is_sized(bloom.blocks, FINAL.rule, sizing):
            return None
        fpp, ndv = bloom.fpp, bloom.estimated_ndv
        length = found[0].length or bloom.num_bytes
        reached = sizing.is_reached(bloom.num_bytes, fpp, ndv)
        name = leaves[column].name
        filters.append(AddedFilter(group, name, found[0].offset, length, bloom.num_bytes, fpp, reached, ndv))
    return filters
