"""The filters of one open file: queried, read and described alike, in every place and form.

    StoredFilters(source).queried(row_group, leaf).might_contain(plain)

Two implementations of StoredFilter: InBody, of a filter that the footer points at (filters.locate), and InFooter, of
one that the footer holds itself (format.footer_filters). Where there are very many of them filters.asking asks those
in the body together, without any of these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.filters.locate import (
    FilterRange,
    RangesByChunk,
    agreeing_header,
    any_bit,
    contradiction,
    is_pointed_at,
    read_filter,
    read_header,
    whole_filter,
)
from parquet_bloom.format import final
from parquet_bloom.format.filters import BloomFilter, Header, filter_in
from parquet_bloom.format.footer import chunk_extent
from parquet_bloom.format.footer_filters import FooterFilter, believed, filters_of_column, footer_filters
from parquet_bloom.format.forms import Filter
from parquet_bloom.format.outline import Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import Counts, counts_in, denied_bound, empty_filter_problem
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.block import BLOCK_BYTES, block_contains, block_index
from parquet_bloom.storage.open_file import OpenFile


@dataclass(slots=True)
class Description:
    """The facts in a filter's bytes, as far as they can be read.

    spec       its form; None where the header is not understood
    rule       how its values were hashed; several, joined by "or", where nothing says which
    num_bytes  of the bitset, as the header has it
    bloom      the filter; None where its bits cannot be told from other bytes
    bits_set   of its bits
    problems   contradictions, each with both numbers
    notes      what is not wrong, but makes it no evidence
    """

    spec: str | None = None
    rule: str | None = None
    num_bytes: int = 0
    bloom: Filter | None = None
    bits_set: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self, bloom: Filter, counts: Counts) -> None:
        """Record a decoded filter. An empty one is a problem if the chunk has values."""
        self.bloom, self.bits_set = bloom, bloom.bits_set
        found = None if self.bits_set else empty_filter_problem(counts)
        if found is not None:
            reason, wrong = found
            (self.problems if wrong else self.notes).append(reason if wrong else f"not used: {reason}")


def is_sound(told: Any) -> bool:
    """Whether readers use a filter, by its Description or filters.inspect.FilterInfo; one with problems is none."""
    return told.spec is not None and not told.problems and not any(n.startswith("not used") for n in told.notes)


class StoredFilter(Protocol):
    """One filter of a column chunk.

    Its methods but `describe` raise UnknownFilterError where it is of a kind that nobody here knows, FilterFormatError
    where it contradicts itself or its surroundings, and DamagedFileError where its bytes cannot be read. Whoever
    meets one of these has no evidence: the row group is read.
    """

    @property
    def row_group(self) -> int:
        """Of its chunk."""

    @property
    def leaf(self) -> Leaf:
        """The column of its chunk."""

    @property
    def offset(self) -> int | None:
        """bloom_filter_offset; None in the footer."""

    @property
    def length(self) -> int | None:
        """bloom_filter_length, None where the footer has none; in the footer the bytes of its text or struct."""

    @property
    def spec(self) -> str | None:
        """Its form, where that shows without reading it."""

    @property
    def refusal(self) -> str | None:
        """Why filters of its form over such a column say nothing; None where they do."""

    @property
    def extent(self) -> tuple[int, int] | None:
        """Offset and bytes of the part of the file in which it lies, for reading ahead; None in the footer."""

    def place(self, pages_end: int) -> str:
        """The place, in a word; see filters.inspect.FilterInfo. All pages of the file end at pages_end."""

    def read(self) -> Filter:
        """The whole filter, where everything that shows without decoding its chunk agrees."""

    def evidence(self) -> Filter:
        """The same, if row groups may be skipped by it: what no sound filter has, such as no bit, is an error too."""

    def might_contain(self, plain: bytes) -> bool:
        """Query one value by its PLAIN bytes, with the fewest reads; the filter is as `evidence` demands."""

    def describe(self) -> Description:
        """Describe the filter and its problems."""


class InBody(NamedTuple):
    """A filter at the place that the footer points at; see StoredFilter."""

    source: OpenFile
    row_group: int
    leaf: Leaf
    range: FilterRange
    spec: None = None

    @property
    def offset(self) -> int:
        """bloom_filter_offset."""
        return self.range.offset

    @property
    def length(self) -> int | None:
        """bloom_filter_length."""
        return self.range.length

    @property
    def refusal(self) -> str | None:
        """Why there is no filter for such a column."""
        return self.leaf.refusal

    @property
    def extent(self) -> tuple[int, int] | None:
        """Header and bitset, or all up to the next structure where the footer has no length."""
        if self.offset < 4:
            return None
        return self.offset, min(self.range.total, self.range.room)

    def place(self, pages_end: int) -> str:
        """Before its chunk, behind all chunks, or between."""
        start, stop = self.range.pages
        if self.offset + self.range.room == start:
            return "chunk-start"
        if start <= self.offset < stop:
            return "inside the chunk"
        return "footer" if self.offset >= pages_end else "between"

    def read(self) -> BloomFilter:
        """Read header and bitset."""
        if self.length is not None and self.length <= self.range.room:
            self.source.prefetch([(self.offset, self.length)])  # both with one request
        return read_filter(self.source, self.range)

    def evidence(self) -> BloomFilter:
        """Read it, and hold it against the counts of its chunk."""
        bloom = self.read()
        if not bloom.blocks.any():
            check_blank(self.range.counts)
        return bloom

    def might_contain(self, plain: bytes) -> bool:
        """Read its header and one block."""
        return probe(self.source, self.range, plain)

    def describe(self) -> Description:
        """Read as much of it as its header allows."""
        found = Description()
        try:
            header = read_header(self.source, self.range)
        except UnknownFilterError as error:
            found.notes.append(f"not used: {error}")
            return found
        except (FilterFormatError, DamagedFileError) as error:
            found.problems.append(str(error))
            return found
        found.spec, found.num_bytes = header.spec, header.num_bytes
        found.rule = " or ".join(str(c.rule) for c in header.candidates)
        problem = contradiction(header, self.range)
        if problem is not None:
            found.problems.append(problem)
        bloom = self._contents(header)
        if bloom is not None:
            found.read(bloom, self.range.counts)
            if bloom.rotten is not None:
                found.problems.append(bloom.rotten)
        return found

    def _contents(self, header: Header) -> BloomFilter | None:
        """The bits, though the filter may contradict itself; None where they run into pages or past the end."""
        end = max(c.bits_at for c in header.candidates) + header.num_bytes
        large = header.num_bytes > split_block.MAX_BYTES
        if large or header.total > self.range.room or self.offset + header.total > self.source.size:
            return None
        return filter_in(self.source.read_up_to(self.offset, end), header)


class InFooter(NamedTuple):
    """A filter that the footer holds itself, and that costs no reading; see StoredFilter."""

    source: OpenFile
    row_group: int
    leaf: Leaf
    held: FooterFilter
    offset: None = None
    extent: None = None

    @property
    def length(self) -> int:
        """Bytes of its text or struct."""
        return self.held.length

    @property
    def spec(self) -> str:
        """Its form."""
        return self.held.spec

    @property
    def refusal(self) -> str | None:
        """Why its form has no filter for such a column."""
        return self.held.refusal(self.leaf)

    def place(self, pages_end: int) -> str:
        """The part of the footer."""
        return self.held.held_in

    def read(self) -> Filter:
        """Decode it."""
        return self.held.decode(self.leaf)

    def evidence(self) -> Filter:
        """Decode it once for all who read this file's outline."""
        return believed(self.source.outline(), self.leaf, self.row_group)

    def might_contain(self, plain: bytes) -> bool:
        """Query it in memory."""
        return self.evidence().might_contain(plain)

    def describe(self) -> Description:
        """Decode it, and hold it against its chunk's counts and bounds."""
        found = Description(self.spec)
        if self.held.caveat:
            found.notes.append(self.held.caveat)
        try:
            bloom = self.held.decode(self.leaf)
        except FilterFormatError as error:
            found.problems.append(str(error))
            return found
        found.num_bytes, found.rule = bloom.num_bytes, " or ".join(map(str, bloom.rules))
        found.read(bloom, counts_in(self.source.footer(), self.row_group, self.leaf))
        if found.bits_set:
            denied = denied_bound(bloom.might_contain, self.source.outline(), self.leaf, self.row_group)
            found.problems += [denied] if denied is not None else []
        return found


class StoredFilters:
    """The filters of one open file, read when they are needed."""

    def __init__(self, source: OpenFile) -> None:
        self._source = source

    @cached_property
    def _ranges(self) -> RangesByChunk:
        return RangesByChunk(self._source.footer())

    @cached_property
    def pages_end(self) -> int:
        """The end of the last page of the file, bytes from its start."""
        chunks = self._source.footer().chunks()
        return max((chunk_extent(chunk.meta_data)[1] for _, _, chunk in chunks), default=0)

    def _in_body(self, row_group: int, leaf: Leaf) -> InBody | None:
        filter_range = self._ranges[row_group, leaf.index]
        return None if filter_range is None else InBody(self._source, row_group, leaf, filter_range)

    def of(self, row_group: int, leaf: Leaf) -> list[StoredFilter]:
        """All filters of a chunk: the one that the footer points at, then the one that it holds; most have one."""
        held = footer_filters(self._source.footer()).get((row_group, leaf.index))
        in_footer = None if held is None else InFooter(self._source, row_group, leaf, held)
        return [one for one in (self._in_body(row_group, leaf), in_footer) if one is not None]

    def queried(self, row_group: int, leaf: Leaf) -> StoredFilter | None:
        """The filter of a chunk that readers query: one that the footer points at goes before one that it holds.

        Of a file without filters in its body this takes the outline alone. Raises as OpenFile.outline.
        """
        outline = self._source.outline()
        if is_pointed_at(outline.slots[Slot.FILTER_OFFSET, row_group, leaf.index]):
            return self._in_body(row_group, leaf)
        held = filters_of_column(outline, leaf.index).get(row_group)
        return None if held is None else InFooter(self._source, row_group, leaf, held)


# --- one filter in the body of a file --------------------------------------------------------------


def check_blank(counts: Counts) -> None:
    """Raise for a filter without any bit where that is no evidence, see format.statistics.empty_filter_problem."""
    found = empty_filter_problem(counts)
    if found is not None:
        reason, wrong = found
        raise (FilterFormatError if wrong else UnknownFilterError)(reason)


def probe(source: OpenFile, filter_range: FilterRange, plain: bytes) -> bool:
    """Query a filter for one value by its PLAIN bytes: True is "perhaps", False is "certainly not".

    Reads the header and one block, about 50 bytes. With a length in the footer both are asked for
    together: they are then the header of `final` and its block, if the header is so to the byte.
    Probing by length alone would lose rows (fixtures/malformed_lab/04_unknown_hash2.parquet).

    Raises FilterFormatError and UnknownFilterError where the filter is no evidence.
    """
    num_bytes = final.num_bytes_for(filter_range.length) if filter_range.length is not None else None
    if num_bytes is not None and filter_range.fits(num_bytes):
        expected = final.header(num_bytes)
        h = final.RULE.hash_value(plain)
        at = len(expected) + BLOCK_BYTES * block_index(h, num_bytes // BLOCK_BYTES, final.RULE.index)
        start = filter_range.offset
        head, block = source.read_ranges([(start, len(expected)), (start + at, BLOCK_BYTES)])
        if head == expected:
            if not any(block) and not any_bit(source, start + len(expected), num_bytes):
                check_blank(filter_range.counts)
            return block_contains(block, h)
    header = agreeing_header(source, filter_range)
    if header.crc is not None:
        return whole_filter(source, filter_range, header).might_contain(plain)
    # One block for each rule that may have made the filter; "perhaps" of any of them counts.
    ranges, hashes = [], []
    for candidate in header.candidates:
        rule = candidate.rule
        h = rule.hash_value(plain)
        block_at = candidate.bits_at + BLOCK_BYTES * block_index(h, header.num_bytes // BLOCK_BYTES, rule.index)
        if filter_range.offset + block_at + BLOCK_BYTES <= source.size:
            ranges.append((filter_range.offset + block_at, BLOCK_BYTES))
            hashes.append(h)
    blocks = source.read_ranges(ranges)
    if not any(map(any, blocks)) and not any_bit(source, filter_range.offset + header.size, header.num_bytes):
        check_blank(filter_range.counts)
    return any(block_contains(block, h) for block, h in zip(blocks, hashes, strict=True))
