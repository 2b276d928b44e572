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
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.format import compact
from parquet_bloom.format.arrow_types import arrows_own
from parquet_bloom.format.footer import MAGIC, derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import SCHEMA_KEY, own_leaves, stored_schema
from parquet_bloom.rows.pages import ColumnPages, pages_of
from parquet_bloom.rows.selection import RowSelection, taken
from parquet_bloom.rows.unchanged import opened_same, version_of
from parquet_bloom.storage.open_file import OpenFile

_LARGE = 1 << 20  # bytes of a chunk; of a smaller one all pages may be read


@dataclass(slots=True)
class PagesRead:
    """The data pages of columns that were read by pages: how many were read, how many not, and the bytes of these."""

    read: int = 0
    left: int = 0
    bytes_left: int = 0

    def add(self, pages: ColumnPages) -> None:
        """Count those of a column."""
        self.read += len(pages.pages)
        self.left += pages.of_pages - len(pages.pages)
        self.bytes_left += pages.of_bytes - pages.n_bytes


Reader = Callable[[pa.Buffer, list[str]], Sequence[pa.ChunkedArray]]


def columns_at(
    part: FilePart,
    names: Sequence[str],
    wanted: RowSelection,
    read: Reader,
    counts: PagesRead,
    constant: Sequence[str] = (),
) -> dict[str, pa.ChunkedArray]:
    """Some rows of the one row group of a part, of those columns that are read by pages.

    names     of the file's columns; the others are missing in what this returns
    read      decodes columns, by their names, of a Parquet file in memory
    counts    counts the pages
    constant  further columns that `read` gives, which have one value in all rows
    Raises DamagedFileError, FileChangedError, StorageError, and what `read` raises.
    """
    file, (group,) = part
    outline = file.outline
    assert outline is not None
    leaves = flat_columns(outline)
    found: dict[str, pa.ChunkedArray] = {}
    if not file.file.is_local or not any(name in leaves for name in names):
        return found
    with opened_same(version_of(file)) as source:
        some = (pages_of(source, outline, group, leaves[name], wanted) for name in names if name in leaves)
        chosen = [one for one in some if one is not None and (one.of_bytes < _LARGE or 2 * one.n_bytes < one.of_bytes)]
        for one in pages_files(source, outline, group, chosen):
            own = [pages.leaf.path[0] for pages in one.columns]
            columns = read(one.data, [*own, *constant])
            if len(columns[0]) != one.rows:
                text = f"row group {group}, column {own[0]}: pages of {one.rows} rows decode to {len(columns[0])}"
                raise DamagedFileError(source.path, text)
            for name, pages, column in zip(own, one.columns, columns, strict=False):
                found[name] = wanted_of(column, pages, wanted)
                counts.add(pages)
            n = wanted.count
            found |= {name: column.slice(0, n) for name, column in zip(constant, columns[len(own) :], strict=True)}
            constant = ()
    return found


@dataclass(frozen=True, slots=True)
class PagesFile:
    """A Parquet file in memory.

    data     its bytes
    columns  of which it has pages, each a top-level column
    rows     it has in its one row group
    """

    data: pa.Buffer
    columns: Sequence[ColumnPages]
    rows: int


def pages_files(
    source: OpenFile, outline: Outline, row_group: int, columns: Sequence[ColumnPages]
) -> Iterator[PagesFile]:
    """Read pages of a row group, as few files as possible. Raises DamagedFileError, StorageError.

    columns  in the order of the schema; each is the only leaf of its top-level column
    """
    spans = [column.spans for column in columns]
    parts = iter(source.read_ranges([span for some in spans for span in some]))
    bodies = [[next(parts) for _ in some] for some in spans]
    for rows in dict.fromkeys(column.n_rows for column in columns):
        chosen = [n for n, column in enumerate(columns) if column.n_rows == rows]
        some = [columns[n] for n in chosen]
        body = [part for n in chosen for part in bodies[n]]
        footer = compact.encode(_metadata(outline, row_group, some, rows))
        data = arrows_own(MAGIC, *body, footer, len(footer).to_bytes(4, "little"), MAGIC)
        yield PagesFile(data, some, rows)


def wanted_of(column: pa.ChunkedArray, pages: ColumnPages, wanted: RowSelection) -> pa.ChunkedArray:
    """The rows that are wanted, out of a column of pages that have more."""
    lengths = pages.rows[:, 1] - pages.rows[:, 0]
    positions = wanted.positions()
    page = np.searchsorted(pages.rows[:, 0], positions, "right") - 1
    at = (np.cumsum(lengths) - lengths)[page] + positions - pages.rows[page, 0]
    parts, start = [], 0
    for chunk in column.chunks:
        stop = start + len(chunk)
        parts.append(taken(chunk, at[slice(*np.searchsorted(at, (start, stop)))] - start))
        start = stop
    return pa.chunked_array(parts, column.type)


# --- footers --------------------------------------------------------------------------------------


def _metadata(outline: Outline, row_group: int, columns: Sequence[ColumnPages], rows: int) -> FileMetaData:
    elements, tops = outline.metadata.schema, _tops(outline)
    schema = [SchemaElement(name=elements[0].name, num_children=len(columns))]
    chunks = []
    at = len(MAGIC)
    for column in columns:
        first, stop = tops[_top_of(outline, column.leaf.element)]
        schema += elements[first:stop]
        size = column.n_bytes
        kind, codec = (int(outline.slots[slot, row_group, column.leaf.index]) for slot in (Slot.TYPE, Slot.CODEC))
        chunk = ColumnMetaData(
            type=kind,
            encodings=[],
            path_in_schema=[element.name for element in elements[first:stop]],
            codec=codec,
            num_values=rows,
            total_uncompressed_size=size,
            total_compressed_size=size,
            data_page_offset=at + column.dictionary[1],
            dictionary_page_offset=at if column.dictionary[1] else None,
        )
        chunks.append(ColumnChunk(file_offset=0, meta_data=chunk))
        at += size
    arrow = _arrow_schema(outline, tuple(_top_of(outline, column.leaf.element) for column in columns))
    return FileMetaData(
        version=2,
        schema=schema,
        num_rows=rows,
        row_groups=[RowGroup(columns=chunks, total_byte_size=at, num_rows=rows)],
        key_value_metadata=None if arrow is None else [KeyValue(key=SCHEMA_KEY, value=arrow)],
        created_by=outline.metadata.created_by,  # pyarrow knows by it which mistakes of old writers to make good
    )


@derived
def flat_columns(outline: Outline) -> dict[str, Leaf]:
    """The top-level columns that are read by pages, by name in the file: those of one leaf that is not repeated."""
    found: dict[str, list[Leaf]] = {}
    for leaf in own_leaves(outline):
        found.setdefault(leaf.path[0], []).append(leaf)
    return {name: leaves[0] for name, leaves in found.items() if len(leaves) == 1 and not leaves[0].repeated}


@derived
def _tops(outline: Outline) -> list[tuple[int, int]]:
    """The schema elements [first, stop) of each top-level column."""
    elements = outline.metadata.schema
    firsts: list[int] = []
    at = 1
    for _ in range(elements[0].num_children or 0):
        firsts.append(at)
        missing = 1  # elements of this column that are still to come
        while missing:
            missing += (elements[at].num_children or 0) - 1
            at += 1
    return list(zip(firsts, [*firsts[1:], at], strict=True))


def _top_of(outline: Outline, element: int) -> int:
    return bisect_right(_tops(outline), element, key=lambda top: top[0]) - 1


@derived
def _arrow_schema(outline: Outline, tops: tuple[int, ...]) -> str | None:
    """The Arrow schema that the writer put into the file, cut to some columns; None without one, or an odd one.

    pyarrow takes a column's type in it by the column's place, and nothing where it has another number of columns.
    """
    stored = stored_schema(outline)
    if stored is None or len(stored) != len(_tops(outline)):
        return None
    cut = pa.schema([stored.field(top) for top in tops])
    return base64.b64encode(cut.serialize()).decode()
