"""The stored values of one column, as physical values, decoded by pyarrow.

pyarrow is given a footer of its own, made for one column: the schema is the path to that leaf
without any logical type, so that every type comes as INT32, INT64, FLOAT, DOUBLE, binary or
fixed_size_binary, nested columns as plain lists and structs, and nothing else in the file (an
unknown type, another column's damage) can get in the way:

    message { optional group user (MAP) { repeated group key_value { required binary key (STRING) } } }
    ->        group user { repeated group key_value { required binary key } }      one chunk per row group

Page checksums are verified: a rotten page must not become a filter that loses rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from parquet_bloom._thrift.parquet.ttypes import PageType
from parquet_bloom.errors import DamagedFileError, LimitError, first_line, parameter
from parquet_bloom.filters.page_places import Page, page_headers
from parquet_bloom.format.footer import MAGIC
from parquet_bloom.format.forms import BATCH_ROWS
from parquet_bloom.format.schema import BYTE_ARRAY, Leaf
from parquet_bloom.format.walked import one_column
from parquet_bloom.kernels.hashes import offsets_of
from parquet_bloom.options import limits
from parquet_bloom.storage.open_file import OpenFile

# --- how large pages are --------------------------------------------------------------------------
#
# How many rows of a column can be decoded at a time within the memory that is allowed, by its page headers.
#
#    | dictionary page: header, bytes | page 0: header, bytes | page 1 | ...      16 KB of zstd can be 2 GB
#
# A page is decompressed whole, and a batch holds its rows' values: as many bytes as the pages they come from, or, out
# of a dictionary, up to its longest value for each row. A page header's two sizes are claims, but pyarrow allocates
# both of them before it reads a byte of the page. So the headers of all chunks are read, of small ones too, and one
# that pyarrow may understand and we do not is refused. Of files on other storages only small chunks are looked at, as
# each header costs a request.

_REMOTE_MOST = 1 << 20  # bytes of a chunk on another storage whose page headers are read


@dataclass(slots=True)
class PageSizes:
    """Sizes in the page headers of a column chunk.

    dictionary  bytes of the dictionary page
    values      of each data page; 0 for pages of another kind, which pyarrow reads and passes over
    bytes       of each of these pages
    data        the data pages
    Bytes are decompressed ones, or compressed ones where these are more.
    """

    dictionary: int = 0
    values: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    data: list[Page] = field(default_factory=list)


def page_sizes(
    source: OpenFile, where: str, extent: tuple[int, int], num_values: int, created_by: str | None
) -> PageSizes | None:
    """Walk over the page headers of a chunk; None where they are not read.

    Arguments and errors as page_headers has them.
    """
    if source.is_remote:
        if extent[1] - extent[0] > _REMOTE_MOST:
            return None
        source.prefetch([(extent[0], extent[1] - extent[0])])  # the pages are read from there, too
    found = PageSizes()
    for page in page_headers(source, where, extent, num_values, created_by):
        most = max(page.head.compressed, page.head.uncompressed)
        if page.head.kind == PageType.DICTIONARY_PAGE:
            found.dictionary = max(found.dictionary, most)
        else:
            found.values.append(page.num_values)
            found.bytes.append(most)
            found.data += [page] if page.is_data else []
    return found


def check_page(path: str, where: str, sizes: PageSizes, longest: int, repeated: bool) -> None:
    """Raise LimitError where one page, or one value, takes more than half of max_memory.

    where  "row group 3, column id", for the error; the others as rows_at_once has them
    """
    most = limits().max_memory
    page = max(sizes.bytes, default=0) + sizes.dictionary
    held = max(sizes.values, default=0) * longest if repeated else longest
    if 2 * max(page, held) > most:
        what = f"a page of it takes {page} bytes" if page >= held else f"values of one page take {held} bytes"
        hint = "raise it for a file that you trust"
        half = "over half of " + parameter("max_memory")
        raise LimitError(path, f"{where}: {what} when decoded, " + half + f", {most}; {hint}")


def rows_at_once(sizes: PageSizes, rows: int, longest: int, wanted: int, repeated: bool) -> int:
    """How many rows to decode at a time, at most `wanted`: half of max_memory is for pages, half for values.

    sizes     that passed check_page
    rows      of the row group
    longest   bytes that one value takes at most, where pages hold less: of a fixed width, or in the dictionary
    repeated  whether a row may have several values
    """
    # Batches of `count` rows are tried, half as many each time. reach[i] is the bytes of the pages before page i, and
    # ends[i] the values up to its end. A batch that begins with page i needs pages i .. last[i] - 1 in memory.
    most = limits().max_memory
    per_row = max(1, -(-sum(sizes.values) // max(rows, 1))) if repeated else 1
    if 2 * max(sum(sizes.bytes), wanted * per_row * longest) <= most:  # of small chunks, all pages at once
        return wanted
    values, pages = np.array(sizes.values, np.int64), np.array(sizes.bytes, np.int64)
    reach = np.concatenate(([0], np.cumsum(pages)))
    ends = np.cumsum(values)
    count = wanted
    while count > 1:
        last = np.minimum(np.searchsorted(ends, ends - values + count * per_row, "left") + 1, len(ends))
        window = int((reach[last] - reach[:-1]).max(initial=0))
        if 2 * max(window, count * per_row * longest) <= most:
            break
        count //= 2
    return count


# --- values of a column chunk ---------------------------------------------------------------------

# What pyarrow raises on bytes it cannot make sense of; names that are no UTF-8 are a ValueError.
PYARROW_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)
_STREAM_BYTES = 1 << 20  # that pyarrow reads at a time
_FEW_BYTES = 2  # of a dictionary for each value: pyarrow hashes every entry
_WHOLE = 64  # times max_memory is what all texts of a dictionary's column may take, as they are hashed one by one


class ColumnReader:
    """Decodes one column of one file; one object may be used by many threads."""

    def __init__(self, source: OpenFile, leaf: Leaf) -> None:
        footer = source.footer()
        self.path = source.path
        self.leaf = leaf
        self._source = source
        self._file: pq.ParquetFile | None = None
        chunks = footer.column_chunks(leaf.index)
        self._rows, self._values = footer.rows, chunks.num_values
        self._extents, self._created_by = chunks.extents, footer.created_by
        self._sizes: tuple[int, PageSizes | None] | None = None  # of the last row group
        data = one_column(footer, leaf)
        shell = MAGIC + data + len(data).to_bytes(4, "little") + MAGIC
        try:
            self._metadata = pq.read_metadata(pa.BufferReader(shell))
        except PYARROW_ERRORS as error:
            raise self._damaged(error) from error

    @contextmanager
    def staying_open(self) -> Iterator[ColumnReader]:
        """Keep the file open for one thread over several row groups: opening takes longer than decoding a small one."""
        held = copy(self)
        with ExitStack() as stack:
            try:
                held._file = stack.enter_context(self._open(None))
            except PYARROW_ERRORS as error:
                raise self._damaged(error) from error
            yield held

    @contextmanager
    def _open(self, span: tuple[int, int] | None, dictionaries: bool = False) -> Iterator[pq.ParquetFile]:
        options: dict[str, Any] = {"binary_type": pa.large_binary()} if self.leaf.physical == BYTE_ARRAY else {}
        if dictionaries:  # format.walked.one_column names the levels of the path c0, c1, ...
            options = {"read_dictionary": [".".join(f"c{i}" for i in range(len(self.leaf.path)))]}
        with (
            self._source.arrow_file(span) as opened,
            pq.ParquetFile(
                opened,
                metadata=self._metadata,
                buffer_size=_STREAM_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
                **options,
            ) as file,
        ):
            yield file

    def batches(self, row_group: int, dictionaries: bool = False) -> Iterator[pa.Array]:
        """Yield the leaf's values of one row group, in order, nulls included, in bounded batches.

        dictionaries  texts that lie in the file as numbers of few entries come so, as dictionary arrays
        Raises DamagedFileError where pages do not decode or a checksum is wrong, LimitError where they take more
        memory than is allowed.
        """
        dictionaries = dictionaries and self._is_dictionary(row_group)
        at_once = self._rows_at_once(row_group, dictionaries)
        kept = None if dictionaries else self._file
        try:
            with self._open(self._extents[row_group], dictionaries) if kept is None else nullcontext(kept) as file:
                rows = 0
                for batch in file.iter_batches(at_once, row_groups=[row_group], use_threads=False):
                    rows += batch.num_rows
                    yield _leaf_values(batch.column(0))
        except PYARROW_ERRORS as error:
            raise self._damaged(error, row_group) from error
        if rows != self._rows[row_group]:  # a filter of a part would deny the rest
            where = f"row group {row_group}, column {self.leaf.name}"
            raise DamagedFileError(self.path, f"{where} decodes to {rows} rows of {self._rows[row_group]}")

    def sizes(self, row_group: int) -> PageSizes | None:
        """As page_sizes, of one row group; the headers are read once."""
        known = self._sizes
        if known is None or known[0] != row_group:
            where, values = f"row group {row_group}, column {self.leaf.name}", int(self._values[row_group] or 0)
            known = row_group, page_sizes(self._source, where, self._extents[row_group], values, self._created_by)
            self._sizes = known
        return known[1]

    def _is_dictionary(self, row_group: int) -> bool:
        """Whether all values of a chunk are numbers of dictionary entries, which are few."""
        sizes = self.sizes(row_group) if self.leaf.physical == BYTE_ARRAY else None
        if sizes is None or not 0 < sizes.dictionary <= _FEW_BYTES * sum(sizes.values):
            return False
        return all(page.head.by_dictionary for page in sizes.data)

    def _rows_at_once(self, row_group: int, dictionaries: bool) -> int:
        values = int(self._values[row_group] or 0)
        where = f"row group {row_group}, column {self.leaf.name}"
        sizes = self.sizes(row_group)
        if sizes is None:
            return BATCH_ROWS
        rows, longest = int(self._rows[row_group] or 0), self.leaf.width or 1
        if self.leaf.physical == BYTE_ARRAY and not dictionaries:
            # No value is longer than the dictionary. Most are far shorter, and then it is worth to look.
            held = values if self.leaf.repeated else min(values, BATCH_ROWS)
            few = 2 * held * sizes.dictionary <= limits().max_memory
            longest = sizes.dictionary if few else self._longest(row_group, values, sizes)
        check_page(self.path, where, sizes, longest, self.leaf.repeated)
        return rows_at_once(sizes, rows, longest, BATCH_ROWS, self.leaf.repeated)

    def _longest(self, row_group: int, values: int, sizes: PageSizes) -> int:
        """Bytes of the longest text in a chunk's dictionary. Raises LimitError where all its values take too many."""
        where, most = f"row group {row_group}, column {self.leaf.name}", _WHOLE * limits().max_memory
        check_page(self.path, where, sizes, 1, repeated=False)  # the dictionary itself
        longest = total = 0
        try:
            with self._open(self._extents[row_group], dictionaries=True) as file:
                # A row is enough for that, but for a list, which may have no element there; and to decode more of it as
                # a dictionary takes as long as all the rest.
                first = file.iter_batches(1, row_groups=[row_group], use_threads=False)
                every = file.iter_batches(BATCH_ROWS, row_groups=[row_group], use_threads=False)
                for number, batch in enumerate(chain(islice(first, 0 if self.leaf.repeated else 1), every)):
                    found = _leaf_values(batch.column(0))
                    # pyarrow reads the dictionary's page first: the first batch has all of it, one of NULLs too, and
                    # where it is empty the chunk has no text in one. Further batches are read only to add up the
                    # bytes of all values.
                    if not pt.is_dictionary(found.type) or not len(found.dictionary):
                        break
                    lengths = np.diff(offsets_of(found.dictionary).astype(np.int64))
                    longest = max(longest, int(lengths.max()))
                    if longest * values <= most:
                        break
                    total += int(lengths[found.indices.drop_null()].sum()) if number or self.leaf.repeated else 0
                    if total > most:
                        text = f"{where}: its values take over {most} bytes when decoded, {_WHOLE} times "
                        hint = parameter("max_memory") + "; raise it for a file that you trust"
                        raise LimitError(self.path, text + hint)
        except PYARROW_ERRORS as error:
            raise self._damaged(error, row_group) from error
        return longest

    def _damaged(self, error: Exception, row_group: int | None = None) -> DamagedFileError:
        where = f"row group {row_group}, " if row_group is not None else ""
        return DamagedFileError(self.path, f"{where}column {self.leaf.name} cannot be decoded: {first_line(error)}")


def is_beyond_pyarrow(error: DamagedFileError, leaf: Leaf) -> bool:
    """Whether pyarrow cannot put a sound column together: a type that it lacks, or lists that it does not join.

    DuckDB's INTEGER[3] with NULLs is such a one: the arrays that pyarrow makes of it contradict each other. Damaged
    pages are an OSError there.
    """
    cause = error.__cause__
    return isinstance(cause, pa.ArrowNotImplementedError) or (leaf.repeated and isinstance(cause, pa.ArrowInvalid))


def _leaf_values(array: pa.Array) -> pa.Array:
    while pt.is_nested(array.type):
        # A list's flatten leaves out what lies under null lists, a struct's hands its nulls down.
        array = array.flatten()[0] if pt.is_struct(array.type) else array.flatten()
    return array
