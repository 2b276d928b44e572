"""One row group written again without some of its rows, as the old one was written: codec, encodings, page version.

    old chunks -> pyarrow decodes physical values -> rows that stay -> pyarrow encodes them, as a file of its own
               -> decoded again and compared with these values -> filters, bounds, page indexes of them

Physical values are all that is decoded and encoded: no logical type, and no Arrow type of the program that wrote the
file, can change a value. The schema, which has these types, stays in the footer.

The new chunks get the file's created_by, whose statistics some readers distrust: then they distrust right ones, which
is safe. Under another name they would believe those of the row groups that stay. No reader reads pages of a release of
today otherwise under an old name, but for pages of version 2 that are not compressed: so all are decoded under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import (
    CompressionCodec,
    Encoding,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
    Statistics,
)
from parquet_bloom.edit.finish import wrong
from parquet_bloom.errors import DamagedFileError, LayoutError, LimitError, parameter
from parquet_bloom.filters.decode import PYARROW_ERRORS, ColumnReader
from parquet_bloom.filters.page_places import data_pages, page_headers
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import StatisticsId
from parquet_bloom.format.edits import StatisticsChanges
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, chunk_extent
from parquet_bloom.format.forms import BATCH_ROWS, BuiltFilter, Format, Sizing
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import is_signed_number
from parquet_bloom.options import limits
from parquet_bloom.output.target import UploadedFile
from parquet_bloom.storage.open_file import OpenFile

_DECODED = 4  # times max_memory is what the rows of one row group may take, which are in memory together
_ENCODINGS = {"RLE", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"}
Kept = NDArray[np.bool_]  # bool[rows of a row group]: whether a row stays


class FilterPlan(NamedTuple):
    """The filter that a new chunk gets. at_start: it lies before the pages of its chunk."""

    form: Format
    sizing: Sizing
    at_start: bool


@dataclass(slots=True)
class NewRowGroup:
    """A row group as it was written again; all offsets are those of a file that begins with the magic and `data`.

    struct   its entry in the footer, without statistics, page indexes and filters
    data     its bytes, filters at the start of chunks included
    filters  column -> its filter
    starts   column -> offset of the filters that are in `data`
    truths, pages  column -> its true statistics; int64[n, 3] of its pages, as data_pages has them
    notes    what could not be kept
    sum      the checksum of `data`
    """

    struct: RowGroup
    data: bytes = b""
    sum: int = 0
    filters: dict[int, BuiltFilter] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    truths: dict[int, ChunkStatistics] = field(default_factory=dict)
    pages: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# --- how chunks are written -----------------------------------------------------------------------


class ChunkSettings(NamedTuple):
    """How a chunk was written, by its metadata and the headers of its first pages.

    dictionary    bytes of the dictionary page, decompressed; -1: there is none
    encoding      of the first data page
    page_version  of data pages, 1 or 2
    """

    codec: str
    dictionary: int
    encoding: str
    page_version: int
    checksums: bool


def settings_of(source: OpenFile, group: int, leaf: Leaf) -> ChunkSettings:
    """Read how a chunk was written. Raises DamagedFileError."""
    footer = source.footer()
    chunks = footer.column_chunks(leaf.index)
    where = f"row group {group}, column {leaf.name}"
    dictionary = -1
    extent, values = chunks.extents[group], chunks.num_values[group]
    for page in page_headers(source, where, extent, values, footer.created_by):
        if page.head.kind == PageType.DICTIONARY_PAGE:
            dictionary = page.head.uncompressed
        elif page.is_data:
            header, _ = compact.decode(PageHeader, source.read(page.at, page.head.length))
            version = 2 if header.type == PageType.DATA_PAGE_V2 else 1
            data = header.data_page_header_v2 if version == 2 else header.data_page_header
            if data is None:
                break
            encoding = Encoding._VALUES_TO_NAMES.get(data.encoding, str(data.encoding))
            codec = CompressionCodec._VALUES_TO_NAMES.get(chunks.codecs[group], str(chunks.codecs[group]))
            return ChunkSettings(codec, dictionary, encoding, version, header.crc is not None)
    raise DamagedFileError(source.path, f"{where} has no page of values")


def _encoded(table: pa.Table, settings: list[ChunkSettings]) -> bytes:
    """The table as a Parquet file of one row group, by the settings of its columns."""
    names = dict(zip(table.column_names, settings, strict=True))
    options: dict[str, Any] = {
        "compression": {name: one.codec.replace("UNCOMPRESSED", "NONE").split("_")[0] for name, one in names.items()},
        "version": "1.0" if any(one.encoding == "PLAIN_DICTIONARY" for one in settings) else "2.6",
        "data_page_version": "2.0" if any(one.page_version == 2 for one in settings) else "1.0",
        "write_page_checksum": any(one.checksums for one in settings),
        "dictionary_pagesize_limit": max(1 << 20, *(one.dictionary for one in settings)),
        "use_dictionary": [name for name, one in names.items() if one.dictionary >= 0],
        "write_statistics": False,
        "store_schema": False,
    }
    plain = {name: "PLAIN" for name, one in names.items() if one.dictionary < 0}
    wanted = {name: one.encoding for name, one in names.items() if name in plain and one.encoding in _ENCODINGS}
    while True:
        sink = pa.BufferOutputStream()
        try:
            with pq.ParquetWriter(sink, table.schema, column_encoding={**plain, **wanted}, **options) as writer:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
            return bytes(sink.getvalue())
        except (pa.ArrowException, OSError):
            if not wanted:
                raise
            wanted = {}  # an encoding that this pyarrow does not write for such a type


# --- one row group --------------------------------------------------------------------------------


def write_row_group(
    source: OpenFile, readers: Sequence[ColumnReader], group: int, kept: Kept, filters: Mapping[int, FilterPlan]
) -> NewRowGroup:
    """Write a row group again with the rows that stay, one at least.

    readers  of all columns; one takes as long to make as the file has row groups
    filters  column -> the filter that it gets
    Raises DamagedFileError, LimitError; LayoutError where the new pages do not decode to the same values.
    """
    footer = source.footer()
    columns, settings, size = [], [], 0
    mask = pa.array(kept)
    for leaf in footer.leaves:
        if isinstance(problem := data_pages(source, group, leaf), str):  # then readers differ over its rows
            raise DamagedFileError(source.path, f"row group {group}, column {leaf.name}: {problem}")
        settings.append(settings_of(source, group, leaf))
        at, parts = 0, []
        for batch in readers[leaf.index].batches(group):
            part = batch.filter(mask.slice(at, len(batch)))
            at, size = at + len(batch), size + part.nbytes
            parts.append(part)
            if size > _DECODED * limits().max_memory:
                text = f"row group {group} takes over {size} bytes when decoded, {_DECODED} times "
                raise LimitError(source.path, text + parameter("max_memory") + "; raise it for a file that you trust")
        columns.append(pa.chunked_array(parts))
    fields = [pa.field(f"c{leaf.index}", columns[leaf.index].type, leaf.optional) for leaf in footer.leaves]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    try:
        data = _encoded(table, settings)
        struct = _struct_of(data, source, group)
    except PYARROW_ERRORS as error:
        raise LayoutError(source.path, f"row group {group} cannot be written again: {error}") from error
    return _checked(source, group, table, data, struct, settings, filters)


def _struct_of(data: bytes, source: OpenFile, group: int) -> RowGroup:
    """The entry of the one row group of a file that pyarrow wrote, with the names and types of the old one."""
    length = int.from_bytes(data[-8:-4], "little")
    groups = compact.decode(FileMetaData, data[-8 - length : -8])[0].row_groups
    if len(groups) != 1:
        raise LayoutError(source.path, f"row group {group} has more rows than pyarrow writes into one")
    struct: RowGroup = groups[0]
    old = source.footer().metadata.row_groups[group]
    for chunk, before in zip(struct.columns, old.columns, strict=True):
        chunk.meta_data.type, chunk.meta_data.path_in_schema = before.meta_data.type, before.meta_data.path_in_schema
        chunk.meta_data.statistics = None
        if before.meta_data.size_statistics is None:
            chunk.meta_data.size_statistics = None
        if before.meta_data.encoding_stats is None:
            chunk.meta_data.encoding_stats = None
    struct.sorting_columns = old.sorting_columns
    struct.ordinal = old.ordinal
    if old.total_compressed_size is None:
        struct.total_compressed_size = None
    if old.file_offset is None:
        struct.file_offset = None
    return struct


def _checked(
    source: OpenFile,
    group: int,
    table: pa.Table,
    data: bytes,
    struct: RowGroup,
    settings: list[ChunkSettings],
    filters: Mapping[int, FilterPlan],
) -> NewRowGroup:
    """Decode the new pages under the old footer's schema and writer, compare, and make what goes with them."""
    metadata, made = source.footer().metadata, NewRowGroup(struct)
    whole = FileMetaData(
        version=metadata.version,
        schema=metadata.schema,
        num_rows=table.num_rows,
        row_groups=[struct],
        created_by=metadata.created_by,
    )
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = compact.encode(whole)
    with UploadedFile(source.location, True) as draft:
        draft.append(data[:end] + footer + len(footer).to_bytes(4, "little") + MAGIC)
        with draft.reopen() as again:
            for leaf, column, old in zip(again.footer().leaves, table.columns, settings, strict=True):
                pages = data_pages(again, 0, leaf)
                if isinstance(pages, str):
                    raise wrong(source, f"row group {group}, column {leaf.name}: {pages}")
                made.pages[leaf.index] = pages
                made.truths[leaf.index] = truth = ChunkStatistics(leaf, pages[:, 2].tolist())
                at = 0
                for batch in ColumnReader(again, leaf).batches(0):
                    if not _same(batch, column.slice(at, len(batch))):
                        raise wrong(source, f"row group {group}, column {leaf.name} has other values")
                    truth.feed(batch)
                    at += len(batch)
                new = settings_of(again, 0, leaf)
                pairs = zip(ChunkSettings._fields, old, new._replace(dictionary=old.dictionary), strict=True)
                other = [f"{name} {now} in the place of {was}" for name, was, now in pairs if now != was]
                made.notes += [f"column {leaf.name}: {', '.join(other)}"] if other else []
    for index, plan in filters.items():
        leaf, n_values = source.footer().leaves[index], max(1, table.num_rows)
        made.filters[index] = plan.form.build(partial(_batches, table.column(index)), leaf, n_values, plan.sizing)
    _lay_out(made, data, filters)
    return made


def _batches(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in column.chunks:
        for at in range(0, len(chunk), BATCH_ROWS):
            yield chunk.slice(at, BATCH_ROWS)


def _same(found: pa.Array, wanted: pa.ChunkedArray) -> bool:
    one = wanted.combine_chunks() if wanted.num_chunks != 1 else wanted.chunk(0)
    if pa.types.is_floating(found.type):  # to the bit: a NaN equals nothing
        as_bits = pa.int32() if found.type.bit_width == 32 else pa.int64()
        found, one = found.view(as_bits), one.view(as_bits)
    return bool(found.equals(one))


def _lay_out(made: NewRowGroup, data: bytes, filters: Mapping[int, FilterPlan]) -> None:
    """Put the chunks one behind the other, a filter before one where it goes there, and move all offsets."""
    parts: list[bytes] = []
    at = len(MAGIC)
    for index, chunk in enumerate(made.struct.columns):
        meta = chunk.meta_data
        built = made.filters.get(index)
        if built is not None and built.data and filters[index].at_start:
            made.starts[index] = at
            parts.append(built.data)
            at += len(built.data)
        start, stop = chunk_extent(meta)
        parts.append(data[start:stop])
        made.pages[index][:, 0] += at - start
        if index == 0 and made.struct.file_offset is not None:
            made.struct.file_offset = at
        meta.data_page_offset += at - start
        if meta.dictionary_page_offset is not None:
            meta.dictionary_page_offset += at - start
        chunk.file_offset = 0
        at += stop - start
    made.data = b"".join(parts)


def statistics_of(
    footer: Footer, key: ChunkKey, truth: ChunkStatistics, bounds: tuple[bytes, bytes] | None
) -> StatisticsChanges:
    """The statistics of a chunk that was written again, in the fields that the old chunk has. bounds: PLAIN bytes."""
    stated = footer.meta(*key).statistics or Statistics()
    low, high = bounds or (None, None)
    ordered = stated.min_value is not None or stated.max_value is not None
    signed = (stated.min is not None or stated.max is not None) and is_signed_number(footer.leaves[key[1]])
    fields = {
        StatisticsId.null_count: None if stated.null_count is None else truth.nulls,
        StatisticsId.nan_count: None if stated.nan_count is None else truth.nans,
        StatisticsId.min_value: low if ordered else None,
        StatisticsId.max_value: high if ordered else None,
        StatisticsId.min: low if signed else None,
        StatisticsId.max: high if signed else None,
    }
    return {number: value for number, value in fields.items() if value is not None}
