"""A footer for one column of a file: what a decoder needs of it, and nothing that could get in its way.

The schema is the path to one leaf, without any logical type; of every row group only that leaf's chunk is left, and
of it only where its pages lie and how they are stored. Columns have names of ours, as a file's may be no UTF-8.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, SchemaElement
from parquet_bloom.formats.metadata.derived import derived
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.outline import NONE, Slot
from parquet_bloom.formats.metadata.row_groups import span_of_row_groups
from parquet_bloom.formats.metadata.schema import FLBA, INT96, Leaf
from parquet_bloom.formats.metadata.walked import CODEC, ENCODINGS, UNCOMPRESSED_SIZE, WalkedFooter
from parquet_bloom.formats.thrift import compact
from parquet_bloom.formats.thrift.compact_tree import I32, I64, LIST, STRUCT, list_of_structs


def one_column(footer: Footer, leaf: Leaf) -> bytes:
    """The bytes of such a footer, without length and magic."""
    schema = _schema(footer, leaf)
    head = footer.head
    # created_by stays: pyarrow knows by it which old writers' mistakes to make good.
    made = FileMetaData(
        version=head.version or 1, schema=schema, num_rows=head.num_rows or 0, row_groups=[],
        created_by=footer.created_by,
    )  # fmt: skip
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
            dictionary_page_offset=meta.dictionary_page_offset,
        ),
    )
    return RowGroup(columns=[column], total_byte_size=0, num_rows=group.num_rows or 0)


# --- the same without objects: equal row groups without numbers, into which the numbers are put -----

_NO_ENCODINGS = bytes([I32])  # an empty list of i32
_NUM_ROWS, _TYPE, _CODEC, _NUM_VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY = range(8)


@lru_cache(1)
def _actions() -> NDArray[np.int64]:
    from parquet_bloom.kernels import compact_edit as k
    from parquet_bloom.kernels.compact_walk import FIELDS

    table = np.zeros((3, FIELDS, 3), np.int64)
    table[0, 1] = k.OUTER, 1, LIST
    table[0, 3] = k.SET, _NUM_ROWS, I64
    table[1, 3] = k.ENTER, 2, STRUCT
    for id, slot, wire in (
        (1, _TYPE, I32), (4, _CODEC, I32), (5, _NUM_VALUES, I64), (6, _UNCOMPRESSED, I64), (7, _COMPRESSED, I64),
        (9, _DATA_PAGE, I64), (11, _DICTIONARY, I64),
    ):  # fmt: skip
        table[2, id] = k.SET, slot, wire
    return table


def _row_groups(footer: WalkedFooter, leaf: Leaf, names: list[str]) -> bytes:
    from parquet_bloom.kernels import compact_edit

    n, slots, details = footer.n_row_groups, footer.slots[:, :, leaf.index], footer.details[:, :, leaf.index]
    values = np.empty((8, n, 1), np.int64)
    values[_NUM_ROWS, :, 0] = footer.rows
    values[_TYPE, :, 0] = np.where(slots[Slot.TYPE] == INT96, FLBA, slots[Slot.TYPE])
    values[_CODEC, :, 0] = np.where(details[CODEC] == NONE, 0, details[CODEC])
    values[_UNCOMPRESSED, :, 0] = np.where(details[UNCOMPRESSED_SIZE] == NONE, 0, details[UNCOMPRESSED_SIZE])
    values[_NUM_VALUES, :, 0], values[_COMPRESSED, :, 0] = slots[Slot.NUM_VALUES], slots[Slot.COMPRESSED_SIZE]
    values[_DATA_PAGE, :, 0] = slots[Slot.DATA_PAGE]
    # compact_edit.KEEP is NONE: a field that is not there stays away.
    values[_DICTIONARY, :, 0] = slots[Slot.DICTIONARY_PAGE]
    bare: dict[bytes, bytes] = {}
    parts = []
    for at, length in zip(details[ENCODINGS].tolist(), details[ENCODINGS + 1].tolist(), strict=True):
        encodings = footer.data[at : at + length] if at != NONE else _NO_ENCODINGS
        if encodings[0] & 15 != I32:
            encodings = _NO_ENCODINGS
        if encodings not in bare:
            bare[encodings] = _bare(encodings, names)
        parts.append(bare[encodings])
    data = np.frombuffer(b"".join(parts), np.uint8)
    out = np.empty(len(data) + 8 * n * compact_edit.FIELD_BYTES, np.uint8)
    steps = np.empty(0, np.int64)
    end, size = compact_edit.edit(data, 0, n, _actions(), values, steps, steps, out)
    assert end == len(data)
    return out[:size].tobytes()


def _bare(encodings: bytes, names: list[str]) -> bytes:
    """A row group of one column chunk that has only what is no number; encodings as they lie in a footer."""
    empty = ColumnChunk(file_offset=0, meta_data=ColumnMetaData(encodings=[], path_in_schema=names))
    data = compact.encode(RowGroup(columns=[empty], total_byte_size=0))
    return data.replace(b"\x29" + _NO_ENCODINGS, b"\x29" + encodings, 1)
