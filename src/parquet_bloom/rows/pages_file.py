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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    PageType,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.format import compact
from parquet_bloom.format.arrow_types import arrows_own, entries_of
from parquet_bloom.format.compact import PageHead
from parquet_bloom.format.footer import MAGIC, derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.layouts import SCHEMA_KEY, own_leaves, stored_schema
from parquet_bloom.rows.pages import (
    ColumnPages,
    disbelieve,
    has_offset_index,
    is_dictionary,
    pages_of,
    read_indexes,
)
from parquet_bloom.rows.selection import RowSelection, taken
from parquet_bloom.rows.unchanged import PYARROW_ERRORS, opened_same, version_of
from parquet_bloom.search.results import FileResult
from parquet_bloom.storage.open_file import REMOTE_GAP, OpenFile

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


Reader = Callable[[pa.Buffer, list[str]], Sequence[pa.ChunkedArray]]


def columns_at(
    part: FilePart,
    names: Sequence[str],
    wanted: RowSelection,
    read: Reader,
    counts: PagesRead,
    opened: Mapping[int, OpenFile],
    constant: Sequence[str] = (),
) -> dict[str, pa.ChunkedArray]:
    """Some rows of the one row group of a part, of those columns that are read by pages.

    names     of the file's columns; the others are missing in what this returns
    read      decodes columns, by their names, of a Parquet file in memory
    counts    counts the pages
    opened    files that are open, by id(DataFile)
    constant  further columns that `read` gives, which have one value in all rows
    Raises DamagedFileError, FileChangedError, StorageError, and what `read` raises.
    """
    file, (group,) = part
    outline = file.outline
    assert outline is not None
    leaves = [leaf for name, leaf in single_leaves(outline).items() if name in names]
    found: dict[str, pa.ChunkedArray] = {}
    if not leaves or (not file.file.is_local and not any(has_offset_index(outline, group, leaf) for leaf in leaves)):
        return found
    with _opened(file, opened) as source:
        read_indexes(source, outline, [group], leaves)
        for one in _files(source, outline, group, leaves, wanted):
            own = [column.pages.leaf.path[0] for column in one.columns]
            with suppress(*PYARROW_ERRORS) if one.columns[0].is_doubtful else nullcontext():
                columns = read(one.data, [*own, *constant])
                if all(body.fits(column) for body, column in zip(one.columns, columns, strict=False)):
                    for name, body, column in zip(own, one.columns, columns, strict=False):
                        found[name] = wanted_of(column, body.pages, wanted)
                        counts.add(body.pages, body.of_bytes)
                    n = wanted.count
                    found |= {
                        name: column.slice(0, n) for name, column in zip(constant, columns[len(own) :], strict=True)
                    }
                    constant = ()
                    continue
            if not one.columns[0].is_doubtful:
                text = f"row group {group}, column {own[0]}: pages of {one.rows} rows decode to {len(columns[0])}"
                raise DamagedFileError(source.path, text)
            disbelieve(source, outline, group, one.columns[0].pages.leaf)
    return found


@contextmanager
def _opened(file: FileResult, opened: Mapping[int, OpenFile]) -> Iterator[OpenFile]:
    """The file as it was searched."""
    kept = opened.get(id(file.file))
    with opened_same(version_of(file)) if kept is None else nullcontext(kept) as source:
        source.size = file.size  # where the footer ends, in one whose append was cut short
        if not (source.is_of_one_version or source.is_whole_in_memory):
            file.of_one_version = False
        yield source


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
    source: OpenFile, outline: Outline, row_group: int, leaves: Sequence[Leaf], wanted: RowSelection
) -> Iterator[_PagesFile]:
    """Read pages of a row group, as few files as possible. Raises DamagedFileError, StorageError."""
    bodies = _bodies(source, outline, row_group, leaves, wanted)
    sure = [body for body in bodies if not body.is_doubtful]
    by_rows = [[one for one in sure if one.pages.n_rows == n] for n in dict.fromkeys(one.pages.n_rows for one in sure)]
    for some in [*by_rows, *([one] for one in bodies if one.is_doubtful)]:
        rows = some[0].pages.n_rows
        footer = compact.encode(_metadata(outline, row_group, some, rows))
        parts = [part for body in some for part in (body.dictionary, *body.parts)]
        data = arrows_own(MAGIC, *parts, footer, len(footer).to_bytes(4, "little"), MAGIC)
        yield _PagesFile(data, some, rows)


def _bodies(
    source: OpenFile, outline: Outline, row_group: int, leaves: Sequence[Leaf], wanted: RowSelection
) -> list[_Body]:
    """The pages that hold rows, of those columns that are read by pages, in the order of the schema.

    Pages first, then the dictionaries that their headers ask for: a dictionary has up to a megabyte, and most pages of
    numbers need none. Small ones come with the pages.
    """
    some = [pages_of(source, outline, row_group, leaf, wanted) for leaf in leaves]
    chosen = [one for one in some if one is not None and (one.of_bytes < _LARGE or 2 * one.n_bytes < one.of_bytes)]
    early = [one.places.dictionary if one.places.dictionary[1] <= REMOTE_GAP else (0, 0) for one in chosen]
    spans = [one.spans for one in chosen]
    wants = [span for one, small, own in zip(chosen, early, spans, strict=True) for span in (small, one.last, *own)]
    answers = iter(source.read_ranges(wants))
    found: list[tuple[ColumnPages, list[PageHead], bytes, list[bytes]]] = []
    doubted = []
    for one, own in zip(chosen, spans, strict=True):
        dictionary, last, *parts = [next(answers) for _ in range(2 + len(own))]
        heads = one.heads(parts, last)
        if heads is None:
            disbelieve(source, outline, row_group, one.leaf)
            doubted.append(one.leaf)
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
            doubted.append(one.leaf)
        else:
            bodies.append(_Body(one, heads, needed, parts))
    if doubted:
        bodies += _bodies(source, outline, row_group, doubted, wanted)
    return sorted(bodies, key=lambda body: body.pages.leaf.index)


def wanted_of(column: pa.ChunkedArray, pages: ColumnPages, wanted: RowSelection) -> pa.ChunkedArray:
    """The rows that are wanted, out of a column of pages that have more."""
    rows = pages.rows
    lengths = rows[:, 1] - rows[:, 0]
    positions = wanted.positions()
    page = np.searchsorted(rows[:, 0], positions, "right") - 1
    at = (np.cumsum(lengths) - lengths)[page] + positions - rows[page, 0]
    parts, start = [], 0
    for chunk in column.chunks:
        stop = start + len(chunk)
        parts.append(taken(chunk, at[slice(*np.searchsorted(at, (start, stop)))] - start))
        start = stop
    return pa.chunked_array(parts, column.type)


# --- footers --------------------------------------------------------------------------------------


def _metadata(outline: Outline, row_group: int, columns: Sequence[_Body], rows: int) -> FileMetaData:
    elements, tops = outline.metadata.schema, _tops(outline)
    schema = [SchemaElement(name=elements[0].name, num_children=len(columns))]
    chunks = []
    at = len(MAGIC)
    for column in columns:
        leaf, size = column.pages.leaf, column.of_bytes
        first, stop = tops[_top_of(outline, leaf.element)]
        schema += elements[first:stop]
        kind, codec = (int(outline.slots[slot, row_group, leaf.index]) for slot in (Slot.TYPE, Slot.CODEC))
        chunk = ColumnMetaData(
            type=kind,
            encodings=[],
            path_in_schema=[element.name for element in elements[first:stop]],
            codec=codec,
            num_values=sum(head.values or 0 for head in column.heads),
            total_uncompressed_size=size,
            total_compressed_size=size,
            data_page_offset=at + len(column.dictionary),
            dictionary_page_offset=at if column.dictionary else None,
        )
        chunks.append(ColumnChunk(file_offset=0, meta_data=chunk))
        at += size
    arrow = _arrow_schema(outline, tuple(_top_of(outline, column.pages.leaf.element) for column in columns))
    return FileMetaData(
        version=2,
        schema=schema,
        num_rows=rows,
        row_groups=[RowGroup(columns=chunks, total_byte_size=at, num_rows=rows)],
        key_value_metadata=None if arrow is None else [KeyValue(key=SCHEMA_KEY, value=arrow)],
        created_by=outline.metadata.created_by,  # pyarrow knows by it which mistakes of old writers to make good
    )


@derived
def single_leaves(outline: Outline) -> dict[str, Leaf]:
    """The top-level columns that are read by pages, by name in the file: those of one leaf."""
    found: dict[str, list[Leaf]] = {}
    for leaf in own_leaves(outline):
        found.setdefault(leaf.path[0], []).append(leaf)
    return {name: leaves[0] for name, leaves in found.items() if len(leaves) == 1}


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
