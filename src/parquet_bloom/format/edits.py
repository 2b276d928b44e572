"""Edits of a footer or a page index that keep all they do not understand.

The generic tree (format.compact_tree) keeps a later version's fields, extension field 32767, unknown union members
and odd orders.

Which fields hold absolute offsets: docs/formats.md section 6, repeated at `_move_chunk` below.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parquet_bloom._thrift.parquet.ttypes import FileMetaData, OffsetIndex
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    BINARY,
    DRAFT_FILTER_FIELD,
    FILTER_FIELDS,
    I16,
    I32,
    I64,
    STRUCT,
    ColumnChunkId,
    ColumnMetaDataId,
    FileMetaDataId,
    KeyValueId,
    Node,
    NodeList,
    OffsetIndexId,
    PageLocationId,
    RowGroupId,
    Template,
    parse,
)
from parquet_bloom.format.footer import ChunkKey, IndexKind


def _template(in_meta_data: Template) -> Template:
    """The fields to open in a footer: down to each ColumnMetaData, the fields to open in that, and key-values."""
    chunks: Template = {RowGroupId.columns: {ColumnChunkId.meta_data: in_meta_data}}
    return {FileMetaDataId.row_groups: chunks, FileMetaDataId.key_value_metadata: {}}


_FOOTER = _template({})
_WITH_TEXTS = _template({ColumnMetaDataId.key_value_metadata: {}, ColumnMetaDataId.statistics: {}})
_OFFSET_INDEX: Template = {OffsetIndexId.page_locations: {}}
EXTENSION = 32767  # the id that parquet-format reserves for extensions (its page BinaryProtocolExtensions)
PairChanges = Sequence[tuple[str, str | None]]  # pairs to add; those of a key with None, that were there, go
StatisticsChanges = Mapping[int, int | bytes | None]
_MAGIC_END = 4  # offsets below lie in the leading magic: 0 or garbage, never moved


class Moves:
    """A monotone map from offsets of the old file to offsets of the new one.

    Built from steps (position, delta): from `position` on, `delta` more bytes precede. A cut is a
    negative delta at its end. Offsets below 4 stay, and offsets past the end move like the end,
    meaningful or not, so that the inverse map gives every one of them back.
    """

    def __init__(self, steps: Sequence[tuple[int, int]] = ()) -> None:
        self.positions: list[int] = []
        self.totals: list[int] = []
        self._total = 0
        for position, delta in steps:
            self.add(position, delta)

    def add(self, position: int, delta: int) -> None:
        """Append a step; positions must not fall."""
        if self.positions and position < self.positions[-1]:
            raise ValueError(f"step at {position} after one at {self.positions[-1]}")
        self._total += delta
        if self.positions and self.positions[-1] == position:
            self.totals[-1] = self._total
        else:
            self.positions.append(position)
            self.totals.append(self._total)

    def then(self, position: int, delta: int) -> Moves:
        """These moves and one step more, behind all of them."""
        longer = Moves()
        longer.positions, longer.totals, longer._total = [*self.positions], [*self.totals], self._total
        if delta:
            longer.add(position, delta)
        return longer

    @property
    def total(self) -> int:
        """By how many bytes the end of the file moves."""
        return self._total

    def __bool__(self) -> bool:
        return any(self.totals)

    def __call__(self, offset: int) -> int:
        """The new file's offset for an old one."""
        if offset < _MAGIC_END:
            return offset
        at = bisect_right(self.positions, offset)
        moved = offset + (self.totals[at - 1] if at else 0)
        if moved >= 1 << 63:
            raise FooterError(f"offset {offset} cannot be moved within 64 bits")
        return moved


@dataclass(slots=True)
class FooterEdit:
    """The changes of a footer.

    moves          applied to every absolute offset that is there
    filter_ranges  (row group, column) -> (bloom_filter_offset in the new file, length or None);
                   None takes the filter's fields out
    index_lengths  (row group, column) -> new offset_index_length
    key_values     position in key_value_metadata -> new value; None takes the pair out
    append         pairs to add at the end
    keep_empty     leave an empty key_value_metadata list behind rather than none
    texts          (row group, column) -> what changes in the chunk's own key-values; a filter in its Statistics
                   goes as well
    statistics     (row group, column) -> fields of its Statistics and their values; None takes a field out
    indexes        (row group, column) -> fields of its ColumnChunk and their values: places of page indexes, as
                   index_changes gives them
    num_rows       of the file
    row_groups     row group -> the RowGroup that takes its place, encoded, and its own moves; None: it goes
    bare           nothing of what a repair may change stays: no Statistics, page index or number of rows. For
                   comparing footers, not for writing them
    """

    moves: Moves = field(default_factory=Moves)
    filter_ranges: Mapping[tuple[int, int], tuple[int, int | None] | None] = field(default_factory=dict)
    index_lengths: Mapping[tuple[int, int], int] = field(default_factory=dict)
    key_values: Mapping[int, str | None] = field(default_factory=dict)
    append: Sequence[tuple[str, str]] = ()
    keep_empty: bool = False
    texts: Mapping[tuple[int, int], PairChanges] = field(default_factory=dict)
    statistics: Mapping[tuple[int, int], StatisticsChanges] = field(default_factory=dict)
    indexes: Mapping[tuple[int, int], Mapping[int, int | None]] = field(default_factory=dict)
    num_rows: int | None = None
    row_groups: Mapping[int, tuple[bytes, Moves] | None] = field(default_factory=dict)
    bare: bool = False

    @property
    def is_of_filters(self) -> bool:
        """Whether nothing changes below a chunk's metadata."""
        return not (self.texts or self.statistics or self.row_groups or self.num_rows is not None or self.bare)


# --- one way to reach a field of a tree, or of a binding, which page indexes come as ---------------


def _get(struct: Any, number: int) -> Any:
    return struct.get(number) if isinstance(struct, Node) else getattr(struct, struct.thrift_spec[number][2])


def _put(struct: Any, number: int, value: int | str | bytes | None, wire: int = I64) -> None:
    if not isinstance(struct, Node):
        setattr(struct, struct.thrift_spec[number][2], value)
    elif value is None:
        struct.drop(number)
    else:
        struct.put(number, value, wire)


def _move(struct: Any, number: int, moves: Moves) -> None:
    old = _get(struct, number)
    if isinstance(old, int) and (new := moves(old)) != old:
        _put(struct, number, new)


def _structs(struct: Any, number: int) -> list[Any]:
    """The list of structs in a field, empty if there is none; FooterError for anything else."""
    found = _get(struct, number)
    if found is None:
        return []
    if not isinstance(found, list):
        raise FooterError(f"field {number} is not the list of structs that the format has there")
    return found


def _pair(key: str, value: str) -> Node:
    pair = Node()
    pair.put(KeyValueId.key, key, BINARY)
    pair.put(KeyValueId.value, value, BINARY)
    return pair


# Page indexes are edited through the bindings, which are faster than the tree, if these write the very bytes again:
# then nothing is in them that the bindings would lose.


def _exact(kind: type[Any], data: bytes) -> Any:
    """Decode through the bindings; None where they would not write the same bytes again."""
    try:
        value, used = compact.decode(kind, data)
    except FooterError:
        return None
    return value if used == len(data) and compact.encode(value) == data else None


def has_extension(data: bytes) -> bool:
    """Whether any struct an edit may touch carries Thrift extension field 32767."""
    if _exact(FileMetaData, data) is not None:
        return False
    node, _ = parse(data, _FOOTER)
    return any(f.id == EXTENSION for n in _nodes(node) for f in n.fields)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for f in node.fields:
        below = [f.value] if isinstance(f.value, Node) else f.value.items if isinstance(f.value, NodeList) else []
        for child in below:
            yield from _nodes(child)


# --- the edits ------------------------------------------------------------------------------------


def _move_chunk(chunk: Any, moves: Moves) -> None:
    for number in (ColumnChunkId.file_offset, ColumnChunkId.offset_index_offset, ColumnChunkId.column_index_offset):
        _move(chunk, number, moves)
    # Metadata of another type than a struct is not ours to understand, and stays.
    if not isinstance(meta := _get(chunk, ColumnChunkId.meta_data), int | bytes | str | list | None):
        for number in (
            ColumnMetaDataId.data_page_offset,
            ColumnMetaDataId.index_page_offset,
            ColumnMetaDataId.dictionary_page_offset,
            ColumnMetaDataId.bloom_filter_offset,
        ):
            _move(meta, number, moves)


def _edit_key_values(root: Node, edit: FooterEdit) -> None:
    if not edit.key_values and not edit.append:
        return
    was_there = _get(root, FileMetaDataId.key_value_metadata) is not None
    pairs = _structs(root, FileMetaDataId.key_value_metadata)
    # From the last position to the first, so that a pair that goes does not shift those still to come.
    for at, value in sorted(edit.key_values.items(), reverse=True):
        if value is None:
            del pairs[at]
        else:
            _put(pairs[at], KeyValueId.value, value, BINARY)
    pairs.extend(_pair(key, value) for key, value in edit.append)
    # `pairs` is the tree's own list where there was one. An empty list and no list are different bytes.
    if not pairs and not edit.keep_empty:
        _put(root, FileMetaDataId.key_value_metadata, None)
    elif not was_there:
        root.put_list(FileMetaDataId.key_value_metadata, pairs)


def _put_filter_range(meta: Node, filter_range: tuple[int, int | None] | None) -> None:
    # A field of another type than a filter's offset or length has is some other program's, and stays. A range is never
    # put over one, because plans leave such chunks out (footer.foreign_filter_fields).
    for (number, wire), value in zip(FILTER_FIELDS.items(), filter_range or (None, None), strict=True):
        if value is not None or meta.wire(number) in (wire, None):
            _put(meta, number, value, wire)


def _write_texts(meta: Any, changes: PairChanges) -> None:
    # Pairs of others keep their order and their bytes. The list goes when it has lost its last pair. One that was there
    # and empty gets no filter in the first place (forms.KProbeForm.chunk_refusal), so nothing here has to bring it
    # back.
    field_id = ColumnMetaDataId.key_value_metadata
    old = _structs(meta, field_id)
    gone = {key for key, value in changes if value is None}
    pairs = [pair for pair in old if _get(pair, KeyValueId.key) not in gone]
    pairs += [_pair(key, value) for key, value in changes if value is not None]
    if _get(meta, field_id) is not None:
        if not pairs:
            _put(meta, field_id, None)
        else:
            old[:] = pairs
    elif pairs:
        meta.put_list(field_id, pairs)
    statistics = _get(meta, ColumnMetaDataId.statistics)
    if isinstance(statistics, Node) and statistics.wire(DRAFT_FILTER_FIELD) == STRUCT:
        statistics.drop(DRAFT_FILTER_FIELD)


_INDEX_FIELDS = {  # of a ColumnChunk: offset, length
    IndexKind.OFFSET: (ColumnChunkId.offset_index_offset, ColumnChunkId.offset_index_length),
    IndexKind.COLUMN: (ColumnChunkId.column_index_offset, ColumnChunkId.column_index_length),
}
_INDEX_WIRES = {
    number: wire for fields in _INDEX_FIELDS.values() for number, wire in zip(fields, (I64, I32), strict=True)
}


def index_changes(
    places: Mapping[IndexKind, Mapping[ChunkKey, tuple[int, int] | None]],
) -> dict[ChunkKey, dict[int, int | None]]:
    """The changes of each ColumnChunk, as FooterEdit has them.

    places  by kind and chunk the offset and the bytes of a new page index; None: the chunk has none any more
    """
    changes: dict[ChunkKey, dict[int, int | None]] = {}
    for kind, chunks in places.items():
        for key, place in chunks.items():
            changes.setdefault(key, {}).update(zip(_INDEX_FIELDS[kind], place or (None, None), strict=True))
    return changes


def _change_statistics(meta: Any, changes: StatisticsChanges) -> None:
    statistics = None
    if isinstance(meta, Node):
        there = meta.wire(ColumnMetaDataId.statistics) is not None
        statistics = meta.get(ColumnMetaDataId.statistics) if there else meta.put_struct(ColumnMetaDataId.statistics)
    if not isinstance(statistics, Node):
        raise FooterError("a chunk has statistics that are no struct")
    for number, value in changes.items():
        # In the place of a flag the draft of 2015 had a filter.
        if value is not None or statistics.wire(number) != STRUCT:
            _put(statistics, number, value)


def _bare(root: Node) -> None:
    _put(root, FileMetaDataId.num_rows, None)
    for group in _structs(root, FileMetaDataId.row_groups):
        for chunk in _structs(group, RowGroupId.columns):
            for number in _INDEX_WIRES:
                _put(chunk, number, None)
            if isinstance(meta := _get(chunk, ColumnChunkId.meta_data), Node):
                _put(meta, ColumnMetaDataId.statistics, None)


def _drop_row_groups(groups: list[Any], replaced: Mapping[int, object]) -> None:
    groups[:] = [group for at, group in enumerate(groups) if replaced.get(at, group) is not None]
    for ordinal, group in enumerate(groups):
        if isinstance(_get(group, RowGroupId.ordinal), int):
            _put(group, RowGroupId.ordinal, ordinal, I16)


def _apply(root: Node, edit: FooterEdit) -> None:
    # The order matters: offsets that are there move first, by the map from old to new; filter ranges are put after
    # that, because they are in the new file's offsets already and must not move again.
    groups = _structs(root, FileMetaDataId.row_groups)
    moves_of = dict.fromkeys(range(len(groups)), edit.moves)
    for i, new in edit.row_groups.items():
        if new is not None:
            groups[i], moves_of[i] = parse(new[0], _WITH_TEXTS[FileMetaDataId.row_groups])[0], new[1]
    moving = bool(edit.moves or edit.row_groups)
    for i, group in enumerate(groups):
        if moving:
            _move(group, RowGroupId.file_offset, moves_of[i])
        for j, chunk in enumerate(_structs(group, RowGroupId.columns)):
            if moving:
                _move_chunk(chunk, moves_of[i])
            if (i, j) in edit.index_lengths:
                _put(chunk, ColumnChunkId.offset_index_length, edit.index_lengths[i, j], I32)
            if (i, j) in edit.filter_ranges:
                meta = _get(chunk, ColumnChunkId.meta_data)
                if meta is None or isinstance(meta, int | bytes | str | list):
                    raise FooterError(f"row group {i}, column {j} has no metadata")
                _put_filter_range(meta, edit.filter_ranges[i, j])
            if (i, j) in edit.texts:
                _write_texts(_get(chunk, ColumnChunkId.meta_data), edit.texts[i, j])
            if (i, j) in edit.statistics:
                _change_statistics(_get(chunk, ColumnChunkId.meta_data), edit.statistics[i, j])
            for number, value in edit.indexes.get((i, j), {}).items():
                _put(chunk, number, value, _INDEX_WIRES[number])
    if edit.row_groups:  # last, as all else names row groups by their old numbers
        _drop_row_groups(groups, edit.row_groups)
    if edit.num_rows is not None:
        _put(root, FileMetaDataId.num_rows, edit.num_rows)
    if edit.bare:
        _bare(root)
    _edit_key_values(root, edit)


def edit_footer(data: bytes, edit: FooterEdit) -> bytes:
    """Carry out an edit on footer bytes (FileMetaData, no length, no magic).

    Raises FooterError where the bytes are not Thrift, or not what the format has where the edit goes.
    """
    node, used = parse(data, _FOOTER if edit.is_of_filters else _WITH_TEXTS)
    _apply(node, edit)
    return node.encode() + data[used:]


def move_offset_index(data: bytes, moves: Moves) -> bytes:
    """Move the page offsets of one OffsetIndex; its length may change with the offsets' varints."""
    # Exactly one of `root` and `node` is there: the binding, or the tree where the binding would lose something.
    root = _exact(OffsetIndex, data)
    node, used = (None, len(data)) if root is not None else parse(data, _OFFSET_INDEX)
    if _get(root or node, OffsetIndexId.page_locations) is None:
        raise FooterError("an OffsetIndex has no page_locations")
    for location in _structs(root or node, OffsetIndexId.page_locations):
        if not isinstance(_get(location, PageLocationId.offset), int):
            raise FooterError("a PageLocation has no offset")
        _move(location, PageLocationId.offset, moves)
    return compact.encode(root) if node is None else node.encode() + data[used:]
