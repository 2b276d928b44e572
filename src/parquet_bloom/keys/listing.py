"""The places of a segment: files.parquet, one row a place, in the order of files and row groups.

    place  file  path       row_group  first_row  rows  schema | token ...   | values_0  lower_0  upper_0  xxh3_0 ...
      0      0   a.parquet      0            0     100     0   | inode, ...  |   100        3       995     1803...
      1      0   a.parquet      1          100     100     0   |             |   100        7       998     9217...
      2      1   b.parquet      0            0      50     0   |             |    50        0       1000    1455...

`path` is below the root of the manifest. The token of a file is what recognises its version (storage.version_token); it
is NULL where nothing that the storage says is proof. For each column that is indexed, by its number: the values of the
chunk, bounds in the column's order (format.statistics.domain_of), flags, and the hash of the chunk (filters.content).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError
from parquet_bloom.filters.content import HASH_BYTES, Content
from parquet_bloom.format.schema import INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of
from parquet_bloom.format.values import type_of
from parquet_bloom.keys.entries import open_part, read_rows, write_parquet
from parquet_bloom.keys.manifest import PartFile, Segment
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.version_token import Kept

Integers = NDArray[np.int64]
_LOCAL = {
    "device": pa.uint64(),
    "inode": pa.uint64(),
    "size": pa.int64(),
    "mtime_ns": pa.int64(),
    "ctime_ns": pa.int64(),
}
_STORED = {"etag": pa.string(), "generation": pa.string(), "modified": pa.int64()}
TOKEN = {**_LOCAL, **_STORED}
HASH = pa.binary(HASH_BYTES)
_WHOLE = 4 << 20  # bytes of a listing that is fetched at once, and stays in memory
_LONGEST = 64  # bytes of a bound that is kept


@dataclass(slots=True)
class ListedFile:
    """One file while it is indexed.

    path        below the root
    schema      its number among those of the segment
    rows        of each row group
    values      column -> values of each chunk, NULLs too
    statistics  column -> of each row group
    content     column -> the content that was decoded
    token       of a file without any of the columns: of the version whose footer says so
    """

    path: str
    schema: int
    rows: Integers
    values: dict[int, Integers]
    statistics: dict[int, ColumnStatistics]
    content: dict[int, Content] = field(default_factory=dict)
    token: Kept | None = None


# --- written --------------------------------------------------------------------------------------


def write_listing(into: IndexFiles, name: str, files: Sequence[ListedFile], leaves: dict[int, Leaf]) -> PartFile:
    """Write the listing of a segment.

    leaves  column -> a leaf of its type, which all files of the segment share
    Raises StorageError.
    """
    counts = [len(one.rows) for one in files]
    places = sum(counts)
    arrays: dict[str, Any] = {
        "place": pa.array(np.arange(places, dtype=np.int32)),
        "file": pa.array(np.repeat(np.arange(len(files), dtype=np.int32), counts)),
        "path": _repeated([one.path for one in files], counts, pa.string()),
        "row_group": pa.array(_joined([np.arange(n, dtype=np.int32) for n in counts], np.int32)),
        "first_row": pa.array(_joined([np.cumsum(one.rows) - one.rows for one in files], np.int64)),
        "rows": pa.array(_joined([one.rows for one in files], np.int64)),
        "schema": pa.array(np.repeat(np.array([one.schema for one in files], np.int32), counts)),
    }
    tokens: list[Kept] = [next((c.token for c in one.content.values() if c.token), one.token or {}) for one in files]
    for fact, kind in TOKEN.items():
        arrays[fact] = _repeated([token.get(fact) for token in tokens], counts, kind)
    for number, leaf in leaves.items():
        arrays |= _column_arrays(number, leaf, files, counts)
    return write_places(into, name, pa.table(arrays))


def write_places(into: IndexFiles, name: str, table: pa.Table) -> PartFile:
    """Write a listing as it is in the file. Raises StorageError."""
    return write_parquet(into, name, table, [], compression="zstd", use_dictionary=True)


def _repeated(values: Sequence[Any], counts: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its file has row groups."""
    return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _joined(parts: Sequence[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts]).astype(kind, copy=False)


def _column_arrays(number: int, leaf: Leaf, files: Sequence[ListedFile], counts: Sequence[int]) -> dict[str, pa.Array]:
    known = [number in one.content for one in files]
    some = [one.statistics[number] if has else None for one, has in zip(files, known, strict=True)]

    def flags(name: str) -> pa.Array:
        parts = [np.ones(n, bool) if s is None else getattr(s, name) for s, n in zip(some, counts, strict=True)]
        return pa.array(_joined(parts, bool))

    def bounds(name: str) -> pa.Array:
        parts: list[Any] = []
        for s, n in zip(some, counts, strict=True):
            has = None if s is None else getattr(s, f"has_{name}").tolist()
            parts += [None] * n if s is None or has is None else _bounds(getattr(s, name).tolist(), has, name, leaf)
        return pa.array(parts, _bound_kind(leaf))

    def joined(values: Iterable[Sequence[Any] | None], kind: pa.DataType) -> pa.Array:
        listed = [[None] * n if own is None else list(own) for own, n in zip(values, counts, strict=True)]
        return pa.array([one for own in listed for one in own], kind)

    values = [one.values[number].tolist() if has else None for one, has in zip(files, known, strict=True)]
    hashes = [
        list(map(bytes.fromhex, one.content[number].hashes)) if has else None
        for one, has in zip(files, known, strict=True)
    ]
    return {
        f"values_{number}": joined(values, pa.int64()),
        f"some_null_{number}": flags("some_null"),
        f"some_value_{number}": flags("some_value"),
        f"nan_free_{number}": flags("nan_free"),
        f"lower_{number}": bounds("lower"),
        f"upper_{number}": bounds("upper"),
        f"xxh3_{number}": joined(hashes, HASH),
    }


def _is_wide(leaf: Leaf) -> bool:
    """Whether bounds are whole numbers that may take more than 64 bits: DECIMAL in bytes."""
    return leaf.logical == "DECIMAL" and leaf.physical not in (INT32, INT64)


def _is_unsigned(leaf: Leaf) -> bool:
    return leaf.logical == "INTEGER" and not leaf.signed


def _bound_kind(leaf: Leaf) -> pa.DataType:
    domain = domain_of(leaf)
    if domain == "float":
        return pa.float64()
    if domain == "integer" and not _is_wide(leaf):
        return pa.uint64() if _is_unsigned(leaf) else pa.int64()
    return pa.binary()


def _bounds(values: Sequence[Any], has: Sequence[bool], name: str, leaf: Leaf) -> list[Any]:
    if domain_of(leaf) == "integer" and _is_wide(leaf):
        # Two's complement, big-endian, as the format has DECIMAL in bytes.
        return [
            value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) if one else None
            for value, one in zip(values, has, strict=True)
        ]
    if domain_of(leaf) == "bytes":
        # The beginning of a lower bound is one too. The beginning of an upper bound is none.
        return [
            None if not one or (len(value) > _LONGEST and name == "upper") else value[:_LONGEST]
            for value, one in zip(values, has, strict=True)
        ]
    return [value if one else None for value, one in zip(values, has, strict=True)]


# --- read -----------------------------------------------------------------------------------------


def _release() -> None:
    """Let go of the memory that reading a million places took for a moment."""
    pa.default_memory_pool().release_unused()


class Listing:
    """The places of a segment; its file stays open, and each column is read when something needs it.

    paths    of each file, below the root; "" of one that is gone
    first    int64[files + 1]: the first place of each, and the number of all places
    schema   int64[files]
    """

    def __init__(self, location: Location, segment: Segment) -> None:
        """Raises DamagedFileError, StorageError."""
        self._segment = segment
        self.source = open_part(location, segment.listing, _WHOLE)
        try:
            self._read_files()
        except BaseException:
            self.source.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self.source.close()

    def table(self) -> pa.Table:
        """All of it, as it is in the file. Raises DamagedFileError, StorageError."""
        return read_rows(self.source)

    def _read_files(self) -> None:
        segment = self._segment
        table = self._columns(["place", "file", "path", "row_group", "schema"])
        file, group = self._numbers(table, "file"), self._numbers(table, "row_group")
        n = len(file)
        begins = np.flatnonzero(group == 0)
        self.first = np.append(begins, n)
        counts = np.diff(self.first)
        if (
            (self._numbers(table, "place") != np.arange(n)).any()
            or (n and begins[:1].tolist() != [0])
            or (file != np.repeat(np.arange(len(begins)), counts)).any()
            or (group != np.arange(n) - np.repeat(begins, counts)).any()
            or len(begins) != segment.files
        ):
            raise self._damaged("its places are not numbered as the format has it")
        if not pa.types.is_string(table.column("path").type):
            raise self._damaged("path is no column of texts")
        self.paths: list[str] = table.column("path").take(pa.array(begins)).to_pylist()
        self.schema = self._numbers(table, "schema")[begins]
        del table, file, group
        _release()  # the rows of all places
        if None in self.paths or (self.schema < 0).any() or (self.schema >= len(segment.schemas)).any():
            raise self._damaged("a file has no path, or a schema that the manifest does not have")

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def places(self) -> int:
        """How many places there are."""
        return int(self.first[-1])

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """The files that are still among the data: bool[files]."""
        return np.array([bool(path) for path in self.paths], bool)

    @cached_property
    def file_of(self) -> Integers:
        """The file of each place: int64[places]."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @cached_property
    def rows(self) -> tuple[Integers, Integers]:
        """The first row of each place in its file, and its rows: int64[places] both."""
        table = self._columns(["first_row", "rows"])
        return self._numbers(table, "first_row"), self._numbers(table, "rows")

    @cached_property
    def tokens(self) -> list[Kept | None]:
        """The token of each file; None where it has none."""
        table = self._tokens(TOKEN)
        found: list[Kept | None] = []
        for row in table.to_pylist():
            known = {name: value for name, value in row.items() if value is not None}
            found.append(known if len(known) > 1 else None)
        return found

    @cached_property
    def _local_tokens(self) -> list[NDArray[Any]]:
        """device, inode, size, mtime_ns and ctime_ns of each file; zeros where it has none."""
        table = self._tokens(_LOCAL)
        return [table.column(name).fill_null(0).to_numpy() for name in _LOCAL]

    def local_tokens(self, files: NDArray[np.intp]) -> Iterable[tuple[int, ...]]:
        """device, inode, size, mtime_ns and ctime_ns of some files, by their numbers; zeros where one has none."""
        return zip(*(one[files].tolist() for one in self._local_tokens), strict=True)

    @cached_property
    def schemas(self) -> list[int]:
        """The schema of each file, as the segment numbers them."""
        numbers: list[int] = self.schema.tolist()
        return numbers

    def _tokens(self, kinds: dict[str, pa.DataType]) -> pa.Table:
        """Parts of the token of each file: a row a file."""
        table = self._columns(list(kinds))
        for name, kind in kinds.items():
            if table.column(name).type != kind:
                raise self._damaged(f"{name} is {table.column(name).type}, and {kind} is right")
        table = table.take(pa.array(self.first[:-1]))
        _release()  # the rows of all places
        return table

    def content(self, number: int, file: int) -> Content | None:
        """The content of a column of a file when it was indexed; None where the file lacks the column."""
        hashes = self._contents(number)[self.first[file] : self.first[file + 1]].to_pylist()
        if None in hashes:
            return None
        rows = self.rows[1][self.first[file] : self.first[file + 1]].tolist()
        return Content(rows, [one.hex() for one in hashes], self.tokens[file])

    def _contents(self, number: int) -> Any:
        known = self.__dict__.setdefault("_hashes", {})
        if number not in known:
            name = f"xxh3_{number}"
            column = self._columns([name]).column(0)
            if column.type != HASH:
                raise self._damaged(f"{name} is {column.type}, and {HASH} is right")
            known[number] = column.combine_chunks()
        return known[number]

    def statistics(self, number: int, leaf: Leaf) -> ColumnStatistics:
        """The statistics of a column in each place.

        leaf  of the column in some file of the segment: it has the type that all have
        Raises DamagedFileError.
        """
        known = self.__dict__.setdefault("_statistics", {})
        key = number, type_of(leaf)
        if key not in known:
            known[key] = self._read_statistics(number, leaf)
            _release()  # the rows of all places
        found: ColumnStatistics = known[key]
        return found

    def _read_statistics(self, number: int, leaf: Leaf) -> ColumnStatistics:
        names = [f"{name}_{number}" for name in ("some_null", "some_value", "nan_free", "lower", "upper")]
        table = self._columns(names)
        some_null, some_value, nan_free = (self._flags(table, name) for name in names[:3])
        kind = _bound_kind(leaf)
        bounds = []
        for name in names[3:]:
            column = table.column(name).combine_chunks()
            if column.type != kind:
                raise self._damaged(f"{name} is {column.type}, and {kind} is right")
            has = column.is_valid().to_numpy(zero_copy_only=False)
            if kind == pa.binary():
                values: NDArray[Any] = np.empty(len(column), object)
                wide = domain_of(leaf) == "integer"
                plain = [value or b"" for value in column.to_pylist()]
                values[:] = [int.from_bytes(value, "big", signed=True) for value in plain] if wide else plain
            else:
                values = column.fill_null(0).to_numpy()
            bounds.append((values, has & (domain_of(leaf) is not None)))
        (low, has_low), (high, has_high) = bounds
        return ColumnStatistics(some_null, some_value, nan_free, low, high, has_low, has_high)

    def _columns(self, names: list[str]) -> pa.Table:
        missing = set(names) - {leaf.name for leaf in self.source.outline().leaves}
        if missing:
            raise self._damaged(f"has no column {min(missing)}")
        table = read_rows(self.source, None, names)
        _release()  # the pages
        if table.num_rows != self._segment.places:
            raise self._damaged(f"has {table.num_rows:,} rows for {self._segment.places:,} places")
        return table.select(names)

    def _numbers(self, table: pa.Table, name: str) -> NDArray[Any]:
        """A column of whole numbers, in its own width."""
        column = table.column(name)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise self._damaged(f"{name} is no column of whole numbers")
        return np.asarray(column.to_numpy())

    def _flags(self, table: pa.Table, name: str) -> NDArray[np.bool_]:
        column = table.column(name)
        if not pa.types.is_boolean(column.type) or column.null_count:
            raise self._damaged(f"{name} is no column of booleans")
        return np.asarray(column.to_numpy(), bool)

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(self.source.path, reason)
