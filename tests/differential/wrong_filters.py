"""What is said of filters that are wrong: a table, made by changing one small file in every way there is.

    python tests/differential/wrong_filters.py     writes docs/reliability/wrong-filters.md

The file has two row groups and two columns, four values in each chunk, no statistics, and a filter of 64 bytes for
each chunk. Only the filter of row group 0, column a is changed, or what the footer says of it. Then verify and
inspect are asked about it, and each reader for every value that the chunk holds.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, FileMetaData
from parquet_bloom.format import compact, final

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "wrong-filters.md"
STORED = [11, 22, 33, 44]  # of row group 0, column a
NUM_BYTES = 64
HEADER = final.header(NUM_BYTES)
ENGINES = ("parquet_bloom", "DuckDB", "DataFusion")


@dataclass
class Parts:
    """The file, taken apart: its body, its footer, and where the bitset of (row group, column) begins."""

    body: bytearray
    footer: FileMetaData
    bits: dict[tuple[int, int], int]

    def meta(self, group: int = 0, column: int = 0) -> ColumnMetaData:
        meta: ColumnMetaData = self.footer.row_groups[group].columns[column].meta_data
        return meta

    def bitset(self, group: int = 0, column: int = 0) -> bytes:
        return bytes(self.body[self.bits[group, column] :][:NUM_BYTES])

    def put(self, data: bytes) -> None:
        """Other bits for the filter."""
        self.body[self.bits[0, 0] : self.bits[0, 0] + NUM_BYTES] = data

    @property
    def header_at(self) -> int:
        return self.bits[0, 0] - len(HEADER)

    def file(self) -> bytes:
        footer = compact.encode(self.footer)
        return bytes(self.body) + footer + struct.pack("<I", len(footer)) + b"PAR1"


def base(folder: Path, more: int = 0) -> bytes:
    path = folder / f"base{more}.parquet"
    columns = {"a": [*STORED, 1011, 1022, 1033, 1044], "b": [211, 222, 233, 244, 1211, 1222, 1233, 1244]}
    table = pa.table({name: pa.array([v + more for v in values], pa.int64()) for name, values in columns.items()})
    pq.write_table(table, path, row_group_size=4, use_dictionary=False, write_statistics=False, compression="none")
    parquet_bloom.add_filters(path, in_place=True, columns=["a", "b"], sync=False)
    return path.read_bytes()


def taken_apart(data: bytes) -> Parts:
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = compact.decode(FileMetaData, data[-8 - length : -8])
    bits = {
        (g, c): chunk.meta_data.bloom_filter_offset + len(HEADER)
        for g, group in enumerate(footer.row_groups)
        for c, chunk in enumerate(group.columns)
    }
    return Parts(bytearray(data[: -8 - length]), footer, bits)


# --- the changes ----------------------------------------------------------------------------------

Change = Callable[[Parts], None]


def changes(other: Parts) -> Iterator[tuple[str, Change]]:
    """(class, change); other: a file of the same shape that holds other values."""
    yield "nothing is changed", lambda parts: None
    whole = other.bitset()
    for at in range(8 * NUM_BYTES):
        yield "a bit of the bitset is cleared", lambda parts, at=at: _clear(parts, at)
    for at in range(0, 8 * NUM_BYTES, 7):
        yield "a bit of the bitset is set", lambda parts, at=at: _set(parts, at)
    yield "the bitset is all zero", lambda parts: parts.put(bytes(NUM_BYTES))
    yield "the bitset is all ones", lambda parts: parts.put(b"\xff" * NUM_BYTES)
    yield "the words of the bitset are big-endian", lambda parts: parts.put(_turned(parts.bitset()))
    yield "the blocks of the bitset are swapped", lambda parts: parts.put(parts.bitset()[32:] + parts.bitset()[:32])
    yield "bitset of another row group", lambda parts: parts.put(parts.bitset(1, 0))
    yield "bitset of another column", lambda parts: parts.put(parts.bitset(0, 1))
    yield "bitset of another file", lambda parts: parts.put(whole)
    for at in range(8 * len(HEADER)):
        yield "a bit of the header is flipped", lambda parts, at=at: _flip(parts, at)
    for size in (-64, -1, 0, 1, 32, 63, 65, 96, 128, 1 << 27, 1 << 30, 2**31 - 1):
        yield "numBytes of the header", lambda parts, size=size: _header(parts, _sized(size))
    for field in ("algorithm", "hash", "compression"):
        yield f"{field} of the header is unknown or missing", lambda parts, f=field: _union(parts, f, 0x2C)
        yield f"{field} of the header is unknown or missing", lambda parts, f=field: _union(parts, f, 0x00)
    for offset in (None, 0, -1, 3, 4, 2**62):
        yield "bloom_filter_offset is none, or outside of the body", lambda parts, to=offset: _offset(parts, to)
    for step in (-32, -16, -1, 1, 16, 32):
        yield "bloom_filter_offset is a little off", lambda parts, by=step: _offset(parts, parts.header_at + by)
    for group, column in ((1, 0), (0, 1), (1, 1)):
        yield (
            "bloom_filter_offset is that of another chunk",
            lambda parts, g=group, c=column: _offset(parts, parts.meta(g, c).bloom_filter_offset),
        )
        yield "offsets of two chunks are swapped", lambda parts, g=group, c=column: _swap(parts, g, c)
    for length in (None, 0, -1, 16, 48, 79, 81, 112, 144, 2**31 - 1):
        yield "bloom_filter_length", lambda parts, to=length: _length(parts, to)


def _clear(parts: Parts, at: int) -> None:
    bits = bytearray(parts.bitset())
    bits[at // 8] &= ~(1 << at % 8)
    parts.put(bytes(bits))


def _set(parts: Parts, at: int) -> None:
    bits = bytearray(parts.bitset())
    bits[at // 8] |= 1 << at % 8
    parts.put(bytes(bits))


def _flip(parts: Parts, at: int) -> None:
    parts.body[parts.header_at + at // 8] ^= 1 << at % 8


def _turned(bits: bytes) -> bytes:
    return b"".join(bits[i : i + 4][::-1] for i in range(0, len(bits), 4))


def _sized(size: int) -> bytes:
    zigzag, varint = (size << 1) ^ (size >> 31), b""
    zigzag &= 2**32 - 1
    while zigzag > 127:
        varint, zigzag = varint + bytes([zigzag & 127 | 128]), zigzag >> 7
    return b"\x15" + varint + bytes([zigzag]) + HEADER[3:]


def _header(parts: Parts, header: bytes) -> None:
    """Another header, which may reach into the bits."""
    parts.body[parts.header_at : parts.header_at + len(header)] = header


def _union(parts: Parts, field: str, member: int) -> None:
    at = 4 + 4 * ("algorithm", "hash", "compression").index(field)
    parts.body[parts.header_at + at] = member


def _offset(parts: Parts, to: int | None) -> None:
    parts.meta().bloom_filter_offset = to


def _length(parts: Parts, to: int | None) -> None:
    parts.meta().bloom_filter_length = to


def _swap(parts: Parts, group: int, column: int) -> None:
    one, other = parts.meta(), parts.meta(group, column)
    one.bloom_filter_offset, other.bloom_filter_offset = other.bloom_filter_offset, one.bloom_filter_offset


# --- what is said ---------------------------------------------------------------------------------


def said_by_verify(path: Path) -> str:
    (file,) = parquet_bloom.verify(path).files
    found = [f.status for f in file.filters if (f.row_group, f.column) == (0, "a")]
    return found[0] if found else "no filter"


def said_by_inspect(path: Path) -> str:
    (file,) = parquet_bloom.inspect(path).files
    found = [f for f in file.filters if (f.row_group, f.column) == (0, "a")]
    if not found:
        return "no filter"
    return "problem" if found[0].problems else "note" if found[0].notes else "nothing"


def _by_us(path: Path, value: int) -> int:
    return parquet_bloom.count(path, f"a = {value}")


def _by_duckdb(path: Path, value: int) -> int:
    with duckdb.connect() as connection:
        return len(connection.execute(f"SELECT a FROM '{path}' WHERE a = {value}").fetchall())


def _by_datafusion(path: Path, value: int) -> int:
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    found = context.read_parquet(str(path)).filter(datafusion.col("a") == datafusion.lit(value))
    return sum(batch.num_rows for batch in found.collect())


_COUNT: dict[str, Callable[[Path, int], int]] = {
    "parquet_bloom": _by_us, "DuckDB": _by_duckdb, "DataFusion": _by_datafusion,
}  # fmt: skip


def said_by_reader(engine: str, path: Path) -> str:
    """Whether a reader finds every row, loses some, or fails."""
    try:
        found = [_COUNT[engine](path, value) for value in STORED]
    except BaseException as error:  # DataFusion's panics are no Exception
        if isinstance(error, KeyboardInterrupt | MemoryError):
            raise
        return "fails"
    return "finds all" if found == [1] * len(STORED) else "loses rows"


@dataclass
class Row:
    """What is said of one changed file."""

    what: str
    verify: str
    inspect: str
    readers: dict[str, str]


def rows(folder: Path, engines: tuple[str, ...] = ENGINES) -> Iterator[Row]:
    data, other = base(folder), taken_apart(base(folder, 5000))
    seen: dict[bytes, Row] = {}
    for number, (what, change) in enumerate(changes(other)):
        parts = taken_apart(data)
        change(parts)
        changed = parts.file()
        if what != "nothing is changed" and changed == data:
            continue  # a bit that was clear, or set, before
        if changed not in seen:
            path = folder / f"{number}.parquet"
            path.write_bytes(changed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", parquet_bloom.errors.FilterWarning)
                readers = {engine: said_by_reader(engine, path) for engine in engines}
                seen[changed] = Row(what, said_by_verify(path), said_by_inspect(path), readers)
            path.unlink()
        found = seen[changed]
        yield Row(what, found.verify, found.inspect, found.readers)


# --- the page -------------------------------------------------------------------------------------

_HEAD = """# Wrong filters

What is said of a filter that is wrong. One file is changed in {n} ways (two row groups, two columns, four values in
each chunk, filters of 64 bytes, no statistics): always the filter of row group 0, column a, or what the footer says of
it. `inspect` does not look at values, `verify` does; readers are asked for each of the four values that the chunk
holds. Numbers count changes. Made by `python tests/differential/wrong_filters.py`
with DuckDB {duckdb} and DataFusion {datafusion}.

| change | `verify` | `inspect` | parquet_bloom | DuckDB | DataFusion |
| --- | --- | --- | --- | --- | --- |
"""
_FOOT = """
`verify` calls each filter wrong of which our readers would lose a row. A filter whose bits are wrong under a sound
header cannot be told from a right one without decoding the column: readers that trust it lose rows, all of them. What
`inspect` calls a problem is no evidence for our readers, so they find all.
"""


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def page(found: list[Row]) -> str:
    lines = []
    for what in dict.fromkeys(row.what for row in found):
        some = [row for row in found if row.what == what]
        cells = [Counter(row.verify for row in some), Counter(row.inspect for row in some)]
        cells += [Counter(row.readers[engine] for row in some if engine in row.readers) for engine in ENGINES]
        lines.append(f"| {what} | {' | '.join(map(_told, cells))} |\n")
    head = _HEAD.format(n=f"{len(found) - 1:,}", duckdb=duckdb.__version__, datafusion=datafusion.__version__)
    return head + "".join(lines) + _FOOT


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = page(list(rows(Path(folder))))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
