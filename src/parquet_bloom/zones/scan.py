"""Reads rows with a zone index: row groups, and inside them pages, that overlap a surviving zone.

    check -> row groups -> zones that may match -> the pages that hold their rows -> rows filtered

What the index leaves is read and filtered as if there were none, so the rows and their order are
those of `Scan`. A file that the index does not name is read as without it; one that it names and
that has changed is an error.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    OffsetIndex,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.errors import DamagedFileError, FooterError, RequestError, first_line
from parquet_bloom.filters.decode import PYARROW_ERRORS
from parquet_bloom.format import compact
from parquet_bloom.format.arrow_types import arrows_own
from parquet_bloom.format.footer import MAGIC, Footer, chunk_extent
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.walked import elements_to
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.outcomes import TRUE
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import FORMAT
from parquet_bloom.rows.scan import Scan
from parquet_bloom.rows.source_rows import FileRows, check_times
from parquet_bloom.search.evidence import INDEX, partition_value
from parquet_bloom.search.options import SearchOptions
from parquet_bloom.search.results import FileResult, UnopenedFiles, open_groups
from parquet_bloom.storage.open_file import OpenFile, Range
from parquet_bloom.zones.match import check_content, cover_of, find_indexes, numbers_of
from parquet_bloom.zones.stretches import Cover, Stretches, ZoneEvidence

# --- reading by pages -----------------------------------------------------------------------------
#
# Some rows of a row group from only the pages that hold them.
#
# pyarrow has no row-range read. But a column chunk's dictionary page, the data pages that the offset
# index says hold the rows, and a footer of one row group are a small Parquet file:
#
#    column chunk  | dictionary | page 0 | page 1 | page 2 | page 3 | page 4 |        rows wanted: in 1 and 3
#    in memory     | PAR1 | dictionary | page 1 | page 3 | footer: one row group, one column | PAR1 |
#
# Each column has pages of its own, so each becomes such a file, and the rows wanted are cut out of it.
# Columns that have several leaves or lists are read whole.
#
# Source: parquet.thrift, OffsetIndex and PageLocation; PageIndex.md.

RowRanges = NDArray[np.int64]  # int64[n, 2]: [start, stop) within a row group, ascending and apart


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column that hold the rows wanted.

    leaf         the column
    dictionary   bytes [start, stop) of the file; empty where there is none
    pages        int64[n, 2]: offset and length of each page
    rows         int64[n, 2]: the rows [start, stop) of the row group that each holds
    of_pages, of_bytes   how many pages the chunk has, and how many bytes these take
    """

    leaf: Leaf
    dictionary: Range
    pages: NDArray[np.int64]
    rows: NDArray[np.int64]
    of_pages: int
    of_bytes: int

    @property
    def bytes_skipped(self) -> int:
        """Bytes of pages that need not be read."""
        return self.of_bytes - int(self.pages[:, 1].sum())


@dataclass(frozen=True, slots=True)
class PagePlan:
    """How to read some rows of a row group.

    columns  by the name of the top-level column
    whole   top-level columns that are read whole
    """

    row_group: int
    ranges: RowRanges
    columns: dict[str, ColumnPages]
    whole: list[str]

    @property
    def pages_read(self) -> int:
        """How many data pages are read."""
        return sum(len(one.pages) for one in self.columns.values())

    @property
    def pages_skipped(self) -> int:
        """How many data pages are not read."""
        return sum(one.of_pages - len(one.pages) for one in self.columns.values())

    @property
    def bytes_skipped(self) -> int:
        """Bytes of the pages that are not read."""
        return sum(one.bytes_skipped for one in self.columns.values())


def plan_pages(source: OpenFile, row_group: int, names: Sequence[str], ranges: RowRanges) -> PagePlan | None:
    """Choose pages for some rows; None where reading the row group whole is as good.

    It is, unless the pages saved outweigh the dictionaries, which are read one by one then.
    """
    footer = source.footer()
    leaves: dict[str, list[Leaf]] = {name: [] for name in names}
    for leaf in footer.leaves:
        if leaf.path[0] in leaves:
            leaves[leaf.path[0]].append(leaf)
    single = {n: found[0] for n, found in leaves.items() if len(found) == 1 and not found[0].repeated}
    spans: dict[str, Range] = {}
    for name, leaf in single.items():
        chunk = footer.chunk(row_group, leaf.index)
        at, length = chunk.offset_index_offset or 0, chunk.offset_index_length or 0
        if at > 0 and length > 0 and at + length <= source.size:
            spans[name] = (at, length)
    found = dict(zip(spans, source.read_ranges(list(spans.values())), strict=True))
    chosen = {}
    for name, data in found.items():
        one = _choose(footer, row_group, single[name], data, ranges)
        if one is not None:
            chosen[name] = one
    saved = sum(one.bytes_skipped for one in chosen.values())
    if saved <= sum(one.dictionary[1] for one in chosen.values()):
        return None
    return PagePlan(row_group, ranges, chosen, [name for name in names if leaves[name] and name not in chosen])


def _choose(footer: Footer, row_group: int, leaf: Leaf, data: bytes, ranges: RowRanges) -> ColumnPages | None:
    """The pages of one column; None where the offset index does not fit the chunk."""
    rows = footer.rows[row_group]
    meta = footer.meta(row_group, leaf.index)
    try:
        index, _ = compact.decode(OffsetIndex, data)
        locations = [(p.offset, p.compressed_page_size, p.first_row_index) for p in index.page_locations]
        at = np.array(locations, np.int64).reshape(-1, 3)
    except (FooterError, TypeError, OverflowError, AttributeError):
        return None
    if not len(at) or at[0, 2] != 0 or np.any(np.diff(at[:, 2]) <= 0) or at[-1, 2] >= rows:
        return None
    start, stop = chunk_extent(meta)
    ends = at[:, 0] + at[:, 1]
    apart = np.all(at[:, 1] > 0) and np.all(ends[:-1] <= at[1:, 0])
    if not apart or at[0, 0] != meta.data_page_offset or at[0, 0] < start or ends[-1] > stop:
        return None
    held = np.stack([at[:, 2], np.append(at[1:, 2], rows)], axis=1)
    first = np.searchsorted(ranges[:, 1], held[:, 0], "right")  # the first range that ends behind the page's start
    wanted = (first < len(ranges)) & (ranges[np.minimum(first, len(ranges) - 1), 0] < held[:, 1])
    pages = at[wanted, :2]
    return ColumnPages(leaf, (start, int(at[0, 0]) - start), pages, held[wanted], len(at), int(at[:, 1].sum()))


def read_pages(source: OpenFile, plan: PagePlan, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """The rows of a plan, column by column, of the columns it has pages for.

    schema  as pyarrow reads the file, or the data set; gives each column its type
    Raises DamagedFileError.
    """
    wanted: list[Range] = []
    for one in plan.columns.values():
        wanted += [one.dictionary, *_runs(one.pages)]
    parts = iter(source.read_ranges(wanted))
    found = {}
    for name, one in plan.columns.items():
        dictionary = next(parts)
        body = b"".join(next(parts) for _ in _runs(one.pages))
        table = _decode(source, plan.row_group, one, dictionary, body, schema.field(name))
        found[name] = pa.chunked_array(_cut(table.column(0), one.rows, plan.ranges), table.schema.field(0).type)
    return found


def _runs(pages: NDArray[np.int64]) -> list[Range]:
    """Pages that follow each other, as one range."""
    runs: list[list[int]] = []
    for offset, length in pages.tolist():
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1][1] += length
        else:
            runs.append([offset, length])
    return [(offset, length) for offset, length in runs]


def _decode(
    source: OpenFile, row_group: int, one: ColumnPages, dictionary: bytes, body: bytes, field: pa.Field
) -> pa.Table:
    footer = source.footer()
    rows = int((one.rows[:, 1] - one.rows[:, 0]).sum())
    data = compact.encode(_metadata(footer, row_group, one, (len(dictionary), len(body)), rows, field))
    file = arrows_own(MAGIC, dictionary, body, data, len(data).to_bytes(4, "little"), MAGIC)
    where = f"row group {row_group}, column {one.leaf.name}"
    try:
        # A data set's fragment, as everything else is read, so that types and options are the same.
        table = FORMAT.make_fragment(pa.BufferReader(file)).to_table(schema=pa.schema([field]))
    except PYARROW_ERRORS as error:
        raise DamagedFileError(source.path, f"{where} cannot be decoded: {first_line(error)}") from error
    if table.num_rows != rows:
        raise DamagedFileError(source.path, f"{where}: pages of {rows} rows decode to {table.num_rows}")
    return table


def _metadata(
    footer: Footer, row_group: int, one: ColumnPages, sizes: tuple[int, int], rows: int, field: pa.Field
) -> FileMetaData:
    """A footer for the pages of one column that has one leaf."""
    meta, metadata = footer.meta(row_group, one.leaf.index), footer.metadata
    at = len(MAGIC)
    path = elements_to(footer, one.leaf)
    chunk = ColumnChunk(
        file_offset=0,
        meta_data=ColumnMetaData(
            type=meta.type,
            encodings=meta.encodings or [],
            path_in_schema=meta.path_in_schema,
            codec=meta.codec or 0,
            num_values=rows,
            total_uncompressed_size=meta.total_uncompressed_size or 0,
            total_compressed_size=sum(sizes),
            data_page_offset=at + sizes[0],
            dictionary_page_offset=at if sizes[0] else None,
        ),
    )
    arrow = base64.b64encode(pa.schema([field]).serialize().to_pybytes()).decode()
    return FileMetaData(
        version=metadata.version or 1,
        schema=[SchemaElement(name="schema", num_children=1), *path],
        num_rows=rows,
        row_groups=[RowGroup(columns=[chunk], total_byte_size=meta.total_uncompressed_size or 0, num_rows=rows)],
        key_value_metadata=[KeyValue(key="ARROW:schema", value=arrow)],
        created_by=metadata.created_by,
    )


def _cut(column: pa.ChunkedArray, held: NDArray[np.int64], ranges: RowRanges) -> list[pa.Array]:
    """The rows wanted out of pages that hold more."""
    before = np.concatenate(([0], np.cumsum(held[:, 1] - held[:, 0])))
    parts: list[pa.Array] = []
    for start, stop in ranges.tolist():
        page = int(np.searchsorted(held[:, 0], start, "right")) - 1
        parts += column.slice(int(before[page]) + start - int(held[page, 0]), stop - start).chunks
    return parts


# --- a scan with indexes --------------------------------------------------------------------------


@dataclass(slots=True)
class PagesRead:
    """The pages of row groups that were read by pages: how many were read, and how many were skipped."""

    read: int = 0
    left: int = 0
    bytes_left: int = 0


class IndexedScan(Scan):
    """A Scan that queries zone indexes too.

    pages  what reading by pages saved, so far
    """

    def __init__(
        self,
        source: PathLike | Sequence[PathLike],
        predicate: Any,
        index: PathLike | Sequence[PathLike],
        *,
        filesystem: Any = None,
        decide_true: bool = False,
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__(source, predicate, filesystem=filesystem, decide_true=decide_true, **options)
        self._indexes = index
        self._ranges: dict[tuple[int, int], RowRanges] = {}
        self.pages = PagesRead()

    def _searched(self) -> list[FileResult | UnopenedFiles]:
        files = super()._searched()
        opened = [file for file in files if isinstance(file, FileResult) and file.decision is not None]
        for file in opened:
            file.of_one_version = False  # pages are read by other requests
        covers = [cover_of(path) for path in find_indexes(self._indexes)]
        logged = self._search.found.snapshot.logged  # of which an index would know the files' own values
        covers = [cover for cover in covers if cover.path[0] not in logged]
        numbers = [numbers_of(cover.file, [file.file for file in opened]) for cover in covers]
        left = [file for file in opened if open_groups(file)]
        covers = [
            replace(cover, fragments=frozenset(known[f.file] for f in left if f.file in known))
            for cover, known in zip(covers, numbers, strict=True)
        ]
        evidence: dict[int, ZoneEvidence] = {}
        for file in left:
            pairs = zip(covers, numbers, strict=True)
            named = {cover.file.path: known[file.file] for cover, known in pairs if file.file in known}
            if not named:
                continue
            if not self._rows.same_names(file):
                raise RequestError(
                    f"{file.file}: has columns under other names than its table; read it without an index"
                )
            assert file.bound is not None
            key = id(file.bound)
            if key not in evidence:
                options = self._search.options
                evidence[key] = ZoneEvidence(file.bound, covers, options.nan, options.range_values)
            self._narrow(file, covers, named, evidence[key])
        return files

    def _narrow(self, file: FileResult, covers: Sequence[Cover], named: dict[str, int], evidence: ZoneEvidence) -> None:
        """Close the row groups of a file in which no zone survives; keep, for the others, which rows do."""
        assert file.outline is not None
        assert file.decision is not None
        with self.reopen(file) as source:
            for cover in covers:
                if cover.file.path in named:
                    check_content(cover, named[cover.file.path], source, open_groups(file))
        ends = np.cumsum(file.outline.rows)
        found = evidence.stretches(named, int(ends[-1]) if len(ends) else 0)
        decision = file.decision
        for group in open_groups(file):
            start, stop = int(ends[group] - file.outline.rows[group]), int(ends[group])
            inside = (found.start < stop) & (found.stop > start)
            decision.outcomes[group] &= np.bitwise_or.reduce(found.masks[inside])
            if not decision.outcomes[group] & TRUE:
                decision.stage[group] = INDEX
                continue
            ranges = _joined(found, inside & found.open, start, stop)
            if int((ranges[:, 1] - ranges[:, 0]).sum()) < stop - start:
                self._ranges[id(file), group] = ranges

    # --- rows -------------------------------------------------------------------------------------

    def to_table(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """The rows that match, of the columns named, one or a list (None: all)."""
        schema = self.projected_schema(columns)
        return pa.Table.from_batches(list(self.to_batches(columns)), schema)

    # --- how --------------------------------------------------------------------------------------

    def _batches(self, parts: Sequence[FilePart], names: list[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of row groups, in order; neighbours that are read whole go through one scanner."""
        if not isinstance(self._rows, FileRows):  # a table's rows are counted by their positions: no pages are left out
            yield from super()._batches(parts, names, batch_rows)
            return
        waiting: list[FilePart] = []
        for file, groups in parts:
            for group in groups:
                plan = self._plan(file, group, names)
                if plan is None:
                    if waiting and waiting[-1][0] is file:
                        waiting[-1][1].append(group)
                    else:
                        waiting.append((file, [group]))
                    continue
                yield from super()._batches(waiting, names, batch_rows)
                waiting = []
                yield from self._by_pages(self._rows, file, plan, names).to_batches(batch_rows)
        yield from super()._batches(waiting, names, batch_rows)

    def _plan(self, file: FileResult, group: int, names: list[str] | None) -> PagePlan | None:
        ranges = self._ranges.get((id(file), group))
        wanted = self.schema.names if names is None else names
        if ranges is None or len(set(self.schema.names)) < len(self.schema.names):
            return None
        if any(name not in self.schema.names for name in wanted):
            return None  # a path into a struct
        with self.reopen(file) as source:
            return plan_pages(source, group, wanted, ranges)

    def _by_pages(self, rows: FileRows, file: FileResult, plan: PagePlan, names: list[str] | None) -> pa.Table:
        part = (file, [plan.row_group])
        check_times([part], names)
        with self.reopen(file) as source:
            found = read_pages(source, plan, self.schema)
        if plan.whole:
            table = rows.dataset([part], plan.whole).to_table(columns=plan.whole)
            pieces = [table.slice(a, b - a) for a, b in plan.ranges.tolist()]
            table = pa.concat_tables(pieces)
            found |= {name: table.column(name) for name in plan.whole}
        n = int((plan.ranges[:, 1] - plan.ranges[:, 0]).sum())
        wanted = self.schema.names if names is None else names
        columns = [found[name] if name in found else self._constant(file, name, n) for name in wanted]
        self.pages.read += plan.pages_read
        self.pages.left += plan.pages_skipped
        self.pages.bytes_left += plan.bytes_skipped
        schema = pa.schema([self.schema.field(name) for name in wanted])
        if not columns:
            return pa.table({"": pa.nulls(n)}).select([])
        return pa.Table.from_arrays(columns, schema=schema)

    def _constant(self, file: FileResult, name: str, rows: int) -> pa.Array:
        """A column of the folder's name, or one that this file lacks."""
        kind = self.schema.field(name).type
        key = next((key for key in self._search.keys if key.path == (name,)), None)
        value = None if key is None else partition_value(key, file.file.partitions)
        if value is None:
            return pa.nulls(rows, kind)
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        return pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([text], kind.value_type)
        )


def _joined(found: Stretches, kept: Any, start: int, stop: int) -> RowRanges:
    """The rows of some stretches inside a row group, counted from its start; neighbours joined."""
    ranges: list[list[int]] = []
    for a, b in zip(found.start[kept].tolist(), found.stop[kept].tolist(), strict=True):
        a, b = max(a, start) - start, min(b, stop) - start
        if ranges and ranges[-1][1] == a:
            ranges[-1][1] = b
        else:
            ranges.append([a, b])
    return np.array(ranges, np.int64).reshape(-1, 2)
