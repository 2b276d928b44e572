"""The manifest of a key index: its columns, its segments, and the Parquet files of each.

    DIR/manifest.json                               written last: what it does not name is no part of the index
    DIR/segments/SEGMENT/files.parquet              a row a place: file, row group, rows, bounds of the columns
    DIR/columns/NUMBER/SEGMENT-PARTITION.parquet    a row an entry: (hash, place), sorted

An entry says that a value with this hash is in this place. `hash` is the first `bits` bits of XXH64, seed 0, of the
value's PLAIN bytes, as a whole number; a place is a row group, numbered within its segment. The partition of an entry
is its first `partition_bits` bits.

A manifest is words from outside. It names no path but by numbers and by the ids of segments, which are hexadecimal;
every number has limits, and a CRC-32 shows a byte that was lost. Format: docs/key-index.md.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom._thrift.parquet.ttypes import FileMetaData, SchemaElement
from parquet_bloom.errors import DamagedFileError, FooterError, RequestError
from parquet_bloom.format import compact
from parquet_bloom.format.schema import Leaf, leaves_of
from parquet_bloom.format.values import type_of

NAME = "manifest.json"
KIND = "parquet-bloom key index"
VERSION = 2  # 1 recognised chunks by their CRC-32, which misses changes in GZIP
GROUP_ENTRIES = 1 << 15  # of a row group of entries: 100 KB, which a lookup reads
SPARE_BITS = 6  # a segment may grow 64 times by merging before its false places exceed what was wanted
_MOST_BITS = 63  # `hash` is an INT64, which every engine reads
_PART_ENTRIES = 1 << 23  # some 30 MB
MOST_BYTES = 64 << 20  # of a manifest
_ID = re.compile(r"[0-9a-f]{16}")
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1


# --- bits -----------------------------------------------------------------------------------------


def place_bits_of(places: int) -> int:
    """The bits of a place's number, where there are so many."""
    return max(1, (places - 1).bit_length())


def bits_of(entries: int, places: int, false_places: float) -> int:
    """The bits of a hash, so that a lookup meets so many false places, 64 times fewer if there is room for it.

    A value that is in no place meets each of n entries with probability 2 ** -bits. Hash and place are packed into 64
    bits while they are sorted, so very many places leave fewer bits.
    """
    wanted = math.ceil(math.log2(max(entries, 1) / false_places)) + SPARE_BITS
    return max(1, min(wanted, _MOST_BITS, 64 - place_bits_of(places)))


def partition_bits_of(entries: int, bits: int) -> int:
    """The bits that choose a partition, so that none has many more than 8 million entries."""
    return min(bits, max(0, math.ceil(math.log2(max(entries, 1) / _PART_ENTRIES))))


# --- what a manifest says -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartFile:
    """One Parquet file of the index.

    rows          that it has
    size          in bytes
    footer_crc32  of its Thrift footer; pages have checksums of their own
    """

    rows: int
    size: int
    footer_crc32: int


@dataclass(frozen=True, slots=True)
class SegmentColumn:
    """The entries of one column in a segment.

    number  of the column, as the manifest has it
    parts   a file for each partition, those without entries too
    """

    number: int
    bits: int
    partition_bits: int
    parts: tuple[PartFile, ...]

    @property
    def entries(self) -> int:
        """How many there are."""
        return sum(part.rows for part in self.parts)

    @property
    def false_places(self) -> float:
        """How many places a lookup of a value meets by chance, on average."""
        return float(self.entries / 2.0**self.bits)


SchemaKey = tuple[bytes, tuple[tuple[int, int], ...]]  # schema_bytes; (number of a column, its leaf), ascending


def schema_key(thrift: bytes, columns: Mapping[int, int]) -> SchemaKey:
    """The key of a schema among those of a segment; see SegmentSchema."""
    return thrift, tuple(sorted(columns.items()))


@dataclass(frozen=True, slots=True)
class SegmentSchema:
    """The schema of some files of a segment.

    elements  of the schema, as a footer has them
    columns   number of the column -> the leaf, counted in the order of the schema; a column that is missing here is
              missing in these files
    """

    elements: tuple[SchemaElement, ...]
    columns: Mapping[int, int]

    @classmethod
    def of(cls, key: SchemaKey) -> SegmentSchema:
        """The schema that has a key. Raises FooterError."""
        found, _ = compact.decode(FileMetaData, key[0])
        return cls(tuple(found.schema or ()), dict(key[1]))

    @property
    def key(self) -> SchemaKey:
        """Equal schemas have one. In a table files of equal bytes may still have their columns at different leaves."""
        return schema_key(schema_bytes(self.elements), self.columns)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves of the schema. Raises FooterError."""
        return leaves_of(self.elements)


def listing_name(segment: str, revision: int = 0) -> str:
    """The path of a segment's listing below the index."""
    return f"segments/{segment}/files{f'-{revision}' if revision else ''}.parquet"


def part_name(segment: str, column: int, partition: int) -> str:
    """The path of a part of a segment's entries below the index."""
    return f"columns/{column}/{segment}-{partition:05d}.parquet"


@dataclass(frozen=True, slots=True)
class Segment:
    """Files that were indexed at once.

    id       hexadecimal, of 16 digits
    files, places, rows  that it has
    listing  its files.parquet
    revision of the listing: a number of its own for each time that it was written anew, else 0
    columns  those of which some of its files have values
    """

    id: str
    files: int
    places: int
    rows: int
    listing: PartFile
    schemas: tuple[SegmentSchema, ...]
    columns: tuple[SegmentColumn, ...]
    revision: int = 0

    @property
    def listing_name(self) -> str:
        """The path of its listing below the index."""
        return listing_name(self.id, self.revision)

    def part_name(self, column: int, partition: int) -> str:
        """The path of a part below the index."""
        return part_name(self.id, column, partition)

    @property
    def kind(self) -> tuple[Any, ...]:
        """The types of its columns, which all of its files have; segments of one kind may merge."""
        leaves = self.schemas[0].leaves if self.schemas else ()
        columns = self.schemas[0].columns if self.schemas else {}
        return tuple((number, type_of(leaves[at])) for number, at in sorted(columns.items()))

    def column(self, number: int) -> SegmentColumn | None:
        """The entries of a column; None where it has none."""
        return next((one for one in self.columns if one.number == number), None)


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column that is indexed.

    name      as it was named when the index was built
    field_id  of its leaf in the first file that has it; None without one
    """

    name: str
    field_id: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of an index before any other file of it is read.

    created, writer  when, in seconds since 1970, and by which program
    root      the folder or URI that the names of files begin with; names are compared, and nothing is opened by them
    table     as it was named; "" for files
    identity  of the table, as source.snapshot.Snapshot has it
    version   of the table that was indexed
    false_places  that were wanted of a lookup
    columns   by number
    """

    created: int
    writer: str
    root: str
    table: str
    identity: str
    version: str
    false_places: float
    columns: tuple[IndexColumn, ...]
    segments: tuple[Segment, ...]

    @property
    def files(self) -> int:
        """Files of all segments."""
        return sum(segment.files for segment in self.segments)

    @property
    def places(self) -> int:
        """Places of all segments."""
        return sum(segment.places for segment in self.segments)


# --- as JSON --------------------------------------------------------------------------------------


def to_json(manifest: Manifest) -> bytes:
    """A manifest as it is written."""
    words = {
        "created": manifest.created,
        "writer": manifest.writer,
        "root": manifest.root,
        "table": manifest.table,
        "identity": manifest.identity,
        "version": manifest.version,
        "false_places": manifest.false_places,
        "hash": "XXH64, seed 0",
        "columns": [{"name": one.name, "field_id": one.field_id} for one in manifest.columns],
        "segments": [_segment_words(one) for one in manifest.segments],
    }
    whole = {"format": KIND, "format_version": VERSION, "crc32": _crc(words), "index": words}
    return json.dumps(whole, ensure_ascii=False, indent=1).encode()


def _segment_words(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "files": segment.files,
        "places": segment.places,
        "rows": segment.rows,
        "listing": _part_words(segment.listing),
        "revision": segment.revision,
        "schemas": [_schema_words(one) for one in segment.schemas],
        "columns": [
            {
                "number": one.number,
                "bits": one.bits,
                "partition_bits": one.partition_bits,
                "parts": [_part_words(part) for part in one.parts],
            }
            for one in segment.columns
        ],
    }


def _part_words(part: PartFile) -> list[int]:
    return [part.rows, part.size, part.footer_crc32]


def _schema_words(schema: SegmentSchema) -> dict[str, Any]:
    return {
        "thrift": base64.b64encode(schema_bytes(schema.elements)).decode(),
        "columns": {str(number): leaf for number, leaf in schema.columns.items()},
    }


def schema_bytes(elements: Sequence[SchemaElement]) -> bytes:
    """A schema in Thrift's compact protocol: a FileMetaData that has nothing else."""
    return compact.encode(FileMetaData(schema=list(elements)))


def _crc(words: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(words, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())


def says_it_is_one(data: bytes) -> bool:
    """Whether bytes are a manifest of a key index, whole or cut off: other programs have files of this name."""
    return re.match(rb'\s*\{\s*"format"\s*:\s*"' + re.escape(KIND.encode()) + rb'"', data) is not None


def from_json(data: bytes, path: object) -> Manifest:
    """Read a manifest.

    path  for messages
    Raises DamagedFileError for what is none or has a wrong checksum, RequestError for a version that is not known.
    """
    if len(data) > MOST_BYTES:
        raise DamagedFileError(path, f"{len(data):,} bytes are too many for a manifest")
    try:
        whole = json.loads(data)
        if not isinstance(whole, dict) or whole.get("format") != KIND:
            raise ValueError("it does not say that it is one")
        version = _int(whole, "format_version", 1, _INT32)
    except (ValueError, KeyError, RecursionError) as error:
        raise DamagedFileError(path, f"is no manifest of a key index: {error}") from error
    if version > VERSION:
        raise RequestError(
            f"{path}: has version {version} of the format, and this release knows {VERSION}; use a newer release"
        )
    if version < VERSION:
        raise RequestError(
            f"{path}: has version {version} of the format, which misses some changes of files; build it again"
        )
    try:
        words = whole["index"]
        if _crc(words) != whole["crc32"]:
            raise ValueError("its checksum is wrong")
        return _manifest(words)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, FooterError) as error:
        raise DamagedFileError(path, f"its manifest is damaged: {error}") from error


def _manifest(words: Mapping[str, Any]) -> Manifest:
    columns = tuple(IndexColumn(_text(one, "name"), _field_id(one)) for one in _list(words, "columns"))
    false_places = words["false_places"]
    if not isinstance(false_places, int | float) or not 0 < false_places < math.inf:
        raise ValueError("false_places is no positive number")
    segments = tuple(_segment(one, len(columns)) for one in _list(words, "segments"))
    if len({one.id for one in segments}) < len(segments):
        raise ValueError("two segments have one id")
    return Manifest(
        _int(words, "created", 0, _INT64),
        _text(words, "writer"),
        _text(words, "root"),
        _text(words, "table"),
        _text(words, "identity"),
        _text(words, "version"),
        float(false_places),
        columns,
        segments,
    )


def _segment(words: Mapping[str, Any], n_columns: int) -> Segment:
    name = _text(words, "id")
    if not _ID.fullmatch(name):
        raise ValueError("the id of a segment is not 16 hexadecimal digits")
    places = _int(words, "places", 0, _INT32)
    schemas = tuple(_schema(one, n_columns) for one in _list(words, "schemas"))
    columns = tuple(_column(one, n_columns, places) for one in _list(words, "columns"))
    if len({one.number for one in columns}) < len(columns):
        raise ValueError("a segment has one column twice")
    listing = _part(words["listing"])
    if listing.rows != places:
        raise ValueError("the listing of a segment has other places than the segment")
    files, rows = _int(words, "files", 0, _INT32), _int(words, "rows", 0, _INT64)
    return Segment(name, files, places, rows, listing, schemas, columns, _int(words, "revision", 0, _INT32))


def _schema(words: Mapping[str, Any], n_columns: int) -> SegmentSchema:
    thrift = base64.b64decode(_text(words, "thrift"), validate=True)
    schema = SegmentSchema.of(schema_key(thrift, {int(n): leaf for n, leaf in words["columns"].items()}))
    n_leaves = len(schema.leaves)
    for number, leaf in schema.columns.items():
        if not 0 <= number < n_columns or not isinstance(leaf, int) or not 0 <= leaf < n_leaves:
            raise ValueError("a schema has no such column")
    return schema


def _column(words: Mapping[str, Any], n_columns: int, places: int) -> SegmentColumn:
    bits = _int(words, "bits", 1, min(_MOST_BITS, 64 - place_bits_of(places)))
    partition_bits = _int(words, "partition_bits", 0, min(bits, 24))
    parts = tuple(map(_part, _list(words, "parts")))
    if len(parts) != 1 << partition_bits:
        raise ValueError(f"{len(parts)} parts for {partition_bits} bits")
    return SegmentColumn(_int(words, "number", 0, n_columns - 1), bits, partition_bits, parts)


def _part(words: Any) -> PartFile:
    if not isinstance(words, list) or len(words) != 3 or not all(type(n) is int and 0 <= n <= _INT64 for n in words):
        raise ValueError("a file is not [rows, size, crc32]")
    return PartFile(*words)


def _field_id(words: Mapping[str, Any]) -> int | None:
    return None if words["field_id"] is None else _int(words, "field_id", -_INT32, _INT32)


def _int(words: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = words[name]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is no whole number from {low} to {high}")
    return value


def _text(words: Mapping[str, Any], name: str) -> str:
    value = words[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _list(words: Mapping[str, Any], name: str) -> list[Any]:
    value = words[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value
