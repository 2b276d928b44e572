"""What is wrong with a data set's filters today, and where filters are not the answer."""

from __future__ import annotations

from collections.abc import Iterator

from parquet_bloom.chunks.filter_ranges import filter_ranges_of
from parquet_bloom.chunks.stored import StoredFilters
from parquet_bloom.errors import DamagedFileError, parameter
from parquet_bloom.facts.advice import notes_of
from parquet_bloom.formats.metadata.schema import BOOLEAN, Leaf
from parquet_bloom.kernels import split_block
from parquet_bloom.worth.advice.survey import Survey

SATURATED = 0.5  # a rate above which a filter admits more absent values than it denies
BLOATED = 4  # times as large as 1 % takes
_MANY_FILES = 1000
_LARGE_BYTES, _LARGE_ROWS = 512 << 20, 5_000_000
_LOOKED_AT = 6  # row groups of a column


def flags_of(data: Survey) -> list[str]:
    """A line for each thing, the worst first."""
    return [*_filter_flags(data), *_shape_flags(data)]


def _shape_flags(data: Survey) -> Iterator[str]:
    groups = max(1, data.row_groups)
    if data.files >= _MANY_FILES and data.row_groups <= len(data.read):
        yield (
            f"{data.files:,} files with one row group each: opening every one of them for its filter costs more than "
            "the filters save; an index over all files answers here (parquet-bloom index build)"
        )
    if data.row_groups == 1 and data.files == 1:
        yield "one row group: a filter can only tell whether the file has to be read at all"
    if data.bytes / groups > _LARGE_BYTES or data.rows / groups > _LARGE_ROWS:
        yield (
            f"row groups of {data.bytes / groups / (1 << 20):,.0f} MiB and {data.rows // groups:,} rows: one row that "
            "matches costs the reading of all of them; write smaller ones, or build a zone index"
        )


def _filter_flags(data: Survey) -> Iterator[str]:
    for leaf in data.leaves:
        found = list(_looked_at(data, leaf))
        if not found:
            continue
        some = f"column {leaf.name}: {len(found)} filters looked at"
        if leaf.physical == BOOLEAN:
            empty = sum(bits == 0 for bits, _, _, _ in found)
            if empty:
                yield f"{some}, {empty} without any bit: they deny true and false alike, and readers lose rows by them"
            continue
        saturated = [fpp for bits, fpp, _, _ in found if fpp > SATURATED]
        if saturated:
            told = f"{some}, {len(saturated)} admit {max(saturated):.0%} of absent values: rebuild them with "
            yield told + parameter("replace", True)
        sizes = [(size, split_block.size_for(max(1, round(ndv)), 0.01)) for bits, _, size, ndv in found if bits]
        bloated = [(size, enough) for size, enough in sizes if size >= BLOATED * enough]
        if bloated:
            size, enough = max(bloated)
            told = f"{some}, {len(bloated)} far larger than 1 % takes: {size:,} bytes where {enough:,} do; "
            yield told + parameter("replace", True) + " rebuilds them"
        if leaf.refusal is not None:
            yield f"{some}, which say nothing: {leaf.refusal}"
        yield from (f"column {leaf.name} has filters, and {line}" for line in notes_of([leaf]))


def _looked_at(data: Survey, leaf: Leaf) -> Iterator[tuple[int, float, int, float]]:
    """(bits set, fpp, bytes, estimated ndv) of some filters of a column that can be read."""
    left = _LOOKED_AT
    for at, same in data.having(leaf):
        outline = data.outlines[at]
        if not left:
            return
        if not filter_ranges_of(outline, same.index).exists.any():
            continue
        filters = StoredFilters(data.open(at))
        for group in range(min(outline.n_row_groups, left)):
            for stored in filters.of(group, same):
                try:
                    found = stored.describe()
                except DamagedFileError:
                    continue
                if found.bloom is not None:
                    left -= 1
                    bloom = found.bloom
                    yield bloom.bits_set, bloom.fpp, bloom.num_bytes, bloom.estimated_ndv
        if at >= 4 * _LOOKED_AT:
            return
