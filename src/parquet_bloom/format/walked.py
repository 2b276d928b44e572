"""A footer read without an object for each row group and column chunk, for files that have very many.

A hundred thousand row groups take the bindings a second; the loop takes 0.02 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    ColumnChunkId,
    ColumnMetaDataId,
    FileMetaDataId,
    RowGroupId,
    field_header,
    first_field,
    list_header,
    list_of_structs,
)
from parquet_bloom.format.footer import MAGIC, ChunkKey, ColumnChunks, Footer, IndexKind, derived
from parquet_bloom.format.outline import NONE, Outline, Slot, bounds_stated, extents
from parquet_bloom.format.schema import FLBA, INT96, Leaf

_ROW_GROUP, _CHUNK, _META = range(3)  # kinds of struct in the loop's table
INDEX_SLOTS = {
    IndexKind.OFFSET: (Slot.OFFSET_INDEX, Slot.OFFSET_INDEX_LENGTH),
    IndexKind.COLUMN: (Slot.COLUMN_INDEX, Slot.COLUMN_INDEX_LENGTH),
}


@dataclass(frozen=True, slots=True)
class RowGroupsSpan:
    """The span of the list of row groups in a footer.

    header  of the field, bytes from the footer's start
    start   of the list
    first   of its first element
    count   of elements; 0 too where the footer is not as most are
    """

    header: int
    start: int
    first: int
    count: int


def span_of_row_groups(data: bytes) -> RowGroupsSpan:
    """Find field 4 of FileMetaData, if ids go up to it. Raises FooterError where the bytes are cut off."""
    from parquet_bloom.kernels import compact_walk

    view = np.frombuffer(data, np.uint8)
    at = last = 0
    while at >= 0 and (header := field_header(data, at, last)) is not None:
        id, wire, value = header
        if id <= last or id > FileMetaDataId.row_groups:
            break
        if id == FileMetaDataId.row_groups:
            count, kind, first = list_header(data, value)
            return RowGroupsSpan(at, value, first, count if wire == LIST and kind == STRUCT else 0)
        at, last = compact_walk.end_of(view, value, wire), id
    return RowGroupsSpan(0, 0, 0, 0)


# --- all columns ----------------------------------------------------------------------------------
#
# A footer without an object for each row group and column chunk, for files that have very many of them.
#
#    outline (format.outline)  where pages, filters and page indexes are, and how many values there are
#    Thrift objects             decoded when somebody asks for one
#
# A row group of one column takes the bindings 6 us and 3 kB, the compiled walk 0.15 us and 200 bytes.

CODEC, UNCOMPRESSED_SIZE, ENCODINGS = 0, 1, 2  # slots of `details`; encodings are a span, of two


@lru_cache(1)
def _walk_actions() -> NDArray[np.int64]:
    from parquet_bloom.kernels import compact_walk as w

    table = np.zeros((3, w.FIELDS, 3), np.int64)
    table[_ROW_GROUP, RowGroupId.columns] = w.OUTER, _CHUNK, LIST
    table[_CHUNK, ColumnChunkId.meta_data] = w.ENTER, _META, STRUCT
    table[_META, ColumnMetaDataId.encodings] = w.SPAN_IF, ENCODINGS, LIST
    table[_META, ColumnMetaDataId.codec] = w.STORE, CODEC, I32
    table[_META, ColumnMetaDataId.total_uncompressed_size] = w.STORE, UNCOMPRESSED_SIZE, I64
    return table


class WalkedFooter(Footer):
    """A footer by its outline: where filters and structures are, without an object for each column chunk.

    What the outline does not tell is decoded when somebody asks for it.
    """

    def __init__(self, outline: Outline, decode: Callable[[], FileMetaData]) -> None:
        """Take an outline that the walk made.

        decode  gives the whole footer; whatever it raises comes to who asks for an object
        """
        own = {"data": outline.data, "start": outline.start, "leaves": outline.leaves, "memory": {}}
        self.__dict__.update(own, _outline=outline, _decode=decode)

    _outline: Outline
    _decode: Callable[[], FileMetaData]

    @cached_property
    def metadata(self) -> FileMetaData:
        """The whole footer as objects, decoded when it is needed."""
        return self._decode()

    @property
    def n_row_groups(self) -> int:
        """How many row groups the file has."""
        return self._outline.n_row_groups

    @property
    def created_by(self) -> str | None:
        """The program that wrote the file."""
        name: str | None = self._outline.metadata.created_by
        return name

    @cached_property
    def _row_groups(self) -> RowGroupsSpan:
        return span_of_row_groups(self.data)

    @cached_property
    def head(self) -> FileMetaData:
        """The footer without its row groups and what lies behind them."""
        return compact.decode(FileMetaData, self.data[: self._row_groups.header] + STOP)[0]

    @cached_property
    def rows(self) -> list[int]:
        """Rows of each row group."""
        rows: list[int] = self._outline.rows.tolist()
        return rows

    @property
    def foreign_filter_fields(self) -> set[ChunkKey]:
        """None: the walk gives up on such footers."""
        return set()

    @derived
    def column_chunks(self, column: int) -> ColumnChunks:
        """The chunks of one column, as lists a row group an entry."""
        slots = self._outline.slots[:, :, column]
        starts, stops = (ends[:, column].tolist() for ends in extents(self._outline))
        nulls = [None if n == NONE else n for n in slots[Slot.NULL_COUNT].tolist()]
        codecs = np.maximum(self.details[CODEC, :, column], 0)
        return ColumnChunks(
            slots[Slot.NUM_VALUES].tolist(),
            nulls,
            slots[Slot.COMPRESSED_SIZE].tolist(),
            list(zip(starts, stops, strict=True)),
            codecs.tolist(),
        )

    def bounds_stated(self, column: int) -> list[int]:
        """As Footer has it."""
        found: list[int] = bounds_stated(self._outline.slots[:, :, column]).tolist()
        return found

    @cached_property
    def details(self) -> NDArray[np.int64]:
        """The fields for decoding: int64[4, row groups, columns], by CODEC and so on, NONE where there is none."""
        from parquet_bloom.kernels import compact_walk

        n = self.n_row_groups
        rows, found = np.empty((0, n), np.int64), np.full((4, n, len(self.leaves)), NONE, np.int64)
        lists = np.array([[0], [self._row_groups.first], [len(self.data)], [n]])
        ends = np.empty(1, np.int64)
        compact_walk.walk_each(np.frombuffer(self.data, np.uint8), lists, _walk_actions(), rows, found, ends)
        return found

    @property
    def slots(self) -> NDArray[np.int64]:
        """int64[Slot.COUNT, row groups, columns], see format.outline."""
        return self._outline.slots

    @property
    def key_values(self) -> list[KeyValue] | None:
        """The key-values of the file."""
        pairs: list[KeyValue] | None = self._outline.metadata.key_value_metadata
        return pairs

    @cached_property
    def draft_filters(self) -> dict[ChunkKey, bytes]:
        """The filters where the draft of 2015 had them, as they lie in the footer."""
        return dict(self._spans(Slot.DRAFT_FILTER))

    def chunk_key_values(self) -> Iterator[tuple[int, int, list[KeyValue]]]:
        """(row group, column, key-values) of each chunk that has some."""
        header = first_field(ColumnMetaDataId.key_value_metadata, LIST)
        for (i, j), data in self._spans(Slot.KEY_VALUES):
            pairs = compact.decode(ColumnMetaData, header + data + STOP)[0].key_value_metadata
            if pairs:
                yield i, j, pairs

    def _spans(self, slot: Slot) -> Iterator[tuple[ChunkKey, bytes]]:
        starts, lengths = self._outline.slots[slot], self._outline.slots[slot + 1]
        for i, j in np.argwhere(starts != NONE).tolist():
            yield (i, j), self.data[starts[i, j] : starts[i, j] + lengths[i, j]]

    @cached_property
    def filter_ranges(self) -> dict[ChunkKey, tuple[int, int | None]]:
        """(row group, column) -> offset and length of a filter, the length None where the footer has none."""
        offsets, lengths = self._outline.slots[Slot.FILTER_OFFSET], self._outline.slots[Slot.FILTER_LENGTH]
        here = offsets > 0
        pairs = zip(offsets[here].tolist(), lengths[here].tolist(), strict=True)
        return {
            (i, j): (offset, None if length == NONE else length)
            for (i, j), (offset, length) in zip(np.argwhere(here).tolist(), pairs, strict=True)
        }

    @derived
    def index_ranges(self, kind: IndexKind) -> dict[ChunkKey, tuple[int, int]]:
        """(row group, column) -> offset and bytes of a page index."""
        offsets, lengths = (self._outline.slots[slot] for slot in INDEX_SLOTS[kind])
        here = (offsets > 0) & (lengths > 0)
        keys = zip(*(axis.tolist() for axis in np.nonzero(here)), strict=True)
        return dict(zip(keys, zip(offsets[here].tolist(), lengths[here].tolist(), strict=True), strict=True))

    @cached_property
    def filter_fields(self) -> set[ChunkKey]:
        """The chunks with a field of a filter, whatever it says."""
        slots = self._outline.slots
        here = (slots[Slot.FILTER_OFFSET] != NONE) | (slots[Slot.FILTER_LENGTH] != NONE)
        return {(i, j) for i, j in np.argwhere(here).tolist()}

    @cached_property
    def structure_starts(self) -> list[int]:
        """The starts of chunks, page indexes, filters and the footer, ascending."""
        outline = self._outline
        pointers = (Slot.OFFSET_INDEX, Slot.COLUMN_INDEX, Slot.FILTER_OFFSET)
        others = [slot[slot > 0] for slot in (outline.slots[pointer] for pointer in pointers)]
        starts: list[int] = np.unique(np.concatenate([[self.start], extents(outline)[0].reshape(-1), *others])).tolist()
        return starts


# --- one column -----------------------------------------------------------------------------------
#
# A footer for one column of a file: what a decoder needs of it, and nothing that could get in its way.
#
# The schema is the path to one leaf, without any logical type; of every row group only that leaf's chunk is left, and
# of it only where its pages lie and how they are stored. Columns have names of ours, as a file's may be no UTF-8.


def one_column(footer: Footer, leaf: Leaf) -> bytes:
    """The bytes of such a footer, without length and magic."""
    schema = _schema(footer, leaf)
    head = footer.head
    # created_by stays: pyarrow knows by it which old writers' mistakes to make good.
    made = FileMetaData(
        version=head.version or 1,
        schema=schema,
        num_rows=head.num_rows or 0,
        row_groups=[],
        created_by=footer.created_by,
    )
    names = [element.name for element in schema[1:]]
    if isinstance(footer, WalkedFooter):
        data = compact.encode(made)
        span = span_of_row_groups(data)
        groups = _row_groups(footer, leaf, names)
        return data[: span.start] + list_of_structs(footer.n_row_groups) + groups + data[span.first :]
    made.row_groups = [_one_chunk(group, leaf.index, names) for group in footer.metadata.row_groups]
    return compact.encode(made)


def _schema(footer: Footer, leaf: Leaf) -> list[SchemaElement]:
    path = elements_to(footer, leaf)
    schema = [SchemaElement(name="schema", num_children=1)]
    for depth, e in enumerate(path):
        last = depth == len(path) - 1
        schema.append(
            SchemaElement(
                type=_decoded_as(e.type) if last else None,
                type_length=(12 if e.type == INT96 else e.type_length) if last else None,
                repetition_type=e.repetition_type or 0,
                name=f"c{depth}",
                num_children=None if last else 1,
            )
        )
    return schema


def _decoded_as(physical: int) -> int:
    """INT96 lies in pages as 12 bytes, which pyarrow would make a timestamp of, not always the same one."""
    return FLBA if physical == INT96 else physical


def elements_to(footer: Footer, leaf: Leaf) -> list[SchemaElement]:
    """The schema elements from below the root down to the leaf."""
    schema, parents = footer.head.schema, _parents(footer)
    path, at = [], leaf.element
    while at > 0:
        path.append(schema[at])
        at = parents[at]
    return path[::-1]


@derived
def _parents(footer: Footer) -> list[int]:
    """The index of each element's parent in the schema; -1 of the root."""
    parents: list[int] = []
    above: list[tuple[int, int]] = []  # element, children still to come
    for at, element in enumerate(footer.head.schema):
        while above and above[-1][1] == 0:
            above.pop()
        parents.append(above[-1][0] if above else -1)
        if above:
            above[-1] = above[-1][0], above[-1][1] - 1
        above.append((at, element.num_children or 0))
    return parents


def _one_chunk(group: RowGroup, index: int, names: list[str]) -> RowGroup:
    meta = group.columns[index].meta_data
    dictionary = meta.dictionary_page_offset or 0  # pyarrow would look for a page inside the magic, we do not
    column = ColumnChunk(
        file_offset=0,
        meta_data=ColumnMetaData(
            type=_decoded_as(meta.type),
            encodings=meta.encodings or [],
            path_in_schema=names,
            codec=meta.codec or 0,
            num_values=meta.num_values,
            total_uncompressed_size=meta.total_uncompressed_size or 0,
            total_compressed_size=meta.total_compressed_size,
            data_page_offset=meta.data_page_offset,
            dictionary_page_offset=dictionary if dictionary >= len(MAGIC) else None,
        ),
    )
    return RowGroup(columns=[column], total_byte_size=0, num_rows=group.num_rows or 0)


# --- the same without objects: equal row groups, and the numbers written over places of one length ------------------
#
# A varint may be longer than its number needs: of seven bits a byte, each but the last with its eighth bit set. So row
# groups with equal encodings have equal bytes but for the numbers, which numpy writes into all of them at once.

_NO_ENCODINGS = bytes([I32])  # an empty list of i32
_ELEMENT_TYPE = 0x0F  # the bits of a list's first byte that name the type of its elements
_VARINT = 10  # bytes that any number of 64 bits fits into
_PLACE = -(1 << 63)  # its varint takes all ten bytes, and no byte of a template is like them
_PLACE_BYTES = b"\xff" * (_VARINT - 1) + b"\x01"


def _row_groups(footer: WalkedFooter, leaf: Leaf, names: list[str]) -> bytes:
    slots, details = footer.slots[:, :, leaf.index], footer.details[:, :, leaf.index]
    dictionary = slots[Slot.DICTIONARY_PAGE]
    numbers = np.stack(  # in the order of the template's fields
        [
            slots[Slot.NUM_VALUES],
            np.where(details[UNCOMPRESSED_SIZE] == NONE, 0, details[UNCOMPRESSED_SIZE]),
            slots[Slot.COMPRESSED_SIZE],
            slots[Slot.DATA_PAGE],
            dictionary,
            np.array(footer.rows, np.int64),
        ],
        axis=1,
    )
    has_dictionary = dictionary >= len(MAGIC)
    types = np.where(slots[Slot.TYPE] == INT96, FLBA, slots[Slot.TYPE])
    codecs = np.where(details[CODEC] == NONE, 0, details[CODEC])
    # Row groups of one kind, of which files have few, have one template.
    kinds: dict[tuple[bytes, int, int, bool], list[int]] = {}
    for group, (at, length, *rest) in enumerate(
        zip(
            details[ENCODINGS].tolist(), details[ENCODINGS + 1].tolist(),
            types.tolist(), codecs.tolist(), has_dictionary.tolist(), strict=True,
        )
    ):  # fmt: skip
        encodings = footer.data[at : at + length] if at != NONE else _NO_ENCODINGS
        if encodings[0] & _ELEMENT_TYPE != I32:
            encodings = _NO_ENCODINGS
        kinds.setdefault((encodings, *rest), []).append(group)
    written: list[bytes] = [b""] * footer.n_row_groups
    for (encodings, type_, codec, with_dictionary), groups in kinds.items():
        template, places = _template(encodings, type_, codec, with_dictionary, names)
        columns = [0, 1, 2, 3, 4, 5] if with_dictionary else [0, 1, 2, 3, 5]
        for group, data in zip(groups, _filled(template, places, numbers[groups][:, columns]), strict=True):
            written[group] = data
    return b"".join(written)


def _filled(template: bytes, places: list[int], numbers: NDArray[np.int64]) -> list[bytes]:
    """The template once for each row of numbers, int64[rows, places], with its places taken by them."""
    rows = np.tile(np.frombuffer(template, np.uint8), (len(numbers), 1))
    shifts = np.arange(0, 7 * _VARINT, 7, dtype=np.uint64)
    more = np.array([0x80] * (_VARINT - 1) + [0], np.uint8)
    for at, column in zip(places, numbers.T, strict=True):
        zigzag = (column.astype(np.uint64) << np.uint64(1)) ^ (column >> 63).astype(np.uint64)
        rows[:, at : at + _VARINT] = ((zigzag[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8) | more
    size = len(template)
    data = rows.tobytes()
    return [data[start : start + size] for start in range(0, len(data), size)]


def _template(
    encodings: bytes, type_: int, codec: int, with_dictionary: bool, names: list[str]
) -> tuple[bytes, list[int]]:
    """A row group of one column chunk, encodings as they lie in a footer; and where its numbers go."""
    meta = ColumnMetaData(
        type=type_,
        encodings=[],
        path_in_schema=names,
        codec=codec,
        num_values=_PLACE,
        total_uncompressed_size=_PLACE,
        total_compressed_size=_PLACE,
        data_page_offset=_PLACE,
        dictionary_page_offset=_PLACE if with_dictionary else None,
    )
    chunk = ColumnChunk(file_offset=0, meta_data=meta)
    data = compact.encode(RowGroup(columns=[chunk], total_byte_size=0, num_rows=_PLACE))
    # The list of encodings stands behind the type. It is put in last: a file's bytes may look like a place.
    before = compact.encode(ColumnMetaData(type=type_, encodings=[]))[: -len(_NO_ENCODINGS + STOP)]
    at = data.index(before) + len(before)
    longer = len(encodings) - len(_NO_ENCODINGS)
    places, start = [], 0
    while (start := data.find(_PLACE_BYTES, start)) >= 0:
        places.append(start + longer)
        start += _VARINT
    return data[:at] + encodings + data[at + len(_NO_ENCODINGS) :], places
