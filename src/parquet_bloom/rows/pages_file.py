"""Pages of some columns as a Parquet file in memory, which pyarrow decodes.

pyarrow has no read of single rows. But the dictionary page of a column chunk, those of its data pages that hold the
rows wanted, and a footer of one row group are a small Parquet file:

    column chunk  | dictionary | page 0 | page 1 | page 2 | page 3 |          rows wanted: in 1 and 3
    in memory     | PAR1 | dictionary | page 1 | page 3 | footer: one row group | PAR1 |

Columns whose chosen pages have as many rows together, be it other rows, share a file: each has the rows that are wanted
cut out of its own pages.

Source: parquet.thrift, FileMetaData and ColumnChunk.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    ConvertedType,
    FileMetaData,
    KeyValue,
    PageType,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.format import compact
from parquet_bloom.format.arrow_types import arrows_own, entries_of, fields_of, with_fields
from parquet_bloom.format.compact import PageHead
from parquet_bloom.format.footer import MAGIC, derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import SCHEMA_KEY, leaf_types, own_leaves, stored_schema
from parquet_bloom.rows.pages import (
    ColumnPages,
    Positions,
    RowSelection,
    disbelieve,
    has_offset_index,
    is_dictionary,
    pages_of,
    read_places,
    taken,
)
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, opened_as_searched
from parquet_bloom.storage.open_file import REMOTE_GAP, OpenFile

# --- leaves of nested columns ---------------------------------------------------------------------
#
# Columns of several leaves, read by files of one leaf each, as pages of different leaves begin at different rows.
#
#     place.x   struct<x>  {1}, NULL, {2}       the same rows, so the same structs and lists are NULL or empty in both
#     place.y   struct<y>  {a}, NULL, {b}
#     place     struct<x, y>  {1, a}, NULL, {2, b}
#
# Structs and lists are put together so. Maps are not: pyarrow makes a list of a map's keys alone.

_MAPS = (ConvertedType.MAP, ConvertedType.MAP_KEY_VALUE)
_T = pa.types


@derived
def leaves_by_column(outline: Outline) -> dict[str, tuple[Leaf, ...]]:
    """The top-level columns that can be read by pages, by their names in the file, with their leaves."""
    found: dict[str, list[Leaf]] = {}
    for leaf in own_leaves(outline):
        found.setdefault(leaf.path[0], []).append(leaf)
    return {
        name: tuple(leaves)
        for name, leaves in found.items()
        if len(leaves) == 1 or (_have_own_names(outline, leaves) and not any(_in_map(outline, leaf) for leaf in leaves))
    }


def _have_own_names(outline: Outline, leaves: Sequence[Leaf]) -> bool:
    """Whether no two groups or leaves of a column have one path."""
    places = {at for leaf in leaves for at in _path(outline, leaf)}
    return len(places) == len({leaf.path[:n] for leaf in leaves for n in range(1, len(leaf.path) + 1)})


def _in_map(outline: Outline, leaf: Leaf) -> bool:
    return any(
        element.converted_type in _MAPS or (element.logicalType is not None and element.logicalType.MAP is not None)
        for element in elements_of(outline, leaf)
    )


def elements_of(outline: Outline, leaf: Leaf) -> list[SchemaElement]:
    """The schema elements from a top-level column down to a leaf."""
    return [outline.metadata.schema[at] for at in _path(outline, leaf)]


def _path(outline: Outline, leaf: Leaf) -> list[int]:
    stops = _stops(outline)
    return [at for at in range(1, leaf.element + 1) if stops[at] > leaf.element]


@derived
def _stops(outline: Outline) -> list[int]:
    """The end of the elements below each schema element."""
    elements = outline.metadata.schema
    stops = [0] * len(elements)
    for at in range(len(elements) - 1, -1, -1):
        stop = at + 1
        for _ in range(elements[at].num_children or 0):
            stop = stops[stop]
        stops[at] = stop
    return stops


@derived
def _tops(outline: Outline) -> list[int]:
    """The first schema element of each top-level column."""
    tops, stops = [1], _stops(outline)
    while (after := stops[tops[-1]]) < len(stops):
        tops.append(after)
    return tops


@derived
def arrow_field(outline: Outline, leaf: Leaf) -> pa.Field | None:
    """The field of the Arrow schema that the writer put into the file, cut to one leaf; None without one.

    pyarrow takes a column's type in it by the column's place, and nothing where it has another number of columns.
    """
    stored, tops = stored_schema(outline), _tops(outline)
    if stored is None or len(stored) != len(tops):
        return None
    field = stored.field(tops.index(_path(outline, leaf)[0]))
    leaves = leaves_by_column(outline)[leaf.path[0]]
    return field if len(leaves) == 1 else field.with_type(_cut(field.type, leaves.index(leaf)))


def _cut(kind: pa.DataType, nth: int) -> pa.DataType:
    """A type with the nth of its leaves alone."""
    for field in fields_of(kind):
        n = len(list(leaf_types(field.type)))
        if nth < n:
            return with_fields(kind, [field.with_type(_cut(field.type, nth))])
        nth -= n
    return kind


def put_together(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """A column by its leaves, in order, of the same rows. Raises pyarrow's errors where they are not alike."""
    if len(columns) == 1:
        return columns[0]
    return pa.chunked_array([reduce(_beside, [column.combine_chunks() for column in columns])])


def _beside(one: pa.Array, other: pa.Array) -> pa.Array:
    kind = one.type
    if _T.is_struct(kind) and _T.is_struct(other.type):
        fields, parts = fields_of(kind), [one.field(i) for i in range(kind.num_fields)]
        [more], part = fields_of(other.type), other.field(0)
        if more.name == fields[-1].name:  # a field within both
            parts[-1] = _beside(parts[-1], part)
            fields[-1] = fields[-1].with_type(parts[-1].type)
        else:
            fields, parts = [*fields, more], [*parts, part]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=one.is_null())
    if kind.id != other.type.id or not (_T.is_list(kind) or _T.is_large_list(kind)):
        raise pa.ArrowInvalid(f"{kind} and {other.type} are not put together")
    offsets, others = (array.offsets.to_numpy() for array in (one, other))
    values = _beside(*(a.values.slice(at[0], at[-1] - at[0]) for a, at in ((one, offsets), (other, others))))
    target = with_fields(kind, [kind.value_field.with_type(values.type)])
    starts = pa.array(offsets - offsets[0])
    return type(one).from_arrays(starts, values, type=target, mask=one.is_null())


_LARGE = 1 << 20  # bytes of a chunk; of a smaller one all pages may be read


@dataclass(slots=True)
class PagesRead:
    """The data pages of columns that were read by pages: how many were read, how many not, and the bytes of these."""

    read: int = 0
    left: int = 0
    bytes_left: int = 0

    def add(self, pages: ColumnPages, n_bytes: int) -> None:
        """Count those of a column, of which so many bytes were read."""
        self.read += len(pages.chosen)
        self.left += pages.of_pages - len(pages.chosen)
        self.bytes_left += pages.of_bytes - n_bytes


Reader = Callable[[pa.Buffer, list[str], bool], Sequence[pa.ChunkedArray]]


def columns_at(
    part: FilePart,
    names: Sequence[str],
    wanted: RowSelection,
    read: Reader,
    counts: PagesRead,
    opened: Mapping[int, OpenFile],
) -> dict[str, pa.ChunkedArray]:
    """Some rows of the one row group of a part, of those columns that are read by pages.

    names    of the file's columns; the others are missing in what this returns
    read     decodes columns, by their names, of a Parquet file in memory: whole ones in their type, or, where the last
             argument is True, parts of columns as they are stored
    counts   counts the pages
    opened   files that are open, by id(DataFile)
    Raises DamagedFileError, FileChangedError, StorageError, and what `read` raises.
    """
    file, (group,) = part
    outline = file.outline
    assert outline is not None
    columns = {name: leaves for name, leaves in leaves_by_column(outline).items() if name in names}
    if not file.file.is_local:
        columns = {n: some for n, some in columns.items() if all(has_offset_index(outline, group, one) for one in some)}
    if not columns:
        return {}
    parts: dict[str, list[pa.ChunkedArray]] = {name: [] for name in columns}
    places: dict[bytes, Positions] = {}
    with opened_as_searched(file, opened) as source:
        read_places(source, outline, [group], [leaf for leaves in columns.values() for leaf in leaves])
        for one in _files(source, outline, group, list(columns.values()), wanted):
            own = [column.pages.leaf.path[0] for column in one.columns]
            doubtful = one.columns[0].is_doubtful
            with suppress(*PYARROW_ERRORS) if doubtful else nullcontext():
                decoded = read(one.data, own, len(columns[own[0]]) > 1)
                pairs = list(zip(one.columns, decoded, strict=True))
                if all(body.fits(column) for body, column in pairs):
                    for body, column in pairs:
                        pages = body.pages
                        like = pages.rows.tobytes()  # most columns of a file have pages of the same rows
                        if like not in places:
                            places[like] = places_in(pages, wanted)
                        parts[pages.leaf.path[0]].append(_taken_of(column, places[like]))
                        counts.add(pages, body.of_bytes)
                    continue
            if not doubtful:
                text = f"row group {group}, column {own[0]}: pages of {one.rows} rows decode to {len(decoded[0])}"
                raise DamagedFileError(source.path, text)
            disbelieve(source, outline, group, one.columns[0].pages.leaf)
    return {name: put_together(some) for name, some in parts.items() if len(some) == len(columns[name])}


@dataclass(frozen=True, slots=True)
class _Body:
    """The pages of a column, with their bytes.

    heads  the header of each page
    parts  the bytes: the dictionary page where a page needs it, and the pages
    """

    pages: ColumnPages
    heads: Sequence[PageHead]
    dictionary: bytes
    parts: Sequence[bytes]

    @property
    def of_bytes(self) -> int:
        """How many bytes there are."""
        return len(self.dictionary) + sum(map(len, self.parts))

    @property
    def is_doubtful(self) -> bool:
        """Whether the offset index alone says how many rows there are: headers of version 1 count values."""
        return self.pages.leaf.repeated and any(head.kind == PageType.DATA_PAGE for head in self.heads)

    def fits(self, column: pa.ChunkedArray) -> bool:
        """Whether a column has the rows of these pages; if they are doubtful, as many values in each as its header."""
        rows = self.pages.rows
        ends = np.cumsum(rows[:, 1] - rows[:, 0])
        if len(column) != int(ends[-1]) or not self.is_doubtful:
            return len(column) == int(ends[-1])
        values = np.concatenate([np.zeros(1, np.int64), *map(entries_of, column.chunks)]).cumsum()
        return bool((values[ends] == np.cumsum([head.values for head in self.heads])).all())


@dataclass(frozen=True, slots=True)
class _PagesFile:
    """A Parquet file in memory.

    data     its bytes
    columns  of which it has pages, each a top-level column
    rows     it has in its one row group
    """

    data: pa.Buffer
    columns: Sequence[_Body]
    rows: int


def _files(
    source: OpenFile, outline: Outline, row_group: int, columns: Sequence[Sequence[Leaf]], wanted: RowSelection
) -> Iterator[_PagesFile]:
    """Read pages of a row group, as few files as possible, in the order of leaves. Raises as columns_at.

    columns  the leaves of each; a file has one leaf of a column at most
    """
    nth = {leaf.index: n if len(leaves) > 1 else -1 for leaves in columns for n, leaf in enumerate(leaves)}
    bodies: dict[tuple[int, ...], list[_Body]] = {}
    for body in _bodies(source, outline, row_group, columns, wanted):
        index = body.pages.leaf.index
        bodies.setdefault((nth[index], body.pages.n_rows, index if body.is_doubtful else -1), []).append(body)
    for (_, rows, _), some in sorted(bodies.items(), key=lambda item: item[0]):
        footer = compact.encode(_metadata(outline, row_group, some, rows))
        parts = [part for body in some for part in (body.dictionary, *body.parts)]
        data = arrows_own(MAGIC, *parts, footer, len(footer).to_bytes(4, "little"), MAGIC)
        yield _PagesFile(data, some, rows)


def _bodies(
    source: OpenFile, outline: Outline, row_group: int, columns: Sequence[Sequence[Leaf]], wanted: RowSelection
) -> list[_Body]:
    """The pages that hold rows, of those columns that are read by pages, in the order of the schema.

    Pages first, then the dictionaries that their headers ask for: a dictionary has up to a megabyte, and most pages of
    numbers need none. Small ones come with the pages.
    """
    chosen = []
    for leaves in columns:
        pages = [pages_of(outline, row_group, leaf, wanted) for leaf in leaves]
        some = [one for one in pages if one is not None and (one.of_bytes < _LARGE or 2 * one.n_bytes < one.of_bytes)]
        chosen += some if len(some) == len(leaves) else []
    early = [one.places.dictionary if one.places.dictionary[1] <= REMOTE_GAP else (0, 0) for one in chosen]
    spans = [one.spans for one in chosen]
    wants = [span for one, small, own in zip(chosen, early, spans, strict=True) for span in (small, one.last, *own)]
    answers = iter(source.read_ranges(wants))
    found: list[tuple[ColumnPages, list[PageHead], bytes, list[bytes]]] = []
    doubted: list[Sequence[Leaf]] = []
    for one, own in zip(chosen, spans, strict=True):
        dictionary, last, *parts = [next(answers) for _ in range(2 + len(own))]
        heads = one.heads(one.starts_in(parts), last)
        if heads is None:
            disbelieve(source, outline, row_group, one.leaf)
            doubted.append([one.leaf])
        else:
            found.append((one, heads, dictionary, parts))
    late = [
        one.places.dictionary if not dictionary and any(head.by_dictionary for head in heads) else (0, 0)
        for one, heads, dictionary, _ in found
    ]
    bodies = []
    for (one, heads, dictionary, parts), more in zip(found, source.read_ranges(late), strict=True):
        needed = (dictionary or more) if any(head.by_dictionary for head in heads) else b""
        if needed and not is_dictionary(needed):
            disbelieve(source, outline, row_group, one.leaf)
            doubted.append([one.leaf])
        else:
            bodies.append(_Body(one, heads, needed, parts))
    if doubted:
        bodies += _bodies(source, outline, row_group, doubted, wanted)
    return sorted(bodies, key=lambda body: body.pages.leaf.index)


def places_in(pages: ColumnPages, wanted: RowSelection) -> Positions:
    """The places of the wanted rows among those of the pages that hold them: int64[wanted.count], ascending."""
    rows = pages.rows
    lengths = rows[:, 1] - rows[:, 0]
    positions = wanted.positions()
    page = np.searchsorted(rows[:, 0], positions, "right") - 1
    places: Positions = (np.cumsum(lengths) - lengths)[page] + positions - rows[page, 0]
    return places


def _taken_of(column: pa.ChunkedArray, at: Positions) -> pa.ChunkedArray:
    """The values at these places of a column."""
    if column.num_chunks == 1:
        return pa.chunked_array([taken(column.chunk(0), at)])
    parts, start = [], 0
    for chunk in column.chunks:
        stop = start + len(chunk)
        parts.append(taken(chunk, at[slice(*np.searchsorted(at, (start, stop)))] - start))
        start = stop
    return pa.chunked_array(parts, column.type)


# --- footers --------------------------------------------------------------------------------------


def _metadata(outline: Outline, row_group: int, columns: Sequence[_Body], rows: int) -> FileMetaData:
    schema = [SchemaElement(name=outline.metadata.schema[0].name, num_children=len(columns))]
    chunks = []
    at = len(MAGIC)
    for column in columns:
        leaf, size = column.pages.leaf, column.of_bytes
        elements = elements_of(outline, leaf)
        for element in elements:
            schema.append(copy(element))
            schema[-1].num_children = None if element is elements[-1] else 1
        kind, codec = (int(outline.slots[slot, row_group, leaf.index]) for slot in (Slot.TYPE, Slot.CODEC))
        chunk = ColumnMetaData(
            type=kind,
            encodings=[],
            path_in_schema=[element.name for element in elements],
            codec=codec,
            num_values=sum(head.values or 0 for head in column.heads),
            total_uncompressed_size=size,
            total_compressed_size=size,
            data_page_offset=at + len(column.dictionary),
            dictionary_page_offset=at if column.dictionary else None,
        )
        chunks.append(ColumnChunk(file_offset=0, meta_data=chunk))
        at += size
    fields = [arrow_field(outline, column.pages.leaf) for column in columns]
    pairs = None
    if all(field is not None for field in fields):
        arrow = base64.b64encode(pa.schema(fields).serialize()).decode()
        pairs = [KeyValue(key=SCHEMA_KEY, value=arrow)]
    return FileMetaData(
        version=2,
        schema=schema,
        num_rows=rows,
        row_groups=[RowGroup(columns=chunks, total_byte_size=at, num_rows=rows)],
        key_value_metadata=pairs,
        created_by=outline.metadata.created_by,  # pyarrow knows by it which mistakes of old writers to make good
    )
